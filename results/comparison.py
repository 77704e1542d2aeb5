"""Several runs held against each other on the same questions: values, paired differences, values by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.errors import UserError
from results import queries, question_queries
from results.queries import RunRow
from results.question_queries import QuestionRow
from results.statistics import Clusters, Difference, Estimate, all_pairs, estimates, holm
from results.store import Store


@dataclass(frozen=True, slots=True)
class Pair:
    """Two of the runs, by position.

    Attributes:
        first, second: Positions in `Comparison.runs`.
        difference: First minus second over the questions that both have a value on.
        p_holm: Its p-value, Holm-corrected over all pairs of the comparison.
    """

    first: int
    second: int
    difference: Difference
    p_holm: float


@dataclass(frozen=True, slots=True)
class Slice:
    """The questions of one kind.

    Attributes:
        name: The kind, in the dataset's words or ours; empty where the dataset gives none.
        questions: How many there are.
        estimates: One per run.
        zeros: Per run, on how many of them it scored nothing at all.
    """

    name: str
    questions: int
    estimates: tuple[Estimate, ...]
    zeros: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Runs on one metric, question by question.

    Attributes:
        runs: In the order asked for.
        metric: Its id.
        questions: All of the dataset, in its order.
        values: Shape (runs, questions); NaN where a run has no value.
        estimates: One per run.
        pairs: Every pair of runs with a common question, each once.
        by_type: Slices by the dataset's question type, the most frequent first; empty where it has fewer than two.
        by_evidence: Slices by the number of gold passages, which is the number of hops of a chain, the fewest first;
            empty likewise.
        clustered: Whether intervals resample whole documents, because questions share them.
    """

    runs: tuple[RunRow, ...]
    metric: str
    questions: tuple[QuestionRow, ...]
    values: NDArray[np.float64]
    estimates: tuple[Estimate, ...]
    pairs: tuple[Pair, ...]
    by_type: tuple[Slice, ...]
    by_evidence: tuple[Slice, ...]
    clustered: bool

    def apart(self) -> list[int]:
        """Questions on which the runs do not all score the same, the widest gap first, else in the dataset's order."""
        scored = ~np.isnan(self.values)
        highest = np.where(scored, self.values, -np.inf).max(axis=0)
        lowest = np.where(scored, self.values, np.inf).min(axis=0)
        gap = np.where(scored.sum(axis=0) >= 2, highest - lowest, 0.0)
        order = np.argsort(-gap, kind="stable")
        return [int(number) for number in order if gap[number] > 0]


def compare(store: Store, runs: Sequence[RunRow], metric: str) -> Comparison:
    """Hold runs against each other on one metric.

    Args:
        store: Where to read.
        runs: At least two, on the same questions.
        metric: Its id.

    Raises:
        UserError: The runs are fewer than two, or about different data.
    """
    if len({run.run for run in runs}) < 2:
        raise UserError("a comparison needs two different runs at least", try_this="choose another run")
    if len({run.dataset_fingerprint for run in runs}) > 1:
        raise UserError(
            "these runs are about different data, so their questions cannot be paired",
            where=", ".join(sorted({run.dataset for run in runs})),
            try_this="compare runs of one board",
        )
    fingerprint = runs[0].dataset_fingerprint
    found = queries.score_columns(store, fingerprint, [run.run for run in runs], [metric])
    nothing = np.full(len(found.questions), np.nan)
    values = np.stack([found.values.get((run.run, metric), nothing) for run in runs])
    clusters = found.documents if any(found.documents) else None
    rows = question_queries.questions(store, fingerprint)
    whole = [
        replace(one, unscorable=found.unscorable.get((run.run, metric), 0))
        for run, one in zip(runs, estimates(values, clusters=clusters), strict=True)
    ]
    return Comparison(
        tuple(runs),
        metric,
        tuple(rows),
        values,
        tuple(whole),
        _pairs(values, clusters),
        _by_type(rows, values, clusters),
        _by_evidence(rows, values, clusters),
        clusters is not None,
    )


def _pairs(values: NDArray[np.float64], clusters: Clusters) -> tuple[Pair, ...]:
    found = {places: one for places, one in all_pairs(values, clusters=clusters).items() if one.n}
    corrected = holm([one.p for one in found.values()])
    return tuple(Pair(*places, one, p) for (places, one), p in zip(found.items(), corrected, strict=True))


def _passages(count: int) -> str:
    if not count:
        return "no gold passage"
    return f"{count} gold passages" if count > 1 else "1 gold passage"


def _by_type(rows: Sequence[QuestionRow], values: NDArray[np.float64], clusters: Clusters) -> tuple[Slice, ...]:
    counts = Counter(row.type for row in rows)
    order = sorted(counts, key=lambda name: (-counts[name], name))
    return _slices([row.type for row in rows], order, values, clusters)


def _by_evidence(rows: Sequence[QuestionRow], values: NDArray[np.float64], clusters: Clusters) -> tuple[Slice, ...]:
    counts = [len(row.evidence) for row in rows]
    order = [_passages(count) for count in sorted(set(counts))]
    return _slices([_passages(count) for count in counts], order, values, clusters)


def _slices(kinds: Sequence[str], names: Sequence[str], values: NDArray[np.float64], clusters: Clusters) -> tuple[Slice, ...]:
    """Slices by each question's kind, in the order of `names`; none where all questions are of one kind."""
    if len(names) < 2:
        return ()
    places = {name: np.array([number for number, one in enumerate(kinds) if one == name]) for name in names}
    return tuple(
        Slice(
            name,
            len(at),
            tuple(estimates(values[:, at], clusters=None if clusters is None else [clusters[i] for i in at])),
            tuple(int(count) for count in (values[:, at] == 0).sum(axis=1)),
        )
        for name, at in places.items()
    )
