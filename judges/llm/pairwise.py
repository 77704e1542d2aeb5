"""Which of two answers is better: by faithfulness, conciseness and overall, in both orders (ARK's win rate)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, Field

from benchmarks.text import is_abstention
from judges.judge import AS_GIVEN, FIRST, NONE, SECOND, SWAPPED, TIE, JudgeCall, Pair, Parsed, register_judge
from judges.llm.ask import Case, CaseJudge, Golds, LLMJudgeConfig, Shipped, cut, gold_text, has_gold, prompt_identity, read_criteria
from methods.api import FAILED, Prediction
from methods.models.endpoint import Messages
from methods.models.llm import LLM, defaults

CRITERIA = ("overall", "faithfulness", "conciseness")
ORDERS = (AS_GIVEN, SWAPPED)
OFFERED = {"Answer 1": FIRST, "Answer 2": SECOND, "Tie": TIE, "None": NONE}
"""Verdicts in the words of the prompt."""
DISQUALIFIED = "disqualification"
"""By what a verdict was reached without a call."""
_Verdict = Literal["Answer 1", "Answer 2", "Tie", "None"]


class PairwiseVerdict(BaseModel):
    """The JSON that is asked for; its order makes the model argue before it decides."""

    reasoning: str
    faithfulness: _Verdict
    conciseness: _Verdict
    overall: _Verdict


class PairwiseConfig(LLMJudgeConfig):
    """Options of the pairwise judge."""

    template: ClassVar[Shipped] = Shipped("pairwise", frozenset(("question", "reference", "answer_1", "answer_2")))

    llm: Annotated[LLM, defaults(max_tokens=512)] = Field(description="the model that compares")
    repetitions: int = Field(5, ge=1, description="replies drawn to each order (paper: the mean of five runs; released: one order, once)")
    reference: Literal["answer", "document"] = Field(
        "answer", description="what the answers are held against: the gold answer, or the passages that prove it"
    )
    golds: Golds = Field("first", description="which gold answers are shown (released: the first)")
    disqualify: Literal["rule", "judge"] = Field(
        "rule",
        description="who sees that an answer is missing, or is nothing but a set phrase such as `unknown`: a rule, "
        "without a call, or the model; other ways of declining are always the model's to see",
    )
    max_reference_chars: int = Field(40_000, ge=1, description="longest reference shown, in characters")


@register_judge(
    "pairwise",
    kind="pair",
    summary="an LLM compares two answers by faithfulness, conciseness and overall, in both orders",
    source="ARK: win rate",
    needs=("answer", "gold", "passages"),
    config=PairwiseConfig,
    criteria=CRITERIA,
    identity=prompt_identity,
)
class PairwiseJudge(CaseJudge[PairwiseConfig]):
    """The model is shown question, reference and two answers; each criterion gets Answer 1, Answer 2, Tie or None.

    Disqualification comes first: an answer that is missing or declines to answer loses by every criterion, and two
    such have the verdict None; a rule sees missing answers and set phrases, the model the rest. The reply's last
    complete JSON object counts; a verdict that was not offered, or two in one, leave that criterion unscored. A
    question without gold (or without its positive passages, where they are the reference) is unscorable.

    Args:
        config: Options.
        services: Of them the cache of replies.
    """

    def parse(self, part: str, reply: str) -> Parsed:
        return read_criteria(reply, CRITERIA, tuple(OFFERED))

    def verdicts(self, call: JudgeCall) -> Mapping[str, str | None]:
        return shown_verdicts(call)

    def cases(self, item: Pair) -> list[Case]:
        reference = self._reference(item)
        if reference is None:
            return []
        return [self._case(item, order, reference) for order in ORDERS]

    def _case(self, pair: Pair, order: str, reference: str) -> Case:
        shown = in_order(pair, order)
        if self.config.disqualify == "rule":
            verdict = disqualified(*map(declines, shown))
            if verdict is not None:
                return Case.ruled(order, DISQUALIFIED, **dict.fromkeys(CRITERIA, verdict))
        return Case(order, self._messages(pair, shown, reference), shape=PairwiseVerdict)

    def _messages(self, pair: Pair, shown: tuple[Prediction, Prediction], reference: str) -> Messages:
        first, second = (cut(prediction.answer, self.config.max_answer_chars) for prediction in shown)
        return self._prompt.messages(
            question=pair.question.text, reference=cut(reference, self.config.max_reference_chars), answer_1=first, answer_2=second
        )

    def _reference(self, pair: Pair) -> str | None:
        if not has_gold(pair.question):
            return None
        if self.config.reference == "answer":
            return gold_text(pair.question, self.config.golds)
        return "\n\n".join(passage.full_text for passage in pair.passages) or None


def in_order(pair: Pair, order: str) -> tuple[Prediction, Prediction]:
    """The two answers as they are shown in one of `ORDERS`."""
    return (pair.one, pair.other) if order == AS_GIVEN else (pair.other, pair.one)


def declines(prediction: Prediction) -> bool:
    """Whether an answer is missing, or nothing but a set phrase that says it is unknown."""
    return FAILED in prediction.notes or is_abstention(prediction.answer)


def disqualified(first: bool, second: bool) -> str | None:
    """The verdict on two answers of which one or both are out; None where neither is."""
    if first and second:
        return "None"
    if first or second:
        return "Answer 2" if first else "Answer 1"
    return None


def shown_verdicts(call: JudgeCall) -> dict[str, str | None]:
    """For each criterion the verdict by the order shown; None where it is unscored."""
    value = call.parsed.value or {}
    verdicts = {criterion: value.get(criterion) for criterion in CRITERIA}
    # A lacking verdict must not become the word None, which is one.
    return {criterion: None if verdict is None else OFFERED[verdict] for criterion, verdict in verdicts.items()}
