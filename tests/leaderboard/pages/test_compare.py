"""The comparison page shows what `results.boards.compare` computed, and handles any URL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from leaderboard.elements.formats import PERCENT, p_value
from leaderboard.pages import compare as compare_charts
from leaderboard.widgets import STYLE
from results.boards.compare import Comparison, compare
from results.boards.systems import IMPLAUSIBLE
from results.store import queries
from results.store.store import Store

Start = Callable[[Path], Any]
F1, PERPLEXITY = "f1(rules=hotpotqa)#v2", "perplexity#v1"


def words(node: Any) -> str:
    return " ".join(node.texts())


@pytest.fixture(scope="module")
def three_runs(filled: Path, synthetic: ModuleType) -> Comparison:
    store = Store(filled)
    runs = [run for run in queries.runs(store, synthetic.EXPERIMENT) if run.method in ("bm25", "dense", "hybrid")]
    return compare(store, runs, F1)


def test_pairs_show_interval_corrected_p_and_counts_over_common_questions(three_runs: Comparison) -> None:
    tree = compare_charts.pairs(three_runs, PERCENT, higher_is_better=True)
    lines = list(next(tree.find(tag="tbody")).find(tag="tr"))
    assert len(lines) == 3
    for line, pair in zip(lines, three_runs.pairs, strict=True):
        item, response = pair.difference, words(line)
        assert PERCENT.difference(item.value) in response
        assert PERCENT.differences(item.low, item.high) in response
        assert p_value(pair.p_holm) in response
        counts = [int(next(cell.texts())) for cell in list(line.find(tag="td"))[-3:]]
        assert counts == [item.wins, item.ties, item.losses]
        assert sum(counts) == item.n


def test_smaller_value_wins_for_lower_is_better_metrics(three_runs: Comparison) -> None:
    line = next(next(compare_charts.pairs(three_runs, PERCENT, higher_is_better=False).find(tag="tbody")).find(tag="tr"))
    item = three_runs.pairs[0].difference
    assert int(next(list(line.find(tag="td"))[-3].texts())) == item.losses


def test_compared_submission_keeps_the_marks_of_the_board(three_runs: Comparison) -> None:
    first, *others = three_runs.runs
    theirs = replace(first, origin="submitted", card={"submission": {IMPLAUSIBLE: ["why"]}})
    shown = words(compare_charts.values(replace(three_runs, runs=(theirs, *others)), PERCENT))
    assert (shown.count(IMPLAUSIBLE), shown.count("submitted")) == (1, 1)
    assert IMPLAUSIBLE not in words(compare_charts.values(three_runs, PERCENT))


def test_page_opens_with_three_finished_methods_without_controls(app: Start, filled: Path) -> None:
    page = app(filled).open("compare")
    assert not page.test.exception
    response = words(page.part("values"))
    assert "bm25" in response
    assert "gold answer" not in response
    assert len(list(page.part("pairs").find(tag="tr"))) == 4
    assert "bridge" in words(page.part("kinds"))


def test_six_runs_in_the_url_give_fifteen_pairs_and_a_seventh_is_ignored(app: Start, filled: Path, synthetic: ModuleType) -> None:
    able = [run.run for run in queries.runs(Store(filled), synthetic.EXPERIMENT) if run.kind != "control"]
    assert len(able) == 7
    page = app(filled).open("compare", runs=",".join(able))
    assert len(list(page.part("pairs").find(tag="tr"))) == 16


def test_url_with_unknown_names_falls_back_to_defaults(app: Start, filled: Path) -> None:
    usual = app(filled).open("compare")
    page = app(filled).open("compare", **{"runs": "../../etc,<script>", "x": "no", "y": "such", "from": "9" * 30})
    assert not page.test.exception
    assert page.part("pairs") == usual.part("pairs")
    assert page.part("apart") == usual.part("apart")


def test_paging_the_question_list_keeps_the_runs(app: Start, filled: Path, synthetic: ModuleType) -> None:
    able = [run.run for run in queries.runs(Store(filled), synthetic.EXPERIMENT) if run.kind != "control"]
    page = app(filled).open("compare", runs=",".join(able[:6]))
    before = words(page.part("apart"))
    runs = words(page.part("values"))
    later = next(button for button in page.test.button if button.label == "Later")
    assert not later.disabled
    later.click().run()
    assert words(page.part("apart")) != before
    assert words(page.part("values")) == runs
    assert page.query["from"] == "15"


def test_stage_attribution_lists_missing_settings(app: Start, filled: Path) -> None:
    response = words(app(filled).open("compare").part("stages"))
    assert "oracle(base=distractor)" in response
    assert "closed_book" in response


def test_board_with_one_run_shows_the_next_step(app: Start, copied: Callable[[], Path], synthetic: ModuleType) -> None:
    store = Store(copied())
    first = queries.runs(store, synthetic.EXPERIMENT)[0].run
    store.put_experiment("alone", "name: alone\n", None, None, None, [first])
    page = app(store.folder).open("compare", experiment="alone")
    assert not page.test.exception
    assert "two runs at least" in words(page.part("message"))


def test_untrusted_text_is_shown_as_plain_text(app: Start, filled: Path, synthetic: ModuleType) -> None:
    hostile = [run.run for run in queries.runs(Store(filled), synthetic.EXPERIMENT) if run.method in (synthetic.HOSTILE_NAME, "bm25")]
    page = app(filled).open("compare", runs=",".join(hostile))
    assert synthetic.HOSTILE_NAME in "".join(page.part("values").texts())
    assert not page.test.markdown
    assert {item.proto.body for item in page.test.get("html")} == {f"<style>{STYLE}</style>"}
