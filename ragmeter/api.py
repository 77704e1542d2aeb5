"""ragmeter from Python: run an experiment, load what a store holds, look at it as data frames (docs/experiments.md).

Everything here is what the commands `run` and `results` do, without the printing: same checks, same store, same numbers.
`ragmeter.api` has `compare`, which is `ragmeter results compare` for one metric.
"""

from __future__ import annotations

import functools
import inspect
import io
import numbers
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np
import yaml

from benchmarks.core.errors import MissingPackage, UserError, counted
from methods.api import FAILED
from methods.spending import LimitReached, Limits
from ragmeter import experiment as experiments
from ragmeter.experiment import Experiment
from ragmeter.runner.experiment import How, run_experiment, unread_judgings
from ragmeter.runner.revisions import with_revisions
from ragmeter.show.board_text import show_battles, show_boards
from ragmeter.show.console import SafeConsole
from results import store_folder
from results.boards.board import Board, boards
from results.boards.diff import Number, Setting, diff
from results.boards.markup import to_html
from results.boards.tables import CSV_COLUMNS, board_html, geometric_note, plus_minus, tidy
from results.boards.verdict import BoardVerdict
from results.boards.verdict_of import MANY, verdicts
from results.boards.verdict_text import headline_of, headline_text, headlines, html
from results.judging.battles import BattleBoard, battle_boards
from results.statistics.core import Difference, Estimate
from results.store import answer_queries, queries, score_queries, tags
from results.store.queries import RunRow
from results.store.store import FAILED_RUN, INCOMPLETE, Store

if TYPE_CHECKING:
    from pandas import DataFrame


P = ParamSpec("P")
R = TypeVar("R")


