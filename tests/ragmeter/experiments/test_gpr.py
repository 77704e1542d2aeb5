"""GPR's tables as experiments: each is valid, compares the paper's methods, and uses one reader."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks import registry
from methods.training import TRAININGS
from ragmeter import experiment
from ragmeter.experiment import Experiment, MethodPlan
from ragmeter.runner.tasks import load_benchmark, tasks_of
from tests.support.errors import raises

ROOT = Path(__file__).resolve().parents[3]
READERS = {"llama-2-7b-chat": "meta-llama/Llama-2-7b-chat-hf", "flan-t5-xl": "google/flan-t5-xl", "gpt-3.5-turbo": "gpt-3.5-turbo"}
METHODS = {"G-Retriever": "g_retriever", "G-RAG": "grag", "Hybrid": "graph_hybrid", "SKP": "skp", "Two Tower": "two_tower", "GPR": "gpr"}
OFFLINE = ("worlds", "ablations", "gain")


def load(name: str, folder: Path, profile: str | None = None) -> Experiment:
    return experiment.load(f"gpr/{name}", profile=profile, store=folder)


def config(method: MethodPlan) -> Any:
    return method.composition.method.config


def reader(method: MethodPlan) -> dict[str, Any]:
    assert method.composition.answering is not None
    options = method.composition.answering.config.model_dump()
    return {"id": method.composition.answering.id, **options.pop("llm", {}), **options}


def published() -> list[dict[str, str]]:
    with open(ROOT / "results" / "published" / "gpr.csv", newline="") as file:
        return [row for row in csv.DictReader(file) if row["table"] == "1" and "reader=" in row["setting"]]


@pytest.mark.parametrize("name", ["table1", "figure2", *OFFLINE])
def test_every_file_is_valid(name: str, tmp_path: Path) -> None:
    loaded = load(name, tmp_path)
    assert loaded.name == f"gpr-{name}"
    queries = [str(plan.setting) for plan in loaded.benchmarks]
    assert queries == ["graph(scope=question)"] * 2
    metrics = {metric.entry.id for metric in loaded.metrics or ()}
    assert {"answer_entity_recall"} | ({"rog_f1", "strict_f1"} if name != "gain" else set()) <= metrics


def test_table_1_has_every_row_of_the_paper(tmp_path: Path) -> None:
    ours = {(method.composition.method.id, reader(method)["model"]) for method in load("table1", tmp_path).methods}
    for row in published():
        queries = dict(part.split("=") for part in row["setting"].split(";"))
        method = "no_retrieval" if queries["retrieval"] == "closed_book" else METHODS[row["method"]]
        assert (method, READERS[queries["reader"]]) in ours, row
    assert {plan.reference.name for plan in load("table1", tmp_path).benchmarks} == {row["dataset"] for row in published()}


def test_table_1_compares_the_same_methods_under_each_reader(tmp_path: Path) -> None:
    by_reader: dict[str, Counter[str]] = {}
    for method in load("table1", tmp_path).methods:
        by_reader.setdefault(reader(method)["model"], Counter())[method.composition.method.id] += 1
    assert set(by_reader) == set(READERS.values())
    first, *others = by_reader.values()
    assert all(other == first for other in others)
    assert first["two_tower"] == 2  # first token and mean
    read_by_first = [method.name for method in load("table1", tmp_path).methods if reader(method)["model"] == next(iter(by_reader))]
    assert [method.name for method in load("table1", tmp_path, "open").methods] == read_by_first


@pytest.mark.parametrize("name", ["table1", "figure2"])
def test_every_method_of_a_table_uses_the_rog_prompt(name: str, tmp_path: Path) -> None:
    for method in load(name, tmp_path).methods:
        response = reader(method)
        assert response["reading"] == "triples"
        longest = response.get("max_new_tokens", response.get("max_tokens"))
        assert longest == (128 if response["id"] == "seq2seq" else 512)
        assert response["id"] != "seq2seq" or response["max_prompt_tokens"] == 507
        assert response.get("temperature", 0) == 0
        assert method.composition.method.id == "no_retrieval" or method.composition.compressor is None


def test_all_methods_of_table_1_share_one_encoder(tmp_path: Path) -> None:
    encoders = {
        config(method).model
        for method in load("table1", tmp_path).methods
        if method.composition.method.id in {"two_tower", "grag", "g_retriever"}
    }
    assert encoders == {"distilbert-base-uncased"}
    assert {plan.config.base for plan in load("table1", tmp_path).trainings} == encoders  # type: ignore[attr-defined]


@pytest.mark.parametrize(("name", "wanted"), [("table1", {20}), ("worlds", {20}), ("ablations", {5}), ("gain", {20})])
def test_every_retriever_returns_equally_many_triples(name: str, wanted: set[int], tmp_path: Path) -> None:
    handed_on: dict[str, set[int | None]] = {}
    for method in load(name, tmp_path).methods:
        if method.composition.method.id not in {"no_retrieval", "oracle_evidence"}:
            handed_on.setdefault(method.composition.method.id, set()).add(method.composition.handed_on)
    assert all(numbers == wanted for numbers in handed_on.values())
    cut = [method for method in load(name, tmp_path).methods if method.composition.method.id == "g_retriever"]
    assert all(config(item).order == "cosine" for item in cut)  # the least similar triples are cut


def test_figure_2_sweeps_k_with_one_checkpoint(tmp_path: Path) -> None:
    loaded = load("figure2", tmp_path)
    assert [method.composition.handed_on for method in loaded.methods] == [5, 10, 20, 30, 50, 100]
    assert all(method.name == f"K = {method.composition.handed_on}" for method in loaded.methods)
    assert len({config(method).model for method in loaded.methods}) == 1
    ks = [metric.values["k"] for metric in loaded.metrics or () if metric.entry.id == "answer_entity_recall"]
    assert ks == [5, 10, 20, 30, 50, 100]


@pytest.mark.parametrize(("profile", "preset"), [(None, "paper-small"), ("full", "paper")])
@pytest.mark.parametrize("name", ["table1", "figure2"])
def test_tables_share_one_training_with_the_paper_options(name: str, profile: str | None, preset: str, tmp_path: Path) -> None:
    trained = {plan.name: plan for plan in load(name, tmp_path, profile).trainings}
    assert trained["gpr"].config == TRAININGS.get("gpr").validate({"preset": preset})
    for method in load(name, tmp_path, profile).methods:
        if method.composition.method.id == "gpr":
            assert Path(config(method).model).is_relative_to(trained["gpr"].folder(tmp_path))
    if "skp" in trained:
        assert set(trained["skp"].config.graph) == set(trained["gpr"].config.graph)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", OFFLINE)
def test_offline_files_train_on_train_worlds_and_report_unseen_relations_separately(name: str, tmp_path: Path) -> None:
    loaded = load(name, tmp_path)
    queries = [(str(plan.reference), plan.config.relations) for plan in loaded.benchmarks]  # type: ignore[attr-defined]
    assert queries == [("worlds/graph:test", None), ("worlds/graph:test", "unseen")]
    for plan in loaded.trainings:
        response = plan.config.model_dump()
        assert {*response.get("graph", ()), *response.get("data", ())} == {"worlds/graph:train"}
        assert response["base"] == "minilm"
        assert response.get("graph_options", loaded.trainings[0].config.graph_options) == loaded.trainings[0].config.graph_options  # type: ignore[attr-defined]
    for method in loaded.methods:
        if name == "gain":  # only retrieval
            continue
        assert reader(method)["id"] == "pocket"
        assert method.name == "No retrieval" or method.composition.compressor is not None


def test_worlds_compares_every_graph_baseline(tmp_path: Path) -> None:
    loaded = load("worlds", tmp_path)
    wanted = {*METHODS.values(), "bm25_triples", "no_retrieval", "oracle_evidence"}
    assert {method.composition.method.id for method in loaded.methods} == wanted
    assert "hybrid[worlds-ce]" in {method.name for method in loaded.methods}
    assert Counter(plan.name for plan in loaded.trainings) == {"gpr": 1, "skp": 1, "worlds-ce": 1}


def test_gain_experiment_trains_three_seeds_of_a_shorter_worlds_training(tmp_path: Path) -> None:
    loaded = load("gain", tmp_path)
    trained = loaded.trainings
    untrained = {"two_tower", "bm25_triples", "g_retriever", "grag"}
    assert untrained <= {method.composition.method.id for method in loaded.methods}  # the strongest is among them
    assert [(plan.name, plan.config.seed) for plan in trained] == [("gpr", 0), ("gpr", 1), ("gpr", 2)]
    short = next(plan.config for plan in load("worlds", tmp_path).trainings if plan.name == "gpr")
    assert _changed(trained[0].config.model_dump(), short.model_dump()) == {"train.epochs"}


def test_ablations_differ_from_gpr_in_one_option_each(tmp_path: Path) -> None:
    loaded = load("ablations", tmp_path)
    options = {plan.name: plan.config.model_dump() for plan in loaded.trainings if plan.config.seed == 0}
    whole = options.pop("gpr")
    gain = next(plan for plan in load("gain", tmp_path).trainings if plan.name == "gpr")
    assert whole == gain.config.model_dump()
    changed = {name: _changed(whole, item) for name, item in options.items()}
    assert changed == {
        "without-neighbors": {"loss.neighbors"},
        "without-negatives": {"loss.negatives"},
        "other-neighbors": {"sampling.nb_exclude_same_hr"},
        "first-token": {"pooling"},
        "full-relations": {"linearize.rel"},
    }
    untrained = next(method for method in loaded.methods if method.name == "Without pretraining")
    assert (untrained.composition.method.id, config(untrained).model, config(untrained).pooling) == (
        "two_tower",
        whole["base"],
        whole["pooling"],
    )


def _changed(item: dict[str, Any], other: dict[str, Any], prefix: str = "") -> set[str]:
    results: set[str] = set()
    for key in item.keys() | other.keys():
        mine, theirs = item.get(key), other.get(key)
        if isinstance(mine, dict) and isinstance(theirs, dict):
            results |= _changed(mine, theirs, f"{prefix}{key}.")
        elif mine != theirs:
            results.add(prefix + key)
    return results


@pytest.mark.slow
def test_runs_on_both_parts_of_worlds_have_distinct_names(tmp_path: Path) -> None:
    parts = [load_benchmark(plan, None).benchmark for plan in load("worlds", tmp_path).benchmarks]
    assert [part.name for part in parts] == ["worlds/graph:test", "worlds/graph:test(relations=unseen)"]
    unseen = [{question.metadata["unseen_relation"] for question in part.questions} for part in parts]
    assert unseen == [{False}, {True}]
    assert all(len(question.candidates or ()) >= 100 for part in parts for question in part.questions)


def test_missing_data_error_names_the_dataset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAGMETER_DATA", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with raises("not-in-cache") as caught:
        tasks_of(load("table1", tmp_path))
    assert "rmanluo/RoG-webqsp" in str(caught.value)


@pytest.mark.parametrize("profile", [None, "tiny"])
def test_real_data_are_split_by_hops_and_only_the_control_trains_on_them(tmp_path: Path, profile: str | None) -> None:
    loaded = load("real", tmp_path, profile)
    wanted = [(plan.reference.name, plan.config.model_dump()["hops"]) for plan in loaded.benchmarks]
    assert wanted == [(name, hops) for name in ("webqsp", "cwq") for hops in (1, 2)]
    assert {str(plan.setting) for plan in loaded.benchmarks} == {f"graph(scope={'question' if profile else 'split'})"}
    read = {plan.name: plan.config.model_dump()["graph_options"]["webqsp"]["ids"] for plan in loaded.trainings}
    tested = loaded.benchmarks[0].config.model_dump()["ids"]
    assert {name for name, ids in read.items() if ids == tested} == {"control"}


def test_missing_real_data_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGMETER_DATA", str(tmp_path))
    loaded = load("real", tmp_path)
    with raises("missing-file", where="questions.path: recorded/gpr_questions.tsv"):
        loaded.trainings[0].config.preflight()
    wanted = loaded.benchmarks[0]
    with raises("missing-file", where="extra/webqsp_half.jsonl"):
        registry.load(wanted.reference, wanted.config)
