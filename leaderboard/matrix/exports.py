"""The matrix of a whole experiment, and the numbers of a matrix as a tidy table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from leaderboard.elements import formats
from leaderboard.elements.formats import MAIN
from leaderboard.elements.marks import SOURCES
from leaderboard.matrix.rows import ALL_SETTINGS, OWN, columns_of, labels
from leaderboard.matrix.table import Shown
from results.boards import systems as column_figures
from results.boards.board import groups
from results.boards.folded import Folded
from results.boards.markup import to_csv
from results.boards.matrix import Cell, Column, matrix, ranked_cells, wanted_of
from results.boards.names import is_called
from results.boards.primary import primary_of
from results.boards.published import closest
from results.boards.systems import COSTS, System, systems
from results.boards.tables import source_of
from results.store import checkpoints, cost_queries, invariants, provenance, queries, score_queries
from results.store.doubts import NOT_RESCORED
from results.store.store import Store

CSV_COLUMNS = (
    "dataset", "dataset_fingerprint", "setting", "seed", "questions", "method", "method_id", "kind", "source",
    "status", "run", "metric", "unit", "value", "low", "high", "n", "unscorable", "unscored",
    "low_if_wrong", "high_if_right", "rank", "rank_low",
    "rank_high", "standing", "not_comparable", "contaminated", "reference", "difference",
    "difference_low", "difference_high", "difference_n", "p", "p_corrected", "correction", "published",
    "published_in", "gap", "published_status", "tokens_per_question", "seconds_per_question", "cost_usd", "parameters",
    "open_weights",
)  # fmt: skip
"""Columns of a matrix as CSV; values as stored, shares as fractions. Costs are those of the run."""


def csv(shown: Shown, rows: Sequence[System]) -> str:
    """Render the matrix as CSV, one line per cell."""
    return to_csv(CSV_COLUMNS, tidy(shown, rows))


def tidy(shown: Shown, rows: Sequence[System]) -> Iterator[list[Any]]:
    """Yield one CSV line per cell, in the order of `CSV_COLUMNS`; None means no value."""
    for row in rows:
        for column, cell in zip(shown.board.columns, shown.board.line(row), strict=True):
            if cell is not None:
                yield _line(shown, row, column, cell)


def _line(shown: Shown, row: System, column: Column, cell: Cell) -> list[Any]:
    run, band, paired, cost = cell.run, cell.band, cell.paired, shown.board.costs.get(cell.run.run)
    theirs = run.origin if column.metric is None else source_of(run, column.metric)
    compared: list[Any] = [None] * 8
    if paired is not None:
        tested = (paired.value, paired.low, paired.high, paired.n, paired.p, paired.corrected)
        compared = [shown.board.reference, *tested, "column"]
    known = shown.comparison(column, cell)
    published: list[Any] = [None] * 4
    if known is not None:
        published = [known.figure.fraction, f"{known.figure.source}: {known.figure.setting}", known.gap, known.status]
    spent = [None] * 3 if cost is None else [cost.tokens, cost.seconds, cost.cost_usd]
    return [
        run.dataset, run.dataset_fingerprint, run.setting, run.seed, shown.board.questions[column.key], row.name,
        run.method_id, run.kind, theirs if theirs == NOT_RESCORED or (theirs in SOURCES and theirs != "run") else "measured",
        run.status, run.run, column.metric,
        "number" if shown.scale(column).factor != formats.PERCENT.factor else "fraction", cell.value,
        cell.low, cell.high, cell.n, cell.unscorable, cell.unscored,
        *([None] * 2 if cell.bounds is None else [cell.bounds.if_wrong, cell.bounds.if_right]),
        *([band.rank, band.low, band.high, str(band.standing)] if band else [None] * 4), cell.apart or None,
        cell.contaminated, *compared, *published, *spent, row.parameters, row.open_weights,
    ]  # fmt: skip


def still_matrix(store: Store, experiment: str) -> Shown | None:
    """Build the overview matrix of an experiment for a report or file: by the primary metric, else by each dataset's own; seeds
    are averaged.

    Only the experiment's metrics are used, although other experiments may have scored the same runs on more. None without scores.
    """
    definitions, datasets = score_queries.definitions(store), queries.datasets(store)
    every = groups(queries.runs(store, experiment))
    ids = [run.run for runs in every for run in runs]
    scored = column_figures.scored_metrics(store, ids)
    folded = Folded.of(every, cost_queries.costs(store, ids), invariants.violations(store, ids))
    stored = {row.name: row for row in queries.experiments(store)}.get(experiment)
    columns = columns_of(folded.groups, scored, definitions, datasets, MAIN, OWN, primary_of(stored) if stored is not None else None)
    columns = [column for column in columns if column.metric is not None]
    if not columns:
        return None
    cards, known = provenance.cards(store), checkpoints.known_checkpoints(store)
    rows = systems({column.key: column.runs for column in columns}, cards, known)
    wanted = wanted_of(columns, folded.series)
    figures = column_figures.figures(store, list(wanted))
    query = stored.reference if stored is not None else None
    able = [row.name for row in rows if not row.control]
    board = matrix(
        columns,
        rows,
        figures,
        ranked_cells(columns, rows, figures, cards=cards, known=known, violations=folded.violations),
        costs=folded.costs,
        reference=next((name for name in able if query and is_called(name, query)), None),
    )
    names = labels(folded.groups, ALL_SETTINGS if len({runs[0].setting for runs in folded.groups}) > 1 else "")
    return Shown(board, names, {**definitions, **COSTS}, closest(board))
