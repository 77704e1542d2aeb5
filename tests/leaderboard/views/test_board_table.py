"""The board's table shows what `results.boards.board` computed."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from leaderboard.elements import pictures
from leaderboard.elements.formats import MAIN, families
from leaderboard.elements.nodes import Node, Order
from leaderboard.views import board as drawings
from leaderboard.views.board import draw_board, ordered, ranks, sort_columns
from results.boards.board import Board, boards
from results.statistics.places import Band, Standing
from results.store import queries, score_queries
from results.store.store import Store

F1, EM, PERPLEXITY = "f1(rules=hotpotqa)#v1", "em#v1", "perplexity#v1"
DEFINITIONS = {
    F1: {"definition": "overlap", "low": 0.0, "high": 1.0, "higher_is_better": True, "group": "answer", "source": "x"},
    EM: {"definition": "equal", "low": 0.0, "high": 1.0, "higher_is_better": True, "group": "answer", "source": "x"},
    PERPLEXITY: {"definition": "p", "low": 0.0, "high": None, "higher_is_better": False, "group": "text", "source": "x", "unit": "number"},
}


@pytest.fixture(scope="module")
def made_up(filled: Path, synthetic: ModuleType) -> Board:
    (result,) = boards(Store(filled), synthetic.EXPERIMENT, metrics=[F1, EM, PERPLEXITY])
    return result


def lines(tree: Node) -> list[Node]:
    body = next(tree.find(tag="tbody"))
    return [row for row in body.find(tag="tr") if "divider" not in row.classes]


def names(tree: Node) -> list[str]:
    return ["".join(next(row.find(cls="method")).texts()) for row in lines(tree)]


def shown(tree: Node, method: str) -> str:
    return " ".join(lines(tree)[names(tree).index(method)].texts())


def test_every_displayed_value_equals_the_board(made_up: Board) -> None:
    tree = draw_board(made_up, F1, Order("rank", False), DEFINITIONS)
    for row in made_up.rows:
        line = shown(tree, row.run.method).replace("(", "").replace(")", "")  # brackets of incomparable values
        for metric, factor, digits in ((F1, 100, 1), (EM, 100, 1), (PERPLEXITY, 1, 2)):
            result = row.cells[metric].estimate
            low, value, high = (f"{factor * number:.{digits}f}" for number in (result.low, result.value, result.high))
            assert (f"{value} –" if math.isnan(result.low) else f"{value} [{low}, {high}]") in line
        paired = row.cells[F1].difference
        if paired is not None:
            assert f"{100 * paired.value:+.1f}".replace("-", "−") in line
        assert f"{row.cells[F1].estimate.n} of {made_up.questions}" in line


def test_marks_are_shown_where_the_corrected_test_rejects(made_up: Board) -> None:
    tree = draw_board(made_up, F1, Order("rank", False), DEFINITIONS)
    for row in made_up.rows:
        marks = list(lines(tree)[names(tree).index(row.run.method)].find(tag="span", cls="mark-better"))
        marks += lines(tree)[names(tree).index(row.run.method)].find(tag="span", cls="mark-worse")
        rejected = [c for c in row.cells.values() if c.p_holm is not None and c.p_holm < 0.05]
        assert len(marks) == len(rejected)
    assert "▲" in " ".join(tree.texts())
    assert "▼" in " ".join(tree.texts())


def test_lower_perplexity_is_marked_as_better(made_up: Board) -> None:
    alone = replace(made_up, metrics=(PERPLEXITY,))
    tree = draw_board(alone, PERPLEXITY, Order("rank", False), DEFINITIONS)
    row = next(row for row in made_up.rows if row.run.method == "hybrid")
    difference = row.cells[PERPLEXITY].difference
    assert difference is not None
    assert difference.value < 0
    line = lines(tree)[names(tree).index("hybrid")]
    assert next(line.find(cls="mark-better")).attributes["label"] == "significantly better than bm25, p < .001"


def test_controls_and_unfinished_runs_have_no_rank(made_up: Board) -> None:
    positions = ranks(made_up, F1, DEFINITIONS)
    ranked = {row.run.method for row in made_up.rows if row.run.run in positions}
    assert not ranked & {"gold answer", "oracle evidence", "full context"}
    values = sorted((row.cells[F1].estimate.value for row in made_up.rows if row.run.method in ranked), reverse=True)
    by_place = sorted((positions[row.run.run], row.cells[F1].estimate.value) for row in made_up.rows if row.run.run in positions)
    assert [value for _, value in by_place] == values
    assert by_place[0][0] == 1


def test_implausible_and_contaminated_results_have_no_rank(made_up: Board) -> None:
    first, second, *others = made_up.rows
    broken, leaky = (
        replace(row, cells={metric: replace(cell, apart=why) for metric, cell in row.cells.items()})
        for row, why in ((first, "these scores cannot be right"), (second, "contaminated: madeup:test was trained on"))
    )
    before, after = (ranks(board, F1, DEFINITIONS) for board in (made_up, replace(made_up, rows=(broken, leaky, *others))))
    assert {first.run.run, second.run.run} <= before.keys()
    assert after.keys() == before.keys() - {first.run.run, second.run.run}
    assert 1 in after.values()


def test_implausible_submission_is_marked(made_up: Board) -> None:
    first, *others = made_up.rows
    sent = replace(first, run=replace(first.run, card={"submission": {"implausible": ["one answer to everything"]}}))
    trees = [draw_board(replace(made_up, rows=(row, *others)), F1, Order("rank", False), DEFINITIONS) for row in (sent, first)]
    assert ["implausible" in shown(tree, first.run.method) for tree in trees] == [True, False]


def test_rank_one_is_the_lowest_value_for_lower_is_better_metrics(made_up: Board) -> None:
    positions = ranks(made_up, PERPLEXITY, DEFINITIONS)
    best = min((r for r in made_up.rows if r.run.run in positions), key=lambda r: r.cells[PERPLEXITY].estimate.value)
    assert positions[best.run.run] == 1


@pytest.mark.parametrize("descending", [False, True])
def test_sorting_orders_methods_and_keeps_controls_below(made_up: Board, descending: bool) -> None:
    for column in sort_columns(made_up):
        rows = ordered(made_up, F1, Order(column, descending), DEFINITIONS)
        assert sorted(row.run.run for row in rows) == sorted(row.run.run for row in made_up.rows)
        kinds = [row.control for row in rows]
        assert kinds == sorted(kinds)
        if column in made_up.metrics:
            for part in (False, True):
                values = [row.cells[column].estimate.value for row in rows if row.control is part]
                assert values == sorted(values, reverse=descending)
        if column == "seconds":
            spent = [row.cost.seconds for row in rows if row.cost and not row.control]
            assert spent == sorted(spent, reverse=descending)
        if column == "method":
            called = [row.run.method.casefold() for row in rows if not row.control]
            assert called == sorted(called, reverse=descending)


def test_difference_column_requires_a_reference(filled: Path) -> None:
    result = boards(Store(filled), None, metrics=[F1])[0]
    tree = draw_board(result, F1, Order("rank", False), DEFINITIONS)
    assert "Δ" not in " ".join(tree.texts())
    assert not list(tree.find(cls="mark-better"))


def test_sorted_column_head_is_marked_and_reverses_on_the_next_click(made_up: Board) -> None:
    tree = draw_board(made_up, F1, Order(F1, True), DEFINITIONS)
    (head,) = [node for node in tree.find(tag="th") if node.attributes.get("sort") not in (None, "none")]
    assert head.attributes["sort"] == "descending"
    assert next(head.find(tag="button")).action == {"sort": F1, "order": "asc"}


def test_running_failed_and_unscorable_states_are_shown(made_up: Board) -> None:
    tree = draw_board(made_up, F1, Order("rank", False), DEFINITIONS)
    assert "running 13/40" in shown(tree, "full context")
    assert "failed" in shown(tree, "closed book")
    assert "39 of 40 1 unscorable" in shown(tree, "bm25")
    assert "reference" in shown(tree, "bm25")
    assert "control" in shown(tree, "gold answer")


def test_chart_marks_incomparable_results(made_up: Board) -> None:
    chosen = next(row for row in made_up.rows if not row.control and row.run.status == "finished" and not row.cells[F1].apart)
    why = "contaminated: madeup:test was trained on"
    cells = {metric: replace(cell, apart=why) for metric, cell in chosen.cells.items()}
    rows = [replace(row, cells=cells) if row is chosen else row for row in made_up.rows]
    drawing = json.dumps(drawings.intervals(replace(made_up, rows=tuple(rows)), rows, F1, DEFINITIONS))
    assert f"; {why} (not comparable)" in drawing
    assert pictures.KINDS[pictures.APART][1] in drawing
    before = json.dumps(drawings.intervals(made_up, [chosen], F1, DEFINITIONS))
    assert "not comparable" not in before
    assert len(drawings.flag_notes(replace(made_up, rows=tuple(rows)))) == 1, "values in parentheses are explained"
    assert not drawings.flag_notes(replace(made_up, rows=(chosen,)))


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


def test_controls_misranked_by_a_metric_are_noted_in_its_column_head(made_up: Board) -> None:
    flagged = replace(made_up, flags={F1: ["ranks idk as high as the best method"]})
    tree = draw_board(flagged, F1, Order("rank", False), DEFINITIONS)
    heads = "".join(next(tree.find(tag="thead")).texts())
    assert "F1 ⚑" in heads
    assert "⚑" not in "".join(next(draw_board(made_up, F1, Order("rank", False), DEFINITIONS).find(tag="thead")).texts())


def test_run_with_implausible_scores_is_marked(made_up: Board) -> None:
    broken = replace(made_up.rows[0], violations=("recall@1 is greater than recall@5 for 2 questions",))
    tree = draw_board(replace(made_up, rows=(broken, *made_up.rows[1:])), F1, Order("rank", False), DEFINITIONS)
    assert "inconsistent" in shown(tree, broken.run.method)
    assert not any("inconsistent" in shown(tree, row.run.method) for row in made_up.rows[1:])


def test_rank_cell_shows_the_rank_range_of_the_tests(made_up: Board) -> None:
    able = [row for row in made_up.rows if not row.control and F1 in row.cells and not row.cells[F1].apart]
    assert len(able) > 2
    bands = {
        row.run.run: Band(position + 1, 1 + (position > 1), len(able), Standing.NO_DIFFERENCE if position < 2 else Standing.BEHIND)
        for position, row in enumerate(able)
    }
    bands[able[0].run.run] = Band(1, 1, 1, Standing.BEST)
    positions = ranks(made_up, F1, DEFINITIONS)
    tree = draw_board(made_up, F1, Order("rank", False), DEFINITIONS, bands)
    for row in made_up.rows:
        line = lines(tree)[names(tree).index(row.run.method)]
        cell = next(line.find(cls="narrow"))
        band, rank = bands.get(row.run.run), positions.get(row.run.run)
        if rank is None:
            assert list(cell.texts()) == ["–"]
            continue
        assert band is not None
        sure = band.low == band.high == rank
        assert list(cell.texts()) == ([str(rank)] if sure else [str(rank), f"{band.low}–{band.high}"])
        assert (str(band.standing) in cell.tip) == (not sure)
        # The mark is only in the cell of the ranking metric.
        assert len(list(line.find(cls="best"))) == (band.standing is Standing.BEST)
        assert len(list(line.find(cls="standing"))) == (band.standing is Standing.NO_DIFFERENCE)
    assert not list(draw_board(made_up, F1, Order("rank", False), DEFINITIONS).find(cls="best"))
