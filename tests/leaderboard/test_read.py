"""When pages read the store again."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from leaderboard import read, read_boards
from methods.api import Prediction, Usage
from results.store import cost_queries
from results.store.cost_queries import Cost
from results.store.store import Run, Store


def test_changing_store_is_read_once_per_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setenv(read.STORE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(read.time, "monotonic", lambda: clock[0])
    path = Store(tmp_path).database.path
    assert read.source().stamp == ()
    path.write_bytes(b"1")
    first = read.source()
    assert first.stamp, "a store that comes to be is shown at once"
    path.write_bytes(b"12")
    assert read.source() == first
    clock[0] += read.REST_S
    second = read.source()
    assert second != first
    path.write_bytes(b"123")
    assert read.source() == second
    read.look_again(second)
    assert read.source() != second, "what the server wrote itself is shown at once"
    path.unlink()
    assert read.source().stamp == ()


def test_visitors_see_the_last_version_until_the_new_board_is_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, go, computed = [1000.0], threading.Event(), []
    monkeypatch.setenv(read.STORE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(read.time, "monotonic", lambda: clock[0])

    def compute(at: read.Source) -> None:
        assert go.wait(60)
        computed.append(at)

    monkeypatch.setitem(read._first, str(tmp_path.resolve()), compute)
    path = Store(tmp_path).database.path
    path.write_bytes(b"1")
    first = read.source()
    path.write_bytes(b"12")
    clock[0] += read.REST_S
    assert [read.source() for _ in range(3)] == [first] * 3
    renewing = read._renewed[first.folder]
    go.set()
    renewing.join(60)
    second = read.source()
    assert second != first
    assert computed == [second], "one thread computes for all visitors"
    go.clear()
    path.write_bytes(b"123")
    clock[0] += read.REST_S
    assert read.source() == second
    outdated = read._renewed[first.folder]
    read.look_again(second)
    path.write_bytes(b"1234")
    last = read.source()
    go.set()
    outdated.join(60)
    assert read.source() == last, "a thread that is late does not bring an older version back"


def test_costs_of_finished_runs_are_read_once_and_stay_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: ModuleType) -> None:
    dataset, metric = "data0:test", "f1(rules=hotpotqa)#v2"
    store = large.fill_large(tmp_path / "store", 3, 2, 20)
    monkeypatch.setenv(read.STORE_VARIABLE, str(store.folder))
    monkeypatch.setattr(read, "REST_S", 0.0)
    read_of: list[int] = []
    costs = cost_queries.costs

    def counted(store: Store, runs: Sequence[str]) -> dict[str, Cost]:
        read_of.append(len(runs))
        return costs(store, runs)

    monkeypatch.setattr(cost_queries, "costs", counted)
    run = Run("f" * 16, "written meanwhile", "perf", "method", {}, dataset, f"{1:016x}", "distractor", 0, 20, {})
    store.start(run)
    for number in (0, 1):
        usage = Usage(prompt_tokens=100 * (number + 1))
        store.append(run.run, [Prediction(f"d0q{number}", "an answer", usage=usage)], {metric: np.ones(1)})
        at = read.source()
        kept = read_boards._costs_of(at, read.run_groups(at, None))
        assert kept == costs(store, list(kept))
    assert read_of == [7, 1], "the six finished runs are read once"
