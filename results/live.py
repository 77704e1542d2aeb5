"""Runs that are being written at this moment, read with no more than counts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from results.store import RUNNING, Store

_RUNNING = """
WITH running AS (SELECT * FROM runs WHERE status = ?),
     answered AS (SELECT run, count(*) AS done, count(failed) AS failed FROM predictions
                  WHERE run IN (SELECT run FROM running) GROUP BY run),
     named AS (SELECT run, first(experiment ORDER BY experiment) AS experiment,
                      first(method ORDER BY experiment) AS method
               FROM experiment_runs WHERE run IN (SELECT run FROM running) GROUP BY run)
SELECT r.run, coalesce(n.experiment, '-'), coalesce(n.method, r.method), r.dataset, r.setting, r.seed, r.questions,
       coalesce(a.done, 0), coalesce(a.failed, 0), r.started_at, r.updated_at
FROM running r LEFT JOIN answered a USING (run) LEFT JOIN named n USING (run) ORDER BY r.updated_at, r.run
"""
_SAME_MOMENT = timedelta(seconds=1)
"""A new run's two times are taken one after the other."""


@dataclass(frozen=True, slots=True)
class Running:
    """A run that its process has begun and not ended; one that was killed looks the same.

    Attributes:
        run: The fingerprint.
        experiment: "-" for a run of none.
        method, dataset, setting, seed: As on boards.
        questions: How many it has.
        done, failed: Answered so far, and those among them that failed.
        started_at: When it was first begun, UTC.
        begun_at: When the present execution began, UTC; later than `started_at` where it was resumed.
    """

    run: str
    experiment: str
    method: str
    dataset: str
    setting: str
    seed: int
    questions: int
    done: int
    failed: int
    started_at: datetime
    begun_at: datetime

    @property
    def resumed(self) -> bool:
        """Whether an earlier execution answered a part, so that `done` says nothing of the present one's pace."""
        return self.begun_at - self.started_at > _SAME_MOMENT


def running(store: Store) -> list[Running]:
    """Runs that are being written, the one that was begun first first; none where there is no store yet."""
    if not store.database.exists:
        return []
    with store.database.reading() as connection:
        rows = connection.execute(_RUNNING, [RUNNING]).fetchall()
    return [Running(*row) for row in rows]
