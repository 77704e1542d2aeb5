"""Find pairs of near-duplicate texts, such as questions of two splits.

Two questions are as similar as the words that they share: the weighted Jaccard index of their sets of normalized words,
each weighed by how rare it is (log of n over the number of questions that hold it, plus one), so that "who directed X"
and "who directed Y" are far apart. The order of words does not count.

Source: the prefix filter of Chaudhuri et al. (2006) and Bayardo et al. (2007), for weights.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.text_batch import normalize_all

THRESHOLD = 0.8
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class NearDuplicate:
    """A pair of near-duplicate texts: their positions in the two sequences, and their similarity from 0 to 1."""

    first: int
    second: int
    similarity: float


def near_duplicates(first: Sequence[str], second: Sequence[str], threshold: float = THRESHOLD) -> list[NearDuplicate]:
    """Return all pairs of a text of `first` and a text of `second` whose weighted word overlap reaches the threshold.

    For a pair above the threshold, the shared words make up at least that fraction of each text's total weight. Such texts
    therefore share one of their rarest words, so only texts with a common rare word are compared.

    Args:
        first, second: Texts; texts without words after normalization match nothing.
        threshold: Minimum similarity, above 0 and at most 1.

    Returns:
        The pairs, sorted by position.
    """
    left, right = (list(map(_split_words, normalize_all(texts))) for texts in (first, second))
    weights = word_weights([*left, *right])
    order = {word: rank for rank, word in enumerate(sorted(weights, key=lambda word: (-weights[word], word)))}
    index: dict[str, list[int]] = {}
    totals = [_weight(words, weights) for words in left]
    for position, words in enumerate(left):
        for word in _rarest(words, order, weights, totals[position], threshold):
            index.setdefault(word, []).append(position)
    results = []
    for position, words in enumerate(right):
        total = _weight(words, weights)
        rarest = _rarest(words, order, weights, total, threshold)
        for other in sorted({candidate for word in rarest for candidate in index.get(word, ())}):
            shared = _weight(words & left[other], weights)
            similarity = shared / (total + totals[other] - shared)
            if similarity >= threshold - _ROUNDING:
                results.append(NearDuplicate(other, position, similarity))
    return sorted(results, key=lambda pair: (pair.first, pair.second))


def word_weights(texts: Sequence[frozenset[str]]) -> Mapping[str, float]:
    """Return a weight per word that grows with its rarity among all texts (inverse document frequency)."""
    frequencies = Counter(word for words in texts for word in words)
    return {word: 1 + math.log(len(texts) / times) for word, times in frequencies.items()}


def _split_words(normal: str) -> frozenset[str]:
    return frozenset(normal.split())


def _weight(words: frozenset[str], weights: Mapping[str, float]) -> float:
    # Sums of floats depend on their order, sets have none: fsum does not.
    return math.fsum(weights[word] for word in words)


def _rarest(words: frozenset[str], order: Mapping[str, int], weights: Mapping[str, float], total: float, threshold: float) -> Iterator[str]:
    """Yield a text's rarest words, until the others weigh less than the threshold's fraction of it."""
    left = total
    for word in sorted(words, key=order.__getitem__):
        if left < threshold * total - _ROUNDING:
            return
        yield word
        left -= weights[word]
