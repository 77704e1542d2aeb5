"""CLaRa's stages: their options, the parts that each trains, and the parts that stay unchanged."""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pydantic import ValidationError

from tests.support.errors import raises

torch = pytest.importorskip("torch")

from benchmarks.schema import Passage, Query  # noqa: E402
from methods.api import Context, Services  # noqa: E402
from methods.clara import data as material  # noqa: E402
from methods.clara.config import ClaraTrainingConfig  # noqa: E402
from methods.clara.model import Clara  # noqa: E402
from methods.clara.prompts import answer_from_text  # noqa: E402
from methods.clara.stages import begin, finish, losses  # noqa: E402
from methods.training import TRAININGS  # noqa: E402
from methods.training.loop import Schedule  # noqa: E402

PRETRAINED = {"compressor", "generator", "memory"}


def changed(before: dict[str, Any], clara: Clara) -> set[str]:
    """Return the parts with changed tensors; a tensor of the base by its own name."""
    results = set()
    for name, item in clara.module.state_dict().items():
        if not torch.equal(before[name], item):
            part = next((part for part in clara.adapters.names if f".{part}." in name), None)
            results.add("memory" if name == "rows.memory" else part or name)
    return results


@pytest.mark.parametrize("shape", ["cosine", "linear"])
def test_learning_rate_decays_to_its_floor_or_to_zero(shape: Any) -> None:
    with_floor, without = Schedule(2.0, 10, shape, floor=0.1), Schedule(2.0, 10, shape)
    for step in range(10, 110):
        left = without.rate(step, 110) / 2.0
        assert with_floor.rate(step, 110) == pytest.approx(2.0 * (0.1 + 0.9 * left))
    assert with_floor.rate(110, 110) == pytest.approx(0.2)
    assert with_floor.rate(4, 110) == without.rate(4, 110) == pytest.approx(1.0)
    half = 0.5 * (1 + math.cos(math.pi / 2)) if shape == "cosine" else 0.5
    assert without.rate(60, 110) == pytest.approx(2.0 * half)
    assert Schedule(2.0, 0, "constant", floor=0.1).rate(99, 100) == 2.0


def test_presets_differ_exactly_like_paper_and_released_scripts() -> None:
    entry = TRAININGS.get("clara")
    paper, released, worlds = (entry.validate({"preset": name}) for name in ("paper", "released", "worlds"))
    assert isinstance(paper, ClaraTrainingConfig)
    assert isinstance(released, ClaraTrainingConfig)
    assert (paper.joint.train.schedule, released.joint.train.schedule) == ("cosine", "constant")
    assert (paper.instruction.reinit_generator, released.instruction.reinit_generator) == (False, True)
    for item in (paper, released):
        assert (item.scp.train.learning_rate, item.joint.train.learning_rate) == (1e-4, 5e-6)
        assert (item.scp.mse, item.scp.naming) == (0.1, 0)
        assert item.scp.train.floor == 0.1
    worlds.preflight()
    assert (paper.model.mask, released.model.mask) == ("minus_infinity", "algorithm")
    assert paper.validate_on.held_out > 0
    assert worlds.supervised.train.learning_rate > 10 * paper.supervised.train.learning_rate


def test_joint_training_from_pretraining_skips_instruction_tuning(config: Any) -> None:
    entry = TRAININGS.get("clara")
    assert config().stages_of(entry.stages) == ("scp", "instruction", "joint")
    assert config(joint={"init": "scp"}).stages_of(entry.stages) == ("scp", "joint")
    assert config(stages=["scp", "instruction", "supervised"]).stages_of(entry.stages)[-1] == "supervised"
    without = config(scp={"rows": {"mix": "none"}})
    assert without.stages_of(entry.stages) == ("instruction", "joint")


@pytest.mark.parametrize(
    ("options", "response"),
    [
        ({"stages": ["joint", "scp"]}, "in this order"),
        ({"stages": ["joint"]}, "begins from a checkpoint"),
        ({"stages": ["scp", "supervised", "joint"]}, "must be kept"),
        ({"data": {"scp": ["worlds:train"]}}, "has no training data"),
        ({"scp": {"naming_only": 3}}, "needs naming above 0"),
        ({"reads": "text", "stages": ["joint"], "start": "x"}, "no stage is left"),
    ],
)
def test_contradictory_options_are_refused(config: Any, options: dict[str, Any], response: str) -> None:
    with pytest.raises(ValidationError, match=response):
        config(**options)


