"""The loop that all trainings share: learning rates, resume points, validation, the best weights."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from methods.training import Silent
from methods.training.loop import KeepBest, Loop, LoopOptions, LoopPlace, Schedule, adamw, loop_over_rows
from methods.training.ranks import accelerator
from tests.support.errors import raises

torch = pytest.importorskip("torch")

OPTIONS = LoopOptions(12, 4, Schedule(0.05, 0.25, "linear"), save_every=3)


def modules() -> dict[str, Any]:
    torch.manual_seed(2)
    return {"left": torch.nn.Linear(3, 2), "right": torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Dropout(0.3))}


def step_of(parts: Mapping[str, Any]) -> Callable[[int], dict[str, float]]:
    """Fit the sum of three numbers; rows and dropout are drawn from the step."""

    def step(number: int) -> dict[str, float]:
        torch.manual_seed(number)
        value = torch.randn(8, 3)
        loss = (parts["right"](parts["left"](value)) - value.sum(1, keepdim=True)).pow(2).mean()
        loss.backward()
        return {"loss": float(loss.detach()), "size": 8.0}

    return step


def loop(folder: Path, options: LoopOptions = OPTIONS, identity: str = "same", **more: Any) -> Loop:
    parts = modules()
    return Loop(parts, options, step_of(parts), LoopPlace(folder, identity, Silent(), **more), "this")


def weights(item: Loop) -> Any:
    return torch.cat([parameter.detach().flatten() for parameter in item.parameters()])


def lines(item: Loop) -> list[dict[str, float]]:
    return [json.loads(line) for line in item.curve.read_text().splitlines()]


def scripted(figures: list[float]) -> Callable[[], dict[str, float]]:
    left = iter(figures)
    return lambda: {"f1": next(left)}


def refuse(number: int) -> dict[str, float]:
    raise RuntimeError(f"step {number} is done")


def cut(item: Loop, after: int) -> Loop:
    """Run until a step that is not reached."""
    step = item.step

    def until(number: int) -> Any:
        if number == after:
            raise KeyboardInterrupt
        return step(number)

    item.step = until
    with pytest.raises(KeyboardInterrupt):
        item.run()
    return item


@pytest.mark.parametrize("after", [1, 3, 5, 11])
@pytest.mark.parametrize("keep", [None, KeepBest("f1")])
def test_training_interrupted_at_any_step_ends_with_the_same_weights_and_curve(after: int, keep: KeepBest | None, tmp_path: Path) -> None:
    options = replace(OPTIONS, keep_best=keep)

    def made(name: str) -> Loop:
        item = loop(tmp_path / name, options, validate=dict)
        item.validate = lambda: {"f1": -abs(float(weights(item).sum()) - 2.0)}
        return item

    whole = made("whole")
    whole.run()
    cut(made("cut"), after)
    resumed = made("cut")
    resumed.run()
    assert torch.equal(weights(resumed), weights(whole))
    assert resumed.curve.read_text() == whole.curve.read_text()


@pytest.mark.slow
def test_all_modules_are_trained_and_the_curve_has_every_step(tmp_path: Path) -> None:
    item = loop(tmp_path, replace(OPTIONS, steps=200, epoch=100))
    before = [parameter.detach().clone() for parameter in item.parameters()]
    figures = item.run()
    assert all(not torch.equal(old, new) for old, new in zip(before, item.parameters(), strict=True))
    results = lines(item)
    assert [line["step"] for line in results] == list(range(200))
    assert set(results[0]) == {"step", "loss", "size", "learning_rate", "gradient_norm"}
    assert figures["loss"] == pytest.approx(sum(line["loss"] for line in results[100:]) / 100)
    assert figures["loss"] < 0.7 * results[0]["loss"]


def test_weights_equal_those_of_a_hand_written_loop(tmp_path: Path) -> None:
    """The bare loop applies learning rate, clipping and AdamW in their usual order."""
    item = loop(tmp_path, replace(OPTIONS, decayed="all", max_grad_norm=0.5))
    item.run()
    parts = modules()
    parameters = [p for part in parts.values() for p in part.parameters()]
    optimizer = torch.optim.AdamW(parameters, weight_decay=0.01)
    step = step_of(parts)
    for number in range(12):
        optimizer.param_groups[0]["lr"] = 0.05 * ((number + 1) / 3 if number < 3 else 1 - (number - 3) / 9)
        optimizer.zero_grad()
        step(number)
        torch.nn.utils.clip_grad_norm_(parameters, 0.5)
        optimizer.step()
    assert torch.allclose(weights(item), torch.cat([p.detach().flatten() for p in parameters]), atol=1e-6)


def test_accelerate_gives_the_same_weights_in_one_process_without_mixed_precision(tmp_path: Path) -> None:
    plain, under = loop(tmp_path / "a"), loop(tmp_path / "b", accelerator=accelerator("no", "cpu"))
    plain.run()
    under.run()
    assert torch.equal(weights(plain), weights(under))


def test_resume_point_of_another_training_is_ignored(tmp_path: Path) -> None:
    loop(tmp_path).run()
    other = loop(tmp_path, identity="another")
    other.step = refuse
    with pytest.raises(RuntimeError, match="step 0"), pytest.warns(UserWarning, match="first step"):
        other.run()


@pytest.mark.parametrize("left", [0, 0.5])
def test_damaged_resume_point_is_refused(left: float, tmp_path: Path) -> None:
    loop(tmp_path).run()
    point = tmp_path / "point.pt"
    point.write_bytes(point.read_bytes()[: int(left * point.stat().st_size)])
    with raises("unreadable-snapshot"):
        loop(tmp_path).run()


def test_finished_training_is_not_repeated_and_deletes_its_resume_points(tmp_path: Path) -> None:
    first = loop(tmp_path, replace(OPTIONS, keep_best=KeepBest("f1")), validate=scripted([1, 2, 3]))
    first.run()
    again = loop(tmp_path, replace(OPTIONS, keep_best=KeepBest("f1")), validate=scripted([]))
    again.step = refuse
    again.run()
    assert torch.equal(weights(first), weights(again))
    again.forget()
    assert not list(tmp_path.glob("*.pt"))
    assert again.curve.exists()


def test_result_has_the_weights_of_the_best_validation(tmp_path: Path) -> None:
    for lowest, position in ((False, 1), (True, 2)):
        seen: list[Any] = []
        item = loop(tmp_path / str(lowest), replace(OPTIONS, keep_best=KeepBest("f1", lowest)), validate=dict)
        script = iter([0.5, 0.9, 0.1])

        def validate(item: Loop = item, seen: list[Any] = seen, script: Any = script) -> dict[str, float]:
            seen.append(weights(item).clone())
            return {"f1": next(script)}

        item.validate = validate
        figures = item.run()
        assert torch.equal(weights(item), seen[position])
        assert not torch.equal(seen[position], seen[0])
        assert figures["f1"] == (0.1 if lowest else 0.9)
        assert len(list((tmp_path / str(lowest)).glob("best-*.pt"))) == 1


def test_first_of_equal_validations_is_kept(tmp_path: Path) -> None:
    item = loop(tmp_path, replace(OPTIONS, keep_best=KeepBest("f1")), validate=scripted([0.5, 0.5, 0.5]))
    item.run()
    assert [path.name for path in tmp_path.glob("best-*.pt")] == ["best-3.pt"]


def test_dropout_is_active_in_steps_and_off_in_validation(tmp_path: Path) -> None:
    item = loop(tmp_path)
    step, right = item.step, item.modules["right"]
    item.step = lambda number: {**step(number), "dropout": float(right.training)}
    item.validate = lambda: {"f1": 0.0, "dropout": float(right.training)}
    item.run()
    assert {("f1" in line, line["dropout"]) for line in lines(item)} == {(False, 1.0), (True, 0.0)}


def test_resume_points_of_adapters_contain_only_trained_weights(tmp_path: Path) -> None:
    def made() -> Loop:
        parts = modules()
        parts["left"].requires_grad_(False)
        return Loop(parts, replace(OPTIONS, trainable_only=True), step_of(parts), LoopPlace(tmp_path, "same", Silent()))

    whole = made()
    whole.run()
    state = torch.load(tmp_path / "point.pt", weights_only=True)
    assert {name: set(part) for name, part in state["modules"].items()} == {"left": set(), "right": {"0.weight", "0.bias"}}
    again = made()
    again.run()
    assert torch.equal(weights(again), weights(whole))


def test_weight_decay_applies_only_to_matrices_by_default() -> None:
    parameters = [torch.nn.Parameter(torch.ones(2, 2)), torch.nn.Parameter(torch.ones(2))]
    some = replace(OPTIONS, weight_decay=0.3)
    for options, expected in ((some, {2: 0.3, 1: 0.0}), (replace(some, decayed="all"), {2: 0.3, 1: 0.3})):
        optimizer = adamw(parameters, options)
        results = {p.dim(): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
        assert results == expected


def test_non_finite_loss_stops_the_training(tmp_path: Path) -> None:
    item = loop(tmp_path)
    item.step = lambda number: {"loss": float("nan")}
    with raises("loss-not-finite"):
        item.run()


def test_learning_rate_warms_up_and_decays_along_a_cosine() -> None:
    rates = [Schedule(2.0, 0.1, "cosine").rate(step, 100) for step in range(100)]
    assert rates[:10] == pytest.approx([0.2 * n for n in range(1, 11)])
    assert rates[55] == pytest.approx(1.0)
    assert rates[10] == 2.0
    assert 0 < rates[99] < 0.01
    assert Schedule(2.0, 50, "cosine").rate(0, 100) == pytest.approx(2.0 / 50)
    assert Schedule(2.0, 0, "cosine").rate(0, 100) == 2.0


def test_learning_rate_decays_linearly_or_is_constant() -> None:
    assert [Schedule(1.0, 0, "linear").rate(step, 4) for step in range(4)] == [1.0, 0.75, 0.5, 0.25]
    assert {Schedule(1.0).rate(step, 4) for step in range(4)} == {1.0}


def test_keeping_the_best_requires_validation(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="validation"):
        loop(tmp_path, replace(OPTIONS, keep_best=KeepBest("f1")))


@pytest.mark.parametrize(("most", "steps", "epoch"), [(None, 6, 3), (5, 5, 2), (2, 2, 2)])
def test_each_epoch_visits_rows_in_its_own_order(most: int | None, steps: int, epoch: int, tmp_path: Path) -> None:
    train = SimpleNamespace(epochs=2, batch_size=2, learning_rate=0.1, steps=most, save_every=9)
    seen: list[tuple[int, list[str]]] = []
    left = torch.nn.Linear(1, 1)

    def step(rows: list[str], turn: int, number: int) -> dict[str, float]:
        seen.append((turn, rows))
        return {"loss": float(number)}

    def rows(turn: int) -> list[str]:
        return [f"{turn}{letter}" for letter in "abcde"]

    item = loop_over_rows("this", {"left": left}, train, rows, 5, step, LoopPlace(tmp_path, "same", Silent()))
    assert (item.options.steps, item.options.epoch, item.options.save_every) == (steps, epoch, 9)
    item.run()
    whole = [(turn, part) for turn in (0, 1) for part in ([f"{turn}a", f"{turn}b"], [f"{turn}c", f"{turn}d"], [f"{turn}e"])]
    assert seen == whole[:steps]
