"""Read margins: the loss of a metric that is tolerated. `1.0pp` and `0.01` are the same."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from benchmarks.core.errors import UserError

_MARGIN = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(?:e-?\d+)?\s*(pp)?", re.IGNORECASE)


def parse_margin(text: str, where: str = "--margin") -> float:
    """Parse a margin, `1.0pp` (percentage points) or `0.01`, as a fraction.

    Raises:
        UserError: The text is not a margin, or not positive.
    """
    match = _MARGIN.fullmatch(text.strip())
    value = float(text.strip().lower().removesuffix("pp")) if match else math.nan
    if not value > 0 or not math.isfinite(value):
        hint = "a percentage is ambiguous; " if "%" in text else ""
        raise UserError(
            f"invalid margin {text!r}",
            code="invalid-margin",
            where=where,
            try_this=f"{hint}give a positive number: 1.0pp (percentage points) or 0.01 (the same as a fraction)",
        )
    return value / 100 if match and match[2] else value


def parse_margins(texts: Sequence[str]) -> tuple[float | None, dict[str, float]]:
    """Parse `--margin` options: `1.0pp` sets the margin of all other metrics, `f1=1.0pp` that of one metric.

    Raises:
        UserError: A margin is invalid, or two are for the same metric.
    """
    common: float | None = None
    named: dict[str, float] = {}
    for text in texts:
        name, _, value = text.rpartition("=")
        name = name.strip()
        if (common is not None) if not name else name in named:
            raise UserError(f"two margins for {name or 'all metrics'}", code="duplicate-margin", where="--margin", try_this="give one")
        if name:
            named[name] = parse_margin(value)
        else:
            common = parse_margin(value)
    return common, named


def margin_of(metric: str, name: str, common: float | None, named: Mapping[str, float], scale: float | None) -> float:
    """Return the margin of one metric.

    Args:
        metric: Id of the metric.
        name: The user's name of the metric.
        common, named: The two results of `parse_margins`.
        scale: Width of the metric's range; None if it is unbounded.

    Raises:
        UserError: The metric has no margin, or one as wide as its range.
    """
    result = next((named[key] for key in (name, metric, metric.partition("#")[0]) if key in named), common)
    if result is None:
        raise UserError(f"no margin for {name}", code="no-margin", where="--margin", try_this=f"--margin {name}=1.0pp")
    if scale is not None and result >= scale:
        raise UserError(
            f"a margin of {result:g} is as wide as the whole range of {metric}",
            code="margin-too-wide",
            where="--margin",
            try_this=f"{result:g}pp if you mean percentage points",
        )
    return result
