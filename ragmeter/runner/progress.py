"""One display over a whole experiment: per task its stage, answered and failed questions, speed, cost and time left."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from textwrap import shorten
from types import TracebackType
from typing import Self

from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as RichProgress
from rich.progress import Task as BarTask
from rich.table import Column
from rich.text import Text

from ragmeter.runner.tasks import Task
from ragmeter.show.console import err
from results.store.variants import without_options

LOG_S = 60.0
"""Minimum seconds between two progress lines in a log file."""
_WIDE = 110
"""Minimum number of terminal columns for the long bar."""
_NARROW = 72
"""Minimum number of terminal columns for the bar of a task that shows its pace."""
_PACE = 25
"""Columns for speed, failures and cost, with the gap before them."""
_BESIDE = 1 + 13 + 7 + 7 + 5
"""Columns for spinner, count (up to a million), both times and the gaps."""


def _bar(width: int, pace: bool) -> int:
    """Return the bar's width; 0 if there is no room for one."""
    return 24 if width >= _WIDE else 10 if not pace else 5 if width >= _NARROW else 0


def _described(width: int, pace: bool) -> Column:
    """Return the maximum width of the description, which is cut before any other column."""
    taken = _BESIDE + _bar(width, pace) + (_PACE if pace else 0) - (8 if pace and width < _WIDE else 0)
    return Column(no_wrap=True, overflow="ellipsis", max_width=max(8, width - taken))


class _Pace(ProgressColumn):
    """Speed, failures and cost of a task so far."""

    def render(self, task: BarTask) -> Text:
        return Text(_pace(task), style="dim", no_wrap=True)


def _pace(task: BarTask) -> str:
    """Describe the progress, for example `3.1/s, 2 failed, $0.012`; empty for a bar that counts something else."""
    if "failed" not in task.fields:
        return ""
    failed, dollars = task.fields["failed"], task.fields["dollars"]
    speed = [f"{task.speed:.3g}/s" if task.speed < 100 else f"{task.speed:,.0f}/s"] if task.speed else []
    return ", ".join([*speed, *([f"{failed:,} failed"] if failed else []), *([f"${dollars:.3g}"] if dollars else [])])


