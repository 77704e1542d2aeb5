"""Code of a judge that raises gives no verdict: the question is unscored with the reason, and can be judged again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from judges.judge import AS_GIVEN, FIRST, NONE, SECOND, TIE, Item, JudgeCall, JudgeEntry, Parsed, Score
from methods.api import raised

RAISED = "raised: "
"""Prefix of the reason of a call whose code raised an error."""


def call_that_raised(error: BaseException) -> JudgeCall:
    """Record an error that a judge raised on an item, in the form of a judge call."""
    return JudgeCall(AS_GIVEN, 0, None, Parsed(None, f"{RAISED}{raised(error)}"))


def why_raised(calls: Sequence[JudgeCall]) -> str | None:
    """Return the error that a judge raised on an item, from its calls; None if it raised none."""
    reasons = [call.parsed.unscored for call in calls if call.parsed.unscored]
    return next((reason for reason in reasons if reason.startswith(RAISED)), None)


def scores_of(judge: Any, entry: JudgeEntry, item: Item, calls: Sequence[JudgeCall]) -> Mapping[str, Score]:
    """Compute a point judge's scores of an item; they are unscored if its code raises an error or returns the wrong type."""
    why = why_raised(calls)
    if why is None:
        try:
            scores = judge.score(item, calls)
            return {measure.name: _checked(scores[measure.name], measure.low, measure.high) for measure in entry.measures}
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            why = f"{RAISED}{raised(error)}"
    return {measure.name: Score(None, why) for measure in entry.measures}


def _checked(score: Score, low: float | None, high: float | None) -> Score:
    value = score.value
    if value is None:
        return score
    outside = not math.isfinite(value) or (low is not None and value < low) or (high is not None and value > high)
    if outside:
        raise ValueError(f"a score of {value!r} is outside its range {low} to {high}")
    return Score(float(value), score.unscored)


def verdicts_of(judge: Any, entry: JudgeEntry, call: JudgeCall) -> tuple[JudgeCall, Mapping[str, str | None]]:
    """Compute a pair judge's verdicts from a call; they are unscored if its code raises an error or returns the wrong type."""
    nothing = dict.fromkeys(entry.criteria)
    if why_raised([call]) is not None:
        return call, nothing
    try:
        verdicts = judge.verdicts(call)
        known = {criterion: verdicts[criterion] for criterion in entry.criteria}
        wrong = [verdict for verdict in known.values() if verdict not in (FIRST, SECOND, TIE, NONE, None)]
        if wrong:
            raise ValueError(f"{wrong[0]!r} is not a verdict")
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return replace(call, parsed=Parsed(None, f"{RAISED}{raised(error)}")), nothing
    return call, known
