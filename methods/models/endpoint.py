"""One call to an OpenAI-compatible endpoint: what came back, or what went wrong and whether trying again can help.

The key is taken out of every message that an endpoint sends back, since some repeat it.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from benchmarks.errors import Broke, MissingPackage, nearest
from methods.models.chat_options import ChatConfig

REFUSALS = {401: "refuses the key", 403: "refuses access", 404: "does not know this model or path"}
"""Statuses that every further call would meet as well."""
_QUOTA = "insufficient_quota"


@dataclass(frozen=True, slots=True)
class Completion:
    """What an endpoint replied, as it is cached: nothing in it differs between two equal replies.

    Attributes:
        text: As written, white space included.
        finish_reason: `stop`, `length`, `content_filter` …
        prompt_tokens, completion_tokens: As the endpoint counted; 0 where it does not say.
        model: The model as the endpoint names it.
    """

    text: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    model: str

    def to_json(self) -> dict[str, Any]:
        """A JSON object with every field."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Completion:
        """Read what `to_json` wrote.

        Raises:
            ValueError: A field is missing, unknown or of the wrong type.
        """
        kinds = {"text": str, "finish_reason": str, "prompt_tokens": int, "completion_tokens": int, "model": str}
        for name in kinds.keys() ^ row.keys():
            raise ValueError(f"a reply's fields are {', '.join(kinds)}; {name!r} is missing or unknown")
        for name, kind in kinds.items():
            if type(row[name]) is not kind:
                raise ValueError(f"a reply's {name} must be {kind.__name__}, not {row[name]!r}")
        return cls(**row)

    @property
    def failed(self) -> str | None:
        """Why this is of no use, None where it is."""
        if self.finish_reason == "content_filter":
            return "the endpoint's filter withheld the reply (finish reason: content_filter)"
        if not self.text.strip():
            return f"the reply is empty (finish reason: {self.finish_reason})"
        return None


