"""Store the gate's memory: anchors, decisions since an anchor, and attempts of one candidate.

A baseline that moves at every push hides many small losses, so a baseline can have an anchor: a run that stays the same
until `ragmeter gate --set-anchor`. Every decision is also made against the anchor, and the n-th decision about it spends
the part of the error probability that `results.statistics.spending` gives it.

An attempt is one set of answers of one candidate, identified by its description (code, options, weights, revision), to one
set of questions. To decide again on the same answers is not a new attempt. A candidate that has passed against a baseline
keeps the level at which it did: the probability that it ever passes wrongly is spent once.

All this is in the table `gates` and in `anchors`. A copy of the store knows only the decisions that were written to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from duckdb import DuckDBPyConnection

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import content_hash
from results.store.queries import RunRow
from results.store.schema import after_all
from results.store.store import FINISHED, Store, fingerprint_of, token_of


@dataclass(frozen=True, slots=True)
class Anchor:
    """Pinned run of a baseline on one benchmark; gates also test the loss since it, so that small losses cannot add up unnoticed.

    Attributes:
        name: The user's name of the baseline.
        run: Id of the run.
        set_at: When it was pinned (UTC).
    """

    name: str
    run: str
    set_at: datetime


@dataclass(frozen=True, slots=True)
class Memory:
    """Earlier gate decisions that affect the error probability of the next one on a metric.

    Attributes:
        attempt: Number of the candidate's attempt, from 1; if the candidate passed before, the number of that attempt.
        number: Number of this decision among those about the anchor, from 1; 0 without an anchor.
        earlier: Number of stored decisions on these questions and this metric.
    """

    attempt: int
    number: int
    earlier: int


def identity(run: RunRow) -> str:
    """Return a key for "the same candidate on the same questions", made of the method with code, options and weights, and the data.

    The seed is left out, so that a candidate cannot pass by trying seeds.
    """
    described = json.dumps(run.description, sort_keys=True, ensure_ascii=False)
    return content_hash([described, run.dataset_fingerprint, run.setting, str(run.questions)])


def set_anchors(store: Store, name: str, runs: Iterable[RunRow]) -> list[RunRow]:
    """Pin runs as the anchors of a baseline, one per benchmark; runs that are anchors already are left unchanged.

    Args:
        store: The store to write.
        name: The user's name of the baseline.
        runs: The runs.

    Returns:
        The newly pinned runs.

    Raises:
        UserError: A run is a control, or not finished.
    """
    chosen = list({run.run: run for run in runs}.values())
    for run in chosen:
        if not run.may_win or run.status != FINISHED:
            why = run.status if run.may_win else "a control"
            raise UserError(
                f"{run.path} is {why} and cannot be an anchor",
                code="anchor-not-finished",
                where="--set-anchor",
                try_this="ragmeter run --resume, or name a finished run of a method",
            )
    with store.database.writing() as connection:
        fresh = [run for run in chosen if (earlier := _anchor(connection, name, run)) is None or earlier.run != run.run]
        set_at = after_all(connection, "anchors", "set_at")
        for run in fresh:
            connection.execute(
                "INSERT INTO anchors VALUES (?, ?, ?, ?, ?, ?)", [name, run.dataset_fingerprint, run.setting, run.seed, run.run, set_at]
            )
    return fresh


def anchor_of(store: Store, name: str, run: RunRow) -> Anchor | None:
    """Return a baseline's anchor on the benchmark of this run; None if there is none."""
    with store.database.reading() as connection:
        return _anchor(connection, name, run)


def has_anchor(store: Store, name: str) -> bool:
    """Return whether a baseline has an anchor on any benchmark."""
    return bool(store.database.rows("SELECT 1 FROM anchors WHERE name = ? LIMIT 1", [name], lenient=True))


def _anchor(connection: DuckDBPyConnection, name: str, run: RunRow) -> Anchor | None:
    row = connection.execute(
        """SELECT name, run, set_at FROM anchors WHERE name = ? AND dataset_fingerprint = ? AND setting = ? AND seed = ?
           ORDER BY set_at DESC, rowid DESC LIMIT 1""",
        [name, run.dataset_fingerprint, run.setting, run.seed],
    ).fetchone()
    return None if row is None else Anchor(*row)


def newest_of(runs: Sequence[RunRow]) -> RunRow:
    """Return the newest run of a side; it identifies the side's decisions, so that a further repeat or seed counts as a new attempt."""
    return max(runs, key=lambda run: (run.started_at, run.run))


def remembered(
    connection: DuckDBPyConnection, baseline: Sequence[RunRow], candidate: Sequence[RunRow], margins: dict[str, float], anchor: str | None
) -> dict[str, Memory]:
    """Read the earlier decisions that affect the next one, by metric.

    Args:
        connection: A connection to the store; in a writing transaction, other processes cannot write in between.
        baseline, candidate: The runs of each side.
        margins: Tolerated loss by metric.
        anchor: Id of the anchor's run; None without an anchor.
    """
    own, run, before = identity(candidate[0]), newest_of(candidate), newest_of(baseline)
    rows = connection.execute(
        """SELECT metric, baseline, candidate, margin, outcome, anchor, identity FROM gates
           WHERE identity = ? OR anchor = ? ORDER BY decided_at, rowid""",
        [own, anchor],
    ).fetchall()
    earlier = dict(
        connection.execute(
            """SELECT metric, count(*) FROM gates JOIN runs ON runs.run = gates.candidate
               WHERE dataset_fingerprint = ? AND setting = ? GROUP BY 1""",
            [run.dataset_fingerprint, run.setting],
        ).fetchall()
    )
    results = {}
    for metric, margin in margins.items():
        mine = [row[1:5] for row in rows if row[0] == metric and row[6] == own]
        about = [row[2] for row in rows if row[0] == metric and anchor is not None and row[5] == anchor]
        number = _place(about, run.run) if anchor is not None else 0
        attempt = _attempt(mine, before.run, run.run, margin)
        # Runs may have been deleted, which their decisions survive.
        results[metric] = Memory(attempt, number, max(len(mine), earlier.get(metric, 0)))
    return results


def _attempt(rows: Sequence[tuple[str, str, float, str]], baseline: str, candidate: str, margin: float) -> int:
    """Return the number of a decision's attempt; a rerun baseline also makes a new attempt."""
    seen = [(run, token_of(against)) for against, run, _, _ in rows]
    for position, (against, _, tolerated, outcome) in enumerate(rows):
        if outcome == "pass" and fingerprint_of(against) == fingerprint_of(baseline) and tolerated <= margin:
            return _place(seen[:position], seen[position])
    return _place(seen, (candidate, token_of(baseline)))


def _place(seen: Sequence[object], one: object) -> int:
    """Return the 1-based position of a key among the distinct keys so far."""
    distinct = list(dict.fromkeys(seen))
    return distinct.index(one) + 1 if one in distinct else len(distinct) + 1
