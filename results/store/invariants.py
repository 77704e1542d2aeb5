"""Check relations that must hold between the scores of every stored run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from benchmarks.core.errors import UserError
from judges.metric import Metric, Scores, parse
from judges.score import check_invariants
from results.store.rows import AGGREGATED, insert
from results.store.store import Store


def check_run(store: Store, run: str) -> list[str]:
    """Check that a run's stored scores satisfy the relations between metrics (such as recall@5 ≤ recall@10), and store the violations.

    Returns:
        One sentence per violation; empty if there is none.
    """
    rows = store.scored(run)
    whole: dict[Metric, Scores] = {}
    results = []
    for name, values in score_rows(store, run).items():
        # Judges' measures, and metrics of another version, have no declaration here to check them by.
        with suppress(UserError):
            if rows[name] == len(values):
                whole[parse(name)] = values
            else:
                # Its missing rows are not unscorable: it cannot be compared with metrics that have them.
                results += check_invariants({parse(name): values})
    results = check_invariants(whole) + results
    results += summary_errors(store, run)
    if results == violations(store, [run]).get(run, []):
        return results
    with store.database.writing() as connection:
        connection.execute("DELETE FROM violations WHERE run = ?", [run])
        insert(connection, "violations", {"run": [run] * len(results), "what": list(results)})
    return results


def violations(store: Store, runs: Sequence[str]) -> dict[str, list[str]]:
    """Read the stored violations of relations between metrics, by run; runs without violations are omitted."""
    rows = store.database.rows("SELECT run, what FROM violations WHERE list_contains(?, run) ORDER BY rowid", [list(runs)])
    results: dict[str, list[str]] = {}
    for run, what in rows:
        results.setdefault(run, []).append(what)
    return results


def score_rows(store: Store, run: str) -> dict[str, Scores]:
    """Read a run's scores by metric id, with questions in the order of their ids; NaN without a value."""
    with store.database.reading() as connection:
        table = connection.execute(
            "SELECT metric, value, dense_rank() OVER (ORDER BY question) - 1 AS place FROM scores WHERE run = ?", [run]
        ).fetchnumpy()
    metric = table["metric"].astype(str)
    value = np.ma.filled(np.ma.asarray(table["value"], dtype=np.float64), np.nan)
    position = np.asarray(table["place"])
    results = {}
    for name in dict.fromkeys(metric.tolist()):
        rows = metric == name
        column = np.full(int(position.max()) + 1, np.nan)
        column[position[rows]] = value[rows]
        results[name] = column
    return results


def summary_errors(store: Store, run: str) -> list[str]:
    """List metrics whose stored mean differs from the mean over their questions, one sentence each."""
    rows = store.database.rows(
        f"""SELECT metric FROM (SELECT metric, n, mean FROM summaries WHERE run = ?) kept
                FULL JOIN ({AGGREGATED} WHERE run = ? GROUP BY run, metric) made USING (metric)
                WHERE kept.n IS DISTINCT FROM made.n OR abs(kept.mean - made.mean) > 1e-9 ORDER BY metric""",
        [run, run],
    )
    return [f"the reported mean of {metric} is not the mean of its questions" for (metric,) in rows]
