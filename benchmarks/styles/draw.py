"""Which candidates of a question are told in which style.

`exact`: of N candidates exactly round(r × N) stay formal (r: the formal share; a half rounds to the even number, as
`round` does), the others are shared out among the styles, to the nearest whole number. Which ones is drawn from seed
and question id alone, by one order of the positions: so every method meets the same text, and what is formal at one
share is formal at every larger one. `coin`: each candidate is drawn by itself, so shares are met on average only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from benchmarks.draws import Draws
from benchmarks.errors import UserError
from benchmarks.styles.rewriter import FORMAL

Draw = Literal["exact", "coin"]
Has = Callable[[int, str], bool]
"""Whether the candidate at a position can be told in a style."""


def shares_of(mix: Mapping[str, float]) -> dict[str, float]:
    """The shares of the styles beside the formal one.

    Raises:
        UserError: A share lies outside [0, 1], or they do not sum to 1 (to at most 1, where formal is not named).
    """
    where = f"mix: {dict(mix)}"
    for style, share in mix.items():
        if not 0 <= share <= 1:
            raise UserError(f"the share of {style} is {share}", where=where, try_this="give shares from 0 to 1")
    total = math.fsum(mix.values())
    if total > 1 + 1e-9 or (FORMAL in mix and total < 1 - 1e-9):
        raise UserError(
            f"the shares of the styles sum to {total:g}",
            where=where,
            try_this="shares that sum to 1; without formal, what is missing to 1 is formal",
        )
    return {style: share for style, share in mix.items() if style != FORMAL}


def assigned(size: int, shares: Mapping[str, float], seed: int, question_id: str, has: Has, draw: Draw = "exact") -> tuple[list[str], int]:
    """Draw the styles of a question's candidates.

    Where a candidate cannot be told in the style drawn, another one that can changes places with it; only where no
    such change helps it stays formal.

    Args:
        size: Number of candidates.
        shares: As `shares_of` gives them.
        seed, question_id: What the draw depends on.
        has: Which candidates can be told how.
        draw: How.

    Returns:
        A style for each position, and how many stay formal that were to be told otherwise.
    """
    draws = Draws("style mix", draw, seed, question_id)
    if draw == "coin":
        wished = [_toss(shares, draws) for _ in range(size)]
        found = [style if style == FORMAL or has(place, style) else FORMAL for place, style in enumerate(wished)]
        return found, sum(style == FORMAL for style in found) - wished.count(FORMAL)
    order = list(range(size))
    draws.shuffle(order)
    styles = [FORMAL] * size
    for place, style in zip(order, _in_counts(size, shares), strict=True):
        styles[place] = style
    return _repaired(styles, order, has)


def formal_count(size: int, shares: Mapping[str, float]) -> int:
    """How many of so many candidates stay formal: round(r × N), of the share that the styles leave."""
    # 1 - 0.9 is a little less than 0.1: without the inner rounding, halves would round the wrong way.
    return round(round(1 - math.fsum(shares.values()), 12) * size)


def _in_counts(size: int, shares: Mapping[str, float]) -> list[str]:
    """Styles in the numbers wanted, the formal ones first."""
    formal = formal_count(size, shares)
    total = math.fsum(shares.values())
    rest = size - formal
    exact = {style: rest * share / total for style, share in shares.items()} if rest else {}
    counts = {style: int(value + 1e-9) for style, value in exact.items()}
    by_rest = sorted(exact, key=lambda style: counts[style] - exact[style])
    for style in by_rest[: rest - sum(counts.values())]:
        counts[style] += 1
    return [FORMAL] * formal + [style for style, number in counts.items() for _ in range(number)]


def _toss(shares: Mapping[str, float], draws: Draws) -> str:
    drawn = draws.random()
    for style, share in shares.items():
        if drawn < share:
            return style
        drawn -= share
    return FORMAL


def _repaired(styles: list[str], order: Sequence[int], has: Has) -> tuple[list[str], int]:
    def fits(place: int, style: str) -> bool:
        return style == FORMAL or has(place, style)

    short = 0
    for place in order:
        wished = styles[place]
        if fits(place, wished):
            continue
        other = next((p for p in order if styles[p] != wished and has(p, wished) and fits(place, styles[p])), None)
        if other is None:
            styles[place] = FORMAL
            short += 1
        else:
            styles[place], styles[other] = styles[other], wished
    return styles, short
