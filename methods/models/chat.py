"""Language models behind an OpenAI-compatible endpoint.

The key comes from an environment variable alone. It is neither stored nor logged, and taken out of every message
that an endpoint sends back, since some repeat it.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from benchmarks.errors import MissingPackage, UserError

Messages = Sequence[dict[str, str]]
"""A conversation: `{"role": "system" | "user" | "assistant", "content": text}` in order."""

T = TypeVar("T")
LONGEST_WAIT_S = 60.0
"""Longest pause before a retry, whatever an endpoint asks for."""
FATAL_STATUSES = {401: "refuses the key", 403: "refuses access", 404: "does not know this model or path"}
"""Statuses that every further call would meet as well."""


class ChatConfig(BaseModel):
    """Options of a chat endpoint."""

    # A key put into the wrong field must not come back in the error message.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    model: str = Field(description="the model's name at the endpoint")
    base_url: str | None = Field(None, description="e.g. http://localhost:8000/v1; null: OPENAI_BASE_URL, else OpenAI")
    key_variable: str | None = Field(
        "OPENAI_API_KEY", description="environment variable that holds the key; null where the endpoint wants none"
    )
    temperature: float = Field(0.0, ge=0)
    max_tokens: int = Field(64, ge=1, description="longest reply")
    limit_name: Literal["max_tokens", "max_completion_tokens"] = Field(
        "max_tokens", description="what the endpoint calls that limit; newer OpenAI models: max_completion_tokens"
    )
    concurrency: int = Field(16, ge=1, description="calls in flight")
    timeout_s: float = Field(120.0, gt=0, description="longest wait for one reply")
    attempts: int = Field(6, ge=1, description="tries per call, where trying again can help: 429, 5xx, no connection")
    backoff_s: float = Field(1.0, ge=0, description="pause before the second try; doubles with each, with jitter")
    usd_per_million_prompt_tokens: float = Field(0.0, ge=0)
    usd_per_million_completion_tokens: float = Field(0.0, ge=0)

    @field_validator("key_variable")
    @classmethod
    def _is_a_name(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
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
            raise ValueError("base_url must not carry a key: put it into an environment variable (key_variable)")
        return value

    def key(self) -> str:
        """The key.

        Raises:
            UserError: The variable is not set.
        """
        if self.key_variable is None:
            return "none"  # the client insists on one
        key = os.environ.get(self.key_variable, "").strip()
        if not key:
            raise UserError(
                f"no key for the model {self.model!r}: the environment variable {self.key_variable} is not set",
                where="key_variable",
                try_this=f"export {self.key_variable}=…, or key_variable: null for an endpoint that wants no key",
            )
        return key


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back for one conversation.

    Attributes:
        text: The reply, "" where there is none.
        failed: Why there is none.
        prompt_tokens, completion_tokens: As the endpoint counted; 0 where it does not say.
        calls: Tries made.
        seconds: Wall time, pauses included.
        cost_usd: By the configured prices.
        model: The model as the endpoint names it.
    """

    text: str
    failed: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    calls: int = 1
    seconds: float = 0.0
    cost_usd: float = 0.0
    model: str = ""


