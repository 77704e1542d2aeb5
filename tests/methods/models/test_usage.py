"""Tokens and cost in the usage of a reply, in the fields of several providers."""

from __future__ import annotations

from typing import Any

import pytest

from methods.models.usage import spent

BASE = {"prompt_tokens": 10, "completion_tokens": 5}
USAGES: dict[str, tuple[dict[str, Any], tuple[int, int, int]]] = {
    "xai: thoughts only in the total": (
        {**BASE, "total_tokens": 115, "completion_tokens_details": {"reasoning_tokens": 100}},
        (10, 105, 0),
    ),
    "gemini: thoughts only in the total": ({**BASE, "total_tokens": 415}, (10, 405, 0)),
    "gemini: nothing but a thought": ({"prompt_tokens": 10, "completion_tokens": 0, "total_tokens": 60}, (10, 50, 0)),
    "openai: thoughts in the completion": ({**BASE, "total_tokens": 15, "completion_tokens_details": {"reasoning_tokens": 4}}, (10, 5, 0)),
    "total alone": ({"total_tokens": 12}, (0, 0, 0)),
    "anthropic: cache written": ({"input_tokens": 10, "output_tokens": 5, "cache_creation_input_tokens": 2000}, (2010, 5, 0)),
    "anthropic: cache read": ({"input_tokens": 3000, "output_tokens": 5, "cache_read_input_tokens": 2000}, (5000, 5, 2000)),
    "cache written, apart": ({**BASE, "cache_creation_input_tokens": 2000, "cache_read_input_tokens": 0}, (2010, 5, 0)),
    "cache read, apart by the total": (
        {"prompt_tokens": 3000, "completion_tokens": 5, "total_tokens": 5005, "cache_read_input_tokens": 2000},
        (5000, 5, 2000),
    ),
    "litellm: cache written, included": (
        {"prompt_tokens": 2010, "completion_tokens": 5, "total_tokens": 2015, "cache_creation_input_tokens": 2000},
        (2010, 5, 0),
    ),
    "responses: cache included": ({"input_tokens": 10, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 8}}, (10, 5, 8)),
    "null next to another name": ({"prompt_tokens": None, "input_tokens": 10, "output_tokens": 5}, (10, 5, 0)),
}


@pytest.mark.parametrize("kind", USAGES)
def test_all_billed_tokens_are_counted_once(kind: str) -> None:
    usage, expected = USAGES[kind]
    read = spent(usage)
    assert (read.prompt, read.completion, read.cached) == expected


@pytest.mark.parametrize("usage", [None, [], "10", {"prompt_tokens": "10"}, {"prompt_tokens": float("nan")}])
def test_usage_without_counts_is_zero(usage: Any) -> None:
    assert spent(usage).prompt == spent(usage).completion == 0
