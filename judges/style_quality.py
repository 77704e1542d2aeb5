"""How good rewritten texts are: do they have the style, do they keep the content, do they read well.

Values are per pair of texts; `StyleQuality` gives their number, mean and spread, and the arrays themselves to whoever
wants intervals.

| measure | of a pair |
| --- | --- |
| `informal`, `informal_source` | verdict of a style classifier: 1 Informal, 0 Formal (strength) |
| `bertscore` | BERTScore F1 of source and rewriting (content) |
| `entities` | share of the source's names and numbers that the rewriting has too (content) |
| `numbers` | share of the source's numbers that the rewriting has too; none where it has no number (content) |
| `answer_kept` | whether a gold answer string stands in the rewriting, where one stands in the source (content) |
| `unchanged` | whether the rewriting is the source, white space aside |
| `words` | words of the rewriting / words of the source |
| `perplexity`, `perplexity_source` | exp of the mean negative log-likelihood per token (fluency) |
| `sentiment`, `sentiment_source`, `sentiment_shift` | polarity, and the difference to the source's |
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.registry import Benchmark
from benchmarks.styles.pairs import Rewriting
from benchmarks.text_batch import has_answer_all
from judges.api import Scores
from judges.llm.style import INFORMAL
from judges.metrics.bertscore import bertscore_of_pairs
from judges.metrics.entities import RULE, entity_preservation_of_pairs
from judges.metrics.perplexity import perplexity_of_texts
from judges.sentiment import polarities
from judges.style_validation import TextJudge, share_of

_NUMBER = re.compile(r"\d+(?:[.,:/]\d+)*")

Sentiment = Callable[[Sequence[str]], Scores]
"""From texts to a polarity each."""


@dataclass(frozen=True, slots=True)
class StyleText:
    """A text and its rewriting.

    Attributes:
        style: The other style.
        source, told: The two texts, without titles.
        golds: Gold answers of the question that the pair belongs to; () where it belongs to none.
    """

    style: str
    source: str
    told: str
    golds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measured:
    """Values of one measure over the pairs of one style.

    Attributes:
        values: Shape (pairs,); NaN where a pair has none.
    """

    values: Scores

    @property
    def n(self) -> int:
        """How many pairs have a value."""
        return int(np.isfinite(self.values).sum())

    @property
    def mean(self) -> float | None:
        """Over those; None where there are none."""
        return float(np.nanmean(self.values)) if self.n else None

    @property
    def sd(self) -> float | None:
        """Standard deviation (n − 1); None where fewer than two pairs have a value."""
        return float(np.nanstd(self.values, ddof=1)) if self.n > 1 else None

    def to_json(self) -> dict[str, Any]:
        """Number, mean and spread; `missing`: pairs without a value."""
        return {"n": self.n, "missing": len(self.values) - self.n, "mean": self.mean, "sd": self.sd}


@dataclass(frozen=True)
class StyleQuality:
    """How good the texts of one style are.

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
        """As a JSON object."""
        measures = {name: measured.to_json() for name, measured in self.measures.items()}
        return {"style": self.style, "pairs": self.pairs, "failed": self.failed, "measures": measures}


def texts_of(rewritings: Iterable[Rewriting], benchmark: Benchmark | None = None) -> list[StyleText]:
    """Pairs as texts, with the gold answers of their questions where the benchmark is given; failed ones left out."""
    golds = {question.id: question.golds for question in benchmark.questions} if benchmark else {}
    return [StyleText(one.style, one.formal.text, one.told.text, golds.get(one.question, ())) for one in rewritings if one.told is not None]


def style_quality(
    texts: Sequence[StyleText],
    *,
    strength: TextJudge | None = None,
    bertscore: str | None = None,
    layer: int = 12,
    extractor: str = RULE,
    perplexity: str | None = None,
    sentiment: Sentiment | None = polarities,
    failed: Mapping[str, int] | None = None,
    device: str | None = None,
) -> list[StyleQuality]:
    """Measure rewritten texts, style by style.

    What needs a model is measured where one is named: texts that stand in several pairs are shown to it once.

    Args:
        texts: The pairs.
        strength: A judge of style: `style` or `rule_style`, built.
        bertscore: An encoder (SARK: `bert-base-uncased`); None: not measured.
        layer: The encoder's layer (SARK: 12).
        extractor: As in `entity_preservation`.
        perplexity: A causal language model (SARK: `gpt2`); None: not measured.
        sentiment: From texts to polarities; None: not measured.
        failed: Rewritings that were given up, by style.
        device: Where models compute; None chooses.

    Returns:
        One per style, in the order of first appearance.

    Raises:
        UserError: A model cannot be loaded, or there is no such extractor.
    """
    work = _Work(texts, strength, bertscore, layer, extractor, perplexity, sentiment, device)
    measured = work.measured()
    styles = np.array([text.style for text in texts], dtype=object)
    given_up = dict(failed or {})
    found = []
    for style in dict.fromkeys([*(text.style for text in texts), *given_up]):
        rows = styles == style
        values = {name: Measured(column[rows]) for name, column in measured.items()} if rows.any() else {}
        found.append(StyleQuality(style, int(rows.sum()), given_up.get(style, 0), values))
    return found


