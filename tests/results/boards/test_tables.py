from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.core.unseen import UNSEEN
from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, DataReference
from benchmarks.schema import Question
from methods.api import Prediction
from results.boards.board import Board, boards
from results.boards.markup import latex_text, markdown_text, to_csv, to_latex, to_markdown
from results.boards.tables import CSV_COLUMNS, READ_UNKNOWN, footnotes, plus_minus, remarks, render
from results.store.store import FINISHED, INTERRUPTED, Run, Store
from tests.support.toy import CARD

EVIL = "=cmd|' /C calc'!A0 <script>&_%$#{}~^\\|*`[x](http://x)"
BASE = [1.0] * 20 + [0.0] * 20
BETTER = [1.0] * 38 + [0.0] * 2


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Board:
    store = Store(tmp_path_factory.mktemp("tables") / "store")
    queries = [Question(f"q{n}", f"what {n}?", ("a",)) for n in range(40)]
    benchmark = Benchmark(DataReference("toy", None, "dev"), 1, CARD, queries, Corpus.of([]))
    store.put_benchmark(benchmark, benchmark.fingerprint)
    for name, values in (("bm25", BASE), (EVIL, BETTER), ("gold", [1.0] * 40), ("half", BASE[:30])):
        kind = "control" if name == "gold" else "retriever"
        run = Run(f"run-{name[:4]}", name, name, kind, {}, "toy:dev", benchmark.fingerprint, "distractor", 0, 40, {})
        store.start(run)
        responses = [Prediction(q.id, "x") for q in queries[: len(values)]]
        store.append(run.run, responses, {"f1(rules=squad)#v2": np.array(values)})
        store.end(run.run, INTERRUPTED if name == "half" else FINISHED)
    store.put_experiment("toy", "name: toy", None, None, "bm25", ["run-bm25", f"run-{EVIL[:4]}", "run-gold", "run-half"])
    (result,) = boards(store, "toy")
    return result


@pytest.mark.slow
def test_csv_is_tidy_and_its_numbers_are_the_boards(board: Board) -> None:
    rows = list(csv.DictReader(io.StringIO(render([board], "csv"))))
    assert [row["metric"] for row in rows] == ["f1(rules=squad)#v2"] * 4
    assert list(rows[0]) == list(CSV_COLUMNS)
    for row, own in zip(rows, board.rows, strict=True):
        cell = own.cells["f1(rules=squad)#v2"]
        assert (float(row["value"]), float(row["low"])) == (cell.estimate.value, cell.estimate.low)
        assert row["unit"] == "fraction"
    reference, other, control, _ = rows
    assert (reference["difference"], reference["p_holm"], reference["reference"]) == ("", "", "")
    assert (float(other["difference"]), other["mark"], other["reference"]) == (0.45, "**", "bm25")
    assert (control["kind"], control["difference"]) == ("control", "")


def test_a_spreadsheet_never_takes_text_for_a_formula(board: Board) -> None:
    rows = list(csv.DictReader(io.StringIO(render([board], "csv"))))
    assert rows[1]["method"] == "'" + EVIL
    text = to_csv(["a", "b"], [[f"{start}x", -1.5] for start in "=+-@\t\r\n"])
    again = list(csv.reader(io.StringIO(text, newline="")))[1:]
    assert all(row[0].startswith("'") for row in again)
    assert {row[1] for row in again} == {"-1.5"}


