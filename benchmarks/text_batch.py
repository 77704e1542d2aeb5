"""Compute the metrics of `benchmarks.text` for many (prediction, golds) pairs at once: same results, much faster.

Normalization dominates the time. This module joins all texts and normalizes them as one byte string, once for all metrics.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from benchmarks.core.errors import unknown_name
from benchmarks.text import (
    ARTICLE_WORDS,
    ARTICLES,
    COVER_MATCHES,
    FOLD,
    ORDINARY,
    PUNCTUATION,
    RULES,
    Rules,
    common_tokens,
    covers,
    has_answer,
    normalize,
    rules_named,
)

Floats = NDArray[np.float64]

_CHUNK = 4096
"""Number of texts normalized at a time."""

_MARK = "\0"
"""Separator of joined texts; texts that contain it are normalized one by one."""


def normalize_all(texts: Sequence[str], rules: str = "squad") -> list[str]:
    """Normalize many texts; equal to `normalize` of each.

    Raises:
        UserError: The rules are unknown.
    """
    owner = rules_named(rules)
    if owner.normalize is RULES["clara"].normalize:
        texts = [{"True": "yes", "False": "no"}.get(text, text) for text in texts]
    elif owner.normalize is not RULES["squad"].normalize:
        return [owner.normalize(text) for text in texts]
    results: list[str] = []
    for start in range(0, len(texts), _CHUNK):
        results += _squad_chunk(texts[start : start + _CHUNK])
    return results


def _squad_chunk(texts: Sequence[str]) -> list[str]:
    """Normalize texts by the squad rules, joined into one string."""
    plain = [text for text in texts if text.isascii()]
    joined = _MARK.join(plain).encode("ascii")
    if joined.translate(None, ORDINARY).strip(b"\0") or any(_MARK in text for text in texts):
        return [normalize(text) for text in texts]
    pieces = joined.translate(FOLD, PUNCTUATION).decode("ascii").split(_MARK)
    folded = [" ".join([word for word in piece.split() if word not in ARTICLE_WORDS]) for piece in pieces]
    if len(plain) == len(texts):
        return folded
    raw = _MARK.join([text for text in texts if not text.isascii()]).lower().encode("utf-8", "surrogatepass")
    bare = raw.translate(None, PUNCTUATION).decode("utf-8", "surrogatepass")
    others = iter(ARTICLES.sub(" ", bare).split(_MARK))
    ready = iter(folded)
    return [next(ready) if text.isascii() else " ".join(next(others).split()) for text in texts]


class AnswerPairs:
    """Predictions with their accepted strings, normalized once; each method scores all rows.

    Args:
        predictions: One text per row.
        golds: The accepted strings of each row, any number.
        rules: Name of the normalization rules.
        drop_empty: Whether to drop golds that are empty after normalization from rows with others, and blank golds, as the metrics
            do (`benchmarks.text` keeps them).

    Raises:
        ValueError: The two differ in length.
    """

    def __init__(
        self, predictions: Sequence[str], golds: Sequence[Sequence[str]], rules: str = "squad", *, drop_empty: bool = False
    ) -> None:
        if len(predictions) != len(golds):
            raise ValueError(f"{len(predictions)} predictions for {len(golds)} rows of golds")
        self._same = rules_named(rules).same
        self._answers = predictions
        self._normal = normalize_all(predictions, rules)
        self._golds = normalize_all([gold for row in golds for gold in row], rules)
        counts = np.fromiter(map(len, golds), dtype=np.int64, count=len(golds))
        rows = np.repeat(np.arange(len(golds)), counts)
        self._worded = counts > 0
        if not all(self._golds):
            worded = np.fromiter(map(bool, self._golds), dtype=bool, count=len(self._golds))
            self._worded = np.bincount(rows[worded], minlength=len(golds)) > 0
            if drop_empty:
                blank = np.array([not gold.strip() for row in golds for gold in row], dtype=bool)
                kept = np.flatnonzero(worded | ~blank & ~self._worded[rows]).tolist()
                self._golds = [self._golds[position] for position in kept]
                rows = rows[kept]
                counts = np.bincount(rows, minlength=len(golds))
        self._counts, self._rows = counts, rows.tolist()
        self._single = bool((counts == 1).all())
        self._overlap: tuple[Floats, Floats, Floats] | None = None

    def __len__(self) -> int:
        return len(self._normal)

    @property
    def scorable(self) -> NDArray[np.bool_]:
        """Return which rows have at least one gold answer left. Shape (rows,)."""
        return self._counts > 0

    @property
    def worded(self) -> NDArray[np.bool_]:
        """Return which rows have a gold answer that is not empty after normalization. Shape (rows,)."""
        return self._worded

    def _pairs(self) -> Iterator[tuple[str, str]]:
        """Yield the normalized prediction and gold of every gold answer."""
        if self._single:
            return zip(self._normal, self._golds, strict=True)
        return zip(map(self._normal.__getitem__, self._rows), self._golds, strict=True)

    def em(self) -> Floats:
        """Compute exact match per row (`benchmarks.text.em`). Shape (rows,)."""
        return self._best(self._equal().astype(np.float64))

    def _equal(self) -> NDArray[np.bool_]:
        """Return per gold whether the prediction equals it."""
        if self._same is None:
            return np.array([prediction == gold for prediction, gold in self._pairs()], dtype=bool)
        answers = self._answers if self._single else [self._answers[row] for row in self._rows]
        pairs = zip(answers, self._pairs(), strict=True)
        return np.array([self._same(answer, normal, gold) for answer, (normal, gold) in pairs], dtype=bool)

    def precision_recall_f1(self, rules: str = "squad") -> tuple[Floats, Floats, Floats]:
        """Compute token precision, recall and F1 per row. Three arrays of shape (rows,).

        Args:
            rules: Rules for counting; their normalization must be that of these pairs.
        """
        owner = rules_named(rules)
        same, predicted, wanted = self._overlaps()
        with np.errstate(divide="ignore", invalid="ignore"):
            precision, recall = same / predicted, same / wanted
            f1 = 2 * precision * recall / (precision + recall)
        differ = self._differing_verdicts(owner) if owner.verdict_words else np.zeros(len(same), dtype=bool)
        empty = (predicted == 0) & (wanted == 0)
        results = []
        for values in (precision, recall, f1):
            flat = np.where((same > 0) & ~differ, values, 0.0)
            if self._same is not None:
                flat = np.where(self._equal(), 1.0, flat)
            results.append(self._best(np.where(empty, owner.both_empty, flat)))
        return results[0], results[1], results[2]

    def f1(self, rules: str = "squad") -> Floats:
        """Compute token F1 per row. Shape (rows,)."""
        return self.precision_recall_f1(rules)[2]

    def cover_em(self, match: str = "substring") -> Floats:
        """Compute cover EM per row. Shape (rows,).

        Raises:
            UserError: `match` is unknown.
        """
        if match == "substring":
            results = [gold in prediction and gold != "" for prediction, gold in self._pairs()]
        elif match in COVER_MATCHES:
            results = [covers(prediction, gold, match) for prediction, gold in self._pairs()]
        else:
            raise unknown_name("match", match, COVER_MATCHES)
        return self._best(np.array(results, dtype=np.float64))

    def _overlaps(self) -> tuple[Floats, Floats, Floats]:
        """Return per gold the number of common tokens, prediction tokens and gold tokens."""
        if self._overlap is None:
            same, predicted, wanted = [], [], []
            golds = iter(self._golds)
            for prediction, count in zip(self._normal, self._counts.tolist(), strict=True):
                words: Collection[str] = prediction.split()
                length = len(words)
                if count > 1 and len(distinct := frozenset(words)) == length:
                    words = distinct  # built once for several golds, and fit for all of them: nothing is repeated
                for gold in islice(golds, count):
                    gold_words = gold.split()
                    same.append(common_tokens(words, gold_words))
                    predicted.append(length)
                    wanted.append(len(gold_words))
            self._overlap = np.array(same, float), np.array(predicted, float), np.array(wanted, float)
        return self._overlap

    def _differing_verdicts(self, owner: Rules) -> NDArray[np.bool_]:
        """Return per gold whether it or the prediction is a verdict word and they differ."""
        words = owner.verdict_words
        return np.array([(a in words or b in words) and a != b for a, b in self._pairs()], dtype=bool)

    def _best(self, flat: Floats) -> Floats:
        """Return the maximum over each row's golds, 0 for a row without."""
        if self._single:
            return flat
        best = np.zeros(len(self._counts))
        filled = self._counts > 0
        if filled.any():
            starts = np.concatenate(([0], np.cumsum(self._counts)[:-1]))[filled]
            best[filled] = np.maximum.reduceat(flat, starts)
        return best


def has_answer_all(texts: Sequence[str], golds: Sequence[Iterable[str]]) -> NDArray[np.bool_]:
    """Compute `has_answer` for each text and its golds. Shape (texts,)."""
    return np.array([has_answer(text, row) for text, row in zip(texts, golds, strict=True)], dtype=bool)
