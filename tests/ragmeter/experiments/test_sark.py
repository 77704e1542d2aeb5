"""SARK's tables and figures as experiments: valid, with the paper's rows, and with messages for missing data."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from methods.sark.config import SarkTrainingConfig
from methods.sark.data import training_benchmarks
from methods.training import TRAININGS
from ragmeter import experiment
from ragmeter.experiment import Experiment, MethodPlan
from ragmeter.runner.tasks import load_benchmark, tasks_of
from results.store.variants import style_of_name
from tests.support.errors import raises

ROOT = Path(__file__).resolve().parents[3]
TABLES = ("table1", "table2", "table3", "table6", "figure4", "figure5", "figure6", "figure8")
ELSEWHERE = {"Avg. Drop"}
"""Rows of the paper that are not methods."""


def published(table: str) -> list[dict[str, str]]:
    with open(ROOT / "results" / "published" / "sark.csv", newline="") as file:
        return [row for row in csv.DictReader(file) if row["table"] == table]


def stated(rows: list[dict[str, str]], key: str) -> set[str]:
    """Return the values of a key of the published settings."""
    settings = [dict(part.split("=", 1) for part in row["setting"].split(";") if "=" in part) for row in rows]
    return {setting[key] for setting in settings if key in setting}


def mixes(loaded: Experiment) -> list[dict[str, float]]:
    return [plan.config.mix for plan in loaded.benchmarks]  # type: ignore[attr-defined]


def reranks_with(method: MethodPlan) -> tuple[str, dict[str, Any]] | None:
    if not method.composition.rerankers:
        return None
    (part,) = method.composition.rerankers
    return part.id, part.config.model_dump()


@pytest.mark.parametrize("name", [*TABLES, "worlds", "ablations"])
def test_every_file_is_valid_and_names_its_reference(name: str) -> None:
    loaded = experiment.load(f"sark/{name}")
    assert any(method.name.partition(" #")[0] == loaded.reference for method in loaded.methods)
    assert loaded.name == f"sark-{name}"


@pytest.mark.parametrize("name", TABLES)
def test_tables_and_figures_share_one_training_with_the_paper_options(name: str, tmp_path: Path) -> None:
    first = experiment.load(f"sark/{name}", store=tmp_path).trainings[0]
    response = first.config.model_dump()
    paper = TRAININGS.get("sark").validate({"preset": "paper", "data": ["nq:train"], "validation": ["nq:dev"]})
    for key, value in paper.model_dump().items():
        if key not in {"data_options", "validation_options", "labels", "lists", "styles"}:
            assert response[key] == value, key
    assert response["labels"]["llm"]["model"] == response["styles"]["llm"]["model"] == "Qwen/Qwen2.5-14B-Instruct"
    assert first.folder(tmp_path) == experiment.load("sark/table1", store=tmp_path).trainings[0].folder(tmp_path)


@pytest.mark.parametrize("table", ["1", "2", "6"])
def test_table_has_every_row_of_the_paper(table: str) -> None:
    loaded = experiment.load(f"sark/table{table}")
    names = {method.name.partition(" #")[0] for method in loaded.methods}
    rows = published(table)
    paper = {row["method"] for row in rows}
    assert paper - ELSEWHERE <= names
    by_name = {row["method"]: row["id"] for row in rows if row["id"]}
    for method in loaded.methods:
        if method.name in by_name:
            result = reranks_with(method)
            assert result is not None
            model = by_name[method.name].partition("model=")[2].rstrip(")")
            assert by_name[method.name].partition("(")[0] == result[0]
            assert result[1].get("model", "") == model or result[0] == "sark"
    (k,) = stated(rows, "k")
    assert {method.composition.handed_on for method in loaded.methods} == {int(k)}
    assert {style for mix in mixes(loaded) for style in mix} == stated(rows, "style") - {"formal"} | ({"humor"} if table == "6" else set())


@pytest.mark.parametrize("name", TABLES)
def test_rank_of_the_first_answer_passage_is_a_metric_of_its_tables(name: str) -> None:
    """Over all passages that the method returns, so that a passage below rank five counts."""
    loaded = experiment.load(f"sark/{name}")
    metrics = {str(metric).partition("#")[0] for metric in loaded.metrics or ()}
    handed_on = {method.composition.handed_on for method in loaded.methods if method.composition.handed_on}
    wanted = {f"has_answer_mrr@{k}" for k in handed_on} if "has_answer@5" in metrics else set()
    assert {metric for metric in metrics if metric.startswith("has_answer_mrr")} == wanted


def test_tables_1_and_6_include_formal_benchmarks_for_paired_drops() -> None:
    assert mixes(experiment.load("sark/table1")) == [{"informal": 0}, {"informal": 1}]
    assert mixes(experiment.load("sark/table6")) == [{"humor": 0}, {"humor": 1}, {"romance": 1}]
    assert mixes(experiment.load("sark/table2")) == mixes(experiment.load("sark/table3")) == [{"informal": 0.5}]


def test_table_2_trains_three_times_with_and_without_both_styles() -> None:
    loaded = experiment.load("sark/table2")
    seeds: dict[str, list[int]] = {}
    for plan in loaded.trainings:
        seeds.setdefault(plan.name, []).append(plan.config.model_dump()["seed"])
        assert plan.config.loss.styles == (plan.name == "sark")  # type: ignore[attr-defined]
    assert seeds == {"sark": [42, 43, 44], "without SAT": [42, 43, 44]}


def test_table_3_has_six_readers_with_no_passages_sark_and_dpr_order() -> None:
    loaded = experiment.load("sark/table3")
    ways: dict[str, set[str]] = {}
    for method in loaded.methods:
        reader = method.composition.answering
        assert reader is not None
        model = str(reader.config.model).rpartition("/")[2].lower()  # type: ignore[attr-defined]
        way = reranks_with(method)
        ways.setdefault(model, set()).add(way[0] if way else method.composition.method.id)
    assert set(ways) == stated(published("3"), "reader")
    assert all(way == {"no_retrieval", "full_context", "sark"} for way in ways.values())


def test_figure_4_has_every_reranker_at_every_depth() -> None:
    loaded = experiment.load("sark/figure4")
    depths: dict[str, list[int]] = {}
    parts: dict[str, list[Any]] = {}
    for method in loaded.methods:
        name, _, k = method.name.partition(", K=")
        assert method.composition.handed_on == int(k)
        depths.setdefault(name, []).append(int(k))
        parts.setdefault(name, []).append(reranks_with(method))
    assert set(depths) == {"DPR order", "MiniLM", "mGTE", "BGE-Base", "BGE-Large", "RankGPT", "RankLlama", "SARK"}
    assert all(depth == [5, 10, 20, 30, 40, 50] for depth in depths.values())
    # Methods of one curve differ only in k, and no two curves are equal.
    assert all(item == part[0] for part in parts.values() for item in part)
    assert len({str(part[0]) for part in parts.values()}) == len(parts)


def test_figure_5_uses_the_style_shares_of_the_paper() -> None:
    formal = [round(100 * (1 - mix["informal"])) for mix in mixes(experiment.load("sark/figure5"))]
    assert formal == [80, 60, 50, 40, 20]
    assert stated(published("figure 5"), "formal") <= {str(share / 100) for share in formal}


@pytest.mark.parametrize("profile", [None, "worlds"])
def test_figure_8_trainings_differ_only_in_the_loss_weights(profile: str | None) -> None:
    whole, *others = experiment.load("sark/figure8", profile=profile).trainings
    assert whole.config.loss.lambda_fixed is None  # type: ignore[attr-defined]
    assert [differs(whole.config.model_dump(), other.config.model_dump()) for other in others] == [
        {"loss.lambda_params"},
        {"loss.lambda_fixed"},
    ]


def differs(item: dict[str, Any], other: dict[str, Any], at: str = "") -> set[str]:
    results = set()
    for key in {*item, *other}:
        first, second = item.get(key), other.get(key)
        if isinstance(first, dict) and isinstance(second, dict):
            results |= differs(first, second, f"{at}{key}.")
        elif first != second:
            results.add(f"{at}{key}")
    return results


def test_worlds_base_training_has_the_same_rows_and_model_without_the_second_style(tmp_path: Path) -> None:
    loaded = experiment.load("sark/worlds", store=tmp_path)
    sark, base = loaded.trainings
    assert differs(sark.config.model_dump(), base.config.model_dump()) == {"loss.styles"}
    needs = {method.name: [plan.name for plan in method.needs] for method in loaded.methods}
    assert (needs["SARK"], needs["base"], needs["cosine"]) == (["sark"], ["formal alone"], [])
    assert loaded.reference == "base"
    assert {method.kind for method in loaded.methods} == {"retriever", "control"}


@pytest.mark.slow
def test_worlds_styles_share_questions_that_no_training_contains() -> None:
    loaded = experiment.load("sark/worlds")
    queries = [load_benchmark(plan, loaded.metrics).benchmark for plan in loaded.benchmarks]
    assert [style_of_name(item.name).name for item in queries] == ["formal", "50 % informal", "informal", "humor", "romance"]
    assert len({style_of_name(item.name).base for item in queries}) == 1
    ids = {tuple(question.id for question in item.questions) for item in queries}
    assert len(ids) == 1
    config = loaded.trainings[0].config.model_dump()
    assert config["data"] == ("worlds/multihop:train",)
    assert config["validation"] == ("worlds/multihop:validation",)
    assert queries[0].reference.split == "test"


def test_each_ablation_changes_one_option_and_has_three_seeds() -> None:
    loaded = experiment.load("sark/ablations")
    by_name: dict[str, list[dict[str, Any]]] = {}
    for plan in loaded.trainings:
        by_name.setdefault(plan.name, []).append(plan.config.model_dump())
    (ranker,) = by_name.pop("ranker")
    assert not ranker["loss"]["styles"], "what all begin from has read formal prose alone"
    assert all([item["seed"] for item in result] == [0, 1, 2] for result in by_name.values())
    assert {item["base"] for result in by_name.values() for item in result} != {ranker["base"]}
    assert all(len({item["base"] for item in result}) == 1 for result in by_name.values())
    whole = by_name.pop("sark")[0]
    assert {name: differs(whole, results[0]) for name, results in by_name.items()} == {
        "formal alone": {"loss.styles"},
        "formal twice": {"loss.styles", "train.epochs"},
        "no passage": {"loss.passage"},
        "no list": {"loss.listwise"},
        "equal": {"loss.lambda_fixed"},
        "last layer": {"loss.lambda_params"},
        "two logits": {"model.head"},
    }
    assert {plan.name for method in loaded.methods for plan in method.needs} == {"sark", *by_name}


@pytest.mark.slow
def test_initial_ranker_is_trained_on_other_worlds() -> None:
    loaded = experiment.load("sark/gain")
    seeds: dict[str, set[int]] = {}
    for plan in loaded.trainings:
        config = plan.config
        assert isinstance(config, SarkTrainingConfig)
        for benchmark in training_benchmarks(config.data, config.data_options):
            seeds.setdefault(plan.name, set()).update(question.metadata["seed"] for question in benchmark.questions)
    card = json.loads((ROOT / "methods" / "sark" / "weights" / "ranker" / "ragmeter.json").read_text("utf-8"))
    taught = card["config"]["data_options"]["worlds"]
    assert not seeds["sark"] & set(range(taught["seed"], taught["seed"] + taught["worlds"]))
    assert seeds["sark"] == seeds["without SAT"] == seeds["mixed lists"]


def test_missing_data_error_names_the_dataset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAGMETER_DATA", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with raises("no-data-found"):
        tasks_of(experiment.load("sark/table2"))


REAL = {None: "musique", "hotpotqa": "hotpotqa", "2wiki": "2wikimultihopqa", "tiny": "musique"}


@pytest.mark.parametrize("profile", REAL)
def test_real_trains_on_untested_datasets_except_for_the_control(profile: str | None) -> None:
    loaded = experiment.load("sark/real", profile=profile)
    base = f"rewritten/{REAL[profile]}"
    assert {plan.config.model_dump()["base"] for plan in loaded.benchmarks} == {base}
    data = {plan.name: plan.config.model_dump()["data"] for plan in loaded.trainings}
    sets = {f"rewritten/{name}" for name in ("musique", "hotpotqa", "2wikimultihopqa")}
    for name, references in data.items():
        wanted = {base} if name == "control" else sets - {base}
        assert {reference.partition(":")[0] for reference in references} == wanted


@pytest.mark.parametrize("profile", [None, "hotpotqa", "2wiki", "bible"])
def test_real_tests_both_style_mirrors_and_trains_several_seeds(profile: str | None) -> None:
    loaded = experiment.load("sark/real", profile=profile)
    assert [plan.config.model_dump()["restyled"] for plan in loaded.benchmarks] == ["evidence", "distractors"]
    with_sat, without = ([plan.config.model_dump() for plan in loaded.trainings if plan.name == name] for name in ("SARK", "without SAT"))
    assert [config["seed"] for config in with_sat] == [config["seed"] for config in without] == list(range(3 if profile else 6))
    for one, other in zip(with_sat, without, strict=True):
        assert {key for key in one if one[key] != other[key]} == {"loss"}
        assert {key for key in one["loss"] if one["loss"][key] != other["loss"][key]} == {"styles"}


def test_missing_real_data_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGMETER_DATA", str(tmp_path))
    with raises("no-data-found", where="recorded"):
        tasks_of(experiment.load("sark/real"))
