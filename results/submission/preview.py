"""What a submission would show on its board, before anything of it is stored."""

from __future__ import annotations

from typing import Any

import numpy as np

from results.plain import plain
from results.statistics import Estimate, estimates
from results.submission.checks import Target
from results.submission.findings import Report


def preview(report: Report, target: Target) -> dict[str, Estimate]:
    """Each metric's mean with its interval, as the board computes them from stored scores.

    Args:
        report: Of `validate`.
        target: What it was checked against.

    Returns:
        By metric id; empty where the report has errors.
    """
    if not report.scores:
        return {}
    documents = [question.document_id for question in target.loaded.questions]
    found = estimates(np.stack(list(report.scores.values())), clusters=documents if any(documents) else None)
    return dict(zip(report.scores, found, strict=True))


def to_json(found: dict[str, Estimate]) -> dict[str, Any]:
    """A preview as a JSON object; None stands for "no value"."""
    names = ("value", "low", "high", "n", "unscorable", "doubt")
    return {metric: {name: plain(getattr(one, name)) for name in names} for metric, one in found.items()}
