"""What work takes, in the units that people pay in; costs add up, and what is unknown stays unknown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from ragmeter.planning.hardware import HOUR


@dataclass(frozen=True, slots=True)
class Cost:
    """What something takes, at most.

    Attributes:
        calls: Of generating models, here or at an endpoint.
        prompt_tokens, completion_tokens: Of these; completions at most.
        memory_tokens: Soft tokens in prompts in place of text.
        encoded_tokens: Read by encoders, rerankers, compressors and scorers.
        gpu_seconds: Of one GPU here.
        served_seconds: Of the GPU behind an endpoint of one's own, where the model's size is known.
        usd: At the configured prices.
        disk: Bytes that stay.
        unknown: What is not in these numbers, and why.
    """

    calls: float = 0
    prompt_tokens: float = 0
    completion_tokens: float = 0
    memory_tokens: float = 0
    encoded_tokens: float = 0
    gpu_seconds: float = 0.0
    served_seconds: float = 0.0
    usd: float = 0.0
    disk: float = 0
    unknown: tuple[str, ...] = ()

    def __add__(self, other: Cost) -> Cost:
        summed = {name: getattr(self, name) + getattr(other, name) for name in NUMBERS}
        return Cost(**summed, unknown=tuple(dict.fromkeys((*self.unknown, *other.unknown))))

    def times(self, factor: float) -> Cost:
        """So many times as much."""
        return replace(self, **{name: getattr(self, name) * factor for name in NUMBERS})

    @property
    def gpu_hours(self) -> float:
        return self.gpu_seconds / HOUR

    @property
    def served_hours(self) -> float:
        return self.served_seconds / HOUR

    def to_json(self) -> dict[str, Any]:
        """As a JSON object: whole numbers of calls, tokens and bytes, hours in place of seconds."""
        return {
            "calls": round(self.calls),
            "prompt_tokens": round(self.prompt_tokens),
            "completion_tokens": round(self.completion_tokens),
            "memory_tokens": round(self.memory_tokens),
            "encoded_tokens": round(self.encoded_tokens),
            "gpu_hours": self.gpu_hours,
            "served_gpu_hours": self.served_hours,
            "usd": self.usd,
            "disk_bytes": round(self.disk),
            "unknown": list(self.unknown),
        }


NUMBERS = tuple(field.name for field in fields(Cost) if field.name != "unknown")


def unknown(what: str) -> Cost:
    """A cost of which nothing is known but that it is there."""
    return Cost(unknown=(what,))


def total(costs: Iterable[Cost]) -> Cost:
    """All of them together."""
    return sum(costs, Cost())
