"""Positions of answers in texts: they agree with `has_answer`."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.text import answer_positions, has_answer, normalize

# Pieces that make places hard: marks before and after their letters, letters that are two characters once decomposed,
# characters that become several tokens or none, case that depends on what follows, words within words.
PIECES = [
    "York", "york", "New", " ", "  ", "\n", "\x00", "é", "e\u0301", "\u0323\u0307", "\u0307\u0323", "É", "İ", "ΑΣ", "Σ",
    "ΑΣΑ", "≠", "=", "\u0338", "ẞ", "ß", "\u212a", "K", "k", "\uac00", "\u1100\u1161", "–", "'", ".", "J.", "5", "５",
    "\u00a0", "\u200b", "\u0f73", "\u0f71", "漢", "\U0001d400", "\ud800", "newyork",
]  # fmt: skip
texts = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


def found(text: str, *golds: str) -> list[str]:
    return [text[start:end] for start, end in answer_positions(text, golds)]


@pytest.mark.parametrize(
    ("text", "golds", "expected"),
    [
        ("He moved to New  York, not to Yorkshire; new york it was.", ["New York"], ["New  York", "new york"]),
        ("Cafe\u0301 or Café", ["CAFÉ"], ["Cafe\u0301", "Café"]),
        ("by J.R.R. Tolkien", ["J. R. R. Tolkien"], ["J.R.R. Tolkien"]),
        ("Barack Obama and Mr Obama", ["Obama", "Barack Obama"], ["Barack Obama", "Obama"]),
        ("ha ha ha", ["ha ha"], ["ha ha ha"]),
        ("ha ha", ["ha"], ["ha", "ha"]),
        ("The 1,200 men", ["1,200"], ["1,200"]),
        ("The 1,2000 men", ["1,200"], []),
        ("in 東京 and 東京都", ["東京"], ["東京"]),
        ("nothing", [""], []),
        ("nothing", [" \n"], []),
        ("", ["x"], []),
    ],
)
def test_answer_positions_are_found(text: str, golds: list[str], expected: list[str]) -> None:
    assert found(text, *golds) == expected


@pytest.mark.slow
@given(texts, st.lists(texts, max_size=3))
def test_answer_position_exists_exactly_if_has_answer_is_true(text: str, golds: list[str]) -> None:
    positions = answer_positions(text, golds)
    assert bool(positions) == has_answer(text, golds)
    assert all(0 <= start < end <= len(text) for start, end in positions)
    assert all(item[1] <= other[0] for item, other in pairwise(positions))
    # The text at a position contains an answer.
    assert all(has_answer(text[start:end], golds) for start, end in positions)


@pytest.mark.slow
@given(texts, texts)
def test_inserted_answer_is_found_at_its_position(before: str, gold: str) -> None:
    if not normalize(gold, "dpr"):
        return
    text = f"{before} {gold} end"
    first, last = len(before) + 1, len(before) + 1 + len(gold)
    assert any(start < last and first < end for start, end in answer_positions(text, [gold], most=10_000))


def test_answer_positions_are_limited_to_the_given_number() -> None:
    assert len(answer_positions("x y " * 1000, ["x"], most=7)) == 7


@pytest.mark.slow
@pytest.mark.parametrize("letter", ["a", "é"])
def test_answer_search_takes_linear_time(letter: str) -> None:
    text = f"{letter} {letter} b " * 20_000
    started = time.process_time()
    assert answer_positions(text, [f"{letter} {letter}", "c c c", f"{letter} b"])
    assert time.process_time() - started < 0.8
