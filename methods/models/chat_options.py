"""Options of a chat model: which endpoint, which model, how patient, how much may be spent.

The key comes from an environment variable alone, whose name is an option; the key itself never is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from benchmarks.errors import UserError

Messages = Sequence[dict[str, str]]
"""A conversation: `{"role": "system" | "user" | "assistant", "content": text}` in order."""

DEFAULT_URL = "https://api.openai.com/v1"
"""Where calls go when neither `base_url` nor OPENAI_BASE_URL says otherwise."""
_OWN = {"model", "messages", "temperature", "max_tokens", "max_completion_tokens", "stream", "n", "response_format"}
_LIKE_A_KEY = re.compile(r"(?:hf|gsk|r8|sk|gh[pousr]|github_pat)_[A-Za-z0-9_]{16,}|(?=[A-Za-z]*[0-9])[A-Za-z0-9]{20,}$")
"""What could be a variable's name, and is more likely a key: it would be repeated where the variable is not set."""


class ChatConfig(BaseModel):
    """Options of a chat endpoint.

    What changes speed or spending but no reply is left out of dumps (`exclude`), hence out of fingerprints: a run
    continues under another concurrency or with a higher limit.
    """

    # A key put into the wrong field must not come back in the error message.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    model: str = Field(description="the model's name at the endpoint")
    base_url: str | None = Field(None, description="e.g. http://localhost:8000/v1; null: OPENAI_BASE_URL, else OpenAI")
    key_variable: str | None = Field(
        "OPENAI_API_KEY", description="environment variable that holds the key; null where the endpoint wants none", exclude=True
    )
    temperature: float = Field(0.0, ge=0, description="as sent to the endpoint; 0: the likeliest reply")
    max_tokens: int = Field(64, ge=1, description="longest reply")
    limit_name: Literal["max_tokens", "max_completion_tokens"] = Field(
        "max_tokens", description="what the endpoint calls that limit; newer OpenAI models: max_completion_tokens"
    )
    parameters: dict[str, Any] = Field(
        default={}, description="further fields of every request, as the endpoint names them (top_p, seed …)"
    )
    structured_output: Literal["json_schema", "json_object", "prompt"] = Field(
        "json_schema", description="how JSON is asked for at first; an endpoint that refuses is asked the next way in this order"
    )
    concurrency: int = Field(16, ge=1, description="most calls in flight; fewer while the endpoint says it is too busy", exclude=True)
    timeout_s: float = Field(120.0, gt=0, description="longest wait for one whole reply", exclude=True)
    attempts: int = Field(
        8, ge=1, description="tries per call, where trying again can help: 429, 5xx, no connection, broken replies", exclude=True
    )
    backoff_s: float = Field(
        1.0, ge=0, description="longest pause before the second try; doubles with each, drawn evenly from 0 up", exclude=True
    )
    longest_wait_s: float = Field(
        120.0, ge=0, description="longest pause that an endpoint may ask for (Retry-After); beyond it the call fails", exclude=True
    )
    usd_per_million_prompt_tokens: float = Field(0.0, ge=0, description="price, for costs and limits")
    usd_per_million_completion_tokens: float = Field(0.0, ge=0, description="likewise")
    call_tokens: int | None = Field(
        None, ge=1, description="a call that may need more tokens, prompt and longest reply, is not sent", exclude=True
    )
    call_usd: float | None = Field(None, ge=0, description="a call that may cost more dollars is not sent", exclude=True)
    run_tokens: int | None = Field(None, ge=0, description="most tokens that this model may use in one execution of a task", exclude=True)
    run_usd: float | None = Field(None, ge=0, description="most dollars that this model may cost in one execution of a task", exclude=True)
    tokenizer: str | None = Field(
        None, description="a tokenizer.json, or its folder, to estimate tokens with; null: characters / 4", exclude=True
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
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("base_url must start with http:// or https://")
        if parts.username or parts.password or parts.query:
            raise ValueError("base_url must not carry a key: put it into an environment variable (key_variable)")
        return value

    @field_validator("parameters")
    @classmethod
    def _further(cls, value: dict[str, Any]) -> dict[str, Any]:
        taken = sorted(_OWN & set(value))
        if taken:
            raise ValueError(f"parameters must not hold {', '.join(taken)}: that is an option of its own, or fixed")
        return value

    @property
    def url(self) -> str:
        """Where calls go."""
        return (self.base_url or os.environ.get("OPENAI_BASE_URL") or DEFAULT_URL).rstrip("/")

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

    def usd(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Dollars by the configured prices."""
        return (prompt_tokens * self.usd_per_million_prompt_tokens + completion_tokens * self.usd_per_million_completion_tokens) / 1e6
