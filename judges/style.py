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
"""Number of words after a negation that have the opposite polarity."""


def polarity(text: str) -> float:
    """Compute the sentiment polarity of a text: (positive − negative) / (positive + negative) words, from -1 to 1; 0 without such words.

    Words are looked up in fixed English lists, regardless of case; the sign is reversed if one of the two preceding words is a
    negation (not, never, no, … or a word ending in n't). SARK reports TextBlob's polarity, with which only shifts can be
    compared roughly.
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
    """Compute `polarity` for every text; shape (texts,)."""
    return np.array([polarity(text) for text in texts], dtype=np.float64)


def textblob_polarities(texts: Sequence[str]) -> Scores:
    """Compute TextBlob's sentiment polarity for every text, which SARK reports (appendix C.2); shape (texts,).

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
    """Wrap a text as an item for judges: the answer to an empty question, with `source` as its passage."""
    return Item(Question("", "", ()), Prediction("", text), (Passage("", "", source),))


class StyleValidator:
    """Validator for rewritings: rejects informal texts that a style judge does not call Informal; other styles are not checked.

    Args:
        judge: A built `style` or `rule_style` judge.
        id: Identity of the judge.
        styles: The styles whose texts must be judged Informal.
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
    """Validator for rewritings: rejects texts that do not keep all facts of their source, according to a judge.

    Args:
        judge: A built `content` judge.
        id: Identity of the judge.
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
    """Validator for rewritings: rejects texts that keep too few names and numbers of their source; needs no model.

    Args:
        least: Minimum share of entities that must be kept.
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
    """Return the readable verdicts among the calls about one text."""
    return [str(call.parsed.value["verdict"]) for call in counting(calls) if call.parsed.value is not None]


def share_of(verdict: str, queries: Sequence[Sequence[JudgeCall]]) -> Scores:
    """Compute, per text, the share of readable verdicts that equal `verdict`; shape (texts,), NaN without readable verdicts."""
    results = [verdicts(calls) for calls in queries]
    return np.array([row.count(verdict) / len(row) if row else np.nan for row in results], dtype=np.float64)


def _objection(what: str, calls: Sequence[JudgeCall], wanted: str) -> str | None:
    """Return why a text is rejected: fewer than half of its verdicts are the wanted one, or it is unjudged."""
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
    """Text and its rewriting in another style.

    Attributes:
        style: Style of the rewriting.
        source, styled: The two texts, without titles.
        golds: Gold answers of the question that the pair belongs to; () if it belongs to none.
    """

    style: str
    source: str
    styled: str
    golds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measured:
    """Values of one quality measure over the pairs of one style.

    Attributes:
        values: One value per pair, shape (pairs,); NaN if missing.
    """

    values: Scores

    @property
    def n(self) -> int:
        """Return the number of pairs with a value."""
        return int(np.isfinite(self.values).sum())

    @property
    def mean(self) -> float | None:
        """Return the mean over pairs with a value; None if there are none."""
        return float(np.nanmean(self.values)) if self.n else None

    @property
    def sd(self) -> float | None:
        """Return the sample standard deviation (n − 1); None if fewer than two pairs have a value."""
        return float(np.nanstd(self.values, ddof=1)) if self.n > 1 else None

    def to_json(self) -> dict[str, Any]:
        """Return number, mean and standard deviation as a JSON object; `missing` is the number of pairs without a value."""
        return {"n": self.n, "missing": len(self.values) - self.n, "mean": self.mean, "sd": self.sd}


@dataclass(frozen=True)
class StyleQuality:
    """Quality measures of the rewritten texts in one style.

    Attributes:
        style: The style.
        pairs: Number of pairs.
        failed: Number of rewritings that failed.
        measures: The requested measures, by name.
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
    """Convert rewritings to text pairs, with the gold answers of their questions if the benchmark is given; failed ones are left out."""
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
    """Measure the quality of rewritten texts, one result per style.

    Measures that need a model are computed only if the model is named; texts that occur in several pairs are processed once.

    Args:
        texts: The text pairs.
        strength: A built `style` or `rule_style` judge; None: not measured.
        bertscore: An encoder (SARK: `bert-base-uncased`); None: not measured.
        layer: The encoder's layer (SARK: 12).
        extractor: As in `entity_preservation`.
        perplexity: A causal language model (SARK: `gpt2`); None: not measured.
        sentiment: Computes the polarities of texts; None: not measured.
        failed: Number of failed rewritings, by style.
        device: Device of the models; None chooses automatically.

    Returns:
        One per style, in the order of first appearance.

    Raises:
        UserError: A model cannot be loaded, or the extractor is unknown.
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
    """Convert the report to table rows: style, measure, n, missing, mean, sd."""
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
        """Return values per measure, each of shape (pairs,)."""
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
        """Compute a measure of single texts for rewritings and sources; each text is measured once."""
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
