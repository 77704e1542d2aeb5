"""What the front door lends to a training that cannot fetch it itself: a judge, since methods know none."""

from __future__ import annotations

from pathlib import Path

from benchmarks.fingerprint import fingerprint
from judges.llm.adapters import MatchVerdicts
from methods.api import Judge, Services
from methods.training import TrainingConfig
from ragmeter.rewriters import judge_measuring

MEASURE = "accuracy"
"""What a judge must measure to say of an answer whether it is right."""


def judge_for(config: TrainingConfig, cache: Path | None, device: str | None) -> Judge | None:
    """The judge that a training's options ask for, checked, reached and built; None where they ask for none.

    Raises:
        UserError: There is no such judge of answers, or its options are not right.
        Broke: Its endpoint does not answer.
    """
    if config.wanted_judge is None:
        return None
    name, options = config.wanted_judge
    judge = judge_measuring(MEASURE, name, options, "the judge of the training")
    judge.config.reach(cache)
    return MatchVerdicts(judge.build(Services(config.seed, device=device, cache=cache)), fingerprint(judge.identity))
