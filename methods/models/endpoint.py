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
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from benchmarks.core.errors import Broke, MissingPackage, UserError, nearest
from benchmarks.core.fingerprint import fingerprint
from methods.flow import trace
from methods.models import secrets
from methods.models.dialect import dialect_of
from methods.models.limits import Address, Signal
from methods.models.reply import Completion, ErrorReply, completion_of, dollars
from methods.models.revision import DESCRIPTION, Probe, Revision, ask

# The key only comes from an environment variable, whose name is an option; the key itself is never an option.


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


DEFAULT_URL = "https://api.openai.com/v1"
"""Address of calls if neither `base_url` nor OPENAI_BASE_URL sets one."""
_OWN = {"model", "messages", "temperature", "max_tokens", "max_completion_tokens", "stream", "n", "response_format"}
_LIKE_A_KEY = re.compile(r"(?:hf|gsk|r8|sk|gh[pousr]|github_pat)_[A-Za-z0-9_]{16,}|(?=[A-Za-z]*[0-9])[A-Za-z0-9]{20,}$")
"""Names of variables that look like keys; they are masked, because errors repeat the names of unset variables."""


UNSTATED = 4096
"""Assumed maximum reply length in tokens if `max_tokens` is null."""
_SECRET_NAME = re.compile(r"auth|key|token|secret|password|cookie|signature", re.IGNORECASE)
_SHORTEST_SECRET = 6
"""Minimum length of a header's value to be masked, since shorter values may be part of ordinary words."""
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def _variable(match: re.Match[str], where: str) -> str:
    value = os.environ.get(match[1], "").strip()
    if not value:
        raise UserError(
            f"the environment variable {match[1]} is not set", code="missing-variable", where=where, try_this=f"export {match[1]}=…"
        )
    return value


