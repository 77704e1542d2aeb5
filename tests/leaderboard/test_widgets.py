"""Pages redraw themselves when a run begins or continues."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from leaderboard import read, widgets
from leaderboard.pages import run as runs_page
from leaderboard.read import Source

SHOWN, LATER = Source("/store", (1,)), Source("/store", (2,))


class RerunError(Exception):
    pass


def rerun(**_: Any) -> None:
    raise RerunError


@pytest.mark.parametrize(
    ("before", "after", "redrawn"), [([], ["finished"], True), (["running"], ["finished"], True), (["finished"], ["finished"], False)]
)
def test_board_is_redrawn_when_runs_of_its_experiment_have_changed(
    monkeypatch: pytest.MonkeyPatch, before: list[str], after: list[str], redrawn: bool
) -> None:
    drawn: list[Callable[[], None]] = []

    def fragment(**_: Any) -> Callable[[Callable[[], None]], Callable[[], None]]:
        def decorate(draw: Callable[[], None]) -> Callable[[], None]:
            drawn.append(draw)
            return draw

        return decorate

    monkeypatch.setattr(widgets, "st", SimpleNamespace(fragment=fragment, rerun=rerun))
    monkeypatch.setattr(read, "source", lambda: SHOWN)
    monkeypatch.setattr(read, "run_groups", lambda at, _: [before if at == SHOWN else after])
    widgets.refresh_while_running(SHOWN, "small", ())
    monkeypatch.setattr(read, "source", lambda: LATER)
    if redrawn:
        with pytest.raises(RerunError):
            drawn[0]()
    else:
        drawn[0]()


@pytest.mark.parametrize("count", [0, 1])
def test_list_of_runs_is_redrawn_when_the_store_changes(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(runs_page, "show_running", lambda *_: count)
    monkeypatch.setattr(runs_page, "show", lambda *_: None)
    monkeypatch.setattr(runs_page.st, "rerun", rerun)
    monkeypatch.setattr(read, "source", lambda: SHOWN)
    runs_page._look(SHOWN, bool(count))
    monkeypatch.setattr(read, "source", lambda: LATER)
    with pytest.raises(RerunError):
        runs_page._look(SHOWN, bool(count))
