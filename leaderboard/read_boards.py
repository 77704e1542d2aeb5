"""Read boards and the overview matrix for pages, cached like the queries of `read.py`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from leaderboard import read
from leaderboard.elements.formats import MAIN, higher_is_better
from leaderboard.matrix.benchmark import of_metrics
from leaderboard.matrix.rows import ALL_SETTINGS, OWN, Filters, columns_of, labels, metrics_of, own_metrics, settings_of
from leaderboard.matrix.table import Shown
from leaderboard.read import Source, checkpoints_by_hash, definitions, method_cards, run_groups, store_of
from results.boards import budget
from results.boards import systems as column_figures
from results.boards.board import Board, Facts, board, boards
from results.boards.folded import Folded
from results.boards.health import health
from results.boards.matrix import Cell, Column, Key, Matrix, matrix, ranked_cells, wanted_of
from results.boards.published import closest
from results.boards.systems import COSTS, Figures, System, Wanted, key_of, systems
from results.boards.verdict import BoardVerdict, matrix_verdicts
from results.boards.verdict_text import Headline
from results.errors import UserError
from results.statistics.places import Band
from results.store import cost_queries, invariants
from results.store.cost_queries import Cost
from results.store.queries import RunRow
from results.store.reuse import reuse
from results.store.store import FINISHED

MOST_COSTS = 100_000
"""Maximum number of runs whose costs are cached."""
PAIRS = 1_600_000
"""Maximum number of cached pairs of methods, at 48 bytes each."""


@st.cache_resource(show_spinner=False, max_entries=16)
def _facts(at: Source, experiment: str | None, group: int) -> Facts:
    store, runs = store_of(at), run_groups(at, experiment)[group]
    violations = invariants.violations(store, [run.run for run in runs])
    return Facts((method_cards(at), checkpoints_by_hash(at)), _costs_of(at, [runs]), violations, reuse(store, runs), ())


_health = read.kept(health, 16, shared=True)


@st.cache_resource(show_spinner=False, max_entries=64)
def _board(at: Source, experiment: str | None, group: int, reference: str | None, metrics: tuple[str, ...]) -> Board:
    runs = run_groups(at, experiment)[group]
    return board(store_of(at), runs, reference=reference, metrics=metrics, facts=_facts(at, experiment, group))


def board_of(
    at: Source, experiment: str | None, group: int, reference: str | None, metrics: tuple[str, ...], *, checked: bool = True
) -> Board:
    """Build the board of one group of runs; the cached result must not be changed.

    Args:
        experiment: Name of the experiment; None for all runs.
        group: Position in `run_groups`.
        metrics: Metric ids, at least one; the board is computed once for any order of them.
        checked: Whether to look for unusual facts about the runs, which takes a third of the time.
    """
    unusual = _health(at, run_groups(at, experiment)[group]) if checked else ()
    return replace(_board(at, experiment, group, reference, tuple(sorted(metrics))), metrics=metrics, health=unusual)


@st.cache_data(show_spinner=False, max_entries=32)
def cost_intervals(at: Source, experiment: str | None, group: int, metric: str, axis: budget.Axis) -> dict[str, tuple[float, float]]:
    """Return the interval of the cost per question of each run on a board, by run id."""
    return budget.cost_intervals(store_of(at), board_of(at, experiment, group, None, (metric,), checked=False), axis)


@st.cache_resource(show_spinner=False, max_entries=64)
def _ranked(
    at: Source, experiment: str | None, group: int, reference: str | None, metric: str
) -> tuple[Mapping[str, Band], BoardVerdict | None]:
    """Rank a board's runs by one metric, with repeats of a method averaged; return ranks by run id, and the verdict."""
    facts, higher = _facts(at, experiment, group), higher_is_better(metric, definitions(at))
    part = Folded.of([run_groups(at, experiment)[group]], facts.costs, facts.violations, over_seeds=False)
    column = Column("board", tuple(part.groups[0]), metric, higher)
    known = _figures_of(at, wanted_of([column], part.series))
    rows = systems({column.key: column.runs}, *facts.learned)
    cells = ranked_cells([column], rows, known, cards=facts.learned[0], known=facts.learned[1], violations=part.violations)
    whole = matrix([column], rows, known, cells, costs=part.costs, reference=reference)
    of_runs = {cell.run.run: cell.band for cell in cells.values() if cell.band is not None}
    return of_runs, next(iter(matrix_verdicts(whole, known, definitions(at))), None)


