"""SARK's losses against loops in plain Python, and the directions in which they pull."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from methods.sark.loss import classified, list_terms, pairs_of, passage_terms, ranked

torch = pytest.importorskip("torch")

SCORES = st.lists(st.floats(-20, 20), min_size=2, max_size=8)


def tensor(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def by_pairs(scores: list[float]) -> list[float]:
    """Equation 7 as printed: log(1 + exp(−(z_i − z_j))) for each i before j."""
    return [math.log1p(math.exp(-(scores[i] - scores[j]))) for i in range(len(scores)) for j in range(i + 1, len(scores))]


@settings(deadline=None)
@given(SCORES)
def test_the_list_loss_is_equation_7_pair_by_pair(scores: list[float]) -> None:
    terms = list_terms(tensor([scores]))[0]
    assert terms.numpy() == pytest.approx(by_pairs(scores), abs=1e-8)
    assert len(terms) == pairs_of(len(scores))


def test_equal_scores_give_the_logarithm_of_2() -> None:
    assert list_terms(torch.full((3, 6), 1.7)).numpy() == pytest.approx(np.full((3, 15), math.log(2)))


def test_a_list_whose_best_scores_highest_has_the_smaller_loss() -> None:
    best_first = tensor([[5, 4, 3, 2, 1, 0]])
    right, wrong = (float(list_terms(item).mean()) for item in (best_first, best_first.flip(1)))
    assert right < wrong
    # As measured on the released code, which has the two the wrong way round.
    assert (right, wrong) == pytest.approx((0.151, 2.484), abs=5e-4)


def test_the_gradient_raises_the_best_and_lowers_the_worst() -> None:
    scores = torch.zeros(1, 6, dtype=torch.float64, requires_grad=True)
    list_terms(scores).mean().backward()
    gradient = scores.grad[0].tolist()
    assert gradient == sorted(gradient)
    assert gradient[0] < 0 < gradient[-1]
    assert sum(gradient) == pytest.approx(0)


def test_a_perfect_order_with_growing_gaps_tends_to_no_loss() -> None:
    losses = [float(list_terms(tensor([[gap * position for position in range(6, 0, -1)]])).mean()) for gap in (0, 1, 5, 50)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 1e-12


@settings(deadline=None)
@given(SCORES, st.floats(-50, 50))
def test_the_list_loss_knows_differences_alone(scores: list[float], shift: float) -> None:
    moved = list_terms(tensor([[score + shift for score in scores]]))
    assert moved.numpy() == pytest.approx(list_terms(tensor([scores])).numpy(), abs=1e-8)


@settings(deadline=None)
@given(SCORES)
def test_reversing_a_list_flips_every_difference(scores: list[float]) -> None:
    # softplus(−d) − softplus(d) = −d
    forwards, backwards = (list_terms(tensor([item])).sum() for item in (scores, scores[::-1]))
    gaps = sum(scores[i] - scores[j] for i in range(len(scores)) for j in range(i + 1, len(scores)))
    assert float(forwards - backwards) == pytest.approx(-gaps, abs=1e-6)


def test_lists_have_terms_of_their_own() -> None:
    scores = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    whole = list_terms(scores)
    assert whole.shape == (4, 15)
    for row in range(4):
        assert torch.allclose(whole[row], list_terms(scores[row : row + 1])[0])


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(-20, 20), st.integers(0, 1)), min_size=1, max_size=8))
def test_the_passage_loss_is_the_binary_cross_entropy(rows: list[tuple[float, int]]) -> None:
    scores, labels = map(list, zip(*rows, strict=True))
    expected = [math.log1p(math.exp(-score)) + (1 - label) * score for score, label in rows]
    result = passage_terms(tensor(scores), tensor([float(label) for label in labels]))
    assert result.numpy() == pytest.approx(expected, abs=1e-8)


def test_the_official_head_learns_by_a_cross_entropy_on_two_logits_and_ranks_by_the_second() -> None:
    logits = torch.randn(9, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(9) % 2
    expected = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    assert torch.allclose(passage_terms(classified(logits, "official"), labels.double()), expected)
    assert torch.equal(ranked(logits, "official"), logits[:, 1])


def test_the_head_of_the_paper_has_one_score_for_both() -> None:
    logits = torch.randn(5, 1, generator=torch.Generator().manual_seed(2))
    assert torch.equal(classified(logits, "paper"), logits[:, 0])
    assert torch.equal(ranked(logits, "paper"), logits[:, 0])
