"""The report: one file without external resources whose numbers equal the board and in which stored text stays text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderboard.elements import pictures
from leaderboard.elements.formats import PERCENT
from leaderboard.matrix.benchmark import intervals, of_metrics
from leaderboard.matrix.rows import Order, ordered
from leaderboard.report import as_json, page, report, sortable
from leaderboard.views.budget import pareto_chart
from ragmeter.cli import main
from results.boards.board import Board, boards
from results.boards.budget import quality_budget
from results.boards.verdict_of import verdicts
from results.store import queries, score_queries
from results.store.store import Store
from tests.support.nodes import from_json

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
F1, PERPLEXITY = "f1(rules=hotpotqa)#v2", "perplexity#v1"


class Elements(HTMLParser):
    """Start tags with their attributes, and the text of each script and style."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.blocks: dict[str, str] = {}
        self.outside = ""
        self._inside: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = f"{tag} {dict(attrs).get('type') or ''}".strip() if tag in ("script", "style") else None

    def handle_endtag(self, tag: str) -> None:
        self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside is None:
            self.outside += data
        else:
            self.blocks[self._inside] = self.blocks.get(self._inside, "") + data


@pytest.fixture(scope="module")
def html(filled: Path, synthetic: ModuleType) -> str:
    return report(Store(filled), synthetic.EXPERIMENT, NOW)


@pytest.fixture(scope="module")
def made_up(filled: Path, synthetic: ModuleType) -> Board:
    (result,) = boards(Store(filled), synthetic.EXPERIMENT, metrics=[F1, PERPLEXITY])
    return result


def parts(drawing: Any, tag: str) -> list[Any]:
    if isinstance(drawing, str):
        return []
    result = [drawing] if drawing[0] == tag else []
    return result + [part for child in drawing[2] for part in parts(child, tag)]


@pytest.mark.slow
def test_report_structure_does_not_depend_on_the_stored_data(html: str) -> None:
    result, empty = Elements(html), Elements(page({"title": "", "parts": []}))
    assert result.tags == empty.tags
    assert result.outside == empty.outside
    assert [tag for tag, _ in result.tags].count("script") == 2
    assert {key: block for key, block in result.blocks.items() if "json" not in key} == {
        key: block for key, block in empty.blocks.items() if "json" not in key
    }


def test_report_loads_no_external_resources(html: str) -> None:
    result = Elements(html)
    assert not any({"src", "href", "srcset", "action", "data"} & attributes.keys() for _, attributes in result.tags)
    assert not re.search(r"@import|url\(|\bimport\b|\bfetch\(", result.blocks["style"] + result.blocks["script module"])


