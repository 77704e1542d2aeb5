"""SARK's training from options to model: refused and skipped data, and the card."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pydantic import ValidationError

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import folder_sha256
from benchmarks.registry import Benchmark, DataReference
from judges.judge import JUDGES
from methods.api import Services
from methods.sark import train as training_module
from methods.sark.config import SarkTrainingConfig
from methods.sark.data import Material, SarkData, load_material
from methods.sark.model import new_reranker
from methods.sark.rows import SarkRow
from methods.sark.train import SarkTraining
from methods.training import TRAININGS, Prepared, TrainedStage, TrainingContext
from tests.support.errors import raises

pytest.importorskip("torch")


def test_presets_equal_paper_and_released_code() -> None:
    entry = TRAININGS.get("sark")
    paper, released = (entry.validate({"data": ["sark:train"], "preset": name}) for name in ("paper", "released"))
    assert isinstance(paper, SarkTrainingConfig)
    assert isinstance(released, SarkTrainingConfig)
    assert (paper.train.epochs, paper.train.learning_rate, paper.train.batch_size) == (30, 1e-6, 8)
    assert (paper.model.head, paper.model.dropout, paper.model.backbone_dropout) == ("paper", 0.3, 0.3)
    assert paper.base == "BAAI/bge-reranker-base"
    assert paper.train.accumulation == 1
    assert (released.train.epochs, released.train.learning_rate, released.train.accumulation) == (100, 1e-5, 4)
    assert released.model.head == "official"
    assert paper.seed == released.seed == 42
    assert (paper.rows, paper.validation_rows, paper.held_out.rows) == (16_094, 1_788, 1_788)
    assert (released.rows, released.validation_rows) == (16_094, 1_788)
    # Neither the labels' own rule nor the judge's takes for equal what the released code does not.
    for result, rule in ((paper, "squad"), (released, "strict")):
        judge = JUDGES.get("match").config.model_validate(result.labels.judge_options)
        assert result.labels.exact == judge.model_dump()["exact"] == rule
    assert released.labels.model_dump(exclude={"exact", "judge_options"}) == paper.labels.model_dump(exclude={"exact", "judge_options"})


@pytest.mark.parametrize("preset", ["worlds", "ranker"])
def test_presets_for_worlds_use_all_rows(preset: str) -> None:
    config = TRAININGS.get("sark").validate({"data": ["worlds/multihop:train"], "preset": preset})
    assert isinstance(config, SarkTrainingConfig)
    assert config.rows is config.validation_rows is config.held_out.rows is None


def test_training_identity_includes_every_input_file(toy: ModuleType, base: str, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts"
    prompts.mkdir()
    shipped = files("methods.models").joinpath("templates", "rewriting", "informal.txt").read_text("utf-8")
    named = [tmp_path / name for name in ("answer.txt", "order.txt", "judge.txt")]
    for path in named:
        path.write_text(path.name, "utf-8")
    (prompts / "informal.txt").write_text(shipped, "utf-8")
    answer, order, judge = map(str, named)
    config = toy.options(
        base,
        labels={"prompt": answer, "judge": "match", "judge_options": {"llm": {"model": "m"}, "prompt": judge}},
        lists={"prompt": order},
        styles={"by": "llm", "llm": {"model": "m"}, "rewriting": {"prompts": str(prompts)}},
    )
    seen = {tuple(training_module._files(config))}
    for path in (*named, prompts / "informal.txt"):
        path.write_text(path.read_text("utf-8") + " Be strict.", "utf-8")
        seen.add(tuple(training_module._files(config)))
    assert len(seen) == 5
    # Without a judge nobody reads the prompt of one.
    unread = toy.options(base, labels={"judge_options": {"prompt": "/none.txt"}})
    assert training_module._files(unread) == []


def test_kept_epoch_criterion_follows_from_tasks_and_validation(toy: ModuleType, base: str) -> None:
    held = ["worlds/style:validation"]
    assert toy.options(base).keep == "last"
    assert toy.options(base, validation=held).keep == "f1"
    assert toy.options(base, validation=held, loss={"passage": False}).keep == "order"
    assert toy.options(base, validation=held, train={"keep": "last"}).keep == "last"


@pytest.mark.parametrize(
    "wrong", [{"loss": {"passage": False, "listwise": False}}, {"train": {"keep": "f1"}}, {"loss": {"lambda_fixed": 1.2}}]
)
def test_options_that_contradict_each_other_are_refused(toy: ModuleType, base: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        toy.options(base, **wrong)


@pytest.mark.slow
def test_command_line_accepts_data_and_options_and_refuses_test_splits(base: str, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from ragmeter.cli import app

    listed = CliRunner().invoke(app, ["list", "trainings", "sark", "--json"])
    described = {load["name"]: load["default"] for load in json.loads(listed.output)}
    assert described["loss.lambda_params"] == "backbone"
    assert described["train.learning_rate"] == 1e-6
    command = ["train", "sark", "--preset", "worlds", "--base", base, "--store", str(tmp_path), "--data"]
    refused = CliRunner().invoke(app, [*command, "worlds/style:test", "--set", "train.epochs=1"])
    assert isinstance(refused.exception, UserError)
    assert "test split" in str(refused.exception)
    contrary = CliRunner().invoke(app, [*command, "worlds/style:train", "--set", "train.keep=f1"])
    assert isinstance(contrary.exception, UserError)
    assert "keep: f1 needs validation data" in str(contrary.exception)


@pytest.mark.parametrize("field", ["data", "validation"])
def test_test_splits_are_refused(toy: ModuleType, base: str, field: str) -> None:
    with raises("test-split"):
        load_material(toy.options(base, **{field: ["worlds/style:test"]}))


class Source:
    """Source of given rows that counts its calls."""

    def __init__(self, rows: Sequence[SarkRow]) -> None:
        self.rows, self.requested = list(rows), 0
        self.limits: list[int | None] = []

    def __call__(self, config: Any, benchmarks: Any, context: TrainingContext, folder: Path) -> SarkData:
        self.requested += 1
        self.limits.append(config.rows)
        return SarkData(self.rows, {"rows": len(self.rows), "positives": 4}, "toy")


@pytest.fixture
def material(monkeypatch: pytest.MonkeyPatch, ground: Any) -> None:
    """Make benchmarks whose questions are never read."""
    from benchmarks.worlds.dataset import CARD

    def fake(config: SarkTrainingConfig) -> Material:
        made = Benchmark(DataReference("worlds", "style", "train"), 1, CARD, ground.questions, ground.corpus)
        return Material([made], [made] if config.validation else [])

    monkeypatch.setattr(training_module, "load_material", fake)


def train(config: SarkTrainingConfig, folder: Path, source: Source) -> TrainedStage:
    context = TrainingContext(folder / "work", folder / "checkpoints", Services(artifacts=folder / "art", device="cpu"))
    (stage,) = SarkTraining(config, source).run(context)
    return stage


@pytest.mark.slow
@pytest.mark.usefixtures("material")
def test_trained_folder_loads_in_plain_cross_encoder(toy: ModuleType, base: str, tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder

    source = Source(toy.ROWS)
    config = toy.options(base, validation=["worlds/style:validation"], train={"epochs": 3})
    stage = train(config, tmp_path, source)
    assert (stage.stage, stage.fresh, source.requested) == ("reranker", True, 2)
    assert {"steps", "loss", "validation_f1", "validation_order", "validation_style_gap", "positives", "rows_trained_on"} <= set(
        stage.figures
    )
    model = CrossEncoder(str(stage.folder), device="cpu")
    assert model.predict([("who built the bridge ?", "the painter built it")]).shape == (1,)
    card = (stage.folder / "README.md").read_text()
    assert "both gradients" in card
    assert "worlds/style:train" in card
    curve = [json.loads(line) for line in (tmp_path / "work/train/curve.jsonl").read_text().splitlines()]
    steps = [line for line in curve if "loss" in line]
    assert len(steps) == 3
    for line in steps:
        assert {"step", "lambda", "1-lambda", "passage_gradient", "list_gradient", "cosine"} <= set(line)
    assert (stage.folder / "curve.jsonl").read_text() == (tmp_path / "work/train/curve.jsonl").read_text()
    again = train(config, tmp_path, source)
    assert (again.fresh, source.requested) == (False, 2)
    assert again.figures == stage.figures
    assert folder_sha256(train(config, tmp_path / "other", Source(toy.ROWS)).folder) == folder_sha256(stage.folder)


@pytest.mark.slow
@pytest.mark.usefixtures("material")
def test_training_and_held_out_rows_have_separate_limits(toy: ModuleType, base: str, tmp_path: Path) -> None:
    source = Source(toy.ROWS)
    train(toy.options(base, validation=["worlds/style:validation"], rows=8, validation_rows=3), tmp_path, source)
    assert source.limits == [8, 3]


@pytest.mark.slow
@pytest.mark.usefixtures("material")
def test_card_lists_skipped_rows(toy: ModuleType, base: str, tmp_path: Path) -> None:
    stage = train(toy.options(base, loss={"styles": False, "passage": False}), tmp_path, Source(toy.ROWS))
    card = (stage.folder / "README.md").read_text()
    assert "without style-augmented training and passage labels" in card
    assert "formal passages only" in card


@pytest.mark.usefixtures("material")
@pytest.mark.parametrize(("loss", "needed"), [({"listwise": False}, "a label"), ({"passage": False}, "a list")])
def test_rows_without_labels_or_lists_for_the_task_are_refused(
    toy: ModuleType, base: str, tmp_path: Path, loss: dict[str, bool], needed: str
) -> None:
    rows = [toy.row(0, listed=False)] if "passage" in loss else [SarkRow(toy.ROWS[0].query, "", "", "", None, toy.ROWS[0].list, "q")]
    with raises("no-training-row"):
        train(toy.options(base, loss=loss), tmp_path, Source(rows))


@pytest.mark.usefixtures("material")
def test_pairs_longer_than_the_limit_are_counted(toy: ModuleType, base: str, tmp_path: Path) -> None:
    config = toy.options(base, model={"max_length": 32})
    context = TrainingContext(tmp_path / "work", tmp_path / "out", Services(artifacts=tmp_path / "art", device="cpu"), prepares=True)
    with pytest.raises(Prepared) as prepared:
        list(SarkTraining(config, Source(toy.ROWS)).run(context))
    tokenizer = new_reranker(config, "cpu").tokenizer
    texts = {(row.query, text) for row in toy.ROWS for both in ((row.formal, row.informal), *row.list) for text in both}
    long = sum(len(tokenizer(*pair)["input_ids"]) > 32 for pair in texts)
    assert 0 < long < len(texts)
    assert prepared.value.figures["pairs_cut"] == long


@pytest.mark.usefixtures("material")
@pytest.mark.parametrize("label", [0, 1])
def test_equal_labels_are_refused_without_lists(toy: ModuleType, base: str, tmp_path: Path, label: int) -> None:
    rows = [toy.row(number, label) for number in range(4)]
    with raises("equal-labels"):
        train(toy.options(base, loss={"listwise": False}), tmp_path, Source(rows))
