"""SARK's training loop: it learns, resumes after interruptions, and agrees across precisions and processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from methods.sark.model import encoder_of
from methods.sark.train import SarkTrainer
from methods.training.ranks import accelerator

torch = pytest.importorskip("torch")


@pytest.mark.slow
def test_training_learns_labels_and_orders_in_both_styles(toy: ModuleType, base: str, tmp_path: Path) -> None:
    train = {"epochs": 25, "learning_rate": 3e-3, "save_every": 1000, "keep": "f1"}
    config = toy.calm(base, train=train, validation=["worlds/style:validation"])
    item = toy.trainer(config, tmp_path, validate=True)
    item.loop.run()
    curve = toy.lines(item)
    steps = [line for line in curve if "loss" in line]
    assert steps[0]["list_loss"] == pytest.approx(0.7, abs=0.1)
    assert steps[-1]["list_loss"] < 0.35
    assert steps[-1]["passage_loss"] < 0.3
    last = curve[-1]
    assert last["validation_f1"] == 1.0
    assert last["validation_order"] > 0.8
    assert len({step["lambda"] for step in steps}) > 10
    assert all(0 <= step["lambda"] <= 1 and -1 <= step["cosine"] <= 1 for step in steps)


def cut(item: SarkTrainer, last: int) -> None:
    """Run until a step and interrupt."""
    step = item.loop.step

    def until(number: int) -> Any:
        if number == last:
            raise KeyboardInterrupt
        return step(number)

    item.loop.step = until
    with pytest.raises(KeyboardInterrupt):
        item.loop.run()


@pytest.mark.slow
def test_interrupted_training_ends_bit_identical(toy: ModuleType, base: str, tmp_path: Path) -> None:
    config = toy.options(
        base, train={"batch_size": 2, "accumulation": 2, "epochs": 3, "keep": "order"}, validation=["worlds/style:validation"]
    )
    whole = toy.trainer(config, tmp_path / "whole", validate=True)
    whole.loop.run()
    other = toy.trainer(config.model_copy(update={"seed": 4}), tmp_path / "other", validate=True)
    assert other.loop._stepped(0)["loss"] != toy.lines(whole)[0]["loss"]
    cut(toy.trainer(config, tmp_path / "cut", validate=True), 3)
    resumed = toy.trainer(config, tmp_path / "cut", validate=True)
    resumed.loop.run()
    for name, weight in toy.weights(whole).items():
        assert torch.equal(weight, toy.weights(resumed)[name]), name
    assert resumed.loop.curve.read_text() == whole.loop.curve.read_text()


@pytest.mark.slow
def test_best_epoch_is_kept(toy: ModuleType, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = toy.options(base, train={"epochs": 4, "keep": "f1"}, validation=["worlds/style:validation"])
    item = toy.trainer(config, tmp_path, validate=True)
    scripted = iter([0.1, 0.7, 0.7, 0.4])
    kept: list[dict[str, Any]] = []

    def validate() -> dict[str, float]:
        kept.append(toy.weights(item))
        return {"validation_f1": next(scripted)}

    item.loop.validate = validate
    figures = item.loop.run()
    assert figures["steps"] == 4
    assert figures["validation_f1"] == 0.7
    assert all(torch.equal(weight, kept[1][name]) for name, weight in toy.weights(item).items())


@pytest.mark.slow
def test_mixed_precision_training_is_close_to_full_precision(toy: ModuleType, base: str, tmp_path: Path) -> None:
    curves = []
    for precision in ("no", "bf16"):
        config = toy.calm(base, train={"precision": precision, "epochs": 3})
        item = toy.trainer(config, tmp_path / precision, process=accelerator(precision, "cpu"))
        item.loop.run()
        curves.append([(line["loss"], line["lambda"]) for line in toy.lines(item)])
    assert np.array(curves[1]) == pytest.approx(np.array(curves[0]), abs=0.05)
    assert curves[0] != curves[1]


@pytest.mark.slow
def test_gradient_scaling_does_not_change_lambda_and_norms(toy: ModuleType, base: str, tmp_path: Path) -> None:
    class Scaler:
        def get_scale(self) -> float:
            return 1024.0

    class Scaling:
        """Simulate accelerate's gradient scaling in half precision, without its rounding."""

        scaler, num_processes, process_index = Scaler(), 1, 0

        def backward(self, loss: Any) -> None:
            (1024.0 * loss).backward()

        def autocast(self) -> Any:
            from contextlib import nullcontext

            return nullcontext()

        def prepare(self, item: Any) -> Any:
            return item

    plain = toy.trainer(toy.calm(base), tmp_path / "a").loop.step(0)
    assert toy.trainer(toy.calm(base), tmp_path / "b", process=Scaling()).loop.step(0) == pytest.approx(plain, rel=1e-3)


@pytest.mark.slow
def test_overflowed_gradients_are_not_logged_and_do_not_stop_training(
    toy: ModuleType, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = toy.trainer(toy.calm(base), tmp_path)
    backward = item.objective.backward

    def overflowing(groups: Any, seed: Any) -> float:
        loss = backward(groups, seed)
        if seed[-1] == "list":
            next(encoder_of(item.objective.model).parameters()).grad.fill_(float("inf"))
        return loss

    monkeypatch.setattr(item.objective, "backward", overflowing)
    figures = item.loop.step(0)
    assert figures["lambda"] == 0.5
    assert not {"passage_gradient", "list_gradient", "cosine"} & set(figures)
    assert np.isfinite(figures["loss"])


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_two_processes_end_with_the_weights_of_one(toy: ModuleType, base: str, in_two: Callable[..., Any]) -> None:
    """A process group shares the parts of a batch; λ, gradient and metrics equal those of the whole."""
    program = f"""
import importlib.util, sys
from pathlib import Path
import torch
from methods.training.ranks import accelerator
from tests.support.cut import Cut
spec = importlib.util.spec_from_file_location("here", {toy.__file__!r})
here = importlib.util.module_from_spec(spec)
spec.loader.exec_module(here)
config = here.options({base!r}, train={{"token_budget": 400, "save_every": 1}})
cut = Cut(1)
for attempt in range(2):
    one = here.trainer(config, Path(sys.argv[1]), here.CONTRARY, accelerator("no", "cpu"), progress=cut)
    try:
        one.loop.run()
    except KeyboardInterrupt:
        assert not attempt
if one.objective.accelerator.is_main_process:
    torch.save((one.objective.accelerator.num_processes, here.weights(one)), sys.argv[1] + ".pt")
"""
    result, curves = [], []
    for count, folder in enumerate(in_two(program), 1):
        processes, weights = torch.load(f"{folder}.pt", weights_only=True)
        assert processes == count
        result.append(weights)
        text = (folder / "curve.jsonl").read_text()
        steps = [json.loads(line) for line in text.splitlines()]
        curves.append([[step[name] for name in ("loss", "lambda", "cosine")] for step in steps])
    assert np.array(curves[0]) == pytest.approx(np.array(curves[1]), abs=1e-4)
    for name, weight in result[0].items():
        # AdamW divides by the gradient's size, so that rounding of tiny gradients shows.
        assert torch.allclose(weight, result[1][name], atol=5e-4), name
