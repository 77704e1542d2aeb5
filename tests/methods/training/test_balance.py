"""λ against a brute-force grid, and the properties of the combined gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from methods.training.balance import Products, combined, minimum_norm_weight, minimum_norm_weights

torch = pytest.importorskip("torch")

GRID = np.linspace(0, 1, 20_001)
NUMBERS = st.floats(-10, 10, allow_subnormal=False).map(lambda number: 0.0 if abs(number) < 1e-3 else number)
VECTORS = st.integers(1, 6).flatmap(
    lambda size: st.tuples(arrays.arrays(np.float64, size, elements=NUMBERS), arrays.arrays(np.float64, size, elements=NUMBERS))
)


def products(passage: Any, listwise: Any) -> Products:
    """Return the products of vectors, each split into two parameters."""

    def parts(vector: Any) -> list[Any]:
        whole = torch.tensor(np.asarray(vector, dtype=np.float32))
        return [whole[: len(whole) // 2], whole[len(whole) // 2 :]]

    return Products.of(parts(passage), parts(listwise))


def norms(passage: np.ndarray, listwise: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Compute ‖λ g_p + (1 − λ) g_l‖² for each weight."""
    points = weights[:, None] * passage + (1 - weights)[:, None] * listwise
    return (points**2).sum(1)


def apart(passage: np.ndarray, listwise: np.ndarray) -> None:
    """Skip gradients that are so similar that every λ is equally good."""
    assume(float(((passage - listwise) ** 2).sum()) > 1e-2)


@given(VECTORS)
def test_closed_form_weight_is_the_best_point_of_a_grid(both: tuple[np.ndarray, np.ndarray]) -> None:
    apart(*both)
    weight = products(*both).weight
    assert 0 <= weight <= 1
    best = float(GRID[np.argmin(norms(*both, GRID))])
    assert weight == pytest.approx(best, abs=1e-4)


@pytest.mark.slow
@given(VECTORS)
def test_combined_gradient_lowers_both_losses_and_has_the_smallest_norm(both: tuple[np.ndarray, np.ndarray]) -> None:
    passage, listwise = both
    weight = products(*both).weight
    direction = weight * passage + (1 - weight) * listwise
    square = float(direction @ direction)
    allowed = 1e-4 * (1 + float(passage @ passage) + float(listwise @ listwise))
    assert direction @ passage >= square - allowed
    assert direction @ listwise >= square - allowed
    assert square <= min(float(passage @ passage), float(listwise @ listwise)) + allowed


@pytest.mark.slow
@settings(deadline=None)
@given(VECTORS)
def test_exchanging_the_tasks_exchanges_their_weights(both: tuple[np.ndarray, np.ndarray]) -> None:
    apart(*both)
    assert products(*both[::-1]).weight == pytest.approx(1 - products(*both).weight, abs=1e-5)


@pytest.mark.slow
@settings(deadline=None)
@given(VECTORS, st.floats(1, 20))
def test_task_with_a_larger_gradient_never_gets_more_weight(both: tuple[np.ndarray, np.ndarray], factor: float) -> None:
    passage, listwise = both
    apart(passage, listwise)
    apart(factor * passage, listwise)
    assert products(factor * passage, listwise).weight <= products(passage, listwise).weight + 1e-5


@settings(deadline=None)
@given(VECTORS, st.sampled_from([1e-3, 1e-6, 1e-12, 1e4]))
def test_weights_do_not_depend_on_the_scale_of_both_gradients(both: tuple[np.ndarray, np.ndarray], scale: float) -> None:
    apart(*both)
    scaled = products(*(scale * item for item in both))
    assert scaled.weight == pytest.approx(products(*both).weight, abs=1e-4)
    assert scaled.cosine == pytest.approx(products(*both).cosine, abs=1e-4)


def test_equal_gradients_get_equal_weights() -> None:
    assert products([1, -2, 3], [1, -2, 3]).weight == 0.5
    assert products([0, 0, 0], [0, 0, 0]).weight == 0.5
    assert minimum_norm_weight(0.0, 0.0) == 0.5


def test_orthogonal_gradients_of_equal_norm_get_equal_weights() -> None:
    result = products([0, 3, 4, 0], [4, 0, 0, 3])
    assert result.weight == 0.5
    assert result.cosine == 0


