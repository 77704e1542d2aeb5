"""Paths into replies: matches, and errors for missing ones."""

from __future__ import annotations

import pytest

from methods.apps.paths import Missing, Path

DOCUMENT = {"data": {"answer": "Lyon", "a.b": 1, "none": None}, "docs": [{"text": "a", "tags": ["x", "y"]}, {"text": "b"}], "empty": []}


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("data.answer", ["Lyon"]),
        ("$.data.answer", ["Lyon"]),
        ("docs[].text", ["a", "b"]),
        ("docs[0].tags[]", ["x", "y"]),
        ("docs[-1].text", ["b"]),
        ('data["a.b"]', [1]),
        ("data['a.b']", [1]),
        ("docs[].tags[]?", ["x", "y"]),
        ("data.missing?", []),
        ("data.none?", []),
        ("empty[].text", []),
        ("$", [DOCUMENT]),
    ],
)
def test_paths_find_values(path: str, values: list[object]) -> None:
    assert Path.of(path).find(DOCUMENT) == values


@pytest.mark.parametrize(
    ("path", "stated"),
    [
        ("data.text", "'data' is an object with the keys answer, a.b, none"),
        ("answer", "the reply is an object with the keys data, docs, empty"),
        ("docs[5].text", "'docs' is a list of 2"),
        ("docs.text", "'docs' is a list of 2"),
        ("data.none", "'none' is null"),
        ("docs[].tags[]", "a list's item is an object with the keys text"),
    ],
)
def test_missing_path_error_names_the_failing_step_and_the_available_keys(path: str, stated: str) -> None:
    with pytest.raises(Missing) as caught:
        Path.of(path).find(DOCUMENT)
    assert stated in str(caught.value)


@pytest.mark.parametrize("path", ["", "?", "docs[", "docs[x]", "a..b", "docs[1.5]"])
def test_malformed_paths_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match="path"):
        Path.of(path)
