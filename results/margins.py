"""Margins: how much of a metric may be lost before it counts. `1.0pp` and `0.01` are the same."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from benchmarks.errors import UserError

_MARGIN = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(?:e-?\d+)?\s*(pp)?", re.IGNORECASE)


def parse_margin(text: str) -> float:
    """`1.0pp` or `0.01` as a fraction.

    Raises:
        UserError: It is neither, or not positive.
    """
    match = _MARGIN.fullmatch(text.strip())
    value = float(text.strip().lower().removesuffix("pp")) if match else math.nan
    if not value > 0 or not math.isfinite(value):
        hint = "percent of what? " if "%" in text else ""
        raise UserError(
            f"{text!r} is no margin",
            where="--margin",
            try_this=f"{hint}a positive number: 1.0pp (percentage points) or 0.01 (the same as a fraction)",
        )
    return value / 100 if match and match[2] else value


def parse_margins(texts: Sequence[str]) -> tuple[float | None, dict[str, float]]:
    """`1.0pp`, `f1=1.0pp`, …: the margin for every metric not named, and those of the named ones.

    Raises:
        UserError: One is no margin, or two are for the same.
    """
    common: float | None = None
    named: dict[str, float] = {}
    for text in texts:
        name, _, value = text.rpartition("=")
        name = name.strip()
        if (common is not None) if not name else name in named:
            raise UserError(f"two margins for {name or 'all metrics'}", where="--margin", try_this="give one")
        if name:
            named[name] = parse_margin(value)
        else:
            common = parse_margin(value)
    return common, named


def margin_of(metric: str, name: str, common: float | None, named: Mapping[str, float], scale: float | None) -> float:
    """The margin of one metric.

    Args:
        metric: Its id.
        name: How it was asked for.
        common, named: As `parse_margins` gives them.
        scale: How wide the metric's range is; None where it has no end.

    Raises:
        UserError: It has no margin, or one as wide as its range.
    """
    found = next((named[key] for key in (name, metric, metric.partition("#")[0]) if key in named), common)
    if found is None:
        raise UserError(f"no margin for {name}", where="--margin", try_this=f"--margin {name}=1.0pp")
    if scale is not None and found >= scale:
        raise UserError(
            f"a margin of {found:g} is as wide as the whole range of {metric}",
            where="--margin",
            try_this=f"{found:g}pp, if percentage points are meant",
        )
    return found
