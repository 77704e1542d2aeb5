"""Drawing: parts that are shown together are one component, and a click reaches its own part."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from leaderboard import drawing
from leaderboard.elements.nodes import el


class Browser:
    """Stand-in for Streamlit: it keeps what was mounted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.session: dict[str, Any] = {}
        self.trees: dict[str, bytes] = {}
        self.clicked: dict[str, Any] = {}
        v2 = SimpleNamespace(component=lambda *_, **__: self._mount)
        monkeypatch.setattr(drawing, "st", SimpleNamespace(components=SimpleNamespace(v2=v2), session_state=self.session))

    def _mount(self, *, key: str, data: bytes, on_action_change: Any) -> None:
        self.trees[key], self.clicked[key] = data, on_action_change

    def click(self, key: str, part: str, action: Any) -> None:
        self.session[key] = {"action": {"part": part, "action": action}}
        self.clicked[key]()


@pytest.fixture
def browser_of(monkeypatch: pytest.MonkeyPatch) -> Browser:
    return Browser(monkeypatch)


def test_parts_shown_together_are_one_component(browser_of: Browser) -> None:
    drawing.show_all("content", {"first": el("p", "one"), "absent": None, "second": el("p", "two")})
    parts = b'["div","part",[["p","",["one"]]],{"attributes":{"key":"first"}}],["div","part",[["p","",["two"]]],'
    assert browser_of.trees == {"content": b'["div","stack",[' + parts + b'{"attributes":{"key":"second"}}]]]'}
    drawing.show(el("p", "three"), "third")
    assert browser_of.trees["third"] == b'["p","",["three"]]'


def test_click_reaches_only_its_own_part_as_text(browser_of: Browser) -> None:
    seen: list[Any] = []
    acts = {name: lambda action, name=name: seen.append((name, action)) for name in ("first", "second")}
    drawing.show_all("content", dict.fromkeys(("first", "second", "still"), el("p")), acts)
    browser_of.click("content", "second", {"sort": 3, "order": None})
    browser_of.click("content", "still", {"sort": "x"})
    browser_of.click("content", "nosuch", {"sort": "x"})
    browser_of.click("content", "first", "no mapping")
    assert seen == [("second", {"sort": "3", "order": None})]
