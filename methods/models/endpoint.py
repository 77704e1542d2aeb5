"""Call an OpenAI-compatible endpoint once; return the completion, or a fault that says whether a retry can help.

Keys are masked in every text from an endpoint, including replies, because some endpoints repeat them.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Protocol, TypeVar

from benchmarks.core.errors import Broke, MissingPackage, UserError, nearest
from methods.flow import trace
from methods.models import secrets
from methods.models.chat_config import ChatConfig
from methods.models.connection import connection_variables, no_cookies, opened, require_headers, retry_after
from methods.models.counting import Counter, TokenCounter
from methods.models.dialect import dialect_of
from methods.models.limits import Signal
from methods.models.reply import Completion, ErrorReply, completion_of
from methods.models.usage import dollars

T = TypeVar("T")
Messages = Sequence[dict[str, str]]
"""A conversation: `{"role": "system" | "user" | "assistant", "content": text}` in order."""

TOKENS = "tokens"
"""Role of a message that contains a prompt as token ids, which a model continues without a chat template."""


def token_message(ids: Sequence[int]) -> dict[str, str]:
    """Return the message that represents a prompt as token ids."""
    return {"role": TOKENS, "content": " ".join(map(str, ids))}


def token_ids(messages: Sequence[Mapping[str, str]]) -> list[int] | None:
    """Return the token ids of a message with a prompt; None for a conversation."""
    return [int(number) for number in messages[0]["content"].split()] if messages and messages[0]["role"] == TOKENS else None


REFUSALS = {401: "refuses the key", 402: "has no credit left", 403: "refuses access", 404: "does not know this model or path"}
"""HTTP status codes that affect every call, with their meaning."""
WHOLE = (200, 201, 203)
"""HTTP status codes of complete replies; 202 (accepted), 204 (no content) and 206 (partial) have none."""
PASSING = (408, 409, 424, 425, 429, 498, 499)
"""Statuses below 500 after which a retry can help; with 424, TEI and Azure ML report a failure of the model behind them."""
_QUOTA = "insufficient_quota"
_AS_IT_IS = {"X-Stainless-Raw-Response": "true"}
"""Header that makes the client return an unparsed response, like its `with_raw_response`."""
_REDIRECTS = (301, 302, 303, 307, 308)
"""HTTP status codes that name another address; for a POST, clients follow the first three with a GET."""
_COST = "x-litellm-response-cost"
"""Header in which a LiteLLM proxy reports the cost of a reply in dollars."""
_COMMENTS = re.compile(rb"\A(?:\s*:[^\n]*\n)+")
"""Comment lines with which OpenRouter keeps a connection open before a reply."""
_STREAM = "a stream, which was not requested"
_VERSIONS = ("openai-version", "api-version", "x-api-version", "x-model-version", "x-version")
"""Headers in which endpoints report their version."""


class Fault(Exception):
    """A call that returned no completion.

    Attributes:
        reason: One line, without the key.
        advice: `retry`: a retry can help; `fail`: only this call fails; `stop`: no call can succeed.
        signal: Signal for the rate limiter, see `limits.Signal`.
        status: HTTP status, if one came back.
        after: Seconds that the endpoint asks to wait.
        reached: Whether a server answered.
        misdirected: Whether the server may not be such an endpoint.
        redirect: Address to which the server redirects; "" if it does not.
        parameter: The request's parameter that the endpoint rejects; "" if it names none.
    """

    def __init__(
        self,
        reason: str,
        advice: Literal["retry", "fail", "stop"],
        *,
        signal: Signal = "ok",
        status: int | None = None,
        after: float | None = None,
        reached: bool = True,
        misdirected: bool = False,
        redirect: str = "",
        parameter: str = "",
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.advice = advice
        self.signal = signal
        self.status = status
        self.after = after
        self.reached = reached
        self.misdirected = misdirected
        self.redirect = redirect
        self.parameter = parameter


def incomplete(status: int) -> Fault:
    """Return the fault of a reply whose status says that it is not complete; a partial one may be complete at the next try."""
    return Fault(f"HTTP {status}: the reply is not complete", "retry" if status == 206 else "fail", status=status)


class _Redirected(Exception):
    """A redirect that would lose the request or its key.

    Attributes:
        status: HTTP status.
        location: The address that it points to.
    """

    def __init__(self, status: int, location: str) -> None:
        super().__init__(f"HTTP {status}: redirects to {location}")
        self.status, self.location = status, location


async def _refuse_redirect(response: Any) -> None:
    """Raise an error for a redirect that the client would follow with a GET, or to another server without the key.

    Raises:
        _Redirected: The response is such a redirect.
    """
    location = response.headers.get("location", "")
    if response.status_code not in _REDIRECTS or not location:
        return
    source = response.request.url
    target = source.join(location)
    elsewhere = (target.scheme, target.host, target.port) != (source.scheme, source.host, source.port)
    if elsewhere or (response.status_code < 307 and response.request.method != "GET"):
        raise _Redirected(response.status_code, str(target))


class Backend(Protocol):
    """Interface of the source of a `ChatModel`'s replies: an endpoint, a local model or a script. It belongs to one event loop.

    Attributes:
        url: Its address, which is part of cache keys.
        counter: Counter of its tokens.
        room: Longest prompt in tokens, None if unknown.
        connected: Whether it has connections to close.
        charged: Whether its calls count towards the limits of an experiment.
    """

    url: str
    counter: Counter
    room: int | None
    charged: bool

    @property
    def connected(self) -> bool: ...

    async def send(self, messages: list[dict[str, str]], extra: Mapping[str, Any], repetition: int) -> Completion:
        """Send one request, with further fields; the repetition distinguishes samples of one conversation.

        Raises:
            Fault: The request returned no completion.
        """
        ...

    async def close(self) -> None: ...

    def hopeless(self, fault: Fault) -> bool: ...

    async def error(self, fault: Fault) -> UserError: ...


PER_CLIENT = 16
"""Maximum connections per client."""


@dataclass(slots=True)
class _Connected:
    """A client with the number of its requests in flight."""

    client: Any
    in_flight: int = 0


class Endpoint:
    """`Backend` for one OpenAI-compatible endpoint.

    Args:
        config: Options.

    Raises:
        UserError: The key is not set.
        MissingPackage: The client's package is not installed.
    """

    charged = True

    def __init__(self, config: ChatConfig) -> None:
        try:
            import openai
        except ImportError as error:
            raise MissingPackage(error.name or "openai", "llm", f"the chat model {config.model!r}") from error
        self._openai = openai
        self.config = config
        self.url = config.url
        self.counter: Counter = TokenCounter(config.tokenizer)
        self.room: int | None = None
        self._key = secrets.use(config.key())
        self._headers, self._query = config.filled("headers"), config.filled("query")
        require_headers(self._headers, "headers")
        for secret in config.secrets():
            secrets.use(secret)
        self._asking: dict[str, Any] = dict(_AS_IT_IS)
        if self._headers and config.key_variable is None and "authorization" not in map(str.lower, self._headers):
            self._asking["Authorization"] = openai.Omit()  # an invented key next to the header's would be refused
        self.dialect = dialect_of(config.url, config.model)
        self._clients: list[_Connected] = []
        self._pid = 0
        self.reached = False

    @contextmanager
    def _client(self) -> Iterator[Any]:
        """Provide a client for one request; clients are created when first used and belong to the event loop that uses them.

        A client searches all of its connections at every request, which with hundreds takes longer than the rest of the
        request. Therefore each client has at most `PER_CLIENT`.
        """
        if self._pid != os.getpid():  # a forked child must not use its parent's connections
            self._pid, self._clients = os.getpid(), []
        client = next((client for client in self._clients if client.in_flight < PER_CLIENT), None)
        if client is None:
            # We retry the errors for which it helps; retries of the client would multiply with ours.
            client = _Connected(opened(self._new_client))
            self._clients.append(client)
        client.in_flight += 1
        try:
            yield client.client
        finally:
            client.in_flight -= 1

    def _new_client(self) -> Any:
        return self._openai.AsyncOpenAI(
            api_key=self._key,
            base_url=self.config.url,
            timeout=self.config.timeout_s,
            max_retries=0,
            default_headers=self._headers or None,
            default_query=self._query or None,
            http_client=self._openai.DefaultAsyncHttpxClient(event_hooks={"response": [_refuse_redirect]}, cookies=no_cookies()),
        )

    @property
    def connected(self) -> bool:
        """Return whether it has connections to close."""
        return bool(self._clients) and self._pid == os.getpid()

    async def close(self) -> None:
        """Close the connections."""
        clients, self._clients = self._clients, []
        for client in clients:
            await client.client.close()

    async def send(self, messages: list[dict[str, str]], extra: Mapping[str, Any], repetition: int) -> Completion:
        """Send one request; see `Backend.send`."""
        with trace().during(serving=1):
            return self._hidden(await self._send(messages, extra, repetition))

    @staticmethod
    def _hidden(completion: Completion) -> Completion:
        """Mask keys that a completion repeats."""
        texts = {field.name: value for field in fields(completion) if isinstance(value := getattr(completion, field.name), str)}
        repeated = {name: text for name, value in texts.items() if (text := secrets.hidden(value)) != value}
        return replace(completion, **repeated) if repeated else completion  # type: ignore[arg-type]

    async def _send(self, messages: list[dict[str, str]], extra: Mapping[str, Any], repetition: int) -> Completion:
        """Send a request in the endpoint's dialect, and adapt the dialect if the endpoint refuses it."""
        config = self.config
        if (ids := token_ids(messages)) is not None:
            # A system that continues token ids needs every field that it sends, so nothing is left out for a dialect.
            continued = {"temperature": config.temperature, **config.parameters, **extra}
            return await self._post({"model": config.model, "prompt": ids, **continued}, repetition)
        options = {"temperature": config.temperature, config.limit_name: config.max_tokens, **config.parameters}
        options = {name: value for name, value in options.items() if value is not None}
        while True:
            body = self.dialect.body({"model": config.model, "messages": messages, **options, **extra})
            try:
                completion = await self._post(body, repetition)
            except Fault as fault:
                if not self.dialect.learn(body, fault.status, fault.parameter, fault.reason):
                    raise
                continue
            # Fields that were left out may change a reply, so they are stored with the model that served it.
            unsent = self.dialect.unsent(options)
            return replace(completion, version="; ".join(filter(None, (completion.version, unsent)))) if unsent else completion

    async def called(self, call: Callable[[Any, Mapping[str, Any]], Awaitable[T]]) -> T:
        """Run an API call with a client, and convert its failures to `Fault`.

        Raises:
            Fault: The call failed.
        """
        headers = {name: value for name, value in self._asking.items() if name not in _AS_IT_IS}
        try:
            async with asyncio.timeout(self.config.timeout_s):
                with self._client() as client:
                    result = await call(client, {"extra_headers": headers})
        except (self._openai.OpenAIError, TimeoutError) as error:
            fault = self._fault(error)
            self.reached = self.reached or fault.reached
            raise fault from None
        self.reached = True
        return result

    async def _post(self, body: Mapping[str, Any], repetition: int) -> Completion:
        try:
            # The client's own timeout is per read, so a slow stream of bytes would never reach it.
            async with asyncio.timeout(self.config.timeout_s):
                with self._client() as client:
                    # Bypasses the client's typed function, which copies every message.
                    path = "/completions" if "prompt" in body else "/chat/completions"
                    raw = await client.post(path, cast_to=object, body=body, options={"headers": self._asking})
        except (self._openai.OpenAIError, TimeoutError) as error:
            fault = self._fault(error)
            self.reached = self.reached or fault.reached
            raise fault from None
        self.reached = True
        if raw.status_code not in WHOLE:
            raise incomplete(raw.status_code)
        completion = self._read(raw.headers.get("content-type", ""), raw.content)
        if version := "; ".join(f"{name}: {raw.headers[name]}" for name in _VERSIONS if name in raw.headers):
            completion = replace(completion, version=self.clean(version))
        if completion.cost_usd is None and (cost := dollars(raw.headers.get(_COST))) is not None:
            completion = replace(completion, cost_usd=cost)
        self.dialect.answered = True
        return completion

    def _read(self, content_type: str, body: bytes) -> Completion:
        """Read a reply; if it is not a completion, a retry may help.

        Raises:
            Fault: The reply is not a completion.
        """
        body = _COMMENTS.sub(b"", body)
        if body.lstrip().startswith((b"data:", b"event:")):
            raise Fault(f"the reply is not a chat completion but {_STREAM}", "retry", misdirected=True)
        if "json" not in content_type.lower() and not body.lstrip().startswith((b"{", b"[")):
            kind = content_type.split(";")[0] or "no content type"
            raise Fault(
                f"the reply is not a chat completion but {kind} (is base_url right? it usually ends in /v1)", "retry", misdirected=True
            )
        try:
            completion = completion_of(json.loads(body))
        except ErrorReply as error:
            lost = error.code is not None and 400 <= error.code < 500 and error.code not in PASSING
            reason = self.clean(f"the endpoint reports an error in place of a reply: {error.message}")
            signal: Signal = "busy" if error.code in (429, 503) else "ok"
            raise Fault(reason, "fail" if lost else "retry", status=error.code, signal=signal) from None
        except LookupError as error:
            raise Fault(str(error), "retry") from None
        except (ValueError, RecursionError) as error:
            excerpt = self.clean(body[:120].decode("utf-8", "replace"))
            problem = "is not JSON" if isinstance(error, json.JSONDecodeError | UnicodeDecodeError) else "is not a chat completion"
            raise Fault(f"the reply {problem}: {excerpt!r}", "retry") from None
        return replace(completion, refusal=self.clean(completion.refusal))

    def _fault(self, error: Exception) -> Fault:
        """Convert an error of the client to a fault."""
        if isinstance(error, TimeoutError | self._openai.APITimeoutError):
            return Fault(f"timed out after {self.config.timeout_s:g} s", "retry", signal="broken")
        if isinstance(error, self._openai.APIConnectionError):
            cause = error.__cause__
            if isinstance(cause, _Redirected):
                advice: Literal["stop", "fail"] = "fail" if self.dialect.answered else "stop"
                return Fault(self.clean(str(cause)), advice, status=cause.status, redirect=self.clean(cause.location))
            detail = f" ({type(cause).__name__}: {cause})" if cause is not None else ""
            return Fault(self.clean(f"{error}{detail}"), "retry", signal="broken", reached=False)
        reason = self.clean(str(error)) or type(error).__name__
        status = getattr(error, "status_code", None)
        parameter = str(getattr(error, "param", None) or "")
        if status is None:
            return Fault(reason, "fail")
        reason = reason if str(status) in reason else f"HTTP {status}: {reason}"
        if getattr(error, "code", None) == _QUOTA:
            return Fault(reason, "stop", status=status)
        if status in REFUSALS:
            # Some endpoints refuse a single prompt by 403, or return 404 from one lost replica; this must not stop other calls.
            return Fault(
                reason, "stop" if status in (401, 402) or not self.dialect.answered else "fail", status=status, parameter=parameter
            )
        if status in PASSING or status >= 500:
            signal: Signal = "busy" if status in (429, 503) else "ok"
            after = retry_after(error.response.headers)  # type: ignore[attr-defined]
            if after is not None and after > self.config.longest_wait_s:
                query = f"{reason} (it asks to wait {after:.0f} s; longest_wait_s is {self.config.longest_wait_s:g})"
                return Fault(query, "fail", signal=signal, status=status)
            return Fault(reason, "retry", signal=signal, status=status, after=after)
        return Fault(reason, "fail", status=status, parameter=parameter)

    def clean(self, text: str) -> str:
        """Return a text as one line of at most 300 characters, without keys."""
        for secret in self.config.secrets():
            text = text.replace(secret, secrets.HIDDEN)
        return " ".join(secrets.hidden(text).split())[:300]

    def hopeless(self, fault: Fault) -> bool:
        """Return whether a fault that persists after all retries means that no other call can succeed."""
        if fault.advice == "stop":
            return True
        return not self.dialect.answered and (fault.misdirected or not (self.reached or fault.reached))

    async def error(self, fault: Fault) -> UserError:
        """Convert a permanent fault to an error for the user."""
        where = f"model {self.config.model!r}"
        if not fault.reached:
            way = connection_variables(self.config.url)
            between = f" (in effect: {way})" if way else ""
            hint = "start the server, or correct `base_url`"
            if "CERTIFICATE" in fault.reason.upper():
                hint = "export SSL_CERT_FILE=… with the certificate of the server or of your proxy"
            elif "WRONG_VERSION_NUMBER" in fault.reason:
                hint = "the server does not speak TLS: base_url with http:// in place of https://"
            elif any(name in fault.reason for name in ("ReadError", "RemoteProtocolError", "DecodingError")):
                hint = "a server is there, but it closes the connection or garbles its reply: see its log; does it expect https://?"
            hint += "; check these variables" if way else ""
            return Broke(
                f"nothing answers at {self.config.url}: {fault.reason}{between}", code="endpoint-unreachable", where=where, try_this=hint
            )
        if fault.redirect:
            base, path = re.subn(r"(/chat)?/completions/?(\?.*)?$", "", fault.redirect)
            hint = (
                f"use the address that it points to; base_url: {base}"
                if path
                else "check `base_url` and the key: no chat endpoint is there"
            )
            return UserError(
                f"{self.config.url} redirects requests to {fault.redirect} (HTTP {fault.status})",
                code="endpoint-redirects",
                where=where,
                try_this=hint,
            )
        if fault.status == 404:
            hint = await self._models_hint() or "check `model` and `base_url` (it usually ends in /v1)"
            if "parameters" in fault.reason:
                hint = "no provider of this model takes every field: leave out `parameters`, or set `temperature: null`"
        elif fault.status == 407:
            hint = (
                f"a proxy wants a name and password: HTTPS_PROXY=http://NAME:PASSWORD@HOST (in effect: {connection_variables() or 'none'})"
            )
        elif fault.reason.endswith(_STREAM):
            hint = "turn streaming off at the server or its proxy, or ask it by the method `http` with `stream: sse`"
        elif fault.misdirected:
            hint = "correct `base_url`; it usually ends in /v1"
            if way := connection_variables(self.config.url):
                hint += f"; or a proxy answers in its place (in effect: {way})"
        elif fault.advice == "stop":
            position = f"in {self.config.key_variable}" if self.config.key_variable else "(key_variable is null)"
            hint = f"check the key {position} and what it may use"
        elif "model" in fault.reason:
            hint = await self._models_hint() or "check `model`"
        else:
            hint = "see what the endpoint says; check `parameters`, `temperature` and `max_tokens`"
        problem = "does not answer" if fault.advice != "stop" else REFUSALS.get(fault.status or 0, "")
        return Broke(
            f"{self.config.url} {problem or 'says that the quota is used up'}: {fault.reason}",
            code="endpoint-error",
            where=where,
            try_this=hint,
        )

    async def _models_hint(self) -> str | None:
        """Return the models that the endpoint offers instead, if it lists them."""
        try:
            async with asyncio.timeout(10):
                with self._client() as client:
                    names = [model.id async for model in client.models.list()]
        except (self._openai.OpenAIError, TimeoutError, AttributeError, TypeError, ValueError):
            return None
        if not names or self.config.model in names:
            return None
        guess = nearest(self.config.model, names)
        shown = ", ".join(sorted(names)[:8]) + (" …" if len(names) > 8 else "")
        return (f"model: {guess}; " if guess else "") + f"the endpoint offers {shown}"
