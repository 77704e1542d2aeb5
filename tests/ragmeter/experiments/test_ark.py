"""ARK's tables as experiments: each is valid, has the paper's rows, and reports missing data."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from benchmarks.core.errors import UserError
from methods.readers.prompts import ReadingOptions
from methods.training import TRAININGS
from ragmeter import experiment
from ragmeter.runner.tasks import tasks_of
from results.boards.published import published_for
from tests.support.errors import raises

ROOT = Path(__file__).resolve().parents[3]
TABLES = ("table2", "table3", "table4", "table7", "baselines")


def published(table: str) -> list[dict[str, str]]:
    with open(ROOT / "results" / "published" / "ark.csv", newline="") as file:
        return [row for row in csv.DictReader(file) if row["table"] == table]


@pytest.mark.parametrize("name", [*TABLES, "worlds", "gain", "near", "ablations", "real-kg"])
def test_every_file_is_valid_and_names_rows_left_to_published_figures(name: str) -> None:
    loaded = experiment.load(f"ark/{name}")
    assert loaded.reference in {method.name for method in loaded.methods}
    assert ("published" in loaded.description) == (name in {"table2", "table7"})
    if name in {"table2", "table7"}:
        tiny = experiment.load(f"ark/{name}", profile="tiny")
        assert {method.name for method in tiny.methods} >= {"GraphRAG", "LightRAG", "HippoRAG", "MemoRAG, no memory model"}


def test_published_graph_rag_figures_are_shown_next_to_own_results() -> None:
    methods = {method.name: method.composition.method for method in experiment.load("ark/table2").methods}
    for name in ("GraphRAG", "LightRAG", "HippoRAG", "MemoRAG"):
        description = {"method": {"id": methods[name].id, "config": methods[name].config.model_dump()}}
        figures = published_for("longbench/musique:test", "document", "f1(rules=longbench)", description)
        assert {item.figure.method for item in figures} == {name}


@pytest.mark.parametrize("profile", [None, "hotpotqa", "2wiki"])
def test_real_experiment_does_not_train_on_test_questions(profile: str | None) -> None:
    loaded = experiment.load("ark/real", profile=profile)
    (training,), (benchmark,) = loaded.trainings, loaded.benchmarks
    names = [item.partition(":")[0] for item in training.config.data]  # type: ignore[attr-defined]
    assert {*names, benchmark.reference.name} == {"hotpotqa", "2wikimultihopqa", "musique"}
    assert not training.config.scores  # type: ignore[attr-defined]


@pytest.mark.parametrize(("name", "profile"), [("real-kg", None), ("near", "paper")])
def test_stages_have_the_paper_proportions_of_rates_steps_and_negatives(name: str, profile: str | None) -> None:
    plans = [plan for plan in experiment.load(f"ark/{name}", profile=profile).trainings if plan.name != "control"]
    assert plans
    for plan in plans:
        options: Any = plan.config
        first, *later = (epochs * rate for epochs, rate in zip(options.train.epochs, options.train.learning_rate, strict=True))
        assert sum(later) / first == pytest.approx(7 / 3)
        assert options.mine.sample == options.mine.top_k == 20
        assert options.loss.in_batch == ("positives", "none", "none")


@pytest.mark.parametrize("profile", [None, "template", "tiny"])
def test_each_fold_is_tested_on_the_training_without_it(profile: str | None, tmp_path: Path) -> None:
    loaded = experiment.load("ark/real-kg", profile=profile, store=tmp_path)
    folds: dict[str, str | None] = {}
    for plan in loaded.trainings:
        options: Any = plan.config
        folds[str(plan.folder(tmp_path))] = options.data_options["files"].get("fold")
        recorded = plan.name.startswith(("recorded", "control"))
        assert options.queries.generator == ("recorded" if recorded else "template")
    for method in loaded.methods:
        models = getattr(method.composition.method.config, "models", ())
        assert [folds[str(Path(model).parent)] for model in models] == [f"-{k}/{len(models)}" for k in range(1, len(models) + 1)]


def test_released_protocol_is_a_profile_of_table_2() -> None:
    loaded, released = experiment.load("ark/table2"), experiment.load("ark/table2", profile="released")
    assert {method.name for method in released.methods} < {method.name for method in loaded.methods}
    for method in released.methods:
        reader = method.composition.answering
        assert reader is not None
        response = reader.config.model_dump()
        assert (response["reading"], response["max_new_tokens"], response["chat_template"]) == ("benchmark_prompt", 512, False)
        assert (response["temperature"], response["top_p"]) == (0.1, 0.9)
    full = released.methods[0].composition.method.config
    assert full.model_dump() == {"whole": True, "overlap": 12, "words": 16_384}


@pytest.mark.parametrize("name", ["table2", "table3", "table4", "table7"])
def test_tables_share_one_training_with_the_paper_options(name: str, tmp_path: Path) -> None:
    first = experiment.load(f"ark/{name}", store=tmp_path).trainings[0]
    assert first.config == TRAININGS.get("ark").validate({"preset": "paper"})
    assert first.folder(tmp_path) == experiment.load("ark/table2", store=tmp_path).trainings[0].folder(tmp_path)


def test_table_3_ablates_each_score_in_stage_1_and_shows_every_stage(tmp_path: Path) -> None:
    loaded = experiment.load("ark/table3", store=tmp_path)
    whole, *without = loaded.trainings
    left_out = [{name for name in "fbv" if getattr(plan.config.score, name).weight == 0} for plan in without]  # type: ignore[attr-defined]
    assert left_out == [{"f"}, {"b"}, {"v"}]
    assert [plan.stages for plan in without] == [("stage1",)] * 3
    tuned = [method for method in loaded.methods if method.composition.method.id == "ark"]
    assert [method.needs for method in tuned] == [(whole,), *((plan,) for plan in without), (whole,), (whole,)]
    stages = [Path(method.composition.method.config.model).name for method in tuned]  # type: ignore[attr-defined]
    assert stages == ["stage1"] * 4 + ["stage2", "stage3"]


@pytest.mark.parametrize("number", [2, 3, 4, 7])
def test_tables_use_the_datasets_and_settings_of_the_paper(number: int) -> None:
    loaded = experiment.load(f"ark/table{number}")
    queries = {f"{plan.reference.name}/{plan.reference.subset}" for plan in loaded.benchmarks}
    assert queries == {row["dataset"] for row in published(str(number))}
    for plan in loaded.benchmarks:
        assert (plan.config.chunk_words, plan.config.chunk_overlap) == (512, 12)  # type: ignore[attr-defined]
        assert (str(plan.setting), plan.limit) == ("document", 100)


@pytest.mark.parametrize("name", TABLES)
def test_every_method_reads_five_passages_with_benchmark_instructions(name: str) -> None:
    for method in experiment.load(f"ark/{name}").methods:
        reader = method.composition.answering
        assert reader is not None
        assert isinstance(reader.config, ReadingOptions)
        assert reader.config.reading == "benchmark"
        assert method.composition.handed_on == (None if method.name == "Full" else 5)
        assert {**reader.config.model_dump(), "model": ""} == {**_mistral(), "model": ""}


def _mistral() -> dict[str, Any]:
    full = experiment.load("ark/table2").methods[0].composition.answering
    assert full is not None
    return full.config.model_dump()


def test_table_contains_every_implemented_method_of_the_paper() -> None:
    names = {method.name for method in experiment.load("ark/table2").methods}
    assert {row["method"].replace("(Ours)", "") for row in published("2")} <= names


def test_tables_2_and_7_share_their_runs() -> None:
    first, second = experiment.load("ark/table2"), experiment.load("ark/table7")
    made_of = {str(method.composition.method.config): method.name for method in first.methods}
    assert all(made_of[str(method.composition.method.config)] == method.name for method in second.methods)
    assert [plan.reference for plan in first.benchmarks] == [plan.reference for plan in second.benchmarks]


def test_missing_data_error_names_the_dataset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAGMETER_DATA", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError) as caught:
        tasks_of(experiment.load("ark/table2"))
    assert "no data of longbench" in str(caught.value)
    assert "THUDM/LongBench" in str(caught.value)


SMALL = """
name: small
benchmarks: [{id: longbench/qasper, split: test, setting: document, config: {path: PATH}}]
methods: [{id: bm25, reader: {id: chat, config: {llm: {model: m}, reading: READING}}}]
"""


def tasks(path: Path, reading: str, text: str = SMALL) -> Any:
    return tasks_of(experiment.parse(text.replace("PATH", str(path)).replace("READING", reading), "small"))


def test_different_reading_instructions_give_a_different_run(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAGMETER_DATA", raising=False)  # may hold published prompts, which differ from ours
    file = data_folder / "longbench" / "qasper.jsonl"
    (own,), (followed,) = tasks(file, "own"), tasks(file, "benchmark")
    assert "reading" not in own.run.description
    assert followed.run.description["reading"]["max_new_tokens"] == 128
    assert "$passages" in followed.run.description["reading"]["prompt"]
    assert own.run.run != followed.run.run


def test_benchmark_without_instructions_is_refused_before_the_run() -> None:
    text = SMALL.replace("id: longbench/qasper", "id: worlds/long").replace(", config: {path: PATH}", "")
    (task,) = tasks_of_nothing(text)
    with raises("missing-reading-instructions") as caught:
        _ = task.reading
    assert "reading: own" in str(caught.value.try_this)


def tasks_of_nothing(text: str) -> Any:
    """Return the task; its run is described only on request."""
    from ragmeter.runner.tasks import Task, load_benchmark

    loaded = experiment.parse(text.replace("READING", "benchmark"), "small")
    return [Task(loaded.name, load_benchmark(loaded.benchmarks[0], None), loaded.methods[0], 0)]
