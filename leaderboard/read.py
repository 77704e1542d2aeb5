"""Read the store for pages, cached as long as the store's file stays the same; shared, so not to be changed."""

from __future__ import annotations

import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import numpy as np
import streamlit as st
from numpy.typing import NDArray

from leaderboard.elements.formats import MAIN
from leaderboard.matrix.exports import closest_printed
from leaderboard.matrix.rows import (
    ALL_SETTINGS,
    OWN,
    Choices,
    Filters,
    choices,
    columns_of,
    labels,
    metrics_of,
    own_metrics,
    settings_of,
    wanted_of,
)
from results.boards import board as boards
from results.boards import budget, compare, style
from results.boards import systems as column_figures
from results.boards.board import Board, Facts, board, groups
from results.boards.compare import Comparison
from results.boards.folded import Folded
from results.boards.health import HealthLine, health
from results.boards.matrix import Cell, Column, Correction, Key, Matrix, matrix, ranked_cells
from results.boards.names import is_called
from results.boards.primary import Primary, primary_of
from results.boards.published import Comparison as PublishedComparison
from results.boards.style import CurveTable, Over
from results.boards.systems import Figures, System, Wanted, systems
from results.boards.verdict import BoardVerdict, matrix_verdicts
from results.gate import history as gate_history
from results.judging import battles as battle_board
from results.judging import judge_card as judge_cards
from results.judging import judgments
from results.judging.battles import BattleBoard
from results.judging.judgments import Conversation, Verdict
from results.statistics.places import Band
from results.store import checkpoints, invariants, provenance, queries
from results.store.provenance import Attribution
from results.store.queries import AnswerRow, Cost, IndexCost, QuestionRow, RunRow, UserError
from results.store.reuse import reuse
from results.store.store import FINISHED, Store
from results.submission import review

# Small results are cached by value; boards and lists of runs and of questions are shared between readers and must not be
# changed. The store's folder comes from anyone who started the server, never from a URL.


P = ParamSpec("P")
R = TypeVar("R")
STORE_VARIABLE = "RAGMETER_STORE"
EXPERIMENT_VARIABLE = "RAGMETER_EXPERIMENT"
"""Environment variable of the experiment that pages open with (`ragmeter leaderboard --experiment NAME`)."""
DEFAULT_FOLDER = "ragmeter-store"
DEPTH = 20
"""Ranks of evidence shown."""


@dataclass(frozen=True, slots=True)
class Source:
    """A store and the version of its file, used as a cache key: it changes with every write."""

    folder: str
    stamp: tuple[int, ...]


REST_S = 10.0
"""Seconds between two checks for changes of the store, because a run writes ten times a second."""
_adopted: dict[str, tuple[Source, float]] = {}
_last_board: dict[str, tuple[Any, ...]] = {}
"""The choices of the overview matrix that was computed last, by the store's folder."""
_renewed: dict[str, threading.Thread] = {}
"""The thread that computes that matrix for a store's new version."""


def source() -> Source:
    """Return the store that the server was started for; while it keeps changing, in its version of at most `REST_S` seconds ago.

    Visitors do not wait for a new version: they see the last one until one thread has computed the overview matrix of the new one.
    """
    store = Store(Path(os.environ.get(STORE_VARIABLE) or DEFAULT_FOLDER).resolve())
    stamp: list[int] = []
    for path in (store.database.path, store.database.path.with_suffix(".duckdb.wal")):
        try:
            result = path.stat()
        except OSError:
            continue
        stamp += [result.st_mtime_ns, result.st_size]
    latest, now = Source(str(store.folder), tuple(stamp)), time.monotonic()
    known, since = _adopted.get(latest.folder, (latest, -math.inf))
    if known == latest:
        _adopted[latest.folder] = known, since
    elif not (known.stamp and stamp):
        _adopt(latest)
    elif now - since >= REST_S:
        _renew(latest)
    # Another visitor may have called `look_again` meanwhile.
    return _adopted.get(latest.folder, (latest, now))[0]


def _adopt(latest: Source) -> None:
    _renewed.pop(latest.folder, None)
    _adopted[latest.folder] = latest, time.monotonic()


