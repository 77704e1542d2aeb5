"""SARK's steps and validation against naive computations: one backward pass of the equations, every text once."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from methods.sark.config import LossConfig
from methods.sark.loss import list_terms
from methods.sark.model import encoder_of, last_layer
from methods.sark.objective import FORMAL, INFORMAL, groups_of
from methods.sark.rows import SarkRow, batches
from methods.sark.train import by_epoch
from methods.sark.validation import f1, share_in_order, validator
from tests.support.errors import raises

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(("budget", "head"), [(32, "paper"), (300, "official"), pytest.param(10_000, "official", marks=pytest.mark.slow)])
def test_split_step_equals_one_backward_pass_of_equation_10(toy: ModuleType, base: str, tmp_path: Path, budget: int, head: str) -> None:
    config = toy.calm(base, model={"head": head}, train={"token_budget": budget})
    item = toy.trainer(config, tmp_path, toy.CONTRARY)
    figures = item.loop.step(0)
    whole = toy.Whole(config, toy.CONTRARY)
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
    expected, result = toy.gradients(whole.model), toy.gradients(item.objective.model)
    assert set(result) == set(expected)
    assert {"2.linear.weight", "4.linear.weight"} <= set(result)
    for name, gradient in expected.items():
        assert torch.allclose(result[name], gradient, atol=1e-5, rtol=1e-3), name


def test_step_of_8_rows_encodes_112_sequences_within_the_budget(
    toy: ModuleType, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = toy.trainer(toy.options(base, train={"token_budget": 320}), tmp_path)
    seen = toy.read(item, monkeypatch)
    item.loop.step(0)
    assert sum(count for count, _ in seen) == 112
    assert len(seen) > 4
    for count, length in seen:
        # A list is never parted, and nothing else is above the budget.
        assert count * length <= 320 or count == 6


@pytest.mark.slow
def test_lists_of_different_lengths_are_encoded_separately(
    toy: ModuleType, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = [SarkRow(row.query, "", "", "", None, (row.list or ())[:3], row.question_id) for row in toy.ROWS[:2]]
    config = toy.calm(base)
    item = toy.trainer(config, tmp_path, [*toy.ROWS[2:4], *short])
    seen = toy.read(item, monkeypatch)
    figures = item.loop.step(0)
    assert sum(count for count, _ in seen) == 2 * (2 + 12 + 6)
    terms = []
    plain = toy.Whole(config, toy.ROWS[2:4])
    for each in (*toy.ROWS[2:4], *short):
        for style in (0, 1):
            scores = plain.logits([(each.query, styled[style]) for styled in each.list or ()])
            terms.append(list_terms(scores.reshape(1, -1))[0])
    # Every pair counts the same.
    assert figures["list_loss"] == pytest.approx(torch.cat(terms).mean().item(), abs=1e-6)


def test_groups_have_both_styles_of_one_question(toy: ModuleType) -> None:
    for chosen in batches(toy.ROWS * 3, 8, seed=1, epoch=2):
        labeled, lists = groups_of("passage", chosen, (FORMAL, INFORMAL)), groups_of("list", chosen, (0, 1))
        for groups in (labeled, lists):
            half = len(groups) // 2
            assert half == len(chosen)
            for each, formal, informal in zip(chosen, groups[:half], groups[half:], strict=True):
                assert formal.query == informal.query == each.query
                assert formal.label == informal.label
                thing = each.query.split()[-2]
                assert all(f"the {thing} :" in text for text in formal.texts)
                assert all(f"{thing} !" in text for text in informal.texts)
        assert [group.texts for group in lists[: len(chosen)]] == [tuple(formal for formal, _ in each.list or ()) for each in chosen]


@pytest.mark.slow
def test_equal_texts_in_both_styles_give_the_plain_loss(toy: ModuleType, base: str, tmp_path: Path) -> None:
    same = [toy.in_one_style(row) for row in toy.ROWS]
    both = toy.trainer(toy.calm(base), tmp_path / "both", same).loop.step(0)
    alone = toy.trainer(toy.calm(base, loss={"styles": False}), tmp_path / "alone", same).loop.step(0)
    assert both == pytest.approx(alone, abs=1e-5)


@pytest.mark.slow
def test_only_formal_text_is_encoded_without_style_augmentation(
    toy: ModuleType, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = toy.calm(base, loss={"styles": False})
    item = toy.trainer(config, tmp_path)
    seen = toy.read(item, monkeypatch)
    figures = item.loop.step(0)
    assert sum(count for count, _ in seen) == 56
    whole = toy.Whole(config, toy.ROWS, styles=(0,))
    assert figures["passage_loss"] == pytest.approx(whole.passage.item(), abs=1e-6)
    assert figures["list_loss"] == pytest.approx(whole.list.item(), abs=1e-6)
    other = toy.trainer(
        config,
        tmp_path / "other",
        [
            SarkRow(
                each.query,
                each.passage_id,
                each.formal,
                "not this",
                each.label,
                tuple((formal, "nor this") for formal, _ in each.list or ()),
                each.question_id,
            )
            for each in toy.ROWS
        ],
    )
    assert other.loop.step(0) == figures


@pytest.mark.slow
@pytest.mark.parametrize(("left_out", "task", "count", "weight"), [("passage", "list", 96, 0.0), ("listwise", "passage", 16, 1.0)])
def test_ablation_encodes_and_learns_only_the_other_task(
    toy: ModuleType, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_out: str, task: str, count: int, weight: float
) -> None:
    config = toy.calm(base, loss={left_out: False})
    item = toy.trainer(config, tmp_path)
    seen = toy.read(item, monkeypatch)
    figures = item.loop.step(0)
    assert sum(each for each, _ in seen) == count
    assert figures["lambda"] == weight
    assert figures["loss"] == figures[f"{task}_loss"]
    assert set(figures) == {"loss", f"{task}_loss", "lambda", "1-lambda"}
    whole = toy.Whole(config, toy.ROWS)
    getattr(whole, task).backward()
    for name, gradient in toy.gradients(whole.model).items():
        assert torch.allclose(toy.gradients(item.objective.model)[name], gradient, atol=1e-6, rtol=1e-4), name


def test_batch_with_one_task_learns_it_with_weight_1(toy: ModuleType, base: str, tmp_path: Path) -> None:
    lists = [SarkRow(row.query, "", "", "", None, row.list, row.question_id) for row in toy.ROWS[:2]]
    assert toy.trainer(toy.calm(base), tmp_path / "l", lists).loop.step(0)["lambda"] == 0.0
    labels = [toy.row(number, listed=False) for number in range(3)]
    assert toy.trainer(toy.calm(base), tmp_path / "p", labels).loop.step(0)["lambda"] == 1.0


@pytest.mark.parametrize("value", [0.3, *(pytest.param(item, marks=pytest.mark.slow) for item in (0.0, 1.0))])
def test_fixed_weight_is_used_and_gradient_norms_are_still_logged(toy: ModuleType, base: str, tmp_path: Path, value: float) -> None:
    config = toy.calm(base, loss={"lambda_fixed": value})
    item = toy.trainer(config, tmp_path)
    figures = item.loop.step(0)
    assert figures["lambda"] == value
    assert {"passage_gradient", "list_gradient", "cosine"} <= set(figures)
    whole = toy.Whole(config, toy.ROWS)
    (value * whole.passage + (1 - value) * whole.list).backward()
    for name, gradient in toy.gradients(whole.model).items():
        assert torch.allclose(toy.gradients(item.objective.model)[name], gradient, atol=1e-6, rtol=1e-4), name


@pytest.mark.slow
def test_lambda_may_be_computed_from_the_last_layer_only(toy: ModuleType, base: str, tmp_path: Path) -> None:
    config = toy.calm(base, loss={"lambda_params": "last_layer"})
    item = toy.trainer(config, tmp_path, toy.CONTRARY)
    figures = item.loop.step(0)
    whole = toy.Whole(config, toy.CONTRARY)
    expected = whole.weight(last_layer(whole.model))
    assert figures["lambda"] == pytest.approx(expected, abs=2e-4)
    assert figures["lambda"] != pytest.approx(whole.weight(), abs=1e-3)
    (figures["lambda"] * whole.passage + figures["1-lambda"] * whole.list).backward()
    name = "0.model.embeddings.word_embeddings.weight"
    assert torch.allclose(toy.gradients(item.objective.model)[name], toy.gradients(whole.model)[name], atol=1e-5)


@pytest.mark.slow
def test_accumulated_step_is_the_mean_of_batches_with_their_own_weights(toy: ModuleType, base: str, tmp_path: Path) -> None:
    rows = [toy.row(number) for number in range(7)]
    config = toy.calm(base, train={"batch_size": 2, "accumulation": 3})
    item = toy.trainer(config, tmp_path, rows)
    # Four batches make a step of three and a step of one.
    assert item.loop.options.epoch == 2
    assert item.loop.options.steps == 4
    figures = item.loop.step(0)
    shares = []
    for number, chosen in enumerate(batches(rows, 2, seed=config.seed, epoch=0)[:3]):
        part = toy.trainer(toy.calm(base, train={"batch_size": 2}), tmp_path / str(number), chosen)
        shares.append((part.loop.step(0), toy.gradients(part.objective.model)))
    assert len({share["lambda"] for share, _ in shares}) == 3
    for name in figures:
        assert figures[name] == pytest.approx(np.mean([share[name] for share, _ in shares]), abs=1e-5), name
    result = toy.gradients(item.objective.model)
    assert set(result) == set(shares[0][1])
    for name, gradient in result.items():
        expected = sum(share[name] for _, share in shares) / 3
        assert torch.allclose(gradient, expected, atol=1e-5), name


def test_learning_rate_decays_to_zero_or_stays_high_as_in_the_released_code(toy: ModuleType, base: str, tmp_path: Path) -> None:
    results = {}
    for over in ("steps", "batches"):
        train = {"accumulation": 4, "epochs": 25, "batch_size": 2, "schedule_over": over}
        item = toy.trainer(toy.options(base, train=train), tmp_path / over)
        steps = item.loop.options.steps
        results[over] = [item.loop.options.schedule.rate(step, steps) for step in (0, steps)]
    assert results["steps"] == pytest.approx([1e-3, 0.0])
    assert results["batches"] == pytest.approx([1e-3, 0.75e-3])


def test_mixed_lists_have_each_passage_in_both_styles_with_style_independent_of_position(toy: ModuleType) -> None:
    loss = LossConfig(list_styles="mixed")
    informal = np.zeros(6)
    for epoch in range(40):
        groups = groups_of("list", toy.ROWS, (FORMAL, INFORMAL), loss, (3, epoch))
        for each, first, second in zip(toy.ROWS, groups[: len(toy.ROWS)], groups[len(toy.ROWS) :], strict=True):
            assert [set(both) for both in each.list] == [set(both) for both in zip(first.texts, second.texts, strict=True)]
            informal += [text == both[INFORMAL] for text, both in zip(first.texts, each.list, strict=True)]
    assert np.abs(informal / 320 - 0.5).max() < 0.12
    with pytest.raises(ValueError, match="mixed"):
        LossConfig(list_styles="mixed", styles=False)


def test_bounded_weight_keeps_a_gradient_of_the_lists(toy: ModuleType, base: str, tmp_path: Path) -> None:
    free = toy.trainer(toy.calm(base), tmp_path / "free", toy.CONTRARY).loop.step(0)["lambda"]
    bound = toy.trainer(toy.calm(base, loss={"lambda_most": free / 2}), tmp_path / "bound", toy.CONTRARY).loop.step(0)
    assert bound["lambda"] == free / 2


def test_level_option_shifts_scores_to_the_share_of_helpful_passages(toy: ModuleType, base: str, tmp_path: Path) -> None:
    rows = [*toy.ROWS, toy.row(9, label=1), toy.row(11, label=1)]
    texts = [(row.query, text) for row in rows for text in (row.formal, row.informal)]
    scores = []
    for level in (False, True):
        model = toy.trainer(toy.calm(base, model={"level": level}), tmp_path / str(level), rows).objective.model
        scores.append(model.predict(texts, activation_fn=torch.nn.Identity()))
    assert (1 / (1 + np.exp(-scores[1]))).mean() == pytest.approx(0.6, abs=1e-4)
    assert np.ptp(scores[1] - scores[0]) < 1e-4


def test_card_has_a_row_per_epoch() -> None:
    curve = [{"step": step, "lambda": step / 10, "list_loss": 1.0} for step in range(4)] + [{"step": 3, "validation_f1": 0.25}]
    assert by_epoch(curve, 2).splitlines()[2:] == ["| 1 | 0.050 | 1.000 |  |", "| 2 | 0.250 | 1.000 | 0.250 |"]


def test_f1_and_order_equal_hand_computations() -> None:
    assert f1(np.array([True, True, False, False]), np.array([True, False, True, False])) == 0.5
    assert f1(np.array([True, False]), np.array([True, False])) == 1.0
    assert f1(np.array([False, False]), np.array([False, False])) == 0.0
    assert share_in_order(np.array([3.0, 2.0, 1.0])) == 1.0
    assert share_in_order(np.array([1.0, 2.0, 3.0])) == 0.0
    assert share_in_order(np.array([2.0, 2.0, 1.0])) == pytest.approx((0.5 + 1 + 1) / 3)


@pytest.mark.slow
@pytest.mark.parametrize("head", ["paper", "official"])
def test_validation_scores_each_text_once_and_equals_a_naive_computation(
    toy: ModuleType, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: str
) -> None:
    config = toy.options(base, model={"head": head}, validation=["worlds/style:validation"], train={"keep": "last"})
    item = toy.trainer(config, tmp_path)
    item.objective.model.eval()
    seen = toy.read(item, monkeypatch)
    repeated = [*toy.ROWS, *toy.ROWS]
    figures = validator(item.objective, repeated, config)()
    assert sum(count for count, _ in seen) == len(
        {(each.query, text) for each in toy.ROWS for styled in [(each.formal, each.informal), *(each.list or ())] for text in styled}
    )
    whole = toy.Whole(config, toy.ROWS)
    whole.model.eval()
    responses, true, orders = [], [], []
    with torch.no_grad():
        for style in (0, 1):
            logits = whole.logits([(each.query, (each.formal, each.informal)[style]) for each in toy.ROWS])
            responses += (logits.softmax(1)[:, 1] > 0.5 if head == "official" else logits[:, 0] > 0).tolist()
            true += [each.label == 1 for each in toy.ROWS]
            for each in toy.ROWS:
                scores = whole.logits([(each.query, styled[style]) for styled in each.list or ()])[:, -1].tolist()
                orders += [scores[i] > scores[j] for i in range(6) for j in range(i + 1, 6)]
    hits = sum(a and b for a, b in zip(responses, true, strict=True))
    expected = 2 * hits / (sum(responses) + sum(true))
    assert figures["validation_f1"] == pytest.approx(expected)
    assert figures["validation_order"] == pytest.approx(np.mean(orders), abs=1e-9)
    assert figures["validation_style_gap"] > 0


def test_style_gap_is_zero_for_equal_texts(toy: ModuleType, base: str, tmp_path: Path) -> None:
    same = [toy.in_one_style(row) for row in toy.ROWS]
    config = toy.options(base)
    item = toy.trainer(config, tmp_path)
    item.objective.model.eval()
    assert validator(item.objective, same, config)()["validation_style_gap"] == 0


def test_validation_data_without_labels_or_orders_are_refused(toy: ModuleType, base: str, tmp_path: Path) -> None:
    held = ["worlds/style:validation"]
    negatives = [toy.row(number, label=0, listed=False) for number in range(4)]
    objective = toy.trainer(toy.options(base), tmp_path).objective
    with raises("validation-rows-missing"):
        validator(objective, negatives, toy.options(base, validation=held))
    with raises("validation-rows-missing"):
        validator(objective, negatives, toy.options(base, validation=held, train={"keep": "order"}))