class Fault(Exception):
    """A call that brought no completion.

    Attributes:
        reason: One line, without the key.
        advice: `retry`: trying again can help; `fail`: this call is lost, others are not; `stop`: no call can succeed.
        busy: Whether it says that fewer calls should be in flight.
        status: HTTP status, if one came back.
        after: Seconds that the endpoint asks to wait.
        reached: Whether anything answered at all.
        misdirected: Whether what answered may not be such an endpoint.
    """

    def __init__(
        self,
        reason: str,
        advice: Literal["retry", "fail", "stop"],
        *,
        busy: bool = False,
        status: int | None = None,
        after: float | None = None,
        reached: bool = True,
        misdirected: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.advice = advice
        self.busy = busy
        self.status = status
        self.after = after
        self.reached = reached
        self.misdirected = misdirected


class Endpoint:
    """A client of one endpoint; lives on one event loop.

    Args:
        config: Options.

    Raises:
        UserError: The key is not set.
        MissingPackage: The client's package is not installed.
    """

    def __init__(self, config: ChatConfig) -> None:
        try:
            import openai
        except ImportError as error:
            raise MissingPackage(error.name or "openai", "llm", f"the chat model {config.model!r}") from error
        self._openai = openai
        self.config = config
        self._key = config.key()
        self._client: Any = None
        self._create: Any = None
        self._pid = 0
        self.reached = False
        self.answered = False

    def opened(self) -> Any:
        """The client, made when first used: it belongs to the event loop that uses it."""
        if self._client is None or self._pid != os.getpid():  # a forked child must not use its parent's connections
            self._pid = os.getpid()
            # Our own retries know which errors are worth one; the client's would multiply with them.
            self._client = self._openai.AsyncOpenAI(
                api_key=self._key, base_url=self.config.url, timeout=self.config.timeout_s, max_retries=0
            )
            # The client imports what it needs for a call here, not on the clock of the first call.
            self._create = self._client.chat.completions.with_raw_response.create
        return self._client

    @property
    def connected(self) -> bool:
        """Whether there are connections to close."""
        return self._client is not None and self._pid == os.getpid()

    async def close(self) -> None:
        """Close the connections."""
        client, self._client, self._create = self._client, None, None
        if client is not None:
            await client.close()

    async def send(self, messages: list[dict[str, str]], extra: Mapping[str, Any], max_tokens: int) -> Completion:
        """Ask once.

        Args:
            messages: The conversation.
            extra: Further fields of the request.
            max_tokens: Longest reply.

        Raises:
            Fault: No completion came back.
        """
        self.opened()
        try:
            # The client's own timeout is per read; bytes that trickle in would never meet it.
            async with asyncio.timeout(self.config.timeout_s):
                raw = await self._create(
                    model=self.config.model,
                    messages=messages,
                    temperature=self.config.temperature,
                    extra_body={**self.config.parameters, **extra},
                    **{self.config.limit_name: max_tokens},
                )
        except (self._openai.OpenAIError, TimeoutError) as error:
            fault = self._fault(error)
            self.reached = self.reached or fault.reached
            raise fault from None
        self.reached = True
        completion = self._read(raw.headers.get("content-type", ""), raw.content)
        self.answered = True
        return completion

    def _read(self, content_type: str, body: bytes) -> Completion:
        """Read a reply; what is no completion may well be one the next time.

        Raises:
            Fault: It is none.
        """
        if "json" not in content_type.lower():
            kind = content_type.split(";")[0] or "no content type"
            raise Fault(
                f"the reply is no chat completion but {kind} (is base_url right? it usually ends in /v1)", "retry", misdirected=True
            )
        try:
            value = json.loads(body)
            choices = value["choices"]
            usage = value.get("usage") or {}
            if isinstance(choices, list) and not choices:
                raise Fault("the reply holds no choice", "retry")
            message = choices[0]["message"]
            content = message.get("content")
            if isinstance(content, list):  # some endpoints reply in parts
                content = "".join(part.get("text", "") for part in content)
            return Completion(
                str(content or ""),
                str(choices[0].get("finish_reason") or "unknown"),
                int(usage.get("prompt_tokens") or 0),
                int(usage.get("completion_tokens") or 0),
                str(value.get("model") or ""),
            )
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            excerpt = self.clean(body[:120].decode("utf-8", "replace"))
            problem = "is not JSON" if isinstance(error, ValueError) else "is no chat completion"
            raise Fault(f"the reply {problem}: {excerpt!r}", "retry") from None

    def _fault(self, error: Exception) -> Fault:
        """What an error of the client means."""
        if isinstance(error, TimeoutError | self._openai.APITimeoutError):
            return Fault(f"timed out after {self.config.timeout_s:g} s", "retry", busy=True)
        if isinstance(error, self._openai.APIConnectionError):
            cause = error.__cause__
            detail = f" ({type(cause).__name__}: {cause})" if cause is not None else ""
            return Fault(self.clean(f"{error}{detail}"), "retry", busy=True, reached=False)
        reason = self.clean(str(error)) or type(error).__name__
        status = getattr(error, "status_code", None)
        if status is None:
            return Fault(reason, "fail")
        reason = reason if str(status) in reason else f"HTTP {status}: {reason}"
        if getattr(error, "code", None) == _QUOTA:
            return Fault(reason, "stop", status=status)
        if status in REFUSALS:
            # Some endpoints refuse a single prompt by 403, or lose a replica by 404: no reason to stop what works.
            return Fault(reason, "stop" if status == 401 or not self.answered else "fail", status=status)
        if status in (408, 429) or status >= 500:
            after = retry_after(error.response.headers)  # type: ignore[attr-defined]
            if after is not None and after > self.config.longest_wait_s:
                asked = f"{reason} (it asks to wait {after:.0f} s; longest_wait_s is {self.config.longest_wait_s:g})"
                return Fault(asked, "fail", busy=True, status=status)
            return Fault(reason, "retry", busy=status in (429, 503), status=status, after=after)
        return Fault(reason, "fail", status=status)

    def clean(self, text: str) -> str:
        """One line of at most 300 characters, without the key."""
        if self.config.key_variable is not None:
            text = text.replace(self._key, "***")
        return " ".join(text.split())[:300]

    def hopeless(self, fault: Fault) -> bool:
        """Whether a fault that outlasted every try says that no other call can succeed either."""
        if fault.advice == "stop":
            return True
        return not self.answered and (fault.misdirected or not (self.reached or fault.reached))

    async def error(self, fault: Fault) -> Broke:
        """A hopeless fault as the user is told of it."""
        where = f"model {self.config.model!r}"
        if not fault.reached:
            return Broke(
                f"nothing answers at {self.config.url}: {fault.reason}", where=where, try_this="start the server, or correct `base_url`"
            )
        if fault.status == 404:
            hint = await self._models_hint() or "check `model` and `base_url` (it usually ends in /v1)"
        elif fault.misdirected:
            hint = "correct `base_url`; it usually ends in /v1"
        elif fault.advice == "stop":
            place = f"in {self.config.key_variable}" if self.config.key_variable else "(key_variable is null)"
            hint = f"check the key {place} and what it may use"
        elif "max_completion_tokens" in fault.reason:
            hint = "limit_name: max_completion_tokens"
        elif "model" in fault.reason:
            hint = await self._models_hint() or "check `model`"
        else:
            hint = "see what the endpoint says; check `parameters`, `temperature` and `max_tokens`"
        problem = "does not answer" if fault.advice != "stop" else REFUSALS.get(fault.status or 0, "")
        return Broke(f"{self.config.url} {problem or 'says that the quota is used up'}: {fault.reason}", where=where, try_this=hint)

    async def _models_hint(self) -> str | None:
        """What the endpoint offers instead, where it tells."""
        try:
            async with asyncio.timeout(10):
                names = [model.id async for model in self.opened().models.list()]
        except (self._openai.OpenAIError, TimeoutError, AttributeError, TypeError, ValueError):
            return None
        if not names or self.config.model in names:
            return None
        guess = nearest(self.config.model, names)
        shown = ", ".join(sorted(names)[:8]) + (" …" if len(names) > 8 else "")
        return (f"model: {guess}; " if guess else "") + f"the endpoint offers {shown}"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that an endpoint asks to wait (`Retry-After` in seconds or as a date), None where it does not.

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
