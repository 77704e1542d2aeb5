"""Tables of multiple-choice questions whose choices no method would see are refused, or reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.registry import Benchmark, load
from tests.support.errors import raises

FOUR = ("red", "green", "blue", "black")


def _load(tmp_path: Path, rows: list[dict[str, Any]], **options: Any) -> Benchmark:
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return load("files", {"path": str(path), **options})


def _rows(answers: str = "ABCD", **more: Any) -> list[dict[str, Any]]:
    return [{"question": f"What is color {number}?", "answer": answer, **more} for number, answer in enumerate(answers)]


@pytest.mark.parametrize(
    "rows",
    [
        _rows(),
        _rows("abba"),
        _rows(choices=list(FOUR)),
        _rows("AAAA", options=list(FOUR)),
        [{**row, "answer": f"({row['answer']})"} for row in _rows()],
        [{**row, "answer": number} for number, row in enumerate(_rows(choices=list(FOUR)))],
        _rows(**dict(zip("ABCD", FOUR, strict=True))),
        _rows("0123", **{f"choice{number}": text for number, text in enumerate(FOUR)}),
    ],
    ids=["no choices", "lower case", "list", "one letter", "brackets", "numbers", "columns of letters", "numbered columns"],
)
def test_answers_that_name_unseen_choices_are_refused(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    with raises("choices-missing", "questions.jsonl"):
        _load(tmp_path, rows)


def test_error_names_the_column_of_choices(tmp_path: Path) -> None:
    with raises("choices-missing") as caught:
        _load(tmp_path, _rows(options=list(FOUR)))
    assert "options" in caught.value.what


@pytest.mark.parametrize(
    "rows",
    [
        [{**row, "question": f"{row['question']}\nA. red\nB. green"} for row in _rows("ABAB")],
        [{**row, "question": f"{row['question']} (A) red (B) green"} for row in _rows("ABAB")],
        _rows("1234"),
        [{**row, "answer": "red"} for row in _rows(choices=list(FOUR))],
        [{**row, "answer": answer} for row, answer in zip(_rows(), ("A", "B", "AB", "0"), strict=True)],
        [{**row, "contexts": ["A. red B. green"]} for row in _rows("ABAB")],
    ],
    ids=["lines", "brackets", "counts", "texts", "blood types", "in a passage"],
)
def test_other_tables_load(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    assert len(_load(tmp_path, rows).questions) == 4


def test_named_field_is_read_with_a_note(tmp_path: Path) -> None:
    benchmark = _load(tmp_path, _rows(options=list(FOUR)), fields={"answers": "answer"})
    assert any("options" in note and "letters" in note for note in benchmark.extra["notes"])
