from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from methods.spending import NO_LIMITS, LimitReached, Limits
from ragmeter import experiment
from ragmeter.runner.executors.cluster import Shares
from ragmeter.runner.experiment import How, run_experiment
from ragmeter.runner.loop import Outcome
from results.store.store import FINISHED, INCOMPLETE, Store
from tests.support.server import ChatRequest, OpenAIServer, Written

FILE = """\
name: small
benchmarks: [{id: worlds/multihop, split: validation, setting: distractor, limit: 150}]
methods:
  - {id: bm25, reader: {id: chat, config: {llm: {model: m, base_url: "URL", key_variable: null, concurrency: 3}}}}
  - {id: gold_answer}
metrics: [em, recall@5]
"""
pytestmark = [pytest.mark.filterwarnings("ignore::ResourceWarning"), pytest.mark.usefixtures("cluster")]


class Slow:
    """Slow endpoint that counts the calls in flight."""

    def __init__(self) -> None:
        self.now = self.most = self.replies = 0
        self._lock = threading.Lock()

    def answer(self, request: ChatRequest) -> Written:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(0.05)
        with self._lock:
            self.now -= 1
            self.replies += 1
        return Written(f"answer {len(request.prompt) % 7}", 10, 2)


@pytest.fixture(scope="module")
def slow() -> Slow:
    return Slow()


@pytest.fixture(scope="module")
def text(slow: Slow) -> Iterator[str]:
    with OpenAIServer("m", slow.answer).running() as url:
        yield FILE.replace("URL", url)


def run(text: str, folder: Path, cluster: Shares | None, limits: Limits = NO_LIMITS) -> list[Outcome]:
    return run_experiment(experiment.parse(text, "x.yaml"), Store(folder), How(cluster=cluster, limits=limits), talk=False)


def rows(folder: Path) -> dict[str, list[tuple]]:
    """Return everything that must be equal between two executors."""
    columns = {
        "runs": "run, method, dataset, questions, status",
        "predictions": "run, question, answer, failed",
        "evidence": "run, question, rank, id, score",
        "scores": "run, question, metric, value",
        "usage": "run, question, prompt_tokens, completion_tokens",
    }
    with Store(folder).database.reading() as connection:
        return {name: connection.execute(f"SELECT {some} FROM {name} ORDER BY ALL").fetchall() for name, some in columns.items()}


@pytest.fixture(scope="module")
def calm(text: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple]]:
    """Return the results of a run in this process."""
    folder = tmp_path_factory.mktemp("calm")
    run(text, folder, None)
    return rows(folder)


def workers() -> list[psutil.Process]:
    """Return the workers of this process's cluster."""
    return [child for child in psutil.Process().children(recursive=True) if child.name().startswith("ray::Worker")]


@pytest.mark.slow
def test_worker_rows_equal_single_process_rows_under_one_limit(text: str, slow: Slow, calm: dict[str, list[tuple]], tmp_path: Path) -> None:
    slow.most = 0
    assert [outcome.status for outcome in run(text, tmp_path, Shares())] == [FINISHED] * 2
    assert rows(tmp_path) == calm
    assert 1 < slow.most <= 3


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_killed_workers_do_not_change_rows(text: str, slow: Slow, calm: dict[str, list[tuple]], tmp_path: Path) -> None:
    kills, ended = 0, threading.Event()

    def kill() -> None:
        nonlocal kills
        instants, before = random.Random(1), slow.replies
        while kills < 10 and not ended.wait(instants.uniform(0.01, 0.2)):
            running = workers()
            if running and slow.replies >= before + 3:
                before = slow.replies
                instants.choice(running).kill()
                kills += 1

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        outcomes = run(text, tmp_path, Shares())
    finally:
        ended.set()
        killer.join()
    assert kills == 10
    assert [outcome.status for outcome in outcomes] == [FINISHED] * 2
    assert rows(tmp_path) == calm


@pytest.mark.slow
def test_call_limit_applies_across_workers_and_the_next_run_continues(
    text: str, slow: Slow, calm: dict[str, list[tuple]], tmp_path: Path
) -> None:
    text, before = text.replace("  - {id: gold_answer}\n", ""), slow.replies
    (outcome,) = run(text, tmp_path, Shares(workers=2), Limits(max_calls=5))
    assert outcome.status == INCOMPLETE
    assert isinstance(outcome.error, LimitReached)
    assert "max_calls 5" in outcome.error.what
    assert slow.replies - before == 5
    with Store(tmp_path).database.reading() as connection:
        assert connection.execute("SELECT count(*), count(failed) FROM predictions").fetchone() == (4, 0)
    (outcome,) = run(text, tmp_path, Shares(workers=2))
    assert outcome.status == FINISHED
    assert set(rows(tmp_path)["predictions"]) <= set(calm["predictions"])


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["demo", "demo-graph", "demo-styles", "demo-compression"])
def test_demo_tables_are_equal_with_workers(name: str, tmp_path: Path) -> None:
    every = {}
    for place, shares in (("local", None), ("ray", Shares(workers=2))):
        store = Store(tmp_path / place)
        outcomes = run_experiment(experiment.load(name, store=store.folder), store, How(limit=4, cluster=shares), talk=False)
        assert [outcome.error for outcome in outcomes if outcome.status != FINISHED] == []
        every[place] = rows(store.folder)
    assert every["ray"] == every["local"]
