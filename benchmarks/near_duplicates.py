"""Questions that say nearly the same, found exactly: every pair above a threshold, and no other.

Two questions are as similar as the words that they share: the weighted Jaccard index of their sets of normalised words,
each weighed by how rare it is (log of n over the number of questions that hold it, plus one), so that "who directed X"
and "who directed Y" are far apart. The order of words does not count.

Source: the prefix filter of Chaudhuri et al. (2006) and Bayardo et al. (2007), for weights.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.text_batch import normalise_all

THRESHOLD = 0.8
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Alike:
    """Two texts that say nearly the same: their places in the two sequences, and how similar they are."""

    first: int
    second: int
    similarity: float


def near_duplicates(first: Sequence[str], second: Sequence[str], threshold: float = THRESHOLD) -> list[Alike]:
    """Every pair of a text of one sequence and a text of the other that is similar enough.

    What two similar texts share weighs at least the threshold's share of each. So they share one of the rarest words
    of each, and only texts that do are compared.

    Args:
        first, second: Texts; those that normalise to nothing are like no other.
        threshold: Least similarity, above 0 and at most 1.

    Returns:
        The pairs, by their places.
    """
    left, right = (list(map(_words, normalise_all(texts))) for texts in (first, second))
    weights = word_weights([*left, *right])
    order = {word: rank for rank, word in enumerate(sorted(weights, key=lambda word: (-weights[word], word)))}
    index: dict[str, list[int]] = {}
    totals = [_weight(words, weights) for words in left]
    for place, words in enumerate(left):
        for word in _rarest(words, order, weights, totals[place], threshold):
            index.setdefault(word, []).append(place)
    found = []
    for place, words in enumerate(right):
        total = _weight(words, weights)
        rarest = _rarest(words, order, weights, total, threshold)
        for other in sorted({candidate for word in rarest for candidate in index.get(word, ())}):
            shared = _weight(words & left[other], weights)
            similarity = shared / (total + totals[other] - shared)
            if similarity >= threshold - _ROUNDING:
                found.append(Alike(other, place, similarity))
    return sorted(found, key=lambda pair: (pair.first, pair.second))


def word_weights(texts: Sequence[frozenset[str]]) -> Mapping[str, float]:
    """How much a word counts, by how rare it is among all texts."""
    held = Counter(word for words in texts for word in words)
    return {word: 1 + math.log(len(texts) / times) for word, times in held.items()}


def _words(normal: str) -> frozenset[str]:
    return frozenset(normal.split())


def _weight(words: frozenset[str], weights: Mapping[str, float]) -> float:
    # Sums of floats depend on their order, sets have none: fsum does not.
    return math.fsum(weights[word] for word in words)


def _rarest(words: frozenset[str], order: Mapping[str, int], weights: Mapping[str, float], total: float, threshold: float) -> Iterator[str]:
    """The rarest words of a text, so many that the others weigh less than the threshold's share of it."""
    left = total
    for word in sorted(words, key=order.__getitem__):
        if left < threshold * total - _ROUNDING:
            return
        yield word
        left -= weights[word]
