"""ROUGE by the definition of the package `rouge-score`, equal to it to the last digit and many times faster.

Words are cut and stemmed as that package does it, each distinct word stemmed once; the longest common subsequence comes
from rapidfuzz, which compares many words at a time. Tests hold both against `rouge-score` itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from itertools import pairwise

import numpy as np

from benchmarks.errors import MissingPackage, unknown_name
from benchmarks.text import common_tokens
from judges.api import Batch, Parameter, Scores
from judges.metrics.references import GOLDS, pairs
from judges.registry import register

TYPES = ("rouge1", "rouge2", "rougeL")

_TYPE = Parameter("type", str, "rougeL", TYPES, "common words, common pairs of words, longest common subsequence")
_STEM = Parameter("stem", bool, True, (True, False), "Porter stems of words longer than three letters")

_LETTERS = bytes(code if chr(code) in "abcdefghijklmnopqrstuvwxyz0123456789" else ord(" ") for code in range(256))
_SHORT = 3
"""Up to so many letters a word is its own stem."""


@register("rouge", source="rouge-score 0.1.2; Lin 2004", group="text", needs=("answer",), parameters=(_TYPE, _STEM, GOLDS))
def rouge(batch: Batch, type: str, stem: bool, golds: str) -> Scores:
    """ROUGE F-measure of the answer against the gold, the maximum over the golds.

    Lower-cased runs of the letters a-z and digits, Porter-stemmed unless stem=false. rouge1: words in common as
    multisets; rouge2: pairs of neighbouring words; rougeL: longest common subsequence of words. A set of answers is one
    text, a line each. A gold without such words (rouge2: with fewer than two), whatever its script, can only score
    0 and is left out; a question with none left, or an unanswerable one, is unscorable.
    """
    found = pairs(batch, golds)
    predictions, wanted = batch.once(("rouge", stem, golds), partial(_both, found.answers, found.references, stem))
    scores = _f_measures(predictions, wanted, type)
    fit = [" " in words if type == "rouge2" else words != "" for words in wanted]
    return found.best(np.where(fit, scores, np.nan))


def rouge_of_pairs(predictions: Sequence[str], references: Sequence[str], type: str = "rougeL", *, stem: bool = True) -> Scores:
    """ROUGE F-measure of each prediction against its reference, as `rouge_score.RougeScorer` gives it.

    Args:
        predictions, references: One text a pair each.
        type: `rouge1`, `rouge2` or `rougeL`.
        stem: Whether words are stemmed; `evaluate`'s ROUGE does not by default.

    Returns:
        Shape (pairs,), 0 where one side has no words.

    Raises:
        MissingPackage: rapidfuzz (for rougeL) or nltk (for stems) is not installed.
        UserError: There is no such type.
    """
    return _f_measures(*_both(predictions, references, stem), type)


def rouge_words(texts: Sequence[str], stem: bool) -> list[str]:
    """The words of each text as ROUGE sees them, with single spaces between.

    Strings, as lists of words in their hundreds of thousands keep the garbage collector busier than the scoring does.
    """
    kept = lru_cache(maxsize=None)(partial(_words, stem=stem))  # a prediction recurs beside each of its references
    return [kept(text) for text in texts]


def _both(predictions: Sequence[str], references: Sequence[str], stem: bool) -> tuple[list[str], list[str]]:
    return rouge_words(predictions, stem), rouge_words(references, stem)


def _words(text: str, stem: bool) -> str:
    # Lower-casing comes before the cut to ASCII: the Kelvin sign becomes a k. What is not ASCII becomes a question mark
    # and then, as whatever else is no letter or digit, a space.
    words = text.lower().encode("ascii", "replace").translate(_LETTERS).decode("ascii").split()
    if stem:
        stem_of = _stems()
        words = [stem_of(word) if len(word) > _SHORT else word for word in words]
    return " ".join(words)


@cache
def _stems() -> Callable[[str], str]:
    """The stemmer that `rouge-score` uses, remembering what it has stemmed."""
    try:
        from nltk.stem.porter import PorterStemmer
    except ImportError as error:
        raise MissingPackage("rouge-score", "metrics", "ROUGE with stems") from error
    return lru_cache(maxsize=1 << 20)(PorterStemmer().stem)


def _f_measures(predictions: Sequence[str], references: Sequence[str], type: str) -> Scores:
    """F-measures from words, in the very operations of `rouge_score.scoring.fmeasure`."""
    if type not in TYPES:
        raise unknown_name("type of ROUGE", type, TYPES)
    count = _subsequence() if type == "rougeL" else _common_pairs if type == "rouge2" else _common_words
    counts = (count(*map(str.split, pair)) for pair in zip(predictions, references, strict=True))
    common, said, wanted = np.fromiter(counts, np.dtype((np.float64, 3)), len(references)).T
    precision, recall = common / np.maximum(said, 1), common / np.maximum(wanted, 1)
    total = precision + recall
    return np.where(total > 0, 2 * precision * recall / np.where(total > 0, total, 1), 0.0)


Counts = tuple[int, int, int]
"""What two texts have in common, what the first has of it and what the second has."""


def _common_words(prediction: list[str], reference: list[str]) -> Counts:
    return common_tokens(prediction, reference), len(prediction), len(reference)


def _common_pairs(prediction: list[str], reference: list[str]) -> Counts:
    said, wanted = list(pairwise(prediction)), list(pairwise(reference))
    return common_tokens(said, wanted), len(said), len(wanted)


def _subsequence() -> Callable[[list[str], list[str]], Counts]:
    try:
        from rapidfuzz.distance.LCSseq import similarity
    except ImportError as error:
        raise MissingPackage("rapidfuzz", "metrics", "ROUGE-L") from error

    def longest(prediction: list[str], reference: list[str]) -> Counts:
        # Numbers in place of words: rapidfuzz compares hashes, and those of small numbers are the numbers themselves.
        # Words that the reference lacks are in no common subsequence.
        numbers = dict(zip(reference, range(len(reference)), strict=True))
        said = [numbers[word] for word in prediction if word in numbers]
        length = similarity(said, [numbers[word] for word in reference]) if len(said) > 1 else len(said)
        return length, len(prediction), len(reference)

    return longest
