"""Text to token ids for scoring: special tokens once, targets as continuations, too long prompts cut in one span."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

ANCHORS = (":", "\n", "a")
"""What a target is tokenised behind; the first that keeps its own tokens decides."""

Span = tuple[int, int]
"""Characters of a prompt, from the first to the one after the last."""


class TextEncoder:
    """Token ids of prompts and targets, made apart and joined as ids, never as text.

    Args:
        tokenizer: A `transformers` tokenizer.
        continues: Whether a target continues its prompt (causal models) or starts a text of its own (a decoder's),
            in which case the prompt also gets the special tokens that the tokenizer puts behind a text.
    """

    def __init__(self, tokenizer: Any, continues: bool = True) -> None:
        self.tokenizer = tokenizer
        # What is too long is cut or refused here; the library's warning about it would only worry people.
        if hasattr(tokenizer, "deprecation_warnings"):
            tokenizer.deprecation_warnings["sequence-length-is-longer-than-the-specified-maximum"] = True
        self.continues = continues
        plain, special = self._ids(["a"])[0], list(tokenizer("a")["input_ids"])
        place = next((n for n in range(len(special)) if special[n : n + len(plain)] == plain), 0)
        self.before: list[int] = special[:place]
        self.after: list[int] = [] if continues else special[place + len(plain) :]

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        return [list(ids) for ids in self.tokenizer(list(texts), add_special_tokens=False)["input_ids"]]

    def prompts(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of prompts; the special tokens before a text are added unless it begins with them already."""
        return [self._framed(ids) for ids in self._ids(texts)]

    def _framed(self, ids: list[int]) -> list[int]:
        begun = ids[: len(self.before)] == self.before
        ended = bool(self.after) and ids[-len(self.after) :] == self.after
        return ([] if begun else self.before) + ids + ([] if ended else self.after)

    def target(self, text: str) -> list[int]:
        """Ids of a target: with its leading white space, as it is tokenised behind other text.

        Raises:
            ValueError: The target is empty, or this tokenizer never keeps it apart from what is before it.
        """
        if not text:
            raise ValueError("a target is empty: there is nothing to score")
        if not self.continues:
            return self._ids([text])[0]
        for anchor in ANCHORS:
            before, both = self._ids([anchor, anchor + text])
            if both[: len(before)] == before and len(both) > len(before):
                return both[len(before) :]
        raise ValueError(f"the target {text[:40]!r} cannot be tokenised apart from the text before it")

    def decode(self, target: Sequence[int]) -> str:
        """The text of a target's ids, its leading white space included."""
        if not self.continues:
            return str(self.tokenizer.decode(list(target)))
        before = self._ids([ANCHORS[0]])[0]
        start = len(self.tokenizer.decode(before))
        return str(self.tokenizer.decode([*before, *target], clean_up_tokenization_spaces=False))[start:]

    def cut(self, text: str, span: Span, room: int) -> list[int]:
        """Ids of a prompt, tokens dropped from the end of one span until it fits; what is around stays whole.

        Args:
            text: The prompt.
            span: The characters that may go.
            room: Tokens that fit, special ones included.

        Raises:
            ValueError: What is around the span is too long alone, or the tokenizer cannot tell which tokens are in it.
        """
        if not self.tokenizer.is_fast:
            raise ValueError("a prompt is too long and this tokenizer gives no offsets to shorten it by")
        encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        ids, offsets = list(encoded["input_ids"]), list(encoded["offset_mapping"])
        inside = [n for n, (start, end) in enumerate(offsets) if span[0] <= start < end <= span[1]]
        surplus = len(self._framed(ids)) - room
        if surplus <= 0:
            return self._framed(ids)
        if surplus > len(inside):
            around = len(self._framed(ids)) - len(inside)
            raise ValueError(f"a prompt takes {around} tokens without what may be cut, where {room} fit")
        first, last = inside[-surplus], inside[-1]
        # Tokens that are parts of one character go together.
        while first > inside[0] and offsets[first][0] < offsets[first - 1][1]:
            first -= 1
        return self._framed(ids[:first] + ids[last + 1 :])
