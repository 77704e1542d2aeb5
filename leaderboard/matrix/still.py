"""The matrix of a whole experiment as it first stands on the board, for files that no server stands behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leaderboard.elements.columns import MAIN
from leaderboard.matrix import exports
from leaderboard.matrix.cells import Shown
from leaderboard.matrix.columns import ALL_SETTINGS, OWN, columns_of, labels, wanted_of
from leaderboard.matrix.exports import CSV_COLUMNS, Export
from leaderboard.matrix.papers import papers_of
from leaderboard.matrix.rows import default_order, drawn
from results import column_figures, invariants, method_record, queries, training_data
from results.beside import Comparison, beside
from results.board import groups
from results.column_figures import COSTS, Figures
from results.contestants import contestants
from results.matrix import Column, matrix, ranked_cells
from results.series import folded_costs, folded_runs, is_called, series_of
from results.statistics import Estimate
from results.store import Store


def still_matrix(store: Store, experiment: str, title: str) -> Export | None:
    """All methods against all benchmarks of an experiment, each dataset by its own metric, seeds as one row.

    Args:
        store: Where to read.
        experiment: Its name.
        title: Of the picture.

    Returns:
        What can be drawn or written; None where nothing is scored.
    """
    definitions, datasets = queries.definitions(store), queries.datasets(store)
    every = groups(queries.runs(store, experiment))
    ids = [run.run for runs in every for run in runs]
    scored = column_figures.scored_metrics(store, ids)
    series = {first: tuple(run.run for run in members) for runs in every for first, members in series_of(runs).items() if len(members) > 1}
    costs, broken = queries.costs(store, ids), dict(invariants.violations(store, ids))
    for runs in every:
        costs |= folded_costs(costs, runs)
    for first, members in series.items():
        if what := list(dict.fromkeys(one for run in members for one in broken.get(run, ()))):
            broken[first] = what
    folded = [folded_runs(runs) for runs in every]
    columns = columns_of(folded, scored, definitions, datasets, MAIN, OWN)
    columns = [column for column in columns if column.metric is not None]
    if not columns:
        return None
    cards, known = method_record.cards(store), training_data.known_checkpoints(store)
    rows = contestants({column.key: column.runs for column in columns}, cards, known)
    wanted = wanted_of(columns, series)
    figures = column_figures.figures(store, list(wanted))
    asked = {row.name: row.reference for row in queries.experiments(store)}.get(experiment)
    able = [row.name for row in rows if not row.control]
    board = matrix(
        columns,
        rows,
        figures,
        ranked_cells(columns, rows, figures, cards=cards, known=known, violations=broken),
        costs=costs,
        reference=next((name for name in able if asked and is_called(name, asked)), None),
        correction="column",
    )
    names = labels(folded, ALL_SETTINGS if len({runs[0].setting for runs in folded}) > 1 else "")
    shown = Shown(board, names, {**definitions, **COSTS}, closest_printed(columns, figures))
    whole = drawn(board, default_order(board), (), (), "", 0, page=len(rows) or 1)
    return Export(shown, (*whole.pinned, *whole.rows, *whole.controls), papers_of(columns), title)


def closest_printed(columns: list[Column], figures: Mapping[str, Figures]) -> dict[tuple[str, str], Comparison]:
    """The printed figure whose setting is the closest, by the column's key and the run."""
    found = {}
    for column in columns:
        if column.metric is None:
            continue
        kept = figures[column.key]
        for run in column.runs:
            place = kept.runs[run.run]
            value, half = float(kept.means.value[place]), float(kept.means.half[place])
            ours = Estimate(value, value - half, value + half, int(kept.means.n[place]), 0)
            known = beside(
                run.dataset, run.setting, column.metric, run.description, estimate=ours, stated={"questions": str(kept.questions)}
            )
            if known and ours.n:
                found[column.key, run.run] = known[0]
    return found


def lines(export: Export) -> list[dict[str, Any]]:
    """The matrix as JSON: one object a cell, named as the columns of its CSV; None stands for "no value"."""
    return [dict(zip(CSV_COLUMNS, row, strict=True)) for row in exports.tidy(export)]