def prepare() -> None:
    """Compute what the start page opens with, before the first visitor asks for it; the page itself reports errors."""
    at = source()
    if not at.stamp:
        return
    with suppress(UserError):
        experiment = opens_with(at)
        setting = settings(at, experiment)[0]
        known = setting_of(at, experiment, setting)
        if not known.metrics:
            return
        rows = entrants(at, experiment, setting, MAIN, OWN).rows
        reference = reference_of(at, experiment, [row.name for row in rows if not row.control])
        matrix_of(at, experiment, setting, MAIN, OWN, tuple(known.names), Filters(), reference, "column")
        published(at, experiment, setting, MAIN, OWN)


def _renew(latest: Source) -> None:
    """Show a new version of the store once its overview matrix is computed; at once if no visitor has asked for a matrix."""
    choices = _last_board.get(latest.folder)
    if choices is None:
        _adopt(latest)
        return

    def compute() -> None:
        try:
            # The page that shows this version reports its errors.
            with suppress(UserError):
                matrix_of(latest, *choices)
                published(latest, *choices[:4])
        finally:
            # After `look_again`, this version may be outdated.
            if _renewed.get(latest.folder) is thread:
                _adopt(latest)

    thread = threading.Thread(target=compute, name="renewing")
    # Two visitors may come here at once: only the first one's thread is started.
    if _renewed.setdefault(latest.folder, thread) is thread:
        thread.start()


def look_again(at: Source) -> None:
    """Let pages show at once what this server itself has written."""
    _renewed.pop(at.folder, None)
    _adopted.pop(at.folder, None)


@st.cache_resource(show_spinner=False, max_entries=4)
def store_of(at: Source) -> Store:
    """Open the store; cached per version of its file."""
    return Store(Path(at.folder))


def _kept(
    query: Callable[Concatenate[Store, P], R], most: int = 8, *, shared: bool = False, wait: str = ""
) -> Callable[Concatenate[Source, P], R]:
    """Return a query of the store whose results are cached.

    Args:
        query: The query.
        most: Maximum number of cached results.
        shared: Whether readers share one answer, which must not be changed, rather than have a copy each.
        wait: Text of the page during the query.
    """

    @wraps(query)
    def ask(at: Source, *args: P.args, **options: P.kwargs) -> R:
        return query(store_of(at), *args, **options)

    cache: Any = st.cache_resource if shared else st.cache_data
    return cast(Callable[Concatenate[Source, P], R], cache(show_spinner=wait or False, max_entries=most)(ask))


_JUDGED = "Reading the judge's replies …"
experiments = _kept(queries.experiments)
"""Stored experiments, newest first."""
has_runs = _kept(queries.has_runs)
definitions = _kept(queries.definitions)
datasets = _kept(queries.datasets)
metric_ids = _kept(queries.metric_ids, 32)
method_cards = _kept(provenance.cards, 4, shared=True)
checkpoints_by_hash = _kept(checkpoints.known_checkpoints, 4, shared=True)
known_checkpoints = _kept(checkpoints.checkpoints, 4)
questions = _kept(queries.questions, shared=True)
calls = _kept(queries.calls, 16)
passages = _kept(queries.passages, 128)
dataset_facts = _kept(provenance.dataset_facts)
samples = _kept(provenance.samples, 64)
judges = _kept(judgments.judges)
judge_card = _kept(judge_cards.judge_card, 16, wait=_JUDGED)
style_gaps = _kept(style.style_gaps, 16, wait="Comparing …")
method_ids = _kept(provenance.method_ids, 4)
runs_of = _kept(provenance.runs_of, 32)
decisions = _kept(gate_history.history, 4)
has_submissions = _kept(review.has_submissions)
_all_runs = _kept(queries.runs, shared=True)


def ordered_experiments(at: Source) -> list[str]:
    """List the experiments, largest first, after the one that the server was started for.

    The size is the number of finished questions times methods over all benchmarks; ties are sorted newest first.
    """
    pinned = os.environ.get(EXPERIMENT_VARIABLE)
    known = sorted(experiments(at), key=lambda row: (row.name != pinned, -row.answered))
    return [row.name for row in known]


def opens_with(at: Source) -> str | None:
    """Return the experiment that pages show first, the first of `ordered_experiments`; None if there is none."""
    return next(iter(ordered_experiments(at)), None)


def primary(at: Source, experiment: str | None) -> Primary | None:
    """Return an experiment's declared primary metric, if any."""
    return next((primary_of(row) for row in experiments(at) if row.name == experiment), None)


def reference_of(at: Source, experiment: str | None, names: Sequence[str]) -> str | None:
    """Return which of these methods the experiment declares as its reference, if any."""
    declared = next((row.reference for row in experiments(at) if row.name == experiment), None)
    return next((name for name in names if declared and is_called(name, declared)), None)


