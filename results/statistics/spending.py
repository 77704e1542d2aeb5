"""Spend one error probability over many decisions, so that repeating a decision cannot win by chance.

Both rules fix beforehand what the n-th decision may spend, whatever the results are. The spent parts sum to the whole,
so by Bonferroni's inequality the probability of any false claim stays below it, however the decisions depend on each
other.
"""

from __future__ import annotations

from results.statistics.core import LEVEL

ALPHA = (1 - LEVEL) / 2
"""Probability of a false claim over all decisions together."""
FIRST = 0.8
"""Share of the total that the first attempt of a candidate spends; all retries share the rest."""
BLOCK = 20
"""Number of decisions about one anchor that spend equal parts; each later block is twice as long and spends half as much."""


def of_attempt(attempt: int, alpha: float = ALPHA) -> float:
    """Return the error probability that alpha spending allots to the claim "pass" in a candidate's nth attempt (n from 1).

    The first attempt spends `FIRST`, and attempt r spends a part 1 / (r (r - 1)) of the rest.

    Raises:
        ValueError: The attempt is below 1.

    Source: Lan & DeMets (1983), "Discrete sequential boundaries for clinical trials", with a spending function that
        leaves a single attempt nearly all.
    """
    if attempt < 1:
        raise ValueError(f"attempts count from 1, got {attempt}")
    return alpha * (FIRST if attempt == 1 else (1 - FIRST) / (attempt * (attempt - 1)))


def of_decision(number: int, alpha: float = ALPHA) -> float:
    """Return the error probability that alpha spending allots to the nth claim "regressed since the anchor" (n from 1).

    Block j = 0, 1, … has `BLOCK` · 2^j decisions, which together spend alpha / 2^(j + 1).

    Raises:
        ValueError: The number is below 1.
    """
    if number < 1:
        raise ValueError(f"decisions count from 1, got {number}")
    block = ((number - 1) // BLOCK + 1).bit_length() - 1
    return alpha / (BLOCK * 2.0**block * 2 ** (block + 1))
