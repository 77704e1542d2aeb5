"""Judges without a model: rules with the interface of `match` and `pairwise`, always labeled `rule`.

They are exact, free and narrow: a right answer in other words is beyond them. They serve offline use, tests of whole
boards, and as a floor that an LLM judge should stand above.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.schema import Question
from benchmarks.text import tokens
from judges.judge import RULE, Item, JudgeCall, JudgeConfig, Pair, Parsed, Score, register_judge
from judges.llm.abstention import declines, rightly_declines, settled
from judges.llm.ask import has_gold
from judges.llm.match import MATCH, MEASURES, MISMATCH, PARTIAL, match_scores, unanswered
from judges.llm.match import PART as MATCH_PART
from judges.llm.pairwise import CRITERIA, ORDERS, in_order, shown_verdicts
from judges.metric import Batch
from judges.metric import parse as parse_metric
from methods.api import Prediction, Services

NO_CALL = "rules make no calls, so there is no reply to read"
_YES_NO = frozenset(("yes", "no"))
_INSUFFICIENT = re.compile(
    r"\b(?:insufficient|not (?:enough|sufficient) (?:information|evidence|context|detail|data)"
    r"|(?:does|do|did)(?: not|n['’]t) (?:contain|provide|mention|state|say|specify|answer)"
    r"|(?:can ?not|can['’]t|could not|couldn['’]t) (?:be )?(?:answer|determine|tell|know|find|say)"
    r"|(?:do not|don['’]t) know|no (?:information|evidence|mention))",
    re.IGNORECASE,
)


def ruled(part: str, **value: object) -> JudgeCall:
    """Return a rule's verdict as the call it took the place of."""
    return JudgeCall(part, 0, None, Parsed({**value, "by": RULE}), RULE)


C = TypeVar("C", bound=JudgeConfig)


class Ruled(Generic[C]):
    """A judge without a model.

    Args:
        config: Options.
        services: None of them.
    """

    def __init__(self, config: C, services: Services) -> None:
        self.config = config

    def parse(self, part: str, reply: str) -> Parsed:
        return Parsed(None, NO_CALL)


class RuleMatchConfig(JudgeConfig):
    """Options of the rule-based match judge."""

    longest_match: int = Field(
        40, ge=1, description="maximum words of an answer that is a Match because it contains the gold; a longer one is Partial"
    )
    partial_f1: float = Field(0.5, gt=0, le=1, description="minimum token F1 of a Partial answer")


@register_judge(
    "rule_match",
    kind="point",
    summary="Match, Partial or Mismatch by containment and token overlap, without a model",
    source="the metrics em, cover_em(match=word) and f1(rules=squad)",
    needs=("answer", "gold"),
    config=RuleMatchConfig,
    measures=MEASURES,
    version=2,
)
class RuleMatch(Ruled[RuleMatchConfig]):
    """Match: the answer equals a gold, or holds it as whole words in a row and has no more than `longest_match` words.

    All in squad's normal form. If a gold is a set phrase that declines, every such answer is a Match. Of yes/no golds
    the answer's first word decides. Partial: a longer answer that holds a gold, or one with a token F1 of at least
    `partial_f1`. Mismatch: all others, among them missing, failed and blank answers. Of a set of answers all must be
    named. A question without a gold that normalizes to something is unscorable.

    Args:
        config: Options.
        services: None of them.
    """

    def ask(self, items: Sequence[Item]) -> list[list[JudgeCall]]:
        verdicts = match_verdicts([item.question for item in items], [item.prediction for item in items], self.config)
        return [
            [] if verdict is None else [ruled(MATCH_PART, verdict=MISMATCH if unanswered(item) else verdict)]
            for item, verdict in zip(items, verdicts, strict=True)
        ]

    def score(self, item: Item, calls: Sequence[JudgeCall]) -> Mapping[str, Score]:
        return match_scores(calls)


