"""Where the names of points stand on a chart, so that near points do not write over each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from leaderboard.elements.curve_chart import Point, rows_of

LEFT, RIGHT = "left", "right"
_WIDE, _HIGH = 0.16, 0.045
"""What a name takes of the chart's width and height."""
_EDGE = 0.82
"""From this share of the width on a name stands left of its point."""


def placed(points: Sequence[Point], *, logarithmic: bool = False, within: float = math.inf) -> list[dict[str, Any]]:
    """The points' rows of data with `label`, where the name stands on the y axis, and `align`, left or right.

    Names stand at the height of their points, right of them unless another point or interval is there and none on the
    left; one that would stand on another name moves down until it is free.

    Args:
        points: To be named.
        logarithmic: Whether x is drawn so.
        within: How many lines down a name may move; those that would have to move further are left out.
    """
    rows = sorted(rows_of(points), key=lambda row: -float(row["value"]))
    if not rows:
        return []
    across = [math.log(row["x"]) if logarithmic else float(row["x"]) for row in rows]
    width = max(across) - min(across) or 1.0
    ends = [float(row[key]) for row in rows for key in ("low", "value", "high") if row[key] is not None]
    step = _HIGH * (max(ends) - min(ends) or 1.0)
    shares = [(x - min(across)) / width for x in across]
    taken: list[tuple[float, float]] = []
    kept = []
    for row, share in zip(rows, shares, strict=True):
        height = float(row["value"])
        row["align"] = _side(row, share, shares, rows, step)
        middle = share + _WIDE / 2 * (-1 if row["align"] == RIGHT else 1)
        for other, at in taken:  # from top to bottom, so one pass is enough
            if abs(middle - other) < _WIDE and abs(height - at) < step:
                height = at - step
        if float(row["value"]) - height > within * step:
            continue
        taken.append((middle, height))
        taken.sort(key=lambda one: -one[1])
        row["label"] = height
        kept.append(row)
    return kept


def _side(row: dict[str, Any], share: float, shares: Sequence[float], rows: Sequence[dict[str, Any]], step: float) -> str:
    """The edge of a name that is at its point: the left one where the name may stand right of it."""
    if share > _EDGE:
        return RIGHT
    height = float(row["value"])

    def crossed(start: float, end: float) -> bool:
        return any(
            start < other < end and _end(one, "low") - step < height < _end(one, "high") + step
            for one, other in zip(rows, shares, strict=True)
            if one is not row
        )

    return RIGHT if share > _WIDE and crossed(share, share + _WIDE) and not crossed(share - _WIDE, share) else LEFT


def _end(row: dict[str, Any], side: str) -> float:
    return float(row["value"] if row[side] is None else row[side])
