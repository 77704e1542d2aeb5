"""One display over a whole experiment: which task, which stage, how many questions, how long still."""

from __future__ import annotations

import time
from collections.abc import Mapping
from textwrap import shorten
from types import TracebackType
from typing import Self

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.table import Column
from rich.text import Text

from ragmeter.runner.tasks import Task
from ragmeter.show.console import err
from results.store.variants import without_options

LOG_S = 60.0
"""Minimum seconds between two progress lines in a log file."""
_WIDE = 110
"""Minimum number of terminal columns for the long bar."""
_BESIDE = 1 + 13 + 7 + 7 + 5
"""Columns that spinner, count (of a million), both times and the gaps take."""


def _bar(width: int) -> int:
    return 24 if width >= _WIDE else 10


def _described(width: int) -> Column:
    """The description has what the others leave of the line: it is cut before any of them."""
    return Column(no_wrap=True, overflow="ellipsis", max_width=max(8, width - _BESIDE - _bar(width)))


class _Display:
    """Bars on standard error while its block lasts; a line now and then where that is a file."""

    def __init__(self, quiet: bool) -> None:
        self._in_file = not quiet and not err.is_terminal
        self._next_line = 0.0
        self._live = RichProgress(
            SpinnerColumn(),
            TextColumn("{task.description}", table_column=_described(err.width)),
            BarColumn(bar_width=_bar(err.width), table_column=Column(no_wrap=True)),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TimeElapsedColumn(table_column=Column(no_wrap=True)),
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
                Text.from_markup(task.description) + (f" {task.completed:,.0f} of {task.total:,.0f}" if task.total else "")
                for task in self._live.tasks
                if task.visible
            ]
            err.print(Text("; ").join(shown), soft_wrap=True)


class RunProgress(_Display):
    """Shows the run loop's reports on standard error.

    Args:
        tasks: Number of tasks.
        quiet: Show nothing.
    """

    def __init__(self, tasks: int, *, quiet: bool = False) -> None:
        super().__init__(quiet)
        self._all = self._live.add_task("experiment", total=tasks)
        self._one = self._live.add_task("", total=None, visible=False)
        self._quiet = quiet
        self._shown: Task | None = None

    def begin(self, task: Task, done: int) -> None:
        self._shown = task  # the last replies of the one before may still come in
        self._live.reset(self._one, total=task.run.questions, completed=done, visible=True, description=_name(task))
        self._log()

    def stage(self, task: Task, name: str) -> None:
        if task is self._shown:
            self._live.update(self._one, description=f"{escape(name)}: {_name(task)}")
        self._log()

    def advance(self, task: Task, questions: int) -> None:
        if task is self._shown:
            self._live.advance(self._one, questions)
        self._log()

    def end(self, task: Task, status: str, message: str | None) -> None:
        self._live.advance(self._all)
        if message and not self._quiet:
            # The whole message stands at the end of the run; in between its beginning suffices.
            beginning = shorten(message.partition("\n")[0], 80, placeholder=" …")
            err.print(f"[red]{status}[/red] {_name(task)}: {escape(beginning)}")


class JudgingProgress(_Display):
    """Shows what judges do on standard error.

    Args:
        judgings: Number of them.
        quiet: Show nothing.
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
    """Shows trainings on standard error; figures of the moment stand beside the bar.

    Several at once have a line each, by name.

    Args:
        quiet: Show nothing.
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
        """The line of this name is not needed any more."""
        if name in self._lines:
            self._live.remove_task(self._lines.pop(name))


class CountingProgress(_Display):
    """Shows one count on standard error.

    Args:
        what: Is counted.
        quiet: Show nothing.
    """

    def __init__(self, what: str, *, quiet: bool = False) -> None:
        super().__init__(quiet)
        self._one = self._live.add_task(escape(what), total=None)

    def reached(self, done: int, total: int) -> None:
        self._live.update(self._one, completed=done, total=total)
        self._log()


def _name(task: Task) -> str:
    return escape(f"{task.method.name} on {without_options(task.run.dataset)} ({task.run.setting})")