@st.cache_resource(show_spinner=False, max_entries=16)
def run_groups(at: Source, experiment: str | None) -> list[list[RunRow]]:
    """Return the runs of an experiment (or of the whole store), grouped by board; the cached result must not be changed."""
    return groups(queries.runs(store_of(at), experiment))


@st.cache_resource(show_spinner=False, max_entries=16)
def executions(at: Source, experiment: str | None) -> list[RunRow]:
    """List the runs of an experiment (or of the whole store) including earlier executions."""
    return list({run.run: run for run in reversed(queries.runs(store_of(at), experiment))}.values())


def index_cost(at: Source, run: str) -> IndexCost | None:
    """Return the cost of indexing a run's corpus; None if unknown."""
    return queries.index_costs(store_of(at), [run]).get(run)


@st.cache_resource(show_spinner=False, max_entries=16)
def _facts(at: Source, experiment: str | None, group: int) -> Facts:
    store, runs = store_of(at), run_groups(at, experiment)[group]
    violations = invariants.violations(store, [run.run for run in runs])
    return Facts((method_cards(at), checkpoints_by_hash(at)), _costs_of(at, [runs]), violations, reuse(store, runs), ())


@st.cache_resource(show_spinner=False, max_entries=16)
def _health(at: Source, experiment: str | None, group: int) -> tuple[HealthLine, ...]:
    return health(store_of(at), run_groups(at, experiment)[group])


@st.cache_resource(show_spinner=False, max_entries=64)
def _board(at: Source, experiment: str | None, group: int, reference: str | None, metrics: tuple[str, ...]) -> Board:
    runs = run_groups(at, experiment)[group]
    return board(store_of(at), runs, reference=reference, metrics=metrics, facts=_facts(at, experiment, group))


def board_of(
    at: Source, experiment: str | None, group: int, reference: str | None, metrics: tuple[str, ...], *, checked: bool = True
) -> Board:
    """Build the board of one group of runs; the cached result must not be changed.

    Args:
        at: The store and its version.
        experiment: Name of the experiment; None for all runs.
        group: Position in `run_groups`.
        reference: Name of the method to compare with.
        metrics: Metric ids, at least one; the board is computed once for any order of them.
        checked: Whether to look for unusual facts about the runs, which takes a third of the time.
    """
    found = _health(at, experiment, group) if checked else ()
    return replace(_board(at, experiment, group, reference, tuple(sorted(metrics))), metrics=metrics, health=found)


@st.cache_data(show_spinner=False, max_entries=32)
def cost_intervals(at: Source, experiment: str | None, group: int, metric: str, axis: budget.Axis) -> dict[str, tuple[float, float]]:
    """Return the interval of the cost per question of each run on a board, by run id."""
    return budget.cost_intervals(store_of(at), board_of(at, experiment, group, None, (metric,), checked=False), axis)


@dataclass(frozen=True)
class Ranked:
    """Ranks of one board's runs by one metric, and the verdict."""

    bands: Mapping[str, Band]
    verdict: BoardVerdict | None


@st.cache_resource(show_spinner=False, max_entries=64)
def ranked(at: Source, experiment: str | None, group: int, reference: str | None, metric: str) -> Ranked:
    """Rank the rows of a board by one metric, with repeats of a method averaged; the cached result must not be changed."""
    facts, higher = _facts(at, experiment, group), bool(definitions(at).get(metric, {}).get("higher_is_better", True))
    part = Folded.of([run_groups(at, experiment)[group]], facts.costs, facts.violations, over_seeds=False)
    column = Column("board", tuple(part.groups[0]), metric, higher)
    known = _figures_of(at, wanted_of([column], part.series))
    rows = systems({column.key: column.runs}, *facts.learned)
    cells = ranked_cells([column], rows, known, cards=facts.learned[0], known=facts.learned[1], violations=part.violations)
    whole = matrix([column], rows, known, cells, costs=part.costs, reference=reference)
    of_runs = {cell.run.run: cell.band for cell in cells.values() if cell.band is not None}
    return Ranked(of_runs, next(iter(matrix_verdicts(whole, known, definitions(at))), None))


@st.cache_resource(show_spinner=False, max_entries=64)
def scores(at: Source, dataset_fingerprint: str, runs: tuple[str, ...], metric: str) -> dict[str, NDArray[np.float64]]:
    """Return each run's scores on one metric, shape (questions,), NaN without a score; the cached result must not be changed."""
    columns = queries.score_columns(store_of(at), dataset_fingerprint, runs, [metric]).values
    return {run: column for (run, _), column in columns.items()}


