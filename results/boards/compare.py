"""Compare any number of runs on one metric: all pairs, by type of question and by evidence, paired by question."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.clusters import Sampled
from benchmarks.core.errors import UserError
from results.boards.contamination import read_lines
from results.boards.health import run_lines
from results.boards.sides import sides
from results.boards.unread import bounds_of_rows, range_of_metric, without_incomplete
from results.statistics.core import Clusters, Difference, Estimate
from results.statistics.difference import Range, Side
from results.statistics.intervals import compared_together, estimates
from results.store import answer_queries, score_queries
from results.store.answer_queries import QuestionRow
from results.store.checkpoints import known_checkpoints
from results.store.queries import RunRow
from results.store.store import Store


@dataclass(frozen=True, slots=True)
class Pair:
    """Paired comparison of two of the runs in a `Comparison`.

    Attributes:
        first, second: Positions in `Comparison.runs`.
        difference: First minus second, over the questions that both runs scored.
        p_holm: Its p-value, Holm-corrected over all pairs of the comparison.
    """

    first: int
    second: int
    difference: Difference
    p_holm: float


@dataclass(frozen=True, slots=True)
class Slice:
    """Results on a subset of the questions, for example all questions of one type.

    Attributes:
        name: The subset's name, for example a question type; empty if the dataset names none.
        questions: Number of questions in the subset.
        estimates: Mean score of each run.
        zeros: For each run, the number of questions with a score of zero.
    """

    name: str
    questions: int
    estimates: tuple[Estimate, ...]
    zeros: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Question-by-question comparison of several runs on one metric.

    Attributes:
        runs: In the requested order.
        metric: Id of the metric.
        questions: All questions of the dataset, in its order.
        values: Shape (runs, questions); NaN if a run has no value.
        estimates: Mean score of each run.
        pairs: Every pair of runs with a common question, each once.
        by_type: Slices by the dataset's question type, the most frequent first; empty if it has fewer than two.
        by_evidence: Slices by the number of gold passages (the hops of multi-hop questions), fewest first; empty if it has
            fewer than two.
        sampled: Kind of cluster; questions of one cluster are not independent.
        read: Sentences about test questions in the runs' training data, or that this is unknown, and how the answers came about.
    """

    runs: tuple[RunRow, ...]
    metric: str
    questions: tuple[QuestionRow, ...]
    values: NDArray[np.float64]
    estimates: tuple[Estimate, ...]
    pairs: tuple[Pair, ...]
    by_type: tuple[Slice, ...]
    by_evidence: tuple[Slice, ...]
    sampled: Sampled
    read: tuple[str, ...] = ()

    def apart(self) -> list[int]:
        """Return the positions of questions on which the runs' scores differ, largest difference first."""
        scored = ~np.isnan(self.values)
        highest = np.where(scored, self.values, -np.inf).max(axis=0)
        lowest = np.where(scored, self.values, np.inf).min(axis=0)
        gap = np.where(scored.sum(axis=0) >= 2, highest - lowest, 0.0)
        order = np.argsort(-gap, kind="stable")
        return [int(number) for number in order if gap[number] > 0]


def compare(store: Store, runs: Sequence[RunRow], metric: str) -> Comparison:
    """Compare runs on one metric.

    Args:
        store: The store to read.
        runs: At least two, on the same questions.
        metric: Id of the metric.

    Raises:
        UserError: There are fewer than two runs, or they are on different data.
    """
    if len({run.run for run in runs}) < 2:
        raise UserError("a comparison needs at least two different runs", code="too-few-runs", try_this="choose another run")
    if len({run.dataset_fingerprint for run in runs}) > 1:
        raise UserError(
            "these runs used different data, so their questions cannot be paired",
            code="runs-on-different-data",
            where=", ".join(sorted({run.dataset for run in runs})),
            try_this="compare runs of one board",
        )
    fingerprint = runs[0].dataset_fingerprint
    result = score_queries.score_columns(store, fingerprint, [run.run for run in runs], [metric], {run.experiment for run in runs})
    nothing = np.full(len(result.questions), np.nan)
    values = np.stack([result.values.get((run.run, metric), nothing) for run in runs])
    clusters = result.sampled.labels
    rows = answer_queries.questions(store, fingerprint)
    known = score_queries.definitions(store)
    of = range_of_metric(known.get(metric, {}))
    bounds = bounds_of_rows(store, result, {run.run: [run] for run in runs}, known)
    whole = [
        replace(without_incomplete(item, bounds.get((run.run, metric))), unscorable=result.unscorable.get((run.run, metric), 0))
        for run, item in zip(runs, estimates(values, clusters=clusters, metric=of), strict=True)
    ]
    both = sides(store, result, {run.run: [run] for run in runs}, [metric], known, known_checkpoints(store))
    rows_of = [both.get((run.run, metric), Side.of(nothing)) for run in runs]
    incomplete = [bool(item and item.incomplete) for item in (bounds.get((run.run, metric)) for run in runs)]
    shown = np.where(np.array(incomplete)[:, None], np.nan, values)
    return Comparison(
        tuple(runs),
        metric,
        tuple(rows),
        values,
        tuple(whole),
        _pairs(rows_of, incomplete, clusters, of, judged=known.get(metric, {}).get("judge") is not None),
        _by_type(rows, shown, clusters, of),
        _by_evidence(rows, shown, clusters, of),
        result.sampled,
        (*read_lines(store, runs, [metric]), *run_lines(store, {run.method: run for run in runs})),
    )


def _pairs(rows: Sequence[Side], incomplete: Sequence[bool], clusters: Clusters, metric: Range, *, judged: bool) -> tuple[Pair, ...]:
    """Return the differences of all pairs of runs with displayed values."""
    positions = list(itertools.combinations(range(len(rows)), 2))
    left, right = ([rows[at[side]] for at in positions] for side in (0, 1))
    together = compared_together(left, right, clusters=clusters, metric=metric, judged=judged)
    rated = zip(positions, together.differences, together.p, strict=True)
    return tuple(Pair(*at, item, p) for at, item, p in rated if item.n and not (incomplete[at[0]] or incomplete[at[1]]))


def _passages(count: int) -> str:
    if not count:
        return "no gold passage"
    return f"{count} gold passages" if count > 1 else "1 gold passage"


def _by_type(rows: Sequence[QuestionRow], values: NDArray[np.float64], clusters: Clusters, metric: Range) -> tuple[Slice, ...]:
    counts = Counter(row.type for row in rows)
    order = sorted(counts, key=lambda name: (-counts[name], name))
    return _slices([row.type for row in rows], order, values, clusters, metric)


def _by_evidence(rows: Sequence[QuestionRow], values: NDArray[np.float64], clusters: Clusters, metric: Range) -> tuple[Slice, ...]:
    counts = [len(row.evidence) for row in rows]
    order = [_passages(count) for count in sorted(set(counts))]
    return _slices([_passages(count) for count in counts], order, values, clusters, metric)


def _slices(
    kinds: Sequence[str], names: Sequence[str], values: NDArray[np.float64], clusters: Clusters, metric: Range
) -> tuple[Slice, ...]:
    """Return slices by the kind of question, in the order of `names`; empty if all questions are of one kind."""
    if len(names) < 2:
        return ()
    positions = {name: np.array([number for number, item in enumerate(kinds) if item == name]) for name in names}
    return tuple(
        Slice(
            name,
            len(at),
            tuple(estimates(values[:, at], clusters=None if clusters is None else [clusters[i] for i in at], metric=metric)),
            tuple(int(count) for count in (values[:, at] == 0).sum(axis=1)),
        )
        for name, at in positions.items()
    )
