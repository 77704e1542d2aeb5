"""Compute the scores of imported runs from their answers, and mark those that cannot be computed here.

Scores of another store are trusted only if they can be checked. A metric that needs no judge gives the same
score on every machine, so imported scores are computed again and replaced if they differ. The others
(judged, of an unknown metric, or without the passages that they are computed from) are in the table `imports`, and every
table that shows them marks them. Answers, rankings and gold are taken as the import has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from duckdb import DuckDBPyConnection

from benchmarks.core.errors import UserError, counted
from judges import score as scoring
from judges.metric import Metric, Scores, parse
from results.store import answer_queries, queries, records, score_queries
from results.store.doubts import NOT_RESCORED
from results.store.queries import RunRow
from results.store.rows import insert_scores, summarize
from results.store.store import Store, shortened

_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Rescored:
    """Result of recomputing imported scores.

    Attributes:
        rescored: Number of (run, metric) pairs that were recomputed.
        differing: By run and metric, the number of imported values that differed from the recomputed ones and were replaced.
        left: By run and metric, why the scores could not be recomputed.
    """

    rescored: int = 0
    differing: dict[tuple[str, str], int] = field(default_factory=dict)
    left: dict[tuple[str, str], str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the result of the rescoring as a JSON object."""
        return {
            "rescored": self.rescored,
            "differing": [{"run": run, "metric": metric, "values": number} for (run, metric), number in self.differing.items()],
            "not_rescored": [{"run": run, "metric": metric, "why": why} for (run, metric), why in self.left.items()],
        }

    def in_words(self) -> list[str]:
        """Summarize the result for users, one line per run and metric."""
        lines = [
            f"{shortened(run)} {metric}: {counted(number, 'imported score')} did not follow from the answers, and "
            f"{'was' if number == 1 else 'were'} replaced"
            for (run, metric), number in self.differing.items()
        ]
        return lines + [f"{shortened(run)} {metric}: {NOT_RESCORED} ({why})" for (run, metric), why in self.left.items()]


def rescore(store: Store, pairs: Sequence[tuple[str, str]]) -> Rescored:
    """Recompute imported scores from the stored answers.

    Args:
        store: The store. Recomputed pairs are removed from its table `imports`.
        pairs: (Run id, metric id) pairs of that table.
    """
    if not pairs:
        return Rescored()
    wanted = dict.fromkeys(run for run, _ in pairs)
    runs = {run.run: run for run in queries.runs(store) if run.run in wanted}
    judged = {metric for metric, known in score_queries.definitions(store).items() if known.get("judge") is not None}
    result = Rescored()
    metrics: dict[str, Metric] = {}
    for metric in dict.fromkeys(metric for _, metric in pairs):
        try:
            metrics[metric] = parse(metric)
        except UserError:
            why = "a judge's" if metric in judged else "this ragmeter has no metric of this name and version"
            result.left.update({pair: why for pair in pairs if pair[1] == metric})
    store.put_cards([], metrics.values())
    rescored = 0
    for run in wanted:
        chosen = {metric: metrics[metric] for owner, metric in pairs if owner == run and metric in metrics}
        if chosen:
            rescored += _rescore_run(store, runs[run], chosen, result)
    with store.database.writing() as connection:
        for (run, metric), why in result.left.items():
            connection.execute("UPDATE imports SET why = ? WHERE run = ? AND metric = ?", [why, run, metric])
    return Rescored(rescored, result.differing, result.left)


def _rescore_run(store: Store, run: RunRow, metrics: dict[str, Metric], result: Rescored) -> int:
    """Recompute a run's scores; returns the number of metrics."""
    try:
        questions, predictions = records.answered(store, run)
    except KeyError:
        result.left.update(dict.fromkeys(((run.run, name) for name in metrics), "the gold of its questions cannot be read"))
        return 0
    passages = dict.fromkeys(item.id for prediction in predictions for item in prediction.evidence)
    passages |= dict.fromkeys(item for question in questions for item in question.evidence)
    known = answer_queries.passages(store, list(passages))
    ids = [question.id for question in questions]
    computed: dict[str, Scores] = {}
    for name, metric in metrics.items():
        try:
            computed |= {name: scoring.score(questions, predictions, [metric], passage=known.__getitem__)[name]}
        except (UserError, KeyError, ValueError):
            result.left[run.run, name] = "its input is not in this store"
    with store.database.writing() as connection:
        for name, values in computed.items():
            if (differing := _put(connection, run.run, name, ids, values)) is None:
                result.left[run.run, name] = "some of its questions are not in this store"
                continue
            if differing:
                result.differing[run.run, name] = differing
            connection.execute("DELETE FROM imports WHERE run = ? AND metric = ?", [run.run, name])
        summarize(connection, run.run)
    return sum((run.run, name) not in result.left for name in computed)


def _put(connection: DuckDBPyConnection, run: str, metric: str, ids: Sequence[str], values: Scores) -> int | None:
    """Replace stored scores that differ; returns their number, None if a score belongs to an unknown question."""
    stored = dict(connection.execute("SELECT question, value FROM scores WHERE run = ? AND metric = ?", [run, metric]).fetchall())
    if stored.keys() - set(ids):
        return None
    known = np.array([name in stored for name in ids], dtype=np.bool_)
    before = np.array([np.nan if stored.get(name) is None else stored[name] for name in ids], dtype=np.float64)
    wrong = np.flatnonzero(known & ~np.isclose(before, values, rtol=0, atol=_TOLERANCE, equal_nan=True)).tolist()
    for at in wrong:
        connection.execute("DELETE FROM scores WHERE run = ? AND metric = ? AND question = ?", [run, metric, ids[at]])
    if len(wrong):
        insert_scores(connection, run, [ids[at] for at in wrong], {metric: np.asarray(values)[wrong]})
    return len(wrong)
