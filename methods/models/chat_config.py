"""Options of a chat endpoint: address, key, limits and prices.

The key only comes from an environment variable, whose name is an option; the key itself is never an option.
"""

from __future__ import annotations

import os
import re
from functools import partial
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from methods.models.connection import base_url_of, json_fields, require_headers
from methods.models.limits import Address
from methods.models.reply import READING, Completion
from methods.models.revision import DESCRIPTION, Probe, Revision, ask

DEFAULT_URL = "https://api.openai.com/v1"
"""Address of calls if neither `base_url` nor OPENAI_BASE_URL sets one."""
_OWN = frozenset({"model", "messages", "temperature", "max_tokens", "max_completion_tokens", "stream", "n", "response_format"})
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
    base_url: str | None = Field(default=None, description="e.g. http://localhost:8000/v1; null: OPENAI_BASE_URL, else OpenAI")
    key_variable: str | None = Field(
        default="OPENAI_API_KEY", description="environment variable that holds the key; null if the endpoint needs none", exclude=True
    )
    headers: dict[str, str] = Field(
        default={}, description="additional headers of every request; read a secret from the environment: ${MY_KEY}", exclude=True
    )
    query: dict[str, str] = Field(
        default={}, description="URL parameters of every request, such as api-version; ${NAME} as in headers", exclude=True
    )
    temperature: float | None = Field(
        default=0.0, ge=0, allow_inf_nan=False, description="sampling temperature; 0: the most likely reply; null: not sent"
    )
    max_tokens: int | None = Field(default=64, ge=1, description="longest reply; null: not sent, so the endpoint decides")
    limit_name: Literal["max_tokens", "max_completion_tokens"] = Field(
        default="max_tokens", description="the endpoint's name of the option max_tokens; newer OpenAI models: max_completion_tokens"
    )
    parameters: dict[str, Any] = Field(
        default={},
        description="additional fields of every request, as the endpoint names them (top_p, seed …); a field that is null is not sent",
    )
    structured_output: Literal["json_schema", "json_object", "prompt"] = Field(
        default="json_schema", description="first way to request JSON; if the endpoint refuses, the next way in this order is used"
    )
    concurrency: int = Field(
        default=16,
        ge=1,
        description="maximum concurrent calls to the endpoint from this process, over all parts; the smallest of several settings applies",
        exclude=True,
    )
    timeout_s: float = Field(default=120.0, gt=0, description="time limit for a complete reply", exclude=True)
    attempts: int = Field(
        default=8,
        ge=1,
        description="attempts per call, for errors that a retry may fix: 429, 5xx, no connection, broken replies",
        exclude=True,
    )
    backoff_s: float = Field(
        default=1.0,
        ge=0,
        description="maximum pause before the second try; doubles with each try; the actual pause is drawn evenly from 0 to this",
        exclude=True,
    )
    longest_wait_s: float = Field(
        default=120.0,
        ge=0,
        description="maximum pause that an endpoint may ask for (Retry-After); if it asks for more, the call fails",
        exclude=True,
    )
    usd_per_million_prompt_tokens: float = Field(
        default=0.0, ge=0, description="price, for costs and limits; set 0 for a model that is free or reports its cost"
    )
    usd_per_million_completion_tokens: float = Field(
        default=0.0, ge=0, description="price of completion tokens; see usd_per_million_prompt_tokens"
    )
    usd_per_million_cached_tokens: float | None = Field(
        default=None,
        ge=0,
        description="price of prompt tokens that the endpoint had cached; null: the price of other prompt tokens",
        exclude=True,
    )
    batch: bool = Field(
        default=False,
        description="send the calls of judges and of the reader `chat` through the endpoint's batch API; others are made live",
        exclude=True,
    )
    batch_price: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="share of the price that a call in a batch costs, such as 0.5; null: the full price",
        exclude=True,
    )
    poll_s: float = Field(default=30.0, gt=0, description="maximum seconds between two checks of a batch", exclude=True)
    call_tokens: int | None = Field(
        default=None, ge=1, description="do not send a call that may need more tokens than this (prompt and longest reply)", exclude=True
    )
    call_usd: float | None = Field(default=None, ge=0, description="do not send a call that may cost more dollars than this", exclude=True)
    run_tokens: int | None = Field(
        default=None, ge=0, description="maximum tokens of all parts that use this model, in one execution of a task", exclude=True
    )
    run_usd: float | None = Field(
        default=None, ge=0, description="maximum dollars of all parts that use this model, in one execution of a task", exclude=True
    )
    tokenizer: str | None = Field(
        default=None, description="a tokenizer.json, or its folder, to estimate tokens with; null: characters / 4", exclude=True
    )
    revision: Revision = Field(
        default=None, description=f"{DESCRIPTION}; null: `created` in /v1/models", exclude_if=lambda value: value is None
    )

    @field_validator("key_variable")
    @classmethod
    def _is_a_name(cls, value: str | None) -> str | None:
        if value is not None and (not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value) or _LIKE_A_KEY.match(value)):
            raise ValueError("key_variable is the name of an environment variable, never the key itself")
        return value

    @field_validator("base_url")
    @classmethod
    def _plain_url(cls, value: str | None) -> str | None:
        return None if value is None else base_url_of(value)

    @field_validator("parameters")
    @classmethod
    def _further(cls, value: dict[str, Any]) -> dict[str, Any]:
        return json_fields(value, _OWN)

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

    def identity(self, *, address: bool = True) -> str:
        """Return a hash of what determines an answer: model, options, a local model's weights, and how replies are read.

        Args:
            address: Whether a model of the same name at another address is another one.
        """
        options = self.model_dump(mode="json", exclude=set() if address else {"base_url"})
        return fingerprint(options, READING)

    @property
    def longest(self) -> int:
        """Return the maximum reply length in tokens, for estimates and limits."""
        return self.max_tokens or UNSTATED

    @property
    def url(self) -> str:
        """Return the URL of calls.

        Raises:
            UserError: OPENAI_BASE_URL holds no address.
        """
        stated = os.environ.get("OPENAI_BASE_URL", "").strip()
        if self.base_url is None and stated:
            try:
                return base_url_of(stated).rstrip("/")
            except ValueError as error:
                problem, remedy = str(error).replace("base_url", "OPENAI_BASE_URL", 1), "export OPENAI_BASE_URL=https://…/v1"
                raise UserError(problem, code="bad-base-url", where="OPENAI_BASE_URL", try_this=remedy) from None
        return (self.base_url or DEFAULT_URL).rstrip("/")

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
        require_headers({"authorization": key}, self.key_variable)
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
