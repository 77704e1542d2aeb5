"""Progress on stderr: a terminal of 80 columns shows bar, count and times; a file gets one line per minute."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from ragmeter.runner import progress


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_long_description_keeps_bar_count_and_times(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_progress_in_a_file_is_one_line_per_minute_without_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    text, now = io.StringIO(), 1000.0
    monkeypatch.setattr(progress, "err", Console(file=text, width=80))
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with progress.TrainingProgress() as shown:
        shown.begin("ark [seed 0]", 64)
        for _ in range(64):
            shown.advance()
            shown.log({"loss": 1.0})
            now += 2.0
        shown.begin("next")
        now += 61.0
        shown.begin("steps", 3, name="gpr [seed 1]")
        shown.end("gpr [seed 1]")
        now += 61.0
        shown.advance()
    lines = text.getvalue().splitlines()
    assert lines[:3] == ["ark [seed 0] 0 of 64", "ark [seed 0]  loss 1 31 of 64", "ark [seed 0]  loss 1 61 of 64"]
    assert lines[3:] == ["next; gpr [seed 1]: steps 0 of 3", "next"]
    text.truncate(0)
    with progress.TrainingProgress(quiet=True) as silent:
        silent.begin("ark, seed 0")
    assert "ark" not in text.getvalue()


def test_run_with_redirected_output_writes_one_line_per_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    text, now = io.StringIO(), 1000.0
    monkeypatch.setattr(progress, "err", Console(file=text, width=80))
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    run = SimpleNamespace(questions=100, dataset="hotpotqa/distractor:dev", setting="corpus")
    task: Any = SimpleNamespace(run=run, method=SimpleNamespace(name="bm25"))
    with progress.RunProgress(1) as shown:
        shown.begin(task, 0)
        for _ in range(100):
            now += 2.5
            shown.advance(task, 1)
        shown.end(task, "finished", None)
    done = [int(line.rpartition(") ")[2].split(" of ")[0]) for line in text.getvalue().splitlines()]
    assert done == [0, 24, 48, 72, 96]


@pytest.mark.parametrize("width", [60, 80, 160])
def test_each_running_task_has_a_line_with_failures_and_cost(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    monkeypatch.setattr(progress, "err", console)
    run = SimpleNamespace(questions=100, dataset="hotpotqa/distractor:dev", setting="corpus")
    first, second = (SimpleNamespace(run=run, method=SimpleNamespace(name=name)) for name in ("bm25", "dense"))
    tasks: list[Any] = [first, second]
    shown = progress.RunProgress(2)

    def lines() -> list[str]:
        with console.capture() as drawn:
            console.print(shown._live.get_renderable())
        return drawn.get().splitlines()

    for task in tasks:
        shown.begin(task, 0)
    shown.advance(tasks[0], 1, failed=1, dollars=0.012)
    shown.advance(tasks[0], 4, dollars=0.5)
    shown.advance(tasks[1], 2)
    bars = lines()
    assert max(map(len, bars)) <= width
    (one,) = [line for line in bars if "5/100" in line]
    (other,) = [line for line in bars if "2/100" in line]
    assert "1 failed, $0.512" in one
    assert "failed" not in other
    shown.end(tasks[0], "finished", None)
    assert not any("5/100" in line for line in lines())
    shown.advance(tasks[0], 1)  # a late reply of a task that ended
