"""Tables for people: what is wider than the terminal is printed in parts, and nothing is lost or broken."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from benchmarks.core.errors import counted
from ragmeter.show import console

WORDS = st.text("abcdefgh ±", min_size=1, max_size=18).map(str.strip).filter(bool)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[str]]]:
    count = draw(st.integers(2, 9))
    heads = [f"{position}{draw(WORDS)}" for position in range(count)]
    return heads, draw(st.lists(st.lists(WORDS, min_size=count, max_size=count), min_size=1, max_size=4))


def printed(width: int, heads: list[str], rows: list[list[str]], keys: int, below: int = 0) -> list[str]:
    text = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console, "out", Console(file=text, width=width, highlight=False))
        console.listing(heads, rows, empty="nothing", keys=keys, below=below)
    return [line.rstrip() for line in text.getvalue().splitlines()]


@pytest.mark.slow
@given(table=tables(), width=st.integers(60, 120))
def test_each_part_begins_with_the_keys_and_every_column_stands_once(table: tuple[list[str], list[list[str]]], width: int) -> None:
    heads, rows = table
    lines = printed(width, heads, rows, keys=1)
    parts, rest = divmod(len(lines), len(rows) + 1)
    assert rest == 0
    assert all(len(line) <= width for line in lines)
    tops = lines[:: len(rows) + 1]
    assert all(top.startswith(heads[0]) for top in tops)
    assert [head for head in heads[1:] if sum(head in top for top in tops) == 1] == heads[1:]
    for number, row in enumerate(rows, start=1):
        own = lines[number :: len(rows) + 1]
        assert all(line.startswith(row[0]) for line in own)
        assert sum(len(line.replace(" ", "")) for line in own) == (parts - 1) * len(row[0].replace(" ", "")) + sum(
            len(cell.replace(" ", "")) for cell in row
        )


def test_a_table_that_fits_is_one() -> None:
    assert printed(80, ["method", "drop"], [["bm25", "+1.0"]], keys=1) == ["method  drop", "bm25    +1.0"]


def test_without_keys_cells_are_broken() -> None:
    lines = printed(20, ["method", "what it is"], [["bm25", "a bag of words that are weighed"]], keys=0)
    assert len(lines) > 2
    assert "".join(lines[1:]).replace(" ", "") == "bm25abagofwordsthatareweighed"


@given(text=st.text("ab/:,_- 1", min_size=1, max_size=60).map(str.strip).filter(bool), width=st.integers(1, 30))
def test_what_is_folded_loses_nothing_and_breaks_no_word_that_fits(text: str, width: int) -> None:
    lines = console.folded(Text(text), width).plain.split("\n")
    assert "".join("".join(lines).split()) == "".join(text.split())
    if max(map(len, text.split())) <= width:
        assert all(len(line) <= width for line in lines)
        assert " ".join(lines).split() == text.split()


def test_numbers_times_and_words_that_fit_are_not_broken() -> None:
    assert console.folded(Text("2026-11-22 19:33"), 10).plain == "2026-11-22\n19:33"
    assert console.folded(Text("1,234,567"), 4).plain == "1,234,567"
    assert console.folded(Text("see benchmark_prompt"), 16).plain == "see\nbenchmark_prompt"
    assert console.folded(Text("google-research/nq_open"), 10).plain == "google-\nresearch/\nnq_open"


def test_at_80_columns_short_columns_stay_whole_and_long_names_give_way() -> None:
    rows = [("oracle_evidence + pocket", "0 of 150", "after training", "63.6k", "3.6k", "<0.01", "3.49MB", "x" * 8)]
    heads = ["method", "left", "status", "tokens in", "out ≤", "GPU h", "disk", "lengths"]
    lines = printed(80, heads, [list(row) for row in rows], keys=0)
    assert all(len(line) <= 80 for line in lines)
    text = " ".join(" ".join(lines).split())
    for cell in ("0 of 150", "63.6k", "<0.01", "3.49MB", "xxxxxxxx"):
        assert cell in text
    assert {"after", "training", "pocket"} <= set(text.split())


def test_what_is_to_be_copied_stands_whole_on_a_line_of_its_own() -> None:
    path = "demo/oracle_evidence + pocket/styled:test(worlds/multihop,informal=0.5,by=rule,seed=0)/distractor/0"
    lines = printed(80, ["run", "status", "path"], [["ebff67f9", "finished", path]], keys=0, below=console.WHOLE)
    assert lines == ["run       status", "    path", "ebff67f9  finished", f"    {path}"]
    wide = printed(160, ["run", "status", "path"], [["ebff67f9", "finished", path]], keys=0, below=console.WHOLE)
    assert wide[1] == f"ebff67f9  finished  {path}"


def test_a_description_without_room_stands_below() -> None:
    rows = [["candidates.retriever", "record | retriever", '"record"', "the dataset's own list; " * 4]]
    lines = printed(80, ["option", "type", "default", ""], rows, keys=0, below=console.PROSE)
    assert lines[1].split() == ["candidates.retriever", "record", "|", "retriever", '"record"']
    assert all(line.startswith("    the dataset's own list; the") for line in lines[2:3])
    short = [["k", "integer", "5", "how many"]]
    assert printed(80, ["option", "type", "default", ""], short, keys=0, below=console.PROSE)[1].endswith("5        how many")


def test_columns_in_which_nothing_stands_take_no_room() -> None:
    assert printed(80, ["a", "", "b"], [["1", "", "2"]], keys=0) == ["a  b", "1  2"]


@pytest.mark.parametrize(("number", "expected"), [(0, "0 losses"), (1, "1 loss"), (1200, "1,200 losses")])
def test_what_is_counted_has_its_plural(number: int, expected: str) -> None:
    assert counted(number, "loss", "losses") == expected


@pytest.mark.slow
def test_a_reader_who_goes_away_ends_a_command_in_silence() -> None:
    command = f'"{sys.executable}" -c "from ragmeter.cli import main; main()" results paper ark'
    script = f"{command} | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "141"
    assert done.stderr == ""