@pytest.mark.parametrize(
    ("passage", "listwise", "weight"),
    [
        ([1.0, 0.0], [2.0, 1.0], 1.0),  # g_p · g_l ≥ ‖g_p‖²
        ([2.0, 1.0], [1.0, 0.0], 0.0),  # g_p · g_l ≥ ‖g_l‖²
        ([1.0, 0.0], [-3.0, 0.0], 0.75),
        ([0.0, 0.0], [1.0, 1.0], 1.0),
        ([3.0, 0.0], [0.0, 1.0], 0.1),
    ],
)
def test_weights_equal_hand_computations(passage: list[float], listwise: list[float], weight: float) -> None:
    assert products(passage, listwise).weight == pytest.approx(weight, abs=1e-7)


def test_nearly_equal_gradients_are_distinguished() -> None:
    # From ‖g_p‖² + ‖g_l‖² − 2 g_p · g_l nothing would be left of a difference of 1e-6.
    generator = np.random.default_rng(0)
    base = generator.standard_normal(1000)
    away = generator.standard_normal(1000)
    away -= base * (away @ base) / (base @ base)
    passage, listwise = (base - 1e-6 * away).astype(np.float32), (base + 3e-6 * away).astype(np.float32)
    exact = listwise.astype(np.float64)
    gap = exact - passage.astype(np.float64)
    assert products(passage, listwise).weight == pytest.approx(np.clip(exact @ gap / (gap @ gap), 0, 1), abs=1e-4)


def test_norms_and_cosine_equal_numpy() -> None:
    passage, listwise = np.random.default_rng(1).standard_normal((2, 50))
    result = products(passage, listwise)
    assert result.passage**0.5 == pytest.approx(np.linalg.norm(passage), rel=1e-6)
    assert result.listwise**0.5 == pytest.approx(np.linalg.norm(listwise), rel=1e-6)
    cosine = passage @ listwise / np.linalg.norm(passage) / np.linalg.norm(listwise)
    assert result.cosine == pytest.approx(cosine, abs=1e-6)


def test_parameter_without_gradient_of_one_loss_counts_as_zero() -> None:
    item, other = torch.tensor([3.0]), torch.tensor([1.0])
    result = Products.of([item, None, None], [None, other, None])
    assert result.weight == pytest.approx(0.1)
    step = combined([item, None, None], [None, other, None], 0.1)
    assert [None if part is None else part.item() for part in step] == [pytest.approx(0.3), pytest.approx(0.9), None]


@settings(deadline=None)
@given(VECTORS, st.floats(0, 1))
def test_combined_gradient_is_the_weighted_sum(both: tuple[np.ndarray, np.ndarray], weight: float) -> None:
    passage, listwise = (torch.tensor(item) for item in both)
    (result,) = combined([passage], [listwise], weight)
    assert torch.allclose(result, weight * passage + (1 - weight) * listwise)
    assert torch.equal(combined([passage], [listwise], 1.0)[0], passage)
    assert torch.equal(combined([passage], [listwise], 0.0)[0], listwise)


def test_overflow_is_detected() -> None:
    fine = torch.tensor([1.0])
    for bad in (float("inf"), float("nan")):
        assert not Products.of([torch.tensor([bad])], [fine]).finite
    assert Products.of([fine], [fine]).finite


def test_weights_of_three_gradients_equal_hand_computations() -> None:
    # Of (2, 0) and (0, 1) the nearest point to zero is (0.4, 0.8); (3, 3) lies beyond it.
    gradients = np.array([[2.0, 0.0], [0.0, 1.0], [3.0, 3.0]])
    assert minimum_norm_weights(gradients @ gradients.T) == pytest.approx([0.2, 0.8, 0.0])
    assert minimum_norm_weights(np.zeros((3, 3))).sum() == pytest.approx(1)


@given(arrays.arrays(np.float64, (3, 4), elements=NUMBERS))
def test_weights_of_three_gradients_give_a_norm_at_most_that_of_a_grid(gradients: np.ndarray) -> None:
    weights = minimum_norm_weights(gradients @ gradients.T)
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1)
    grid = np.array([(a, b, 1 - a - b) for a in np.linspace(0, 1, 41) for b in np.linspace(0, 1, 41) if a + b <= 1])
    best = ((grid @ gradients) ** 2).sum(1).min()
    assert ((weights @ gradients) ** 2).sum() <= best * (1 + 1e-6) + 1e-9
