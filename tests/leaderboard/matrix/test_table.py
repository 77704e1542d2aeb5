"""The matrix as a table and as files: it shows what `results.boards.matrix` computed, and untrusted text never runs."""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from leaderboard.elements import formats
from leaderboard.elements.formats import MAIN, PERCENT
from leaderboard.elements.nodes import TAGS, Node
from leaderboard.matrix import exports, overall
from leaderboard.matrix.exports import CSV_COLUMNS
from leaderboard.matrix.rows import OWN, Order, columns_of, labels, ordered, visible_rows
from leaderboard.matrix.table import Shown, draw_matrix, explained, legend, pager
from results.boards import systems as column_figures
from results.boards.board import groups
from results.boards.markup import to_csv
from results.boards.matrix import Overall, matrix, ranked_cells, wanted_of
from results.boards.published import Comparison, published_for
from results.boards.systems import COSTS, systems
from results.statistics.core import Estimate
from results.statistics.difference import Range, Side
from results.statistics.places import Standing
from results.statistics.pooled import Stratum, pooled
from results.store import cost_queries, invariants, provenance, queries, score_queries
from results.store.store import Store
from tests.support.nodes import still


def made(folder: Path, measure: str) -> Shown:
    store = Store(folder)
    definitions = score_queries.definitions(store)
    boards = [runs for runs in groups(queries.runs(store, "several")) if runs[0].setting == "distractor"]
    ids = [run.run for runs in boards for run in runs]
    scored = column_figures.scored_metrics(store, ids)
    columns = columns_of(boards, scored, definitions, queries.datasets(store), MAIN, measure)
    cards = provenance.cards(store)
    rows = systems({column.key: column.runs for column in columns}, cards, {})
    result = column_figures.figures(store, wanted_of(columns))
    cells = ranked_cells(columns, rows, result, cards=cards, known={}, violations=invariants.violations(store, ids))
    board = matrix(columns, rows, result, cells, costs=cost_queries.costs(store, ids), reference="bm25")
    published: dict[tuple[str, str], Comparison] = {}
    for column in columns:
        for run in column.runs:
            known = published_for(run.dataset, run.setting, str(column.metric), run.description, estimate=Estimate(0.5, 0.4, 0.6, 60, 0))
            if known:
                published[column.key, run.run] = known[0]
    return Shown(board, labels(boards, "distractor"), {**definitions, **COSTS}, published)


@pytest.fixture(scope="module")
def shown(several: Path) -> Shown:
    return made(several, OWN)


@pytest.fixture(scope="module")
def tree(shown: Shown) -> Node:
    return draw_matrix(shown, ordered(shown.board, Order("method", False)), Order("method", False))


def lines(tree: Node) -> dict[str, Node]:
    body = next(tree.find(tag="tbody"))
    rows = [row for row in body.find(tag="tr") if "divider" not in row.classes]
    return {"".join(next(row.find(cls="method")).texts()): row for row in rows}


def text(node: Node) -> str:
    return " ".join(node.texts())


@pytest.mark.slow
def test_every_cell_shows_value_interval_and_rank(shown: Shown, tree: Node) -> None:
    results = lines(tree)
    assert len(results) == len(shown.board.rows)
    for row in shown.board.rows:
        cells = list(results[row.name].find(tag="td"))
        for column, cell, node in zip(shown.board.columns, shown.board.line(row), cells, strict=False):
            if cell is None:
                assert text(node) == "–"
                continue
            assert f"{100 * cell.value:.1f}" in text(node)
            assert PERCENT.around(cell.value, cell.low, cell.high) in text(node)
            assert (cell.band is None) == ("rank" not in text(node))
            assert ("apart" in node.classes.split()) == (bool(cell.apart) and row.name != "gold answer")
            assert (cell.band is not None and cell.band.standing is Standing.BEST) == bool(list(node.find(cls="best")))
            assert column.first.dataset.partition(":")[0] in "".join(shown.names[column.key])


def test_grayed_out_cells_show_a_short_reason_and_a_full_tooltip(tree: Node) -> None:
    result = lines(tree)
    assert "running" in text(result["half way"])
    assert "these scores cannot be right" in text(result["proven@2"])
    assert "contaminated" in text(result["cheat@1"])
    tips = " ".join(node.tip for node in result["cheat@1"].find(tag="td"))
    assert "Not ranked: contaminated: training data 1 (musique:dev) covers the evaluated split dev." in tips


