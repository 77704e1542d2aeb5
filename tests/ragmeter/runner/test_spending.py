"""Spending limits over all roles of an experiment, with a loopback endpoint."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from methods.models import batch
from methods.spending import LimitReached, Limits, spending
from ragmeter import experiment
from ragmeter.runner.experiment import How, run_experiment
from ragmeter.runner.loop import Outcome
from ragmeter.runner.spending import compared, options_of, require_prices
from results.boards.health import health
from results.store import cost_queries, queries
from results.store.store import FINISHED, INCOMPLETE, Store
from tests.support.app import app
from tests.support.batches import Batches
from tests.support.errors import raises
from tests.support.server import ChatRequest, Handler, OpenAIServer, Written

QUESTIONS = 6
PRICE = {"usd_per_million_prompt_tokens": 0.0, "usd_per_million_completion_tokens": 10_000.0}
USD = 0.01
"""Cost of a call: one token of a reply."""
FILE = """\
name: spent
benchmarks: [{{id: worlds/multihop, split: test, setting: distractor, limit: {questions}, config: {{worlds: 1}}}}]
methods: [{{id: bm25, reader: {{id: chat, config: {{llm: {llm}}}}}}}]
judges: {judges}
metrics: [em]
"""
JUDGE = "[{{id: match, config: {{llm: {llm}}}}}]"


class Served:
    """Endpoint that counts its calls.

    Attributes:
        header: Cost that it reports in a header like LiteLLM.
        silent: Whether it omits usage.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.delay = 0.0
        self.lock = threading.Lock()
        self.header = ""
        self.silent = False
        self.server = OpenAIServer("m", self.answer, intercept=self.intercept)

    def intercept(self, handler: Handler, request: ChatRequest) -> bool:
        if not self.header and not self.silent:
            return False
        reply = handler.completion(self.answer(request))
        reply["usage"] = None if self.silent else reply["usage"]
        handler.send(200, reply, {"x-litellm-response-cost": self.header} if self.header else None)
        return True

    def answer(self, request: ChatRequest) -> Written:
        with self.lock:
            self.calls.append(request.prompt)
        time.sleep(self.delay)
        return Written("correct", 10, 1)


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    with served.server.running():
        yield served


@pytest.fixture
def run(served: Served, tmp_path: Path) -> Callable[..., tuple[list[Outcome], Store]]:
    """Run the experiment within limits."""

    def run(judges: bool = False, file: str = "", limits: Limits | None = None, **llm: Any) -> tuple[list[Outcome], Store]:
        options = {"model": "m", "base_url": served.server.url, "key_variable": None, "concurrency": 2, **llm}
        model = json.dumps(options)
        text = FILE.format(questions=QUESTIONS, llm=model, judges=JUDGE.format(llm=model) if judges else "[]") + file
        store = Store(tmp_path / "store")
        read = experiment.parse(text, "spent.yaml", store=store.folder)
        return run_experiment(read, store, How(limits=limits or Limits()), talk=False), store

    return run


def answered(store: Store) -> int:
    return sum(row.done for row in queries.runs(store, "spent"))


@pytest.mark.slow
def test_calls_stop_at_the_limit_and_a_resume_sends_only_the_rest(run: Any, served: Served) -> None:
    (outcome,), store = run(limits=Limits(max_calls=4))  # one of them checks the endpoint
    assert outcome.status == INCOMPLETE
    assert isinstance(outcome.error, LimitReached)
    assert "max_calls 4" in outcome.error.what
    assert "4 calls" in outcome.error.what
    assert "ragmeter run --resume spent --max-calls 4" in str(outcome.error.try_this)
    assert len(served.calls) == 4
    assert answered(store) == 3
    assert not queries.runs(store, "spent")[0].failed
    (outcome,), store = run(limits=Limits(max_calls=4))
    assert outcome.status == FINISHED
    assert answered(store) == QUESTIONS
    assert len(served.calls) == 1 + QUESTIONS


@pytest.mark.slow
def test_dollars_of_reader_and_judge_count_together(run: Any, served: Served) -> None:
    enough = (QUESTIONS + 3.5) * USD
    with pytest.raises(LimitReached) as caught:
        run(judges=True, file=f"limits: {{max_usd: {enough}}}\n", max_tokens=1, **PRICE)
    assert [outcome.status for outcome in caught.value.outcomes] == [FINISHED]
    assert len(served.calls) <= QUESTIONS + 3


@pytest.mark.slow
def test_calls_in_flight_finish_and_are_kept(run: Any, served: Served) -> None:
    served.delay = 0.05
    (outcome,), store = run(limits=Limits(max_calls=3))
    assert outcome.status == INCOMPLETE
    assert (len(served.calls), answered(store)) == (3, 2)


def test_no_task_starts_after_the_time_limit(tmp_path: Path) -> None:
    text = FILE.replace(", reader: {{id: chat, config: {{llm: {llm}}}}}", "").format(questions=2, judges="[]")
    store = Store(tmp_path / "store")
    read = experiment.parse(text, "spent.yaml", store=store.folder)
    (outcome,) = run_experiment(read, store, How(limits=Limits(max_hours=0)), talk=False)
    assert isinstance(outcome.error, LimitReached)
    assert answered(store) == 0


