"""CLaRa's tables and figures as experiments: valid, with the paper's rows, and with shared trainings trained once."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from ragmeter import experiment
from ragmeter.experiment import Experiment
from results.boards.names import base_name

ROOT = Path(__file__).resolve().parents[3]
NAMES = sorted(name for name in experiment.shipped() if name.startswith("clara/"))
COMPRESSION = ("table2", "table4", "table5", "table6", "table12", "table13", "table20", "table21")
BY_DATASET = {"table3": 3, "table7": 3, "table8": 3, "table14": 3, "table15": 1, "table18": 3, "figure7": 3}
"""Profiles of each experiment: one per dataset after the first."""


def published(table: str) -> list[dict[str, str]]:
    with open(ROOT / "results" / "published" / "clara.csv", newline="") as file:
        return [row for row in csv.DictReader(file) if row["table"] == table]


def stated(rows: list[dict[str, str]], key: str) -> set[str]:
    settings = [dict(part.split("=", 1) for part in row["setting"].split(";") if "=" in part) for row in rows]
    return {setting[key] for setting in settings if key in setting}


def profiles(name: str) -> list[str | None]:
    return [None, *experiment.load(f"clara/{name}").source.value.get("profiles", {})]


def rates(loaded: Experiment) -> set[int]:
    return {plan.config.model.rate for plan in loaded.trainings if plan.entry.id == "clara"}  # type: ignore[attr-defined]


def subsets(loaded: Experiment) -> set[str]:
    return {str(plan.reference.subset) for plan in loaded.benchmarks}


def test_every_experimental_table_and_figure_has_a_file() -> None:
    tables = {f"clara/table{number}" for number in (2, 3, 4, 5, 6, 7, 8, 12, 13, 14, 15, 17, 18, "18-compression", 20, 21)}
    figures = {f"clara/figure{number}" for number in (4, 5, 6, 7, 8)}
    assert set(NAMES) == {*tables, *figures, "clara/real", "clara/released", "clara/worlds", "clara/worlds-long"}


@pytest.mark.parametrize("name", NAMES)
def test_every_file_and_profile_is_valid_and_uses_each_of_its_trainings(name: str) -> None:
    for profile in profiles(name.removeprefix("clara/")):
        loaded = experiment.load(name, profile=profile)
        assert loaded.name == name.replace("/", "-")
        assert loaded.reference in {base_name(method.name) for method in loaded.methods}
        used = {plan.name for method in loaded.methods for plan in method.needs}
        below = {plan.name for training in loaded.trainings for plan in training.needs}
        assert used | below == {training.name for training in loaded.trainings}


@pytest.mark.parametrize("name", COMPRESSION)
def test_compression_tables_have_the_data_ratios_and_settings_of_the_paper(name: str) -> None:
    loaded = experiment.load(f"clara/{name}")
    rows = published(name.removeprefix("table"))
    assert rates(loaded) == {int(rate) for rate in stated(rows, "cr")} - {1}
    pools = {{"normal": "no_pos", "oracle": "with_pos"}[item] for item in stated(rows, "retrieval") - {"closed_book"}}
    assert subsets(loaded) == {f"inst_eval_{data}_{pool}" for data in ("nq", "hotpotqa", "musique", "2wiki") for pool in pools}
    assert {method.composition.handed_on for method in loaded.methods if method.needs} == {5}
    for method in loaded.methods:
        if method.needs:
            compressor, reader = method.composition.compressor, method.composition.reader
            assert compressor is not None
            assert reader is not None
            assert compressor.config.model == reader.config.model  # type: ignore[attr-defined]
            assert reader.config.max_new_tokens == 128  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_DATASET)
def test_joint_tables_train_on_the_dataset_that_they_test(name: str) -> None:
    # `tiny` tests layouts and trains nothing.
    results = [profile for profile in profiles(name) if profile != "tiny"]
    assert len(results) == 1 + BY_DATASET[name]
    for profile in results:
        loaded = experiment.load(f"clara/{name}", profile=profile)
        (data,) = {subset.removeprefix("e2e_eval_").rpartition("_")[0].rpartition("_")[0] for subset in subsets(loaded)}
        learned = {"musique": ["hotpotqa", "2wiki", "musique"]}.get(data, [data])
        expected = tuple(f"clara_stages/e2e_training_{item}_with_pos:train" for item in learned)
        later = [plan for plan in loaded.trainings if plan.stages in (("joint",), ("supervised",))]
        assert later
        assert {plan.config.data.joint for plan in later} == {expected}  # type: ignore[attr-defined]
        if name != "figure7":
            rows = [row for row in published(name.removeprefix("table")) if row["id"] == "clara" or "tuned=" in row["setting"]]
            assert rates(loaded) == {int(rate) for rate in stated(rows or published(name.removeprefix("table")), "cr")} - {1}


@pytest.mark.slow
def test_shared_trainings_of_tables_use_the_same_folder(tmp_path: Path) -> None:
    def folders(name: str, **more: Any) -> dict[str, Path]:
        loaded = experiment.load(f"clara/{name}", store=tmp_path, **more)
        return {plan.name: plan.folder(tmp_path) for plan in loaded.trainings}

    assert folders("table2").items() <= folders("table6").items()
    assert folders("table3").items() <= folders("table7").items()
    assert folders("table7") == folders("table18")
    assert folders("table5") == folders("table21") == folders("figure8")
    assert folders("table3")["Mistral 4x"] == folders("table3", profile="2wiki")["Mistral 4x"] == folders("table2")["Mistral 4x"]
    assert folders("table3")["Mistral 4x pretraining"] != folders("table3", profile="2wiki")["Mistral 4x pretraining"]


def test_figure_7_varies_one_to_ten_documents() -> None:
    loaded = experiment.load("clara/figure7")
    results: dict[str, list[int]] = {}
    for method in loaded.methods:
        results.setdefault(method.name.partition(", k=")[0], []).append(method.composition.method.config.k)  # type: ignore[attr-defined]
    assert all(item == list(range(1, 11)) for item in results.values())
    assert len(results) == 2


def test_ablations_differ_only_in_their_named_option() -> None:
    by_name = {plan.name: plan.config.model_dump() for plan in experiment.load("clara/table14").trainings}
    assert by_name["Mistral 32x pretraining"]["joint"]["selection"] == "learned"
    assert by_name["Mistral 32x pretraining generator"]["joint"]["selection"] == "frozen"
    by_name = {plan.name: plan.config.model_dump() for plan in experiment.load("clara/table15").trainings}
    assert by_name["Mistral 128x pretraining"]["joint"]["reasoner"] == "compressor"
    assert by_name["Mistral 128x pretraining random"]["joint"]["reasoner"] == "random"
    mixes = {plan.name: plan for plan in experiment.load("clara/table4").trainings}
    assert mixes["Phi 32x No-pretrain"].stages == ("instruction",)
    assert mixes["Phi 32x Para"].config.scp.rows.mix == "paraphrase"  # type: ignore[attr-defined]
    mse = [plan.config for plan in experiment.load("clara/table5").trainings]
    assert {(item.scp.mse, item.instruction.mse) for item in mse} == {(0.0, 0.0), (0.1, 0.1)}  # type: ignore[attr-defined]
    sizes = [plan.config.scp.rows.documents for plan in experiment.load("clara/table12").trainings]  # type: ignore[attr-defined]
    assert sizes[:3] == [500_000, 1_000_000, 2_000_000]


@pytest.mark.parametrize(("name", "profile"), [("worlds", None), ("worlds", "passages"), ("worlds-long", None)])
def test_worlds_compares_memory_with_full_tuned_and_truncated_text(name: str, profile: str | None) -> None:
    loaded = experiment.load(f"clara/{name}", profile=profile)
    models = [plan.config.model for plan in loaded.trainings]  # type: ignore[attr-defined]
    assert {model.base for model in models} == {"pocket"}
    (control,) = [plan for plan in loaded.trainings if plan.config.reads == "text"]  # type: ignore[attr-defined]
    # The same base, rows and steps as a training that reads memory.
    for kind in ("scp", "instruction"):
        steps = [getattr(plan.config, kind).train for plan in loaded.trainings if kind in plan.stages and plan is not control]
        assert getattr(control.config, kind).train in steps
    readers = {m.name: m.composition.reader.config for m in loaded.methods if m.composition.reader is not None}
    text = {key: item for key, item in readers.items() if type(item).__name__ == "ClaraTextConfig"}
    assert {key for key, item in text.items() if item.model != "pocket"} == {"Tuned text"}  # type: ignore[attr-defined]
    cut = {item.max_length for key, item in text.items() if "as many tokens" in key and "Whole passages" not in key}  # type: ignore[attr-defined]
    # Prompts also take tokens per memory: 24 and 6 memory tokens cost about as much in total as 30 and 9 text tokens.
    beside = {None: {24: 6, 6: 3}, "passages": {64: 0, 16: 0}}[profile]
    assert cut == {model.memory_tokens + beside[model.memory_tokens] for model in models}
    whole = {item.max_length for key, item in text.items() if key in ("Full text", "No text")}  # type: ignore[attr-defined]
    assert whole == {model.max_length for model in models}
    assert {plan.reference.split for plan in loaded.benchmarks} == {"test"}
    assert len({plan.config.model_dump_json() for plan in loaded.benchmarks}) == 1
    if name == "worlds-long":
        assert rates(loaded) == {4, 16}
        assert sorted(str(plan.setting) for plan in loaded.benchmarks) == [
            "corpus",
            "corpus(retriever=bm25,n=20)",
            "oracle(base=distractor,n=20)",
            "oracle(base=distractor,n=5)",
        ]
