"""Boards at a glance: mean, number of questions and a normal interval of every (run, metric), from one small table.

The store keeps the aggregates beside the scores they are of (`results/rows.py`), so the answer takes as long for ten
million score rows as for ten thousand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from results.store import Store

NORMAL = 1.959963984540054
"""The 97.5 % point of the normal distribution."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A run on a metric.

    Attributes:
        run, method, kind, origin, dataset, dataset_fingerprint, setting, seed, metric: What it is of.
        mean: Over scorable questions; None without any.
        low, high: Normal 95 % interval, questions taken as independent; None with fewer than two. Boards show
            bootstrap intervals, which also hold where questions share a document.
        n: Questions with a value.
        unscorable: Questions without one.
    """

    run: str
    method: str
    kind: str
    origin: str
    dataset: str
    dataset_fingerprint: str
    setting: str
    seed: int
    metric: str
    mean: float | None
    low: float | None
    high: float | None
    n: int
    unscorable: int


def summaries(store: Store, metrics: Sequence[str] | None = None) -> list[Summary]:
    """Every run on every metric, by dataset, setting, metric, and mean from the highest down.

    Args:
        store: Where to read.
        metrics: Only these ids.
    """
    half = f"{NORMAL} * sqrt(s.variance / s.n)"
    with store.database.reading() as connection:
        rows = connection.execute(
            f"""SELECT s.run, r.method, r.kind, r.origin, r.dataset, r.dataset_fingerprint, r.setting, r.seed, s.metric,
                s.mean, s.mean - {half}, s.mean + {half}, s.n, s.scored - s.n
                FROM summaries s JOIN runs r USING (run) WHERE ? IS NULL OR list_contains(?, s.metric)
                ORDER BY r.dataset, r.setting, s.metric, s.mean DESC NULLS LAST, r.method""",
            [None if metrics is None else list(metrics)] * 2,
        ).fetchall()
    return [Summary(*row) for row in rows]