@st.cache_resource(show_spinner=False, max_entries=32)
def benchmark_of(
    at: Source, experiment: str | None, group: int, reference: str | None, metrics: tuple[str, ...], main: tuple[str, ...]
) -> tuple[Board, Shown, Headline | None]:
    """Build the board of one benchmark, the table of its metrics, and the verdict on the first metric and on the main ones."""
    facts = _facts(at, experiment, group)
    ranks = {metric: _ranked(at, experiment, group, reference, metric) for metric in dict.fromkeys((metrics[0], *main))}
    whole = board_of(at, experiment, group, reference, metrics)
    shown = of_metrics(whole, metrics[0], definitions(at), facts.learned, {metric: bands for metric, (bands, _) in ranks.items()})
    first, *others = [verdict for _, verdict in ranks.values()]
    return whole, shown, None if first is None else Headline(first, tuple(filter(None, others)))


@dataclass(frozen=True)
class Setting:
    """Boards of an experiment in one retrieval setting, for the matrix page.

    Attributes:
        own: The metrics among them that the experiment shows.
    """

    groups: list[list[RunRow]]
    metrics: list[str]
    own: list[str]
    names: Mapping[str, tuple[str, str]]
    running: tuple[RunRow, ...]


Scope = tuple[str | None, str, str, str]
"""Experiment (None: all runs), setting, metric family and metric of the matrix page."""


def _ids(at: Source, experiment: str | None) -> list[str]:
    return [run.run for group in run_groups(at, experiment) for run in group]


_scored = read.kept(column_figures.scored_metrics, 8, shared=True)


@st.cache_resource(show_spinner=False, max_entries=8)
def _folded(at: Source, experiment: str | None) -> Folded:
    """Fold an experiment's rows: all repeats of a method are one row, within an experiment also all seeds.

    Across experiments seeds stay separate, because trainings with other options may have the same name there.
    """
    groups = run_groups(at, experiment)
    violations = invariants.violations(store_of(at), _ids(at, experiment))
    return Folded.of(groups, _costs_of(at, groups), violations, experiment is not None)


@st.cache_resource(show_spinner=False, max_entries=2)
def _costs_kept(folder: str) -> dict[tuple[Any, ...], Cost | None]:
    """Cache the costs of finished runs of this store; they stay the same while other runs are written."""
    return {}


def _costs_of(at: Source, groups: Sequence[Sequence[RunRow]]) -> dict[str, Cost]:
    """Return the costs of runs, by run id; those of finished runs are read once."""
    kept = _costs_kept(at.folder)
    keys = {run.run: (run.run, run.status, run.updated_at, run.done, run.origin) for runs in groups for run in runs}
    unread = [run for run, key in keys.items() if key not in kept]
    fresh = cost_queries.costs(store_of(at), unread) if unread else {}
    results = {run: fresh[run] if run in fresh else kept.get(key) for run, key in keys.items()}
    if len(kept) > MOST_COSTS:
        kept.clear()
    kept.update((keys[run.run], results[run.run]) for runs in groups for run in runs if run.status == FINISHED)
    return {run: cost for run, cost in results.items() if cost is not None}


@st.cache_resource(show_spinner=False, max_entries=16)
def setting_of(at: Source, experiment: str | None, setting: str) -> Setting:
    """Return the boards in one retrieval setting, with rows as `_folded` makes them."""
    groups = [runs for runs in _folded(at, experiment).groups if setting in (ALL_SETTINGS, runs[0].setting)]
    scored = _scored(at, _ids(at, experiment))
    metrics = dict.fromkeys(item for runs in groups for item in metrics_of(runs, scored))
    own = dict.fromkeys(item for runs in groups for item in own_metrics(runs, metrics_of(runs, scored)))
    running = tuple(run for runs in groups for run in runs if run.status == "running")
    return Setting(groups, list(metrics), list(own), labels(groups, setting), running)


