"""Collect what the difference of two rows needs: training seeds, unknown values, human labels."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from results.boards.names import base_name, first_name
from results.boards.unread import range_of_metric
from results.statistics.core import Floats
from results.statistics.difference import Side
from results.store.annotations import with_present, worth
from results.store.queries import RunRow
from results.store.score_queries import Columns
from results.store.store import Store
from results.store.training_data import Checkpoints, trained_here


@dataclass(frozen=True, slots=True)
class Answers:
    """Facts about answers that tests need in addition to scores: failures, human labels and which training made them.

    Attributes:
        failed: By run, ids of failed questions; empty if the user accepted the failures as wrong answers.
        labels: By run and measure of a judge, human labels of the answers, by question.
        made_of: By run, the method's description as JSON. It differs between training seeds, but not between repeats.
    """

    failed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    labels: Mapping[tuple[str, str], Mapping[str, float]] = field(default_factory=dict)
    made_of: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, store: Store, runs: Sequence[str]) -> Answers:
        """Read these facts for runs from the store."""
        runs = sorted(set(runs))
        with store.database.reading():
            return cls(_failed(store, runs), _labels(store, runs), _made_of(store, runs))

    def facts(self, runs: Sequence[str], metric: str) -> list[Any]:
        """Return all that `side` takes from here, in an order of its own."""
        name = _measure(metric)
        return [
            (self.made_of.get(run, ""), sorted(self.failed.get(run, ())), sorted(self.labels.get((run, name), {}).items())) for run in runs
        ]

    def side(
        self,
        members: Sequence[str],
        scores: Sequence[Floats] | Floats,
        unread: Sequence[NDArray[np.bool_] | None] | NDArray[np.bool_],
        questions: Sequence[str],
        metric: str,
        definition: Mapping[str, Any],
        *,
        trained: bool = False,
    ) -> Side:
        """Build the statistical side (scores, unknown values, trainings, labels) of one board row for a paired test.

        Args:
            members: The runs that the row stands for: trainings, and repeats of each.
            scores: Scores of each run, shape (questions,).
            unread: For each run, a mask of questions whose verdicts are missing; None if none are.
            questions: Ids of the questions.
            metric: Id of the metric.
            definition: The metric's definition from the store.
            trained: Whether a part of the method was trained here; several trainings always are.
        """
        trainings = tuple(self.made_of.get(run, "") for run in members)
        trained = trained or len(set(trainings)) > 1
        rows = np.stack(list(scores))
        open_ = np.stack([np.zeros(len(questions), np.bool_) if mask is None else mask for mask in unread])
        if range_of_metric(definition).bounded:
            for row, run in enumerate(members):
                if gone := self.failed.get(run):
                    open_[row] |= np.array([question in gone for question in questions]) & ~np.isnan(rows[row])
        labels = None
        if definition.get("judge") is not None:
            name = _measure(metric)
            labels_by_run = [self.labels.get((run, name), {}) for run in members]
            if any(labels_by_run):
                labels = np.array([[each.get(question, np.nan) for question in questions] for each in labels_by_run])
        return Side(rows, trainings if trained else None, open_ if open_.any() else None, labels)


def _measure(metric: str) -> str:
    """Return the name of a judge's measure that people label, without version and parameters."""
    return re.split(r"[(#]", metric)[0]


def sides(
    store: Store,
    columns: Columns,
    members: Mapping[str, Sequence[RunRow]],
    metrics: Sequence[str],
    known: Mapping[str, Mapping[str, Any]],
    checkpoints: Checkpoints,
) -> dict[tuple[str, str], Side]:
    """Build the statistical side of every row on every metric that all runs of the row were scored on, by (row, metric).

    Args:
        store: The store to read.
        columns: Scores of the individual runs.
        members: The runs of each row (repeats and seeds), by row id.
        metrics: Metric ids.
        known: Definitions of metrics by id.
        checkpoints: Registered checkpoints.
    """  # fmt: skip
    answers = Answers.read(store, [run.run for rows in members.values() for run in rows])
    results = {}
    for row, runs in members.items():
        trained = is_trained(runs[0], checkpoints)
        for metric in metrics:
            keys = [(run.run, metric) for run in runs]
            if all(key in columns.values for key in keys):
                scores, unread = [columns.values[key] for key in keys], [columns.unread.get(key) for key in keys]
                results[row, metric] = answers.side(
                    [run.run for run in runs], scores, unread, columns.questions, metric, known.get(metric, {}), trained=trained
                )
    return results


def is_trained(run: RunRow, known: Checkpoints) -> bool:
    """Return whether ragmeter trained a part of the run: it has a training seed, or uses a registered checkpoint."""
    return first_name(run.method) != base_name(run.method) or trained_here(run, known)


def trainings_of(members: Sequence[RunRow]) -> tuple[str, ...]:
    """Return a label per run that is equal for repeats of the same training."""
    return tuple(json.dumps(run.description, sort_keys=True) for run in members)


def _failed(store: Store, runs: Sequence[str]) -> dict[str, frozenset[str]]:
    rows = store.database.rows(
        """SELECT run, list(question) FROM predictions JOIN runs USING (run)
           WHERE list_contains(?, run) AND failed IS NOT NULL AND accepted_at IS NULL GROUP BY run""",
        [runs],
    )
    return {run: frozenset(ids) for run, ids in rows}


def _made_of(store: Store, runs: Sequence[str]) -> dict[str, str]:
    return dict(store.database.rows("SELECT run, CAST(description AS VARCHAR) FROM runs WHERE list_contains(?, run)", [runs]))


def _labels(store: Store, runs: Sequence[str]) -> dict[tuple[str, str], dict[str, float]]:
    """Return the mean label of each answer, from labels that refer to the run's present answer."""
    rows = store.database.rows(
        f"""SELECT one, criterion, question, list(label) FROM ({with_present()})
            WHERE other IS NULL AND labeled = present AND list_contains(?, one) GROUP BY ALL""",
        [runs],
    )
    results: dict[tuple[str, str], dict[str, float]] = {}
    for run, criterion, question, texts in rows:
        values = [value for label in texts if (value := worth(label, criterion)) is not None]
        if values:
            results.setdefault((run, criterion), {})[question] = float(np.mean(values))
    return results
