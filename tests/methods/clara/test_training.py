"""CLaRa's stages: exactly what each trains, what stays as it was, training that goes on where it was cut off."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

torch = pytest.importorskip("torch")

from benchmarks.errors import UserError  # noqa: E402
from methods.api import Services  # noqa: E402
from methods.clara import material  # noqa: E402
from methods.clara.fitting import fits  # noqa: E402
from methods.clara.frozen_documents import FrozenDocuments  # noqa: E402
from methods.clara.model import Clara  # noqa: E402
from methods.clara.prompting import answer  # noqa: E402
from methods.clara.stages import begin, finish, prepare, trained  # noqa: E402
from methods.clara.training import ClaraTraining  # noqa: E402
from methods.clara.training_config import ClaraTrainingConfig  # noqa: E402
from methods.clara.validation import answered, losses, validator  # noqa: E402
from methods.torch_loop import Schedule  # noqa: E402
from methods.training import TRAININGS, Silent, TrainedStage, Workshop  # noqa: E402

PRETRAINED = {"compressor", "generator", "memory"}


def rows_of(toy: ModuleType, stage: str) -> list[Any]:
    made = {"scp": toy.scp_rows, "instruction": toy.instruction_rows}
    return list(made.get(stage, toy.joint_rows)())


def state(clara: Clara) -> dict[str, Any]:
    return {name: one.detach().clone() for name, one in clara.module.state_dict().items()}


def changed(before: dict[str, Any], clara: Clara) -> set[str]:
    """The parts whose tensors are others now; a tensor of the base by its own name."""
    found = set()
    for name, one in clara.module.state_dict().items():
        if not torch.equal(before[name], one):
            part = next((part for part in clara.adapters.names if f".{part}." in name), None)
            found.add("memory" if name == "rows.memory" else part or name)
    return found


# -- schedule and options ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["cosine", "linear"])
def test_a_rate_falls_to_its_floor_and_without_one_as_before(shape: Any) -> None:
    with_floor, without = Schedule(2.0, 10, shape, floor=0.1), Schedule(2.0, 10, shape)
    for step in range(10, 110):
        left = without.rate(step, 110) / 2.0
        assert with_floor.rate(step, 110) == pytest.approx(2.0 * (0.1 + 0.9 * left))
    assert with_floor.rate(110, 110) == pytest.approx(0.2)
    assert with_floor.rate(4, 110) == without.rate(4, 110) == pytest.approx(1.0)
    half = 0.5 * (1 + math.cos(math.pi / 2)) if shape == "cosine" else 0.5
    assert without.rate(60, 110) == pytest.approx(2.0 * half)
    assert Schedule(2.0, 0, "constant", floor=0.1).rate(99, 100) == 2.0


def test_presets_differ_where_paper_and_released_scripts_do() -> None:
    entry = TRAININGS.get("clara")
    paper, released, worlds = (entry.validate({"preset": name}) for name in ("paper", "released", "worlds"))
    assert isinstance(paper, ClaraTrainingConfig)
    assert isinstance(released, ClaraTrainingConfig)
    assert (paper.joint.train.schedule, released.joint.train.schedule) == ("cosine", "constant")
    assert (paper.instruction.reinit_generator, released.instruction.reinit_generator) == (False, True)
    for one in (paper, released):
        assert (one.scp.train.learning_rate, one.joint.train.learning_rate) == (1e-4, 5e-6)
        assert (one.scp.mse, one.scp.naming, one.joint.soft_steps, one.joint.marginal) == (0.1, 0, 0, 0)
        assert (one.scp.train.floor, one.betas, one.weight_decay) == (0.1, (0.9, 0.95), 0)
    worlds.preflight()
    assert (paper.model.mask, released.model.mask) == ("minus_infinity", "algorithm")
    assert paper.validate_on.held_out > 0
    assert worlds.supervised.train.learning_rate > 10 * paper.supervised.train.learning_rate


def test_joint_training_from_pretraining_leaves_instruction_tuning_out(config: Any) -> None:
    entry = TRAININGS.get("clara")
    assert config().stages_of(entry.stages) == ("scp", "instruction", "joint")
    assert config(joint={"init": "scp"}).stages_of(entry.stages) == ("scp", "joint")
    assert config(stages=["scp", "instruction", "supervised"]).stages_of(entry.stages)[-1] == "supervised"
    without = config(scp={"rows": {"mix": "none"}})
    assert without.stages_of(entry.stages) == ("instruction", "joint")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"stages": ["joint", "scp"]}, "in this order"),
        ({"stages": ["joint"]}, "begins from a checkpoint"),
        ({"stages": ["scp", "supervised", "joint"]}, "must be kept"),
        ({"data": {"scp": ["worlds:train"]}}, "has nothing to train on"),
        ({"scp": {"naming_only": 3}}, "weight of naming"),
    ],
)
def test_options_that_cannot_be_carried_out_are_refused(config: Any, given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        config(**given)


def test_a_test_split_is_never_trained_on_or_validated_with(config: Any) -> None:
    for stage in ("scp", "instruction", "joint"):
        data = {"scp": ["worlds:test"], "instruction": ["worlds:test"], "joint": ["worlds:test"]}
        with pytest.raises(UserError, match="test split"):
            material.training_rows(config(data=data), stage, Services())  # type: ignore[arg-type]
    held_out = config(validation={"scp": ["worlds:test"], "joint": ["worlds:train+test"]})
    with pytest.raises(UserError, match="test split"):
        material.held_out_pretraining(held_out)
    with pytest.raises(UserError, match="test split"):
        material.held_out(held_out, "joint", Services(), [])


# -- what is trained -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage", "options", "parts"),
    [
        ("scp", {}, PRETRAINED),
        ("instruction", {}, {"compressor", "generator"}),
        ("instruction", {"freeze_memory": False}, PRETRAINED),
        ("instruction", {"trains": "generator"}, {"generator"}),
        ("supervised", {}, {"reasoner"}),
        ("joint", {}, {"reasoner", "generator"}),
        ("joint", {"selection": "frozen"}, {"generator"}),
    ],
)
@pytest.mark.parametrize("saved", [False, True])
def test_a_stage_changes_exactly_what_it_trains(
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
    run = toy.trainer(chosen, stage, clara, rows_of(toy, stage), tmp_path)
    before = state(clara)
    run.loop.run()
    # Two steps at least: a new adapter's first factor has no gradient while its second is zero.
    assert changed(before, clara) == parts
    assert set(clara.trainable_parameters()) == expected


def test_documents_are_compressed_alike_before_and_after_joint_training(
    toy: ModuleType, config: Any, tmp_path: Path
) -> None:
    chosen = config()
    clara = begin(chosen, "joint", None, "cpu")
    texts = [toy.document(number) for number in range(8)]
    with torch.no_grad():
        memory, asked = clara.encode(texts).memory, clara.encode(texts, "reasoner").memory
    toy.trainer(chosen, "joint", clara, toy.joint_rows(), tmp_path).loop.run()
    clara.module.eval()
    with torch.no_grad():
        assert torch.equal(clara.encode(texts).memory, memory)
        assert not torch.equal(clara.encode(texts, "reasoner").memory, asked)


def test_the_reasoner_begins_as_the_compressor_or_anew(toy: ModuleType, config: Any, tmp_path: Path) -> None:
    clara = begin(config(), "scp", None, "cpu")
    toy.trainer(config(), "scp", clara, toy.scp_rows(), tmp_path).loop.run()
    torch.manual_seed(0)
    for one in clara.adapters.of("reasoner").values():
        one.data.normal_()
    clara.save(tmp_path / "checkpoint")

    def weights(model: Clara, name: str) -> list[Any]:
        return [one.detach().clone() for one in model.adapters.of(name).values()]

    def same(one: list[Any], other: list[Any]) -> bool:
        return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))

    found = {
        kind: begin(config(joint={"reasoner": kind}), "joint", str(tmp_path / "checkpoint"), "cpu")
        for kind in ("compressor", "random", "kept")
    }
    for model in found.values():
        assert same(weights(model, "compressor"), weights(clara, "compressor"))
    assert same(weights(found["compressor"], "reasoner"), weights(clara, "compressor"))
    assert same(weights(found["kept"], "reasoner"), weights(clara, "reasoner"))
    fresh = weights(found["random"], "reasoner")
    assert not same(fresh, weights(clara, "reasoner"))
    assert not same(fresh, weights(clara, "compressor"))
    assert any(not bool(one.any()) for one in fresh)


def test_a_new_generator_behind_pretraining_is_as_a_fresh_one(toy: ModuleType, config: Any, tmp_path: Path) -> None:
    clara = begin(config(), "scp", None, "cpu")
    toy.trainer(config(), "scp", clara, toy.scp_rows(), tmp_path).loop.run()
    clara.save(tmp_path / "checkpoint")
    for again in (False, True):
        chosen = config(instruction={"reinit_generator": again})
        found = begin(chosen, "instruction", str(tmp_path / "checkpoint"), "cpu").adapters.of("generator")
        second = [one for name, one in found.items() if "lora_B" in name]
        assert all(bool(one.any()) for one in second) is not again


def test_a_checkpoint_of_another_model_is_refused(toy: ModuleType, config: Any, tmp_path: Path) -> None:
    begin(config(), "scp", None, "cpu").save(tmp_path / "checkpoint")
    with pytest.raises(UserError, match="other options"):
        begin(config(model={"rate": 2}), "joint", str(tmp_path / "checkpoint"), "cpu")


def test_checkpoints_before_joint_training_rank_by_the_compressor(toy: ModuleType, config: Any, tmp_path: Path) -> None:
    clara = begin(config(), "scp", None, "cpu")
    toy.trainer(config(), "scp", clara, toy.scp_rows(), tmp_path).loop.run()
    finish(config(), "scp", clara)
    clara.module.eval()
    text = [toy.document(2)]
    memory = clara.encode(text).memory
    assert float(clara.similarity(clara.encode(text, "reasoner").memory, memory.unsqueeze(0))) == pytest.approx(1.0)
    chosen = config(joint={"k": 1, "tau": 0.5})
    finish(chosen, "joint", clara)
    assert (clara.config.k, clara.config.tau) == (1, 0.5)


# -- going on ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["scp", "joint"])
@pytest.mark.parametrize("after", [1, 3])
def test_a_stage_that_was_cut_off_ends_bit_for_bit_as_one_that_was_not(
    toy: ModuleType, config: Any, tmp_path: Path, stage: Any, after: int
) -> None:
    chosen = config(model={"lora": {"dropout": 0.2}})
    whole = begin(chosen, stage, None, "cpu")
    run = toy.trainer(chosen, stage, whole, rows_of(toy, stage), tmp_path / "whole")
    run.loop.run()
    curve = run.loop.curve.read_text()

    cut = toy.trainer(chosen, stage, begin(chosen, stage, None, "cpu"), rows_of(toy, stage), tmp_path / "cut")
    step = cut.loop.step

    def until(number: int) -> Any:
        if number == after:
            raise KeyboardInterrupt
        return step(number)

    cut.loop.step = until
    with pytest.raises(KeyboardInterrupt):
        cut.loop.run()
    torch.manual_seed(99)
    again = begin(chosen, stage, None, "cpu")
    resumed = toy.trainer(chosen, stage, again, rows_of(toy, stage), tmp_path / "cut")
    resumed.loop.run()
    assert resumed.loop.curve.read_text() == curve
    for name, one in state(whole).items():
        assert torch.equal(one, again.module.state_dict()[name]), name


def test_points_hold_adapters_and_memory_but_not_the_base(toy: ModuleType, config: Any, tmp_path: Path) -> None:
    clara = begin(config(), "scp", None, "cpu")
    run = toy.trainer(config(), "scp", clara, toy.scp_rows(), tmp_path)
    run.loop.run()
    point = torch.load(run.loop.folder / "point.pt", weights_only=True)
    assert set(point["modules"]["clara"]) == set(clara.trainable_parameters())


def test_frozen_documents_are_encoded_once_and_go_on_in_blocks(tmp_path: Path) -> None:
    asked: list[list[str]] = []

    def encode(texts: Sequence[str]) -> Any:
        asked.append(list(texts))
        if len(asked) == 2:
            raise KeyboardInterrupt
        return torch.tensor([[[float(len(text)), 1.0]] * 3 for text in texts])

    texts = ["a", "bb", "ccc", "bb", "dddd", "eeeee"]
    given = ((3, 2), torch.float32, tmp_path, 2, Silent())
    with pytest.raises(KeyboardInterrupt):
        FrozenDocuments(texts, encode, *given)
    found = FrozenDocuments(texts, encode, *given)
    assert asked == [["a", "bb"], ["ccc", "dddd"], ["ccc", "dddd"], ["eeeee"]]
    assert len(found) == 5
    assert found.of(["eeeee", "bb"])[:, 0, 0].tolist() == [5.0, 2.0]
    FrozenDocuments(texts, encode, *given)
    assert len(asked) == 4
    with pytest.raises(KeyError):
        found.of(["unknown"])


def test_documents_that_do_not_fit_the_disk_are_refused_before_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=100))
    with pytest.raises(UserError, match="memory of the candidates takes"):
        FrozenDocuments(["a", "b", "c"], lambda texts: pytest.fail("encoded"), (3, 4), torch.float32, tmp_path, 2,
                        Silent())  # fmt: skip


@pytest.mark.parametrize("stage", ["supervised", "joint"])
def test_documents_encoded_anew_teach_what_kept_ones_do(
    toy: ModuleType, config: Any, tmp_path: Path, stage: Any
) -> None:
    ended = []
    for way in ("kept", "anew"):
        chosen = config(**{stage: {"documents": way}})
        clara = begin(chosen, stage, None, "cpu")
        run = toy.trainer(chosen, stage, clara, rows_of(toy, stage), tmp_path / way)
        run.loop.run()
        ended.append(state(clara))
        assert (tmp_path / way / "documents").exists() == (way == "kept")
    for name, one in ended[0].items():
        torch.testing.assert_close(ended[1][name], one, rtol=1e-3, atol=1e-5)


# -- from end to end -----------------------------------------------------------------------------------------------


def test_three_stages_end_in_checkpoints_and_are_taken_over(
    toy: ModuleType, config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(material, "training_rows", lambda config, stage, services: (rows_of(toy, stage), ["data"]))
    monkeypatch.setattr(material, "held_out", lambda config, stage, services, rows: toy.joint_rows(3))
    shop = Workshop(tmp_path / "work", tmp_path / "checkpoints", Services(device="cpu"))

    def run() -> list[TrainedStage]:
        return list(ClaraTraining(config()).run(shop))

    stages = run()
    assert [one.stage for one in stages] == ["scp", "instruction", "joint"]
    assert all(one.fresh for one in stages)
    for one in stages:
        lines = [json.loads(line) for line in (one.folder / "curve.jsonl").read_text().splitlines()]
        assert [line["step"] for line in lines if "loss" in line] == list(range(4))
        assert one.figures["steps"] == 4
        assert math.isfinite(one.figures["loss"])
        assert "validation_cover_em" in one.figures
        assert one.figures["validation_answer_loss"] > 0
        assert (one.folder / "README.md").is_file()
    assert "validation_recall@1" in stages[2].figures
    assert "validation_recall@1" not in stages[1].figures
    scp, instruction, joint = (Clara.load(one.folder, "cpu") for one in stages)
    assert torch.equal(scp.module.rows.memory, joint.module.rows.memory)
    texts = [toy.document(4)]
    with torch.no_grad():
        assert torch.equal(instruction.encode(texts).memory, joint.encode(texts).memory)
        assert not torch.equal(scp.encode(texts).memory, joint.encode(texts).memory)
    supervised = config(stages=["supervised"], start=str(stages[0].folder))
    alone = {name: value for name, value in supervised.model_dump().items() if name != "model"}
    other = Workshop(tmp_path / "other", tmp_path / "more", Services(device="cpu"))
    (found,) = ClaraTraining(ClaraTrainingConfig.model_validate(alone)).run(other)
    assert (found.stage, Clara.load(found.folder, "cpu").config) == ("supervised", scp.config)
    again = run()
    assert [one.fresh for one in again] == [False] * 3
    assert [one.figures for one in again] == [one.figures for one in stages]
    assert not list((tmp_path / "work").glob("*/documents-*"))


def test_without_pretraining_memory_tokens_are_trained_with_the_compressor(config: Any) -> None:
    assert trained(config(stages=("scp", "instruction")), "instruction") == {"compressor", "generator"}
    never = config(stages=("instruction",), scp={"rows": {"mix": "none"}})
    assert trained(never, "instruction") == PRETRAINED
    kept = config(stages=("instruction",), start="somewhere")
    assert trained(kept, "instruction") == {"compressor", "generator"}
    frozen = config(stages=("instruction",), scp={"rows": {"mix": "none"}}, instruction={"trains": "generator"})
    assert trained(frozen, "instruction") == {"generator"}


def test_rows_are_set_aside_whole_and_only_where_no_validation_is_named(toy: ModuleType, config: Any) -> None:
    rows = toy.scp_rows()
    for stage, unit in (("scp", "document"), ("joint", "question")):
        rows = rows_of(toy, stage)
        units = {getattr(row, unit) for row in rows}
        asked = config(validate_on={"held_out": 2})
        learnt, aside = material.set_aside(asked, stage, [*rows, *rows])
        assert len(learnt) + len(aside) == 2 * len(rows)
        assert len({getattr(row, unit) for row in aside}) == 2
        assert not {getattr(row, unit) for row in aside} & {getattr(row, unit) for row in learnt}
        assert material.set_aside(asked, stage, [*rows, *rows]) == (learnt, aside)
        assert material.set_aside(config(), stage, rows) == (rows, [])
        named = config(validate_on={"held_out": 2}, validation={stage: ["worlds:validation"]})
        assert material.set_aside(named, stage, rows) == (rows, [])
        with pytest.raises(UserError, match="to be set aside"):
            material.set_aside(config(validate_on={"held_out": len(units)}), stage, rows)


def test_what_is_too_long_is_refused_before_the_first_step_or_left_out(
    toy: ModuleType, config: Any, tmp_path: Path
) -> None:
    long = "what is the value of " + " ".join(["key1"] * 600)
    for stage in ("instruction", "joint"):
        rows = rows_of(toy, stage)
        spoilt = [replace(rows[0], question=long), *rows]
        clara = begin(config(), stage, None, None)
        with pytest.raises(UserError, match="1 prompts are too long"):
            prepare(config(), stage, clara, spoilt, tmp_path / stage, Silent())
        kept = prepare(config(skip_long=True), stage, clara, spoilt, tmp_path / stage, Silent())
        assert len(kept.rows) == len(prepare(config(), stage, clara, rows, tmp_path / stage, Silent()).rows)
        with pytest.raises(UserError, match="no row fits"):
            prepare(config(skip_long=True), stage, clara, spoilt[:1], tmp_path / stage, Silent())


@pytest.mark.parametrize("question", ["what is the value of key1", "ünknöwn " * 90, "key2 " * 300, "?" * 2000])
def test_a_row_fits_exactly_where_its_tokens_do(toy: ModuleType, config: Any, question: str) -> None:
    generator = begin(config(), "joint", None, None).generator
    decide = fits(generator)
    for documents in (1, 2, 40):
        prompt = answer(question, documents)
        for target in ("value1", "value1 " * 200):
            assert decide(prompt, target) == (generator.length(prompt, target) <= generator.room)


def test_held_out_figures_are_those_of_answers_and_of_the_choice(toy: ModuleType, config: Any) -> None:
    clara = begin(config(), "joint", None, "cpu")
    options = config().validate_on
    rows = toy.joint_rows(6)
    figures = answered(clara, rows, options, selects=True)
    assert figures["recall@3"] >= figures["recall@1"]
    assert figures["recall@5"] == 1.0
    assert 0 <= figures["cover_em"] <= 1
    assert validator(clara, [], [], options, selects=True) is None
    ready = prepare(config(), "scp", clara, toy.scp_rows(4), Path("unused"), Silent())
    found = losses(clara, ready.rows, 3)
    whole = losses(clara, ready.rows, 4)
    assert found == pytest.approx(whole, rel=1e-5)
