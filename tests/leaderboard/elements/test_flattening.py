"""Settings as lines of a table."""

from __future__ import annotations

import pytest

from leaderboard.elements.nodes import flat, shown


def test_leaves_stand_by_their_dotted_keys() -> None:
    value = {"a": {"b": 1, "none": None}, "list": [1, 2], "rows": [{"c": "x"}, {"c": "y"}], "empty": [], "no": {}}
    assert list(flat(value)) == [("a.b", 1), ("list", [1, 2]), ("rows[0].c", "x"), ("rows[1].c", "y")]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("/home/someone/store/checkpoints/ark-1/stage3", "…/checkpoints/ark-1/stage3"),
        (r"C:\Users\someone\store\checkpoints\ark", "…/store/checkpoints/ark"),
        ("/models/mistral", "/models/mistral"),
        ("BAAI/bge-m3", "BAAI/bge-m3"),
        ("https://example.org/a/b/c/d", "https://example.org/a/b/c/d"),
        ("/one/two/three/four and more words", "/one/two/three/four and more words"),
        (0.5, "0.5"),
        ([1, "x"], '[1, "x"]'),
        ("y" * 300, "y" * 200 + "…"),
    ],
)
def test_values_are_shown_as_text_and_folders_by_their_last_parts(value: object, text: str) -> None:
    assert shown(value) == text
