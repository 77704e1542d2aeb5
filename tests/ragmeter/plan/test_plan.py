"""Plans of whole experiments: all shipped ones without keys, network or data; finished work is not counted again."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from typer.testing import CliRunner

from methods.api import Services
from methods.registry import METHODS
from methods.training import TRAININGS
from methods.work import total
from ragmeter import experiment
from ragmeter.cli import app
from ragmeter.plan.plan import Plan, plan_of
from ragmeter.plan.shapes import shape_of
from ragmeter.plan.show import LINES, show_plan
from ragmeter.runner.experiment import limited
from ragmeter.runner.loop import execute
from ragmeter.runner.progress import RunProgress
from ragmeter.runner.tasks import estimate, states, tasks_of
from ragmeter.show.console import out
from results.store import cost_queries, queries
from results.store.store import Store

MADE_SLOWLY = {"gpr/worlds", "gpr/ablations", "sark/ablations"}
"""Experiments on many worlds, of which only a few questions each are generated."""
MADE_FIRST = {"clara/real": ["./real-base"]}
"""Bases that a tool creates; their size is unknown before."""
COUNTED_LATER = {"ark/real-kg"}
"""Experiments on question files, which are counted once the files exist."""
NOT_HERE = {"ark/table2", "ark/table7", "clara/table3", "clara/table6", "sark/table1", "gpr/table1"}


@pytest.fixture(autouse=True)
def _bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Remove keys, data, cached weights and the network."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "RAGMETER_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("RAGMETER_OFFLINE", "0")

    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("a plan asked the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def planned(name: str, store: Path) -> Plan:
    return plan_of(experiment.load(name, store=store), Store(store))


def of(text: str, store: Path) -> Plan:
    return plan_of(experiment.parse(text, "x.yaml", store=store), Store(store))


def shipped() -> list[Any]:
    slow = pytest.mark.slow
    return [pytest.param(name, marks=slow) if name in MADE_SLOWLY else name for name in experiment.shipped()]


ADAPTERS = {
    "sark/table1": ["castorini/rankllama-v1-7b-lora-passage"],
    "clara/table3": ["OpenMatch/RAG-DDR/Kr_model_for_Llama3_8b", "OpenMatch/RAG-DDR/Gen_model_Llama3_8b"],
    "clara/table8": ["ielabgroup/Rank-R1-7B-v0.1"],
}
"""Adapters that experiments add to weights."""


def vendor(model: str) -> str:
    return next((name for name in ("gpt", "gemini") if model.startswith(name)), "open weights")


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_experiment_is_planned_without_keys_data_or_weights(name: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    loaded = experiment.load(name, store=store)
    result = plan_of(loaded, Store(store))
    assert len(result.tasks) == len(loaded.methods) * len(loaded.benchmarks)
    assert {row.key["training"] for row in result.stages} == {plan.name for plan in loaded.trainings}
    assert not store.exists()
    vendors = {url: {vendor(model) for at, model in result.endpoints if at == url} for url, _ in result.endpoints}
    assert all(len(names) == 1 for names in vendors.values()), vendors
    # No zero is silent: a row without questions or lengths is reported, and all models have a known size.
    for row in result.tasks if name not in COUNTED_LATER else ():
        assert row.key["questions"] > 0
        assert row.origin in ("sampled", "stated", "counted")
        assert row.work.bytes > 0
    assert [model.model for model in result.models if not model.known] == MADE_FIRST.get(name, [])
    assert name in (*MADE_FIRST, *COUNTED_LATER) or not [
        reason for reason in result.totals["all"].unknown if "unknown" in reason or "states no" in reason
    ]
    models = [item.what for item in result.missing if item.kind == "model"]
    if name in NOT_HERE:
        assert "data" in {item.kind for item in result.missing}
        assert models
    # A missing adapter is reported; one that is still to be trained, or its base, is not.
    assert [adapter for adapter in ADAPTERS.get(name, ()) if not any(adapter in what for what in models)] == []
    assert not (name.endswith("/worlds") and models)
    for item in result.missing:
        assert item.remedy
        assert item.needed_by
    for rows in (result.stages, result.tasks, result.judges):
        json.dumps([row.to_json() for row in rows])
    with out.capture() as shown:
        show_plan(result, "store")
    assert len(shown.get().splitlines()) <= LINES


def test_plan_of_a_published_table_has_no_unknowns(tmp_path: Path) -> None:
    result = planned("ark/table2", tmp_path)
    kinds = [item.kind for item in result.missing]
    # Ten benchmarks, two training sets; three models behind keys; six models' weights.
    assert [kinds.count(kind) for kind in ("data", "key", "model")] == [12, 3, 6]
    totals = result.totals
    assert totals["judges"].usd > 0
    assert totals["tasks"].count("prompt") > 1e7
    hours = {(gpu.gigabytes, number): value for (gpu, number), value in result.hours.items()}
    assert hours[80, 1] is not None
    assert hours[80, 1] > 1
    # Documents of novels with a model of seven billion parameters, eight at once, are more than 24 GB.
    assert (hours[24, 1], hours[24, 8]) == (None, None)
    assert hours[80, 8] == pytest.approx(hours[80, 1] / 8, rel=0.1)
    assert any("gemini" in reason for reason in totals["trainings"].unknown)
    assert {row.key["status"] for row in result.tasks} == {"new", "after training"}
    assert {row.origin for row in result.tasks} == {"stated"}
    # The whole document costs more to read than five passages of it, and nothing at all costs least.
    first = {row.key["method"]: row.parts["read"].count("prompt") for row in result.tasks[:14]}
    assert first["Full"] > 5 * first["ARK"] > 5 * first["Closed book"] > 0
    # A prompt is never longer than the reader takes.
    assert first["Full"] <= 31_500 * 100


def test_benchmarks_with_equal_names_show_their_differences(tmp_path: Path) -> None:
    rows = planned("sark/figure5", tmp_path).tasks
    assert list(dict.fromkeys(row.key["variant"] for row in rows)) == [f"mix.informal={share}" for share in (0.2, 0.4, 0.5, 0.6, 0.8)]
    assert {row.key["variant"] for row in planned("ark/table2", tmp_path).tasks} == {""}


def test_trainings_that_share_replies_count_them_once(tmp_path: Path) -> None:
    result = planned("sark/table2", tmp_path)
    data = [row.work.count("calls") for row in result.stages if row.key["stage"] == "data"]
    assert data[0] > 0
    assert set(data[1:]) == {0.0}


def test_sark_training_plan_has_the_rows_and_steps_of_the_paper(tmp_path: Path) -> None:
    result = planned("sark/table2", tmp_path)
    trained = [row.key for row in result.stages if row.key["stage"] == "reranker"]
    assert len(trained) == 6
    # 16,094 rows, eight a step, thirty times.
    assert {(row["rows"], row["steps"]) for row in trained} == {(16_094, 2_012 * 30)}
    first = next(row for row in result.stages if row.key["stage"] == "data")
    # Of 17,882 questions at most: each without context, with 50 candidates and with 100 passages from further down,
    # each answer judged; one order; and as many rewritings as rows and lists have passages.
    rows = 16_094 + 1_788
    assert first.work.count("calls") == rows * (2 * (1 + 50 + 100) + 1 + 1 + 6)


def test_plan_counts_an_index_over_one_corpus_once(tmp_path: Path) -> None:
    text = """