def test_marks_are_shown_where_the_corrected_test_rejects(shown: Shown, tree: Node) -> None:
    result = lines(tree)
    seen = set()
    for row in shown.board.rows:
        marked = [(cls, node) for cls in ("better", "worse") for node in result[row.name].find(tag="td", cls=cls)]
        marks = [text(node)[0] for _, node in marked]
        assert all(f"Significantly {cls}: " in node.tip for cls, node in marked)
        assert {cls == "better" for cls, _ in marked} == {mark == "▲" for mark in marks}
        paired = [cell.paired for cell in shown.board.line(row) if cell is not None and cell.paired is not None]
        assert sorted(marks) == sorted("▲" if p.value > 0 else "▼" for p in paired if p.corrected < 0.05)
        seen |= set(marks)
    assert seen == {"▲", "▼"}


def test_badges_show_the_source_of_figures(tree: Node) -> None:
    results = {name: [text(badge) for badge in row.find(cls="badge")] for name, row in lines(tree).items()}
    assert results["bm25"] == ["reference"]
    first = {name: next(row.find(tag="th")) for name, row in lines(tree).items()}
    assert "measured" in [text(part) for part in first["bm25"].find(cls="aside")]
    assert "measured" not in text(first["sent@1"])
    # In the cell that stays visible when the table is scrolled.
    assert "submitted" in text(first["sent@1"])
    assert results["sent@1"] == ["submitted"]
    assert results["proven@2"] == ["verified"]
    assert "8.03 B" in text(lines(tree)["sent@1"])
    assert "open weights" in text(lines(tree)["sent@1"])


def test_published_figure_gap_and_status_are_shown_next_to_the_own_value(several: Path) -> None:
    shown = made(several, "recall@5#v2")
    order = Order("method", False)
    response = lines(draw_matrix(shown, ordered(shown.board, order), order, papers=True))
    hidden = lines(draw_matrix(shown, ordered(shown.board, order), order))
    row = next(row for row in shown.board.rows if row.name == "bm25")
    compared = 0
    for column, cell in zip(shown.board.columns, shown.board.line(row), strict=True):
        known = shown.comparison(column, cell) if cell is not None else None
        if cell is not None and known is not None:
            compared += 1
            assert f"{known.figure.paper.upper()} {known.figure.value}, gap " in text(response["bm25"])
            assert known.status in text(response["bm25"])
            assert known.status not in text(hidden["bm25"])
            assert f"prints {known.figure.value} {known.figure.unit}" in explained(shown, column, cell)
    assert compared


def test_column_heads_sort_and_open_the_board_of_a_benchmark(shown: Shown) -> None:
    order = Order(shown.board.columns[0].key, True)
    head = next(draw_matrix(shown, ordered(shown.board, order), order).find(tag="thead"))
    (active,) = [node for node in head.find(tag="th") if node.attributes.get("sort") not in (None, "none")]
    assert active.attributes["sort"] == "descending"
    sorter, opener = active.find(tag="button")
    assert sorter.action == {"sort": order.column, "order": "asc", "first": None}
    assert opener.action is not None
    assert opener.action["view"] == "benchmark"
    assert str(opener.action["board"]).startswith("hotpotqa:dev~distractor~0~")
    assert opener.action["metric"] == "em#v2"


def test_rows_offer_to_hide_themselves(shown: Shown) -> None:
    keys = [row.key for row in shown.board.rows]
    part = visible_rows(shown.board, Order("method", False), [keys[1], "no such row"], "", 0)
    result = draw_matrix(shown, part.rows, Order("method", False))
    actions = [node.action for node in result.find(tag="button") if node.action and node.action.keys() == {"hide"}]
    assert actions == [{"hide": row.key} for row in part.rows]
    assert keys[1] not in [row.key for row in part.rows]
    turning = pager(part, 25)
    assert turning is not None
    assert "1 hidden" in text(turning)
    assert {"hide": None} in [node.action for node in turning.find(tag="button")]


def test_pager_links_to_every_page(shown: Shown) -> None:
    seen, first = [], 0
    while True:
        part = visible_rows(shown.board, Order("method", False), [], "", first, page=4)
        seen += [row.name for row in part.rows if not row.control]
        turning = pager(part, 4)
        assert turning is not None
        follow = [node.action for node in turning.find(tag="button") if text(node) == "next"]
        if not follow:
            break
        first = int(str(follow[0]["first"]))  # type: ignore[index]
    assert sorted(seen) == sorted(row.name for row in shown.board.rows if not row.control)


def test_untrusted_names_are_text_leaves(tree: Node, matrix_store: ModuleType) -> None:
    assert matrix_store.EVIL in lines(tree)
    assert {node.tag for node in tree.find()} <= TAGS
    assert not list(tree.find(tag="a"))


