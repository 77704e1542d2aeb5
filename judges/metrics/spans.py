"""Evidence as spans of documents: how much of the gold text was found, whatever the passages' size."""

from __future__ import annotations

import numpy as np

from benchmarks.core.errors import UserError
from benchmarks.schema import SPANS
from judges.metric import Batch, Parameter, Scores, register

_K = Parameter("k", int, None, help="how many of the first passages count")
_WORDS = Parameter("words", int, 0, help="maximum number of words of passages within the first k; 0: no maximum", quiet=True)


_SOURCE = "Smith & Troynikov 2024 (token-wise recall of chunks)"


@register("span_recall", source=_SOURCE, group="retrieval", needs=("ranking",), parameters=(_K, _WORDS))
def span_recall(batch: Batch, k: int, words: int) -> Scores:
    """Compute span recall: the share of the gold spans' characters that the first k passages contain.

    It compares chunk sizes at an equal amount of text: with words=500, only the first passages with 500 words in total (and at
    most k) count. A question without gold spans is unscorable.
    """
    scores = np.full(len(batch), np.nan)
    for row, (question, ranking) in enumerate(zip(batch.questions, batch.rankings, strict=True)):
        spans = question.metadata.get(SPANS)
        if spans:
            read = frozenset(_within(batch, ranking[:k], words) if words else ranking[:k])
            covered = sum(_covered([place for name, place in parts.items() if name in read]) for _, parts in spans)
            scores[row] = covered / sum(length for length, _ in spans)
    return scores


def _within(batch: Batch, ranking: list[str], words: int) -> list[str]:
    """Return the first passages with at most this many words in total."""
    if batch.passage is None:
        raise UserError(
            "span_recall with words needs the passages",
            code="words-need-passages",
            try_this="score with the benchmark's corpus, or leave words out",
        )
    result = []
    for name in ranking:
        words -= len(batch.passage(name).text.split())
        if words < 0:
            break
        result.append(name)
    return result


def _covered(parts: list[tuple[int, int]]) -> int:
    """Count the characters of a span that at least one part covers."""
    total, reached = 0, 0
    for start, end in sorted(map(tuple, parts)):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total