name: x
benchmarks: [{id: hotpotqa, split: dev, setting: corpus}]
methods: [{id: dense}, {id: dense, name: again, k: 3}, {id: hybrid}]
"""
    rows = of(text, tmp_path).tasks
    assert "index" in rows[0].parts
    assert "index" not in rows[1].parts
    # Of hybrid's two indexes, the dense one exists by then, and that of BM25 does not.
    assert rows[2].parts["index"].uses == ()
    assert rows[2].parts["index"].bytes > 0
    # 7,405 questions with ten passages each, 148 tokens of MiniLM's 384 components; kept in index and cache.
    vectors = 7405 * 10 * 384 * 4
    assert rows[0].parts["index"].bytes == 2 * vectors
    assert rows[0].parts["index"].count("encoded") == 7405 * 10 * 148


NATIVE = """
name: x
benchmarks:
  - {id: worlds/long, split: validation, setting: document, limit: 4, config: &asked {questions: 8, worlds: 1, entities: 30, community: 30}}
methods:
  - id: lightrag
    config: &native {context: native, llm: &llm {scripted: "worlds/long:validation", options: *asked}}
    reader: &chat {id: chat, config: {llm: *llm}}
  - {id: graphrag, config: *native, reader: *chat}
  - {id: hipporag, config: *native, reader: *chat}
  - {id: hipporag2, config: *native, reader: *chat}
  - {id: raptor, config: {<<: *native, reduction: svd}, reader: *chat}
  - {id: memorag, config: {<<: *native, memory: lite, draft: true}, reader: *chat}
  - {id: graphrag_global, config: *native}
  - {id: graphrag_drift, config: {<<: *native, questions: 1, depth: 1}}
