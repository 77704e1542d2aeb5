"""CLaRa's training end to end: it resumes after an interruption and uses the rows that fit."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.support.errors import raises

torch = pytest.importorskip("torch")

from methods.api import Services  # noqa: E402
from methods.clara import data  # noqa: E402
from methods.clara.config import ClaraTrainingConfig  # noqa: E402
from methods.clara.data import fits  # noqa: E402
from methods.clara.model import Clara  # noqa: E402
from methods.clara.objective import FrozenDocuments  # noqa: E402
from methods.clara.prompts import answer  # noqa: E402
from methods.clara.stages import answered, begin, losses, prepare, trained, validator  # noqa: E402
from methods.clara.train import ClaraTraining  # noqa: E402
from methods.training import Silent, TrainedStage, TrainingContext  # noqa: E402

PRETRAINED = {"compressor", "generator", "memory"}


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["scp", "joint"])
def test_interrupted_stage_ends_bit_identical_to_an_uninterrupted_one(toy: ModuleType, config: Any, tmp_path: Path, stage: Any) -> None:
    chosen = config(model={"lora": {"dropout": 0.2}})
    whole = begin(chosen, stage, None, "cpu")
    run = toy.trainer(chosen, stage, whole, toy.rows_of(stage), tmp_path / "whole")
    run.loop.run()
    curve = run.loop.curve.read_text()

    cut = toy.trainer(chosen, stage, begin(chosen, stage, None, "cpu"), toy.rows_of(stage), tmp_path / "cut")
    step = cut.loop.step

    def until(number: int) -> Any:
        if number == 3:
            raise KeyboardInterrupt
        return step(number)

    cut.loop.step = until
    with pytest.raises(KeyboardInterrupt):
        cut.loop.run()
    torch.manual_seed(99)
    again = begin(chosen, stage, None, "cpu")
    resumed = toy.trainer(chosen, stage, again, toy.rows_of(stage), tmp_path / "cut")
    resumed.loop.run()
    assert resumed.loop.curve.read_text() == curve
    for name, item in toy.state(whole).items():
        assert torch.equal(item, again.module.state_dict()[name]), name


@pytest.mark.slow
def test_dropout_changes_the_loss_of_a_step(toy: ModuleType, config: Any, tmp_path: Path) -> None:
    losses = []
    for share in (0.0, 0.0, 0.5):
        chosen = config(model={"lora": {"dropout": share}})
        folder = tmp_path / str(len(losses))
        loop = toy.trainer(chosen, "scp", begin(chosen, "scp", None, "cpu"), toy.rows_of("scp"), folder).loop
        losses.append([loop._stepped(step)["loss"] for step in range(3)])  # an adapter changes nothing before its first step
    assert losses[0] == losses[1] != losses[2]


@pytest.mark.slow
def test_resume_points_contain_adapters_and_memory_but_not_the_base(toy: ModuleType, config: Any, tmp_path: Path) -> None:
    clara = begin(config(), "scp", None, "cpu")
    run = toy.trainer(config(), "scp", clara, toy.scp_rows(), tmp_path)
    run.loop.run()
    point = torch.load(run.loop.place.folder / "point.pt", weights_only=True)
    assert set(point["modules"]["clara"]) == set(clara.trainable_parameters())


def test_frozen_documents_are_encoded_once_in_resumable_blocks(tmp_path: Path) -> None:
    queries: list[list[str]] = []

    def encode(texts: Sequence[str]) -> Any:
        queries.append(list(texts))
        if len(queries) == 2:
            raise KeyboardInterrupt
        return torch.tensor([[[float(len(text)), 1.0]] * 3 for text in texts])

    texts = ["a", "bb", "ccc", "bb", "dddd", "eeeee"]
    options = ((3, 2), torch.float32, tmp_path, 2, Silent())
    with pytest.raises(KeyboardInterrupt):
        FrozenDocuments(texts, encode, *options)
    results = FrozenDocuments(texts, encode, *options)
    assert queries == [["a", "bb"], ["ccc", "dddd"], ["ccc", "dddd"], ["eeeee"]]
    assert len(results) == 5
    assert results.of(["eeeee", "bb"])[:, 0, 0].tolist() == [5.0, 2.0]
    FrozenDocuments(texts, encode, *options)
    assert len(queries) == 4
    with pytest.raises(KeyError):
        results.of(["unknown"])


def test_documents_larger_than_the_free_disk_are_refused_before_encoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=100))
    with raises("candidate-memory-too-large"):
        FrozenDocuments(["a", "b", "c"], lambda texts: pytest.fail("encoded"), (3, 4), torch.float32, tmp_path, 2, Silent())


@pytest.mark.slow
def test_checkpoints_of_three_stages_are_reused_by_a_second_run(
    toy: ModuleType, config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "training_rows", lambda config, stage, services: (toy.rows_of(stage), ["data"]))
    monkeypatch.setattr(data, "held_out", lambda config, stage, services, rows: toy.joint_rows(3))
    shop = TrainingContext(tmp_path / "work", tmp_path / "checkpoints", Services(device="cpu"))

    def run() -> list[TrainedStage]:
        return list(ClaraTraining(config()).run(shop))

    stages = run()
    assert [stage.stage for stage in stages] == ["scp", "instruction", "joint"]
    assert all(stage.fresh for stage in stages)
    for item in stages:
        lines = [json.loads(line) for line in (item.folder / "curve.jsonl").read_text().splitlines()]
        assert [line["step"] for line in lines if "loss" in line] == list(range(4))
        assert item.figures["steps"] == 4
        assert math.isfinite(item.figures["loss"])
        assert "validation_cover_em" in item.figures
        assert item.figures["validation_answer_loss"] > 0
        assert (item.folder / "README.md").is_file()
    assert "validation_recall@1" in stages[2].figures
    assert "validation_recall@1" not in stages[1].figures
    scp, instruction, joint = (Clara.load(stage.folder, "cpu") for stage in stages)
    assert torch.equal(scp.module.rows.memory, joint.module.rows.memory)
    texts = [toy.document(4)]
    with torch.no_grad():
        assert torch.equal(instruction.encode(texts).memory, joint.encode(texts).memory)
        assert not torch.equal(scp.encode(texts).memory, joint.encode(texts).memory)
    supervised = config(stages=["supervised"], start=str(stages[0].folder))
    alone = {name: value for name, value in supervised.model_dump().items() if name != "model"}
    other = TrainingContext(tmp_path / "other", tmp_path / "more", Services(device="cpu"))
    (result,) = ClaraTraining(ClaraTrainingConfig.model_validate(alone)).run(other)
    assert (result.stage, Clara.load(result.folder, "cpu").config) == ("supervised", scp.config)
    again = run()
    assert [item.fresh for item in again] == [False] * 3
    assert [item.figures for item in again] == [stage.figures for stage in stages]
    assert not list((tmp_path / "work").glob("*/documents-*"))


def test_without_pretraining_memory_tokens_are_trained_with_the_compressor(config: Any) -> None:
    assert trained(config(stages=("scp", "instruction")), "instruction") == {"compressor", "generator"}
    never = config(stages=("instruction",), scp={"rows": {"mix": "none"}})
    assert trained(never, "instruction") == PRETRAINED
    kept = config(stages=("instruction",), start="somewhere")
    assert trained(kept, "instruction") == {"compressor", "generator"}
    frozen = config(stages=("instruction",), scp={"rows": {"mix": "none"}}, instruction={"trains": "generator"})
    assert trained(frozen, "instruction") == {"generator"}


def test_held_out_rows_share_no_document_or_question_with_training(toy: ModuleType, config: Any) -> None:
    rows = toy.scp_rows()
    for stage, unit in (("scp", "document"), ("joint", "question")):
        rows = toy.rows_of(stage)
        units = {getattr(row, unit) for row in rows}
        query = config(validate_on={"held_out": 2})
        learned, aside = data.set_aside(query, stage, [*rows, *rows])
        assert len(learned) + len(aside) == 2 * len(rows)
        assert len({getattr(row, unit) for row in aside}) == 2
        assert not {getattr(row, unit) for row in aside} & {getattr(row, unit) for row in learned}
        assert data.set_aside(query, stage, [*rows, *rows]) == (learned, aside)
        assert data.set_aside(config(), stage, rows) == (rows, [])
        named = config(validate_on={"held_out": 2}, validation={stage: ["worlds:validation"]})
        assert data.set_aside(named, stage, rows) == (rows, [])
        with raises("too-few-to-set-aside"):
            data.set_aside(config(validate_on={"held_out": len(units)}), stage, rows)


@pytest.mark.slow
def test_rows_that_are_too_long_are_refused_before_training_or_skipped(toy: ModuleType, config: Any, tmp_path: Path) -> None:
    long = "what is the value of " + " ".join(["key1"] * 600)
    for stage in ("instruction", "joint"):
        rows = toy.rows_of(stage)
        spoilt = [replace(rows[0], question=long), *rows]
        clara = begin(config(), stage, None, None)
        with raises("prompts-too-long"):
            prepare(config(), stage, clara, spoilt, tmp_path / stage, Silent())
        kept = prepare(config(skip_long=True), stage, clara, spoilt, tmp_path / stage, Silent())
        assert len(kept.rows) == len(prepare(config(), stage, clara, rows, tmp_path / stage, Silent()).rows)
        with raises("rows-too-long"):
            prepare(config(skip_long=True), stage, clara, spoilt[:1], tmp_path / stage, Silent())


@pytest.mark.parametrize("question", ["what is the value of key1", "ünknöwn " * 90, "key2 " * 300, "?" * 2000])
def test_row_fits_exactly_if_its_tokens_fit(toy: ModuleType, config: Any, question: str) -> None:
    generator = begin(config(), "joint", None, None).generator
    decide = fits(generator)
    for documents in (1, 2, 40):
        prompt = answer(question, documents)
        for target in ("value1", "value1 " * 200):
            assert decide(prompt, target) == (generator.length(prompt, target) <= generator.room)


@pytest.mark.slow
def test_held_out_metrics_cover_answers_and_selection(toy: ModuleType, config: Any) -> None:
    clara = begin(config(), "joint", None, "cpu")
    options = config().validate_on
    rows = toy.joint_rows(6)
    figures = answered(clara, rows, options, selects=True)
    assert figures["recall@3"] >= figures["recall@1"]
    assert figures["recall@5"] == 1.0
    assert 0 <= figures["cover_em"] <= 1
    assert validator(clara, [], [], options, selects=True) is None
    ready = prepare(config(), "scp", clara, toy.scp_rows(4), Path("unused"), Silent())
    result = losses(clara, ready.rows, 3)
    whole = losses(clara, ready.rows, 4)
    assert result == pytest.approx(whole, rel=1e-5)
