"""What pages read, remembered as long as the store's file stays the same.

Small results (one metric's board column) are cached by value; lists of runs and of questions are shared between readers
and must not be changed. The store's folder comes from whoever started the server, never from a URL.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st
from numpy.typing import NDArray

from results import checkpoints, method_record, queries, question_queries, training_data
from results import verdicts as judged
from results.board import Board, board, groups
from results.checkpoints import Checkpoint
from results.places import places
from results.queries import ExperimentRow, IndexCost, RunRow
from results.question_queries import AnswerRow, Passage, QuestionRow
from results.statistics.closed_form import Band
from results.store import Store
from results.training_data import Checkpoints
from results.verdicts import Conversation, Verdict

STORE_VARIABLE = "RAGMETER_STORE"
DEFAULT_FOLDER = "ragmeter-store"
DEPTH = 20
"""Ranks of evidence shown."""


@dataclass(frozen=True, slots=True)
class Source:
    """A store as it is now: its folder, and what changes whenever something is written."""

    folder: str
    stamp: tuple[int, ...]


def source() -> Source:
    """The store that the server was started for."""
    store = Store(Path(os.environ.get(STORE_VARIABLE) or DEFAULT_FOLDER).resolve())
    stamp: list[int] = []
    for path in (store.database.path, store.database.path.with_suffix(".duckdb.wal")):
        try:
            found = path.stat()
        except OSError:
            continue
        stamp += [found.st_mtime_ns, found.st_size]
    return Source(str(store.folder), tuple(stamp))


@st.cache_resource(show_spinner=False, max_entries=4)
def store_of(at: Source) -> Store:
    """The store itself; of one state of its file it is opened and checked once."""
    return Store(Path(at.folder))


@st.cache_data(show_spinner=False, max_entries=8)
def experiments(at: Source) -> list[ExperimentRow]:
    """Stored experiments, newest first."""
    return queries.experiments(store_of(at))


@st.cache_data(show_spinner=False, max_entries=8)
def has_runs(at: Source) -> bool:
    """Whether anything has started there."""
    return queries.has_runs(store_of(at))


@st.cache_resource(show_spinner=False, max_entries=16)
def run_groups(at: Source, experiment: str | None) -> list[list[RunRow]]:
    """An experiment's runs (or all of the store's), split into those that may share a board; shared, not to be
    changed."""
    return groups(queries.runs(store_of(at), experiment))


def index_cost(at: Source, run: str) -> IndexCost | None:
    """What preparing for a run's questions took; None where nothing is known."""
    return queries.index_costs(store_of(at), [run]).get(run)


@st.cache_data(show_spinner=False, max_entries=8)
def definitions(at: Source) -> dict[str, dict[str, Any]]:
    """Metric definitions by id."""
    return queries.definitions(store_of(at))


@st.cache_data(show_spinner=False, max_entries=8)
def datasets(at: Source) -> dict[str, dict[str, Any]]:
    """Stored datasets by fingerprint."""
    return queries.datasets(store_of(at))


@st.cache_data(show_spinner=False, max_entries=32)
def metric_ids(at: Source, runs: tuple[str, ...]) -> list[str]:
    """Metrics that any of these runs was scored on."""
    return queries.metric_ids(store_of(at), runs)


@st.cache_data(show_spinner=False, max_entries=512)
def _column(at: Source, experiment: str | None, group: int, reference: str | None, metric: str) -> Board:
    return board(
        store_of(at),
        run_groups(at, experiment)[group],
        reference=reference,
        metrics=[metric],
        learnt=(method_cards(at), checkpoints_by_hash(at)),
    )


@st.cache_resource(show_spinner=False, max_entries=4)
def method_cards(at: Source) -> dict[str, dict[str, Any]]:
    """Cards of methods and their parts by id; shared, not to be changed."""
    return method_record.cards(store_of(at))


@st.cache_resource(show_spinner=False, max_entries=4)
def checkpoints_by_hash(at: Source) -> Checkpoints:
    """Registered checkpoints by their hash; shared, not to be changed."""
    return training_data.known_checkpoints(store_of(at))


def board_of(at: Source, experiment: str | None, group: int, reference: str | None, metrics: tuple[str, ...]) -> Board:
    """The board of one group of runs; each metric's column is computed once and kept.

    Args:
        at: The store.
        experiment: None for all runs.
        group: Position in `run_groups`.
        reference: The method that differences are taken to.
        metrics: At least one.
    """
    columns = [_column(at, experiment, group, reference, metric) for metric in metrics]
    rows = tuple(
        replace(rows[0], cells={metric: cell for row in rows for metric, cell in row.cells.items()})
        for rows in zip(*(column.rows for column in columns), strict=True)
    )
    return replace(columns[0], metrics=metrics, rows=rows)


@st.cache_data(show_spinner=False, max_entries=64)
def places_of(
    at: Source, experiment: str | None, group: int, reference: str | None, metric: str, higher_is_better: bool
) -> dict[str, Band]:
    """The places on the board of one group of runs, by run; the column with its `reference` is remembered."""
    return places(store_of(at), _column(at, experiment, group, reference, metric), metric, higher_is_better=higher_is_better)


@st.cache_resource(show_spinner=False, max_entries=8)
def questions(at: Source, dataset_fingerprint: str) -> list[QuestionRow]:
    """A dataset's questions; shared, not to be changed."""
    return question_queries.questions(store_of(at), dataset_fingerprint)


@st.cache_resource(show_spinner=False, max_entries=64)
def scores(at: Source, dataset_fingerprint: str, runs: tuple[str, ...], metric: str) -> dict[str, NDArray[np.float64]]:
    """One metric's score of every question by run, shape (questions,), NaN without score; shared, not to be changed."""
    columns = queries.score_columns(store_of(at), dataset_fingerprint, runs, [metric]).values
    return {run: column for (run, _), column in columns.items()}


@st.cache_data(show_spinner=False, max_entries=128)
def answers(at: Source, question: QuestionRow, runs: tuple[str, ...]) -> list[AnswerRow]:
    """What runs said about one question."""
    return question_queries.answers(store_of(at), question, runs, depth=DEPTH)


@st.cache_data(show_spinner=False, max_entries=128)
def verdicts(at: Source, question: str, first: RunRow, runs: tuple[str, ...]) -> list[Verdict]:
    """What judges said about one question of the board that `first` is on."""
    return judged.verdicts(store_of(at), question, first.dataset_fingerprint, first.setting, runs)


def conversation(at: Source, call: str) -> Conversation | None:
    """A kept call of a model."""
    return judged.conversations(store_of(at), [call]).get(call)


@st.cache_data(show_spinner=False, max_entries=128)
def gold_passages(at: Source, question: QuestionRow) -> dict[str, Passage]:
    """The positive passages of a question by id."""
    return question_queries.passages(store_of(at), question.evidence)


@st.cache_data(show_spinner=False, max_entries=4)
def known_checkpoints(at: Source) -> list[Checkpoint]:
    """Registered checkpoints, newest first."""
    return checkpoints.checkpoints(store_of(at))