"""


@pytest.mark.slow
def test_graph_rag_plan_includes_native_contexts_and_building_calls(tmp_path: Path) -> None:
    store = Store(tmp_path)
    loaded = experiment.parse(NATIVE, "x.yaml", store=tmp_path)
    # Each separately: work that two share is planned only for the first.
    rows = [plan_of(replace(loaded, methods=(method,)), store).tasks[0] for method in loaded.methods]
    with RunProgress(1, quiet=True) as progress:
        execute(states(tasks_of(loaded), store), store, Services(artifacts=tmp_path / "artifacts"), progress)
    runs = {run.method: run.run for run in queries.runs(store)}
    spent, built = cost_queries.costs(store, [*runs.values()]), cost_queries.index_costs(store, [*runs.values()])
    for row in rows:
        run = runs[row.key["method"]]
        planned_work = total(part for name, part in row.parts.items() if name != "index")
        # Lengths are means of samples: 5 % tolerance.
        assert 0.95 * spent[run].prompt_tokens <= planned_work.count("prompt") / 4 <= 4 * spent[run].prompt_tokens, row.key
        assert 0.95 * built[run].prompt_tokens <= row.parts["index"].count("prompt"), row.key


def test_reader_work_is_a_closed_form_of_the_questions(tmp_path: Path) -> None:
    text = """
name: x
benchmarks: [{id: hotpotqa, split: dev, limit: 1000}]
methods:
  - id: full_context
    k: 4
    reader: {id: chat, config: {llm: {model: m, max_tokens: 50, usd_per_million_prompt_tokens: 3,
                                      usd_per_million_completion_tokens: 10}}}
"""
    (row,) = of(text, tmp_path).tasks
    cost = row.parts["read"]
    assert (cost.count("calls"), cost.count("completion")) == (1000, 50_000)
    # Four passages of 148 tokens, a question of 26, and the prompt around them.
    assert 1000 * (4 * 148 + 26) < cost.count("prompt") < 1000 * (4 * 148 + 26 + 200)
    assert cost.usd == pytest.approx((cost.count("prompt") * 3 + 50_000 * 10) / 1e6)


def test_component_without_a_cost_model_is_listed_as_unknown(tmp_path: Path) -> None:
    text = (
        "name: x\nbenchmarks: [{id: hotpotqa, split: dev}]\nmethods: [{id: no_retrieval, reader: {id: causal, "
        "config: {model: who/knows}}}]\n"
    )
    result = of(text, tmp_path)
    assert result.totals["tasks"].unknown == ("GPU hours of who/knows: its size is unknown",)
    assert result.totals["tasks"].count("completion") == 7405 * 32


def test_component_without_declared_work_makes_the_total_a_lower_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known, entry = METHODS.get, METHODS.get("bm25_reranker")
    monkeypatch.setattr(
        METHODS, "get", lambda name, where=None: replace(entry, work=None) if name == entry.id else known(name, where=where)
    )
    text = "name: x\nbenchmarks: [{id: hotpotqa, split: dev}]\nmethods: [{id: bm25, rerankers: [bm25_reranker]}]\n"
    result = of(text, tmp_path)
    assert result.totals["all"].unknown == ("what bm25_reranker takes: it states no work",)
    assert result.tasks[0].to_json()["cost"]["at_least"] is True
    assert result.totals["all"].bytes > 0


def test_app_is_called_once_per_question_at_its_price(tmp_path: Path) -> None:
    app = "{id: http, config: {url: 'http://localhost:1/ask', usd_per_call: 0.5}}"
    result = of(f"name: x\nbenchmarks: [{{id: hotpotqa, split: dev, limit: 10}}]\nmethods: [{app}]\n", tmp_path)
    total = result.totals["tasks"]
    assert (total.count("calls"), total.usd) == (10, 5.0)
    assert total.unknown == ("tokens of the app at http://localhost:1/ask",)


def test_every_shipped_component_declares_its_work_and_needs() -> None:
    entries = [entry for entry in (*METHODS, *TRAININGS) if entry.factory.__module__.startswith("methods.")]
    assert [entry.id for entry in entries if entry.work is None] == []
    assert [entry.id for entry in entries if entry.needs is None and entry.id in TRAININGS] == []


def test_endpoints_are_listed_with_their_callers(tmp_path: Path) -> None:
    endpoints = planned("sark/table1", tmp_path).endpoints
    assert {"sark", "DPR order"} <= set(endpoints["http://localhost:8000/v1", "Qwen/Qwen2.5-14B-Instruct"])
    assert [askers for at, askers in endpoints.items() if at[1] != "Qwen/Qwen2.5-14B-Instruct"] == [("RankGPT",)]
    # A training whose graphs are built without a model calls none.
    assert planned("ark/worlds", tmp_path).endpoints == {}


def test_prompts_of_local_data_are_counted_by_the_reader_estimate(tmp_path: Path) -> None:
    text = """