@st.cache_data(show_spinner=False, max_entries=128)
def answers(at: Source, question: QuestionRow, runs: tuple[str, ...]) -> list[AnswerRow]:
    """Return the answers of runs to one question."""
    return queries.answers(store_of(at), question, runs, depth=DEPTH)


@st.cache_data(show_spinner=False, max_entries=128)
def verdicts(at: Source, question: str, first: RunRow, runs: tuple[str, ...]) -> list[Verdict]:
    """Return the judges' calls about one question of the board that the run `first` is on."""
    return judgments.verdicts(store_of(at), question, first.dataset_fingerprint, first.setting, runs)


def conversation(at: Source, call: str) -> Conversation | None:
    """Return a stored model call by its key; None if it is no longer stored."""
    return judgments.conversations(store_of(at), [call]).get(call)


@st.cache_data(show_spinner=_JUDGED, max_entries=16)
def battles(at: Source, judge: str, length: bool) -> list[BattleBoard]:
    """Return the win-rate boards of a pair judge; `length`: adjust strengths for the length of answers."""
    store = store_of(at)
    return battle_board.battle_boards(store, queries.runs(store), length=length, judge=judge)


@st.cache_data(show_spinner=_JUDGED, max_entries=16)
def judged_boards(at: Source, judge: str) -> list[Board]:
    """Build the boards of all runs that a point judge has judged, with its measures as columns."""
    store = store_of(at)
    metrics = [measure["metric"] for measure in judges(at)[judge]["measures"]]
    runs = set(judgments.judged_runs(store, judge))
    groups = [[run for run in group if run.run in runs] for group in boards.groups(queries.runs(store))]
    return [boards.board(store, group, metrics=metrics) for group in groups if group]


@st.cache_data(show_spinner=False, max_entries=4)
def most_used_judge(at: Source) -> str:
    """Return the judge with most to show: of those that compared answers the one with most pairs, else that of most controls and runs."""
    store = store_of(at)
    kinds = {run.run: run.kind for run in _all_runs(at)}
    pairs = Counter(judge for judge, _ in judgments.matches(store))

    def content(judge: str) -> tuple[int, int, int]:
        runs = judgments.judged_runs(store, judge)
        return pairs[judge], sum(kinds.get(run) == "control" for run in runs), len(runs)

    return max(judges(at), key=content)


@st.cache_data(show_spinner=False, max_entries=8)
def styled(at: Source) -> bool:
    """Return whether the style page has something to show."""
    # Most stores hold one style, which is known without a look at their runs.
    rows = store_of(at).database.rows("SELECT 1 FROM runs GROUP BY base HAVING count(DISTINCT style) > 1 LIMIT 1", lenient=True)
    return bool(rows) and bool(styled_experiments(at))


@st.cache_data(show_spinner=False, max_entries=8)
def styled_experiments(at: Source) -> list[str]:
    """List the experiments with candidates of one base in several styles that have a gap or a curve, newest first."""
    results = []
    for row in experiments(at):
        by_data: dict[object, list[RunRow]] = {}
        for run in (run for group in run_groups(at, row.name) for run in group):
            by_data.setdefault((run.styled.base, run.setting, run.seed), []).append(run)
        if any(_has_styles(runs) for runs in by_data.values()):
            results.append(row.name)
    return results


@st.cache_data(show_spinner=False, max_entries=8)
def reading_experiments(at: Source) -> list[str]:
    """List the experiments with runs whose model gets text or memory tokens, the largest first."""
    rows = store_of(at).database.rows("SELECT DISTINCT run FROM usage WHERE prompt_tokens + memory_tokens > 0", lenient=True)
    spending = {run for (run,) in rows}
    known = {run.experiment for runs in run_groups(at, None) for run in runs if run.run in spending and run.kind != "control"}
    return [name for name in ordered_experiments(at) if name in known]


def _has_styles(runs: Sequence[RunRow]) -> bool:
    """Return whether runs have two shares of formal candidates, or two styles and methods that differ in k."""
    by_k = len({run.description.get("k") for run in runs} - {None}) > 1
    return len({run.styled.formal for run in runs}) > 1 or (by_k and len({run.styled for run in runs}) > 1)


