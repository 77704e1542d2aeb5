"""Progress on standard error: in a terminal of 80 columns bar, count and times stay; elsewhere plain lines."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from ragmeter.runner import progress


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_a_long_description_leaves_bar_count_and_times(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.StringIO()
    console = Console(file=text, width=width, force_terminal=True, color_system=None)
    monkeypatch.setattr(progress, "err", console)
    shown = progress.TrainingProgress()
    shown.begin("answer: SARK on worlds/multihop:test, 50 % informal (distractor) " * 3, total=12_000, done=3000)
    with console.capture() as drawn:
        console.print(shown._live.get_renderable())
    (line,) = drawn.get().splitlines()
    assert len(line) <= width
    assert "answer: SARK on" in line
    assert "…" in line
    assert "━" in line
    assert "3000/12000" in line.replace(" ", "")
    assert "0:00:00" in line
    assert line.rstrip().endswith("-:--:--")


def test_without_a_terminal_each_training_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.StringIO()
    monkeypatch.setattr(progress, "err", Console(file=text, width=80))
    with progress.TrainingProgress() as shown:
        shown.begin("ark, seed 0")
        shown.begin("training stage1", 64)
        shown.begin("training stage1", 64)
        shown.log({"loss": 1.0})
    assert text.getvalue().split("\n")[:2] == ["training: ark, seed 0", "  training stage1 (64)"]
    assert text.getvalue().count("stage1") == 1
    text.truncate(0)
    with progress.TrainingProgress(quiet=True) as silent:
        silent.begin("ark, seed 0")
    assert "ark" not in text.getvalue()
