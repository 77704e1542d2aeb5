"""Compute what an approach gains over its base and over the strongest baseline of its board, and whether that is significant.

The base is the reference of the experiment, or a row that is named. The strongest baseline is the row with the highest
value of those that are not controls and were not trained by any of the approaches. Differences are paired and tested as on
any board: over what was sampled, corrected over the methods of the column (Holm). "Beats" is said of a significant gain
over at least 30 clusters that holds for new trainings, which takes three seeds.

The demo claims less than a test would allow: a difference must also have its direction in each third of the test
clusters, which are parts of one sample.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from methods.models.weights import POCKET, SHIPPED
from results.boards.board import Board, Cell, boards
from results.boards.names import base_name, is_called
from results.boards.tables import labels, mark, minus, plus_minus
from results.statistics.difference import CLAIM_CLUSTERS, NEW_TRAININGS
from results.statistics.tested import FEWEST_CLUSTERS
from results.store import score_queries
from results.store.variants import without_options

if TYPE_CHECKING:
    from ragmeter.experiment import Experiment, MethodPlan
    from results.store.store import Store

APPROACHES = ("ARK", "GPR", "SARK", "CLaRa")
SETS = 3
"""Sets of clusters in each of which a difference must have its direction, if it is checked by sets."""
AHEAD, BEHIND, LEVEL, UNTESTED = "significantly ahead of", "significantly behind", "not distinguishable from", "not tested against"


@dataclass(frozen=True)
class Against:
    """Difference between an approach and another method.

    Attributes:
        name: Name of the other method.
        cell: The approach's cell, with the difference from the other method.
        sets: Differences in three disjoint sets of clusters; empty if not requested.
    """

    name: str
    cell: Cell
    sets: tuple[float, ...] = ()

    @property
    def shown(self) -> str:
        """Format the difference: `+6.5 ± 3.9`, or without an interval if there is insufficient data."""
        result = self.cell.difference
        if result is None or math.isnan(result.value):
            return "–"
        return plus_minus(result.value, result.low, result.high, "{:+.1f}", self.cell.scale)

    @property
    def verdict(self) -> str:
        """Return the result of the test in words."""
        result = self.cell.difference
        if result is None or result.insufficient_data or math.isnan(result.value):
            return UNTESTED
        if not mark(self.cell) and result.clusters < FEWEST_CLUSTERS:
            return UNTESTED
        if not mark(self.cell):
            return LEVEL
        direction = AHEAD if result.value > 0 else BEHIND
        return direction if self.in_each_set else f"not shown to be {direction}"

    @property
    def in_each_set(self) -> bool:
        """Return whether the difference has the same sign in each set of clusters."""
        result = self.cell.difference
        return result is not None and all(value * result.value > 0 for value in self.sets)

    @property
    def by_set(self) -> str:
        """Format the differences in the sets: `+5.1, −0.2, +6.9`; empty if not requested."""
        return minus(", ".join(f"{round(value * self.cell.scale, 9):+.1f}" for value in self.sets))

    def to_json(self) -> dict[str, Any]:
        """Return the difference as a JSON object of fractions; None without a difference."""
        result = self.cell.difference
        keys = ("value", "low", "high", "n", "clusters", "insufficient_data", "generalizes", "detectable")
        numbers = {} if result is None else {key: getattr(result, key) for key in keys}
        sets = {"sets": list(self.sets)} if self.sets else {}
        return {"method": self.name, "verdict": self.verdict, "p_holm": self.cell.p_holm, **numbers, **sets}


@dataclass(frozen=True)
class Gain:
    """Gain of one approach over its base on one metric of one board.

    Attributes:
        approach: Name of the approach.
        board: The board.
        metric: Name of the metric in tables.
        base, strongest: Differences from its base and from the strongest baseline; None if there is no such row.
        cell: The approach's cell.
        rival: Description of and difference from a further row; None if there is none.
    """

    approach: str
    board: Board
    metric: str
    base: Against | None
    strongest: Against | None
    cell: Cell
    rival: tuple[str, Against] | None = None

    @property
    def value(self) -> str:
        """Format the approach's value × 100 ± half its interval."""
        return plus_minus(self.cell.estimate.value, self.cell.estimate.low, self.cell.estimate.high, scale=self.cell.scale)

    @property
    def asked(self) -> str:
        """Return the dataset's name with the number of questions."""
        return f"{without_options(self.board.dataset)}, {self.board.sampled.in_words(self.board.questions)}"

    @property
    def significant(self) -> bool:
        """Return whether the approach is significantly better than its base."""
        return self.base is not None and self.base.verdict == AHEAD

    @property
    def beats(self) -> bool:
        """Return whether the approach beats its base: significantly better, over enough clusters and trainings."""
        return self.significant and not self._short_of

    @property
    def _short_of(self) -> str:
        """Return the unmet conditions for "beats"."""
        result = self.base.cell.difference if self.base else None
        if result is None:
            return "its base was not measured"
        if result.clusters < CLAIM_CLUSTERS:
            return f"{result.clusters} clusters, fewer than {CLAIM_CLUSTERS}"
        # An approach is always trained, even if its models ship and no run names the training.
        return "" if NEW_TRAININGS in result.generalizes else "this checkpoint only, fewer than three trainings"

    @property
    def lost(self) -> bool:
        """Return whether the approach is significantly worse than its base, so that gains elsewhere are not general."""
        return self.base is not None and self.base.verdict == BEHIND

    def why_not(self) -> str:
        """Explain why the approach does not beat its base; empty if it does."""
        result = self.base.cell.difference if self.base else None
        if self.significant or result is None:
            return self._short_of
        if self.base is not None and mark(self.base.cell) and not self.base.in_each_set:
            return f"not in each third of the test {self.board.sampled.kind}s: {self.base.by_set}"
        if result.insufficient_data or result.clusters < FEWEST_CLUSTERS:
            return result.insufficient_data or self._short_of
        least = self.cell.scale * result.detectable
        reach = "no difference can be detected" if math.isinf(least) else f"minimum detectable difference {least:.1f} (80 % power)"
        return f"the interval includes 0; {reach}"

    def sentence(self) -> str:
        """Summarize the gain in one sentence."""
        parts = [("its base", self.base)] if self.base else []
        parts += [("the strongest baseline", self.strongest)] if self.strongest and not self._same else []
        known = {item.name for _, item in parts}
        parts += [self.rival] if self.rival and self.rival[1].name not in known else []
        phrases = [
            f"{item.verdict} {who}{' and strongest baseline' * (self._same and item is self.base)}, {_in_words(item)}"
            for who, item in parts
        ]
        return f"{self.metric} {self.value} on {self.asked}: {'; '.join(phrases) or 'nothing to compare with'}"

    @property
    def _same(self) -> bool:
        return self.base is not None and self.strongest is not None and self.base.name == self.strongest.name

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; values are fractions."""
        value = self.cell.estimate
        return {
            "approach": self.approach,
            "dataset": self.board.dataset,
            "setting": self.board.setting,
            "metric": self.metric,
            "value": {"value": value.value, "low": value.low, "high": value.high, "n": value.n},
            "base": self.base.to_json() if self.base else None,
            "strongest": self.strongest.to_json() if self.strongest else None,
            **({"rival": self.rival[1].to_json()} if self.rival else {}),
        }


def _in_words(item: Against) -> str:
    return f"{item.name} ({item.shown}" + (f"; by third of the sample {item.by_set})" if item.sets else ")")


def gains(
    experiment: Experiment,
    store: Store,
    heads: Sequence[str],
    base: str | None = None,
    names: Sequence[str] = APPROACHES,
    *,
    rival: tuple[str, str] | None = None,
    by_set: bool = False,
) -> Iterator[Gain]:
    """Yield the gains of an experiment's approaches by board and metric; all seeds of a training are one gain.

    Args:
        experiment: The experiment that was run.
        store: The store that holds its scores.
        heads: Names of metrics in tables; metrics that a board lacks are skipped.
        base: Name of the row that approaches are compared with; None: the experiment's reference.
        names: Names of the approaches' rows.
        rival: (Description, name) of a further row to compare with; None: none.
        by_set: Whether to compute differences in three sets of clusters, too. The experiment must have one training seed.
    """
    trained = {base_name(method.name) for method in experiment.methods if _trained(method)}

    @cache
    def against(name: str | None) -> list[Board]:
        return boards(store, experiment.name, reference=name, over_seeds=True)

    for number, board in enumerate(against(base)):
        for metric, head in labels(board.metrics).items():
            if head not in heads:
                continue
            shown = [row for row in board.rows if not row.control and metric in row.cells]
            able = [row for row in shown if not math.isnan(row.cells[metric].estimate.value)]
            untrained = [row for row in able if not any(is_called(row.run.method, name) for name in trained)]
            baselines = [row for row in untrained if row.run.may_win]
            best = max(baselines, key=lambda row: row.cells[metric].estimate.value, default=None)
            strongest = against(best.run.method)[number] if best else None
            further = against(rival[1])[number] if rival and any(row.run.method == rival[1] for row in able) else None
            of = store if by_set else None
            for row in able:
                approach = next((name for name in names if is_called(row.run.method, name)), None)
                if approach is not None:
                    run = row.run.run
                    to_rival = _against(further, run, metric, of)
                    against_rival = (rival[0], to_rival) if rival and to_rival else None
                    to_base, to_best = (_against(other, run, metric, of) for other in (board, strongest))
                    yield Gain(approach, board, head, to_base, to_best, row.cells[metric], against_rival)


def _against(board: Board | None, run: str, metric: str, store: Store | None) -> Against | None:
    if board is None or board.reference is None:
        return None
    cell = next(row.cells[metric] for row in board.rows if row.run.run == run)
    return Against(board.reference, cell, in_sets(store, board, run, metric) if store is not None else ())


def in_sets(store: Store, board: Board, run: str, metric: str) -> tuple[float, ...]:
    """Return a run's difference from the board's reference in each of three sets of clusters (every third cluster).

    Args:
        store: The store that holds the scores.
        board: A board with one row per run.
        run: Id of the run.
        metric: Id of the metric.

    Returns:
        Three differences, NaN for a set without scored questions; empty for the reference itself and with fewer than three
        clusters.
    """
    other = next((row.run.run for row in board.rows if row.run.method == board.reference), run)
    if other == run:
        return ()
    columns = score_queries.score_columns(
        store, board.dataset_fingerprint, [run, other], [metric], {row.run.experiment for row in board.rows}
    )
    difference = columns.values[run, metric] - columns.values[other, metric]
    labels = columns.sampled.labels or columns.questions
    number = {label: position for position, label in enumerate(dict.fromkeys(labels))}
    if len(number) < SETS:
        return ()
    own = np.array([number[label] % SETS for label in labels])
    parts = (difference[(own == part) & ~np.isnan(difference)] for part in range(SETS))
    return tuple(float(part.mean()) if len(part) else math.nan for part in parts)


def _trained(method: MethodPlan) -> bool:
    """Return whether one of the approaches trained a part of the method, in this experiment or for this package."""
    ours = SHIPPED.keys() - {POCKET}
    return bool(method.needs) or any(getattr(part.config, "model", None) in ours for part in method.components)


def headline(several: Iterable[Gain]) -> list[Gain]:
    """Return the first gain of each approach."""
    first: dict[str, Gain] = {}
    for gain in several:
        first.setdefault(gain.approach, gain)
    return list(first.values())
