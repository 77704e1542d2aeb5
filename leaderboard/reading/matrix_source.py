"""What the matrix reads, remembered as long as the store's file stays the same; shared, so not to be changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from leaderboard.matrix import filters
from leaderboard.matrix.columns import ALL_SETTINGS, columns_of, labels, metrics_of, settings_of, wanted_of
from leaderboard.matrix.filters import Choices, Filters
from leaderboard.matrix.still import closest_printed
from leaderboard.reading import source
from leaderboard.reading.source import Source, store_of
from results import column_figures, invariants, queries
from results.beside import Comparison
from results.column_figures import Figures
from results.contestants import Contestant, contestants
from results.matrix import Cell, Column, Correction, Key, Matrix, matrix, ranked_cells
from results.queries import RunRow
from results.series import folded_costs, folded_runs, series_of

PAIRS = 1_600_000
"""Of methods whose differences are kept, at 48 bytes each."""


@dataclass(frozen=True)
class Setting:
    """The boards of an experiment in a setting.

    Attributes:
        options: All settings that can be chosen.
        groups: Runs by board.
        metrics: That any of the runs has values of.
        series: By run, the runs of all training seeds of a method, for which it stands.
        names: Name and small print of the boards' columns by key.
        running: Whether a run is in progress.
    """

    options: list[str]
    groups: list[list[RunRow]]
    metrics: list[str]
    series: Mapping[str, tuple[str, ...]]
    names: Mapping[str, tuple[str, str]]
    running: tuple[RunRow, ...]


@dataclass(frozen=True)
class Entrants:
    """Columns with their metrics, all contestants, and what these can be filtered by."""

    columns: list[Column]
    rows: list[Contestant]
    choices: Choices


def _ids(at: Source, experiment: str | None) -> list[str]:
    return [run.run for group in source.run_groups(at, experiment) for run in group]


@st.cache_resource(show_spinner=False, max_entries=8)
def _scored(at: Source, experiment: str | None) -> dict[str, list[str]]:
    return column_figures.scored_metrics(store_of(at), _ids(at, experiment))


@st.cache_resource(show_spinner=False, max_entries=8)
def _costs(at: Source, experiment: str | None) -> dict[str, queries.Cost]:
    found = queries.costs(store_of(at), _ids(at, experiment))
    if experiment is not None:
        for runs in source.run_groups(at, experiment):
            found |= folded_costs(found, runs)
    return found


@st.cache_resource(show_spinner=False, max_entries=8)
def _violations(at: Source, experiment: str | None) -> Mapping[str, Sequence[str]]:
    return invariants.violations(store_of(at), _ids(at, experiment))


@st.cache_resource(show_spinner=False, max_entries=8)
def settings(at: Source, experiment: str | None) -> list[str]:
    """Settings that can be chosen."""
    return settings_of(source.run_groups(at, experiment)) or [ALL_SETTINGS]


@st.cache_resource(show_spinner=False, max_entries=16)
def setting_of(at: Source, experiment: str | None, setting: str) -> Setting:
    """The boards in one of the settings; within an experiment all seeds of a method are one row of it.

    Over experiments they are not: trainings of other options may bear the same name there.
    """
    groups = [runs for runs in source.run_groups(at, experiment) if setting in (ALL_SETTINGS, runs[0].setting)]
    series: dict[str, tuple[str, ...]] = {}
    if experiment is not None:
        for runs in groups:
            every = series_of(runs).items()
            series |= {first: tuple(run.run for run in members) for first, members in every if len(members) > 1}
        groups = [folded_runs(runs) for runs in groups]
    scored = _scored(at, experiment)
    metrics = dict.fromkeys(one for runs in groups for one in metrics_of(runs, scored))
    running = tuple(run for runs in groups for run in runs if run.status == "running")
    return Setting(settings(at, experiment), groups, list(metrics), series, labels(groups, setting), running)


@st.cache_resource(show_spinner=False, max_entries=16)
def entrants(at: Source, experiment: str | None, setting: str, family: str, measure: str) -> Entrants:
    """Who competes on what, in which metric."""
    groups = setting_of(at, experiment, setting).groups
    columns = columns_of(groups, _scored(at, experiment), source.definitions(at), source.datasets(at), family, measure)
    rows = contestants({column.key: column.runs for column in columns}, source.method_cards(at), source.checkpoints_by_hash(at))
    return Entrants(columns, rows, filters.choices(rows))


@st.cache_resource(show_spinner=False, max_entries=2)
def _columns_kept(at: Source) -> dict[Any, Figures]:
    """Figures by a column's content, the newest last: other settings and experiments show many of the same columns."""
    return {}


