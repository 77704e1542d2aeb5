"""The store under fire: many processes for a minute, and a disk that really fills up."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.schema import Passage
from methods.api import Evidence, Prediction, Usage
from results.store import queries
from results.store.faults import DiskFull
from results.store.store import FINISHED, Run, Store

METRIC = "em(rules=squad)#v2"


def run_of(name: str) -> Run:
    return Run(name, name, "m", "retriever", {}, "toy:dev", "d", "corpus", 0, 10**6, {})


def said(name: str, number: int) -> Prediction:
    evidence = tuple(Evidence(f"p{number + rank}", 1 / (1 + rank)) for rank in range(5))
    return Prediction(f"q{number}", f"{name} {number}", evidence, Usage())


def write_until(folder: Path, name: str, deadline: float, written: object) -> None:
    store = Store(folder)
    store.start(run_of(name))
    number = 0
    while time.time() < deadline:
        batch = [said(name, number + position) for position in range(7)]
        passages = [Passage(item.id, "T", "x") for entry in batch for item in entry.evidence]
        store.append(name, batch, {METRIC: np.full(7, 0.5)}, passages)
        number += 7
    store.end(name, FINISHED)
    written.put((name, number))  # type: ignore[attr-defined]


def read_until(folder: Path, deadline: float, looked: object) -> None:
    store, times, before = Store(folder), 0, {}
    while time.time() < deadline or not times:
        if not store.database.exists:
            continue
        results = {row.run: row.done for row in queries.runs(store)}
        # A finished question never disappears again, and a transaction is seen whole or not at all.
        assert all(results[run] >= done for run, done in before.items())
        assert all(done % 7 == 0 for done in results.values())
        with store.database.reading() as connection:
            means = connection.execute("SELECT mean FROM summaries WHERE n > 0").fetchall()
        assert all(abs(mean - 0.5) < 1e-12 for (mean,) in means)
        before, times = results, times + 1
    looked.put(times)  # type: ignore[attr-defined]


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_many_writers_and_readers_lose_and_double_nothing(store: Store) -> None:
    """For a minute; what test_store.py does for a moment."""
    writers, readers, seconds = 8, 8, 60
    context = multiprocessing.get_context("spawn")
    written, looked = context.Queue(), context.Queue()
    # Starting all those interpreters takes a while on two cores.
    deadline = time.time() + seconds + 2 * (writers + readers)
    processes = [context.Process(target=write_until, args=(store.folder, f"run{n}", deadline, written)) for n in range(writers)]
    processes += [context.Process(target=read_until, args=(store.folder, deadline, looked)) for _ in range(readers)]
    for process in processes:
        process.start()
    wrote = dict(written.get(timeout=seconds + 300) for _ in range(writers))
    looks = [looked.get(timeout=300) for _ in range(readers)]
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * len(processes)
    assert min(looks) > 0
    print(f"{writers} writers: {sum(wrote.values())} questions; {readers} readers: {sum(looks)} looks; {seconds} s")
    with store.database.reading() as connection:
        for table, each in (("predictions", 1), ("usage", 1), ("scores", 1), ("evidence", 5)):
            rows = dict(connection.execute(f"SELECT run, count(*) FROM {table} GROUP BY run").fetchall())
            assert rows == {name: each * number for name, number in wrote.items()}
        doubled = connection.execute(
            "SELECT count(*) - count(DISTINCT (run, question)) FROM predictions UNION ALL "
            "SELECT count(*) - count(DISTINCT id) FROM passages"
        ).fetchall()
    assert doubled == [(0,), (0,)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a small disk can be mounted by root alone")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no small disk here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.slow
def test_a_disk_that_fills_up_leaves_every_finished_question(small_disk: Path, tmp_path: Path) -> None:
    store = Store(small_disk / "store")
    store.start(run_of("r"))
    rng = np.random.default_rng(0)
    acknowledged: list[str] = []

    def fill_up() -> None:
        for number in range(10_000):
            store.append("r", [Prediction(f"q{number}", rng.bytes(40_000).hex())], {METRIC: np.array([1.0])})
            acknowledged.append(f"q{number}")

    with pytest.raises(DiskFull) as caught:
        fill_up()
    assert len(acknowledged) > 3
    assert "ragmeter run --resume" in str(caught.value.try_this)
    assert caught.value.exit_code == 1
    # What was acknowledged is there, whole, and the store goes on once there is room again.
    assert Store(small_disk / "store").finished_questions("r") >= set(acknowledged)
    shutil.copytree(small_disk / "store", tmp_path / "roomy")
    roomy = Store(tmp_path / "roomy")
    roomy.append("r", [Prediction("last", "a")], {METRIC: np.array([1.0])})
    assert roomy.scored("r") == {METRIC: len(roomy.finished_questions("r"))}