@pytest.mark.slow
def test_cached_replies_are_used_under_a_limit_of_zero_calls(run: Any, served: Served) -> None:
    run()
    made = len(served.calls)
    (outcome,), _ = run(limits=Limits(max_calls=0))
    assert outcome.status == FINISHED
    assert len(served.calls) == made


def test_reported_cost_is_counted_and_stored(run: Any, served: Served) -> None:
    served.header = "0.25"
    (outcome,), store = run(limits=Limits(max_usd=1.1), concurrency=4, **dict.fromkeys(PRICE, 0.0))
    assert isinstance(outcome.error, LimitReached)
    assert len(served.calls) == 4
    (run_id,) = (row.run for row in queries.runs(store, "spent"))
    assert cost_queries.costs(store, [run_id])[run_id].cost_usd == pytest.approx(0.25 * 3)


def test_missing_usage_is_noted_as_unknown_cost_below_the_table(run: Any, served: Served) -> None:
    served.silent = True
    _, store = run(**PRICE)
    (row,) = queries.runs(store, "spent")
    assert math.isnan(cost_queries.costs(store, [row.run])[row.run].cost_usd)
    lines = {line.code: line.values for line in health(store, [row])}
    assert lines["unpriced"] == {"calls": QUESTIONS, "unpriced": QUESTIONS}


def test_app_requests_count_toward_the_limits(tmp_path: Path) -> None:
    with app(lambda request: {"answer": "Lyon", "usd": 0.5}) as (url, requests):
        config = json.dumps({"url": url, "answer": "answer", "cost": "usd", "concurrency": 4})
        text = FILE.replace("id: bm25, reader: {{id: chat, config: {{llm: {llm}}}}}", "id: http, config: {llm}")
        store = Store(tmp_path / "store")
        read = experiment.parse(text.format(questions=QUESTIONS, llm=config, judges="[]"), "spent.yaml", store=store.folder)
        (outcome,) = run_experiment(read, store, How(limits=Limits(max_usd=1.2)), talk=False)
    assert isinstance(outcome.error, LimitReached)
    assert (len(requests), answered(store)) == (2, 2)


@pytest.mark.slow
def test_tasks_share_a_batch_and_judgings_share_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "SETTLE_S", 1.0)
    monkeypatch.setattr(batch, "FIRST_PAUSE_S", 0.01)
    with Batches(lambda prompt: "match").running() as server:
        llm = json.dumps({"model": "m", "base_url": server.url, "key_variable": None, "batch": True, "poll_s": 0.01})
        text = FILE.format(questions=QUESTIONS, llm=llm, judges=JUDGE.format(llm=llm))
        text = text.replace("methods: [", f"methods: [{{id: bm25, name: k1, k: 1, reader: {{id: chat, config: {{llm: {llm}}}}}}}, ")
        store = Store(tmp_path / "store")
        outcomes = run_experiment(experiment.parse(text, "spent.yaml", store=store.folder), store, How(), talk=False)
        totals = [item["request_counts"]["total"] for item in server.batches.values()]
    assert [outcome.status for outcome in outcomes] == [FINISHED, FINISHED]
    assert totals == [2 * QUESTIONS, QUESTIONS]  # both methods give equal answers, which are judged once


def test_dollar_limit_requires_the_price_of_every_model(served: Served, tmp_path: Path) -> None:
    llm = json.dumps({"model": "dear", "base_url": served.server.url, "key_variable": "SOME_KEY"})
    store = Store(tmp_path / "store")
    read = experiment.parse(FILE.format(questions=1, llm=llm, judges="[]"), "spent.yaml", store=store.folder)
    with raises("no-price", where="limits.max_usd") as caught:
        require_prices(options_of(read, store), Limits(max_usd=1))
    assert "dear" in caught.value.what
    require_prices(options_of(read, store), Limits(max_calls=1))
    free = json.dumps({**json.loads(llm), **dict.fromkeys(PRICE, 0)})
    read = experiment.parse(FILE.format(questions=1, llm=free, judges="[]"), "spent.yaml", store=store.folder)
    require_prices(options_of(read, store), Limits(max_usd=1))


def test_plan_compares_estimates_with_each_limit() -> None:
    from methods.work import Use, Work

    work = Work((Use("m", calls=10, where="away"), Use("local", calls=100)), usd=3.0)
    lines = list(compared(Limits(max_usd=2, max_hours=1, max_calls=10), work, None))
    assert len(lines) == 3
    assert "3.00" in lines[0]
    assert "within" not in lines[0]
    assert "no earlier run" in lines[1]
    assert lines[2].endswith("within the limit")


def test_second_experiment_with_limits_in_one_process_is_refused() -> None:
    with spending(Limits(max_calls=1), "resume"), raises("limits-in-use"), spending(Limits(max_calls=1), "resume"):
        pass


def test_negative_limit_is_refused() -> None:
    with raises("bad-limit", where="--max-usd"):
        Limits.from_options(max_usd=float("nan"))