def test_report_policy_allows_only_its_own_script_and_style(html: str) -> None:
    result = Elements(html)
    (policy,) = [attributes["content"] for _, attributes in result.tags if "http-equiv" in attributes]
    assert policy
    assert policy.startswith("default-src 'none';")
    for block, kind in (("script module", "script-src"), ("style", "style-src")):
        digest = base64.b64encode(hashlib.sha256(result.blocks[block].encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}';" in policy


def test_report_data_cannot_start_a_tag(html: str, synthetic: ModuleType) -> None:
    block = Elements(html).blocks["script application/json"]
    assert not set(block) & set("<>&\u2028\u2029")
    data = json.loads(block)
    methods = [row["method"] for board in data["board"]["boards"] for row in board["rows"]]
    assert synthetic.HOSTILE_NAME in methods
    assert "unicode-bidi: isolate" in html, "characters that turn text must not reach beyond their element"


@pytest.mark.slow
@given(st.recursive(st.text() | st.integers() | st.none(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_escaped_json_parses_to_the_same_value(value: Any) -> None:
    text = as_json(value)
    assert json.loads(text) == value
    assert not set(text) & set("<>&\u2028\u2029")


def test_report_embeds_the_complete_board(html: str, filled: Path, synthetic: ModuleType) -> None:
    store, document = Store(filled), json.loads(Elements(html).blocks["script application/json"])["board"]
    assert (document["format"], document["version"]) == ("ragmeter-board", 2)
    assert document["generated"] == "2026-01-02T03:04:05+00:00"
    assert document["verdicts"] == [verdict.to_json() for verdict in verdicts(store, synthetic.EXPERIMENT)]
    assert document["boards"] == [json.loads(json.dumps(board.to_json())) for board in boards(store, synthetic.EXPERIMENT)]
    assert set(document["metrics"]) == set(document["boards"][0]["metrics"])
    assert document["metrics"][F1]["definition"] == score_queries.definitions(store)[F1]["definition"]


def test_report_table_orders_equal_the_board(made_up: Board, filled: Path) -> None:
    definitions = score_queries.definitions(Store(filled))
    table = of_metrics(made_up, F1, definitions, ({}, {}), {})
    result = sortable(table)
    assert len(result["orders"]) == 2 * len({key.partition("|")[0] for key in result["orders"]})
    for key, order in result["orders"].items():
        column, _, direction = key.partition("|")
        rows = [from_json(json.dumps(result["rows"][number])) for number in order]
        names = ["".join(node.texts()) for row in rows for node in row.find(cls="method")]
        assert names == [row.name for row in ordered(table.board, Order(column, direction == "desc"))]


def test_dots_are_drawn_at_their_values(made_up: Board, filled: Path) -> None:
    definitions = score_queries.definitions(Store(filled))
    drawing = intervals(made_up, F1, of_metrics(made_up, F1, definitions, ({}, {}), {}).board.rows, definitions)
    marks = [mark for mark in parts(drawing, "g") if str(mark[1].get("class", "")).startswith("mark")]
    assert len(marks) == len(made_up.rows)
    placed = []
    for mark, row in zip(marks, made_up.rows, strict=True):
        assert mark[2][0][2][0].startswith(row.run.method)
        dot = parts(mark, "path")[-1]
        placed.append((row.cells[F1].estimate.value, float(dot[1]["d"].split()[1])))
    placed.sort()
    (low, left), *_, (high, right) = placed
    for value, at in placed:
        assert at == pytest.approx(left + (value - low) / (high - low) * (right - left), abs=0.11)


def test_front_line_passes_through_its_methods(made_up: Board) -> None:
    rows = quality_budget(made_up, F1, "seconds")
    drawing = pareto_chart(rows, "seconds", F1, PERCENT)
    (front,) = [path for path in parts(drawing, "path") if path[1].get("class") == "front"]
    assert front[1]["d"].count("V") == sum(row.front for row in rows) - 1
    marks = [mark for mark in parts(drawing, "g") if len(mark[2]) > 1 and pictures.KINDS[pictures.ON][1] in str(mark)]
    assert len(marks) == sum(row.front for row in rows)


def test_labels_do_not_overlap_and_the_highest_come_first() -> None:
    close = [("lower", 104.0, 102.0), ("upper", 100.0, 100.0), ("far", 400.0, 300.0)]
    assert [text[2][0] for text in pictures._names(close, pictures.WIDTH)] == ["upper", "lower", "far"]
    assert [text[1]["text-anchor"] for text in pictures._names(close, pictures.WIDTH)] == ["start", "end", "start"]
    crowd = [("n" * 20, 400.0 + number, 100.0) for number in range(20)]
    assert len(pictures._names(crowd, pictures.WIDTH)) == 2
    edge = pictures._names([("n" * 20, pictures.WIDTH - 5.0, 100.0)], pictures.WIDTH)
    assert edge[0][1]["text-anchor"] == "end"


def test_drawings_use_only_allowed_elements() -> None:
    with pytest.raises(ValueError, match="script"):
        pictures.shape("script", "x")
    with pytest.raises(ValueError, match="onload"):
        pictures.shape("svg", onload="x")


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_are_few_round_and_within_the_range(low: float, width: float) -> None:
    high = low + width
    if high - low < 1e-9 * max(1.0, abs(low)):
        return
    results = pictures.ticks(low, high)
    assert 1 <= len(results) <= 8
    assert results == sorted(set(results))
    slack = 1e-6 * max(abs(low), abs(high), width)
    assert low - slack <= results[0]
    assert results[-1] <= high + slack


def test_axis_over_whole_numbers_has_no_ticks_between_them() -> None:
    assert pictures._Line(0.96, 2.04, 0, 1, whole=True).marks() == [1, 2]
    assert len(pictures._Line(0.96, 2.04, 0, 1).marks()) > 2


def ragmeter(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["ragmeter", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


@pytest.mark.slow
def test_report_command_writes_both_files(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], synthetic: ModuleType
) -> None:
    html, board = tmp_path / "r.html", tmp_path / "b.json"
    assert ragmeter(monkeypatch, "results", "report", "-o", str(html), "--board", str(board), "--store", str(filled), "--json") == 0
    response = json.loads(capsys.readouterr().out)
    assert response == {"experiment": synthetic.EXPERIMENT, "files": [str(html), str(board)]}
    assert html.read_text("utf-8").startswith("<!doctype html>")
    assert json.loads(board.read_text("utf-8"))["experiment"] == synthetic.EXPERIMENT


def test_unwritable_output_file_is_reported(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("leaderboard.report.report", lambda *_: "")
    there = tmp_path / "none" / "r.html"
    assert ragmeter(monkeypatch, "results", "report", "-o", str(there), "--store", str(filled)) == 2
    response = capsys.readouterr()
    assert "cannot be written" in (response.out + response.err)


def test_unknown_experiment_is_refused(filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = tmp_path / "r.html"
    assert ragmeter(monkeypatch, "results", "report", "nothing", "-o", str(there), "--store", str(filled)) == 2
    assert not there.exists()


def test_browser_draws_and_sorts_the_report_without_running_stored_text(
    html: str, tmp_path: Path, browser: Any, synthetic: ModuleType
) -> None:
    path = tmp_path / "report.html"
    path.write_text(html, "utf-8")
    opened = browser.new_page()
    responses: list[str] = []
    opened.on("console", lambda message: responses.append(message.text))
    opened.on("pageerror", lambda error: responses.append(str(error)))
    opened.on("request", lambda request: responses.append(request.url) if not request.url.startswith("file:") else None)
    opened.goto(path.as_uri())
    opened.wait_for_selector(".chart svg")
    names = opened.locator("table.board").first.locator("tbody .method")
    before = names.all_inner_texts()
    assert synthetic.HOSTILE_NAME in before
    heads = opened.locator("table.board").first.locator("thead")

    def sorted_by(key: str) -> tuple[str | None, str]:
        heads.locator(f'[data-key="sort-{key}"]').click()
        assert heads.locator('[aria-sort$="ending"]').count() == heads.locator(".arrow").count() == 1
        head = heads.locator("th", has=opened.locator(f'[data-key="sort-{key}"]'))
        return head.get_attribute("aria-sort"), head.locator(".arrow").inner_text()

    assert sorted_by("method") == ("ascending", "↑")
    after = names.all_inner_texts()
    assert after[:-2] == sorted(before[:-2], key=str.casefold)
    assert sorted_by("method") == ("descending", "↓")
    assert names.all_inner_texts()[:-2] == after[-3::-1]
    assert sorted_by(F1) == ("descending", "↓"), "as at first"
    assert names.all_inner_texts() == before
    assert opened.evaluate("window.pwned") is None
    assert opened.locator("img, iframe, object").count() == 0
    assert opened.locator(".chart svg").count() >= 3
    assert responses == []
    with opened.expect_download() as saved:
        opened.locator(".files button", has_text="SVG").first.click()
    drawn = list(ElementTree.fromstring(Path(saved.value.path()).read_text("utf-8")).iter())
    assert {str(part.tag).rpartition("}")[2] for part in drawn} <= {*pictures.TAGS, "style"}
    assert {name for part in drawn for name in part.attrib} <= {*pictures.ATTRIBUTES, "width", "height"}
    assert any(str(part.text).startswith(synthetic.HOSTILE_NAME) for part in drawn), "text stays text"
    # Titles contain whole judge ids, which are one word.
    wide = opened.locator(".chart svg").first.get_attribute("viewBox")
    opened.set_viewport_size({"width": 390, "height": 844})
    assert opened.evaluate("document.documentElement.scrollWidth") <= 390
    narrow = opened.locator(".chart svg").first.get_attribute("viewBox")
    assert [str(box).split()[2] for box in (wide, narrow)] == [str(pictures.WIDTH), str(pictures.NARROW)]


def test_no_column_is_cut_off_on_paper(html: str, tmp_path: Path, browser: Any) -> None:
    path = tmp_path / "report.html"
    path.write_text(html, "utf-8")
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(path.as_uri())
    page.wait_for_selector("table")
    too_wide = """() => [...document.querySelectorAll("main .scroll")].filter((one) => one.getBoundingClientRect().right + 2 <
        Math.max(...[...one.querySelectorAll("th, td")].map((cell) => cell.getBoundingClientRect().right))).length"""
    page.set_viewport_size({"width": 980, "height": 700})
    assert page.evaluate(too_wide) > 0, "this report has a table that is wider than paper"
    page.evaluate("() => dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate(too_wide) == 0
    assert page.evaluate("() => getComputedStyle(document.querySelector('h1')).color") == "rgb(26, 31, 38)", "dark text on white paper"
    page.close()


def test_axe_finds_no_serious_problem_in_a_report(html: str, tmp_path: Path, browser: Any, accessible: Callable[[Any], None]) -> None:
    path = tmp_path / "report.html"
    path.write_text(html, "utf-8")
    opened = browser.new_page()
    opened.goto(path.as_uri())
    opened.wait_for_selector(".chart svg")
    accessible(opened)


def test_report_contains_the_provenance_of_each_run(html: str, filled: Path, synthetic: ModuleType) -> None:
    parts = json.loads(Elements(html).blocks["script application/json"])["parts"]
    sources = parts[-1]
    response = " ".join(from_json(json.dumps(sources)).texts())
    for run in queries.runs(Store(filled), synthetic.EXPERIMENT):
        assert run.run in response
        assert run.dataset_fingerprint in response
    assert "machine none" in response


@pytest.mark.slow
def test_report_contains_the_matrix_and_tables_for_every_judge_and_style(several: Path) -> None:
    store = Store(several)
    name = queries.experiments(store)[0].name
    text = report(store, name, NOW)
    data = json.loads(re.search(r'<script type="application/json" id="report">(.*?)</script>', text, re.DOTALL)[1])
    response = " ".join(from_json(json.dumps(next(part["tree"] for part in data["parts"] if isinstance(part, dict)))).texts())
    document = data["board"]
    assert document["matrix"]
    scored = {(item["dataset"], item["setting"]) for item in document["matrix"] if item["source"] == "measured"}
    assert scored == {(board["dataset"], board["setting"]) for board in document["boards"] if board["metrics"]}
    for item in document["matrix"]:
        if item["source"] == "measured" and item["value"] is not None and item["unit"] == "fraction":
            assert f"{100 * item['value']:.1f}" in response
