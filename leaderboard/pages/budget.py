"""The budget page: quality against tokens, seconds or money, and the effect of compression."""

from __future__ import annotations

from leaderboard import read, state
from leaderboard.elements import formats
from leaderboard.elements.formats import MAIN, higher_is_better, scale_of
from leaderboard.elements.nodes import el, message
from leaderboard.elements.pictures import plot
from leaderboard.views import budget
from leaderboard.views.budget import CURVE_AXES
from leaderboard.widgets import Chosen, bar, choose, draw, permalink, show, tell
from results.boards.board import Board
from results.boards.budget import Axis, budget_curves, informative_axis, quality_budget, read_in_full

_LISTED = 6
"""Maximum number of other experiments that the page links to."""
_OTHER: dict[str, None] = dict.fromkeys(("board", "metric", "cost"))
"""Choices that other experiments may not have."""


def render() -> None:
    """Draw the page `budget`: quality against cost, with the Pareto front and compression curves."""
    state.begin("budget")
    show(el("h1", "Quality and budget", cls="page"), "title")
    chosen = choose()
    if chosen is None:
        return
    left, right = bar("axes", 2)
    with left:
        metric = state.select("Quality", "metric", chosen.metrics, chosen.families[MAIN][0], show=chosen.label)
    board = read.board_of(chosen.at, chosen.experiment, chosen.group, None, (metric,))
    with right:
        axes: dict[str, Axis] = {name: name for name in budget.AXES}
        axis = axes[state.select("Cost", "cost", list(axes), informative_axis(board), show=lambda name: budget.AXES[axes[name]])]
    _front(chosen, board, metric, axis)
    _curves(chosen, board, metric)
    permalink()


def _front(chosen: Chosen, board: Board, metric: str, axis: Axis) -> None:
    scale = scale_of(metric, chosen.definitions)
    better = higher_is_better(metric, chosen.definitions)
    between = read.cost_intervals(chosen.at, chosen.experiment, chosen.group, metric, axis)
    rows = quality_budget(board, metric, axis, higher_is_better=better, intervals=between)
    if not rows:
        tell("No run has a value", "Choose another metric.")
        return
    show(el("h2", "What quality costs", cls="section"), "pareto-title")
    show(budget.pareto_table(rows, axis, metric, scale), "pareto")
    draw(budget.pareto_chart(rows, axis, metric, scale), "pareto-chart", "ragmeter-cost")
    note = (
        "On the front: no other finished method is at least as good and as cheap, and strictly better on one. Perhaps on the front: "
        "the 95 % intervals leave it open. Unfinished runs and controls are never on the front; controls are only in the table."
    )
    show(el("p", note, cls="note"), "pareto-note")


def _curves(chosen: Chosen, board: Board, metric: str) -> None:
    show(el("h2", "What compression keeps", cls="section"), "compression-title")
    full = read_in_full(board)
    curves = budget_curves(board, metric)
    if not curves and (others := read.reading_experiments(chosen.at)):
        opened = [el("button", name, cls="turn", key=f"open-{name}", action={"experiment": name, **_OTHER}) for name in others[:_LISTED]]
        show(
            el("p", "No run here gives passages to a reader. Experiments that do: ", *opened), "others", state.act(("experiment", *_OTHER))
        )
        return
    if not curves:
        show(
            message(
                "No run here gives passages to a reader",
                "To compare compression, run methods whose reader is a model at several ratios or budgets. Their names must differ "
                "only in the number at the end, as in CLaRa 4x and CLaRa 16x.",
                ("ragmeter list experiments", "ragmeter run EXPERIMENT.yaml"),
            ),
            "compression-none",
        )
        return
    able = [name for name in CURVE_AXES if any(getattr(point, name) > 0 for curve in curves for point in curve.points)]
    axis = state.select("Over", "over", able, able[0], show=lambda name: CURVE_AXES[name])
    scale = scale_of(metric, chosen.definitions)
    points = budget.curve_points(curves, axis, scale)
    chart = plot(
        points,
        CURVE_AXES[axis],
        f"{formats.metric_name(metric)[0]}, {scale.unit}",
        "Quality against delivered tokens, a curve for each method; the numbers are in the table",
        logarithmic=budget.logarithmic([point.x for point in points]),
    )
    draw(chart, "compression-chart", "ragmeter-compression")
    show(budget.curve_table(curves, metric, scale, full.run.method if full else None), "compression")


if __name__ == "__main__":
    # Streamlit runs this file; the modules that it imports are loaded once.
    from leaderboard.pages import budget as page

    page.render()
