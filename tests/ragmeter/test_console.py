"""Tables for people: what is wider than the terminal is printed in parts, and nothing is lost or broken."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ragmeter import console

WORDS = st.text("abcdefgh ±", min_size=1, max_size=18).map(str.strip).filter(bool)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[str]]]:
    count = draw(st.integers(2, 9))
    heads = [f"{place}{draw(WORDS)}" for place in range(count)]
    return heads, draw(st.lists(st.lists(WORDS, min_size=count, max_size=count), min_size=1, max_size=4))


def printed(width: int, heads: list[str], rows: list[list[str]], keys: int) -> list[str]:
    text = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console, "out", Console(file=text, width=width, highlight=False))
        console.listing(heads, rows, empty="nothing", keys=keys)
    return [line.rstrip() for line in text.getvalue().splitlines()]


@given(table=tables(), width=st.integers(60, 120))
def test_each_part_begins_with_the_keys_and_every_column_stands_once(
    table: tuple[list[str], list[list[str]]], width: int
) -> None:
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
