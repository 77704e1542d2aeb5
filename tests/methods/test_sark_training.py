"""SARK's steps against one plain backward pass, and its training from end to end: ablations, interruptions, card."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from benchmarks.errors import Broke, UserError
from benchmarks.fingerprint import folder_sha256
from benchmarks.registry import Benchmark, DataReference
from methods.api import Services
from methods.sark import training as training_module
from methods.sark.config import SarkTrainingConfig
from methods.sark.data import SarkData
from methods.sark.loss import classified, list_terms, passage_terms, ranked
from methods.sark.material import Material, load_material
from methods.sark.model import encoder_of, last_layer, new_reranker
from methods.sark.objective import FORMAL, INFORMAL, Objective, groups_of
from methods.sark.rows import SarkRow, batches
from methods.sark.trainer import SarkTrainer
from methods.sark.training import SarkTraining
from methods.sark.validation import f1, share_in_order, validator
from methods.torch_loop import accelerator
from methods.training import TRAININGS, Silent, TrainedStage, Workshop

torch = pytest.importorskip("torch")

THINGS = ["bridge", "river", "town", "house", "moss", "stone"]
TELLING = ["the painter built it", "it was built long ago", "a cold north side", "old stone", "it grows", "town"]
"""Of a list's six passages, best first."""


def row(number: int, label: int | None = None, listed: bool = True) -> SarkRow:
    """A row about one thing; the better a passage, the earlier it stands in `TELLING`."""
    thing = THINGS[number % len(THINGS)]
    label = number % 2 if label is None else label

    def told(text: str, more: str) -> tuple[str, str]:
        return f"the {thing} : {text} {more}", f"{thing} ! {text} , not cold ? - {more} !"

    more = "year of the long house " * (number % 4)
    formal, informal = told(TELLING[0 if label else 5], more)
    passages = tuple(told(text, more) for text in TELLING) if listed else None
    return SarkRow(f"who built the {thing} ?", f"p{number}", formal, informal, label, passages, f"q{number}")


ROWS = [row(number) for number in range(8)]
CONTRARY = [replace(one, label=1 - (one.label or 0)) for one in ROWS]
"""Labels against the lists: neither task's gradient serves the other, so λ lies between 0 and 1."""


def in_one_style(one: SarkRow) -> SarkRow:
    """The formal text in both styles."""
    return replace(one, informal=one.formal, list=tuple((formal, formal) for formal, _ in one.list or ()))


