"""Metrics and judges that rank a control wrongly: flagged on the board that shows it.

A control's place is known beforehand. Nothing can answer better than the gold answer; nothing that says nothing, or the
wrong thing, may be worth as much as the best method; a whole passage is not an answer. A metric that sees it otherwise
on these very questions measures something else than the rightness of answers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

BEST = "gold_answer"
WORTHLESS = ("empty_answer", "idk", "shuffled_answer")
NO_ANSWER = "whole_passage"
ABOUT_ANSWERS = ("answer", "text", "judge", "graph")
"""Groups of metrics that controls of answers say something about."""
_SLACK = 1e-9


def wrongly_ranked(controls: Mapping[str, float], methods: Mapping[str, float]) -> list[str]:
    """What a metric ranks wrongly, in sentences; empty where it ranks every control rightly.

    Args:
        controls: Values by id of the control; more is better.
        methods: Values of the methods by the name shown.
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
    """What `wrongly_ranked` looked at and found in order, as one sentence.

    Args:
        controls: Ids of those that have a value.
    """
    said = ["nothing is above the gold answer"] if BEST in controls else []
    if set(WORTHLESS) & set(controls):
        said.append("what says nothing or the wrong thing is below the best method")
    if not said:
        return "Not checked: neither a gold answer nor one that says nothing or the wrong thing has a value here."
    return f"Not flagged: {', and '.join(said)}."
