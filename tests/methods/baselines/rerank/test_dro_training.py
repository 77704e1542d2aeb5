"""DRO's weights against hand computations and on a table."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pydantic import ValidationError

from methods.baselines.rerank.dro_training import order_text, weights
from methods.training import TRAININGS


def test_weights_are_normalized_likelihoods() -> None:
    assert weights([math.log(0.3), math.log(0.1)]) == pytest.approx((0.75, 0.25))
    assert weights([-1000.0, -1000.0]) == pytest.approx((0.5, 0.5))
    assert weights([-7.0]) == (1.0,)


def test_a_single_sample_is_refused() -> None:
    with pytest.raises(ValidationError):
        TRAININGS.get("dro").validate({"preset": "worlds", "samples": 1})


def test_weighted_samples_of_a_table_converge_to_the_passage_with_the_answer() -> None:
    """One of three passages is selected; the second has the answer."""
    answer = np.log([0.05, 0.9, 0.05])
    logits = np.zeros(3)
    draws = np.random.default_rng(0)
    for _ in range(400):
        shares = np.exp(logits) / np.exp(logits).sum()
        chosen = draws.choice(3, size=2, p=shares)
        for position, weight in zip(chosen, weights(answer[chosen].tolist()), strict=True):
            logits += 0.2 * weight * (np.eye(3)[position] - shares)
    assert (np.exp(logits) / np.exp(logits).sum())[1] > 0.95


def test_target_order_has_the_format_that_the_selector_parses() -> None:
    assert order_text([2, 0]) == "[3] > [1]"