def test_legend_counts_the_questions_of_columns_that_share_a_title(shown: Shown) -> None:
    first, second, *_ = keys = list(shown.board.sampled)
    board = replace(shown.board, questions={**dict.fromkeys(keys, 71), first: 72, second: 73})
    words = text(legend(replace(shown, board=board, names={key: ("same", key) for key in keys})))
    assert f"{first}: 72 questions" in words
    assert f"{second}: 73 questions" in words


def test_legend_states_correction_and_clusters_in_three_lines(shown: Shown) -> None:
    assert "Holm-corrected within the benchmark, 5 %" in text(legend(shown))
    assert "questions" in text(legend(shown))
    assert len(legend(shown).children) == 3
    assert "[low, high]" in text(legend(shown)), "asymmetric intervals are not ±"


def test_cells_link_to_their_questions_only_on_a_page(shown: Shown, tree: Node) -> None:
    order = Order("method", False)
    cell = next(cell for cell in shown.board.line(ordered(shown.board, order)[0]) if cell is not None)
    opened = [node.action for node in tree.find(tag="td") if node.action]
    assert {"runs": cell.run.run} in opened
    assert len(opened) == len(shown.board.cells)
    assert not [node for node in still(shown).find() if node.action and not node.action.keys() >= {"sort"}]


@pytest.mark.parametrize(
    ("number", "expected"),
    [(None, "–"), (0, "no model"), (950, "950"), (110_000_000, "110 M"), (7_240_000_000, "7.24 B"), (10**15, "1e+03 T")],
)
def test_parameter_counts_are_abbreviated(number: int | None, expected: str) -> None:
    assert formats.parameters(number) == expected


def test_csv_contains_every_cell_as_numbers(shown: Shown) -> None:
    rows = list(csv.DictReader(io.StringIO(exports.csv(shown, shown.board.rows))))
    assert list(rows[0]) == list(CSV_COLUMNS)
    assert len(rows) == len(shown.board.cells)
    by_run = {(row["run"], row["dataset"]): row for row in rows}
    for cell in shown.board.cells.values():
        line = by_run[cell.run.run, cell.run.dataset]
        assert float(line["value"]) == cell.value
        assert line["low"] == ("" if math.isnan(cell.low) else str(cell.low))
        assert line["not_comparable"] == cell.apart
        assert line["rank"] == (str(cell.band.rank) if cell.band else "")
        if cell.paired is not None:
            assert line["p_corrected"] == ("" if math.isnan(cell.paired.corrected) else str(cell.paired.corrected))
            assert float(line["difference"]) == cell.paired.value


def test_csv_cells_are_never_formulas_and_negative_numbers_stay_numbers(shown: Shown) -> None:
    rows = list(csv.reader(io.StringIO(exports.csv(shown, shown.board.rows))))
    assert any(cell.startswith("'=cmd|") for row in rows for cell in row)
    below = 0
    for row in rows[1:]:
        for cell in row:
            if cell[:1] in ("=", "+", "-", "@", "\t", "\r", "\n"):
                assert math.isfinite(float(cell))
                below += 1
    assert below


@pytest.mark.parametrize("evil", ["=1+1", "+1", "-1+cmd", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\r\n=1"])
def test_text_that_starts_a_formula_is_escaped(evil: str) -> None:
    (_, (cell, number)) = csv.reader(io.StringIO(to_csv(["a", "b"], [[evil, -1.5]])))
    assert cell.startswith("'")
    assert float(number) == -1.5


def test_pooled_differences_have_a_star_exactly_if_their_interval_excludes_zero(shown: Shown) -> None:
    rng, row = np.random.default_rng(7), shown.board.rows[0]
    parts = []
    for kin in range(3):
        ours = np.clip(rng.random((60, 40)) + rng.normal(0, 0.15, (60, 1)), 0, 1).round()
        sides = [[Side.of(scores) for scores in each] for each in (ours, rng.random((60, 40)).round())]
        parts.append(Stratum(*sides, [f"q{number}" for number in range(40)], None, kin, Range()))
    board = replace(shown.board, overall=tuple(Overall(row, 0.0, result) for result in pooled(parts)))
    summary = overall.overall(replace(shown, board=board))
    assert summary is not None
    cells = [text(next(row.find(tag="td"))) for row in next(summary.find(tag="tbody")).find(tag="tr")]
    number, seen = r"([+−-]?[\d.]+)", set()
    for cell in cells:
        match = re.fullmatch(rf"{number} (?:± {number}|\[{number}, {number}\])( ?\**)", cell)
        assert match, cell
        value, half, low, high = (None if text is None else float(text.replace("−", "-")) for text in match.groups()[:4])
        assert value is not None
        if half is not None:
            low, high = value - half, value + half
        assert low is not None
        assert high is not None
        assert (low > 0 or high < 0) == bool(match[5].strip())
        seen.add(bool(match[5].strip()))
    assert seen == {True, False}