def rows(report: Iterable[StyleQuality]) -> list[dict[str, Any]]:
    """The report as rows of a table: style, measure, n, missing, mean, sd."""
    return [{"style": one.style, "measure": name, **measured.to_json()} for one in report for name, measured in one.measures.items()]


@dataclass(frozen=True)
class _Work:
    """What is to be measured, of what."""

    texts: Sequence[StyleText]
    strength: TextJudge | None
    bertscore: str | None
    layer: int
    extractor: str
    perplexity: str | None
    sentiment: Sentiment | None
    device: str | None

    def measured(self) -> dict[str, Scores]:
        """Values by measure, each of shape (pairs,)."""
        sources, told = [text.source for text in self.texts], [text.told for text in self.texts]
        found: dict[str, Scores] = {}
        judge = self.strength
        if judge is not None:
            found |= self._both("informal", sources, told, lambda some: share_of(INFORMAL, judge.ask_texts(some)))
        if self.bertscore is not None:
            found["bertscore"] = _once_per_pair(told, sources, self._bertscore)
        found["entities"] = _once_per_pair(sources, told, lambda one, other: entity_preservation_of_pairs(one, other, self.extractor))
        found["numbers"] = _numbers_kept(sources, told)
        found["answer_kept"] = _answers_kept(self.texts)
        found["unchanged"] = _floats(one.split() == other.split() for one, other in zip(sources, told, strict=True))
        found["words"] = _floats(map(_length_ratio, sources, told))
        model = self.perplexity
        if model is not None:
            found |= self._both("perplexity", sources, told, lambda some: perplexity_of_texts(some, model, device=self.device))
        if self.sentiment is not None:
            found |= self._both("sentiment", sources, told, self.sentiment)
            found["sentiment_shift"] = found["sentiment"] - found["sentiment_source"]
        return found

    def _bertscore(self, told: Sequence[str], sources: Sequence[str]) -> Scores:
        assert self.bertscore is not None
        return bertscore_of_pairs(told, sources, self.bertscore, layer=self.layer, device=self.device)

    @staticmethod
    def _both(name: str, sources: Sequence[str], told: Sequence[str], measure: Callable[[Sequence[str]], Scores]) -> dict[str, Scores]:
        """A measure of single texts, of the rewritings and of their sources; each text is measured once."""
        distinct = list(dict.fromkeys([*told, *sources]))
        measured = np.asarray(measure(distinct) if distinct else (), np.float64)
        values = dict(zip(distinct, measured.tolist(), strict=True))
        return {name: _floats(map(values.get, told)), f"{name}_source": _floats(map(values.get, sources))}


def _once_per_pair(one: Sequence[str], other: Sequence[str], measure: Callable[[Sequence[str], Sequence[str]], Scores]) -> Scores:
    pairs = list(zip(one, other, strict=True))
    distinct = list(dict.fromkeys(pairs))
    if not distinct:
        return _floats(())
    values = dict(zip(distinct, measure(*map(list, zip(*distinct, strict=True))).tolist(), strict=True))
    return _floats(values[pair] for pair in pairs)


def _numbers_kept(sources: Sequence[str], told: Sequence[str]) -> Scores:
    def kept(source: str, text: str) -> float:
        wanted = set(_NUMBER.findall(source))
        return len(wanted.intersection(_NUMBER.findall(text))) / len(wanted) if wanted else math.nan

    return _floats(map(kept, sources, told))


def _answers_kept(texts: Sequence[StyleText]) -> Scores:
    golds = [text.golds for text in texts]
    had = has_answer_all([text.source for text in texts], golds)
    has = has_answer_all([text.told for text in texts], golds)
    return np.where(had, has.astype(np.float64), np.nan)


def _length_ratio(source: str, told: str) -> float:
    words = len(source.split())
    return len(told.split()) / words if words else math.nan


def _floats(values: Iterable[Any]) -> Scores:
    return np.fromiter(values, dtype=np.float64)