class ChatModel:
    """A client of one model at one endpoint.

    Args:
        config: Options.

    Raises:
        UserError: The key is not set.
        MissingPackage: The client's packages are not installed.
    """

    def __init__(self, config: ChatConfig) -> None:
        try:
            import openai
            import tenacity
        except ImportError as error:
            raise MissingPackage(error.name or "openai", "llm", f"the chat model {config.model!r}") from error
        self._openai = openai
        self._tenacity = tenacity
        self.config = config
        self._key = config.key()
        self._answered = False

    def complete(self, conversations: Sequence[Messages]) -> list[Reply]:
        """Reply to conversations, several at a time.

        A call that fails for good becomes a `Reply` that says why; the others are not affected.

        Returns:
            One reply per conversation, in order.

        Raises:
            UserError: No further call could succeed: wrong key, unknown model, or nothing answers at all.
        """
        return _run(self._complete(conversations))

    async def _complete(self, conversations: Sequence[Messages]) -> list[Reply]:
        slots = asyncio.Semaphore(self.config.concurrency)
        # Our own retries know which errors are worth one; the client's would multiply with them.
        async with self._openai.AsyncOpenAI(
            api_key=self._key, base_url=self.config.base_url, timeout=self.config.timeout_s, max_retries=0
        ) as client:
            tasks = [asyncio.create_task(self._reply(client, messages, slots)) for messages in conversations]
            try:
                return list(await asyncio.gather(*tasks))
            except BaseException:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                raise

    async def _reply(self, client: Any, messages: Messages, slots: asyncio.Semaphore) -> Reply:
        started = time.perf_counter()
        attempts = 0
        retrying = self._tenacity.AsyncRetrying(
            stop=self._tenacity.stop_after_attempt(self.config.attempts),
            wait=self._pause,
            retry=self._tenacity.retry_if_exception(self._worth_retrying),
            reraise=True,
        )
        try:
            async for attempt in retrying:
                with attempt:
                    # The slot is given back during pauses, so that one slow question does not hold up the rest.
                    async with slots:
                        attempts += 1
                        completion = await self._call(client, messages)
        except (self._openai.OpenAIError, ValueError, TypeError, AttributeError) as error:
            self._raise_if_fatal(error)
            return Reply("", self._reason(error), calls=attempts, seconds=time.perf_counter() - started)
        self._answered = True
        return self._read(completion, attempts, time.perf_counter() - started)

    async def _call(self, client: Any, messages: Messages) -> Any:
        limit = {self.config.limit_name: self.config.max_tokens}
        completion = await client.chat.completions.create(
            model=self.config.model, messages=list(messages), temperature=self.config.temperature, **limit
        )
        if isinstance(completion, str) or not hasattr(completion, "choices"):
            raise ValueError("the reply is no chat completion (is base_url right? it usually ends in /v1)")
        return completion

    def _read(self, completion: Any, calls: int, seconds: float) -> Reply:
        choice = completion.choices[0] if completion.choices else None
        text = (choice.message.content or "").strip() if choice is not None and choice.message is not None else ""
        failed = None
        if choice is None:
            failed = "the reply holds no choice"
        elif not text:
            failed = f"the reply is empty (finish reason: {choice.finish_reason})"
        usage = completion.usage
        prompt = int(getattr(usage, "prompt_tokens", 0) or 0)
        completed = int(getattr(usage, "completion_tokens", 0) or 0)
        cost = (
            prompt * self.config.usd_per_million_prompt_tokens
            + completed * self.config.usd_per_million_completion_tokens
        ) / 1e6
        return Reply(text, failed, prompt, completed, calls, seconds, cost, str(completion.model or ""))

    def _worth_retrying(self, error: BaseException) -> bool:
        if isinstance(error, self._openai.APIStatusError):
            if getattr(error, "code", None) == "insufficient_quota":
                return False
            return error.status_code == 429 or error.status_code >= 500
        # Covers timeouts; a reply that cannot be read is another class and comes back the same.
        return isinstance(error, self._openai.APIConnectionError)

    def _pause(self, state: Any) -> float:
        """Seconds before the next try: what the endpoint asks for, else doubling with jitter."""
        error = state.outcome.exception()
        response = getattr(error, "response", None)
        try:
            asked = float(response.headers["retry-after"]) if response is not None else None
        except (KeyError, ValueError):
            asked = None
        if asked is not None:
            return min(max(asked, 0.0), LONGEST_WAIT_S)
        wait = self._tenacity.wait_random_exponential(multiplier=self.config.backoff_s, max=LONGEST_WAIT_S)
        return float(wait(state))

    def _raise_if_fatal(self, error: Exception) -> None:
        """Stop the run where every further call would fail in the same way."""
        place = self.config.base_url or os.environ.get("OPENAI_BASE_URL") or "the OpenAI endpoint"
        status = getattr(error, "status_code", None)
        if status in FATAL_STATUSES or getattr(error, "code", None) == "insufficient_quota":
            problem = FATAL_STATUSES.get(status or 0, "says that the quota is used up")
            hints = {404: "check `model` and `base_url` (it usually ends in /v1)"}
            raise UserError(
                f"{place} {problem}: {self._reason(error)}",
                where=f"model {self.config.model!r}",
                try_this=hints.get(status or 0, f"check the key in {self.config.key_variable} and what it may use"),
            ) from None
        if isinstance(error, self._openai.APIConnectionError) and not self._answered:
            raise UserError(
                f"nothing answers at {place}: {self._reason(error)}",
                where=f"model {self.config.model!r}",
                try_this="start the server, or correct `base_url`",
            ) from None

    def _reason(self, error: Exception) -> str:
        """One line of what went wrong, without the key."""
        status = getattr(error, "status_code", None)
        text = " ".join(str(error).split())[:300] or type(error).__name__
        if self.config.key_variable is not None:
            text = text.replace(self._key, "***")
        return text if status is None or str(status) in text else f"HTTP {status}: {text}"


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, also from code that an event loop is running (a notebook)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