def with_argument_names(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate an API function so that its errors name Python arguments instead of command-line options (`limit=…`, not `--limit`)."""
    names = {name.replace("_", "-"): name for name in inspect.signature(function).parameters}
    option = re.compile(rf"--({'|'.join(names)})(?![\w-])(?: [A-Z]+\b)?")

    def reworded(text: str | None, mark: str) -> str | None:
        return text and option.sub(lambda result: names[result[1]] + mark, text)

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except UserError as error:
            error.what = reworded(error.what, "=…") or error.what
            error.where, error.try_this = reworded(error.where, ""), reworded(error.try_this, "=…")
            error.args = ("\n".join(error.lines()),)
            raise

    return wrapped


def folder(value: Any, name: str) -> Path | None:
    """Validate an argument that is a folder (text or path); None stays None."""
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike):
        raise _wanted("a folder", value, name)
    return Path(value)


def text(value: Any, name: str) -> str | None:
    """Validate an argument that is a text; None stays None."""
    if value is None or isinstance(value, str):
        return value
    raise _wanted("a text", value, name)


def texts(value: Any, name: str) -> list[str] | None:
    """Validate an argument that is one text or a list of texts, and return a list; None stays None."""
    if value is None:
        return None
    if isinstance(value, str):
        return [value]
    if not isinstance(value, Sequence | set | frozenset) or not all(isinstance(item, str) for item in value):
        raise _wanted("a list of texts", value, name)
    return list(value)


def at_least_one(value: Any, name: str) -> int | None:
    """Validate an argument that is a whole number of at least 1; None stays None."""
    if value is None:
        return None
    # True is a number to Python, and hardly meant as one.
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise _wanted("a whole number", value, name)
    if value < 1:
        raise UserError(f"must be at least 1, got {value}", code="number-too-small", where=name, try_this=f"{name}=1 or more")
    return int(value)


def flag(value: Any, name: str) -> bool:
    """Validate a boolean argument; texts such as "no" are refused, because Python would treat them as true."""
    if isinstance(value, bool):
        return value
    raise _wanted("True or False", value, name)


def _wanted(what: str, value: Any, name: str) -> UserError:
    return UserError(f"{what} is required, got {value!r}", code="wrong-type", where=name)


SCORE_COLUMNS = ("method", "dataset", "setting", "seed", "question", "metric", "value", "run")
ANSWER_COLUMNS = ("method", "dataset", "setting", "seed", "question", "text", "golds", "answer", "failed", "run")


def frame(columns: Sequence[str], values: Any) -> DataFrame:
    """Make a pandas data frame.

    Args:
        columns: Names of the columns.
        values: A list of rows, or a mapping from column names to sequences.

    Raises:
        MissingPackage: pandas is not installed.
    """
    if find_spec("pandas") is None:
        raise MissingPackage("pandas", "notebook", "a data frame")
    from pandas import DataFrame

    return DataFrame(values, columns=list(columns))


def table_frame(boards: Sequence[Board]) -> DataFrame:
    """Convert boards to a data frame with one row per run and metric, and the columns of `ragmeter results --format csv`."""
    return frame(CSV_COLUMNS, [line for board in boards for line in tidy(board)])


def scores_frame(store: Store, boards: Sequence[Board]) -> DataFrame:
    """Read per-question scores: a data frame with one row per run, question and metric, in the boards' order.

    A value is NaN if the question is not answered yet, unscorable, or a judge gave it no value.
    """
    parts: list[dict[str, Any]] = []
    for board in boards:
        runs = [row.run for row in board.rows]
        result = score_queries.score_columns(store, board.dataset_fingerprint, [run.run for run in runs], board.metrics)
        for run in runs:
            for metric in board.metrics:
                if (values := result.values.get((run.run, metric))) is not None:
                    shared = (run.method, board.dataset, board.setting, board.seed)
                    parts.append(_repeated(shared, result.questions, metric, values, run.run))
    columns: dict[str, Any] = {name: np.concatenate([part[name] for part in parts]) if parts else [] for name in SCORE_COLUMNS}
    return frame(SCORE_COLUMNS, columns)


def _repeated(shared: Sequence[Any], questions: Sequence[str], metric: str, values: Any, run: str) -> dict[str, Any]:
    count = len(questions)
    method, dataset, setting, seed = shared
    texts = {"method": method, "dataset": dataset, "setting": setting, "metric": metric, "run": run}
    column: dict[str, Any] = {name: np.full(count, text, dtype=object) for name, text in texts.items()}
    return column | {"seed": np.full(count, seed), "question": np.array(questions, dtype=object), "value": values}


def answers_frame(store: Store, boards: Sequence[Board]) -> DataFrame:
    """Read answers: a data frame with one row per run and answered question (text, gold answers, answer, reason of a failure or None)."""
    rows = []
    for board in boards:
        questions = {question.question: question for question in answer_queries.questions(store, board.dataset_fingerprint)}
        for row in board.rows:
            run = row.run
            predictions = {prediction.question_id: prediction for prediction in store.predictions(run.run)}
            for name in (name for name in questions if name in predictions):
                question, item = questions[name], predictions[name]
                where = (run.method, board.dataset, board.setting, board.seed)
                rows.append((*where, name, question.text, question.golds, item.answer, item.notes.get(FAILED), run.run))
    return frame(ANSWER_COLUMNS, rows)


DICTIONARY = "the dictionary"
"""Name in messages for an experiment that is passed as an object."""
TEXT_WIDTH = 160
"""Number of columns of text tables."""

# In a notebook without ipywidgets, libraries warn that they cannot draw progress bars, which are not needed.
warnings.filterwarnings("ignore", message="IProgress not found")


@dataclass(frozen=True)
class Results:
    """Results of an experiment, or of all runs in a store, at the time of the call.

    A notebook shows the verdict and tables of value × 100 ± half its 95 % interval; `print` shows them as the command line does.

    Attributes:
        store: The store that it was read from.
        experiment: The experiment's name; None for every run in the store.
        boards: Results tables, one per group of comparable runs (same data, setting and seed). Values are fractions.
        battles: Win rates according to pair judges, if there are any.
        verdicts: Per benchmark, and for all together: the best method and its difference from the next.
    """

    store: Store
    experiment: str | None
    boards: tuple[Board, ...]
    battles: tuple[BattleBoard, ...] = ()
    verdicts: tuple[BoardVerdict, ...] = ()

    @property
    def runs(self) -> tuple[RunRow, ...]:
        """Return all runs, in the order of the tables."""
        return tuple(row.run for board in self.boards for row in board.rows)

    @property
    def failed(self) -> tuple[RunRow, ...]:
        """Return the runs that crashed or in which too many questions failed; their `error` gives the reason."""
        return tuple(run for run in self.runs if run.status in (FAILED_RUN, INCOMPLETE))

    def table(self) -> DataFrame:
        """Return a data frame with one row per run and metric: value, 95 % interval, n, paired difference from the reference, p, cost.

        Columns are those of `ragmeter results --format csv` (`results.boards.tables.CSV_COLUMNS`); values are fractions.

        Raises:
            MissingPackage: pandas is not installed.
        """
        return table_frame(self.boards)

    def scores(self) -> DataFrame:
        """Return a data frame with one row per run, question and metric: method, dataset, setting, seed, question, metric, value, run.

        `value` is a fraction; NaN if the question is not answered yet, unscorable, or a judge gave it no value.

        Raises:
            MissingPackage: pandas is not installed.
        """
        return scores_frame(self.store, self.boards)

    def answers(self) -> DataFrame:
        """Return a data frame with one row per run and answered question: text, gold answers, answer, reason of a failure (or None).

        Raises:
            MissingPackage: pandas is not installed.
        """
        return answers_frame(self.store, self.boards)

    def __repr__(self) -> str:
        what = "every run" if self.experiment is None else f"experiment {self.experiment!r}"
        count = len(self.boards)
        on = f"{count} board{'s' * (count != 1)}"
        stored = f"<Results of {what}: {len(self.runs)} runs on {on}, store {_near(self.store.folder)}>"
        return "\n".join(filter(None, [headline_text(headlines(self.verdicts)), stored]))

    def __str__(self) -> str:
        text = io.StringIO()
        console = SafeConsole(file=text, width=TEXT_WIDTH, highlight=False, no_color=True, force_jupyter=False)
        show_boards(self.boards, headlines(self.verdicts), console, verbose=True)
        for fought in self.battles:
            show_battles(fought, console)
        return text.getvalue()

    def _repr_html_(self) -> str:
        """Return the HTML for notebooks; texts of methods, datasets and errors are escaped."""
        known = headlines(self.verdicts)
        parts = [html(line) for line in known if line.main.place.suite]
        for board in self.boards:
            line = headline_of(board, known)
            parts += [*([html(line)] if line is not None else []), board_html(board)]
        return "\n".join(parts) or "<p>no run yet</p>"


@with_argument_names
def run(
    experiment: str | os.PathLike[str] | Mapping[str, Any] | Experiment,
    *,
    store: str | os.PathLike[str] | None = None,
    profile: str | None = None,
    limit: int | None = None,
    fresh: bool = False,
    reuse_replies: bool = False,
    retry_failed: bool = False,
    accept_failures: bool = False,
    device: str | None = None,
    calls: bool = True,
    progress: bool = False,
    revisions: Mapping[str, str] | None = None,
    max_usd: float | None = None,
    max_hours: float | None = None,
    max_calls: int | None = None,
) -> Results:
    """Run an experiment: answer and score its questions that are not in the store yet (as `ragmeter run`).

    If it is interrupted, the same call resumes it. A failed task does not affect the others: it causes a warning and is listed
    in `Results.failed`.

    Args:
        experiment: A YAML file, the name of a shipped experiment, the content of such a file as a dictionary, or an
            experiment that `ragmeter.experiment.load` read (for the same store).
        store: Folder of the store; None: RAGMETER_STORE, or ./ragmeter-store.
        profile: Name of one of the file's profiles to apply.
        limit: Maximum number of questions per benchmark.
        fresh: Start a new run of every task in addition to the stored ones, and call models again.
        reuse_replies: With `fresh`: use cached replies of models.
        retry_failed: Ask failed questions again; for a finished run, in a new run that keeps the other answers.
        accept_failures: Count failures in ragmeter's or a plug-in's code as wrong answers, and do not ask these questions
            again.
        device: cpu, cuda, cuda:1 …; None: the best available.
        calls: Store the model calls of each question (`results show RUN QUESTION`).
        progress: Show bars and messages on standard error.
        revisions: Revision of the system behind each row, such as `{"my_app": "3f2c1a7"}`.
        max_usd, max_hours, max_calls: Limits on the cost of all models and apps in this call; the rest stays pending.

    Returns:
        The experiment's results, those of earlier calls included.

    Raises:
        UserError: The experiment is invalid, or cannot run here; nothing was run.
        Broke: A required endpoint does not answer, or the disk is full.
        Interrupted: The user interrupted it; everything finished is in the store.
    """
    home = store_folder(folder(store, "store"))
    again = (
        flag(fresh, "fresh"),
        flag(reuse_replies, "reuse_replies"),
        flag(retry_failed, "retry_failed"),
        flag(accept_failures, "accept_failures"),
    )
    limits = Limits.from_options(max_usd=max_usd, max_hours=max_hours, max_calls=max_calls)
    how = How(at_least_one(limit, "limit"), *again, device=text(device, "device"), calls=flag(calls, "calls"), limits=limits)
    if how.reuse_replies and not how.fresh:
        raise UserError("this option needs fresh=True", code="option-without-fresh", where="reuse_replies", try_this="add fresh=True")
    talk = flag(progress, "progress")
    if revisions is not None and not (isinstance(revisions, Mapping) and all(isinstance(value, str) for value in revisions.values())):
        raise _wanted("a dictionary of texts", revisions, "revisions")
    read = with_revisions(_experiment(experiment, text(profile, "profile"), home), revisions or {}, "revisions")
    opened = Store(home)
    try:
        outcomes = run_experiment(read, opened, how, talk=talk)
    except LimitReached as error:
        outcomes = list(error.outcomes)
        warnings.warn(str(error), stacklevel=3)
    for outcome in outcomes:
        if outcome.status in (FAILED_RUN, INCOMPLETE):
            ended = "failed" if outcome.status == FAILED_RUN else "is incomplete"
            warnings.warn(f"{outcome.task.method.name} on {outcome.task.run.dataset} {ended}: {outcome.error}", stacklevel=3)
    for line in unread_judgings(read, opened):
        warnings.warn(line, stacklevel=3)
    return _results(opened, read.name)


@with_argument_names
def load_results(
    store: str | os.PathLike[str] | None = None,
    experiment: str | None = None,
    *,
    metrics: str | Sequence[str] | None = None,
    reference: str | None = None,
    every: bool = False,
) -> Results:
    """Load the stored results of an experiment (as `ragmeter results`).

    Args:
        store: Folder of the store; None: RAGMETER_STORE, or ./ragmeter-store.
        experiment: Name of the experiment; None: the newest.
        metrics: One or more metric ids or their beginnings (`f1`, `recall@5`); None uses the experiment's metrics.
        reference: Method to compare with; None: the experiment's.
        every: Load all runs in the store, whatever their experiment.

    Raises:
        UserError: The store, experiment, metric or reference is unknown.
    """
    opened = Store(store_folder(folder(store, "store")))
    wanted, shown = text(experiment, "experiment"), texts(metrics, "metrics")
    held_against = text(reference, "reference")
    name = None if flag(every, "every") else queries.experiment(opened, wanted).name
    return _results(opened, name, metrics=shown, reference=held_against)


def _results(store: Store, experiment: str | None, *, metrics: Sequence[str] | None = None, reference: str | None = None) -> Results:
    result = boards(store, experiment, metrics=metrics, reference=reference)
    reference = reference or (queries.experiment(store, experiment).reference if experiment else None)
    fought = battle_boards(store, queries.runs(store, experiment), reference)
    shown = [*dict.fromkeys(metric for board in result for metric in board.metrics)] if metrics else None
    known = verdicts(store, experiment, metrics=shown, reference=reference, most=MANY) if result else []
    return Results(store, experiment, tuple(result), tuple(fought), tuple(known))


def _experiment(value: str | os.PathLike[str] | Mapping[str, Any] | Experiment, profile: str | None, store: Path) -> Experiment:
    """Load and validate an experiment, given in any supported form."""
    if isinstance(value, Experiment):
        if profile is not None and profile != value.profile:
            raise UserError(
                "this experiment was loaded without that profile",
                code="profile-not-read",
                where="profile",
                try_this="ragmeter.experiment.load(FILE, profile=…)",
            )
        return value
    if isinstance(value, Mapping):
        try:
            text = yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True)
        except yaml.YAMLError as error:
            raise UserError(
                f"an experiment is made of texts, numbers, lists and dictionaries: {error}", code="bad-experiment-value", where=DICTIONARY
            ) from None
        try:
            return experiments.parse(text, DICTIONARY, profile=profile, store=store)
        except UserError as error:
            raise UserError(error.what, code=error.code, where=_without_line(error.where), try_this=error.try_this) from None
    if isinstance(value, str | os.PathLike):
        return experiments.load(os.fspath(value), profile=profile, store=store)
    raise UserError(
        f"{value!r} is not an experiment",
        code="not-experiment",
        where="experiment",
        try_this="a YAML file, a dictionary, or the name of a shipped experiment",
    )


def _without_line(where: str | None) -> str | None:
    """Return the path within a dictionary, which has keys and no lines."""
    return where and re.sub(rf"^{DICTIONARY}:\d+", DICTIONARY, where)


def _near(folder: Path) -> Path:
    """Return a folder relative to the working directory if it is inside."""
    here = Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder


QUESTION_COLUMNS = ("question", "text", "first", "second", "difference")


@dataclass(frozen=True)
class Compared:
    """Paired comparison of two runs on one metric; values and differences are fractions.

    Attributes:
        store: The store that it was read from.
        a, b: The two runs; differences are b minus a.
        metric: Id of the metric.
        higher_is_better: False if lower is better.
        first, second: Mean of a and of b with 95 % interval, over the questions that each was scored on.
        paired: b minus a over the questions that both were scored on, with interval, p-value and counts.
        settings: Keys on which the configurations of the two runs differ.
        read: Sentences about test questions in the training data of a (first) or b (second), or that this is unknown.
        scale: Factor for displaying values.
    """

    store: Store
    a: RunRow
    b: RunRow
    metric: str
    higher_is_better: bool
    first: Estimate
    second: Estimate
    paired: Difference
    settings: tuple[Setting, ...]
    scale: float = 100.0
    read: tuple[str, ...] = ()

    @property
    def difference(self) -> float:
        """Return the mean paired difference, b minus a."""
        return self.paired.value

    @property
    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval of the difference; NaN if there is insufficient data."""
        return self.paired.low, self.paired.high

    @property
    def p(self) -> float:
        """Return the two-sided p-value of the difference, not corrected for other metrics or methods; NaN if there is insufficient data."""
        return self.paired.p

    @property
    def n(self) -> int:
        """Return the number of questions that both were scored on."""
        return self.paired.n

    @property
    def wins(self) -> int:
        """Return the number of questions on which b is better than a, in the metric's own direction."""
        return self.paired.wins if self.higher_is_better else self.paired.losses

    @property
    def ties(self) -> int:
        """Return the number of questions with equal scores."""
        return self.paired.ties

    @property
    def losses(self) -> int:
        """Return the number of questions on which b is worse than a."""
        return self.paired.losses if self.higher_is_better else self.paired.wins

    def questions(self) -> DataFrame:
        """Return a data frame with one row per question that both were scored on: question, text, first, second, difference
        (second - first).

        Raises:
            MissingPackage: pandas is not installed.
        """
        runs = [self.a.run, self.b.run]
        result = score_queries.score_columns(self.store, self.a.dataset_fingerprint, runs, [self.metric])
        texts = [row.text for row in answer_queries.questions(self.store, self.a.dataset_fingerprint)]
        first, second = (result.values[run, self.metric] for run in runs)
        columns = (result.questions, texts, first, second, second - first)
        rows = frame(QUESTION_COLUMNS, dict(zip(QUESTION_COLUMNS, columns, strict=True)))
        return rows.dropna(subset=["difference"], ignore_index=True)

    def __repr__(self) -> str:
        return f"<{self._sentence()}>"

    def __str__(self) -> str:
        return self._sentence()

    def _repr_html_(self) -> str:
        """Return the HTML for notebooks; names are escaped."""
        rows = [
            (self.a.path, plus_minus(self.first.value, self.first.low, self.first.high, scale=self.scale)),
            (self.b.path, plus_minus(self.second.value, self.second.low, self.second.high, scale=self.scale)),
            ("difference", plus_minus(self.difference, *self.interval, "{:+.1f}", self.scale)),
            ("p", f"{self.p:.4f}"),
            ("wins / ties / losses", f"{self.wins} / {self.ties} / {self.losses}"),
        ]
        direction = "" if self.higher_is_better else "; lower is better"
        notes = [f"difference: second minus first, paired over {counted(self.n, 'question')}{direction}"]
        notes += [f"no verdict: {self.paired.insufficient_data}"] if self.paired.insufficient_data else []
        notes += filter(None, [geometric_note([(self.metric, self.paired)]), *self.read])
        return to_html(("", self.metric), rows, notes=notes)

    def _sentence(self) -> str:
        shown = plus_minus(self.difference, *self.interval, "{:+.1f}", self.scale)
        return (
            f"{self.metric}: {self.b.path} minus {self.a.path} = {shown}, p = {self.p:.4f}, "
            f"{counted(self.wins, 'win')}, {counted(self.ties, 'tie')}, {counted(self.losses, 'loss', 'losses')} of "
            f"{counted(self.n, 'question')}" + "".join(f"; {line}" for line in self.read)
        )


@with_argument_names
def compare(a: str | RunRow, b: str | RunRow, *, metric: str | None = None, store: str | os.PathLike[str] | None = None) -> Compared:
    """Compare two runs on one metric, with the paired difference b minus a (as `ragmeter results compare A B`).

    Args:
        a, b: Runs: a tag, the beginning of a fingerprint, a path (`experiment/method/dataset/setting/seed`, or
            a part of it that only one run has), or one of `Results.runs`.
        metric: Metric id or its beginning (`f1`); None: the first metric that both were scored on.
        store: Folder of the store; None: RAGMETER_STORE, or ./ragmeter-store.

    Raises:
        UserError: The run or metric is unknown, or the two runs have different questions, or no scored question in common.
    """
    opened = Store(store_folder(folder(store, "store")))
    for name, value in (("a", a), ("b", b)):
        if not isinstance(value, str | RunRow):
            raise UserError(f"{value!r} is not a run", code="not-run", where=name, try_this="a text that names one, or one of `runs`")
    metric = text(metric, "metric")
    first, second = (item if isinstance(item, RunRow) else tags.find_run(opened, item) for item in (a, b))
    result = diff(opened, first, second, metrics=[metric] if metric else None, questions=0)
    if result.unpaired:
        raise UserError(
            result.unpaired, code="unpaired-runs", where=f"{first.path} and {second.path}", try_this="compare runs of one board"
        )
    where = f"{first.path} and {second.path}"
    number = _chosen(result.numbers, metric, where)
    if number.first is None or number.second is None or number.difference is None:
        raise UserError(
            f"no question has a value of {number.metric} in both runs",
            code="no-common-question",
            where=where,
            try_this="ragmeter run --resume, or another metric",
        )
    return Compared(
        opened,
        first,
        second,
        number.metric,
        number.higher_is_better,
        number.first,
        number.second,
        number.difference,
        result.settings,
        number.scale,
        result.read,
    )


def _chosen(numbers: tuple[Number, ...], metric: str | None, where: str) -> Number:
    """Return the requested number; without a name, the first that both runs have."""
    if not numbers:
        raise UserError("neither run has been scored yet", code="runs-not-scored", where=where, try_this="ragmeter run --resume")
    if metric is not None and len(numbers) > 1:
        ids = ", ".join(number.metric for number in numbers)
        raise UserError(f"{metric!r} means {len(numbers)} metrics", code="ambiguous-metric", where="metric", try_this=f"name one: {ids}")
    return numbers[0]
