"""The gate on one metric."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from results.statistics.difference import Range, Side
from results.statistics.gate import GateDecision, decide_all


def non_inferiority(
    candidate: ArrayLike | Side,
    baseline: ArrayLike | Side,
    *,
    margin: float,
    higher_is_better: bool = True,
    metric: Range | None = None,
    **more: Any,
) -> GateDecision:
    """Decide whether a candidate regressed against a baseline on one metric (`decide_all`)."""
    lower = set() if higher_is_better else {""}
    ranges = {} if metric is None else {"": metric}
    return decide_all({"": candidate}, {"": baseline}, margins=margin, lower_is_better=lower, ranges=ranges, **more).decisions[""]
