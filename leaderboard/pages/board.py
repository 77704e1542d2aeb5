"""The board page: methods against all benchmarks (`matrix.py`), or one benchmark as a sortable table with every
metric, and a chart of one."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from leaderboard import read, read_boards, state
from leaderboard.drawing import draw, offer, permalink, show, together
from leaderboard.elements.formats import MAIN
from leaderboard.elements.nodes import section
from leaderboard.elements.pictures import Picture, svg_file
from leaderboard.matrix.benchmark import intervals
from leaderboard.pages import draw_page, matrix
from leaderboard.read import Source
from leaderboard.views import verdict
from leaderboard.widgets import (
    NO_REFERENCE,
    Chosen,
    as_page,
    bar,
    choose,
    choose_papers,
    choose_reference,
    experiment_of,
    refresh_while_running,
)
from results.boards.board import Board
from results.boards.tables import render as render_boards

QUESTIONS_PAGE = "question.py"
# Parameters that change only what is below the choice of the benchmark.
BELOW = ("columns", "metric", "reference", "papers", "find", "sort", "order", "first", "pin", "hide")
MATRIX, BENCHMARK = "matrix", "benchmark"
VIEWS = {MATRIX: "All benchmarks", BENCHMARK: "One benchmark"}


@as_page("board", "Leaderboard")
def render(at: Source) -> None:
    """Draw the page `board`: all benchmarks, or the results table of one with intervals and exports."""
    if _view(at) == MATRIX:
        matrix.render(at)
    else:
        _benchmark(at)


def _view(at: Source) -> str:
    """Return the view in the URL; with one benchmark, or without content, there is no choice."""
    groups = read.run_groups(at, experiment_of(at))
    if not groups:
        return BENCHMARK
    usual = BENCHMARK if len(groups) == 1 or state.read("board") else MATRIX
    value = state.pick("view", list(VIEWS), usual, VIEWS.__getitem__)
    # A second click on what is chosen asks for nothing; it stays chosen.
    bound = state.bound("view", value, ("board", "sort", "order"), lambda chosen: chosen or value)
    with bar("view", 1)[0]:
        st.segmented_control("View", list(VIEWS), format_func=VIEWS.__getitem__, label_visibility="collapsed", **bound)
    return value


def _benchmark(at: Source) -> None:
    """Show one benchmark with every metric and resampled intervals."""
    chosen = choose(at)
    if chosen is not None:
        state.fragment(BELOW, lambda: read.source() != chosen.at)(lambda: _below(chosen))
        refresh_while_running(chosen.at, chosen.experiment, chosen.runs)


def _below(chosen: Chosen) -> None:
    """Draw what depends on metrics, reference and order: the table and the chart."""
    focus_column, family_column, reference_column, find_column = bar("shown", 4)
    with family_column:
        names = list(chosen.families)
        family = state.select("Columns", "columns", names, MAIN, show=lambda name: f"{name} metrics")
    with focus_column:
        focus = state.select("Ranked by", "metric", chosen.metrics, chosen.families[MAIN][0], show=chosen.label, resets=("sort", "order"))
    with reference_column:
        usual = read.reference_of(chosen.at, chosen.experiment, chosen.methods)
        base = choose_reference(chosen.methods, usual or NO_REFERENCE)
    with find_column:
        words = state.search("Find", "find", placeholder="method or reader", resets=("first",))
        papers = choose_papers()
    metrics = chosen.families[family]
    columns = (focus, *(metric for metric in metrics if metric != focus))
    main = tuple(chosen.families[MAIN])
    board, shown, headline = read_boards.benchmark_of(chosen.at, chosen.experiment, chosen.group, base, columns, main)
    part, whole, order = matrix.chosen_rows(shown.board, words)
    drawing = intervals(board, focus, (*whole.pinned, *whole.rows, *whole.controls), chosen.definitions)
    with together("content"):
        if headline is not None:
            show(verdict.one_line(headline), "verdict")
        show(matrix.summary(shown), "summary")
        matrix.show_table(shown, part, order, papers=papers)
        show(section(f"{chosen.label(focus)} with 95 % intervals"), "chart-title")
        draw(drawing, "chart")
    _links(board, drawing)


def _links(board: Board, drawing: Picture | None) -> None:
    texts: dict[str, Callable[[], str]] = {
        ending: lambda form=form: render_boards([board], form)  # type: ignore[misc]
        for ending, form in (("csv", "csv"), ("md", "markdown"), ("tex", "latex"))
    }
    if drawing is not None:
        texts["svg"] = lambda: svg_file(drawing)
    left, right = st.columns([4, 1], vertical_alignment="bottom")
    with right:
        offer("ragmeter-benchmark", texts)
    shared = {name: value for name, value in state.view().items() if name in ("experiment", "board", "metric")}
    with left:
        st.page_link(QUESTIONS_PAGE, label="Look at single questions", icon=":material/quiz:", query_params=shared)
        permalink()


if __name__ == "__main__":
    draw_page("board")