@pytest.fixture(scope="module", params=[("Bert", "bert")], ids=["bert"])
def base(request: pytest.FixtureRequest, tiny_models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> str:
    import transformers

    kind, style = request.param
    torch.manual_seed(4)
    model = getattr(transformers, f"{kind}Model")(tiny_models.config(kind, len(tiny_models.tokenizer(style))))
    return str(tiny_models.save(tmp_path_factory.mktemp("base"), style, tiny_models.scaled(model, 2.0)))


def options(base: str, **more: Any) -> SarkTrainingConfig:
    model = {"max_length": 64, "hidden": 16, **more.pop("model", {})}
    train = {"epochs": 2, "learning_rate": 1e-3, "save_every": 2, **more.pop("train", {})}
    given = {"data": ["worlds/style:train"], "base": base, "seed": 3, "model": model, "train": train, **more}
    return TRAININGS.get("sark").validate(given)  # type: ignore[return-value]


def calm(base: str, **more: Any) -> SarkTrainingConfig:
    """Options without dropout, so that a batch in parts is comparable with the whole."""
    model = {"dropout": 0.0, "backbone_dropout": 0.0, **more.pop("model", {})}
    return options(base, model=model, **more)


def trainer(config: SarkTrainingConfig, folder: Path, rows: Sequence[SarkRow] = ROWS, process: Any = None,
            validate: bool = False) -> SarkTrainer:  # fmt: skip
    objective = Objective(new_reranker(config, "cpu"), config, process)
    return SarkTrainer(objective, rows, config, folder, "same", Silent(),
                       validator(objective, rows, config) if validate else None)  # fmt: skip


def weights(one: SarkTrainer) -> dict[str, Any]:
    return {name: value.clone() for name, value in one.objective.model.state_dict().items()}


def gradients(model: Any) -> dict[str, Any]:
    return {name: one.grad for name, one in model.named_parameters() if one.grad is not None}


def lines(one: SarkTrainer) -> list[dict[str, float]]:
    return [json.loads(line) for line in one.loop.curve.read_text().splitlines()]


# -- one step ------------------------------------------------------------------------------------------------------


class Whole:
    """The losses of all rows in one piece, by the equations; gradients by autograd, one graph, kept."""

    def __init__(self, config: SarkTrainingConfig, rows: Sequence[SarkRow], styles: Sequence[int] = (0, 1)) -> None:
        self.model = new_reranker(config, "cpu").train()
        self.config, head = config, config.model.head
        passages, lists = [], []
        labelled = [one for one in rows if one.label is not None]
        listed = [one for one in rows if one.list is not None]
        for style in styles:
            scores = self.logits([(one.query, (one.formal, one.informal)[style]) for one in labelled])
            labels = torch.tensor([float(one.label or 0) for one in labelled])
            passages.append(passage_terms(classified(scores, head), labels).mean())
            scores = self.logits([(one.query, told[style]) for one in listed for told in one.list or ()])
            lists.append(list_terms(ranked(scores, head).reshape(-1, 6)).mean())
        self.passage, self.list = torch.stack(passages).mean(), torch.stack(lists).mean()

    def logits(self, pairs: Sequence[tuple[str, str]]) -> Any:
        queries, passages = map(list, zip(*pairs, strict=True))
        tokenizer = self.model.tokenizer
        features = tokenizer(queries, passages, truncation="only_second", max_length=64, padding=True,
                             return_tensors="pt")  # fmt: skip
        return self.model(dict(features))["scores"]

    def flat(self, loss: Any, part: Any) -> np.ndarray:
        found = torch.autograd.grad(loss, list(part.parameters()), retain_graph=True, allow_unused=True)
        return np.concatenate([one.numpy().ravel() for one in found if one is not None]).astype(np.float64)

    def weight(self, part: Any = None) -> float:
        """λ by brute force."""
        part = encoder_of(self.model) if part is None else part
        one, other = self.flat(self.passage, part), self.flat(self.list, part)
        grid = np.linspace(0, 1, 10_001)
        gram = np.array([[one @ one, one @ other], [one @ other, other @ other]])
        points = np.stack([grid, 1 - grid], axis=1)
        return float(grid[np.argmin(np.einsum("ni,ij,nj->n", points, gram, points))])


@pytest.mark.parametrize("budget", [32, 300, 10_000])
@pytest.mark.parametrize("head", ["paper", "official"])
def test_a_step_in_parts_is_one_backward_pass_of_equation_10(base: str, tmp_path: Path, budget: int, head: str) -> None:
    config = calm(base, model={"head": head}, train={"token_budget": budget})
    one = trainer(config, tmp_path, CONTRARY)
    figures = one._step(0)
    whole = Whole(config, CONTRARY)
    weight = whole.weight()
    assert 0 < weight < 1
    assert figures["lambda"] == pytest.approx(weight, abs=2e-4)
    assert figures["1-lambda"] == 1 - figures["lambda"]
    assert figures["passage_loss"] == pytest.approx(whole.passage.item(), abs=1e-6)
    assert figures["list_loss"] == pytest.approx(whole.list.item(), abs=1e-6)
    encoder = encoder_of(whole.model)
    passage, listed = whole.flat(whole.passage, encoder), whole.flat(whole.list, encoder)
    assert figures["passage_gradient"] == pytest.approx(np.linalg.norm(passage), rel=1e-4)
    assert figures["list_gradient"] == pytest.approx(np.linalg.norm(listed), rel=1e-4)
    cosine = passage @ listed / np.linalg.norm(passage) / np.linalg.norm(listed)
    assert figures["cosine"] == pytest.approx(cosine, abs=1e-4)
    total = figures["lambda"] * whole.passage + figures["1-lambda"] * whole.list
    total.backward()
    assert figures["loss"] == pytest.approx(total.item(), abs=1e-6)
    expected, found = gradients(whole.model), gradients(one.objective.model)
    assert set(found) == set(expected)
    assert {"2.linear.weight", "4.linear.weight"} <= set(found)
    for name, gradient in expected.items():
        assert torch.allclose(found[name], gradient, atol=1e-5, rtol=1e-3), name


def read(one: SarkTrainer, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Sequences and padded length of every forward pass."""
    seen: list[tuple[int, int]] = []
    logits = one.objective.logits

    def watched(pairs: Any) -> Any:
        seen.append((len(pairs), max(len(pair["input_ids"]) for pair in pairs)))
        return logits(pairs)

    monkeypatch.setattr(one.objective, "logits", watched)
    return seen


def test_a_step_of_8_rows_reads_112_sequences_within_the_budget(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = trainer(options(base, train={"token_budget": 320}), tmp_path)
    seen = read(one, monkeypatch)
    one._step(0)
    assert sum(count for count, _ in seen) == 112
    assert len(seen) > 4
    for count, length in seen:
        # A list is never parted, and nothing else is above the budget.
        assert count * length <= 320 or count == 6


def test_lists_of_different_lengths_are_read_apart(base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = [SarkRow(one.query, "", "", "", None, (one.list or ())[:3], one.question_id) for one in ROWS[:2]]
    config = calm(base)
    one = trainer(config, tmp_path, [*ROWS[2:4], *short])
    seen = read(one, monkeypatch)
    figures = one._step(0)
    assert sum(count for count, _ in seen) == 2 * (2 + 12 + 6)
    terms = []
    plain = Whole(config, ROWS[2:4])
    for each in (*ROWS[2:4], *short):
        for style in (0, 1):
            scores = plain.logits([(each.query, told[style]) for told in each.list or ()])
            terms.append(list_terms(scores.reshape(1, -1))[0])
    # Every pair counts the same.
    assert figures["list_loss"] == pytest.approx(torch.cat(terms).mean().item(), abs=1e-6)


def test_both_styles_of_a_row_stand_together_and_no_group_holds_two_questions() -> None:
    for chosen in batches(ROWS * 3, 8, seed=1, epoch=2):
        labelled, lists = groups_of("passage", chosen, (FORMAL, INFORMAL)), groups_of("list", chosen, (0, 1))
        for groups in (labelled, lists):
            half = len(groups) // 2
            assert half == len(chosen)
            for each, formal, informal in zip(chosen, groups[:half], groups[half:], strict=True):
                assert formal.query == informal.query == each.query
                assert formal.label == informal.label
                thing = each.query.split()[-2]
                assert all(f"the {thing} :" in text for text in formal.texts)
                assert all(f"{thing} !" in text for text in informal.texts)
        assert [group.texts for group in lists[: len(chosen)]] == [
            tuple(formal for formal, _ in each.list or ()) for each in chosen
        ]


def test_equal_texts_in_both_styles_give_the_plain_loss(base: str, tmp_path: Path) -> None:
    same = [in_one_style(one) for one in ROWS]
    both = trainer(calm(base), tmp_path / "both", same)._step(0)
    alone = trainer(calm(base, loss={"styles": False}), tmp_path / "alone", same)._step(0)
    assert both == pytest.approx(alone, abs=1e-5)


def test_without_style_augmented_training_the_formal_text_alone_is_read(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = calm(base, loss={"styles": False})
    one = trainer(config, tmp_path)
    seen = read(one, monkeypatch)
    figures = one._step(0)
    assert sum(count for count, _ in seen) == 56
    whole = Whole(config, ROWS, styles=(0,))
    assert figures["passage_loss"] == pytest.approx(whole.passage.item(), abs=1e-6)
    assert figures["list_loss"] == pytest.approx(whole.list.item(), abs=1e-6)
    other = trainer(config, tmp_path / "other", [
        SarkRow(each.query, each.passage_id, each.formal, "not this", each.label,
                tuple((formal, "nor this") for formal, _ in each.list or ()), each.question_id) for each in ROWS
    ])  # fmt: skip
    assert other._step(0) == figures


@pytest.mark.parametrize(("left_out", "task", "count", "weight"), [
    ("passage", "list", 96, 0.0), ("listwise", "passage", 16, 1.0),
])  # fmt: skip
def test_an_ablation_reads_and_learns_the_other_task_alone(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_out: str, task: str, count: int, weight: float
) -> None:
    config = calm(base, loss={left_out: False})
    one = trainer(config, tmp_path)
    seen = read(one, monkeypatch)
    figures = one._step(0)
    assert sum(each for each, _ in seen) == count
    assert figures["lambda"] == weight
    assert figures["loss"] == figures[f"{task}_loss"]
    assert set(figures) == {"loss", f"{task}_loss", "lambda", "1-lambda"}
    whole = Whole(config, ROWS)
    getattr(whole, task).backward()
    for name, gradient in gradients(whole.model).items():
        assert torch.allclose(gradients(one.objective.model)[name], gradient, atol=1e-6, rtol=1e-4), name


def test_a_batch_that_has_nothing_for_one_task_learns_the_other_with_weight_1(base: str, tmp_path: Path) -> None:
    lists = [SarkRow(one.query, "", "", "", None, one.list, one.question_id) for one in ROWS[:2]]
    assert trainer(calm(base), tmp_path / "l", lists)._step(0)["lambda"] == 0.0
    labels = [row(number, listed=False) for number in range(3)]
    assert trainer(calm(base), tmp_path / "p", labels)._step(0)["lambda"] == 1.0


@pytest.mark.parametrize("value", [0.0, 0.3, 1.0])
def test_a_fixed_weight_is_taken_as_it_is_and_gradients_are_still_told(base: str, tmp_path: Path, value: float) -> None:
    config = calm(base, loss={"lambda_mode": "fixed", "lambda_value": value})
    one = trainer(config, tmp_path)
    figures = one._step(0)
    assert figures["lambda"] == value
    assert {"passage_gradient", "list_gradient", "cosine"} <= set(figures)
    whole = Whole(config, ROWS)
    (value * whole.passage + (1 - value) * whole.list).backward()
    for name, gradient in gradients(whole.model).items():
        assert torch.allclose(gradients(one.objective.model)[name], gradient, atol=1e-6, rtol=1e-4), name
    one.loop.run()
    assert all(torch.isfinite(weight).all() for weight in weights(one).values())


def test_the_last_layer_alone_may_decide_the_weight_of_all(base: str, tmp_path: Path) -> None:
    config = calm(base, loss={"lambda_params": "last_layer"})
    one = trainer(config, tmp_path, CONTRARY)
    figures = one._step(0)
    whole = Whole(config, CONTRARY)
    expected = whole.weight(last_layer(whole.model))
    assert figures["lambda"] == pytest.approx(expected, abs=2e-4)
    assert figures["lambda"] != pytest.approx(whole.weight(), abs=1e-3)
    (figures["lambda"] * whole.passage + figures["1-lambda"] * whole.list).backward()
    name = "0.model.embeddings.word_embeddings.weight"
    assert torch.allclose(gradients(one.objective.model)[name], gradients(whole.model)[name], atol=1e-5)


def test_an_accumulated_step_is_the_mean_of_batches_each_with_its_own_weight(base: str, tmp_path: Path) -> None:
    rows = [row(number) for number in range(7)]
    config = calm(base, train={"batch_size": 2, "accumulation": 3})
    one = trainer(config, tmp_path, rows)
    # Four batches make a step of three and a step of one.
    assert one.loop.options.epoch == 2
    assert one.loop.options.steps == 4
    figures = one._step(0)
    shares = []
    for number, chosen in enumerate(batches(rows, 2, seed=config.seed, epoch=0)[:3]):
        part = trainer(calm(base, train={"batch_size": 2}), tmp_path / str(number), chosen)
        shares.append((part._step(0), gradients(part.objective.model)))
    assert len({share["lambda"] for share, _ in shares}) == 3
    for name in figures:
        assert figures[name] == pytest.approx(np.mean([share[name] for share, _ in shares]), abs=1e-5), name
    found = gradients(one.objective.model)
    assert set(found) == set(shares[0][1])
    for name, gradient in found.items():
        expected = sum(share[name] for _, share in shares) / 3
        assert torch.allclose(gradient, expected, atol=1e-5), name


def test_the_rate_falls_to_0_over_real_steps_and_stays_high_as_released(base: str, tmp_path: Path) -> None:
    found = {}
    for over in ("steps", "batches"):
        one = trainer(options(base, train={"accumulation": 4, "epochs": 25, "batch_size": 2, "schedule_over": over}),
                      tmp_path / over)  # fmt: skip
        steps = one.loop.options.steps
        found[over] = [one.loop.options.schedule.rate(step, steps) for step in (0, steps)]
    assert found["steps"] == pytest.approx([1e-3, 0.0])
    assert found["batches"] == pytest.approx([1e-3, 0.75e-3])


def test_too_little_memory_is_said_with_what_to_do(base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = trainer(options(base), tmp_path)

    def full(pairs: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(one.objective, "logits", full)
    with pytest.raises(Broke, match="8192 tokens") as caught:
        one._step(0)
    assert "train.token_budget=4096" in str(caught.value)


# -- the loop ------------------------------------------------------------------------------------------------------


def test_training_learns_labels_and_orders_in_both_styles(base: str, tmp_path: Path) -> None:
    train = {"epochs": 25, "learning_rate": 3e-3, "save_every": 1000, "keep": "f1"}
    config = calm(base, train=train, validation=["worlds/style:validation"])
    one = trainer(config, tmp_path, validate=True)
    one.loop.run()
    curve = lines(one)
    steps = [line for line in curve if "loss" in line]
    assert steps[0]["list_loss"] == pytest.approx(0.7, abs=0.1)
    assert steps[-1]["list_loss"] < 0.35
    assert steps[-1]["passage_loss"] < 0.3
    last = curve[-1]
    assert last["validation_f1"] == 1.0
    assert last["validation_order"] > 0.8
    assert len({step["lambda"] for step in steps}) > 10
    assert all(0 <= step["lambda"] <= 1 and -1 <= step["cosine"] <= 1 for step in steps)


def cut(one: SarkTrainer, last: int) -> None:
    """Run until a step, and be interrupted."""
    step = one.loop.step

    def until(number: int) -> Any:
        if number == last:
            raise KeyboardInterrupt
        return step(number)

    one.loop.step = until
    with pytest.raises(KeyboardInterrupt):
        one.loop.run()


def test_a_training_cut_off_anywhere_ends_with_the_same_bits(base: str, tmp_path: Path) -> None:
    config = options(base, train={"batch_size": 2, "accumulation": 2, "epochs": 3, "keep": "order"},
                     validation=["worlds/style:validation"])  # fmt: skip
    whole = trainer(config, tmp_path / "whole", validate=True)
    whole.loop.run()
    for last in (1, 3, 5):
        cut(trainer(config, tmp_path / str(last), validate=True), last)
        resumed = trainer(config, tmp_path / str(last), validate=True)
        resumed.loop.run()
        for name, weight in weights(whole).items():
            assert torch.equal(weight, weights(resumed)[name]), name
        assert resumed.loop.curve.read_text() == whole.loop.curve.read_text()


def test_equal_seeds_give_equal_bits_and_unequal_ones_do_not(base: str, tmp_path: Path) -> None:
    found = []
    for number, seed in enumerate((3, 3, 4)):
        one = trainer(options(base, seed=seed, train={"batch_size": 4}), tmp_path / str(number))
        one.loop.run()
        found.append(torch.cat([weight.flatten().float() for weight in weights(one).values()]))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_the_best_epoch_is_kept_and_patience_ends_the_training(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = options(base, train={"epochs": 9, "keep": "f1", "patience": 2}, validation=["worlds/style:validation"])
    one = trainer(config, tmp_path, validate=True)
    scripted = iter([0.1, 0.7, 0.7, 0.4])
    kept: list[dict[str, Any]] = []

    def validate() -> dict[str, float]:
        kept.append(weights(one))
        return {"validation_f1": next(scripted)}

    one.loop.validate = validate
    figures = one.loop.run()
    assert figures["steps"] == 4
    assert figures["validation_f1"] == 0.7
    assert all(torch.equal(weight, kept[1][name]) for name, weight in weights(one).items())


def test_mixed_precision_trains_nearly_as_full_precision_does(base: str, tmp_path: Path) -> None:
    curves = []
    for precision in ("no", "bf16"):
        config = calm(base, train={"precision": precision, "epochs": 3})
        one = trainer(config, tmp_path / precision, process=accelerator(precision, "cpu"))
        one.loop.run()
        curves.append([(line["loss"], line["lambda"]) for line in lines(one)])
    assert np.array(curves[1]) == pytest.approx(np.array(curves[0]), abs=0.05)
    assert curves[0] != curves[1]


def test_scaled_gradients_of_half_precision_leave_weight_and_norms_as_they_are(base: str, tmp_path: Path) -> None:
    class Scaler:
        def get_scale(self) -> float:
            return 1024.0

    class Scaling:
        """What accelerate does in half precision, without its rounding."""

        scaler, num_processes, process_index = Scaler(), 1, 0

        def backward(self, loss: Any) -> None:
            (1024.0 * loss).backward()

        def autocast(self) -> Any:
            from contextlib import nullcontext

            return nullcontext()

        def prepare(self, one: Any) -> Any:
            return one

    plain = trainer(calm(base), tmp_path / "a")._step(0)
    assert trainer(calm(base), tmp_path / "b", process=Scaling())._step(0) == pytest.approx(plain, rel=1e-3)


def test_gradients_that_overflowed_give_no_figures_and_stop_nothing(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = trainer(calm(base), tmp_path)
    backward = one.objective.backward

    def overflowing(groups: Any, seed: Any) -> float:
        loss = backward(groups, seed)
        if seed[-1] == "list":
            next(encoder_of(one.objective.model).parameters()).grad.fill_(float("inf"))
        return loss

    monkeypatch.setattr(one.objective, "backward", overflowing)
    figures = one._step(0)
    assert figures["lambda"] == 0.5
    assert not {"passage_gradient", "list_gradient", "cosine"} & set(figures)
    assert np.isfinite(figures["loss"])


# -- validation ----------------------------------------------------------------------------------------------------


def test_f1_and_order_of_hand_cases() -> None:
    assert f1(np.array([True, True, False, False]), np.array([True, False, True, False])) == 0.5
    assert f1(np.array([True, False]), np.array([True, False])) == 1.0
    assert f1(np.array([False, False]), np.array([False, False])) == 0.0
    assert share_in_order(np.array([3.0, 2.0, 1.0])) == 1.0
    assert share_in_order(np.array([1.0, 2.0, 3.0])) == 0.0
    assert share_in_order(np.array([2.0, 2.0, 1.0])) == pytest.approx((0.5 + 1 + 1) / 3)


@pytest.mark.parametrize("head", ["paper", "official"])
def test_validation_scores_each_text_once_and_says_what_a_plain_reading_says(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: str
) -> None:
    config = options(base, model={"head": head}, validation=["worlds/style:validation"], train={"keep": "last"})
    one = trainer(config, tmp_path)
    one.objective.model.eval()
    seen = read(one, monkeypatch)
    repeated = [*ROWS, *ROWS]
    figures = validator(one.objective, repeated, config)()
    assert sum(count for count, _ in seen) == len(
        {(each.query, text) for each in ROWS for told in [(each.formal, each.informal), *(each.list or ())]
         for text in told}
    )  # fmt: skip
    whole = Whole(config, ROWS)
    whole.model.eval()
    said, true, orders = [], [], []
    with torch.no_grad():
        for style in (0, 1):
            logits = whole.logits([(each.query, (each.formal, each.informal)[style]) for each in ROWS])
            said += (logits.softmax(1)[:, 1] > 0.5 if head == "official" else logits[:, 0] > 0).tolist()
            true += [each.label == 1 for each in ROWS]
            for each in ROWS:
                scores = whole.logits([(each.query, told[style]) for told in each.list or ()])[:, -1].tolist()
                orders += [scores[i] > scores[j] for i in range(6) for j in range(i + 1, 6)]
    hits = sum(a and b for a, b in zip(said, true, strict=True))
    expected = 2 * hits / (sum(said) + sum(true))
    assert figures["validation_f1"] == pytest.approx(expected)
    assert figures["validation_order"] == pytest.approx(np.mean(orders), abs=1e-9)
    assert figures["validation_style_gap"] > 0


def test_style_makes_no_gap_where_both_texts_are_equal(base: str, tmp_path: Path) -> None:
    same = [in_one_style(one) for one in ROWS]
    config = options(base)
    one = trainer(config, tmp_path)
    one.objective.model.eval()
    assert validator(one.objective, same, config)()["validation_style_gap"] == 0


def test_validation_data_that_cannot_choose_are_refused(base: str, tmp_path: Path) -> None:
    held = ["worlds/style:validation"]
    negatives = [row(number, label=0, listed=False) for number in range(4)]
    objective = trainer(options(base), tmp_path).objective
    with pytest.raises(UserError, match="labelled 1"):
        validator(objective, negatives, options(base, validation=held))
    with pytest.raises(UserError, match="a list"):
        validator(objective, negatives, options(base, validation=held, train={"keep": "order"}))


# -- options -------------------------------------------------------------------------------------------------------


def test_presets_hold_what_paper_and_released_code_say() -> None:
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


def test_which_epoch_is_kept_follows_from_what_is_learnt_and_validated(base: str) -> None:
    held = ["worlds/style:validation"]
    assert options(base).keep == "last"
    assert options(base, validation=held).keep == "f1"
    assert options(base, validation=held, loss={"passage": False}).keep == "order"
    assert options(base, validation=held, train={"keep": "last"}).keep == "last"


@pytest.mark.parametrize("wrong", [
    {"loss": {"passage": False, "listwise": False}}, {"train": {"keep": "f1"}}, {"train": {"patience": 3}},
    {"loss": {"lambda_value": 1.2}}, {"loss": {"lambda_mode": "grid"}},
])  # fmt: skip
def test_options_that_contradict_each_other_are_refused(base: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        options(base, **wrong)


def test_the_command_line_takes_data_and_options_and_refuses_test_splits(base: str, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from ragmeter.cli import app

    listed = CliRunner().invoke(app, ["train", "sark", "--options", "--json"])
    described = {one["name"]: one["default"] for one in json.loads(listed.output)}
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
def test_test_splits_are_refused(base: str, field: str) -> None:
    with pytest.raises(UserError, match="test split"):
        load_material(options(base, **{field: ["worlds/style:test"]}))


# -- from end to end -----------------------------------------------------------------------------------------------


class Source:
    """Rows that are there; counts how often it is asked."""

    def __init__(self, rows: Sequence[SarkRow] = ROWS) -> None:
        self.rows, self.asked = list(rows), 0

    def __call__(self, config: Any, benchmarks: Any, workshop: Workshop, folder: Path) -> SarkData:
        self.asked += 1
        return SarkData(self.rows, {"rows": len(self.rows), "positives": 4}, "toy")


@pytest.fixture
def material(monkeypatch: pytest.MonkeyPatch, ground: Any) -> None:
    """Benchmarks whose questions are never read."""
    from benchmarks.worlds.dataset import CARD

    def fake(config: SarkTrainingConfig) -> Material:
        made = Benchmark(DataReference("worlds", "style", "train"), 1, CARD, ground.questions, ground.corpus)
        return Material([made], [made] if config.validation else [])

    monkeypatch.setattr(training_module, "load_material", fake)


def train(config: SarkTrainingConfig, folder: Path, source: Any = None) -> TrainedStage:
    workshop = Workshop(folder / "work", folder / "checkpoints", Services(artefacts=folder / "art", device="cpu"))
    (stage,) = SarkTraining(config, source or Source()).run(workshop)
    return stage


@pytest.mark.usefixtures("material")
def test_a_training_ends_in_a_folder_that_plain_cross_encoder_loads(base: str, tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder

    source = Source()
    config = options(base, validation=["worlds/style:validation"], train={"epochs": 3})
    stage = train(config, tmp_path, source)
    assert (stage.stage, stage.fresh, source.asked) == ("reranker", True, 2)
    assert {"steps", "loss", "validation_f1", "validation_order", "validation_style_gap", "positives",
            "rows_trained_on"} <= set(stage.figures)  # fmt: skip
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
    assert (again.fresh, source.asked) == (False, 2)
    assert again.figures == stage.figures
    assert folder_sha256(train(config, tmp_path / "other").folder) == folder_sha256(stage.folder)


@pytest.mark.usefixtures("material")
def test_the_card_says_what_was_left_out(base: str, tmp_path: Path) -> None:
    stage = train(options(base, loss={"styles": False, "passage": False}), tmp_path)
    card = (stage.folder / "README.md").read_text()
    assert "without style-augmented training and passage labels" in card
    assert "formal alone" in card


@pytest.mark.usefixtures("material")
@pytest.mark.parametrize(("loss", "needed"), [({"listwise": False}, "a label"), ({"passage": False}, "a list")])
def test_rows_without_what_is_to_be_learnt_are_refused(
    base: str, tmp_path: Path, loss: dict[str, bool], needed: str
) -> None:
    rows = [row(0, listed=False)] if "passage" in loss else [
        SarkRow(ROWS[0].query, "", "", "", None, ROWS[0].list, "q")
    ]  # fmt: skip
    with pytest.raises(UserError, match=f"no training row has {needed}"):
        train(options(base, loss=loss), tmp_path, Source(rows))


@pytest.mark.slow
def test_two_processes_end_with_the_weights_of_one(base: str, tmp_path: Path) -> None:
    """In a process group the parts of a batch are shared out, and λ, gradient and figures are those of the whole."""
    program = tmp_path / "program.py"
    program.write_text(
        f"""
import importlib.util, sys
from pathlib import Path
spec = importlib.util.spec_from_file_location("here", {__file__!r})
here = importlib.util.module_from_spec(spec)
spec.loader.exec_module(here)
config = here.options({base!r}, train={{"token_budget": 400}})
one = here.trainer(config, Path(sys.argv[1]), here.CONTRARY, here.accelerator("no", "cpu"))
one.loop.run()
if one.objective.accelerator.is_main_process:
    print("processes", one.objective.accelerator.num_processes)
    here.torch.save(here.weights(one), sys.argv[1] + ".pt")
"""
    )
    found, curves = [], []
    for count in (1, 2):
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(count)]
        ran = subprocess.run(
            [*launch, str(program), str(tmp_path / f"of{count}")], capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr[-2000:]
        assert f"processes {count}" in ran.stdout
        found.append(torch.load(tmp_path / f"of{count}.pt", weights_only=True))
        text = (tmp_path / f"of{count}" / "curve.jsonl").read_text()
        steps = [json.loads(line) for line in text.splitlines()]
        curves.append([[step[name] for name in ("loss", "lambda", "cosine")] for step in steps])
    assert np.array(curves[0]) == pytest.approx(np.array(curves[1]), abs=1e-4)
    for name, weight in found[0].items():
        # AdamW divides by the gradient's size, so that rounding of tiny gradients shows.
        assert torch.allclose(weight, found[1][name], atol=5e-4), name
