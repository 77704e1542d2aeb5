"""SARK's losses against loops in plain Python, and the signs of their gradients."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from methods.sark.loss import classified, list_terms, pairs_of, passage_terms, ranked, softmax_terms

torch = pytest.importorskip("torch")

SCORES = st.lists(st.floats(-20, 20), min_size=2, max_size=8)


def tensor(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def by_pairs(scores: list[float]) -> list[float]:
    """Compute equation 7 as printed: log(1 + exp(−(z_i − z_j))) for each i before j."""
    return [math.log1p(math.exp(-(scores[i] - scores[j]))) for i in range(len(scores)) for j in range(i + 1, len(scores))]


@settings(deadline=None)
@given(SCORES)
def test_list_loss_equals_equation_7_pair_by_pair(scores: list[float]) -> None:
    terms = list_terms(tensor([scores, scores[::-1]]))
    for own, listed in zip(terms, (scores, scores[::-1]), strict=True):
        assert own.numpy() == pytest.approx(by_pairs(listed), abs=1e-8)
    assert terms.shape[1] == pairs_of(len(scores))


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(-20, 20), st.booleans()), min_size=2, max_size=8))
def test_softmax_loss_contrasts_each_evidence_passage_with_all_others(rows: list[tuple[float, bool]]) -> None:
    others = [score for score, evidence in rows if not evidence]
    known = [score for score, evidence in rows if evidence]
    if others:
        expected = [-math.log(math.exp(score) / (math.exp(score) + sum(map(math.exp, others)))) for score in known]
        result = softmax_terms(tensor([[score for score, _ in rows]] * 2), torch.tensor([[evidence for _, evidence in rows]] * 2))
        assert result.numpy() == pytest.approx(expected * 2, abs=1e-8)


def test_list_with_the_best_passage_on_top_has_a_smaller_loss() -> None:
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


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(-20, 20), st.integers(0, 1)), min_size=1, max_size=8))
def test_passage_loss_equals_binary_cross_entropy(rows: list[tuple[float, int]]) -> None:
    scores, labels = map(list, zip(*rows, strict=True))
    expected = [math.log1p(math.exp(-score)) + (1 - label) * score for score, label in rows]
    result = passage_terms(tensor(scores), tensor([float(label) for label in labels]))
    assert result.numpy() == pytest.approx(expected, abs=1e-8)


def test_official_head_uses_cross_entropy_on_two_logits_and_ranks_by_the_second() -> None:
    logits = torch.randn(9, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(9) % 2
    expected = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    assert torch.allclose(passage_terms(classified(logits, "official"), labels.double()), expected)
    assert torch.equal(ranked(logits, "official"), logits[:, 1])