@st.cache_data(show_spinner="Comparing …", max_entries=16)
def style_curves(at: Source, experiment: str, over: Over) -> list[CurveTable]:
    """Return the style curves of an experiment; None if no method has two points."""
    try:
        return style.style_curves(store_of(at), experiment, over)
    except UserError:
        return []


@st.cache_resource(show_spinner=False, max_entries=32)
def compared(at: Source, ids: tuple[str, ...], metric: str, _runs: tuple[RunRow, ...]) -> Comparison:
    """Compare runs on one metric. `ids` are the cache key for the unhashable runs; the cached result must not be changed."""
    return compare.compare(store_of(at), _runs, metric)


@st.cache_resource(show_spinner=False, max_entries=128)
def attributed(at: Source, run: str, metric: str, ceiling: float, _row: RunRow) -> Attribution:
    """Split a run's loss by stage. `run` is the cache key for the unhashable row; the cached result must not be changed."""
    among = _all_runs(at, dataset_fingerprint=_row.dataset_fingerprint)
    return provenance.attribution(store_of(at), _row, metric, ceiling=ceiling, among=among)


MOST_COSTS = 100_000
"""Maximum number of runs whose costs are cached."""
PAIRS = 1_600_000
"""Maximum number of cached pairs of methods, at 48 bytes each."""


@dataclass(frozen=True)
class Setting:
    """Boards of an experiment in one retrieval setting, for the matrix page.

    Attributes:
        options: All settings that can be selected.
        groups: Runs, grouped by board.
        metrics: Metrics that any of the runs was scored on.
        own: The metrics among them that the experiment shows.
        names: Title and subtitle of each column, by key.
        running: Whether a run is in progress.
    """

    options: list[str]
    groups: list[list[RunRow]]
    metrics: list[str]
    own: list[str]
    names: Mapping[str, tuple[str, str]]
    running: tuple[RunRow, ...]


@dataclass(frozen=True)
class Entrants:
    """Columns, systems and available filters of the matrix page."""

    columns: list[Column]
    rows: list[System]
    choices: Choices


def _ids(at: Source, experiment: str | None) -> list[str]:
    return [run.run for group in run_groups(at, experiment) for run in group]


@st.cache_resource(show_spinner=False, max_entries=8)
def _scored(at: Source, experiment: str | None) -> dict[str, list[str]]:
    return column_figures.scored_metrics(store_of(at), _ids(at, experiment))


@st.cache_resource(show_spinner=False, max_entries=8)
def _folded(at: Source, experiment: str | None) -> Folded:
    """Fold an experiment's rows: all repeats of a method are one row, within an experiment also all seeds.

    Across experiments seeds stay separate, because trainings with other options may have the same name there.
    """
    groups = run_groups(at, experiment)
    violations = invariants.violations(store_of(at), _ids(at, experiment))
    return Folded.of(groups, _costs_of(at, groups), violations, experiment is not None)


@st.cache_resource(show_spinner=False, max_entries=2)
def _costs_kept(folder: str) -> dict[tuple[Any, ...], Cost | None]:
    """Cache the costs of finished runs of this store; they stay the same while other runs are written."""
    return {}


def _costs_of(at: Source, groups: Sequence[Sequence[RunRow]]) -> dict[str, Cost]:
    """Return the costs of runs, by run id; those of finished runs are read once."""
    kept = _costs_kept(at.folder)
    keys = {run.run: (run.run, run.status, run.updated_at, run.done, run.origin) for runs in groups for run in runs}
    unread = [run for run, key in keys.items() if key not in kept]
    fresh = queries.costs(store_of(at), unread) if unread else {}
    results = {run: fresh[run] if run in fresh else kept.get(key) for run, key in keys.items()}
    if len(kept) > MOST_COSTS:
        kept.clear()
    kept.update((keys[run.run], results[run.run]) for runs in groups for run in runs if run.status == FINISHED)
    return {run: cost for run, cost in results.items() if cost is not None}


@st.cache_resource(show_spinner=False, max_entries=8)
def settings(at: Source, experiment: str | None) -> list[str]:
    """List the retrieval settings that can be selected."""
    return settings_of(run_groups(at, experiment)) or [ALL_SETTINGS]


