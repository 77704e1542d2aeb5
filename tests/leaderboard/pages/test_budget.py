"""The budget page: Pareto fronts by a naive definition, hand-computed ratios, and the page that shows both."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from leaderboard.elements.formats import PERCENT
from leaderboard.elements.nodes import TAGS
from leaderboard.elements.pictures import APART
from leaderboard.report import compression
from leaderboard.views import budget
from results.boards.board import Board, Row, boards
from results.boards.budget import UsageCost, budget_curves, cost_intervals, informative_axis, quality_budget, read_in_full, spent
from results.store import score_queries
from results.store.cost_queries import Cost
from results.store.store import Store

Start = Callable[[Path], Any]
F1, PERPLEXITY = "f1(rules=hotpotqa)#v2", "perplexity#v1"


def words(node: Any) -> str:
    return " ".join(node.texts())


@pytest.fixture(scope="module")
def made_up(filled: Path, synthetic: ModuleType) -> Board:
    (result,) = boards(Store(filled), synthetic.EXPERIMENT, metrics=[F1, PERPLEXITY])
    return result


def is_dominated(item: UsageCost, others: list[UsageCost], sign: int) -> bool:
    """Return whether another method is at least as good and as cheap, and strictly better on one; one pair at a time."""
    return any(
        sign * other.value.value >= sign * item.value.value
        and other.x <= item.x
        and (sign * other.value.value > sign * item.value.value or other.x < item.x)
        for other in others
    )


@pytest.mark.parametrize(("metric", "sign"), [(F1, 1), (PERPLEXITY, -1)])
@pytest.mark.parametrize("axis", ["tokens", "delivered", "seconds", "cost"])
def test_pareto_front_excludes_dominated_methods(made_up: Board, metric: str, sign: int, axis: Any) -> None:
    rows = quality_budget(made_up, metric, axis, higher_is_better=sign > 0)
    able = [row for row in rows if not row.row.control and row.row.run.status == "finished"]
    assert {row.row.run.run for row in rows if row.front} == {item.row.run.run for item in able if not is_dominated(item, able, sign)}
    assert any(row.front for row in rows)
    assert [row.x for row in rows] == sorted(row.x for row in rows)


def test_costs_have_intervals_and_parameter_counts_are_exact(copied: Callable[[], Path], synthetic: ModuleType) -> None:
    store = Store(copied())
    with store.database.writing() as connection:
        connection.execute("UPDATE usage SET seconds = seconds * (1 + hash(question) % 10 / 10.0)")
    (board,) = boards(store, synthetic.EXPERIMENT, metrics=[F1])
    between = cost_intervals(store, board, "seconds")
    known = {row.run.run: spent(row, "seconds", row.run.done) for row in board.rows}
    assert between.keys() == {run for run in known if known[run] > 0} - {row.run.run for row in board.rows if row.run.done < 2}
    assert all(low < known[run] < high for run, (low, high) in between.items())
    assert cost_intervals(store, board, "parameters") == {}
    assert all(known > 0 for run, known in ((run, spent_on(board, run, "cost")) for run in cost_intervals(store, board, "cost")))
    folded = replace(board, rows=tuple(replace(row, cost=replace(row.cost, seconds=9.0)) for row in board.rows if row.cost))
    assert cost_intervals(store, folded, "seconds") == {}, "a mean over several runs is not the mean of the first"


def spent_on(board: Board, run: str, axis: Any) -> float:
    return next(spent(row, axis, row.run.done) for row in board.rows if row.run.run == run)


def test_method_is_off_the_front_with_certainty_only_beyond_both_intervals(made_up: Board) -> None:
    model = next(row for row in made_up.rows if row.run.method == "hybrid + chat reader")

    def row(name: str, value: float, half: float, seconds: float) -> Row:
        estimate = replace(model.cells[F1].estimate, value=value, low=value - half, high=value + half)
        cells = {F1: replace(model.cells[F1], estimate=estimate, apart="")}
        return replace(model, run=replace(model.run, run=name, method=name), cells=cells, cost=Cost(seconds, 1.0, 0.0, 0.0, 1.0, 0.0))

    rows = (row("cheap", 0.8, 0.02, 1.0), row("near", 0.79, 0.02, 2.0), row("far", 0.5, 0.02, 2.0), row("close in cost", 0.5, 0.02, 1.1))
    between = {"cheap": (0.9, 1.1), "near": (1.9, 2.1), "far": (1.9, 2.1), "close in cost": (1.0, 1.2)}
    result = {item.row.run.run: item for item in quality_budget(replace(made_up, rows=rows), F1, "seconds", intervals=between)}
    assert {name: budget.kind(item) for name, item in result.items()} == {
        "cheap": budget.ON,
        "near": budget.POSSIBLE,
        "far": budget.BEATEN,
        "close in cost": budget.POSSIBLE,
    }
    drawing = budget.pareto_chart(list(result.values()), "seconds", F1, PERCENT)
    assert drawing is not None
    assert [text[2][0] for text in drawing[2] if text[0] == "text" and text[1].get("class") == "name" and text[2][0] in between] == [
        "cheap"
    ]
    lines = list(csv.DictReader(io.StringIO(drawing.csv())))
    assert {line["name"]: (float(line["x_low"]), float(line["x_high"])) for line in lines} == between


def test_pareto_front_excludes_controls_and_unfinished_runs(made_up: Board) -> None:
    rows = {item.row.run.method: item for item in quality_budget(made_up, F1, "tokens")}
    assert rows["gold answer"].value.value == 1.0
    assert not rows["gold answer"].front
    assert budget.kind(rows["gold answer"]) == budget.CONTROL
    assert budget.kind(rows["full context"]) == budget.PARTIAL


def test_run_that_is_not_comparable_is_not_called_beaten(made_up: Board) -> None:
    model = next(row for row in made_up.rows if row.run.method == "hybrid + chat reader")
    cell = model.cells[F1]
    best = replace(model, cells={F1: replace(cell, estimate=replace(cell.estimate, value=1.0, low=0.99, high=1.0), apart="implausible: x")})
    rows = tuple(best if row is model else row for row in made_up.rows)
    result = quality_budget(replace(made_up, rows=rows), F1, "tokens")
    assert [budget.kind(item) for item in result if item.row is best] == [APART]
    assert "implausible: x" in repr(budget.pareto_table(result, "tokens", F1, PERCENT))


def test_run_with_unknown_cost_is_off_the_front_and_listed_last(made_up: Board) -> None:
    rows = tuple(replace(row, cost=None) if row.run.method == "hybrid + chat reader" else row for row in made_up.rows)
    result = quality_budget(replace(made_up, rows=rows), F1, "tokens")
    assert result[-1].row.run.method == "hybrid + chat reader"
    assert math.isnan(result[-1].x)
    assert not result[-1].front


def test_cost_is_shown_per_question(made_up: Board) -> None:
    chat = next(row for row in made_up.rows if row.run.method == "hybrid + chat reader")
    assert spent(chat, "cost", chat.run.done) == pytest.approx(0.00042)
    assert math.isnan(spent(chat, "cost", 0))


def compressed(board: Board) -> Board:
    """Add runs of a compressor at three ratios, one without compression, and a retriever."""
    model = next(row for row in board.rows if row.run.method == "hybrid + chat reader")

    def row(name: str, prompt: float, memory: float, compressor: bool) -> Row:
        run = replace(model.run, run=name, method=name, description={"compressor": {"id": "c"} if compressor else None})
        return replace(model, run=run, cost=Cost(1.0, prompt, 5.0, memory, 1.0, 0.0))

    rows = [
        row("CLaRa 64x", 40, 10, True),
        row("CLaRa 4x", 40, 160, True),
        row("CLaRa (16x)", 40, 60, True),
        row("in full", 800, 0, False),
        row("closed book", 20, 0, False),
        row("bm25", 0, 0, False),
    ]
    return replace(board, rows=tuple(rows))


def test_runs_that_differ_only_in_ratio_form_one_curve(made_up: Board) -> None:
    curves = budget_curves(compressed(made_up), F1)
    assert [curve.name for curve in curves] == ["CLaRa", "in full", "closed book"]
    clara = curves[0].points
    assert [point.row.run.method for point in clara] == ["CLaRa 64x", "CLaRa (16x)", "CLaRa 4x"]
    assert [point.delivered for point in clara] == [50, 100, 200]
    assert [point.memory for point in clara] == [10, 60, 160]
    assert [point.ratio for point in clara] == [16, 8, 4]


def test_compression_ratios_are_relative_to_the_uncompressed_run(made_up: Board) -> None:
    board = compressed(made_up)
    full = read_in_full(board)
    assert full is not None
    assert full.run.method == "in full"
    # The costs that a submission states are not a baseline for runs made here.
    theirs = replace(
        full, run=replace(full.run, run="theirs", method="theirs@1", origin="submitted"), cost=Cost(1.0, 9e6, 5.0, 0, 1.0, 0.0)
    )
    assert read_in_full(replace(board, rows=(theirs, *board.rows))) == full
    none = replace(board, rows=tuple(row for row in board.rows if row.run.method.startswith("CLaRa")))
    assert read_in_full(none) is None
    assert all(math.isnan(point.ratio) for point in budget_curves(none, F1)[0].points)
    assert budget_curves(board, F1, "CLaRa 4x")[0].points[0].ratio == 4


def test_curve_tables_show_the_computed_values(made_up: Board) -> None:
    curves = budget_curves(compressed(made_up), F1)
    shown = words(budget.curve_table(curves, F1, PERCENT, "in full"))
    assert "CLaRa 64x" in shown
    assert "50 10 16" in shown
    points = budget.curve_points(curves, budget.MEMORY, PERCENT)
    assert {point.series for point in points} == {"CLaRa"}
    rows = quality_budget(made_up, F1, "tokens")
    table = budget.pareto_table(rows, "tokens", F1, PERCENT)
    on = {words(next(row.find(cls="method"))) for row in table.find(tag="tr") if budget.ON in list(row.texts())}
    assert on == {row.row.run.method for row in rows if row.front}


def test_single_point_curves_are_merged_if_there_are_too_many(made_up: Board) -> None:
    curves = budget_curves(compressed(made_up), F1)
    alone = [replace(curves[-1], name=f"alone {number}", points=curves[-1].points[:1]) for number in range(14)]
    series = {point.series for point in budget.curve_points([*curves, *alone], budget.DELIVERED, PERCENT)}
    assert series == {curve.name for curve in curves if len(curve.points) > 1} | {budget.ALONE}
    few = {point.series for point in budget.curve_points(alone, budget.DELIVERED, PERCENT)}
    assert few == {curve.name for curve in alone}


def test_axes_are_logarithmic_only_over_wide_positive_ranges() -> None:
    assert budget.logarithmic([1, 1000])
    assert not budget.logarithmic([0, 1000])
    assert not budget.logarithmic([10, 100])
    assert not budget.logarithmic([float("nan")])


def test_chart_shows_the_front_and_every_run_except_controls(made_up: Board) -> None:
    rows = quality_budget(made_up, F1, "tokens")
    drawing = budget.pareto_chart(rows, "tokens", F1, PERCENT)
    assert drawing is not None
    titles = [part[2][0][2][0] for part in drawing[2] if part[2] and part[2][0][0] == "title"]
    drawn = [row.row.run.method for row in rows if not row.row.control and row.x == row.x]
    assert len(titles) == len(drawn)
    for name in drawn:
        assert any(title.startswith(f"{name}: ") for title in titles)
    front = next(part for part in drawing[2] if part[1].get("class") == "front")
    assert front[1]["d"].count("V") == sum(row.front for row in rows) - 1


@pytest.mark.parametrize(("slowest", "factor", "unit"), [(0.5, 1000, "ms / question"), (2.0, 1, "s / question")])
def test_table_and_chart_show_times_in_one_unit(made_up: Board, slowest: float, factor: int, unit: str) -> None:
    rows = [
        replace(row, x=slowest / (at + 1), low=math.nan, high=math.nan) for at, row in enumerate(quality_budget(made_up, F1, "seconds"))
    ]
    table, drawing = budget.pareto_table(rows, "seconds", F1, PERCENT), budget.pareto_chart(rows, "seconds", F1, PERCENT)
    assert drawing is not None
    units = ["".join(node.texts()) for node in table.find(cls="unit")]
    assert unit in units
    able = {row.row.run.method: row.x for row in rows if not row.row.control}
    assert {point.name: point.x for point in drawing.points} == {name: factor * x for name, x in able.items()}
    assert ("Milliseconds" in str(drawing)) is (factor == 1000)


def test_page_state_follows_the_url(app: Start, filled: Path, synthetic: ModuleType) -> None:
    page = app(filled).open("budget", cost="seconds")
    assert not page.test.exception
    assert synthetic.HOSTILE_NAME in words(page.part("pareto"))
    assert "s / question" in words(page.part("pareto"))
    assert {node.tag for node in page.part("pareto").find()} <= TAGS
    assert page.has("compression")
    page.choose("Cost", "cost")
    assert page.query["cost"] == "cost"
    assert "US$ / question" in words(page.part("pareto"))


def test_experiment_with_only_retrievers_links_to_experiments_with_compression(app: Start, filled: Path, synthetic: ModuleType) -> None:
    page = app(filled).open("budget", experiment="open corpus")
    assert not page.test.exception
    (button,) = page.part("others").find(tag="button")
    assert button.action == {"experiment": synthetic.EXPERIMENT, "board": None, "metric": None, "cost": None}
    assert app(filled).open("budget", experiment=synthetic.EXPERIMENT).has("compression")
    assert "s / question" in words(page.part("pareto"))


def test_cost_axis_is_seconds_if_no_method_uses_tokens(made_up: Board) -> None:
    assert informative_axis(made_up) == "tokens"
    retrievers = replace(made_up, rows=tuple(row for row in made_up.rows if row.control or row.run.kind == "retriever"))
    assert informative_axis(retrievers) == "seconds"


def test_report_contains_the_compression_section(made_up: Board, filled: Path) -> None:
    definitions = score_queries.definitions(Store(filled))
    node = compression(compressed(made_up), F1, definitions)
    assert node is not None
    assert "What compression saves" in words(node)
    response = words(next(node.find(tag="table")))
    assert all(name in response for name in ("CLaRa 64x", "CLaRa (16x)", "in full", "closed book"))
    assert "bm25" not in response
    assert compression(made_up, F1, definitions) is None
