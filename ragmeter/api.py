"""ragmeter from Python: run an experiment, load what a store holds, look at it as data frames (docs/api.md).

Everything here is what the commands `run` and `table` do, without the printing: same checks, same store, same numbers.
`ragmeter.compared` has `compare`, which is `ragmeter diff` for one metric.
"""

from __future__ import annotations

import io
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from rich.console import Console

from benchmarks.errors import UserError
from ragmeter import arguments
from ragmeter import experiment as experiments
from ragmeter.experiment import Experiment
from ragmeter.experiment_run import How, carry_through
from ragmeter.frames import answers_frame, scores_frame, table_frame
from ragmeter.render import show_battles, show_board
from results import queries, store_folder
from results.battle_board import BattleBoard, battle_boards
from results.board import Board, boards
from results.html_tables import board_html
from results.queries import RunRow
from results.store import FAILED_RUN, Store

if TYPE_CHECKING:
    from pandas import DataFrame

DICTIONARY = "the dictionary"
"""What messages call an experiment that was given as one."""
TEXT_WIDTH = 160
"""Columns of the tables as text."""

# In a notebook without ipywidgets, libraries that can draw bars complain that they cannot; nobody asked them to.
warnings.filterwarnings("ignore", message="IProgress not found")


@dataclass(frozen=True)
class Results:
    """What a store holds of an experiment, or of every run in it, at the moment of asking.

    A notebook shows it as tables of value × 100 ± half its 95 % interval; `print` shows them as the command line does.

    Attributes:
        store: Where it was read.
        experiment: The experiment's name; None for every run in the store.
        boards: One for each group of runs that may be compared: same data, setting and seed. Values are fractions.
        battles: What judges of pairs say, where there are any.
    """

    store: Store
    experiment: str | None
    boards: tuple[Board, ...]
    battles: tuple[BattleBoard, ...] = ()

    @property
    def runs(self) -> tuple[RunRow, ...]:
        """The runs, in the order of the tables."""
        return tuple(row.run for board in self.boards for row in board.rows)

    @property
    def failed(self) -> tuple[RunRow, ...]:
        """Runs that broke; `error` of each says why."""
        return tuple(run for run in self.runs if run.status == FAILED_RUN)

    def table(self) -> DataFrame:
        """One row for each run and metric: value, 95 % interval, n, paired difference to the reference, p, cost.

        Columns are those of `ragmeter table --format csv` (`results.tables.CSV_COLUMNS`); values are fractions.

        Raises:
            MissingPackage: pandas is not installed.
        """
        return table_frame(self.boards)

    def scores(self) -> DataFrame:
        """One row for each run, question and metric: method, dataset, setting, seed, question, metric, value, run.

        `value` is a fraction; NaN where the question is not answered yet, unscorable, or got no value from a judge.

        Raises:
            MissingPackage: pandas is not installed.
        """
        return scores_frame(self.store, self.boards)

    def answers(self) -> DataFrame:
        """One row for each run and answered question: its text, gold answers, the answer, why it failed (or None).

        Raises:
            MissingPackage: pandas is not installed.
        """
        return answers_frame(self.store, self.boards)

    def __repr__(self) -> str:
        what = "every run" if self.experiment is None else f"experiment {self.experiment!r}"
        count = len(self.boards)
        on = f"{count} board{'s' * (count != 1)}"
        return f"<Results of {what}: {len(self.runs)} runs on {on}, store {_near(self.store.folder)}>"

    def __str__(self) -> str:
        text = io.StringIO()
        console = Console(file=text, width=TEXT_WIDTH, highlight=False, no_color=True, force_jupyter=False)
        for board in self.boards:
            show_board(board, console)
        for fought in self.battles:
            show_battles(fought, console)
        return text.getvalue()

    def _repr_html_(self) -> str:
        """What a notebook shows; texts of methods, data sets and errors are escaped."""
        return "\n".join(map(board_html, self.boards)) or "<p>no run yet</p>"


