"""Texts with one word hidden: what SKP is pretrained on.

A word is what stands between white space; all of its word pieces are hidden together, so that none gives away another.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.fingerprint import fingerprint

SEPARATOR = "|"
"""Stands between the triples of a subgraph, as a word of its own that is never hidden."""
NOT_A_TARGET = -100
"""The label of positions that count for nothing: torch's own `ignore_index`."""
_NO_WORD = -1
_AT_ONCE = 4096


@dataclass(frozen=True)
class Tokenised:
    """Texts as token ids, one after another.

    Attributes:
        ids: Token ids of all texts: shape (tokens,).
        words: The word that each token is part of, numbered from 0 in each text; -1 where it is part of none that may
            be hidden: shape (tokens,).
        offsets: Where each text begins, and behind the last one where it ends: shape (texts + 1,).
        counts: Words of each text that may be hidden: shape (texts,).
        mask: Id of the token that stands for what is hidden.
        pad: Id of the token that fills rows up.
    """

    ids: NDArray[np.int32]
    words: NDArray[np.int32]
    offsets: NDArray[np.int64]
    counts: NDArray[np.int64]
    mask: int
    pad: int

    def __len__(self) -> int:
        return len(self.counts)


@dataclass(frozen=True)
class Masked:
    """A batch of texts and of their copies with one word hidden; all of shape (texts, longest).

    Attributes:
        ids: As they are.
        copies: With the hidden word.
        attention: 1 where there is a token, 0 where a row is filled up.
        labels: The hidden tokens in their places, `NOT_A_TARGET` everywhere else.
    """

    ids: NDArray[np.int64]
    copies: NDArray[np.int64]
    attention: NDArray[np.int64]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def targets(self) -> int:
        """Hidden tokens."""
        return int((self.labels != NOT_A_TARGET).sum())

    def rows(self, places: slice) -> Masked:
        """Some of its texts, not filled up further than they need."""
        longest = int(self.attention[places].sum(axis=1).max(initial=0))
        parts = (part[places, :longest] for part in (self.ids, self.copies, self.attention, self.labels))
        return Masked(*parts)


def tokenised(texts: Sequence[str], tokenizer: Any, max_length: int) -> Tokenised:
    """Tokenise texts and find the words that their tokens are of.

    Args:
        texts: What is read.
        tokenizer: A fast tokenizer of `transformers` with a mask token.
        max_length: Longest text in tokens; what goes beyond is cut, and cannot be hidden.
    """
    ids, words, lengths = [], [], []
    for start in range(0, len(texts), _AT_ONCE):
        part = list(texts[start : start + _AT_ONCE])
        encoded = tokenizer(part, truncation=True, max_length=max_length, return_offsets_mapping=True)
        lengths += [len(row) for row in encoded["input_ids"]]
        ids.append(np.concatenate([np.array(row, dtype=np.int32) for row in encoded["input_ids"]]))
        words.append(_words(part, encoded["offset_mapping"]))
    offsets = np.concatenate([[0], np.cumsum(np.array(lengths, dtype=np.int64))]).astype(np.int64)
    every = np.concatenate(words) if words else np.empty(0, dtype=np.int32)
    numbered, counts = _renumbered(every, offsets)
    flat = np.concatenate(ids) if ids else np.empty(0, dtype=np.int32)
    return Tokenised(flat, numbered, offsets, counts, int(tokenizer.mask_token_id), int(tokenizer.pad_token_id))


def _words(texts: Sequence[str], spans: Sequence[Sequence[tuple[int, int]]]) -> NDArray[np.int32]:
    """The word of each token, numbered over all texts; -1 for special tokens and separators."""
    bases = np.concatenate([[0], np.cumsum([len(text) + 1 for text in texts])])[:-1]
    found = [(match.start(), match.group() == SEPARATOR) for match in re.finditer(r"\S+", "\n".join(texts))]
    starts = np.array([start for start, _ in found], dtype=np.int64)
    separators = np.array([separates for _, separates in found], dtype=bool)
    lengths = [len(row) for row in spans]
    flat = np.array([span for row in spans for span in row], dtype=np.int64).reshape(-1, 2)
    # A token's last character decides: its first may be the space before the word.
    words = np.searchsorted(starts, flat[:, 1] - 1 + np.repeat(bases, lengths), side="right") - 1
    nothing = flat[:, 0] == flat[:, 1]
    if len(starts):
        nothing |= separators[words]
    return np.where(nothing, _NO_WORD, words).astype(np.int32)


def _renumbered(words: NDArray[np.int32], offsets: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Words numbered from 0 in each text without gaps, and how many each text has."""
    lengths = np.diff(offsets)
    texts = np.repeat(np.arange(len(lengths)), lengths)
    there = np.flatnonzero(words != _NO_WORD)
    first = np.ones(len(there), dtype=bool)
    first[1:] = (words[there[1:]] != words[there[:-1]]) | (texts[there[1:]] != texts[there[:-1]])
    counts = np.bincount(texts[there][first], minlength=len(lengths)).astype(np.int64)
    before = np.concatenate([[0], np.cumsum(counts)])[:-1]
    numbered = np.full(len(words), _NO_WORD, dtype=np.int32)
    numbered[there] = np.cumsum(first) - 1 - before[texts[there]] if len(there) else 0
    return numbered, counts


def hidden_words(texts: Tokenised, *key: str | int) -> NDArray[np.int64]:
    """Draw the word of each text that is hidden, each as likely as the others; -1 where a text has none.

    Args:
        texts: The texts.
        key: What is drawn for; equal keys give equal draws.
    """
    seed = int(fingerprint("skp-mask", *key), 16)
    drawn = np.random.default_rng(seed).random(len(texts))
    return np.where(texts.counts > 0, (drawn * texts.counts).astype(np.int64), _NO_WORD)


def masked(texts: Tokenised, places: NDArray[np.int64], hidden: NDArray[np.int64]) -> Masked:
    """Lay texts out as a batch.

    Args:
        texts: All texts.
        places: Which: shape (batch,).
        hidden: The word that is hidden in each of all texts (`hidden_words`).
    """
    starts, lengths = texts.offsets[places], np.diff(texts.offsets)[places]
    columns = np.arange(int(lengths.max(initial=0)))
    there = columns < lengths[:, None]
    at = np.where(there, starts[:, None] + columns, 0)
    ids = np.where(there, texts.ids[at], texts.pad).astype(np.int64)
    chosen = hidden[places][:, None]
    gone = there & (chosen != _NO_WORD) & (texts.words[at] == chosen)
    return Masked(ids, np.where(gone, texts.mask, ids), there.astype(np.int64), np.where(gone, ids, NOT_A_TARGET))
