"""What a metric is: a parameterised, versioned value that scores a batch of predictions, one number a question.

A metric is a pure function of (questions, predictions). It returns one float per question; NaN says that the
question is unscorable for this metric (its gold normalises to nothing, it has no positives, …) and is never used
for a bad answer: a missing or failed answer scores what `missing` declares, 0 unless stated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.schema import SENTENCE_MARK, Question
from judges.graphs import QuestionGraphs
from methods.api import Prediction

Scores = NDArray[np.float64]
"""Shape (questions,), NaN where unscorable."""

Missing = float | Literal["empty", "unscorable"]
"""What a question without an answer scores: a number, what an empty answer would score, or nothing (NaN)."""

NEEDS: Mapping[str, str] = {
    "answer": "the text of the answer",
    "ranking": "the ranked evidence",
    "texts": "the texts of the ranked passages",
    "support": 'claimed passages or sentences, `notes["support"]`',
    "triples": 'claimed reasoning triples, `notes["triples"]`',
    "graph": "ranked triples, and the graph that they come from",
    "usage": "tokens, calls and seconds",
    "model": "a local model, loaded once per process",
    "verdict": "a judge's verdict",
    "claims": "the claims that a judge finds in a text",
}
"""The words with which a metric or a judge says what it reads; registration refuses others."""

T = TypeVar("T")


@dataclass(frozen=True)
class Batch:
    """Questions with their predictions, row by row; what every metric is handed.

    Attributes:
        questions, predictions: One of each a row.
        corpus_text: From the id of a passage (or triple) to its text, None where texts are not at hand.
        memo: What `once` keeps.
        graphs: The questions' graphs, None where it is not known whether they have any.

    Work that several metrics need (which ranks hold positives, normalised texts, a model's reading) is done once per
    batch: see `once`.
    """

    questions: Sequence[Question]
    predictions: Sequence[Prediction]
    corpus_text: Callable[[str], str] | None = None
    memo: dict[Any, Any] = field(default_factory=dict)
    graphs: QuestionGraphs | None = None

    def __len__(self) -> int:
        return len(self.questions)

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """What `make` returns, made by the first metric that asks under this key and kept for the others."""
        if key not in self.memo:
            self.memo[key] = make()
        found: T = self.memo[key]
        return found

    @cached_property
    def answers(self) -> list[str]:
        """Predicted answers."""
        return [prediction.answer for prediction in self.predictions]

    @cached_property
    def golds(self) -> list[tuple[str, ...]]:
        """Accepted strings per question."""
        return [question.golds for question in self.questions]

    @cached_property
    def rankings(self) -> list[list[str]]:
        """Ranked passage (or triple) ids per question: sentence ids reduced to their passage, first mention kept."""
        return [list(dict.fromkeys(item.id.partition(SENTENCE_MARK)[0] for item in prediction.evidence)) for prediction in self.predictions]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a metric.

    Attributes:
        name: As written in the id; `k` is written `@k`.
        kind: `int`, `float`, `str` or `bool`, which is written `true` or `false`.
        default: Used where the id does not say; None makes it required.
        choices: Allowed values, empty for any.
        help: What it means.
        quiet: Whether an id leaves it out where it has its default: for parameters that came later, so that the ids
            in people's stores stay what they are.
        check: From a value to what is wrong with it, None where nothing is.
    """

    name: str
    kind: type
    default: Any
    choices: tuple[Any, ...] = ()
    help: str = ""
    quiet: bool = False
    check: Callable[[Any], str | None] | None = None


@dataclass(frozen=True)
class MetricEntry:
    """A registered metric: its definition for people and its function for batches.

    Attributes:
        id: The bare name.
        version: Part of every printed id; a changed definition is a new version.
        definition: One paragraph: normalisation, aggregation over golds, what is unscorable.
        compute: From a batch and the parameters to scores.
        parameters: In the order in which they print.
        low, high: The declared range; None is unbounded.
        higher_is_better: Direction.
        needs: What it reads, in the words of `NEEDS`.
        source: Paper, official script or library that defines it.
        group: "answer", "retrieval", "support", … for listing.
        missing: What a question without prediction scores.
        exact: Whether the value is exact (fit for invariants) or a model's opinion.
        unit: `fraction` (shown × 100) or `number` (shown as it is: a count, a perplexity).
    """

    id: str
    version: int
    definition: str
    compute: Callable[..., Scores]
    parameters: tuple[Parameter, ...]
    low: float | None
    high: float | None
    higher_is_better: bool
    needs: tuple[str, ...]
    source: str
    group: str
    missing: Missing = 0.0
    exact: bool = True
    unit: Literal["fraction", "number"] = "fraction"


@dataclass(frozen=True)
class Metric:
    """A metric with its parameters: what an id such as `recall@5#v1` denotes."""

    entry: MetricEntry
    values: Mapping[str, Any]

    def __str__(self) -> str:
        """The canonical id: `name[@k][(param=value,…)]#version`, parameters in their declared order."""
        at = f"@{self.values['k']}" if "k" in self.values else ""
        shown = [
            f"{parameter.name}={written(self.values[parameter.name])}"
            for parameter in self.entry.parameters
            if parameter.name != "k" and not (parameter.quiet and self.values[parameter.name] == parameter.default)
        ]
        return f"{self.entry.id}{at}{'(' + ','.join(shown) + ')' if shown else ''}#v{self.entry.version}"

    def __hash__(self) -> int:
        return hash(str(self))

    def compute(self, batch: Batch) -> Scores:
        """Score a batch.

        Returns:
            Shape (len(batch),), NaN where unscorable.
        """
        scores = np.asarray(self.entry.compute(batch, **self.values), dtype=np.float64)
        if scores.shape != (len(batch),):
            raise ValueError(f"{self} returned shape {scores.shape} for {len(batch)} questions")
        return scores


def written(value: Any) -> str:
    """A parameter's value as ids write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
