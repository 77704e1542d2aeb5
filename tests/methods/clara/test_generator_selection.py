"""The differentiable top-k: selections, soft weights, and a gradient that equals its closed form."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from methods.clara.generator import EPSILON, Selection, Variant, select
from tests.support.errors import raises

VARIANTS: tuple[Variant, ...] = ("minus_infinity", "equation", "algorithm")


@st.composite
def cases(draw: Any) -> tuple[torch.Tensor, torch.Tensor, int, float]:
    """Draw scores [B, D], memory [B, D, M, h], k, τ."""
    batch, documents = draw(st.integers(1, 3)), draw(st.integers(1, 6))
    k = draw(st.integers(1, documents))
    tau = draw(st.sampled_from([0.02, 0.1, 1.0]))
    rows = st.lists(st.floats(-1, 1, width=32), min_size=documents, max_size=documents)
    scores = torch.tensor([draw(rows) for _ in range(batch)], dtype=torch.float64)
    memory = torch.randn(batch, documents, 2, 3, dtype=torch.float64, generator=_generator(draw(st.integers(0, 99))))
    return scores, memory, k, tau


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.slow
@given(cases(), st.sampled_from(VARIANTS))
def test_forward_pass_is_the_memory_of_the_top_k_by_descending_score(case: Any, variant: Variant) -> None:
    scores, memory, k, tau = case
    chosen = select(scores, k, tau, variant=variant)
    for row, ids in enumerate(chosen.ids.tolist()):
        # Python's sort is stable: of equal scores the first comes first.
        assert ids == sorted(range(scores.shape[1]), key=lambda position: -float(scores[row, position]))[:k]
        assert torch.allclose(chosen.apply(memory)[row], memory[row, ids], atol=1e-12, rtol=0)
    assert torch.allclose(chosen.weights.sum(-1), torch.ones(1, dtype=torch.float64), atol=1e-12)


def test_selecting_all_candidates_gives_a_permutation() -> None:
    scores = torch.randn(4, 6, dtype=torch.float64, generator=_generator(0))
    weights = select(scores, 6, 0.02).weights
    assert torch.equal(weights.sum(1), torch.ones(4, 6, dtype=torch.float64))
    assert torch.equal(weights.sort(-1).values[..., :-1], torch.zeros(4, 6, 5, dtype=torch.float64))


@given(cases())
def test_gradient_of_scores_equals_the_closed_form(case: Any) -> None:
    scores, memory, k, tau = case
    scores.requires_grad_()
    chosen = select(scores, k, tau)
    slopes = torch.randn(*chosen.apply(memory).shape, dtype=torch.float64, generator=_generator(1))
    (chosen.apply(memory) * slopes).sum().backward()
    expected = torch.zeros_like(scores)
    flat, g = memory.flatten(2), slopes.flatten(2)
    for b in range(len(scores)):
        taken: list[int] = []
        for j in range(k):
            left = [i for i in range(scores.shape[1]) if i not in taken]
            top = max(float(scores[b, i].detach()) / tau for i in left)
            shares = {i: math.exp(float(scores[b, i].detach()) / tau - top) for i in left}
            whole = sum(shares.values())
            mean = sum(shares[i] / whole * flat[b, i] for i in left)
            for i in left:
                expected[b, i] += shares[i] / whole * float(g[b, j] @ (flat[b, i] - mean)) / tau
            taken.append(int(chosen.ids[b, j]))
    assert torch.allclose(scores.grad, expected, atol=1e-10, rtol=1e-10)
    assert torch.allclose(scores.grad.sum(1), torch.zeros(1, dtype=torch.float64), atol=1e-10)


@given(cases())
def test_selected_document_has_zero_soft_weight_in_later_slots(case: Any) -> None:
    scores, _, k, tau = case
    chosen = select(scores, k, tau)
    for row in range(len(scores)):
        for slot in range(k):
            assert chosen.soft[row, slot, chosen.ids[row, :slot]].sum() == 0


@given(cases(), st.floats(-5, 5), st.sampled_from(VARIANTS))
def test_selection_is_invariant_to_a_constant_shift_of_scores(case: Any, shift: float, variant: Variant) -> None:
    scores, _, k, tau = case
    scores = (scores * 64).round() / 64  # so that adding keeps the order, ties included
    shift = round(shift * 64) / 64
    plain, moved = select(scores, k, tau, variant=variant), select(scores + shift, k, tau, variant=variant)
    assert torch.equal(plain.ids, moved.ids)
    assert torch.allclose(plain.soft, moved.soft, atol=1e-9)


def test_soft_weights_sharpen_at_low_and_flatten_at_high_temperature() -> None:
    scores = torch.tensor([[0.3, 0.9, 0.1, 0.5]], dtype=torch.float64)
    cold, hot = select(scores, 2, 1e-4), select(scores, 2, 1e6)
    assert torch.allclose(cold.soft, cold.weights, atol=1e-12)
    assert torch.allclose(hot.soft[0, 0], torch.full((4,), 0.25, dtype=torch.float64), atol=1e-5)
    third = 1 / 3
    expected = torch.tensor([third, 0, third, third], dtype=torch.float64)
    assert torch.allclose(hot.soft[0, 1], expected, atol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_masked_candidates_are_never_selected_and_have_no_gradient(variant: Variant) -> None:
    scores = torch.tensor([[9.0, 0.2, float("nan"), 0.4, 0.1]], dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[False, True, False, True, True]])
    memory = torch.randn(1, 5, 2, 3, dtype=torch.float64, generator=_generator(2))
    chosen = select(scores, 3, 0.1, mask, variant)
    assert chosen.ids.tolist() == [[3, 1, 4]]
    chosen.apply(memory).square().sum().backward()
    assert scores.grad is not None
    assert scores.grad[0, [0, 2]].tolist() == [0, 0]
    assert scores.grad[0, [1, 3, 4]].abs().min() > 0


def test_masked_candidates_do_not_change_the_selection() -> None:
    scores = torch.tensor([[0.4, 0.1, 0.3]], dtype=torch.float64)
    wide = torch.tensor([[0.4, 7.0, 0.1, 0.3]], dtype=torch.float64)
    mask = torch.tensor([[True, False, True, True]])
    narrow, masked = select(scores, 2, 0.1), select(wide, 2, 0.1, mask)
    assert torch.equal(masked.soft[..., [0, 2, 3]], narrow.soft)


def test_fewer_candidates_than_slots_are_refused() -> None:
    scores = torch.tensor([[0.4, 0.1, 0.3], [0.1, 0.2, 0.3]])
    mask = torch.tensor([[True, True, True], [True, False, True]])
    with raises("too-few-candidates"):
        select(scores, 3, 0.02, mask)
    with raises("too-few-candidates"):
        select(scores, 1, 0.02, torch.zeros_like(mask))
    with raises("too-few-candidates"):
        select(scores, 4, 0.02)


def test_one_slot_equals_a_straight_through_softmax() -> None:
    scores = torch.randn(3, 5, dtype=torch.float64, generator=_generator(3), requires_grad=True)
    memory = torch.randn(3, 5, 1, 4, dtype=torch.float64, generator=_generator(4))
    slopes = torch.randn(3, 1, 1, 4, dtype=torch.float64, generator=_generator(5))
    (select(scores, 1, 0.5).apply(memory) * slopes).sum().backward()
    result, scores.grad = scores.grad, None
    soft = torch.softmax(scores / 0.5, -1)
    (torch.einsum("bd,bdmh->bmh", soft, memory).unsqueeze(1) * slopes).sum().backward()
    assert scores.grad is not None
    assert torch.allclose(result, scores.grad, atol=1e-12)  # type: ignore[arg-type]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_stay_finite_at_extreme_scores(variant: Variant, dtype: torch.dtype) -> None:
    scores = torch.tensor([[1e4, -1e4, 0.0, 1.0, 1.0]], dtype=dtype, requires_grad=True)
    memory = torch.randn(1, 5, 2, 3, generator=_generator(6)).to(dtype)
    chosen = select(scores, 4, 1e-9, variant=variant)
    assert chosen.weights.dtype == torch.float32
    chosen.apply(memory).square().sum().backward()
    assert scores.grad is not None
    assert scores.grad.dtype == dtype
    assert scores.grad.isfinite().all()


def test_autocast_does_not_reduce_the_precision_of_selected_memory() -> None:
    scores = torch.randn(2, 6, generator=_generator(7))
    memory = torch.randn(2, 6, 3, 5, generator=_generator(8))
    with torch.autocast("cpu", torch.bfloat16):
        chosen = select(scores, 3, 0.02)
        picked = chosen.apply(memory)
    assert torch.equal(picked, torch.stack([row[ids] for row, ids in zip(memory, chosen.ids, strict=True)]))


def test_attached_memory_gets_the_gradient_of_its_slot_and_detached_none() -> None:
    scores = torch.tensor([[0.1, 0.9, 0.5]], dtype=torch.float64, requires_grad=True)
    memory = torch.randn(1, 3, 1, 2, dtype=torch.float64, generator=_generator(9), requires_grad=True)
    select(scores, 2, 0.1).apply(memory.detach()).sum().backward()
    assert memory.grad is None
    select(scores, 2, 0.1).apply(memory).sum().backward()
    assert memory.grad is not None
    assert memory.grad[0, :, 0, 0].tolist() == [0, 1, 1]


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradient_of_soft_weights_equals_finite_differences(variant: Variant) -> None:
    scores = torch.tensor([[0.1, 0.9, 0.5, 0.3], [0.3, 0.2, 0.8, 0.6]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s: select(s, 3, 0.5, variant=variant).soft, (scores,))


def test_printed_algorithm_leaves_weight_on_a_selected_document() -> None:
    # The case of the paper's two forms: a lead above τ · 18.42 = 0.368 survives the mask of algorithm 1.
    scores = torch.tensor([[0.9, 0.4, 0.35, 0.1]], dtype=torch.float64)
    second = {variant: select(scores, 2, 0.02, variant=variant).soft[0, 1] for variant in VARIANTS}
    assert float(second["algorithm"][0]) == pytest.approx(0.9985, abs=1e-4)
    assert float(second["equation"][0]) < 1e-300
    assert float(second["minus_infinity"][0]) == 0
    assert torch.allclose(second["equation"], second["minus_infinity"], atol=1e-6)


def _as_printed(scores: list[float], k: int, tau: float) -> tuple[list[list[float]], list[int]]:
    """Compute Algorithm 1 line by line: soft weights of each slot, ranks."""
    taken, soft, ranks = [0.0] * len(scores), [], []
    for _ in range(k):
        ranks.append(max((i for i in range(len(scores)) if not taken[i]), key=lambda i: scores[i]))
        logits = [s / max(tau, 1e-6) + math.log(1 - t + EPSILON) for s, t in zip(scores, taken, strict=True)]
        shares = [math.exp(logit - max(logits)) for logit in logits]
        soft.append([share / sum(shares) for share in shares])
        taken[ranks[-1]] = 1.0
    return soft, ranks


@given(cases())
def test_the_algorithm_variant_is_algorithm_1(case: Any) -> None:
    scores, _, k, tau = case
    chosen: Selection = select(scores, k, tau, variant="algorithm")
    for row, values in enumerate(scores.tolist()):
        soft, ranks = _as_printed(values, k, tau)
        assert chosen.ids[row].tolist() == ranks
        assert torch.allclose(chosen.soft[row], torch.tensor(soft, dtype=torch.float64), atol=1e-10)


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        select(torch.tensor([[0.1, float("nan")]]), 1, 0.02)
    with pytest.raises(ValueError, match="dimensions"):
        select(torch.tensor([0.1, 0.2]), 1, 0.02)
    with pytest.raises(ValueError, match="mask"):
        select(torch.tensor([[0.1, 0.2]]), 1, 0.02, torch.tensor([True, True]))
    with pytest.raises(ValueError, match="tau=0"):
        select(torch.tensor([[0.1, 0.2]]), 1, 0)


def test_learning_through_the_selection_finds_the_document_that_minimizes_the_loss() -> None:
    # The hard choice gives the slope at one point only; where the loss is convex that is enough to find the best.
    generator = _generator(11)
    documents = torch.nn.functional.normalize(torch.randn(64, 6, 8, generator=generator), dim=-1)
    wanted = torch.randint(6, (64,), generator=generator)
    goal = documents[torch.arange(64), wanted]
    weight = torch.nn.Parameter(0.1 * torch.randn(8, 8, generator=generator))
    optimizer = torch.optim.Adam([weight], lr=0.02)
    recalls = []
    for _ in range(150):
        queries = torch.nn.functional.normalize(goal.flip(-1) @ weight, dim=-1)
        chosen = select(torch.einsum("bh,bdh->bd", queries, documents), 1, 0.1)
        recalls.append(float((chosen.ids[:, 0] == wanted).float().mean()))
        loss = (chosen.apply(documents.unsqueeze(2))[:, 0, 0] - goal).square().sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert recalls[0] < 0.5
    assert recalls[-1] > 0.95
