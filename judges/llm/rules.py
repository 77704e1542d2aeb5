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
    """Record a rule's verdict in the form of a judge call."""
    return JudgeCall(part, 0, None, Parsed({**value, "by": RULE}), RULE)


C = TypeVar("C", bound=JudgeConfig)


class Ruled(Generic[C]):
    """Base class of judges without a model.

    Args:
        config: The judge's options.
        services: Not needed.
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
    version=3,
)
class RuleMatch(Ruled[RuleMatchConfig]):
    """Rule-based judge of correctness: Match, Partial or Mismatch.

    Match: the answer equals a gold answer, or contains it as consecutive words and has at most `longest_match` words.

    Texts are compared after SQuAD's normalization. If a gold answer is a set phrase that abstains, every abstaining answer is a
    Match. For yes/no questions, the answer's first word decides. Partial: a longer answer that contains a gold answer, or one
    with a token F1 of at least `partial_f1`. Mismatch: all others, including missing, failed and blank answers. A set of
    answers must be named completely. A question whose gold answers are all empty after normalization is unscorable.

    Args:
        config: The judge's options.
        services: Not needed.
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
    """Apply the rules of `RuleMatch` to many questions; None where there is no usable gold answer."""
    batch = Batch(questions, predictions)
    exact, holds, overlap = (parse_metric(name).compute(batch) for name in ("em", "cover_em(match=word)", "f1(rules=squad)"))
    results: list[str | None] = []
    for row, (question, prediction) in enumerate(zip(questions, predictions, strict=True)):
        words = tokens(prediction.answer)
        if not has_gold(question) or np.isnan(overlap[row]):
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
    """Return the required first word if the golds are yes or no; else nothing."""
    golds = frozenset(" ".join(tokens(gold)) for gold in question.golds)
    return golds if golds <= _YES_NO else frozenset()


class RulePairwiseConfig(JudgeConfig):
    """Options of the rule-based pairwise judge: none."""


@register_judge(
    "rule_pairwise",
    kind="pair",
    summary="compares two answers by what of the gold they hold and by length, without a model",
    source="ARK's criteria, by the metrics cover_em(match=word) and f1(rules=squad)",
    needs=("answer", "gold"),
    config=RulePairwiseConfig,
    criteria=CRITERIA,
    version=3,
)
class RulePairwise(Ruled[RulePairwiseConfig]):
    """Rule-based judge that compares two answers by faithfulness, conciseness and overall quality.

    An answer that is missing, or states that evidence is lacking, is disqualified: it loses by every criterion, and two such
    answers have the verdict none. If a gold answer is a set phrase that abstains, abstaining is correct: it wins over an answer
    without a gold string, and ties with one that contains it. An answer that equals a gold answer is never disqualified.
    Faithfulness: support is 1 if the answer contains a gold answer as consecutive words, else the token F1; more support wins.
    Conciseness: fewer words after normalization win. Overall: faithfulness; in a tie with support, conciseness; in a tie
    without support, a tie. A question whose gold answers are all empty after normalization is unscorable. The two presentation
    orders always agree.

    Args:
        config: The judge's options.
        services: Not needed.
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
    """Return how much of the gold answer each answer contains, from 0 to 1; shape (questions,), NaN without a usable gold answer."""
    batch = Batch(questions, predictions)
    holds, overlap = (parse_metric(name).compute(batch) for name in ("cover_em(match=word)", "f1(rules=squad)"))
    return np.maximum(holds, overlap)


def lacks_evidence(prediction: Prediction) -> bool:
    """Return whether an answer is missing, abstains, or states that evidence is lacking."""
    return declines(prediction) or _INSUFFICIENT.search(prediction.answer) is not None


def compared(question: Question, first: Prediction, second: Prediction, support_first: float, support_second: float) -> dict[str, str]:
    """Apply the rules of `RulePairwise` to two answers; the verdicts refer to the order shown, in the words of the prompt."""
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
