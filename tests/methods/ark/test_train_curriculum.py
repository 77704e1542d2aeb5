"""ARK's trainer: gradients of split batches, interrupted and resumed stages, learning."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from methods.ark.config import ArkTrainingConfig
from methods.ark.data import TrainRow, plan
from methods.ark.loss import batch_of, info_nce
from methods.ark.tower import Prompts, Tower, load_tower
from methods.ark.train import StagePlan, StageTrainer
from methods.training import Silent
from methods.training.loop import LoopPlace
from methods.training.ranks import accelerator

torch = pytest.importorskip("torch")

TEXTS = {
    "c0": "the old stone bridge",
    "c1": "moss grows on the north side",
    "c2": "a painter lived by the river",
    "c3": "the cabin is cold",
    "c4": "born in the year of the long bridge",
    "c5": "not a town in the world",
}
QUERIES = {"a": "where was the bridge ?", "b": "who lived by the river ?"}


@pytest.fixture(scope="module", params=["Bert", pytest.param("Qwen3", marks=pytest.mark.slow)])
def folder(request: Any, tiny_models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a tiny encoder: absolute positions with mean pooling, or rotary ones with the last token."""
    import transformers

    torch.manual_seed(1)
    path = tmp_path_factory.mktemp(request.param)
    style = {"Bert": "bert", "Qwen3": "qwen3"}[request.param]
    size = len(tiny_models.tokenizer(style))
    more = {"head_dim": 8, "num_key_value_heads": 2} if request.param == "Qwen3" else {}
    model = getattr(transformers, f"{request.param}Model")(tiny_models.config(request.param, size, **more))
    tiny_models.save(path, style, model)
    tiny_models.layout(path, 64, [tiny_models.pooling("mean" if request.param == "Bert" else "lasttoken")], {})
    return path


def options(folder: Path, loss: dict[str, Any] | None = None, **train: Any) -> ArkTrainingConfig:
    settings = {"epochs": [2] * 3, "learning_rate": [1e-3] * 3, "batch_size": 4, "save_every": 1, "micro_batch": 2, **train}
    return ArkTrainingConfig(data=("worlds/long:train",), base=str(folder), loss=loss or {}, train=settings, seed=3)


def rows(stage: str = "stage2") -> list[TrainRow]:
    made = []
    for question, positives in (("a", ("c0", "c4")), ("b", ("c2",))):
        for positive in positives:
            negatives = tuple(text for text in TEXTS if text not in positives)[:3]
            made.append(TrainRow(question, "d", stage, QUERIES[question], positive, negatives, positives))
    return made


def tower(config: ArkTrainingConfig, process: Any = None) -> Tower:
    return Tower(load_tower(config.encoder, "cpu"), Prompts("", ""), config.train, process)


def trainer(config: ArkTrainingConfig, folder: Path, stage: str = "stage2", epochs: int = 6, **more: Any) -> StageTrainer:
    plan_ = StagePlan(stage, rows(stage), epochs, config.train.learning_rate[0], 0.1)
    return StageTrainer(tower(config), plan_, TEXTS, config, LoopPlace(folder, "same", Silent(), **more))


def gradients(model: Any) -> dict[str, Any]:
    return {name: item.grad.clone() for name, item in model.named_parameters() if item.grad is not None}


def without_dropout(model: Any) -> Any:
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model.train()


@pytest.mark.slow
@pytest.mark.parametrize("held", [1, 10_000])
@pytest.mark.parametrize(("share", "recompute"), [("all", False), ("none", True)])
def test_gradient_of_a_split_batch_equals_that_of_the_whole(folder: Path, held: int, share: str, recompute: bool) -> None:
    """Compare with one pass: with gradient caching (few tokens held) and without it, with and without recomputed activations."""
    config = options(folder, {"in_batch": [share] * 3, "temperature": 0.1}, held_tokens=held, recompute=recompute)
    batch = batch_of(rows(), TEXTS, config.loss)
    pieces = tower(config)
    without_dropout(pieces.model)
    value = pieces.backward(batch, 0.1, (0,))
    whole = without_dropout(tower(config).model)

    def encoded(texts: tuple[str, ...]) -> Any:
        return torch.nn.functional.normalize(whole(whole.preprocess(list(texts)))["sentence_embedding"], dim=1)

    expected = info_nce(encoded(batch.queries), encoded(batch.documents), batch, 0.1)
    expected.backward()
    assert value == pytest.approx(float(expected.detach()), abs=1e-5)
    wanted = gradients(whole)
    result = gradients(pieces.model)
    assert set(result) == set(wanted)
    for name, gradient in wanted.items():
        assert torch.allclose(result[name], gradient, atol=1e-5), name