@st.cache_resource(show_spinner=False, max_entries=16)
def entrants(at: Source, scope: Scope) -> tuple[list[Column], list[System]]:
    """Return the columns and systems of the matrix for the chosen metric."""
    experiment, setting, family, measure = scope
    groups = setting_of(at, experiment, setting).groups
    cards, primary = read.datasets(at), read.primary(at, experiment)
    columns = columns_of(groups, _scored(at, _ids(at, experiment)), definitions(at), cards, family, measure, primary)
    return columns, systems({column.key: column.runs for column in columns}, method_cards(at), checkpoints_by_hash(at))


@st.cache_resource(show_spinner=False, max_entries=2)
def _figures_kept(folder: str) -> dict[bytes, Figures]:
    """Cache figures of this store by their inputs, newest last; most stay the same when a run writes."""
    return {}


def _figures_of(at: Source, wanted: Sequence[Wanted]) -> dict[str, Figures]:
    kept = _figures_kept(at.folder)
    figures = column_figures.figures(store_of(at), wanted, kept)
    pairs = 0
    # Other visitors put in and take out at the same time.
    for digest, column in reversed(list(kept.items())):
        pairs += len(column.runs) ** 2
        if pairs > PAIRS:
            kept.pop(digest, None)
    return figures


@st.cache_resource(show_spinner="Comparing …", max_entries=8)
def _figures(at: Source, scope: Scope) -> dict[str, Figures]:
    return _figures_of(at, wanted_of(entrants(at, scope)[0], _folded(at, scope[0]).series))


@st.cache_resource(show_spinner=False, max_entries=16)
def _field(at: Source, scope: Scope, datasets: tuple[str, ...], filters: Filters) -> tuple[list[Column], list[System], Mapping[Key, Cell]]:
    """Return filtered columns and methods with their ranked cells."""
    every, entered = entrants(at, scope)
    broken = _folded(at, scope[0]).violations
    columns = [column for column in every if column.key in datasets]
    rows = [row for row in entered if filters.admits(row) and any(column.key in row.runs for column in columns)]
    figures = _figures(at, scope)
    cells = ranked_cells(columns, rows, figures, cards=method_cards(at), known=checkpoints_by_hash(at), violations=broken)
    return columns, rows, cells


@st.cache_resource(show_spinner=False, max_entries=32)
def matrix_of(
    at: Source, scope: Scope, datasets: tuple[str, ...], filters: Filters, reference: str | None
) -> tuple[Shown, list[BoardVerdict]]:
    """Build the overview matrix of the selected systems, and the verdicts on it."""
    read.renew_by(at, lambda latest: matrix_of(latest, scope, datasets, filters, reference))
    columns, rows, cells = _field(at, scope, datasets, filters)
    figures = _figures(at, scope)
    board = matrix(columns, rows, figures, cells, costs=_folded(at, scope[0]).costs, reference=reference)
    shown = Shown(board, setting_of(at, *scope[:2]).names, {**definitions(at), **COSTS}, closest(board))
    return shown, matrix_verdicts(board, figures, definitions(at))


def exported(at: Source, experiment: str, whole: Matrix, rows: Collection[System]) -> list[Board]:
    """Build a board of each column of a matrix with some of its rows, for tables as the command line writes them."""
    columns, shown = whole.columns, {run.run for row in rows for run in row.runs.values()}
    metrics = {column.key: column.metric for column in columns if column.metric is not None}
    every = boards(store_of(at), experiment, metrics=list(dict.fromkeys(metrics.values())), over_seeds=True, reference=whole.reference)
    keyed = ((key_of(item.dataset_fingerprint, item.setting, item.seed), item) for item in every)
    return [
        replace(item, metrics=(metrics[key],), rows=tuple(row for row in item.rows if row.run.run in shown))
        for key, item in keyed
        if key in metrics
    ]


def prepare() -> None:
    """Compute what the start page opens with, before the first visitor asks for it; the page itself reports errors."""
    at = read.source()
    if not at.stamp:
        return
    with suppress(UserError):
        experiment = next(iter(read.ordered_experiments(at)), None)
        setting = settings_of(run_groups(at, experiment))[0]
        known = setting_of(at, experiment, setting)
        if not known.metrics:
            return
        scope = experiment, setting, MAIN, OWN
        reference = read.reference_of(at, experiment, [row.name for row in entrants(at, scope)[1] if not row.control])
        matrix_of(at, scope, tuple(known.names), Filters(), reference)
