"""Read token counts and cost from the field `usage` of a reply.

Providers disagree about what the counts include. Anthropic counts tokens of its cache apart from other prompt tokens. xAI and Gemini count
thoughts only in `total_tokens`. All of them are billed, so all of them are counted here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Spent:
    """Tokens and cost of a reply.

    Attributes:
        prompt: Tokens of the prompt, including those of a cache.
        completion: Tokens of the reply, including its thought.
        cached: Tokens of the prompt that came from the endpoint's cache.
        cost_usd: Dollars as the endpoint reports them, or None.
    """

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    cost_usd: float | None = None


def spent(usage: Any) -> Spent:
    """Read the usage that an endpoint reports; counts that are missing or no numbers are 0."""
    if not isinstance(usage, Mapping):
        return Spent()
    prompt, completion = _first(usage, "prompt_tokens", "input_tokens"), _first(usage, "completion_tokens", "output_tokens")
    total, cached = _count(usage.get("total_tokens")), _cached(usage)
    prompt += _apart(usage, prompt, completion, total, cached)
    thought = max(total - prompt - completion, 0) if prompt else 0
    return Spent(prompt, completion + thought, cached, _cost(usage))


def _apart(usage: Mapping[str, Any], prompt: int, completion: int, total: int, cached: int) -> int:
    """Return the cache's tokens if the count of the prompt leaves them out, else 0."""
    held = cached + _count(usage.get("cache_creation_input_tokens"))
    own = "input_tokens" in usage and "prompt_tokens" not in usage and ("cache_read_input_tokens" in usage or held > cached)
    return held if own or held > prompt or (held and total == prompt + completion + held) else 0


def _first(usage: Mapping[str, Any], *names: str) -> int:
    return next((_count(usage[name]) for name in names if usage.get(name) is not None), 0)


def _cached(usage: Mapping[str, Any]) -> int:
    """Return the prompt tokens that came from the endpoint's cache: OpenAI's fields, Anthropic's or DeepSeek's."""
    details = [usage.get(name) for name in ("prompt_tokens_details", "input_tokens_details")]
    counts = (
        *(part.get("cached_tokens") for part in details if isinstance(part, Mapping)),
        usage.get("cache_read_input_tokens"),
        usage.get("prompt_cache_hit_tokens"),
    )
    return next((count for value in counts if (count := _count(value))), 0)


def _cost(usage: Mapping[str, Any]) -> float | None:
    """Return the cost in dollars in a usage: OpenRouter's, including the cost of the user's own key, or Perplexity's total."""
    reported = usage.get("cost")
    if isinstance(reported, dict):
        return dollars(reported.get("total_cost"))
    cost, details = dollars(reported), usage.get("cost_details")
    if cost is not None and usage.get("is_byok") is True and isinstance(details, dict):
        cost += dollars(details.get("upstream_inference_cost")) or 0.0
    return cost


def dollars(value: Any) -> float | None:
    """Parse a number (or its text) as dollars; None if it is not a number or is negative."""
    try:
        number = None if isinstance(value, bool) or not isinstance(value, int | float | str) else float(value)
    except ValueError:
        return None
    return number if number is not None and 0 <= number < float("inf") else None


def _count(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and 0 <= value < 1e15 else 0
