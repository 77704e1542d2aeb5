"""The store: score rows appended per second, and the matrix's first query at a million and ten million rows.

Appending is compared with the same rows by `executemany`, the way DuckDB's Python client takes rows without Arrow. The
query asks in which metrics every run has values, which decides what columns there are; it reads the small table
`summaries` and is compared with asking the score rows. Targets: 500,000 rows/s; 50 ms at 1 M rows and 400 ms at 10 M.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from perf.measuring import Bench, medians
from results.boards.systems import scored_metrics
from results.store.store import Run, Store

QUESTIONS, METRICS = 5000, 5
ROWS_PER_S, MS_AT_MILLION, MS_AT_TEN_MILLIONS = 500_000, 50, 400
_OVER_ROWS = "SELECT run, metric FROM scores GROUP BY run, metric HAVING count(value) + count(unscored) > 0"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; exit code 0 if every target is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=int, default=10, help="score rows in the larger store, in millions")
    query = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(0)
        plain = _plain_rate(Store(Path(folder) / "plain"))
        bench = Bench("store")
        for questions, target in ((200_000, ROWS_PER_S), (20_000, ROWS_PER_S), (QUESTIONS, None)):
            store = Store(Path(folder) / f"by-{questions}")
            per_run = questions * METRICS
            runs = 1_000_000 // per_run
            spent = sum(append(store, f"run{number:05}", rng, questions) for number in range(runs))
            rate = 1_000_000 / spent
            remark = f" (executemany {plain:,.0f} rows/s: {rate / plain:.0f} x)"
            bench.figure(f"append 1,000,000 score rows, {per_run:,} a transaction", rate, "rows/s", at_least=target, remark=remark)
        for millions, target in ((1, MS_AT_MILLION), (query.millions, MS_AT_TEN_MILLIONS)):
            _fill(store, millions * 1_000_000 // per_run, runs)
            runs = max(runs, millions * 1_000_000 // per_run)
            names = _names(store)
            sides = (partial(scored_metrics, store, names), partial(_from_rows, store))
            (result, over_rows), _ = medians(5, *sides, clock=time.perf_counter)
            remark = f" (from the rows {1000 * over_rows:.1f} ms: {over_rows / result:.1f} x)"
            bench.figure(f"metrics of all {runs} runs at {millions} M rows", 1000 * result, "ms", at_most=target, remark=remark)
    return bench.finish()


def _run(name: str) -> Run:
    return Run(name, name, "perf", "method", {}, "perf:test", "perf", "corpus", 0, QUESTIONS, {})


def append(store: Store, name: str, rng: np.random.Generator, count: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Append a run's scores as a resumed scoring does; return the seconds."""
    store.start(_run(name))
    questions = [f"question-{number:08}" for number in range(count)]
    scores = {f"metric{number}@5(rules=perf)#v1": rng.random(count) for number in range(METRICS)}
    started = clock()
    store.put_scores(name, questions, scores)
    return clock() - started


def _plain_rate(store: Store, rows: int = 5000) -> float:
    values = [("plain", f"question-{number:08}", "m#v1", 0.5) for number in range(rows)]
    started = time.perf_counter()
    with store.database.writing() as connection:
        connection.executemany("INSERT INTO scores (run, question, metric, value) VALUES (?, ?, ?, ?)", values)
    spent = time.perf_counter() - started
    with store.database.writing() as connection:
        connection.execute("DELETE FROM scores WHERE run = 'plain'")
    return rows / spent


def _fill(store: Store, runs: int, already: int) -> None:
    """Bring the store to so many runs, by copying in SQL."""
    if runs <= already:
        return
    with store.database.writing() as connection:
        for table in ("scores", "summaries", "runs"):
            columns = [row[0] for row in connection.execute(f"DESCRIBE {table}").fetchall() if row[0] != "run"]
            listed = ", ".join(columns)
            connection.execute(
                f"""INSERT INTO {table} (run, {listed}) SELECT 'copy' || copies.number || '-' || run, {listed}
                    FROM {table}, range({runs // already - 1}) copies(number) WHERE run LIKE 'run%'
                    ORDER BY copies.number"""
            )


def _names(store: Store) -> list[str]:
    with store.database.reading() as connection:
        return [run for (run,) in connection.execute("SELECT run FROM runs").fetchall()]


def _from_rows(store: Store) -> None:
    with store.database.reading() as connection:
        connection.execute(_OVER_ROWS).fetchall()


if __name__ == "__main__":
    sys.exit(main())
