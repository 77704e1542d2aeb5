"""The comparison page shows what `results.boards.compare` computed, and handles any URL."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
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


def scored(picture: Any) -> list[dict[str, str]]:
    """Return the data of a scatter plot: the two scores, the number of questions and an example."""
    return [dict(zip(("x", "y", "questions", "example"), line, strict=True)) for line in list(csv.reader(io.StringIO(picture.csv())))[1:]]


def test_scatter_counts_every_question_scored_for_both_runs(three_runs: Comparison) -> None:
    picture, sides = compare_charts.scatter(three_runs, 0, 1, PERCENT)
    item = three_runs.pairs[0].difference
    assert (sides["above"], sides["on"], sides["below"]) == (item.losses, item.ties, item.wins)
    points = scored(picture)
    assert sum(int(point["questions"]) for point in points) == item.n
    assert len({(point["x"], point["y"]) for point in points}) == len(points)


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


def test_scatter_marks_have_the_position_and_label_of_their_scores(three_runs: Comparison) -> None:
    picture, _ = compare_charts.scatter(three_runs, 0, 1, PERCENT)
    assert picture is not None
    first, second = (run.method for run in three_runs.runs[:2])
    known, points = marks(picture), scored(picture)
    assert len(known) == len(points)
    centers = []
    for point in points:
        x, y = float(point["x"]), float(point["y"])
        ((look, right, top, _),) = (
            rest for tip, *rest in known if f"{first} {x:.1f}, {second} {y:.1f}." in tip and point["example"] in tip
        )
        assert look == compare_charts.SIDES["above" if y > x else "below" if y < x else "on"][0]
        centers.append((x, right, y, top))
    across, right, up, top = np.array(centers).T
    assert np.polyfit(across, right, 1, full=True)[1] == pytest.approx(0, abs=0.1)
    assert np.corrcoef(up, top)[0, 1] == pytest.approx(-1)
    assert picture[1]["role"] == "img"
    assert picture.csv().splitlines()[0] == f"{first},{second},questions,example"


def marks(picture: Any) -> list[tuple[str, str, float, float, float]]:
    """Return the hover text, color, center and width of each mark."""
    results = []
    for part in picture[2]:
        if isinstance(part, list) and "bubble" in part[1].get("class", ""):
            title, dot = part[2]
            if dot[0] == "circle":
                x, y, width = float(dot[1]["cx"]), float(dot[1]["cy"]), 2 * float(dot[1]["r"])
            else:
                _, x, y, _, _, up, _, *_ = (float(n) if n.strip("-.0123456789") == "" else n for n in dot[1]["d"].split())
                width = 2 * abs(up)
            results.append((title[2][0], part[1]["class"].split()[-1], x, y, width))
    return results


def planted(three_runs: Comparison, pairs: list[tuple[float, float]]) -> Comparison:
    """Return a comparison whose first two runs have these scores."""
    questions = [three_runs.questions[0]] * len(pairs)
    return replace(three_runs, questions=questions, values=np.array(pairs).T)


def test_mark_areas_are_proportional_to_question_counts(three_runs: Comparison) -> None:
    picture, _ = compare_charts.scatter(planted(three_runs, [(1.0, 0.0)] * 100 + [(0.0, 0.0)] * 400), 0, 1, PERCENT)
    first, second = marks(picture)
    widths = first[-1] / 10, second[-1] / 12
    assert widths[0] ** 2 == pytest.approx(4 * widths[1] ** 2, rel=0.03)


def test_infinite_and_equal_values_are_drawn_without_an_error(three_runs: Comparison) -> None:
    assert compare_charts.scatter(planted(three_runs, [(math.inf, 1.0)]), 0, 1, PERCENT)[0] is None
    picture, sides = compare_charts.scatter(planted(three_runs, [(math.inf, 1.0), (1.0, 1.0)]), 0, 1, PERCENT)
    ((_, _, x, y, _),) = marks(picture)
    assert np.isfinite([x, y]).all()
    assert sides == {"below": 1, "on": 1}