class ChatConfig(BaseModel):
    """Options of a chat endpoint.

    Options that change only speed or spending are left out of dumps (`exclude`) and therefore out of fingerprints, so that
    a run can resume with another concurrency or a higher limit.
    """

    # A key in the wrong field must not appear in the error message.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    model: str = Field(description="the model's name at the endpoint")
    base_url: str | None = Field(None, description="e.g. http://localhost:8000/v1; null: OPENAI_BASE_URL, else OpenAI")
    key_variable: str | None = Field(
        "OPENAI_API_KEY", description="environment variable that holds the key; null if the endpoint needs none", exclude=True
    )
    headers: dict[str, str] = Field(
        default={}, description="additional headers of every request; read a secret from the environment: ${MY_KEY}", exclude=True
    )
    query: dict[str, str] = Field(
        default={}, description="URL parameters of every request, such as api-version; ${NAME} as in headers", exclude=True
    )
    temperature: float | None = Field(0.0, ge=0, description="sampling temperature; 0: the most likely reply; null: not sent")
    max_tokens: int | None = Field(64, ge=1, description="longest reply; null: not sent, so the endpoint decides")
    limit_name: Literal["max_tokens", "max_completion_tokens"] = Field(
        "max_tokens", description="the endpoint's name of the option max_tokens; newer OpenAI models: max_completion_tokens"
    )
    parameters: dict[str, Any] = Field(
        default={},
        description="additional fields of every request, as the endpoint names them (top_p, seed …); a field that is null is not sent",
    )
    structured_output: Literal["json_schema", "json_object", "prompt"] = Field(
        "json_schema", description="first way to request JSON; if the endpoint refuses, the next way in this order is used"
    )
    concurrency: int = Field(
        16,
        ge=1,
        description="maximum concurrent calls to the endpoint from this process, over all parts; the smallest of several settings applies",
        exclude=True,
    )
    timeout_s: float = Field(120.0, gt=0, description="time limit for a complete reply", exclude=True)
    attempts: int = Field(
        8, ge=1, description="attempts per call, for errors that a retry may fix: 429, 5xx, no connection, broken replies", exclude=True
    )
    backoff_s: float = Field(
        1.0,
        ge=0,
        description="maximum pause before the second try; doubles with each try; the actual pause is drawn evenly from 0 to this",
        exclude=True,
    )
    longest_wait_s: float = Field(
        120.0,
        ge=0,
        description="maximum pause that an endpoint may ask for (Retry-After); if it asks for more, the call fails",
        exclude=True,
    )
    usd_per_million_prompt_tokens: float = Field(
        0.0, ge=0, description="price, for costs and limits; set 0 for a model that is free or reports its cost"
    )
    usd_per_million_completion_tokens: float = Field(0.0, ge=0, description="price of completion tokens; see usd_per_million_prompt_tokens")
    usd_per_million_cached_tokens: float | None = Field(
        None, ge=0, description="price of prompt tokens that the endpoint had cached; null: the price of other prompt tokens", exclude=True
    )
    batch: bool = Field(
        False,
        description="send the calls of judges and of the reader `chat` through the endpoint's batch API; others are made live",
        exclude=True,
    )
    batch_price: float | None = Field(
        None, ge=0, le=1, description="share of the price that a call in a batch costs, such as 0.5; null: the full price", exclude=True
    )
    poll_s: float = Field(30.0, gt=0, description="maximum seconds between two checks of a batch", exclude=True)
    call_tokens: int | None = Field(
        None, ge=1, description="do not send a call that may need more tokens than this (prompt and longest reply)", exclude=True
    )
    call_usd: float | None = Field(None, ge=0, description="do not send a call that may cost more dollars than this", exclude=True)
    run_tokens: int | None = Field(
        None, ge=0, description="maximum tokens of all parts that use this model, in one execution of a task", exclude=True
    )
    run_usd: float | None = Field(
        None, ge=0, description="maximum dollars of all parts that use this model, in one execution of a task", exclude=True
    )
    tokenizer: str | None = Field(
        None, description="a tokenizer.json, or its folder, to estimate tokens with; null: characters / 4", exclude=True
    )
    revision: Revision = Field(None, description=f"{DESCRIPTION}; null: `created` in /v1/models", exclude_if=lambda value: value is None)

    @field_validator("key_variable")
    @classmethod
    def _is_a_name(cls, value: str | None) -> str | None:
        if value is not None and (not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value) or _LIKE_A_KEY.match(value)):
            raise ValueError("key_variable is the name of an environment variable, never the key itself")
        return value

    @field_validator("base_url")
    @classmethod
    def _plain_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("base_url must start with http:// or https://")
        if parts.username or parts.password or parts.query:
            raise ValueError("base_url must not carry a key or a query: put them into key_variable and query")
        return value

    @field_validator("parameters")
    @classmethod
    def _further(cls, value: dict[str, Any]) -> dict[str, Any]:
        taken = sorted(_OWN & set(value))
        if taken:
            raise ValueError(f"parameters must not hold {', '.join(taken)}: that is a separate option, or fixed")
        return value

    @field_validator("headers", "query")
    @classmethod
    def _no_secrets(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if _SECRET_NAME.search(name) and not _VARIABLE.search(text):
                raise ValueError(f"{name} holds a secret: name an environment variable instead ({name}: ${{MY_KEY}})")
            if "${" in _VARIABLE.sub("", text):
                raise ValueError(f"{name} names a variable in a way that is not ${{NAME}}")
            if "\n" in text or "\r" in text:
                raise ValueError(f"{name} must be one line")
        return value

    @property
    def longest(self) -> int:
        """Return the maximum reply length in tokens, for estimates and limits."""
        return self.max_tokens or UNSTATED

    @property
    def url(self) -> str:
        """Return the URL of calls."""
        return (self.base_url or os.environ.get("OPENAI_BASE_URL") or DEFAULT_URL).rstrip("/")

    def key(self) -> str:
        """Return the key.

        Raises:
            UserError: The variable is not set.
        """
        if self.key_variable is None:
            return "none"  # the client insists on one
        key = os.environ.get(self.key_variable, "").strip()
        if not key:
            raise UserError(
                f"no key for the model {self.model!r}: the environment variable {self.key_variable} is not set",
                code="missing-variable",
                where="key_variable",
                try_this=f"export {self.key_variable}=…, or key_variable: null for an endpoint without a key",
            )
        return key

    @property
    def address(self) -> Address:
        """Return the endpoint, key and model for which concurrency is limited.

        Raises:
            UserError: The key is not set.
        """
        return Address.of(self.url, self.key(), self.model)

    def resolved_revision(self) -> str:
        """Return the revision as text, "" if none is configured; a probe is fetched on each call.

        A probe without a `url` reads the endpoint itself: its list of models, then its base URL.

        Raises:
            Broke: The probe cannot be read.
        """
        probe = self.revision
        if not isinstance(probe, Probe):
            return probe or ""
        if probe.command or probe.url:
            return ask(probe)
        return ask(probe, (f"{self.url}/models", self.url), self.authorization())

    def authorization(self) -> dict[str, str]:
        """Return the request headers with the key, and those of the options.

        Raises:
            UserError: The variable is not set.
        """
        own = {} if self.key_variable is None else {"authorization": f"Bearer {self.key()}"}
        return own | self.filled("headers")

    def filled(self, option: Literal["headers", "query"]) -> dict[str, str]:
        """Return the headers or the query with the values of their environment variables.

        Raises:
            UserError: A variable is not set.
        """
        values: dict[str, str] = getattr(self, option)
        return {name: _VARIABLE.sub(partial(_variable, where=f"{option}.{name}"), text) for name, text in values.items()}

    def secrets(self) -> list[str]:
        """Return every value that comes from a variable, longest first, for masking in messages."""
        names = {match for option in (self.headers, self.query) for text in option.values() for match in _VARIABLE.findall(text)}
        values = {value for name in names if len(value := os.environ.get(name, "").strip()) >= _SHORTEST_SECRET}
        if self.key_variable is not None:
            values.add(os.environ.get(self.key_variable, "").strip())
        return sorted(values - {""}, key=len, reverse=True)

    @property
    def served_here(self) -> bool:
        """Return whether the endpoint needs no key, and is therefore assumed to be the user's own server."""
        return self.key_variable is None and not any(_VARIABLE.search(text) for text in (*self.headers.values(), *self.query.values()))

    @property
    def priced(self) -> bool:
        """Return whether the cost of a call is known: a price is set, which may be 0, or the endpoint needs no key."""
        return self.served_here or {"usd_per_million_prompt_tokens", "usd_per_million_completion_tokens"} <= self.model_fields_set

    def usd(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return dollars by the configured prices."""
        return (prompt_tokens * self.usd_per_million_prompt_tokens + completion_tokens * self.usd_per_million_completion_tokens) / 1e6

    def cost(self, completion: Completion) -> float | None:
        """Return the cost of a completion in dollars: as reported, else by the configured prices; None if unknown."""
        if completion.cost_usd is not None:
            return completion.cost_usd
        cached = self.usd_per_million_cached_tokens
        usd = self.usd(completion.prompt_tokens, completion.completion_tokens)
        if cached is not None:
            usd += completion.cached_tokens * (cached - self.usd_per_million_prompt_tokens) / 1e6
        if completion.batched and self.batch_price is not None:
            usd *= self.batch_price
        free = self.priced and not self.usd_per_million_prompt_tokens and not self.usd_per_million_completion_tokens
        return usd if free or (completion.counted and (self.priced or usd)) else None


REFUSALS = {401: "refuses the key", 403: "refuses access", 404: "does not know this model or path"}
"""HTTP status codes that affect every call, with their meaning."""
WHOLE = (200, 201, 203)
"""HTTP status codes of complete replies; 202 (accepted), 204 (no content) and 206 (partial) have none."""
_PASSING = (408, 409, 425, 429)
"""Statuses below 500 after which a retry can help."""
_QUOTA = "insufficient_quota"
_AS_IT_IS = {"X-Stainless-Raw-Response": "true"}
"""Header that makes the client return an unparsed response, like its `with_raw_response`."""


_COST = "x-litellm-response-cost"
"""Header in which a LiteLLM proxy reports the cost of a reply in dollars."""
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
        self.parameter = parameter


def incomplete(status: int) -> Fault:
    """Return the fault of a reply whose status says that it is not complete; a partial one may be complete at the next try."""
    return Fault(f"HTTP {status}: the reply is not complete", "retry" if status == 206 else "fail", status=status)


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

    async def error(self, fault: Fault) -> Broke: ...


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
        for secret in config.secrets():
            secrets.use(secret)
        self._asking: dict[str, Any] = dict(_AS_IT_IS)
        if self._headers and config.key_variable is None and "authorization" not in map(str.lower, self._headers):
            self._asking["Authorization"] = openai.Omit()  # an invented key next to the header's would be refused
        self.dialect = dialect_of(config.url, config.model)
        self._clients: list[_Connected] = []
        self._pid = 0
        self.reached = False
        self.answered = False

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
            client = _Connected(
                self._openai.AsyncOpenAI(
                    api_key=self._key,
                    base_url=self.config.url,
                    timeout=self.config.timeout_s,
                    max_retries=0,
                    default_headers=self._headers or None,
                    default_query=self._query or None,
                )
            )
            self._clients.append(client)
        client.in_flight += 1
        try:
            yield client.client
        finally:
            client.in_flight -= 1

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
        self.answered = True
        return completion

    def _read(self, content_type: str, body: bytes) -> Completion:
        """Read a reply; if it is not a completion, a retry may help.

        Raises:
            Fault: The reply is not a completion.
        """
        if "json" not in content_type.lower():
            kind = content_type.split(";")[0] or "no content type"
            raise Fault(
                f"the reply is not a chat completion but {kind} (is base_url right? it usually ends in /v1)", "retry", misdirected=True
            )
        try:
            completion = completion_of(json.loads(body))
        except ErrorReply as error:
            lost = error.code is not None and 400 <= error.code < 500 and error.code not in _PASSING
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
            return Fault(reason, "stop" if status == 401 or not self.answered else "fail", status=status, parameter=parameter)
        if status in (408, 429) or status >= 500:
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
        return not self.answered and (fault.misdirected or not (self.reached or fault.reached))

    async def error(self, fault: Fault) -> Broke:
        """Convert a permanent fault to an error for the user."""
        where = f"model {self.config.model!r}"
        if not fault.reached:
            way = connection_variables(self.config.url)
            between = f" (in effect: {way})" if way else ""
            hint = "start the server, or correct `base_url`"
            if "CERTIFICATE" in fault.reason.upper():
                hint = "export SSL_CERT_FILE=… with the certificate of the server or of your proxy"
            hint += "; check these variables" if way else ""
            return Broke(
                f"nothing answers at {self.config.url}: {fault.reason}{between}", code="endpoint-unreachable", where=where, try_this=hint
            )
        if fault.status == 404:
            hint = await self._models_hint() or "check `model` and `base_url` (it usually ends in /v1)"
        elif fault.status == 407:
            hint = (
                f"a proxy wants a name and password: HTTPS_PROXY=http://NAME:PASSWORD@HOST (in effect: {connection_variables() or 'none'})"
            )
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


_CONNECTION = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")


def connection_variables(url: str = "https:") -> str:
    """Return the environment variables that affect connections to a URL, with their values but without passwords; "" for none."""
    shown = {}
    for name in (*_CONNECTION, *map(str.lower, _CONNECTION)):
        if name.upper().startswith("SSL_") and url.lower().startswith("http:"):
            continue
        if value := os.environ.get(name, ""):
            shown[name] = re.sub(r"(^|//)[^/\s]*@", r"\1***@", value)
    return ", ".join(f"{name}={value}" for name, value in shown.items())


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that an endpoint asks to wait (`Retry-After` in seconds or as a date), or None.

    Source: RFC 9110, section 10.2.3; `retry-after-ms` is OpenAI's.
    """
    try:
        if "retry-after-ms" in headers:
            return max(float(headers["retry-after-ms"]) / 1000, 0.0)
        text = headers["retry-after"]
    except (KeyError, ValueError):
        return None
    try:
        return max(float(text), 0.0)
    except ValueError:
        pass
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return None
    return max((when - datetime.now(when.tzinfo or UTC)).total_seconds(), 0.0) if when.tzinfo else None


CHARACTERS_PER_TOKEN = 4
"""Approximate characters per token of English text in current tokenizers; stated next to every estimate that uses it."""
PER_MESSAGE = 4
"""Approximate tokens that a chat template adds per message."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimated calls, tokens and cost of requests.

    Attributes:
        calls: Number of calls to send.
        cached: Number of conversations that the cache answers.
        prompt_tokens: Prompt tokens of the calls to send.
        completion_tokens: Maximum completion tokens.
        usd: Maximum cost in dollars, by the configured prices.
        counted_by: How tokens were counted.
        cache_known: Whether the cache was checked; otherwise it may answer some of the calls.
    """

    calls: int
    cached: int
    prompt_tokens: int
    completion_tokens: int
    usd: float
    counted_by: str
    cache_known: bool = True

    def __str__(self) -> str:
        cache = f"{self.cached:,} more are cached" if self.cache_known else "fewer where replies are cached"
        return (
            f"{self.calls:,} calls ({cache}), {self.prompt_tokens:,} prompt tokens and at most "
            f"{self.completion_tokens:,} completion tokens ({self.counted_by}), {self._price()}"
        )

    def _price(self) -> str:
        if not self.usd:
            return "no price configured" if self.prompt_tokens or self.completion_tokens else "at no cost"
        return f"at most ${self.usd:,.4f}" if self.usd >= 0.0001 else "less than $0.0001"


class Counter(Protocol):
    """Interface of a token counter with a `name`; counters with equal `fingerprint` give equal counts."""

    name: str

    @property
    def fingerprint(self) -> str: ...

    def count(self, messages: Sequence[Mapping[str, str]]) -> int:
        """Return the number of tokens of a conversation, including its template."""
        ...

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the character spans of a text's tokens, in order."""
        ...

    @property
    def begin(self) -> int:
        """Return the number of special tokens before a text."""
        ...

    def first(self, text: str, tokens: int, special: bool = True) -> str:
        """Return the first tokens of a text, decoded by the tokenizer even if nothing is cut; optionally without special tokens."""
        ...

    def counts(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
        ...


class TokenCounter:
    """Counter of a conversation's tokens with a tokenizer file.

    Args:
        tokenizer: A `tokenizer.json` or a folder with one; None counts characters / 4.

    Raises:
        UserError: The file cannot be read.
        MissingPackage: The package `tokenizers` is not installed.
    """

    def __init__(self, tokenizer: str | None = None) -> None:
        self._tokenizer: Any = None
        self.name = f"characters / {CHARACTERS_PER_TOKEN}"
        if tokenizer is None:
            return
        path = Path(tokenizer).expanduser()
        path = path / "tokenizer.json" if path.is_dir() else path
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise MissingPackage("tokenizers", "models", "counting tokens") from error
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the package raises a bare Exception
            raise UserError(
                f"the tokenizer cannot be read: {error}",
                code="unreadable-tokenizer",
                where=str(path),
                try_this="tokenizer: FOLDER of a model",
            ) from None
        self.name = str(path)

    def count(self, messages: Sequence[Mapping[str, str]]) -> int:
        """Return the number of tokens of a conversation, including its template."""
        texts = [message["content"] for message in messages]
        return PER_MESSAGE * len(texts) + sum(self.counts(texts))

    @property
    def fingerprint(self) -> str:
        """Return a hash that is equal for counters that count alike."""
        return fingerprint(self._tokenizer.to_str() if self._tokenizer is not None else self.name)

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the character spans of a text's tokens, in order."""
        if self._tokenizer is None:
            return [(start, min(start + CHARACTERS_PER_TOKEN, len(text))) for start in range(0, len(text), CHARACTERS_PER_TOKEN)]
        return list(self._tokenizer.encode(text, add_special_tokens=False).offsets)

    @property
    def begin(self) -> int:
        """Return the number of special tokens that the tokenizer puts before a text."""
        return 0 if self._tokenizer is None else self._tokenizer.encode("a").special_tokens_mask.count(1)

    def first(self, text: str, tokens: int, special: bool = True) -> str:
        """Return the first tokens of a text as text, optionally without special tokens."""
        if self._tokenizer is None:
            return text[: tokens * CHARACTERS_PER_TOKEN]
        encoded = self._tokenizer.encode(text, add_special_tokens=False)
        if special:
            return str(self._tokenizer.decoder.decode(encoded.tokens[:tokens]))
        return str(self._tokenizer.decode(encoded.ids[:tokens], skip_special_tokens=True))

    def counts(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
        if self._tokenizer is None:
            return [-(-len(text) // CHARACTERS_PER_TOKEN) for text in texts]
        return [len(item.ids) for item in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]
