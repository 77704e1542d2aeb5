"""SARK's steps on a device with too little memory: smaller parts, the same gradient, and the same training."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from methods.sark.train import SarkTrainer
from tests.support.errors import raises

torch = pytest.importorskip("torch")


class Small:
    """Device whose memory takes a number of tokens; a chosen forward pass always fails."""

    def __init__(self, item: SarkTrainer, most: int, fails: int | None = None) -> None:
        self._logits, self._most, self.fails = item.objective.logits, most, fails
        self.read: list[int] = []
        self.failed = 0

    def __call__(self, pairs: Any) -> Any:
        self.read.append(len(pairs) * max(len(pair["input_ids"]) for pair in pairs))
        if self.read[-1] > self._most or len(self.read) == self.fails:
            self.failed += 1
            raise torch.OutOfMemoryError("CUDA out of memory")
        return self._logits(pairs)


@pytest.mark.parametrize(
    ("budget", "most", "fails"),
    [(10_000, 400, None), *(pytest.param(*item, marks=pytest.mark.slow) for item in ((900, 10_000, 3), (250, 10_000, 2)))],
)
def test_step_that_exceeds_memory_is_repeated_in_smaller_parts(
    toy: ModuleType, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: int, most: int, fails: int | None
) -> None:
    config = toy.calm(base, train={"token_budget": budget})
    item = toy.trainer(config, tmp_path, toy.CONTRARY)
    small = Small(item, most, fails)
    monkeypatch.setattr(item.objective, "logits", small)
    with pytest.warns(UserWarning, match="too much for the memory") as responses:
        figures = item.loop._gradient(0)
    assert len(responses) == 1
    # Halved is what was read, not a budget far above it.
    assert small.failed == 1
    # λ and the gradient are of the whole batch: of each task once, however often it began.
    whole = toy.Whole(config, toy.CONTRARY)
    assert figures["lambda"] == pytest.approx(whole.weight(), abs=2e-4)
    assert figures["passage_loss"] == pytest.approx(whole.passage.item(), abs=1e-6)
    assert figures["list_loss"] == pytest.approx(whole.list.item(), abs=1e-6)
    (figures["lambda"] * whole.passage + figures["1-lambda"] * whole.list).backward()
    expected, result = toy.gradients(whole.model), toy.gradients(item.objective.model)
    assert set(result) == set(expected)
    for name, gradient in expected.items():
        assert torch.allclose(result[name], gradient, atol=1e-5, rtol=1e-3), name
    # What comes later is read in smaller parts from the start, and nothing more is said.
    small.read.clear()
    small.fails = None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        item.loop.step(1)
    assert max(small.read) <= max(min(most, budget // 2), 6 * 64)
    assert item.config.train.token_budget == budget


@pytest.mark.slow
def test_reduced_part_size_keeps_the_training_identity(toy: ModuleType, base: str, tmp_path: Path) -> None:
    config = toy.options(base, train={"epochs": 4, "batch_size": 4, "save_every": 1})
    item = toy.trainer(config, tmp_path)
    item.objective.logits = Small(item, 400)
    with pytest.warns(UserWarning, match="too much for the memory"):
        item.loop.run()
    assert [line["step"] for line in toy.lines(item)] == list(range(8))
    assert toy.trainer(config, tmp_path).loop._resume() == 8


@pytest.mark.parametrize("most", [10, 60])
def test_memory_error_is_raised_if_not_even_one_list_fits(
    toy: ModuleType, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    item = toy.trainer(toy.options(base), tmp_path)
    monkeypatch.setattr(item.objective, "logits", Small(item, most))
    with pytest.warns(UserWarning, match="too much for the memory"), raises("batch-out-of-memory"):
        item.loop._gradient(0)
