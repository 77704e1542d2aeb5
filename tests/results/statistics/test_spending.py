"""What single attempts and decisions may spend of one error probability."""

from __future__ import annotations

import pytest

from results.statistics.spending import ALPHA, BLOCK, of_attempt, of_decision


def test_all_attempts_together_spend_no_more_than_the_whole() -> None:
    spent = [of_attempt(number) for number in range(1, 10_000)]
    assert ALPHA * 0.999 < sum(spent) < ALPHA
    assert spent == sorted(spent, reverse=True)
    assert spent[:3] == pytest.approx([0.02, 0.0025, 0.005 / 6])


def test_each_block_of_anchor_decisions_spends_half_of_the_remaining_alpha() -> None:
    spent = [of_decision(number) for number in range(1, BLOCK * 1023 + 1)]
    assert sum(spent[:BLOCK]) == pytest.approx(ALPHA / 2)
    assert sum(spent[BLOCK : 3 * BLOCK]) == pytest.approx(ALPHA / 4)
    assert len(set(spent[:BLOCK])) == 1
    assert ALPHA * 0.999 < sum(spent) < ALPHA


@pytest.mark.parametrize("spend", [of_attempt, of_decision])
def test_numbers_below_one_are_refused(spend: object) -> None:
    with pytest.raises(ValueError, match="from 1"):
        spend(0)  # type: ignore[operator]
