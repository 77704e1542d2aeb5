"""Tokens of a query and a passage read together: the passage is cut, not the query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

SMALLEST_PASSAGE = 8
"""Tokens that a query always leaves to the passage."""
Features = dict[str, list[int]]
"""Token ids of a pair, and what goes with them."""


class PairTokens:
    """Encodes pairs for a cross-encoder.

    Args:
        tokenizer: Of `transformers`.
        length: Longest pair in tokens.
        query_share: Largest part of it that a query may take.
    """

    def __init__(self, tokenizer: Any, length: int, query_share: float) -> None:
        self.tokenizer, self.length = tokenizer, length
        specials = tokenizer.num_special_tokens_to_add(pair=True)
        self.query_length = min(int(query_share * length), length - specials - SMALLEST_PASSAGE)

    def cut(self, query: str) -> str:
        """The query without what goes beyond its share."""
        tokenizer = self.tokenizer
        encoded = tokenizer(query, add_special_tokens=False, return_offsets_mapping=tokenizer.is_fast)
        if len(encoded["input_ids"]) <= self.query_length:
            return query
        if tokenizer.is_fast:
            return query[: encoded["offset_mapping"][self.query_length - 1][1]]
        return str(tokenizer.decode(encoded["input_ids"][: self.query_length]))

    def encoded(self, query: str, passages: Sequence[str]) -> list[Features]:
        """A query, already cut, with each of some passages."""
        if not passages:
            return []
        encoded = self.tokenizer([query] * len(passages), list(passages), truncation="only_second", max_length=self.length)
        return [{name: encoded[name][row] for name in encoded} for row in range(len(passages))]

    def padded(self, pairs: Sequence[Features], device: Any) -> dict[str, Any]:
        """A batch as tensors."""
        return dict(self.tokenizer.pad(list(pairs), return_tensors="pt").to(device))
