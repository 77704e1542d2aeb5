"""Read the store for pages, cached as long as the store's file stays the same.

Small results are cached by value; boards and lists of runs and of questions are shared between readers and must not be
changed. The server's options set the store's folder; a URL cannot.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import numpy as np
import streamlit as st
from numpy.typing import NDArray

from results.boards import board as boards
from results.boards import compare, style
from results.boards.board import Board, groups
from results.boards.names import is_called
from results.boards.primary import Primary, primary_of
from results.boards.style import CurveTable, Over
from results.errors import UserError
from results.gate import timeline
from results.judging import battles as battle_board
from results.judging import judge_card as judge_cards
from results.judging import judgments
from results.judging.battles import BattleBoard
from results.store import answer_queries, checkpoints, provenance, queries, score_queries
from results.store.provenance import Attribution
from results.store.queries import RunRow
from results.store.store import Store
from results.submission import review

P = ParamSpec("P")
R = TypeVar("R")
STORE_VARIABLE = "RAGMETER_STORE"
EXPERIMENT_VARIABLE = "RAGMETER_EXPERIMENT"
"""Environment variable of the experiment that pages open with (`ragmeter leaderboard --experiment NAME`)."""
DEFAULT_FOLDER = "ragmeter-store"


@dataclass(frozen=True, slots=True)
class Source:
    """A store and the version of its file, used as a cache key: it changes with every write."""

    folder: str
    stamp: tuple[int, ...]


REST_S = 10.0
"""Seconds between two checks for changes of the store, because a run writes ten times a second."""
_adopted: dict[str, tuple[Source, float]] = {}
_first: dict[str, Callable[[Source], object]] = {}
"""Computation over a new version of a store before it is shown, by folder."""
_renewed: dict[str, threading.Thread] = {}
"""The thread that computes it."""


def source() -> Source:
    """Return the store that the server was started for; while it keeps changing, in its version of at most `REST_S` seconds ago.

    Visitors do not wait for a new version: they see the last one until one thread has computed what the new one begins with (`renew_by`).
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


def renew_by(at: Source, compute: Callable[[Source], object]) -> None:
    """Set what is computed of a store's next version before visitors see it."""
    _first[at.folder] = compute


def _renew(latest: Source) -> None:
    first = _first.get(latest.folder)
    if first is None:
        _adopt(latest)
        return

    def compute() -> None:
        try:
            # The page that shows this version reports its errors.
            with suppress(UserError):
                first(latest)
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


def kept(
    query: Callable[Concatenate[Store, P], R], most: int = 8, *, shared: bool = False, wait: str = ""
) -> Callable[Concatenate[Source, P], R]:
    """Return a query whose results are cached; `shared`: readers share one, which must not be changed, instead of a copy each."""

    @wraps(query)
    def ask(at: Source, *args: P.args, **options: P.kwargs) -> R:
        return query(store_of(at), *args, **options)

    cache: Any = st.cache_resource if shared else st.cache_data
    # They name a run in one version of the store: its long documents need not be hashed.
    hashed = {RunRow: lambda run: (run.run, run.experiment, run.method)}
    cached = cache(show_spinner=wait or False, max_entries=most, hash_funcs=hashed)(ask)
    return cast(Callable[Concatenate[Source, P], R], cached)


_COMPARING, _JUDGED = "Comparing …", "Reading the judge's replies …"
experiments = kept(queries.experiments)
"""Stored experiments, newest first."""
has_runs = kept(queries.has_runs)
definitions = kept(score_queries.definitions)
datasets = kept(queries.datasets)
metric_ids = kept(score_queries.metric_ids, 32)
method_cards = kept(provenance.cards, 4, shared=True)
checkpoints_by_hash = kept(checkpoints.known_checkpoints, 4, shared=True)
known_checkpoints = kept(checkpoints.checkpoints, 4)
questions = kept(answer_queries.questions, shared=True)
answers = kept(answer_queries.answers, 128)
calls = kept(answer_queries.calls, 16)
passages = kept(answer_queries.passages, 128)
dataset_facts = kept(provenance.dataset_facts)
samples = kept(provenance.samples, 64)
judges = kept(judgments.judges)
judge_card = kept(judge_cards.judge_card, 16, wait=_JUDGED)
verdicts = kept(judgments.verdicts, 128)
style_gaps = kept(style.style_gaps, 16, wait=_COMPARING)
compared = kept(compare.compare, 32, shared=True)
method_ids = kept(provenance.method_ids, 4)
runs_of = kept(provenance.runs_of, 32)
results_of = kept(provenance.results_of, 32)
timelines = kept(timeline.timelines, 16)
has_submissions = kept(review.has_submissions)
submissions = kept(review.submissions)
_all_runs = kept(queries.runs, shared=True)


def ordered_experiments(at: Source) -> list[str]:
    """List the experiments, largest first, after the one that the server was started for.

    The size is the number of finished questions times methods over all benchmarks; ties are sorted newest first.
    """
    pinned = os.environ.get(EXPERIMENT_VARIABLE)
    known = sorted(experiments(at), key=lambda row: (row.name != pinned, -row.answered))
    return [row.name for row in known]


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


@st.cache_resource(show_spinner=False, max_entries=64)
def scores(at: Source, dataset_fingerprint: str, runs: tuple[str, ...], metric: str) -> dict[str, NDArray[np.float64]]:
    """Return each run's scores on one metric, shape (questions,), NaN without a score; the cached result must not be changed."""
    columns = score_queries.score_columns(store_of(at), dataset_fingerprint, runs, [metric]).values
    return {run: column for (run, _), column in columns.items()}


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
def styled_experiments(at: Source) -> list[str]:
    """List the experiments with candidates of one base in several styles that have a gap or a curve, newest first."""
    # Most stores hold one style, which is known without a look at their runs.
    rows = store_of(at).database.rows("SELECT 1 FROM runs GROUP BY base HAVING count(DISTINCT style) > 1 LIMIT 1", lenient=True)
    results = []
    for row in experiments(at) if rows else ():
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


@st.cache_data(show_spinner=_COMPARING, max_entries=16)
def style_curves(at: Source, experiment: str, over: Over) -> list[CurveTable]:
    """Return the style curves of an experiment; empty if no method has two points."""
    try:
        return style.style_curves(store_of(at), experiment, over)
    except UserError:
        return []


@st.cache_resource(show_spinner=False, max_entries=128)
def attributed(at: Source, run: str, metric: str, ceiling: float, _row: RunRow) -> Attribution:
    """Split a run's loss by stage. `run` is the cache key for the unhashable row; the cached result must not be changed."""
    among = _all_runs(at, dataset_fingerprint=_row.dataset_fingerprint)
    return provenance.attribution(store_of(at), _row, metric, ceiling=ceiling, among=among)
