"""The budget page: quality against tokens, seconds or money, and the effect of compression."""

from __future__ import annotations

from typing import cast

from leaderboard import read, read_boards, state
from leaderboard.drawing import permalink, show, tell
from leaderboard.elements.formats import MAIN, higher_is_better, scale_of
from leaderboard.elements.nodes import button, el, message, section
from leaderboard.elements.nodes import note as small
from leaderboard.read import Source
from leaderboard.views import budget
from leaderboard.widgets import Chosen, as_page, bar, choose
from results.boards.board import Board
from results.boards.budget import Axis, budget_curves, informative_axis, quality_budget, read_in_full

# Parameters that change only what is below the choice of the benchmark.
BELOW = ("metric", "cost", "over")
_LISTED = 6
"""Maximum number of other experiments that the page links to."""
_OTHER: dict[str, None] = dict.fromkeys(("board", "metric", "cost"))
"""Choices that other experiments may not have."""


@as_page("budget", "Quality and budget")
def render(at: Source) -> None:
    """Draw the page `budget`: quality against cost, with the Pareto front and compression curves."""
    chosen = choose(at)
    if chosen is not None:
        state.fragment(BELOW, lambda: read.source() != chosen.at, lambda: _below(chosen))


def _below(chosen: Chosen) -> None:
    """Draw what depends on the metric and on the axes."""
    left, right = bar("axes", 2)
    metric = state.select("Quality", "metric", chosen.metrics, chosen.families[MAIN][0], show=chosen.label, within=left)
    board = read_boards.board_of(chosen.at, chosen.experiment, chosen.group, None, (metric,), checked=False)
    axis = cast(Axis, state.select("Cost", "cost", cast(dict[str, str], budget.AXES), informative_axis(board), within=right))
    _front(chosen, board, metric, axis)
    _curves(chosen, board, metric)
    permalink()


def _front(chosen: Chosen, board: Board, metric: str, axis: Axis) -> None:
    scale = scale_of(metric, chosen.definitions)
    better = higher_is_better(metric, chosen.definitions)
    between = read_boards.cost_intervals(chosen.at, chosen.experiment, chosen.group, metric, axis)
    rows = quality_budget(board, metric, axis, higher_is_better=better, intervals=between)
    if not rows:
        tell("No run has a value", "Choose another metric.")
        return
    note = (
        "On the front: no other finished method is at least as good and as cheap, and strictly better on one. Perhaps on the front: "
        "the 95 % intervals leave it open. Unfinished runs and controls are never on the front; controls are only in the table."
    )
    table, chart = budget.pareto_table(rows, axis, metric, scale), budget.pareto_chart(rows, axis, metric, scale)
    show(section("What quality costs", table, chart, small(note)), "pareto")


def _curves(chosen: Chosen, board: Board, metric: str) -> None:
    show(el("h2", "What compression keeps", cls="section"), "compression-title")
    full, curves = read_in_full(board), budget_curves(board, metric)
    if not curves and (others := read.reading_experiments(chosen.at)):
        opened = [button(name, f"open-{name}", {"experiment": name, **_OTHER}) for name in others[:_LISTED]]
        text = "No run here gives passages to a reader. Experiments that do: "
        show(el("p", text, *opened), "others", state.act(("experiment", *_OTHER)))
        return
    if not curves:
        text = (
            "To compare compression, run methods whose reader is a model at several ratios or budgets. Their names must differ "
            "only in the number at the end, as in CLaRa 4x and CLaRa 16x."
        )
        commands = ("ragmeter list experiments", "ragmeter run EXPERIMENT.yaml")
        show(message("No run here gives passages to a reader", text, commands), "compression-none")
        return
    axes = budget.CURVE_AXES
    able = {name: text for name, text in axes.items() if any(getattr(point, name) > 0 for curve in curves for point in curve.points)}
    axis = state.select("Over", "over", able)
    scale = scale_of(metric, chosen.definitions)
    chart = budget.curve_chart(curves, axis, metric, scale)
    table = budget.curve_table(curves, metric, scale, full.run.method if full else None)
    show(el("div", chart, table, cls="stack"), "compression")
