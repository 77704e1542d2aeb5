"""What rewriting left of the answers: read from what `mix.styled` records of every question."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

EVIDENCE, CANDIDATES = "evidence", "candidates"
"""Where gold answer strings are looked for."""


@dataclass(frozen=True, slots=True)
class Survival:
    """What rewriting left of a question's answer.

    Attributes:
        kept: Share of the sources with a gold answer string that still have one; NaN where none had.
        lost: Whether a drop may come from lost content.
    """

    kept: float
    lost: bool


def survival(met: Mapping[str, Any], has_evidence: bool) -> Survival | None:
    """Read what is recorded of a question, also what earlier versions recorded.

    Content is lost where evidence is known and no gold string is left in it. Among fifty candidates one with the string
    is nearly always left, although it need not be one that is read; so where no evidence is known, content is lost as
    soon as one candidate lost the string.

    Args:
        met: `Question.metadata["styled"]`.
        has_evidence: Whether the question has evidence; decides where `among` is not recorded.

    Returns:
        None where nothing of survival is recorded.
    """
    if "survived" not in met:
        return None
    alive = met["survived"]
    if "with_answer_before" not in met:
        return Survival(math.nan, alive is False)
    before = met["with_answer_before"]
    # A candidate that gained the string may hide one that lost it; older records do not tell these apart.
    kept = met.get("answers_kept", min(before, met["with_answer"]))
    among = met.get("among", EVIDENCE if has_evidence else CANDIDATES)
    lost = alive is False if among == EVIDENCE else kept < before
    return Survival(kept / before if before else math.nan, lost)
