"""What a chat model gives back for one conversation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel

from methods.models.structured import Parsed

SCRIPTED = "scripted/"
"""How the names of models begin that a script plays; what they answered is labelled by it."""
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back for one conversation.

    Attributes:
        text: The reply, "" where there is none.
        failed: Why there is none.
        prompt_tokens, completion_tokens: As the endpoint counted; 0 where it does not say.
        calls: Tries made; 1 for a reply from the cache, 0 where a limit kept it from being sent.
        seconds: Wall time, pauses included.
        cost_usd: By the configured prices; also for a reply from the cache, which cost that when it was made.
        model: The model as the endpoint names it.
        key: Of the call, in the cache and on a tape.
        cached: Whether it came from the cache, or from an equal call in flight.
    """

    text: str
    failed: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    calls: int = 1
    seconds: float = 0.0
    cost_usd: float = 0.0
    model: str = ""
    key: str = ""
    cached: bool = False

    @property
    def scripted(self) -> bool:
        """Whether a script played the model (the world-truth LLM), which its rows must say."""
        return self.model.startswith(SCRIPTED)


@dataclass(frozen=True, slots=True)
class Structured(Generic[M]):
    """A reply with what it says; `failed` covers the call and the reading of its reply."""

    reply: Reply
    parsed: Parsed[M]

    @property
    def value(self) -> M | None:
        return self.parsed.value

    @property
    def failed(self) -> str | None:
        return self.reply.failed or self.parsed.failed