def test_test_split_is_refused_for_training_and_validation(config: Any) -> None:
    for stage in ("scp", "instruction", "joint"):
        data = {"scp": ["worlds:test"], "instruction": ["worlds:test"], "joint": ["worlds:test"]}
        with raises("test-split"):
            material.training_rows(config(data=data), stage, Services())  # type: ignore[arg-type]
    held_out = config(validation={"scp": ["worlds:test"], "joint": ["worlds:train+test"]})
    with raises("test-split"):
        material.held_out_pretraining(held_out)
    with raises("test-split"):
        material.held_out(held_out, "joint", Services(), [])


@pytest.mark.parametrize(
    ("stage", "options", "parts"),
    [
        ("scp", {}, PRETRAINED),
        ("instruction", {}, {"compressor", "generator"}),
        pytest.param("instruction", {"trains": "generator"}, {"generator"}, marks=pytest.mark.slow),
        ("supervised", {}, {"reasoner"}),
        ("joint", {}, {"reasoner", "generator"}),
        pytest.param("joint", {"selection": "frozen"}, {"generator"}, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("saved", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_stage_changes_exactly_its_trained_parts(
    toy: ModuleType, config: Any, tmp_path: Path, stage: Any, options: dict[str, Any], parts: set[str], saved: bool
) -> None:
    chosen = config(**{stage: options})
    if saved:
        # What was saved is loaded closed, whatever it was open for before.
        begin(chosen, "scp", None, "cpu").save(tmp_path / "parent")
        chosen = config(**{stage: options}, start=str(tmp_path / "parent"))
    clara = begin(chosen, stage, chosen.start, "cpu")
    expected = {"rows.memory"} if "memory" in parts else set()
    for part in parts - {"memory"}:
        expected |= {name for name, _ in clara.module.named_parameters() if f".{part}." in name}
    assert set(clara.trainable_parameters()) == expected
    run = toy.trainer(chosen, stage, clara, toy.rows_of(stage), tmp_path)
    before = toy.state(clara)
    run.loop.run()
    # Two steps at least: a new adapter's first factor has no gradient while its second is zero.
    assert changed(before, clara) == parts
    assert set(clara.trainable_parameters()) == expected


@pytest.mark.parametrize("stage", ["scp", "instruction"])
def test_text_control_trains_only_the_generator_on_the_same_replies(toy: ModuleType, config: Any, tmp_path: Path, stage: Any) -> None:
    from methods.clara.methods import ClaraText, ClaraTextConfig
    from methods.clara.use import CheckpointOptions, loaded

    chosen = config(reads="text", model={"lora": {"dropout": 0.0}})
    assert chosen.planned == ("scp", "instruction")
    clara = begin(chosen, stage, None, "cpu")
    run = toy.trainer(chosen, stage, clara, toy.rows_of(stage), tmp_path)
    before = toy.state(clara)
    first_rows = run.rows_of(0)[: chosen.instruction.train.batch_size if stage == "instruction" else chosen.scp.train.batch_size]
    first = run._part(run.objective.whole(first_rows), 0.0, 0, 0, first_rows)
    # By hand: every prompt with its documents in words, the mean over the tokens of all replies.
    exchanges = [exchange for row in first_rows for exchange in row.exchanges]
    assert all(exchange.prompt.texts and not exchange.prompt.documents for exchange in exchanges)
    loss = clara.cross_entropy([item.prompt for item in exchanges], None, [item.target for item in exchanges])
    assert first["loss"] == pytest.approx(float(loss.detach()), rel=1e-5)
    assert losses(clara, first_rows, 2) == pytest.approx({"loss": float(loss.detach())}, rel=1e-5)
    run.loop.run()
    assert changed(before, clara) == {"generator"}
    clara.save(tmp_path / "text")
    # It goes on from its own kind alone, answers as it was trained to, and has no memory to give.
    begin(chosen, stage, str(tmp_path / "text"), "cpu")
    with raises("checkpoint-adapters-mismatch"):
        begin(config(), stage, str(tmp_path / "text"), "cpu")
    with raises("checkpoint-part-missing"):
        loaded(CheckpointOptions(model=str(tmp_path / "text")), "cpu")
    reader = ClaraText(ClaraTextConfig(model=str(tmp_path / "text"), max_new_tokens=2), Services(device="cpu"))
    context = Context("q", (Passage("p", "", toy.document(0)),))
    (read,) = reader.read([Query("q", "what is key0")], [context])
    prompt = answer_from_text("what is key0", [toy.document(0)])
    assert read.text == clara.generate([prompt], None, 2)[0].text.strip()


@pytest.mark.slow
def test_joint_training_does_not_change_compressed_documents(toy: ModuleType, config: Any, tmp_path: Path) -> None:
    chosen = config()
    clara = begin(chosen, "joint", None, "cpu")
    texts = [toy.document(number) for number in range(8)]
    with torch.no_grad():
        memory, query = clara.encode(texts).memory, clara.encode(texts, "reasoner").memory
    toy.trainer(chosen, "joint", clara, toy.joint_rows(), tmp_path).loop.run()
    clara.module.eval()
    with torch.no_grad():
        assert torch.equal(clara.encode(texts).memory, memory)
        assert not torch.equal(clara.encode(texts, "reasoner").memory, query)


@pytest.mark.slow
def test_reasoner_starts_as_a_copy_of_the_compressor_or_reset(toy: ModuleType, config: Any, tmp_path: Path) -> None:
    clara = begin(config(), "scp", None, "cpu")
    toy.trainer(config(), "scp", clara, toy.scp_rows(), tmp_path).loop.run()
    torch.manual_seed(0)
    for item in clara.adapters.of("reasoner").values():
        item.data.normal_()
    clara.save(tmp_path / "checkpoint")

    def weights(model: Clara, name: str) -> list[Any]:
        return [item.detach().clone() for item in model.adapters.of(name).values()]

    def same(item: list[Any], other: list[Any]) -> bool:
        return all(torch.equal(a, b) for a, b in zip(item, other, strict=True))

    results = {
        kind: begin(config(joint={"reasoner": kind}), "joint", str(tmp_path / "checkpoint"), "cpu")
        for kind in ("compressor", "random", "kept")
    }
    for model in results.values():
        assert same(weights(model, "compressor"), weights(clara, "compressor"))
    assert same(weights(results["compressor"], "reasoner"), weights(clara, "compressor"))
    assert same(weights(results["kept"], "reasoner"), weights(clara, "reasoner"))
    fresh = weights(results["random"], "reasoner")
    assert not same(fresh, weights(clara, "reasoner"))
    assert not same(fresh, weights(clara, "compressor"))
    assert any(not bool(item.any()) for item in fresh)


@pytest.mark.slow
def test_reinit_generator_resets_it_after_pretraining(toy: ModuleType, config: Any, tmp_path: Path) -> None:
    clara = begin(config(), "scp", None, "cpu")
    toy.trainer(config(), "scp", clara, toy.scp_rows(), tmp_path).loop.run()
    clara.save(tmp_path / "checkpoint")
    for again in (False, True):
        chosen = config(instruction={"reinit_generator": again})
        result = begin(chosen, "instruction", str(tmp_path / "checkpoint"), "cpu").adapters.of("generator")
        second = [item for name, item in result.items() if "lora_B" in name]
        assert all(bool(item.any()) for item in second) is not again


def test_checkpoint_of_another_model_is_refused(toy: ModuleType, config: Any, tmp_path: Path) -> None:
    begin(config(), "scp", None, "cpu").save(tmp_path / "checkpoint")
    with raises("checkpoint-options-mismatch"):
        begin(config(model={"rate": 2}), "joint", str(tmp_path / "checkpoint"), "cpu")


@pytest.mark.slow
def test_checkpoints_before_joint_training_rank_with_the_compressor(toy: ModuleType, config: Any, tmp_path: Path) -> None:
    clara = begin(config(), "scp", None, "cpu")
    toy.trainer(config(), "scp", clara, toy.scp_rows(), tmp_path).loop.run()
    finish(config(), "scp", clara)
    clara.module.eval()
    text = [toy.document(2)]
    memory = clara.encode(text).memory
    assert float(clara.similarity(clara.encode(text, "reasoner").memory, memory.unsqueeze(0))) == pytest.approx(1.0)
