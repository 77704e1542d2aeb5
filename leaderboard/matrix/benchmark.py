"""One benchmark: its board as a table with a column for each metric, and a chart of one metric."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from leaderboard.elements import formats
from leaderboard.elements.formats import higher_is_better, scale_of
from leaderboard.elements.pictures import APART, CONTROL, KINDS, METHOD, PARTIAL, Picture, forest, point_of
from leaderboard.elements.tables import Definitions
from leaderboard.matrix.table import Benchmark, Shown
from results.boards.board import Board, Row
from results.boards.matrix import Cell, Column, Matrix, Paired
from results.boards.published import closest
from results.boards.systems import System, systems
from results.statistics.places import Band
from results.store.training_data import Cards, Checkpoints


def of_metrics(
    board: Board, focus: str, definitions: Definitions, learned: tuple[Cards, Checkpoints], bands: Mapping[str, Mapping[str, Band]]
) -> Shown:
    """Make the table of a board: a column for each metric, `focus` first; `bands`: ranks with their ranges, by metric and run id."""
    metrics = [focus, *(metric for metric in board.metrics if metric != focus)]
    runs = tuple(row.run for row in board.rows)
    columns = tuple(Column(metric, runs, metric, higher_is_better(metric, definitions)) for metric in metrics)
    by_run = {row.run.run: row for row in board.rows}
    rows = tuple(replace(row, runs=dict.fromkeys(metrics, row.any_run)) for row in systems({focus: runs}, *learned))
    # The reference is a name, which several rows may have; keys distinguish them.
    base = next((row.run.run for row in board.rows if row.run.method == board.reference and not row.control), None)
    whole = Matrix(
        columns,
        rows,
        {
            (row.key, metric): _cell(by_run[run.run], metric, bands.get(metric, {}).get(run.run))
            for row in rows
            for metric, run in row.runs.items()
            if metric in by_run[run.run].cells
        },
        {row.run.run: row.cost for row in board.rows if row.cost is not None},
        next((row.name for row in rows if row.any_run.run == base), None),
        dict.fromkeys(metrics, board.sampled),
        dict.fromkeys(metrics, board.questions),
        size=(board.questions, board.sampled.count(board.questions)),
    )
    names = {metric: formats.metric_name(metric, board.metrics) for metric in metrics}
    return Shown(whole, names, definitions, closest(whole), Benchmark(board, focus, by_run))


def _cell(row: Row, metric: str, band: Band | None) -> Cell:
    cell = row.cells[metric]
    value, tested = cell.estimate, cell.difference
    paired = None
    if tested is not None:
        corrected = math.nan if cell.p_holm is None else cell.p_holm
        paired = Paired(tested.value, tested.low, tested.high, tested.n, tested.p, corrected, tested.insufficient_data, tested.generalizes)
    return Cell(
        row.run,
        value.value,
        value.low,
        value.high,
        value.n,
        value.unscorable,
        cell.unscored,
        value.insufficient_data,
        cell.apart,
        bool(row.contaminated),
        band,
        paired,
        cell.bounds,
    )


def intervals(board: Board, metric: str, rows: Sequence[System], definitions: Definitions) -> Picture | None:
    """Draw a forest plot of one metric: a dot with its 95 % interval per row, a dashed line at the reference; None without values."""
    by_run = {row.run.run: row for row in board.rows}
    scale, baseline, drawn = scale_of(metric, definitions), None, []
    for system in rows:
        row = by_run[system.any_run.run]
        cell = row.cells.get(metric)
        if cell is None or formats.missing(cell.estimate.value):
            continue
        kind = CONTROL if row.control else PARTIAL if row.run.status != "finished" else APART if cell.apart else METHOD
        point = point_of(kind, math.nan, cell.estimate, scale, system.name)
        why = f"; {cell.apart}" if kind == APART else ""
        drawn.append((system.name, [replace(point, shown=f"{point.shown}, n = {cell.estimate.n:,}{why}")]))
        if row.run.method == board.reference and not row.control:
            baseline = point.value
    title = f"{formats.metric_name(metric)[0]}, {scale.unit}" + ("" if baseline is None else f"  ┆ {board.reference}")
    label = f"{formats.metric_label(metric, board.metrics)} of each run with its 95 % interval; the numbers are in the table"
    return forest(drawn, title, label, reference=baseline, looks=KINDS)
