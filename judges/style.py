"""Measure the quality of rewritten texts: style, preserved content, fluency.

Values are per pair of texts; `StyleQuality` gives their number, mean and spread, and the arrays themselves to callers that want
intervals.

| measure | of a pair |
| --- | --- |
| `informal`, `informal_source` | verdict of a style classifier: 1 Informal, 0 Formal (strength) |
| `bertscore` | BERTScore F1 of source and rewriting (content) |
| `entities` | share of the source's names and numbers that the rewriting has too (content) |
| `numbers` | share of the source's numbers that the rewriting has too; none if it has no number (content) |
| `answer_kept` | whether a gold answer string is in the rewriting, where one is in the source (content) |
| `unchanged` | whether the rewriting is the source, white space aside |
| `words` | words of the rewriting / words of the source |
| `perplexity`, `perplexity_source` | exp of the mean negative log-likelihood per token (fluency) |
| `sentiment`, `sentiment_source`, `sentiment_shift` | polarity, and the difference from the source's |
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from benchmarks.core.errors import UserError
from benchmarks.registry import Benchmark
from benchmarks.schema import Passage, Question
from benchmarks.styles.pairs import Rewriting
from benchmarks.text_batch import has_answer_all
from judges.judge import Item, Judge, JudgeCall, PointJudge, counting
from judges.llm.style import INFORMAL, KEPT
from judges.metric import Scores
from judges.metrics.entities import RULE, entity_preservation_of_pairs
from judges.metrics.generation import bertscore_of_pairs, perplexity_of_texts
from methods.api import Prediction, Services
from methods.flow import each, one

_NEGATIONS = frozenset(["not", "no", "never", "neither", "nor", "nobody", "nothing", "without", "hardly", "cannot"])

_LISTED = [line.split() for line in files("judges").joinpath("polarity.txt").read_text("utf-8").splitlines()]
_SIGN = {word: 1 if sign == "+" else -1 for sign, *words in _LISTED if sign in "+-" for word in words}
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
REACH = 2
"""Number of words after a negation whose polarity it reverses."""


def polarity(text: str) -> float:
    """Return (positive − negative) / (positive + negative) words of a text, in [-1, 1]; 0 if there are none.

    A word counts by fixed lists of English words, with the other sign where one of the two words before it is a
    negation (not, never, no, …, anything that ends in n't). Case does not count. This is not TextBlob's polarity, which
    SARK reports: only shifts can be compared, and only roughly.
    """
    positive = negative = 0
    negated = 0
    for match in _WORD.finditer(text.lower().replace("’", "'")):
        word = match[0]
        if word in _NEGATIONS or word.endswith("n't"):
            negated = REACH
            continue
        sign = _SIGN.get(word, 0)
        if negated:
            sign, negated = -sign, negated - 1
        positive += sign > 0
        negative += sign < 0
    return (positive - negative) / (positive + negative) if positive + negative else 0.0


def polarities(texts: Sequence[str]) -> Scores:
    """Return `polarity` of every text. Shape (texts,)."""
    return np.array([polarity(text) for text in texts], dtype=np.float64)


def textblob_polarities(texts: Sequence[str]) -> Scores:
    """Return TextBlob's polarity of every text, which SARK reports (appendix C.2). Shape (texts,).

    Raises:
        UserError: TextBlob is not installed.
    """
    try:
        from textblob import TextBlob
    except ImportError as error:
        what = "TextBlob's polarity needs the package 'textblob', which is not installed"
        raise UserError(what, code="missing-package", where="--sentiment", try_this="pip install textblob, or lexicon") from error
    return np.array([TextBlob(text).sentiment.polarity for text in texts], dtype=np.float64)


def text_item(text: str, source: str = "") -> Item:
    """Return a text as judges take it: the answer to no question, read from its source."""
    return Item(Question("", "", ()), Prediction("", text), (Passage("", "", source),))


class StyleValidator:
    """Reject informal texts that are not judged Informal; other styles are not checked.

    Args:
        judge: `style` or `rule_style`, built.
        id: The judge's identity.
        styles: The styles that must read as Informal.
    """

    def __init__(self, judge: PointJudge, id: str, styles: Sequence[str] = ("informal",)) -> None:
        self._ask = one(judge, "ask")
        self.id = f"style {id} of {','.join(styles)}"
        self._styles = tuple(styles)

    @classmethod
    def of(cls, judge: Judge, services: Services, styles: Sequence[str] = ("informal",)) -> StyleValidator:
        """Create the validator from a registered judge."""
        return cls(_texts(judge, services), str(judge), styles)

    async def objections_one(self, source: str, styled: str, style: str) -> str | None:
        return _objection("style", await self._ask(text_item(styled)), INFORMAL) if style in self._styles else None


class ContentValidator:
    """Reject texts that are not judged to keep all facts of their source.

    Args:
        judge: `content`, built.
        id: The judge's identity.
    """

    def __init__(self, judge: PointJudge, id: str) -> None:
        self._ask = one(judge, "ask")
        self.id = f"content {id}"

    @classmethod
    def of(cls, judge: Judge, services: Services) -> ContentValidator:
        """Create the validator from a registered judge."""
        return cls(_texts(judge, services), str(judge))

    async def objections_one(self, source: str, styled: str, style: str) -> str | None:
        return _objection("content", await self._ask(text_item(styled, source)), KEPT)


class EntityValidator:
    """Objects to texts that keep too few of the names and numbers of their source; needs no model.

    Args:
        least: Smallest share that must be kept.
        extractor: As in `entity_preservation`.
    """

    def __init__(self, least: float = 1.0, extractor: str = RULE) -> None:
        self.id = f"entities {extractor} {least:g}"
        self._least = least
        self._extractor = extractor

    def objections(self, sources: Sequence[str], styled: Sequence[str], style: str) -> list[str | None]:
        kept = entity_preservation_of_pairs(sources, styled, self._extractor)
        return [None if share >= self._least else f"entities: {share:.0%} of the names and numbers are kept" for share in kept.tolist()]


def verdicts(calls: Sequence[JudgeCall]) -> list[str]:
    """Return what the calls made for one text say, those that could not be read left out."""
    return [str(call.parsed.value["verdict"]) for call in counting(calls) if call.parsed.value is not None]


def share_of(verdict: str, queries: Sequence[Sequence[JudgeCall]]) -> Scores:
    """Return, per text, the share of its verdicts that equal this one. Shape (texts,); NaN if no verdict could be parsed."""
    results = [verdicts(calls) for calls in queries]
    return np.array([row.count(verdict) / len(row) if row else np.nan for row in results], dtype=np.float64)


def _objection(what: str, calls: Sequence[JudgeCall], wanted: str) -> str | None:
    """Return why a text is rejected: at least half of the verdicts must be the wanted one; unjudged texts are rejected."""
    results = verdicts(calls)
    if not results:
        reason = next((call.parsed.unscored for call in calls if call.parsed.unscored), "nothing to judge")
        return f"{what} not judged: {reason}"
    other = [verdict for verdict in results if verdict != wanted]
    return f"{what}: judged {other[0]}, not {wanted}" if len(other) * 2 > len(results) else None


def _texts(judge: Judge, services: Services) -> Any:
    if judge.entry.kind != "point" or "gold" in judge.entry.needs:
        raise UserError(
            f"the judge {judge.entry.id!r} judges answers, not texts", code="judge-of-answers-only", try_this="style, rule_style or content"
        )
    return judge.build(services)


_NUMBER = re.compile(r"\d+(?:[.,:/]\d+)*")

Sentiment = Callable[[Sequence[str]], Scores]
"""Function that returns one polarity per text."""


@dataclass(frozen=True, slots=True)
class StyleText:
    """A text and its rewriting.

    Attributes:
        style: The other style.
        source, styled: The two texts, without titles.
        golds: Gold answers of the question that the pair belongs to; () if it belongs to none.
    """

    style: str
    source: str
    styled: str
    golds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measured:
    """Values of one measure over the pairs of one style.

    Attributes:
        values: Shape (pairs,); NaN if a pair has none.
    """

    values: Scores

    @property
    def n(self) -> int:
        """Return how many pairs have a value."""
        return int(np.isfinite(self.values).sum())

    @property
    def mean(self) -> float | None:
        """Return the mean of the known values; None if there are none."""
        return float(np.nanmean(self.values)) if self.n else None

    @property
    def sd(self) -> float | None:
        """Return standard deviation (n − 1); None if fewer than two pairs have a value."""
        return float(np.nanstd(self.values, ddof=1)) if self.n > 1 else None

    def to_json(self) -> dict[str, Any]:
        """Return number, mean and spread; `missing`: pairs without a value."""
        return {"n": self.n, "missing": len(self.values) - self.n, "mean": self.mean, "sd": self.sd}


@dataclass(frozen=True)
class StyleQuality:
    """Quality of the texts in one style.

    Attributes:
        style: Which.
        pairs: How many there are.
        failed: Rewritings that were given up.
        measures: By name, those that were asked for.
    """

    style: str
    pairs: int
    failed: int
    measures: Mapping[str, Measured]

    def to_json(self) -> dict[str, Any]:
        """Return the values as a JSON object."""
        measures = {name: measured.to_json() for name, measured in self.measures.items()}
        return {"style": self.style, "pairs": self.pairs, "failed": self.failed, "measures": measures}


def texts_of(rewritings: Iterable[Rewriting], benchmark: Benchmark | None = None) -> list[StyleText]:
    """Return pairs as texts, with the gold answers of their questions where the benchmark is given; failed ones left out."""
    golds = {question.id: question.golds for question in benchmark.questions} if benchmark else {}
    return [
        StyleText(rewriting.style, rewriting.formal.text, rewriting.styled.text, golds.get(rewriting.question, ()))
        for rewriting in rewritings
        if rewriting.styled is not None
    ]


def style_quality(
    texts: Sequence[StyleText],
    *,
    strength: PointJudge | None = None,
    bertscore: str | None = None,
    layer: int = 12,
    extractor: str = RULE,
    perplexity: str | None = None,
    sentiment: Sentiment | None = polarities,
    failed: Mapping[str, int] | None = None,
    device: str | None = None,
) -> list[StyleQuality]:
    """Measure rewritten texts, style by style.

    Measures that need a model are computed if one is named; it sees texts of several pairs once.

    Args:
        texts: The pairs.
        strength: A judge of style: `style` or `rule_style`, built.
        bertscore: An encoder (SARK: `bert-base-uncased`); None: not measured.
        layer: The encoder's layer (SARK: 12).
        extractor: As in `entity_preservation`.
        perplexity: A causal language model (SARK: `gpt2`); None: not measured.
        sentiment: From texts to polarities; None: not measured.
        failed: Rewritings that were given up, by style.
        device: Device of the models; None chooses.

    Returns:
        One per style, in the order of first appearance.

    Raises:
        UserError: A model cannot be loaded, or there is no such extractor.
    """
    work = _Work(texts, strength, bertscore, layer, extractor, perplexity, sentiment, device)
    measured = work.measured()
    styles = np.array([text.style for text in texts], dtype=object)
    given_up = dict(failed or {})
    results = []
    for style in dict.fromkeys([*(text.style for text in texts), *given_up]):
        rows = styles == style
        values = {name: Measured(column[rows]) for name, column in measured.items()} if rows.any() else {}
        results.append(StyleQuality(style, int(rows.sum()), given_up.get(style, 0), values))
    return results


def rows(report: Iterable[StyleQuality]) -> list[dict[str, Any]]:
    """Return the report as rows of a table: style, measure, n, missing, mean, sd."""
    return [{"style": item.style, "measure": name, **measured.to_json()} for item in report for name, measured in item.measures.items()]


@dataclass(frozen=True)
class _Work:
    """Texts to measure and the measures to apply."""

    texts: Sequence[StyleText]
    strength: PointJudge | None
    bertscore: str | None
    layer: int
    extractor: str
    perplexity: str | None
    sentiment: Sentiment | None
    device: str | None

    def measured(self) -> dict[str, Scores]:
        """Return values by measure, each of shape (pairs,)."""
        sources, styled = [text.source for text in self.texts], [text.styled for text in self.texts]
        results: dict[str, Scores] = {}
        judge = self.strength
        if judge is not None:
            results |= self._both(
                "informal", sources, styled, lambda some: share_of(INFORMAL, each(judge, "ask", list(map(text_item, some))))
            )
        if self.bertscore is not None:
            results["bertscore"] = _once_per_pair(styled, sources, self._bertscore)
        results["entities"] = _once_per_pair(sources, styled, lambda item, other: entity_preservation_of_pairs(item, other, self.extractor))
        results["numbers"] = _numbers_kept(sources, styled)
        results["answer_kept"] = _answers_kept(self.texts)
        results["unchanged"] = _floats(item.split() == other.split() for item, other in zip(sources, styled, strict=True))
        results["words"] = _floats(map(_length_ratio, sources, styled))
        model = self.perplexity
        if model is not None:
            results |= self._both("perplexity", sources, styled, lambda some: perplexity_of_texts(some, model, device=self.device))
        if self.sentiment is not None:
            results |= self._both("sentiment", sources, styled, self.sentiment)
            results["sentiment_shift"] = results["sentiment"] - results["sentiment_source"]
        return results

    def _bertscore(self, styled: Sequence[str], sources: Sequence[str]) -> Scores:
        assert self.bertscore is not None
        return bertscore_of_pairs(styled, sources, self.bertscore, layer=self.layer, device=self.device)

    @staticmethod
    def _both(name: str, sources: Sequence[str], styled: Sequence[str], measure: Callable[[Sequence[str]], Scores]) -> dict[str, Scores]:
        """Return a measure of single texts, of the rewritings and of their sources; each text is measured once."""
        distinct = list(dict.fromkeys([*styled, *sources]))
        measured = np.asarray(measure(distinct) if distinct else (), np.float64)
        values = dict(zip(distinct, measured.tolist(), strict=True))
        return {name: _floats(map(values.get, styled)), f"{name}_source": _floats(map(values.get, sources))}


def _once_per_pair(item: Sequence[str], other: Sequence[str], measure: Callable[[Sequence[str], Sequence[str]], Scores]) -> Scores:
    pairs = list(zip(item, other, strict=True))
    distinct = list(dict.fromkeys(pairs))
    if not distinct:
        return _floats(())
    values = dict(zip(distinct, measure(*map(list, zip(*distinct, strict=True))).tolist(), strict=True))
    return _floats(values[pair] for pair in pairs)


def _numbers_kept(sources: Sequence[str], styled: Sequence[str]) -> Scores:
    def kept(source: str, text: str) -> float:
        wanted = set(_NUMBER.findall(source))
        return len(wanted.intersection(_NUMBER.findall(text))) / len(wanted) if wanted else math.nan

    return _floats(map(kept, sources, styled))


def _answers_kept(texts: Sequence[StyleText]) -> Scores:
    golds = [text.golds for text in texts]
    had = has_answer_all([text.source for text in texts], golds)
    has = has_answer_all([text.styled for text in texts], golds)
    return np.where(had, has.astype(np.float64), np.nan)


def _length_ratio(source: str, styled: str) -> float:
    words = len(source.split())
    return len(styled.split()) / words if words else math.nan


def _floats(values: Iterable[Any]) -> Scores:
    return np.fromiter(values, dtype=np.float64)
