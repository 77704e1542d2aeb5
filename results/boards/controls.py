"""Find metrics and judges that rank a control wrongly.

The expected rank of a control is known. No method can answer better than the gold answer, empty and wrong answers must rank
below the best method, and a whole passage is not an answer. A metric that ranks them differently on these questions does not
measure whether answers are correct.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

BEST = "gold_answer"
WORTHLESS = ("empty_answer", "idk", "shuffled_answer")
NO_ANSWER = "whole_passage"
ABOUT_ANSWERS = ("answer", "text", "judge", "graph")
"""Groups of metrics that controls with known answers can check."""
_SLACK = 1e-9


def wrongly_ranked(controls: Mapping[str, float], methods: Mapping[str, float]) -> list[str]:
    """Check a metric against control methods: the gold answer must rank first; empty and wrong answers must rank below the best
    method.

    Returns one sentence per control that is ranked wrongly; an empty list if all are ranked correctly.

    Args:
        controls: Metric value of each control, by the control's id; higher is better.
        methods: Metric value of each method, by the name shown.
    """
    wrong = []
    if BEST in controls:
        others = {name: value for name, value in controls.items() if name in (*WORTHLESS, NO_ANSWER)}
        better = sorted(name for name, value in {**methods, **others}.items() if value > controls[BEST] + _SLACK)
        wrong += [f"ranks {name} above the gold answer" for name in better]
        if NO_ANSWER not in better and controls.get(NO_ANSWER, -math.inf) >= controls[BEST] - _SLACK:
            wrong.append("cannot tell a whole passage from the gold answer")
    ceiling = max(methods.values(), default=controls.get(BEST, math.inf))
    worthless = [name for name in WORTHLESS if controls.get(name, -math.inf) >= ceiling - _SLACK]
    return wrong + [f"ranks {name} as high as the best method" for name in worthless]


def checked(controls: Collection[str]) -> str:
    """Return a sentence that lists the checks which `wrongly_ranked` passed, or that states which controls are missing.

    Args:
        controls: Ids of the controls that have a value.
    """
    checks = ["nothing is above the gold answer"] if BEST in controls else []
    if set(WORTHLESS) & set(controls):
        checks.append("empty and wrong answers are below the best method")
    if not checks:
        return "Not checked: no gold, empty or wrong answer has a value here."
    return f"Not flagged: {', and '.join(checks)}."