def test_step_repeated_after_out_of_memory_keeps_gradient_and_batch_negatives(folder: Path, tmp_path: Path) -> None:
    config = options(folder, {"in_batch": ["all"] * 3, "temperature": 0.1}, held_tokens=10_000, micro_batch=4)
    small, whole = trainer(config, tmp_path / "small"), trainer(config, tmp_path / "whole")
    encode = small.tower._encode

    def limited(micro: Any, seed: Any) -> Any:
        if len(micro.texts) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return encode(micro, seed)

    small.tower._encode = limited
    for item in (small, whole):
        without_dropout(item.tower.model)
    with pytest.warns(UserWarning, match=r"train\.micro_batch 4"):
        small.loop._gradient(0)
    whole.loop._gradient(0)
    assert small.tower.micro.size == 1
    expected = gradients(whole.tower.model)
    result = gradients(small.tower.model)
    assert expected
    assert all(torch.allclose(result[name], gradient, atol=1e-5) for name, gradient in expected.items())


def test_gradient_caching_repeats_dropout_and_scales_each_part_by_its_share(folder: Path) -> None:
    results = []
    for held, scale, process in ((1, 1.0, None), (10_000, 0.25, None), (10_000, 0.25, accelerator("no", "cpu"))):
        item = tower(options(folder, {"in_batch": ["all"] * 3, "temperature": 0.1}, held_tokens=held), process)
        item.model.train()
        item.backward(batch_of(rows(), TEXTS, options(folder).loss), 0.1, (5, "stage2", 0), scale)
        results.append(gradients(item.model))
    for name, gradient in results[0].items():
        for part in results[1:]:
            assert torch.allclose(part[name], 0.25 * gradient, atol=1e-6), name


def test_long_text_counts_as_what_is_read_of_it_without_a_warning(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import tokenization_utils_base

    warned: list[str] = []
    monkeypatch.setattr(tokenization_utils_base.logger, "warning", lambda message, *rest: warned.append(message))
    encoder = tower(options(folder, max_length=8))
    assert encoder.length("the old stone bridge " * 10) == 8
    assert encoder.length("the bridge") < 8
    assert warned == []


@pytest.mark.slow
def test_accumulated_batches_give_the_mean_of_their_losses_not_the_loss_of_the_large_batch(folder: Path, tmp_path: Path) -> None:
    loss = {"in_batch": ["all"] * 3, "temperature": 0.1}
    config = options(folder, loss, batch_size=2, accumulation=2, weight_decay=0.0)
    item = trainer(config, tmp_path, epochs=1)
    without_dropout(item.tower.model)
    item.tower.model.train = lambda *_: item.tower.model  # type: ignore[method-assign]
    positions = plan(rows(), config.train, 1, config.seed, "stage2").steps[0]
    separate = []
    for batch in positions:
        fresh = tower(config)
        without_dropout(fresh.model)
        separate.append(fresh.backward(batch_of([rows()[p] for p in batch], TEXTS, config.loss), 0.1, (0,)))
    fresh = tower(config)
    without_dropout(fresh.model)
    together = fresh.backward(batch_of([rows()[p] for b in positions for p in b], TEXTS, config.loss), 0.1, (0,))
    step = item.loop.step(0)
    assert step["loss"] == pytest.approx(sum(separate) / len(separate), abs=1e-5)
    assert abs(step["loss"] - together) > 1e-3


@pytest.mark.slow
def test_interrupted_stage_ends_with_the_same_weights(folder: Path, tmp_path: Path) -> None:
    config = options(folder)
    whole = trainer(config, tmp_path / "whole", "stage1")
    whole.loop.run()
    other = trainer(config.model_copy(update={"seed": 4}), tmp_path / "other", "stage1")
    assert other.loop._stepped(0)["loss"] != json.loads(whole.loop.curve.read_text().splitlines()[0])["loss"]
    prepared = trainer(config, tmp_path / "cut", "stage1")
    reached = iter(range(4))
    step = prepared.loop.step

    def cut(number: int) -> Any:
        if next(reached, None) is None:
            raise KeyboardInterrupt
        return step(number)

    prepared.loop.step = cut  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        prepared.loop.run()
    resumed = trainer(config, tmp_path / "cut", "stage1")
    resumed.loop.run()
    for name, weight in whole.tower.model.state_dict().items():
        assert torch.equal(weight, resumed.tower.model.state_dict()[name]), name
    assert resumed.loop.curve.read_text() == whole.loop.curve.read_text()


@pytest.mark.slow
def test_one_step_lowers_the_loss_and_twenty_steps_fit_two_questions(folder: Path, tmp_path: Path) -> None:
    config = options(folder, {"in_batch": ["none"] * 3, "temperature": 0.1}, learning_rate=[5e-3] * 3)
    item = trainer(config, tmp_path, epochs=20)
    without_dropout(item.tower.model)
    figures = item.loop.run()
    losses = [json.loads(line)["loss"] for line in item.loop.curve.read_text().splitlines()]
    assert len(losses) == 20
    assert losses[2] < losses[0]
    assert figures["loss"] < 0.2 * losses[0]


def test_metrics_of_held_out_questions_are_logged_after_each_epoch(folder: Path, tmp_path: Path) -> None:
    item = trainer(options(folder), tmp_path, epochs=3, validate=lambda: {"validation_recall@5": 0.5})
    assert item.loop.run()["validation_recall@5"] == 0.5
    lines = [json.loads(line) for line in item.loop.curve.read_text().splitlines()]
    assert [line["step"] for line in lines if "validation_recall@5" in line] == [0, 1, 2]