@pytest.mark.slow
@given(st.lists(st.tuples(st.text(), st.floats(allow_nan=True, allow_infinity=False)), max_size=5))
def test_csv_reads_back_as_what_was_written(rows: list[tuple[str, float]]) -> None:
    rows = [(text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", ""), number) for text, number in rows]
    again = list(csv.reader(io.StringIO(to_csv(["text", "number"], rows), newline="")))[1:]
    for (text, number), (read, value) in zip(rows, again, strict=True):
        assert read.removeprefix("'") == text.removeprefix("'")
        assert value == "" if number != number else float(value) == number


def test_equal_remarks_stand_once_below_a_table_with_their_methods(board: Board) -> None:
    rows = tuple(replace(row, read_unknown=True) for row in board.rows)
    lines = [line for line in footnotes(replace(board, rows=rows)) if READ_UNKNOWN in line]
    assert lines == [f"{', '.join(row.run.method for row in rows)}: {READ_UNKNOWN}"]


def test_remark_on_failed_questions_gives_the_most_frequent_reason(board: Board) -> None:
    row = board.rows[0]
    failed = replace(row, run=replace(row.run, failed=3), failures={"endpoint": 3}, reason="HTTP 500: oops")
    assert any("3 failed" in line and "HTTP 500: oops" in line for line in remarks(failed))
    # A submission cannot be asked again from here.
    sent = replace(failed, run=replace(failed.run, origin="submitted"))
    assert ["--retry-failed" in " ".join(remarks(item)) for item in (failed, sent)] == [True, False]


def test_markdown_marks_badges_and_explains(board: Board) -> None:
    text = render([board], "markdown")
    assert "| bm25 \\(reference\\) | 50.0 ± " in text
    assert "+45.0 \\[" in text
    assert "\\*\\*\\)" in text
    assert "| gold \\(control\\) | 100.0 \\[" in text
    assert "Holm-corrected" in text
    assert "controls check the metrics" in text
    assert "half: interrupted, 30 of 40 questions answered" in text
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(line.replace("\\|", "").split("|")) for line in table} == {4}


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.result: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.result.append(tag)


@given(st.text())
def test_markdown_text_holds_no_html_no_line_break_and_no_bare_markup(text: str) -> None:
    shown = markdown_text(text)
    tags = Tags()
    tags.feed(shown)
    assert tags.result == []
    assert len(shown.splitlines()) <= 1
    assert "://" not in shown
    assert UNSEEN.search(shown) is None
    assert re.search(r"@\w|\\#\d", shown) is None or re.search(r"[a-z0-9]@", shown, re.IGNORECASE)
    bare = shown.replace("\\\\", "")
    for mark in "`*_[]()|":
        assert bare.count(mark) == bare.count("\\" + mark)


def test_markdown_is_read_as_the_text_it_was() -> None:
    parser = pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable("table")
    html = parser.render(to_markdown(["a"], [[markdown_text(EVIL)]]))
    tags = Tags()
    tags.feed(html)
    assert set(tags.result) == {"table", "thead", "tbody", "tr", "th", "td"}
    cell = html.split("<td", 1)[1].split(">", 1)[1].split("</td>")[0]
    assert "=cmd|' /C calc'!A0 &lt;script&gt;&amp;_%$#{}~^\\|*`[x](http:" in cell


def test_latex_is_booktabs_with_raised_marks(board: Board) -> None:
    text = render([board], "latex")
    assert text.count(r"\toprule") == text.count(r"\midrule") == text.count(r"\bottomrule") == 1
    assert "(+45.0^{**})" in text
    assert r"bm25 (reference) & $50.0 \pm " in text
    assert "<script>" not in text
    rows = text.split(r"\midrule")[1].split(r"\bottomrule")[0].strip().splitlines()
    assert len(rows) == 4
    assert all(row.endswith(r"\\") and row.replace(r"\&", "").count("&") == 1 for row in rows)


@pytest.mark.parametrize("name", ["[ours] SARK", "*best", " [x]"])
def test_name_at_the_beginning_of_a_latex_row_is_no_argument_of_the_row_before(name: str) -> None:
    body = to_latex(["method"], [["bm25"], [latex_text(name)]], caption="c")
    assert "\n{}" + name.strip() in body


@given(st.text(max_size=60))
def test_latex_text_leaves_no_active_character(text: str) -> None:
    shown = latex_text(text)
    for written in (
        r"\textbackslash{}",
        r"\textasciitilde{}",
        r"\textasciicircum{}",
        r"\textless{}",
        r"\textgreater{}",
        r"\textbar{}",
        r"\dots{}",
        r"$\pm$",
        r"$\times$",
        r"$\cdot$",
        "$-$",
        r"$\dagger$",
    ):
        shown = shown.replace(written, "")
    for active in "{}&%$#_":
        shown = shown.replace("\\" + active, "")
    assert not set(shown) & set("\\{}&%$#_~^<>|")


def test_latex_compiles(board: Board, typeset: Callable[[str, Path], int], tmp_path: Path) -> None:
    body = render([board], "latex") + to_latex(["a"], [[latex_text(EVIL)]], caption=latex_text(EVIL))
    assert typeset(body, tmp_path) > 1000


@pytest.mark.slow
def test_insufficient_data_has_one_line_below_and_no_mark_in_a_cell(board: Board) -> None:
    from rich.console import Console

    from ragmeter.show.board_text import show_board
    from results.boards.tables import could_have_shown, insufficient_data_notes, labels

    (seen,) = could_have_shown(board)
    assert "80 % power" in seen
    assert could_have_shown(board, names=dict.fromkeys(board.metrics, "named")) == [
        seen.replace(next(iter(labels(board.metrics).values())), "named")
    ]
    gone = {"low": math.nan, "high": math.nan, "insufficient_data": "4 clusters, fewer than 10"}
    cells = [{metric: replace(cell, estimate=replace(cell.estimate, **gone)) for metric, cell in row.cells.items()} for row in board.rows]
    few = replace(board, rows=tuple(replace(row, cells=own) for row, own in zip(board.rows, cells, strict=True)))
    (line,) = insufficient_data_notes(few)
    assert "4 questions, fewer than 10 (3 values)" in line
    console = Console(width=200, record=True, file=io.StringIO())
    show_board(few, console, verbose=True)
    shown = console.export_text()
    assert (shown.count(line), shown.count(seen)) == (1, 1)
    assert "†" not in shown + render([few], "markdown") + render([few], "latex")
    assert re.search(r"\| 50\.0 \|", render([few], "markdown"))


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> list[Board]:
    """Methods that differ in nothing, rarely, a little and much, on few and on many questions."""
    rng, store = np.random.default_rng(5), Store(tmp_path_factory.mktemp("crowd") / "store")
    for count in (6, 12, 60):
        queries = [Question(f"{count}-{n}", f"what {count} {n}?", ("a",)) for n in range(count)]
        benchmark = Benchmark(DataReference("toy", None, f"dev{count}"), 1, CARD, queries, Corpus.of([]))
        store.put_benchmark(benchmark, benchmark.fingerprint)
        base = np.round(rng.random(count), 1)
        changed = [
            np.where(rng.random(count) < share, np.clip(base + step, 0, 1), base) for share, step in ((0.1, -1), (0.3, 0.2), (0.9, 0.4))
        ]
        names = [f"m{number}-{count}" for number in range(5)]
        for name, values in zip(names, (base, base, *changed), strict=True):
            run = Run(
                name, name.partition("-")[0], "x", "retriever", {}, f"toy:dev{count}", benchmark.fingerprint, "distractor", 0, count, {}
            )
            store.start(run)
            store.append(name, [Prediction(q.id, "x") for q in queries], {"f1(rules=squad)#v2": values, "em#v2": np.floor(values)})
            store.end(name, FINISHED)
        store.put_experiment(f"toy{count}", f"name: toy{count}", None, None, "m0", names)
    return [board for count in (6, 12, 60) for board in boards(store, f"toy{count}")]


@pytest.mark.slow
def test_stars_intervals_and_detectable_differences_of_printed_tables_agree(crowd: list[Board]) -> None:
    seen: dict[bool, int] = {True: 0, False: 0}
    for board in crowd:
        lines = [line.replace("\\", "") for line in render([board], "markdown").splitlines()]
        cells = [cell for line in lines if line.startswith("| m") for cell in line.strip("| ").split(" | ")[1:]]
        compared = [match for cell in cells if (match := re.fullmatch(r"(\S+ (?:± \S+|\[.*?\])) \((.+?)(\*{0,2})\)", cell))]
        assert len(compared) == 4 * len(board.metrics)
        for match in compared:
            low, high = read(match[1])
            assert 0 <= low <= high <= 100
            low, high = read(match[2])
            assert -100 <= low <= high <= 100
            assert bool(match[3]) == (low > 0 or high < 0), match[0]
            seen[bool(match[3])] += 1
        halves = [(read(match[2])[1] - read(match[2])[0]) / 2 for match in compared]
        for line in lines:
            if reach := re.search(r"minimum detectable difference in \S+: ([\d.]+)(?: to ([\d.]+|none))?", line):
                numbers = [float(number) for number in reach.groups() if number and number != "none"]
                assert min(halves) - 0.1 <= min(numbers)
                assert max(numbers) <= 100
    assert min(seen.values()) > 0


def read(text: str) -> tuple[float, float]:
    """Return the interval that a printed value states."""
    text = text.replace("−", "-")
    value = float(text.split(" ")[0])
    if " ± " in text:
        half = float(text.split(" ± ")[1])
        return value - half, value + half
    low, high = (float(end) for end in text.partition("[")[2].rstrip("]").split(", "))
    return low, high


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(0, 1))
def test_printed_interval_holds_zero_exactly_if_the_interval_does(value: float, below: float, above: float) -> None:
    low, high = max(value - below, -1.0), min(value + above, 1.0)
    text = plus_minus(value, low, high, "{:+.1f}")
    stated = read(text)
    if min(abs(low), abs(high)) > 1e-9:  # nearer ends are 0 up to rounding of the sums
        assert (stated[0] <= 1e-9 and stated[1] >= -1e-9) == (low <= 0 <= high), text
    assert stated == pytest.approx((100 * low, 100 * high), abs=0.16)
    assert " ± " not in text or abs((high - value) - (value - low)) < 0.001


def test_interval_with_unequal_sides_is_printed_with_its_bounds() -> None:
    assert plus_minus(1.0, 0.735, 1.0) == "100.0 [73.5, 100.0]"
    assert plus_minus(0.634, 0.592, 0.676) == "63.4 ± 4.2"
    assert plus_minus(0.02, 0.0001, 0.04, "{:+.1f}") == "+2.0 [+0.01, +4.0]"
    assert plus_minus(-0.02, -0.05, 0.0, "{:+.1f}") == "−2.0 [−5.0, +0.0]"
    assert plus_minus(0.99, 0.946, 1.0, sides=True) == "99.0 −4.4/+1.0"
