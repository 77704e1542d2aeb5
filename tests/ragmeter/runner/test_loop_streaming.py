"""No question waits for another: rows are stored as they finish, and the next task starts before the last reply of one."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from methods.api import Services
from ragmeter import experiment
from ragmeter.runner import loop
from ragmeter.runner.tasks import states, tasks_of
from results.store.store import INTERRUPTED, Store
from tests.support.server import ChatRequest, OpenAIServer, Refused, Written

pytestmark = pytest.mark.slow

pytest.importorskip("openai")

HELD_S = 60.0
"""Maximum time that a reply is held back until a test releases it."""


class Nothing:
    """Progress that shows nothing."""

    def begin(self, *_: Any) -> None: ...
    def stage(self, *_: Any) -> None: ...
    def advance(self, *_: Any) -> None: ...
    def end(self, *_: Any) -> None: ...


@contextmanager
def run_of(folder: Path, held: threading.Event, refuse: bool = False) -> Any:
    """Two tasks at an endpoint whose very first reply is held; when each call came, by how many passages it brings."""
    came: list[tuple[float, int]] = []
    lock = threading.Lock()

    def answer(request: ChatRequest) -> Written:
        with lock:
            first = not came
            came.append((time.monotonic(), request.prompt.count("\n[")))
        if first:
            held.wait(HELD_S)
            if refuse:
                raise Refused(400, "not this one")
        return Written("Ann", 3, 1)

    with OpenAIServer("m", answer).running() as url:
        reader = f"{{id: chat, config: {{llm: {{model: m, base_url: '{url}', key_variable: null, concurrency: 4}}}}}}"
        text = (
            "name: two\nbenchmarks: [{id: worlds/multihop, split: test, limit: 12}]\nmetrics: [em]\n"
            f"methods: [{{id: bm25, name: few, k: 1, reader: {reader}}}, {{id: bm25, name: many, k: 4, reader: {reader}}}]\n"
        )
        store = Store(folder)
        tasks = states(tasks_of(experiment.parse(text, "x.yaml")), store)
        for state in tasks:
            store.put_benchmark(state.task.loaded.benchmark, state.task.loaded.fingerprint)
        yield store, tasks, came


def test_slow_reply_delays_neither_other_rows_nor_the_next_task(tmp_path: Path) -> None:
    durable: list[float] = []
    held = threading.Event()
    with run_of(tmp_path, held, refuse=True) as (store, tasks, came):

        def look() -> None:
            while [len(store.finished_questions(state.task.run.run)) for state in tasks] != [11, 12]:
                time.sleep(0.05)
            durable.append(time.monotonic())
            held.set()

        looking = threading.Thread(target=look, daemon=True)
        looking.start()
        outcomes = loop.execute(tasks, store, Services(), Nothing())
    assert [outcome.status for outcome in outcomes] == ["finished", "finished"]
    # All but the slow one were on disk while it was awaited, those of the next task too.
    assert durable[0] - came[0][0] < HELD_S
    failed = [p for state in tasks for p in store.predictions(state.task.run.run) if "failed" in p.notes]
    assert len(failed) == 1


def test_run_stopped_with_outstanding_replies_keeps_answers_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    # Other tests of the same process may leave a handler of their libraries, or the signal blocked.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    # The reply is outstanding when Ctrl-C arrives, whatever the load of the machine.
    held = threading.Event()
    with run_of(tmp_path, held) as (store, tasks, came):
        first = loop._Running.result

        def interrupted(self: Any) -> Any:
            # Ctrl-C does not end the wait of the main thread if it arrives just before it.
            threading.Timer(0.05, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT)).start()
            return first(self)

        monkeypatch.setattr(loop._Running, "result", interrupted)
        close = loop._close
        monkeypatch.setattr(loop, "_close", lambda *arguments: (time.sleep(0.2), close(*arguments)))
        with pytest.raises(loop.Interrupted):
            loop.execute(tasks, store, Services(), Nothing())
        assert time.monotonic() - came[0][0] < HELD_S
        held.set()
        assert store.status(tasks[0].task.run.run) == INTERRUPTED
        assert len(store.finished_questions(tasks[0].task.run.run)) == 11
        monkeypatch.setattr(loop._Running, "result", first)
        again = [type(state)(state.task, len(store.finished_questions(state.task.run.run)), None) for state in tasks]
        outcomes = loop.execute(again, store, Services(), Nothing())
    assert (outcomes[0].status, outcomes[0].answered) == ("finished", 1)
