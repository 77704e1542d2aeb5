"""Results as pandas data frames: one row per run and metric, per score, per answer; values are fractions."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.errors import MissingPackage
from methods.api import FAILED
from results import queries, question_queries
from results.board import Board
from results.store import Store
from results.tables import CSV_COLUMNS, tidy

if TYPE_CHECKING:
    from pandas import DataFrame

SCORE_COLUMNS = ("method", "dataset", "setting", "seed", "question", "metric", "value", "run")
ANSWER_COLUMNS = ("method", "dataset", "setting", "seed", "question", "text", "golds", "answer", "failed", "run")


def frame(columns: Sequence[str], values: Any) -> DataFrame:
    """A data frame.

    Args:
        columns: Their names.
        values: A list of rows, or a mapping from column names to sequences.

    Raises:
        MissingPackage: pandas is not installed.
    """
    if find_spec("pandas") is None:
        raise MissingPackage("pandas", "notebook", "a data frame")
    from pandas import DataFrame

    return DataFrame(values, columns=list(columns))


def table_frame(boards: Sequence[Board]) -> DataFrame:
    """One row for each run and metric, the columns of `ragmeter table --format csv` (`results.tables.CSV_COLUMNS`)."""
    return frame(CSV_COLUMNS, [line for board in boards for line in tidy(board)])


def scores_frame(store: Store, boards: Sequence[Board]) -> DataFrame:
    """One row for each run, question and metric of some boards, in the boards' order.

    A value is NaN where the question is not answered yet, unscorable, or was given no value by a judge.
    """
    parts: list[dict[str, Any]] = []
    for board in boards:
        runs = [row.run for row in board.rows]
        found = queries.score_columns(store, board.dataset_fingerprint, [run.run for run in runs], board.metrics)
        for run in runs:
            for metric in board.metrics:
                if (values := found.values.get((run.run, metric))) is not None:
                    shared = (run.method, board.dataset, board.setting, board.seed)
                    parts.append(_repeated(shared, found.questions, metric, values, run.run))
    columns: dict[str, Any] = {name: np.concatenate([part[name] for part in parts]) if parts else [] for name in SCORE_COLUMNS}
    return frame(SCORE_COLUMNS, columns)


def _repeated(shared: Sequence[Any], questions: Sequence[str], metric: str, values: Any, run: str) -> dict[str, Any]:
    count = len(questions)
    method, dataset, setting, seed = shared
    texts = {"method": method, "dataset": dataset, "setting": setting, "metric": metric, "run": run}
    column: dict[str, Any] = {name: np.full(count, text, dtype=object) for name, text in texts.items()}
    return column | {"seed": np.full(count, seed), "question": np.array(questions, dtype=object), "value": values}


def answers_frame(store: Store, boards: Sequence[Board]) -> DataFrame:
    """One row for each run and answered question: its text, gold answers, the answer, and why it failed (or None)."""
    rows = []
    for board in boards:
        asked = {one.question: one for one in question_queries.questions(store, board.dataset_fingerprint)}
        for row in board.rows:
            run = row.run
            said = {one.question_id: one for one in store.predictions(run.run)}
            for name in (name for name in asked if name in said):
                question, one = asked[name], said[name]
                rows.append(
                    (
                        run.method,
                        board.dataset,
                        board.setting,
                        board.seed,
                        name,
                        question.text,
                        question.golds,
                        one.answer,
                        one.notes.get(FAILED),
                        run.run,
                    )
                )
    return frame(ANSWER_COLUMNS, rows)
