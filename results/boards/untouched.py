"""Values without the questions that the training of a part read, next to those with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from results.statistics.core import Floats
from results.statistics.difference import Side
from results.store.queries import RunRow
from results.store.read_questions import Touched
from results.store.training_data import Checkpoints, touched_by


@dataclass(frozen=True, slots=True)
class Value:
    """Mean of a metric over all questions, and over the n questions that do not occur in the training data; all as fractions."""

    whole: float
    untouched: float
    n: int

    def in_words(self, scale: float) -> str:
        """Format both means, for example `71.0, without them 55.3 (38 questions)`."""
        if not self.n:
            return f"{round(scale * self.whole, 9):.1f}, and no question is left without them"
        left = f"{self.n:,} question{'' if self.n == 1 else 's'}"
        return f"{round(scale * self.whole, 9):.1f}, without them {round(scale * self.untouched, 9):.1f} ({left})"


@dataclass(frozen=True, slots=True)
class ReadBefore:
    """Overlap between a benchmark and the training data of a method: which questions, and the scores without them.

    Attributes:
        touched: The questions, and the checkpoints that were trained on them.
        of: Number of questions in the benchmark.
        values: Both means by metric id.
    """

    touched: Touched
    of: int
    values: Mapping[str, Value]

    def in_words(self, heads: Mapping[str, str], scales: Mapping[str, float]) -> str:
        """Describe the overlap in one line, with the scores of the metrics that `heads` names."""
        values = "; ".join(f"{heads[metric]} {value.in_words(scales[metric])}" for metric, value in self.values.items() if metric in heads)
        return self.touched.in_words(self.of) + (f": {values}" if values else "")

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with scores as fractions; None if all questions occur in the training data."""
        values = {metric: {"value": value.untouched if value.n else None, "n": value.n} for metric, value in self.values.items()}
        return {
            "questions": len(self.touched.questions),
            "of": self.of,
            "by": list(self.touched.by),
            "sampled": list(self.touched.sampled),
            "without": values,
        }


def touched_by_all(runs: Sequence[RunRow], known: Checkpoints) -> Touched:
    """Return all evaluated questions that occur in the training data of any of these runs."""
    return reduce(or_, (touched_by(run, known) for run in runs), Touched())


def read_before(runs: Sequence[RunRow], known: Checkpoints, questions: Sequence[str], values: Mapping[str, Floats]) -> ReadBefore | None:
    """Compute the overlap between a benchmark and a method's training data; None if no overlap is known.

    Args:
        runs: The runs of the method's row.
        known: Registered checkpoints.
        questions: Ids of the benchmark's questions.
        values: Scores by metric id, shape (questions,).
    """
    touched = touched_by_all(runs, known)
    if not touched.questions:
        return None
    hit = hits(touched, questions)
    means = {metric: Value(_mean(row), _mean(row[~hit]), int((~np.isnan(row[~hit])).sum())) for metric, row in values.items()}
    return ReadBefore(touched, len(questions), means)


def hits(touched: Touched, questions: Sequence[str]) -> NDArray[np.bool_]:
    """Return a mask of the questions that occur in training data, shape (questions,)."""
    return np.array([question in touched.questions for question in questions], np.bool_)


def without(side: Side, hit: NDArray[np.bool_]) -> Side:
    """Return a method's scores (side of a paired test) with the masked questions set to NaN."""
    labels = None if side.labels is None else np.where(hit, np.nan, side.labels)
    return replace(side, scores=np.where(hit, np.nan, side.scores), open=None if side.open is None else side.open & ~hit, labels=labels)


def _mean(row: Floats) -> float:
    known = row[~np.isnan(row)]
    return float(known.mean()) if len(known) else float("nan")
