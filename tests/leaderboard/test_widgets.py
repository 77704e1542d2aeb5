"""Pages redraw themselves when a run begins or continues."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from leaderboard import read, widgets
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
    monkeypatch.setattr(widgets, "running", lambda _: [])
    widgets.show_running(SHOWN, "small", ())
    monkeypatch.setattr(read, "source", lambda: LATER)
    if redrawn:
        with pytest.raises(RerunError):
            drawn[0]()
    else:
        drawn[0]()
