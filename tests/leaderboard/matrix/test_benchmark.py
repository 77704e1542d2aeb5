"""The board's table shows what `results.boards.board` computed."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from leaderboard.elements import pictures
from leaderboard.elements.formats import MAIN, families, metric_label
from leaderboard.elements.nodes import Node
from leaderboard.matrix.benchmark import intervals, of_metrics
from leaderboard.matrix.rows import Order, default_order, ordered, sort_columns
from leaderboard.matrix.table import Shown, draw_matrix, legend
from results.boards.board import Board, boards
from results.statistics.places import Band, Standing
from results.store import queries, score_queries
from results.store.cost_queries import IndexCost
from results.store.store import Store
from tests.support.nodes import still

F1, EM, PERPLEXITY = "f1(rules=hotpotqa)#v2", "em#v2", "perplexity#v1"
DEFINITIONS = {
    F1: {"definition": "overlap", "low": 0.0, "high": 1.0, "higher_is_better": True, "group": "answer", "source": "x"},
    EM: {"definition": "equal", "low": 0.0, "high": 1.0, "higher_is_better": True, "group": "answer", "source": "x"},
    PERPLEXITY: {"definition": "p", "low": 0.0, "high": None, "higher_is_better": False, "group": "text", "source": "x", "unit": "number"},
}


@pytest.fixture(scope="module")
def made_up(filled: Path, synthetic: ModuleType) -> Board:
    (result,) = boards(Store(filled), synthetic.EXPERIMENT, metrics=[F1, EM, PERPLEXITY])
    return result


def shown(board: Board, focus: str = F1, bands: dict[str, Band] | None = None) -> Shown:
    return of_metrics(board, focus, DEFINITIONS, ({}, {}), {focus: bands or {}})


def drawn(board: Board, focus: str = F1, bands: dict[str, Band] | None = None) -> Node:
    return still(shown(board, focus, bands))


def lines(tree: Node) -> dict[str, Node]:
    body = next(tree.find(tag="tbody"))
    rows = [row for row in body.find(tag="tr") if "divider" not in row.classes]
    return {"".join(next(row.find(cls="method")).texts()): row for row in rows}


def cells(tree: Node, method: str) -> list[Node]:
    return list(lines(tree)[method].find(tag="td"))


def words(node: Node) -> str:
    return " ".join(node.texts())


def test_every_displayed_value_equals_the_board(made_up: Board) -> None:
    tree = drawn(made_up)
    for row in made_up.rows:
        for cell, (metric, factor, digits) in zip(
            cells(tree, row.run.method), ((F1, 100, 1), (EM, 100, 1), (PERPLEXITY, 1, 2)), strict=False
        ):
            result = row.cells[metric].estimate
            low, value, high = (f"{factor * number:.{digits}f}" for number in (result.low, result.value, result.high))
            assert value in words(cell)
            assert math.isnan(result.low) or f"[{low}, {high}]" in words(cell) or "±" in words(cell)
            paired = row.cells[metric].difference
            if paired is not None:
                assert f"{factor * paired.value:+.{digits}f}".replace("-", "−") in cell.tip
                assert f"Better on {paired.wins}, equal on {paired.ties}, worse on {paired.losses} questions." in cell.tip
            assert f"({result.n} of {made_up.questions} questions" in cell.tip
            assert ("counted as 0, as the official script does" in cell.tip) == (row.cells[metric].over_all is not None)


def test_marks_are_shown_where_the_corrected_test_rejects(made_up: Board) -> None:
    tree = drawn(made_up)
    seen = set()
    for row in made_up.rows:
        marks = [words(cell)[0] for cls in ("better", "worse") for cell in lines(tree)[row.run.method].find(tag="td", cls=cls)]
        rejected = [c for c in row.cells.values() if c.p_holm is not None and c.p_holm < 0.05]
        assert len(marks) == len(rejected)
        seen |= set(marks)
    assert seen == {"▲", "▼"}


def test_lower_perplexity_is_marked_as_better(made_up: Board) -> None:
    tree = drawn(replace(made_up, metrics=(PERPLEXITY,)), PERPLEXITY)
    difference = next(row for row in made_up.rows if row.run.method == "hybrid").cells[PERPLEXITY].difference
    assert difference is not None
    assert difference.value < 0
    cell = cells(tree, "hybrid")[0]
    assert "better" in cell.classes.split()
    assert "Significantly better: " in cell.tip
    assert "p < .001 corrected" in cell.tip
    assert "lower is better" in words(next(tree.find(tag="thead")))


def test_a_submission_that_is_implausible_and_a_run_with_impossible_scores_are_marked(made_up: Board) -> None:
    first, *others = made_up.rows
    sent = replace(first, run=replace(first.run, card={"submission": {"implausible": ["one answer to everything"]}}))
    broken = replace(first, violations=("recall@1 is greater than recall@5 for 2 questions",))
    for row, label in ((sent, "implausible"), (broken, "inconsistent")):
        tree = drawn(replace(made_up, rows=(row, *others)))
        assert [name for name, line in lines(tree).items() if label in words(line)] == [first.run.method]
    assert "implausible" not in words(drawn(made_up))
    assert "inconsistent" not in words(drawn(made_up))


@pytest.mark.parametrize("descending", [False, True])
def test_sorting_orders_methods_and_keeps_controls_below(made_up: Board, descending: bool) -> None:
    table, by_run = shown(made_up), {row.run.run: row for row in made_up.rows}
    for column in sort_columns(table.board):
        rows = [by_run[row.any_run.run] for row in ordered(table.board, Order(column, descending))]
        assert sorted(row.run.run for row in rows) == sorted(by_run)
        kinds = [row.control for row in rows]
        assert kinds == sorted(kinds)
        if column in made_up.metrics:
            for part in (False, True):
                values = [row.cells[column].estimate.value for row in rows if row.control is part and (part or not row.cells[column].apart)]
                assert values == sorted(values, reverse=descending)
            apart = [bool(row.cells[column].apart) for row in rows if not row.control]
            assert apart == sorted(apart), "what is not comparable follows"
        if column == "seconds":
            spent = [row.cost.seconds for row in rows if row.cost and not row.control]
            assert spent == sorted(spent, reverse=descending)
        if column == "method":
            called = [row.run.method.casefold() for row in rows if not row.control]
            assert called == sorted(called, reverse=descending)


@pytest.mark.parametrize("metric", [F1, PERPLEXITY])
def test_the_table_begins_with_the_best_value_of_its_first_metric(made_up: Board, metric: str) -> None:
    whole = shown(made_up, metric).board
    first, *_ = ordered(whole, default_order(whole))
    able = [row for row in made_up.rows if not row.control and not row.cells[metric].apart]
    best = (min if metric == PERPLEXITY else max)(able, key=lambda row: row.cells[metric].estimate.value)
    assert first.any_run.run == best.run.run


def test_metrics_of_one_benchmark_have_no_mean(made_up: Board) -> None:
    twice = f"{F1}-other"
    rows = [replace(row, cells=row.cells | {twice: row.cells[F1]}) for row in made_up.rows]
    table = shown(replace(made_up, metrics=(F1, twice), rows=tuple(rows)))
    assert not table.board.averaged
    assert all(table.board.mean(row) is None for row in table.board.rows)
    assert "Mean" not in words(next(still(table).find(tag="thead")))


def test_cost_of_a_run_counts_once_for_all_of_its_metrics(made_up: Board) -> None:
    table, by_run = shown(made_up), {row.run.run: row for row in made_up.rows}
    paid = 0
    for row in table.board.rows:
        cost, expected = table.board.cost(row), by_run[row.any_run.run].cost
        if expected is not None:
            assert cost == expected
            paid += expected.cost_usd > 0
    assert paid


def test_differences_require_a_reference(filled: Path) -> None:
    tree = drawn(boards(Store(filled), None, metrics=[F1])[0])
    assert not list(tree.find(cls="better"))
    assert not any("common questions" in cell.tip for cell in tree.find(tag="td"))


def test_a_click_on_a_cell_names_its_run_and_metric(made_up: Board) -> None:
    table = shown(made_up)
    order = Order(F1, True)
    tree = draw_matrix(table, ordered(table.board, order), order)
    row = next(row for row in made_up.rows if row.run.method == "bm25")
    actions = [cell.action for cell in cells(tree, "bm25") if cell.action]
    assert actions == [{"runs": row.run.run, "metric": metric} for metric in made_up.metrics]
    (head,) = [node for node in tree.find(tag="th") if node.attributes.get("sort") not in (None, "none")]
    assert next(head.find(tag="button")).action == {"sort": F1, "order": "asc", "first": None}


def test_running_failed_and_unscorable_states_are_shown(made_up: Board) -> None:
    tree = drawn(made_up)
    assert "running 13/40" in words(lines(tree)["full context"])
    assert all("running" not in words(cell) for cell in cells(tree, "full context")), "once, next to the name"
    (failed,) = [label for label in lines(tree)["closed book"].find(cls="badge") if "failed" in words(label)]
    row = next(row for row in made_up.rows if row.run.method == "closed book")
    assert words(failed) == f"{row.run.failed} failed"
    assert all(f"{kind} {count}" in failed.tip for kind, count in row.failures.items())
    assert "39 of 40 questions, 1 unscorable" in cells(tree, "bm25")[0].tip
    assert "reference" in words(lines(tree)["bm25"])
    assert "p50–p95" in cells(tree, "hybrid + chat reader")[-2].tip
    assert "completion 12.0" in cells(tree, "hybrid + chat reader")[-3].tip


def test_what_an_index_took_is_below_the_tokens(made_up: Board) -> None:
    built = IndexCost(3.0, 1200, 34, 0, 5, 0.01, False)
    first, *others = made_up.rows
    tree = drawn(replace(made_up, rows=(replace(first, indexing=built), *others)))
    tokens = cells(tree, first.run.method)[-3]
    assert "+ 1,234 for the index" in words(tokens)
    assert built.in_words() in tokens.tip


def test_chart_marks_incomparable_results(made_up: Board) -> None:
    chosen = next(row for row in made_up.rows if not row.control and row.run.status == "finished" and not row.cells[F1].apart)
    why = "contaminated: madeup:test was trained on"
    apart = {metric: replace(cell, apart=why) for metric, cell in chosen.cells.items()}
    rows = tuple(replace(row, cells=apart) if row is chosen else row for row in made_up.rows)
    boards_with = (replace(made_up, rows=rows), replace(made_up, rows=(chosen,)))
    marked, before = (json.dumps(intervals(board, F1, shown(board).board.rows, DEFINITIONS)) for board in boards_with)
    assert f"; {why} (not comparable)" in marked
    assert pictures.KINDS[pictures.APART][1] in marked
    assert "not comparable" not in before


def test_main_metrics_of_the_dataset_come_first(filled: Path) -> None:
    store = Store(filled)
    runs = [run.run for run in queries.runs(store)]
    result = families(score_queries.metric_ids(store, runs), score_queries.definitions(store), ("f1(rules=hotpotqa)", "em"))
    assert result[MAIN][:2] == [F1, EM]
    assert result["retrieval"] == ["recall@5#v2", "hit@5#v2"]
    # If the question is not about the dataset's main metric, the experiment's own order applies.
    other = families([EM, "recall@5#v2", "hit@5#v2"], score_queries.definitions(store), ("f1(rules=hotpotqa)", "recall@5"))
    assert other[MAIN][:2] == [EM, "recall@5#v2"]
    assert set(result["all"]) == {F1, EM, PERPLEXITY, "recall@5#v2", "hit@5#v2"}


def test_controls_misranked_by_a_metric_are_noted_in_its_column_head_and_below(made_up: Board) -> None:
    flagged = replace(made_up, flags={F1: ["ranks idk as high as the best method"]})
    assert "F1 ⚑" in words(next(drawn(flagged).find(tag="thead")))
    assert "⚑ F1 (rules=hotpotqa) ranks idk as high as the best method" in words(legend(shown(flagged)))
    assert "⚑" not in words(next(drawn(made_up).find(tag="thead"))) + words(legend(shown(made_up)))


def test_cells_of_the_ranking_metric_show_the_rank_range_of_the_tests(made_up: Board) -> None:
    able = [row for row in made_up.rows if not row.control and F1 in row.cells and not row.cells[F1].apart]
    assert len(able) > 2
    bands = {
        row.run.run: Band(position + 1, 1 + (position > 1), len(able), Standing.NO_DIFFERENCE if position < 2 else Standing.BEHIND)
        for position, row in enumerate(able)
    }
    bands[able[0].run.run] = Band(1, 1, 1, Standing.BEST)
    tree = drawn(made_up, F1, bands)
    for row in made_up.rows:
        first, *others = cells(tree, row.run.method)
        band = bands.get(row.run.run)
        assert not any("rank" in words(cell) for cell in others)
        if band is None:
            assert "rank" not in words(first)
            continue
        sure = band.low == band.high == band.rank
        assert f"rank {band.rank}" + ("" if sure else f" ({band.low}–{band.high})") in words(first)
        assert str(band.standing) in first.tip
        assert ("●" in words(first), "○" in words(first)) == (band.standing is Standing.BEST, band.standing is Standing.NO_DIFFERENCE)
    assert not any("rank" in words(cell) for cell in drawn(made_up).find(tag="td"))


@pytest.mark.parametrize("metric", [F1, EM])
def test_minimum_detectable_difference_is_that_of_the_first_metric(made_up: Board, metric: str) -> None:
    first = shown(replace(made_up, metrics=(F1, EM)), metric)
    assert f"inimum detectable difference in {metric_label(metric, (F1, EM))}:" in words(legend(first))


def test_reference_is_one_of_two_pipelines_with_its_name(made_up: Board) -> None:
    first = next(row for row in made_up.rows if row.run.method == made_up.reference)
    second = next(row for row in made_up.rows if row.run.method == "dense")
    twin = replace(second, run=replace(second.run, method=first.run.method, experiment="other", description={"method": {"id": "dense"}}))
    others = [row for row in made_up.rows if row not in (first, second)]
    table = shown(replace(made_up, rows=(first, twin, *others)))
    assert {f"{first.run.method} · {row.run.method_id}" for row in (first, twin)} <= {row.name for row in table.board.rows}
    marked = [name for name, line in lines(still(table)).items() if "reference" in map(words, line.find(cls="badge"))]
    assert marked == [f"{first.run.method} · {first.run.method_id}"]
    assert table.board.without_reference() == {}
