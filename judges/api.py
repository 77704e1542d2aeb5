"""What a metric is: a parameterised, versioned value that scores a batch of predictions, one number a question.

A metric is a pure function of (questions, predictions). It returns one float per question; NaN says that the
question is unscorable for this metric (its gold normalises to nothing, it has no positives, …) and is never used
for a bad answer: a missing or failed answer scores what `missing` declares, 0 unless stated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.schema import SENTENCE_MARK, Question
from methods.api import Prediction

Scores = NDArray[np.float64]
"""Shape (questions,), NaN where unscorable."""


@dataclass(frozen=True)
class Batch:
    """Questions with their predictions, row by row; what every metric is handed.

    Work that several metrics need (which ranks hold positives, normalised texts) is done once per batch and
    kept in `memo`.
    """

    questions: Sequence[Question]
    predictions: Sequence[Prediction]
    corpus_text: Callable[[str], str] | None = None
    memo: dict[Any, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.questions)

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
        return [
            list(dict.fromkeys(item.id.partition(SENTENCE_MARK)[0] for item in prediction.evidence))
            for prediction in self.predictions
        ]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a metric.

    Attributes:
        name: As written in the id; `k` is written `@k`.
        kind: `int`, `float` or `str`.
        default: Used where the id does not say; None makes it required.
        choices: Allowed values, empty for any.
        help: What it means.
    """

    name: str
    kind: type
    default: Any
    choices: tuple[Any, ...] = ()
    help: str = ""


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
        needs: What of a prediction it reads: "answer", "ranking", "support", "triples", "graph", …
        source: Paper, official script or library that defines it.
        group: "answer", "retrieval", "support", … for listing.
        missing: What a question without prediction scores.
        exact: Whether the value is exact (fit for invariants) or a model's opinion.
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
    missing: float = 0.0
    exact: bool = True


@dataclass(frozen=True)
class Metric:
    """A metric with its parameters: what an id such as `recall@5#v1` denotes."""

    entry: MetricEntry
    values: Mapping[str, Any]

    def __str__(self) -> str:
        """The canonical id: `name[@k][(param=value,…)]#version`, parameters in their declared order."""
        at = f"@{self.values['k']}" if "k" in self.values else ""
        shown = [f"{p.name}={self.values[p.name]}" for p in self.entry.parameters if p.name != "k"]
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