@st.cache_resource(show_spinner=False, max_entries=16)
def setting_of(at: Source, experiment: str | None, setting: str) -> Setting:
    """Return the boards in one retrieval setting; repeats of a method are averaged, and within an experiment also its seeds.

    Without an experiment, seeds are not averaged, because other trainings may have the same name.
    """
    groups = [runs for runs in _folded(at, experiment).groups if setting in (ALL_SETTINGS, runs[0].setting)]
    scored = _scored(at, experiment)
    metrics = dict.fromkeys(item for runs in groups for item in metrics_of(runs, scored))
    own = dict.fromkeys(item for runs in groups for item in own_metrics(runs, metrics_of(runs, scored)))
    running = tuple(run for runs in groups for run in runs if run.status == "running")
    return Setting(settings(at, experiment), groups, list(metrics), list(own), labels(groups, setting), running)


@st.cache_resource(show_spinner=False, max_entries=16)
def entrants(at: Source, experiment: str | None, setting: str, family: str, measure: str) -> Entrants:
    """Return the columns and systems of the matrix for the chosen metric."""
    groups = setting_of(at, experiment, setting).groups
    columns = columns_of(groups, _scored(at, experiment), definitions(at), datasets(at), family, measure, primary(at, experiment))
    rows = systems({column.key: column.runs for column in columns}, method_cards(at), checkpoints_by_hash(at))
    return Entrants(columns, rows, choices(rows))


@st.cache_resource(show_spinner=False, max_entries=2)
def _figures_kept(folder: str) -> dict[bytes, Figures]:
    """Cache figures of this store by their inputs, newest last; most stay the same when a run writes."""
    return {}


def _figures_of(at: Source, wanted: Sequence[Wanted]) -> dict[str, Figures]:
    kept = _figures_kept(at.folder)
    figures = column_figures.figures(store_of(at), wanted, kept)
    pairs = 0
    # Other visitors put in and take out at the same time.
    for digest, column in reversed(list(kept.items())):
        pairs += len(column.runs) ** 2
        if pairs > PAIRS:
            kept.pop(digest, None)
    return figures


@st.cache_resource(show_spinner="Comparing …", max_entries=8)
def _figures(at: Source, experiment: str | None, setting: str, family: str, measure: str) -> dict[str, Figures]:
    columns = entrants(at, experiment, setting, family, measure).columns
    return _figures_of(at, wanted_of(columns, _folded(at, experiment).series))


@dataclass(frozen=True)
class _Field:
    """Filtered and ranked methods and columns."""

    columns: list[Column]
    rows: list[System]
    cells: Mapping[Key, Cell]


@st.cache_resource(show_spinner=False, max_entries=16)
def _field(
    at: Source, experiment: str | None, setting: str, family: str, measure: str, datasets: tuple[str, ...], filters: Filters
) -> _Field:
    result = entrants(at, experiment, setting, family, measure)
    columns = [column for column in result.columns if column.key in datasets]
    rows = [row for row in result.rows if filters.admits(row) and any(column.key in row.runs for column in columns)]
    figures = _figures(at, experiment, setting, family, measure)
    broken = _folded(at, experiment).violations
    cells = ranked_cells(columns, rows, figures, cards=method_cards(at), known=checkpoints_by_hash(at), violations=broken)
    return _Field(columns, rows, cells)


@st.cache_resource(show_spinner=False, max_entries=32)
def matrix_of(
    at: Source,
    experiment: str | None,
    setting: str,
    family: str,
    measure: str,
    datasets: tuple[str, ...],
    filters: Filters,
    reference: str | None,
    correction: Correction,
) -> tuple[Matrix, list[BoardVerdict]]:
    """Build the overview matrix of the selected systems, and the verdicts on it.

    Args:
        at: The store and its version.
        experiment, setting, family, measure: The user's choices.
        datasets: Keys of the columns.
        filters: Conditions on the systems.
        reference: Name of the method to compare with.
        correction: The family over which p-values are corrected.
    """
    _last_board[at.folder] = experiment, setting, family, measure, datasets, filters, reference, correction
    left = _field(at, experiment, setting, family, measure, datasets, filters)
    figures, costs = _figures(at, experiment, setting, family, measure), _folded(at, experiment).costs
    board = matrix(left.columns, left.rows, figures, left.cells, costs=costs, reference=reference, correction=correction)
    return board, matrix_verdicts(board, figures, definitions(at))


@st.cache_resource(show_spinner=False, max_entries=8)
def published(at: Source, experiment: str | None, setting: str, family: str, measure: str) -> dict[tuple[str, str], PublishedComparison]:
    """Find the published figure with the closest setting for each cell, by (column key, run id)."""
    columns = entrants(at, experiment, setting, family, measure).columns
    return closest_printed(columns, _figures(at, experiment, setting, family, measure))