@st.cache_resource(show_spinner="Comparing …", max_entries=8)
def _figures(at: Source, experiment: str | None, setting: str, family: str, measure: str) -> dict[str, Figures]:
    columns = entrants(at, experiment, setting, family, measure).columns
    wanted = wanted_of(columns, setting_of(at, experiment, setting).series)
    kept, contents = _columns_kept(at), {column.key: column.content for column in wanted}
    # Other visitors put in and take out at the same time.
    figures = {key: found for key, content in contents.items() if (found := kept.get(content)) is not None}
    figures |= column_figures.figures(store_of(at), [column for column in wanted if column.key not in figures])
    for key, content in contents.items():
        kept.pop(content, None)
        kept[content] = figures[key]
    pairs = 0
    for content, column in reversed(list(kept.items())):
        pairs += len(column.runs) ** 2
        if pairs > PAIRS:
            kept.pop(content, None)
    return figures


@dataclass(frozen=True)
class _Field:
    """Who is left on what is shown, each ranked."""

    columns: list[Column]
    rows: list[Contestant]
    cells: Mapping[Key, Cell]


@st.cache_resource(show_spinner=False, max_entries=16)
def _field(
    at: Source, experiment: str | None, setting: str, family: str, measure: str, datasets: tuple[str, ...], asked: str, _filters: Filters
) -> _Field:
    found = entrants(at, experiment, setting, family, measure)
    columns = [column for column in found.columns if column.key in datasets]
    rows = [row for row in found.rows if _filters.admits(row) and any(column.key in row.runs for column in columns)]
    figures = _figures(at, experiment, setting, family, measure)
    broken = dict(_violations(at, experiment))
    for first, members in setting_of(at, experiment, setting).series.items():
        if what := list(dict.fromkeys(one for run in members for one in broken.get(run, ()))):
            broken[first] = what
    cells = ranked_cells(columns, rows, figures, cards=source.method_cards(at), known=source.checkpoints_by_hash(at), violations=broken)
    return _Field(columns, rows, cells)


@st.cache_resource(show_spinner=False, max_entries=32)
def matrix_of(
    at: Source,
    experiment: str | None,
    setting: str,
    family: str,
    measure: str,
    datasets: tuple[str, ...],
    asked: str,
    _filters: Filters,
    reference: str | None,
    correction: Correction,
) -> Matrix:
    """The matrix of those who compete.

    Args:
        at: The store.
        experiment, setting, family, measure: As chosen.
        datasets: Keys of the columns.
        asked: What the filters ask for, as a text of its own.
        _filters: The same, which is not part of what is remembered.
        reference: Name of the method to compare with.
        correction: Of p-values.
    """
    left = _field(at, experiment, setting, family, measure, datasets, asked, _filters)
    return matrix(
        left.columns,
        left.rows,
        _figures(at, experiment, setting, family, measure),
        left.cells,
        costs=_costs(at, experiment),
        reference=reference,
        correction=correction,
    )


@st.cache_resource(show_spinner=False, max_entries=8)
def published(at: Source, experiment: str | None, setting: str, family: str, measure: str) -> dict[tuple[str, str], Comparison]:
    """The printed figure whose setting is the closest, by the column's key and the run."""
    columns = entrants(at, experiment, setting, family, measure).columns
    return closest_printed(columns, _figures(at, experiment, setting, family, measure))