class _Display:
    """Bars on standard error while its block lasts; occasional lines if that is a file.

    Args:
        quiet: Show nothing.
        pace: Show speed, failures and cost, in a narrow terminal in the place of the time that passed.
    """

    def __init__(self, quiet: bool, *, pace: bool = False) -> None:
        self._in_file = not quiet and not err.is_terminal
        self._next_line = 0.0
        self._live = RichProgress(
            SpinnerColumn(),
            TextColumn("{task.description}", table_column=_described(err.width, pace)),
            *([BarColumn(bar_width=bar, table_column=Column(no_wrap=True))] if (bar := _bar(err.width, pace)) else []),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            *([_Pace(table_column=Column(no_wrap=True))] if pace else []),
            *([] if pace and err.width < _WIDE else [TimeElapsedColumn(table_column=Column(no_wrap=True))]),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            console=err,
            disable=quiet or self._in_file,
            transient=True,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()

    def _log(self) -> None:
        """Write a progress line to the log file; called after every report."""
        if self._in_file and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LOG_S
            shown = [
                Text.from_markup(task.description) + (f" {task.completed:,.0f} of {task.total:,.0f}" if task.total else "") + _rest(task)
                for task in self._live.tasks
                if task.visible
            ]
            err.print(Text("; ").join(shown), soft_wrap=True)


def _rest(task: BarTask) -> str:
    """Return pace and remaining time of a task, for a line of a file."""
    left = task.time_remaining
    pace = _pace(task)
    return "".join(f", {text}" for text in (pace, f"{timedelta(seconds=round(left))} left" if pace and left else "") if text)


class RunProgress(_Display):
    """Displays the progress of a run on standard error.

    Args:
        tasks: Number of tasks.
        quiet: Whether to show nothing.
    """

    def __init__(self, tasks: int, *, quiet: bool = False) -> None:
        super().__init__(quiet, pace=True)
        self._all = self._live.add_task("experiment", total=tasks)
        self._lines: dict[int, TaskID] = {}
        self._quiet = quiet

    def begin(self, task: Task, done: int) -> None:
        # The last replies of the tasks before may still come in: each has a line until it ends.
        line = self._live.add_task(_name(task), total=task.run.questions, completed=done, failed=0, dollars=0.0)
        self._lines[id(task)] = line
        self._log()

    def stage(self, task: Task, name: str) -> None:
        if (line := self._lines.get(id(task))) is not None:
            self._live.update(line, description=f"{escape(name)}: {_name(task)}")
        self._log()

    def advance(self, task: Task, questions: int, *, failed: int = 0, dollars: float = 0.0) -> None:
        if (line := self._lines.get(id(task))) is not None:
            known = self._live.tasks[self._live.task_ids.index(line)].fields
            self._live.update(line, advance=questions, failed=known["failed"] + failed, dollars=known["dollars"] + dollars)
        self._log()

    def end(self, task: Task, status: str, message: str | None) -> None:
        self._live.advance(self._all)
        if (line := self._lines.pop(id(task), None)) is not None:
            self._live.remove_task(line)
        if message and not self._quiet:
            # The whole message is at the end of the run; in between its beginning suffices.
            beginning = shorten(message.partition("\n")[0], 80, placeholder=" …")
            err.print(f"[red]{status}[/red] {_name(task)}: {escape(beginning)}")


class JudgingProgress(_Display):
    """Displays the progress of judging on standard error.

    Args:
        judgings: Number of work items.
        quiet: Whether to show nothing.
    """

    def __init__(self, judgings: int, *, quiet: bool = False) -> None:
        super().__init__(quiet)
        self._all = self._live.add_task("judging", total=judgings)
        self._one = self._live.add_task("", total=None, visible=False)
        self._prepared = 0

    def begin(self, name: str, total: int, done: int) -> None:
        self._live.update(self._all, completed=self._prepared)
        self._prepared += 1
        self._live.reset(self._one, total=total, completed=done, visible=True, description=escape(name))
        self._log()

    def advance(self, questions: int) -> None:
        self._live.advance(self._one, questions)
        self._log()


class TrainingProgress(_Display):
    """Displays the progress of trainings on standard error, with current figures such as the loss.

    Parallel trainings have one line each, by name.

    Args:
        quiet: Whether to show nothing.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        super().__init__(quiet)
        self._lines = {"": self._live.add_task("training", total=None)}
        self._what = "training"

    def begin(self, what: str, total: int | None = None, done: int = 0, *, name: str = "") -> None:
        self.end(name)
        label = escape(": ".join(filter(None, (name, what))))
        self._what = self._what if name else label
        self._lines[name] = self._live.add_task(label, total=total, completed=done)
        self._log()

    def advance(self, steps: int = 1) -> None:
        self._live.advance(self._lines[""], steps)
        self._log()

    def log(self, figures: Mapping[str, float]) -> None:
        shown = "  ".join(f"{figure} {value:.4g}" for figure, value in figures.items())
        self._live.update(self._lines[""], description=f"{self._what}  {escape(shown)}")
        self._log()

    def end(self, name: str) -> None:
        """Remove the line of the training with this name."""
        if name in self._lines:
            self._live.remove_task(self._lines.pop(name))


class CountingProgress(_Display):
    """Displays a counter on standard error.

    Args:
        what: Name of the counted items.
        quiet: Whether to show nothing.
    """

    def __init__(self, what: str, *, quiet: bool = False) -> None:
        super().__init__(quiet)
        self._one = self._live.add_task(escape(what), total=None)

    def reached(self, done: int, total: int) -> None:
        self._live.update(self._one, completed=done, total=total)
        self._log()


def _name(task: Task) -> str:
    return escape(f"{task.method.name} on {without_options(task.run.dataset)} ({task.run.setting})")
