"""Steps whose parts exceed the memory: the loop halves them, and the gradient is that of the undivided batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from methods.training import Silent, parts
from methods.training.loop import Loop, LoopOptions, LoopPlace, Schedule
from methods.training.parts import MicroBatch, TooLarge, over_parts
from tests.support.errors import raises

torch = pytest.importorskip("torch")
ROWS = 24


class Fitted:
    """A line fitted to rows, on a device with memory for a number of them."""

    def __init__(self, size: int, most: int = ROWS) -> None:
        torch.manual_seed(0)
        self.module, self.rows, self.micro, self.most = torch.nn.Linear(3, 1), torch.randn(ROWS, 3), MicroBatch(size, "micro_batch"), most
        self.read: list[int] = []

    def __call__(self, step: int) -> dict[str, float]:
        return over_parts(self.rows.split(self.micro.size), self.learn, None)

    def learn(self, number: int, part: Any) -> dict[str, float]:
        self.read.append(len(part))
        if len(part) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        loss = (self.module(part) - part.sum(1, keepdim=True)).pow(2).sum() / ROWS
        loss.backward()
        return {"loss": float(loss.detach())}

    def loop(self, folder: Path, steps: int = 3) -> Loop:
        options = LoopOptions(steps, 1, Schedule(0.05), save_every=1)
        return Loop({"line": self.module}, options, self, LoopPlace(folder, "same", Silent()), micro=self.micro)


def test_step_out_of_memory_is_repeated_in_halves_with_the_whole_gradient(tmp_path: Path) -> None:
    small, large = Fitted(16, most=7), Fitted(ROWS)
    with pytest.warns(UserWarning, match="micro_batch 16"):
        figures = small.loop(tmp_path)._gradient(0)
    assert figures["loss"] == pytest.approx(large(0)["loss"])
    assert torch.allclose(small.module.weight.grad, large.module.weight.grad, atol=1e-6)
    assert small.read == [16, 8, *[4] * 6]


def test_resumed_training_keeps_the_reduced_micro_batch(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="micro_batch (16|8)"):
        Fitted(16, most=7).loop(tmp_path).run()
    again = Fitted(16, most=7)
    again.loop(tmp_path, steps=3).run()
    assert (again.micro.size, again.read) == (4, [])


def test_part_that_cannot_be_divided_ends_the_training(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="micro_batch 2"), raises("batch-out-of-memory", where="micro_batch"):
        Fitted(2, most=0).loop(tmp_path).run()


def test_out_of_memory_in_another_process_halves_parts_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(full: bool) -> Callable[[Any, Any], list[Any]]:
        return lambda value, process: [value, (full, False, {"loss": 0.25, "rows": 2.0})]

    item = Fitted(8)
    monkeypatch.setattr(parts, "agreed", other(True))
    with pytest.raises(TooLarge) as caught:
        item(0)
    assert (caught.value.largest, caught.value.single) == (8, False)
    monkeypatch.setattr(parts, "agreed", lambda value, process: [value])
    alone = item(0)["loss"]
    monkeypatch.setattr(parts, "agreed", other(False))
    assert item(0) == {"loss": alone + 0.25, "rows": 2.0}
