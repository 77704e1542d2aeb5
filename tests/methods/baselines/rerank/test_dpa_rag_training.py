"""DPA-RAG's labels, rows, losses and weights against hand computations."""

from __future__ import annotations

import math

import pytest

from benchmarks.core.random import Draws
from benchmarks.schema import Passage, Question
from methods.baselines.rerank.dpa_rag_training import ALIGNED, NEUTRAL, UNALIGNED, contrast_loss, judgment, label, pair_loss, preference
from methods.baselines.tuned import Example

torch = pytest.importorskip("torch")


def test_label_compares_correctness_without_and_with_the_passage() -> None:
    assert label(0, 1) == ALIGNED
    assert label(1, 0) == UNALIGNED
    assert label(0, 0) == label(1, 1) == label(None, 1) == NEUTRAL


def test_pair_loss_is_the_mean_over_six_pairs() -> None:
    scores = [2.0, 1.0, 0.0, -1.0]
    gaps = [scores[i] - scores[j] for i in range(4) for j in range(i + 1, 4)]
    wanted = sum(math.log(1 + math.exp(-gap)) for gap in gaps) / 6
    assert float(pair_loss(torch.tensor([scores]))) == pytest.approx(wanted, rel=1e-6)
    assert float(pair_loss(torch.tensor([scores, [0.0] * 4]))) == pytest.approx((wanted + math.log(2)) / 2, rel=1e-6)


def test_contrast_loss_equals_a_hand_computation() -> None:
    states = torch.tensor([[3.0, 0.0], [1.0, 0.0], [0.0, 2.0], [0.0, 1.0]], dtype=torch.float64)
    # Of each state the other of its label has cosine 1, both others 0.
    wanted = -math.log(math.e**2 / (math.e**2 + 2))
    assert float(contrast_loss(states, torch.tensor([1, 1, 0, 0]), temperature=0.5)) == pytest.approx(wanted)


def test_preference_pairs_put_the_better_first_and_use_neutral_if_none_is_unaligned() -> None:
    passages = tuple(Passage(str(n), "", f"p{n}") for n in range(5))
    example = Example(Question("q", "who?", ("a",)), passages)
    row = preference(example, [NEUTRAL, UNALIGNED, ALIGNED, NEUTRAL, NEUTRAL], Draws(0))
    assert row is not None
    assert row.ranked[0] == "p2"
    assert len(row.ranked) == 4
    if "p1" in row.ranked:
        assert row.ranked[-1] == "p1"
    assert row.positives == ("p2", "p2")
    assert "p2" not in row.negatives
    assert len(set(row.negatives)) == 2
    assert row.aligned == (row.passage == "p2")
    assert preference(example, [NEUTRAL] * 5, Draws(0)) is None
    assert preference(example, [ALIGNED] * 5, Draws(0)) is None
    short = preference(Example(example.question, passages[:2]), [ALIGNED, NEUTRAL], Draws(0))
    assert short is not None
    assert short.ranked == ("p0", "p1", "p1", "p1")


def test_judgment_target_lists_the_numbers_of_aligned_passages() -> None:
    assert judgment([NEUTRAL, ALIGNED, ALIGNED], "Lyon") == "[2] [3] helps. Answer: Lyon"
    assert judgment([NEUTRAL, UNALIGNED], "Lyon") == "none helps. Answer: Lyon"
