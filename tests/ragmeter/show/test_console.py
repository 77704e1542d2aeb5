"""Tables for people: no table is wider than the terminal, no text is lost, and a row in a file is one line."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from benchmarks.core.errors import counted
from ragmeter.show import console

WORDS = st.text("abcdefgh ±", min_size=1, max_size=18).map(str.strip).filter(bool)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[str]]]:
    count = draw(st.integers(2, 9))
    heads = [f"{position}{draw(WORDS)}" for position in range(count)]
    return heads, draw(st.lists(st.lists(WORDS, min_size=count, max_size=count), min_size=1, max_size=4))


def printed(width: int, heads: list[str], rows: list[list[str]], keys: int, whole: bool = False) -> list[str]:
    text = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console, "out", Console(file=text, width=width, highlight=False))
        console.listing(heads, rows, empty="nothing", keys=keys, whole=whole)
    return [line.rstrip() for line in text.getvalue().splitlines()]


@pytest.mark.slow
@given(table=tables(), width=st.integers(60, 120))
def test_split_table_repeats_key_columns_and_prints_other_columns_once(table: tuple[list[str], list[list[str]]], width: int) -> None:
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


def test_table_that_fits_is_not_split() -> None:
    assert printed(80, ["method", "drop"], [["bm25", "+1.0"]], keys=1) == ["method  drop", "bm25    +1.0"]


def test_cells_are_wrapped_without_key_columns() -> None:
    lines = printed(20, ["method", "what it is"], [["bm25", "a bag of words that are weighed"]], keys=0)
    assert len(lines) > 2
    assert "".join(lines[1:]).replace(" ", "") == "bm25abagofwordsthatareweighed"


def test_numbers_are_not_broken_in_a_narrow_terminal() -> None:
    heads = ["method", "style", "formal", "gap"]
    lines = printed(30, heads, [["a method with a long name", "informal and humorous", "61.2 ± 10.4", "+12.3 ± 14.2 **"]], keys=2)
    assert {"61.2 ± 10.4", "+12.3 ± 14.2 **"} <= {line.rpartition("  ")[2] for line in lines}


def test_copyable_cell_is_not_wrapped() -> None:
    path = "demo/oracle_evidence + pocket/styled:test(worlds/multihop,informal=0.5,by=rule,seed=0)/distractor/0"
    lines = printed(80, ["run", "status", "path"], [["ebff67f9", "finished", path]], keys=0, whole=True)
    assert lines[1:] == [f"ebff67f9  finished  {path}"]


def test_file_gets_one_line_per_row() -> None:
    long = "x " * 200
    command = f"from ragmeter.show.console import listing; listing(('name', 'text'), [('a', {long!r}), ('b', '')], empty='')"
    env = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True, env=env)
    assert [line.split(maxsplit=1)[0] for line in done.stdout.splitlines()] == ["name", "a", "b"]


def test_untrusted_cell_is_not_parsed_as_markup() -> None:
    assert printed(80, ["name"], [["[red]x[/red]"]], keys=0) == ["name", "[red]x[/red]"]


def test_empty_columns_take_no_space() -> None:
    assert printed(80, ["a", "", "b"], [["1", "", "2"]], keys=0) == ["a  b", "1  2"]


@pytest.mark.parametrize(("number", "expected"), [(0, "0 losses"), (1, "1 loss"), (1200, "1,200 losses")])
def test_counts_use_the_correct_plural(number: int, expected: str) -> None:
    assert counted(number, "loss", "losses") == expected


@pytest.mark.slow
def test_closed_output_pipe_ends_a_command_silently() -> None:
    command = f'"{sys.executable}" -c "from ragmeter.cli import main; main()" results paper ark'
    script = f"{command} | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "141"
    assert done.stderr == ""
