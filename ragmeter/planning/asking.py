"""What generating costs: calls of a model here, or behind an endpoint."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from benchmarks.errors import UserError
from methods.models.chat_options import ChatConfig
from methods.models.tokens import TokenCounter
from methods.models.weights import locate
from ragmeter.planning.cost import Cost, unknown
from ragmeter.planning.hardware import Assumptions
from ragmeter.sizing.sizes import ModelSize, size_of

DEFAULT_DTYPE = "bfloat16"
"""Of models whose options leave the type to the checkpoint: what nearly all are published in."""


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls of a generating model.

    Attributes:
        number: How many.
        prompt: Mean tokens of a prompt, soft tokens included.
        completion: Most tokens of a reply.
        memory: Of the prompt's tokens those that are soft.
    """

    number: float
    prompt: float
    completion: float
    memory: float = 0.0

    @property
    def cost(self) -> Cost:
        """Calls and tokens alone."""
        return Cost(
            calls=self.number,
            prompt_tokens=self.number * (self.prompt - self.memory),
            completion_tokens=self.number * self.completion,
            memory_tokens=self.number * self.memory,
        )


def here(calls: Calls, size: ModelSize, dtype: str | None, batch: int, assume: Assumptions) -> Cost:
    """Calls of a model on a GPU of one's own: prompts are read, replies are written token by token."""
    if not size.known:
        return calls.cost + unknown(f"GPU hours of {size.model}: its size is unknown")
    return calls.cost + Cost(gpu_seconds=_seconds(calls, size, dtype, batch, assume))


def asked(calls: Calls, chat: ChatConfig, assume: Assumptions) -> Cost:
    """Calls of an endpoint: dollars where prices are configured, GPU time of its own where it wants no key."""
    cost = calls.cost
    if not calls.number:
        return cost
    if chat.usd_per_million_prompt_tokens or chat.usd_per_million_completion_tokens:
        return cost + Cost(usd=chat.usd(round(cost.prompt_tokens), round(cost.completion_tokens)))
    if chat.key_variable is not None:
        return cost + unknown(f"dollars of {chat.model}: usd_per_million_prompt_tokens and …_completion_tokens not set")
    size = size_of(chat.model)
    if not size.known:
        return cost + unknown(f"GPU hours of the endpoint of {chat.model}: its size is unknown")
    return cost + Cost(served_seconds=_seconds(calls, size, None, chat.concurrency, assume))


def _seconds(calls: Calls, size: ModelSize, dtype: str | None, batch: int, assume: Assumptions) -> float:
    kind = DEFAULT_DTYPE if dtype in (None, "auto") else str(dtype)
    read = assume.reading(size, calls.number * calls.prompt, calls.prompt, kind)
    context = calls.prompt + calls.completion / 2
    return read + assume.writing(size, calls.number, calls.completion, context, batch, kind)


@lru_cache(maxsize=64)
def counter_of(model: str) -> TokenCounter:
    """Counts in the tokens of a local model, where its tokenizer is here; else in characters / 4."""
    try:
        path = Path(locate(model)) / "tokenizer.json"
        return TokenCounter(str(path) if path.is_file() else None)
    except UserError:
        return TokenCounter()
