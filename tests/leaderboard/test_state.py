"""The view's state: when a change redraws only a part of a page."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from leaderboard import state


class RerunError(Exception):
    pass


class Part:
    """Part of a page with the parameter `sort`, next to a parameter `experiment` of the rest of the page."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.query, self.session = {"experiment": "a", "sort": "rank"}, {"view": {}, "misses": {}}
        self.drawn: list[str] = []
        self.stale = False
        self.again: Callable[[], None] = lambda: None
        self.session["view"]["experiment"] = "a"
        params = SimpleNamespace(to_dict=lambda: dict(self.query))
        streamlit = SimpleNamespace(fragment=self._fragment, query_params=params, session_state=self.session, rerun=self._rerun)
        monkeypatch.setattr(state, "st", streamlit)
        state.fragment(("sort",), lambda: self.stale, lambda: self.drawn.append(state.settle("sort", self.query["sort"])))

    def _fragment(self, draw: Callable[[], None]) -> Callable[[], None]:
        self.again = draw
        return draw

    def _rerun(self) -> None:
        raise RerunError


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> Part:
    return Part(monkeypatch)


def test_change_of_an_own_parameter_redraws_only_the_part(part: Part) -> None:
    assert part.drawn == ["rank"]
    part.query["sort"] = "method"
    part.again()
    assert part.drawn == ["rank", "method"]


def change_other(part: Part) -> None:
    part.query["experiment"] = "b"


def open_page(part: Part) -> None:
    state.open_page("question.py", {})


def miss(part: Part) -> None:
    state.miss("sort", "nosuch")


def become_stale(part: Part) -> None:
    part.stale = True


@pytest.mark.parametrize("happen", [change_other, open_page, miss, become_stale])
def test_everything_else_redraws_the_whole_page(part: Part, happen: Callable[[Any], None]) -> None:
    happen(part)
    with pytest.raises(RerunError):
        part.again()
    assert part.drawn == ["rank"]


def test_whole_page_draws_its_part_once_whatever_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    part = Part(monkeypatch)
    change_other(part)
    state.fragment(("sort",), lambda: True, lambda: part.drawn.append("anew"))
    assert part.drawn == ["rank", "anew"]


def test_shared_choices_survive_pages_that_do_not_use_them(monkeypatch: pytest.MonkeyPatch) -> None:
    query: dict[str, str] = {"experiment": "b", "board": "x"}
    params = SimpleNamespace(to_dict=lambda: dict(query), from_dict=query.update)
    monkeypatch.setattr(state, "st", SimpleNamespace(query_params=params, session_state={}))
    monkeypatch.setattr(state, "_here", str)

    def opened(page: str, **settled: str) -> dict[str, str]:
        query.clear()
        state.begin(page)
        for name, value in settled.items():
            state.settle(name, value)
        return dict(query)

    state.begin("board")
    state.settle("experiment", "b")
    state.settle("board", "x")
    assert [opened(page, start="") for page in ("datasets", "methods")] == [{"experiment": "b", "board": "x"}] * 2
    assert opened("compare", experiment="c", board="")["board"] == "x"
    assert opened("board") == {"experiment": "c"}