@arguments.speaking_python
def run(
    experiment: str | os.PathLike[str] | Mapping[str, Any] | Experiment,
    *,
    store: str | os.PathLike[str] | None = None,
    profile: str | None = None,
    limit: int | None = None,
    fresh: bool = False,
    retry_failed: bool = False,
    device: str | None = None,
    progress: bool = False,
) -> Results:
    """Run an experiment: answer and score what the store does not hold of it yet (as `ragmeter run`).

    Stopped at any moment, the same call goes on where it was. A task that breaks costs the others nothing: it is warned
    of, and is among `Results.failed`.

    Args:
        experiment: A YAML file, the name of a shipped experiment, the content of such a file as a dictionary, or an
            experiment that `ragmeter.experiment.load` read (for the same store).
        store: Folder of the store; None: RAGMETER_STORE, or ./ragmeter-store.
        profile: One of the file's profiles, laid over it.
        limit: Only the first questions of every benchmark.
        fresh: Forget what the store holds of these tasks and begin again.
        retry_failed: Ask questions that failed again.
        device: cpu, cuda, cuda:1 …; None: the best there is.
        progress: Show bars and messages on standard error.

    Returns:
        The experiment's results, those of earlier calls included.

    Raises:
        UserError: The experiment says something wrong, or cannot be run here; nothing was spent.
        Broke: An endpoint that it needs is not there, or the disk is full.
        Interrupted: The user stopped it; everything finished is in the store.
    """
    home = store_folder(arguments.folder(store, "store"))
    how = How(
        arguments.at_least_one(limit, "limit"),
        arguments.flag(fresh, "fresh"),
        arguments.flag(retry_failed, "retry_failed"),
        device=arguments.text(device, "device"),
    )
    talk = arguments.flag(progress, "progress")
    read = _experiment(experiment, arguments.text(profile, "profile"), home)
    opened = Store(home)
    outcomes = carry_through(read, opened, how, talk=talk)
    for outcome in outcomes:
        if outcome.status == FAILED_RUN:
            warnings.warn(f"{outcome.task.method.name} on {outcome.task.run.dataset} failed: {outcome.error}", stacklevel=3)
    return _results(opened, read.name)


@arguments.speaking_python
def load_results(
    store: str | os.PathLike[str] | None = None,
    experiment: str | None = None,
    *,
    metrics: str | Sequence[str] | None = None,
    reference: str | None = None,
    every: bool = False,
) -> Results:
    """What a store holds of an experiment (as `ragmeter table`).

    Args:
        store: Folder of the store; None: RAGMETER_STORE, or ./ragmeter-store.
        experiment: Its name; None: the newest.
        metrics: Ids to show, or their beginnings (`f1`, `recall@5`), or one of them; None shows those that the
            experiment names.
        reference: Method that differences are taken to; None: the experiment's.
        every: Every run in the store, whatever its experiment.

    Raises:
        UserError: There is no such store, experiment, metric or reference.
    """
    opened = Store(store_folder(arguments.folder(store, "store")))
    wanted, shown = arguments.text(experiment, "experiment"), arguments.texts(metrics, "metrics")
    held_against = arguments.text(reference, "reference")
    name = None if arguments.flag(every, "every") else queries.experiment(opened, wanted).name
    return _results(opened, name, metrics=shown, reference=held_against)


def _results(store: Store, experiment: str | None, *, metrics: Sequence[str] | None = None, reference: str | None = None) -> Results:
    found = boards(store, experiment, metrics=metrics, reference=reference)
    reference = reference or (queries.experiment(store, experiment).reference if experiment else None)
    fought = battle_boards(store, queries.runs(store, experiment), reference)
    return Results(store, experiment, tuple(found), tuple(fought))


def _experiment(given: str | os.PathLike[str] | Mapping[str, Any] | Experiment, profile: str | None, store: Path) -> Experiment:
    """Whatever names an experiment, read and validated."""
    if isinstance(given, Experiment):
        if profile is not None and profile != given.profile:
            raise UserError(
                "this experiment was read without that profile", where="profile", try_this="ragmeter.experiment.load(FILE, profile=…)"
            )
        return given
    if isinstance(given, Mapping):
        try:
            text = yaml.safe_dump(dict(given), sort_keys=False, allow_unicode=True)
        except yaml.YAMLError as error:
            raise UserError(f"an experiment is made of texts, numbers, lists and dictionaries: {error}", where=DICTIONARY) from None
        try:
            return experiments.parse(text, DICTIONARY, profile=profile, store=store)
        except UserError as error:
            raise UserError(error.what, where=_without_line(error.where), try_this=error.try_this) from None
    if isinstance(given, str | os.PathLike):
        return experiments.load(os.fspath(given), profile=profile, store=store)
    raise UserError(
        f"{given!r} is no experiment", where="experiment", try_this="a YAML file, a dictionary, or the name of a shipped experiment"
    )


def _without_line(where: str | None) -> str | None:
    """The place in a dictionary, which has keys and no lines."""
    return where and re.sub(rf"^{DICTIONARY}:\d+", DICTIONARY, where)


def _near(folder: Path) -> Path:
    """A folder as it is seen from here, where it lies below."""
    here = Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder
