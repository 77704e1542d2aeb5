"""The board page's first view: methods against benchmarks, filtered, sorted, compared and exported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from leaderboard import matrix_columns, matrix_controls, matrix_exports, matrix_filters, matrix_source, source, state
from leaderboard.choosers import NO_REFERENCE, experiment_box
from leaderboard.columns import ALL_RUNS
from leaderboard.exporting import offer
from leaderboard.matrix_cells import Shown
from leaderboard.matrix_exports import Export
from leaderboard.matrix_papers import papers_of
from leaderboard.matrix_picture import picture
from leaderboard.matrix_rows import PAGE, Order, default_order, drawn, first_direction, sort_columns
from leaderboard.matrix_table import legend, pager, table
from leaderboard.nodes import Node, el, message
from leaderboard.refreshing import refresh_while_running
from leaderboard.source import Source
from leaderboard.svg_file import svg_file
from leaderboard.view import show
from results.column_figures import COSTS
from results.contestants import Contestant, contestants
from results.matrix import Column, Matrix, matrix

ACTS = ("view", "board", "metric", "sort", "order", "first", "pin", "hide", *matrix_controls.FILTERS)
"""What clicks in the table may change."""


def render(at: Source) -> None:
    """Draw the matrix of a store that is not empty."""
    first, second = st.columns([3, 3, 2, 3]), st.columns([3, 3, 3, 2, 2], vertical_alignment="bottom")
    with first[0]:
        experiment = experiment_box(at)
    groups = source.run_groups(at, experiment)
    with first[1]:
        setting = matrix_controls.choose_setting(matrix_columns.settings(groups) or [matrix_columns.ALL_SETTINGS])
    if setting != matrix_columns.ALL_SETTINGS:
        groups = [runs for runs in groups if runs[0].setting == setting]
    definitions = source.definitions(at)
    scored = matrix_source.scored_metrics(at, experiment)
    metrics = list(dict.fromkeys(one for runs in groups for one in matrix_columns.metrics_of(runs, scored)))
    if not metrics:
        show(message("Nothing is scored yet", "No run has a finished question. Reload in a moment, or continue them.",
                     ("ragmeter runs", "ragmeter resume")), "message")  # fmt: skip
        return
    with first[2]:
        family = matrix_controls.choose_family(metrics, definitions)
    with first[3]:
        measure = matrix_controls.choose_measure(family, metrics, definitions)
    columns = matrix_columns.columns_of(groups, scored, definitions, source.datasets(at), family, measure)
    names = matrix_columns.labels(groups, setting)
    every = contestants({column.key: column.runs for column in columns}, matrix_source.cards(at))
    with second[0]:
        reference = matrix_controls.choose_reference([row.name for row in every if not row.control],
                                                     _default_reference(at, experiment, every))  # fmt: skip
    with second[1]:
        correction = matrix_controls.choose_correction()
    _below(at, experiment, columns, names, every, reference, correction, definitions, second[2:])
    refresh_while_running(at, (run for runs in groups for run in runs))


def _default_reference(at: Source, experiment: str | None, rows: Sequence[Contestant]) -> str:
    asked = {row.name: row.reference for row in source.experiments(at)}.get(experiment or ALL_RUNS)
    return asked if asked and asked in [row.name for row in rows] else NO_REFERENCE


def _below(
    at: Source, experiment: str | None, columns: Sequence[Column], names: Mapping[str, tuple[str, str]],
    every: Sequence[Contestant], reference: str | None, correction: Any, definitions: Mapping[str, Any],
    bar: Sequence[Any],
) -> None:  # fmt: skip
    """Search, filters, exports, and the table."""
    with bar[0]:
        words = state.search("Find", "find", placeholder="method or reader", resets=("first",))
    found = matrix_filters.choices(every)
    filters = matrix_controls.filters_asked(found)
    labels = {key: " · ".join(filter(None, name)) for key, name in names.items()}
    asked = matrix_controls.datasets_asked(labels)
    with bar[1]:
        papers = matrix_controls.draw_filters(labels, found, filters.active + (len(asked) < len(labels)))
    columns = [column for column in columns if column.key in asked]
    rows = [row for row in every if filters.admits(row) and any(column.key in row.runs for column in columns)]
    wanted = matrix_columns.wanted_of(columns)
    board = matrix(
        columns, rows, matrix_source.figures(at, wanted), cards=matrix_source.cards(at), reference=reference,
        violations=matrix_source.violations(at, experiment), costs=matrix_source.costs(at, experiment),
        correction=correction,
    )  # fmt: skip
    runs = {run.run: run for column in columns for run in column.runs}
    shown = Shown(board, names, {**definitions, **COSTS}, matrix_source.published(at, wanted, runs))
    order = _order(board)
    pinned, hidden = _keys("pin"), _keys("hide")
    first = state.settle("first", state.read("first"))
    part = drawn(board, order, pinned, hidden, words, int(first) if first.isdecimal() else 0)
    printed = papers_of(columns) if papers else []
    whole = drawn(board, order, pinned, hidden, words, 0, page=len(rows) or 1)
    export = Export(shown, (*whole.pinned, *whole.rows, *whole.controls), printed, _title(experiment, shown))
    with bar[2]:
        offer("ragmeter-board", {
            "csv": lambda: matrix_exports.csv(export), "md": lambda: matrix_exports.markdown(export),
            "tex": lambda: matrix_exports.latex(export), "svg": lambda: svg_file(picture(export)),
        })  # fmt: skip
    show(_summary(board, len(every) - len(rows)), "summary")
    if filters.active and all(row.control for row in rows):
        _nobody()
        return
    if not board.cells:
        text = "None of these benchmarks was scored on what was chosen. Choose other metrics above."
        show(message("No result of this kind", text), "message")
        return
    if not (part.pinned or part.rows or part.controls):
        show(message("No method matches", f"{len(rows):,} methods compete; none has these words in its name, or all "
                     "that do are hidden."), "message")  # fmt: skip
    else:
        show(table(shown, part, order, printed), "matrix", state.act(ACTS))
    turning = pager(part, PAGE)
    if turning is not None:
        show(turning, "pager", state.act(ACTS))
    if papers and not printed:
        show(el("p", "No paper that is kept here prints these metrics on these benchmarks.", cls="note"), "no-papers")
    show(legend(shown), "legend")


def _order(board: Matrix) -> Order:
    usual = default_order(board)
    column = state.pick("sort", sort_columns(board), usual.column)
    first = first_direction(board, column)
    return Order(column, state.pick("order", ("asc", "desc"), first) == "desc")


def _keys(name: str) -> list[str]:
    """Keys of rows that the URL names; those that do not exist mean nothing."""
    return [key for key in state.settle(name, state.read(name)).split(",") if key]


def _title(experiment: str | None, shown: Shown) -> str:
    settings = dict.fromkeys(column.first.setting for column in shown.board.columns)
    return f"{experiment or 'All runs'}, setting {', '.join(settings)}"


def _summary(board: Matrix, left_out: int) -> Node:
    controls = sum(row.control for row in board.rows)
    apart = sum(bool(cell.apart) and cell.run.kind != "control" for cell in board.cells.values())
    parts = [
        f"{len(board.columns):,} benchmark{'s' * (len(board.columns) != 1)}",
        f"{len(board.rows) - controls:,} method{'s' * (len(board.rows) - controls != 1)}",
        f"{controls:,} control{'s' * (controls != 1)}" if controls else "",
        f"{left_out:,} filtered out" if left_out else "",
        f"{apart:,} results not comparable" if apart else "",
        f"differences to {board.reference}" if board.reference is not None else "no reference chosen",
    ]
    return el("p", *(el("span", part, cls="fact") for part in parts if part), cls="facts")


def _nobody() -> None:
    """Say that the filters leave no method, and how to be rid of them."""
    text = "No method meets all filters. Those whose card does not state a size or weights pass only as not stated."
    clear = el("button", "clear the filters", cls="turn", key="clear", action=dict.fromkeys(matrix_controls.FILTERS))
    show(el("section", el("h2", "No method competes"), el("p", text), el("p", clear), cls="message"), "message",
         state.act(ACTS))  # fmt: skip
