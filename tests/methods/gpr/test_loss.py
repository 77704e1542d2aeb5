"""GPR's loss: its zeros, its values and its gradients."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from methods.gpr.loss import Cosines, LossConfig, cosines, margin, row_losses

torch = pytest.importorskip("torch")

PAPER = LossConfig.model_validate({})
cosine = st.floats(-1, 1, allow_nan=False)


def of(anchor: float, neighbor: float, negative: float, options: LossConfig = PAPER) -> float:
    result = Cosines(*(torch.tensor([x], dtype=torch.float64) for x in (anchor, neighbor, negative)))
    return float(row_losses(result, options))


def config(**options: Any) -> LossConfig:
    return LossConfig.model_validate(options)


def vectors(rows: int, dimension: int = 5, seed: int = 0) -> list[Any]:
    drawn = torch.Generator().manual_seed(seed)
    return [torch.randn(rows, dimension, generator=drawn, dtype=torch.float64) for _ in range(4)]


def test_loss_equals_hand_computed_cases() -> None:
    assert of(0.9, 0.3, -0.3) == 0
    assert of(0.25, 0.25, 0.25) == 1.0
    assert of(-0.5, 0.5, -0.5) == 1.5
    assert of(0.5, 0.5, 0.5, config(g1=0.2, g2=0.1)) == pytest.approx(0.3)


@given(cosine, cosine, cosine, st.floats(0, 1), st.floats(0, 1))
def test_loss_is_zero_exactly_if_both_margins_hold(a: float, b: float, c: float, g1: float, g2: float) -> None:
    zero = of(a, b, c, config(g1=g1, g2=g2)) == 0
    assert zero == (g1 + b - a <= 0 and g2 + c - b <= 0)


@given(cosine, cosine, cosine, st.floats(0, 1))
def test_loss_never_increases_with_the_triples_similarity(a: float, b: float, c: float, more: float) -> None:
    assert of(min(1.0, a + more), b, c) <= of(a, b, c)


@settings(max_examples=25)
@given(st.integers(1, 6), st.integers(0, 1000))
def test_loss_equals_a_loop_over_rows_and_components(rows: int, seed: int) -> None:
    question, anchor, neighbor, negative = vectors(rows, seed=seed)
    expected = []
    for n in range(rows):

        def cos(x: Any, n: int = n) -> float:
            q, t = question[n].tolist(), x[n].tolist()
            lengths = math.sqrt(sum(v * v for v in q)) * math.sqrt(sum(v * v for v in t))
            return float(sum(v * w for v, w in zip(q, t, strict=True)) / lengths)

        near, middle, far = cos(anchor), cos(neighbor), cos(negative)
        expected.append(max(0.0, 0.5 + middle - near) + max(0.0, 0.5 + far - middle))
    result = row_losses(cosines(question, anchor, neighbor, negative), PAPER)
    assert result.tolist() == pytest.approx(expected)


@given(st.lists(st.floats(0.01, 100), min_size=4, max_size=4))
def test_loss_does_not_depend_on_vector_norms(scales: list[float]) -> None:
    drawn = vectors(3)
    plain = row_losses(cosines(*drawn), PAPER)
    scaled = row_losses(cosines(*(item * by for item, by in zip(drawn, scales, strict=True))), PAPER)
    assert torch.allclose(plain, scaled)


def test_gradients_equal_finite_differences() -> None:
    drawn = [vector.requires_grad_() for vector in vectors(4, seed=3)]
    assert torch.autograd.gradcheck(lambda *parts: row_losses(cosines(*parts), PAPER), drawn)


def test_neighbor_gradients_of_both_terms_cancel() -> None:
    for near, far, expected in ((0.5, 0.4, 0.0), (0.9, 0.3, -1.0), (0.5, -0.9, 1.0)):
        middle = torch.tensor([0.35 if near == 0.9 else 0.45], requires_grad=True)
        row_losses(Cosines(torch.tensor([near]), middle, torch.tensor([far])), PAPER).sum().backward()
        assert float(middle.grad) == pytest.approx(expected)


def test_ablations_omit_one_contrast() -> None:
    assert of(0.6, -0.9, 0.4, config(neighbors=False)) == pytest.approx(0.3)
    assert of(0.6, 0.4, 0.9, config(negatives=False)) == pytest.approx(0.3)
    with pytest.raises(ValidationError, match="must not both be off"):
        config(neighbors=False, negatives=False)


def test_rows_count_as_ordered_only_if_both_comparisons_are_strict() -> None:
    result = Cosines(torch.tensor([0.9, 0.9, 0.1]), torch.tensor([0.5, 0.9, 0.5]), torch.tensor([0.1, 0.1, 0.0]))
    assert result.ordered().tolist() == [True, False, False]


def test_margin_is_clamped_at_zero() -> None:
    assert float(margin(torch.tensor(1.0), torch.tensor(-1.0), 0.5)) == 0