def match_verdicts(questions: Sequence[Question], predictions: Sequence[Prediction], config: RuleMatchConfig) -> list[str | None]:
    """Return the verdicts of `RuleMatch`; None if there is no gold."""
    batch = Batch(questions, predictions)
    exact, holds, overlap = (parse_metric(name).compute(batch) for name in ("em", "cover_em(match=word)", "f1(rules=squad)"))
    results: list[str | None] = []
    for row, (question, prediction) in enumerate(zip(questions, predictions, strict=True)):
        words = tokens(prediction.answer)
        if not has_gold(question) or np.isnan(exact[row]):
            results.append(None)
        elif rightly_declines(question, prediction):
            results.append(MATCH)
        elif wanted := _yes_no(question):
            results.append(MATCH if words[:1] and words[0] in wanted else MISMATCH)
        elif exact[row] == 1 or (holds[row] == 1 and len(words) <= config.longest_match):
            results.append(MATCH)
        else:
            results.append(PARTIAL if holds[row] == 1 or overlap[row] >= config.partial_f1 else MISMATCH)
    return results


def _yes_no(question: Question) -> frozenset[str]:
    """Return what the first word must be, where the golds are yes or no; else nothing."""
    golds = frozenset(" ".join(tokens(gold)) for gold in question.golds)
    return golds if golds <= _YES_NO else frozenset()


class RulePairwiseConfig(JudgeConfig):
    """The rule-based pairwise judge has no options."""


@register_judge(
    "rule_pairwise",
    kind="pair",
    summary="compares two answers by what of the gold they hold and by length, without a model",
    source="ARK's criteria, by the metrics cover_em(match=word) and f1(rules=squad)",
    needs=("answer", "gold"),
    config=RulePairwiseConfig,
    criteria=CRITERIA,
    version=2,
)
class RulePairwise(Ruled[RulePairwiseConfig]):
    """Disqualification first: an answer that is missing, or says that evidence is lacking, loses by every criterion.

    Two such have the verdict none. If a gold is a set phrase that declines, declining is right: it wins over an answer
    that holds no gold, and ties with one that does. An answer that equals a gold is never out. Faithfulness: support is
    1 if the answer holds a gold as whole words in a row, else its token F1; more support wins. Conciseness: fewer
    words after normalization win. Overall: faithfulness; where that is a tie and both have support, conciseness; where
    neither has any, a tie. A question without a gold that normalizes to something is unscorable. The two orders always
    agree.

    Args:
        config: Options.
        services: None of them.
    """

    def ask(self, pairs: Sequence[Pair]) -> list[list[JudgeCall]]:
        support = {
            order: answer_support([pair.question for pair in pairs], [in_order(pair, order)[0] for pair in pairs]) for order in ORDERS
        }
        return [
            self._calls(pair, float(item), float(other))
            for pair, item, other in zip(pairs, *(support[order] for order in ORDERS), strict=True)
        ]

    def verdicts(self, call: JudgeCall) -> Mapping[str, str | None]:
        return shown_verdicts(call)

    def _calls(self, pair: Pair, item: float, other: float) -> list[JudgeCall]:
        if not has_gold(pair.question) or np.isnan(item) or np.isnan(other):
            return []
        as_given, swapped = ORDERS
        return [
            ruled(as_given, **compared(pair.question, pair.one, pair.other, item, other)),
            ruled(swapped, **compared(pair.question, pair.other, pair.one, other, item)),
        ]


def answer_support(questions: Sequence[Question], predictions: Sequence[Prediction]) -> NDArray[np.float64]:
    """Return how much of the gold answers contain, in [0, 1]; shape (questions,), NaN without a usable gold."""
    batch = Batch(questions, predictions)
    holds, overlap = (parse_metric(name).compute(batch) for name in ("cover_em(match=word)", "f1(rules=squad)"))
    return np.maximum(holds, overlap)


def lacks_evidence(prediction: Prediction) -> bool:
    """Return whether an answer is missing, declines, or says that evidence is lacking."""
    return declines(prediction) or _INSUFFICIENT.search(prediction.answer) is not None


def compared(question: Question, first: Prediction, second: Prediction, support_first: float, support_second: float) -> dict[str, str]:
    """Return the verdicts of `RulePairwise` on two answers in the order shown, in the words of the prompt."""
    out = settled(question, first, second, lacks_evidence)
    if out is not None:
        return dict.fromkeys(CRITERIA, out)
    faithfulness = _greater(support_first, support_second)
    conciseness = _greater(-len(tokens(first.answer)), -len(tokens(second.answer)))
    overall = conciseness if faithfulness == "Tie" and support_first > 0 else faithfulness
    return {"overall": overall, "faithfulness": faithfulness, "conciseness": conciseness}


def _greater(first: float, second: float) -> str:
    if first == second:
        return "Tie"
    return "Answer 1" if first > second else "Answer 2"
