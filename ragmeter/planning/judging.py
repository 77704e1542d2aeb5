"""How often judges are asked, at most, and what that takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from judges.llm.llm_config import LLMJudgeConfig
from methods.models.chat_options import ChatConfig
from ragmeter.experiment import Experiment, JudgePlan
from ragmeter.planning.asking import Calls, asked
from ragmeter.planning.cost import Cost, total, unknown
from ragmeter.planning.hardware import Assumptions
from ragmeter.planning.shape import Shape, tokens

ORDERS = 2


@dataclass(frozen=True)
class JudgeRow:
    """A judge that asks a model.

    Attributes:
        judge: Its id.
        asked: Judgements at most: answers, or pairs of them in both orders, repeated. What is judged already, or
            needs no opinion, is not taken off; a judge may need several calls for one of them.
        cost: At most, one call each.
    """

    judge: str
    asked: int
    cost: Cost

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {"judge": self.judge, "judgements": self.asked, "cost": self.cost.to_json()}


def judge_rows(experiment: Experiment, shapes: Sequence[Shape], answer: float, assume: Assumptions) -> list[JudgeRow]:
    """The judges of an experiment that ask a model.

    Args:
        experiment: Validated.
        shapes: Of its benchmarks.
        answer: Tokens of an answer that is judged, at most.
        assume: Device.
    """
    rows = []
    for plan in experiment.judges:
        if plan.judge.rule:
            continue
        numbers = [_asked(plan, shape.questions or 0, len(experiment.methods)) for shape in shapes]
        cost = total(_cost(plan, shape, number, answer, assume) for shape, number in zip(shapes, numbers, strict=True))
        rows.append(JudgeRow(str(plan.judge), sum(numbers), cost))
    return rows


def _asked(plan: JudgePlan, questions: int, methods: int) -> int:
    repetitions = int(getattr(plan.judge.config, "repetitions", 1))
    if plan.judge.entry.kind == "point":
        return questions * methods * repetitions
    pairs = methods * (methods - 1) // 2 if plan.everyone else methods - 1
    return ORDERS * questions * pairs * repetitions


def _cost(plan: JudgePlan, shape: Shape, number: int, answer: float, assume: Assumptions) -> Cost:
    config = plan.judge.config
    if not isinstance(config, ChatConfig):
        return unknown(f"judging by {plan.judge.entry.id}")
    if not isinstance(config, LLMJudgeConfig):
        return Cost(calls=number) + unknown(f"tokens of {plan.judge.entry.id}: how many calls a judgement takes varies")
    if not shape.asked:
        return Cost(calls=number) + unknown(f"tokens of {plan.judge.entry.id} on {shape.reference}")
    prompt = config.load()
    shown = 1 if plan.judge.entry.kind == "point" else 2
    length = tokens(prompt.system) + tokens(prompt.user) + shape.question + shape.answer
    longest = min(answer, tokens("x" * config.max_answer_chars))
    if getattr(config, "reference", None) == "document":
        length += 2 * shape.passage
    return asked(Calls(number, length + shown * longest, config.max_tokens), config, assume)
