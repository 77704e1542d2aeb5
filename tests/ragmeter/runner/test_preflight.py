"""Experiments whose reader is an endpoint: estimated and reached before the run, and stopped with the right exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from methods.models.reply import Completion
from ragmeter import experiment
from ragmeter.runner.preflight import preflight
from ragmeter.runner.tasks import TaskState, estimate, reach, require_device, states, tasks_of
from results.store import answer_queries, queries
from results.store.store import Store
from tests.support.errors import raises
from tests.support.scripted import WorldTruth
from tests.support.server import Handler, OpenAIServer, Written

pytest.importorskip("openai")


def file_for(url: str, extra: str = "") -> str:
    return (
        "name: asked\nbenchmarks: [{id: worlds/multihop, split: test, limit: 5}]\nmethods:\n"
        "  - {id: bm25, k: 2, reader: {id: chat, config: "
        f"{{llm: {{model: m, base_url: '{url}', key_variable: null{extra}}}}}}}}}\n"
        "  - {id: bm25}\nmetrics: [em]\n"
    )


def states_of(text: str, store: Store) -> list[TaskState]:
    return states(tasks_of(experiment.parse(text, "x.yaml")), store)


def test_estimate_grows_with_passages_and_counts_questions(tmp_path: Path) -> None:
    prices = ", usd_per_million_prompt_tokens: 2.0, max_tokens: 10"
    two, plain = states_of(file_for("http://localhost:1/v1", prices), Store(tmp_path))
    four, _ = states_of(file_for("http://localhost:1/v1", prices).replace("k: 2", "k: 4"), Store(tmp_path))
    few, many = estimate(two), estimate(four)
    assert few is not None
    assert many is not None
    assert estimate(plain) is None
    assert few is not None
    assert "0 more" not in str(few), "prompts that stand for others are not looked for in the cache"
    assert (few.calls, few.completion_tokens) == (5, 50)
    assert few.prompt_tokens < many.prompt_tokens < 2 * few.prompt_tokens
    assert few.usd == pytest.approx(few.prompt_tokens * 2e-6, rel=1e-3)


def test_dead_endpoint_stops_the_run_before_the_first_answer(tmp_path: Path) -> None:
    result = states_of(file_for("http://127.0.0.1:9/v1", ", attempts: 1"), Store(tmp_path))
    with raises("endpoint-unreachable") as caught:
        reach(result)
    assert caught.value.exit_code == 1


def test_dead_endpoint_within_a_composed_retriever_is_noticed_too(tmp_path: Path) -> None:
    writing = "{id: hyde, config: {llm: {model: m, base_url: 'http://127.0.0.1:9/v1', key_variable: null, attempts: 1}}}"
    row = f"  - {{id: hybrid, name: fused, config: {{retrievers: [bm25, {writing}]}}}}\nmetrics"
    (*_, fused) = states_of(file_for("http://127.0.0.1:9/v1").replace("metrics", row), Store(tmp_path))
    with raises("endpoint-unreachable"):
        reach([fused])


def test_answering_endpoint_is_reachable(tmp_path: Path) -> None:
    server = WorldTruth.of("worlds/multihop:test").server()
    with server.running() as url:
        reach(states_of(file_for(url), Store(tmp_path)))
        assert server.calls == 1


@pytest.mark.parametrize(("device", "problem"), [("foo", "no-device"), ("cuda:", "no-device"), ("cuda:99", "unknown-device")])
def test_missing_device_is_refused_even_with_nothing_to_do(device: str, problem: str) -> None:
    with raises(problem):
        require_device(device)


def test_preflight_checks_the_device(tmp_path: Path) -> None:
    plan = experiment.parse(file_for("http://localhost:1/v1"), "x.yaml")
    preflight(plan, Store(tmp_path), "cpu")
    with raises("no-device"):
        preflight(plan, Store(tmp_path), "gpu")


@pytest.mark.slow
def test_replies_are_listed_exported_imported_and_pruned(tmp_path: Path, call: Callable[..., Any]) -> None:
    file, replies = tmp_path / "x.yaml", tmp_path / "replies.jsonl"

    def ragmeter(store: str, *words: str) -> Any:
        done = call(*words, "--json", "--store", str(tmp_path / store))
        assert done.code == 0, done.err
        return json.loads(done.out)

    server = WorldTruth.of("worlds/multihop:test").server()
    with server.running() as url:
        file.write_text(file_for(url).replace("  - {id: bm25}\n", ""))
        rows = ragmeter("a", "run", str(file))["boards"][0]["rows"]
        run = next(row["run"] for row in rows if "chat" in row["method"])
        assert ragmeter("a", "store", "replies")["replies"] == 5
        assert ragmeter("a", "store", "replies", "export", "-o", str(replies), "--run", run)["replies"] == 5
        assert ragmeter("b", "store", "replies", "import", str(replies))["new"] == 5
        calls = server.calls
        ragmeter("b", "run", str(file))
        assert server.calls == calls
        ragmeter("c", "run", str(file), "--no-calls")
    question = answer_queries.questions(Store(tmp_path / "a"), queries.runs(Store(tmp_path / "a"))[0].dataset_fingerprint)[0].question
    made = {store: ragmeter(store, "results", "show", run, question) for store in "abc"}
    assert [(call["role"], call["cached"]) for call in made["a"]["calls"]] == [("reader", False)]
    assert [(call["role"], call["cached"]) for call in made["b"]["calls"]] == [("reader", True)]
    assert made["a"]["calls"][0]["reply"] == made["b"]["calls"][0]["reply"]
    assert made["c"]["calls"] == []
    assert made["c"]["answer"]["answer"] == made["a"]["answer"]["answer"]
    assert call("store", "replies", "prune", "--store", str(tmp_path / "a")).code == 2
    assert ragmeter("a", "store", "replies", "prune", "--all")["deleted"] == 5


class Changing(OpenAIServer):
    """Endpoint whose reported identity can be changed."""

    model_served, system = "m-1", "fp_1"

    def __init__(self) -> None:
        super().__init__("m", lambda request: Written("Ann", 3, 1))

        class Saying(Handler):
            def completion(handler, written: Written) -> dict[str, Any]:
                return super().completion(written) | {"model": self.model_served, "system_fingerprint": self.system}

            def send(handler, status: int, value: Any, headers: Any = None) -> None:
                super().send(status, value, {"openai-version": "2020-10-01", "x-request-id": str(self.calls)})

        self.RequestHandlerClass = Saying


@pytest.mark.slow
def test_changed_endpoint_is_reported_and_refused_in_strict_mode(tmp_path: Path, call: Callable[..., Any]) -> None:
    file, server = tmp_path / "x.yaml", Changing()

    def ragmeter(*words: str) -> Any:
        return call(*words, "--store", str(tmp_path / "s"))

    compared = ("results", "compare", "one/asks", "two/asks")
    gated = ("gate", "--baseline", "one/asks", "--candidate", "two/asks", "--metric", "em", "--margin", "90pp")
    with server.running() as url:
        for name, k, system in (("one", 2, "fp_1"), ("two", 3, "fp_2"), ("three", 1, "fp_2")):
            server.system = system
            # No prompt is answered from the cache of another run.
            text = file_for(url, f", max_tokens: {10 + k}").replace("name: asked", f"name: {name}").replace("k: 2", f"k: {k}, name: asks")
            file.write_text(text.replace("  - {id: bm25}\n", ""))
            assert ragmeter("run", str(file), "-q").code == 0
    shown = json.loads(ragmeter("results", "show", "one/asks", "--json").out)
    assert shown["endpoints"] == {"m": ["model m-1, system_fingerprint fp_1, version openai-version: 2020-10-01"]}
    for words in (compared, gated):
        done = ragmeter(*words)
        assert done.code in (0, 101)
        assert all(system in done.out + done.err for system in ("fp_1", "fp_2"))
        refused = ragmeter(*words, "--strict")
        assert refused.code == 2
        assert "reported other versions of m" in refused.err
        same = [word.replace("one/asks", "three/asks") for word in words]
        assert ragmeter(*same, "--strict").code in (0, 101)


def test_reply_cached_without_an_endpoint_is_read() -> None:
    old = {"text": "a", "finish_reason": "stop", "prompt_tokens": 1, "completion_tokens": 1, "model": "m"}
    assert Completion.from_json(old).to_json() == old
    new = old | {"system_fingerprint": "fp", "version": "openai-version: 1"}
    assert Completion.from_json(new).to_json() == new
    for wrong in (old | {"system": "fp"}, old | {"version": 1}, {name: value for name, value in new.items() if name != "model"}):
        with pytest.raises(ValueError, match="a reply's"):
            Completion.from_json(wrong)


@pytest.mark.slow
def test_run_health_lines_describe_the_endpoint_behavior(tmp_path: Path, call: Callable[..., Any]) -> None:
    server, file = Changing(), tmp_path / "x.yaml"
    replies = {"one": lambda request: Written(request.prompt.strip()[-40:-20], 3, 1), "two": lambda request: Written("Ann", 3, 1)}
    codes = {}
    with server.running() as url:
        for name, model in (("one", "m-2026-01-31"), ("two", "cheap-mini")):
            server.model_served, server.answer = model, replies[name]
            text = file_for(url, f", max_tokens: {len(codes) + 20}").replace("name: asked", f"name: {name}")
            file.write_text(text.replace("  - {id: bm25}\n", "").replace("limit: 5", "limit: 12"))
            done = call("run", str(file), "--json", "--store", str(tmp_path / "s"))
            assert done.code == 0, done.err
            codes[name] = {line["code"] for line in json.loads(done.out)["boards"][0]["health"]}
    assert codes == {"one": set(), "two": {"served_model", "identical_answers"}}