name: x
benchmarks: [{id: worlds/multihop, split: test, limit: 20, config: {questions: 20}}]
methods: [{id: bm25, k: 3, reader: {id: chat, config: {llm: {model: m, key_variable: null}}}}]
"""
    loaded = experiment.parse(text, "x.yaml", store=tmp_path)
    (state,) = states(tasks_of(loaded), Store(tmp_path))
    theirs = estimate(state)
    assert theirs is not None
    (plan,), (method,) = loaded.benchmarks, loaded.methods
    shape = shape_of(plan.reference, plan.config, plan.setting, plan.limit, full=True)
    assert (shape.origin, shape.questions, shape.own) == ("counted", 20, 20 * 10)
    reader = method.composition.answering
    assert reader is not None
    ours = reader.work(shape.lengths(k=method.composition.handed_on))
    assert ours.count("prompt") == pytest.approx(theirs.prompt_tokens, abs=1)
    assert (ours.count("calls"), ours.count("completion")) == (theirs.calls, theirs.completion_tokens)


def test_generated_questions_are_sampled_for_the_estimate(tmp_path: Path) -> None:
    text = """
name: x
benchmarks: [{id: worlds/long, split: test, config: {worlds: 3, questions: 60}}]
methods: [{id: full_context, reader: {id: chat, config: {llm: {model: m, key_variable: null}}}}]
"""
    (plan,) = experiment.parse(text, "x.yaml", store=tmp_path).benchmarks
    few, every = (shape_of(plan.reference, plan.config, plan.setting, full=full) for full in (False, True))
    assert (few.origin, every.origin) == ("sampled", "counted")
    assert few.questions == every.questions == 60
    assert few.corpus == pytest.approx(every.corpus, rel=0.2)
    assert every.own == every.corpus, "documents are shared"
    assert few.own == few.corpus
    assert few.lengths().document == pytest.approx(every.lengths().document, rel=0.2)
    # Of two questions at most their own passages are indexed.
    two, counted = (shape_of(plan.reference, plan.config, plan.setting, 2, full=full) for full in (False, True))
    assert counted.own == counted.corpus <= two.corpus == two.own < every.corpus


SMALL = """
name: small
benchmarks: [{id: worlds/multihop, split: test, limit: 6, config: {questions: 8}}]
methods: [{id: bm25}, {id: random}]
metrics: [em]
"""


def ragmeter(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return done.exit_code, done.stdout


@pytest.mark.slow
def test_plan_excludes_answered_questions(tmp_path: Path) -> None:
    file, store = tmp_path / "x.yaml", tmp_path / "store"
    file.write_text(SMALL)
    before = json.loads(ragmeter("run", file, "--dry-run", "--store", store, "--json")[1])
    assert [task["left"] for task in before["tasks"]] == [6, 6]
    loaded = experiment.load(str(file), store=store)
    first = replace(loaded, methods=loaded.methods[:1])
    kept = Store(store)
    tasks = tasks_of(limited(first, 4))
    with RunProgress(1, quiet=True) as progress:
        execute(states(tasks, kept), kept, Services(), progress)
    after = json.loads(ragmeter("run", file, "--dry-run", "--limit", 4, "--store", store, "--json")[1])
    assert [(task["done"], task["left"], task["status"]) for task in after["tasks"]] == [(4, 0, "finished"), (0, 4, "new")]
    assert after["tasks"][0]["parts"] == {}
    assert after["tasks"][0]["lengths"] == "counted"
    # All six take as long as the four did, question by question.
    more = json.loads(ragmeter("run", file, "--dry-run", "--store", store, "--json")[1])["tasks"]
    (run,) = queries.runs(kept)
    assert more[0]["measured_hours"] == pytest.approx(6 * cost_queries.costs(kept, [run.run])[run.run].seconds / 3600)
    assert more[1]["measured_hours"] is None


@pytest.mark.slow
def test_dry_run_exits_with_2_if_a_requirement_is_missing(tmp_path: Path) -> None:
    store = tmp_path / "store"
    code, response = ragmeter("run", "ark/table2", "--dry-run", "--store", store)
    assert code == 2
    assert "before it can run" in response
    assert len(response.splitlines()) <= 10
    everything = ragmeter("run", "ark/table2", "--dry-run", "--verbose", "--store", store)[1].splitlines()
    assert any("OPENAI_API_KEY" in line for line in everything)
    kinds = ("- the data ", "- no key for ", "- the weights of ")  # prompts and disk differ between machines
    assert [sum(line.startswith(kind) for line in everything) for kind in kinds] == [12, 3, 6], everything
    assert len([line for line in response.splitlines() if line.startswith("- ")]) == 3
    file = tmp_path / "x.yaml"
    file.write_text(SMALL)
    assert ragmeter("run", file, "--dry-run", "--store", store)[0] == 0


@pytest.mark.slow
def test_plan_is_typed_json_with_its_assumptions(tmp_path: Path) -> None:
    arguments = ("run", "ark/table3", "--dry-run", "--store", tmp_path, "--json")
    slower = json.loads(ragmeter(*arguments, "--utilization", "0.2")[1])
    faster = json.loads(ragmeter(*arguments)[1])
    assert slower["assumptions"]["utilization"] == 0.2
    rows = [row for kind in ("stages", "tasks", "after_training", "judges") for row in faster[kind]]
    for gpu, number in (("80 GB", "1"), ("141 GB", "8")):
        assert slower["hours"][gpu][number] > faster["hours"][gpu][number]
        assert faster["hours"][gpu][number] == pytest.approx(sum(row["cost"]["hours"][gpu].get(number, 0) for row in rows))
    assert slower["totals"] == faster["totals"]


def test_single_training_can_be_planned(tmp_path: Path) -> None:
    code, output = ragmeter("train", "clara", "--preset", "worlds", "--dry-run", "--store", tmp_path / "store", "--json")
    value = json.loads(output)
    assert (code, value["missing"]) == (0, [])
    assert [(row["stage"], row["steps"]) for row in value["stages"]] == [
        ("scp", 500),
        ("instruction", 400),
        ("supervised", 200),
        ("joint", 40),
    ]
    assert value["totals"]["all"]["trained_tokens"] > 1e6
    assert not (tmp_path / "store").exists()


def test_invalid_utilization_is_wrong_usage(tmp_path: Path) -> None:
    for share in ("0", "1.5", "-1"):
        assert ragmeter("run", "first", "--dry-run", "--utilization", share, "--store", tmp_path)[0] != 0


@pytest.mark.slow
def test_plan_imports_no_model_library() -> None:
    code = (
        "import sys; from ragmeter.cli import app; app(['run', 'clara/table8', '--dry-run', '--json'], standalone_mode=False); "
        "sys.stderr.write(str({'torch', 'transformers', 'openai', 'bm25s'} & set(sys.modules)))"
    )
    response = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert response.stderr.strip().endswith("set()"), response.stderr
