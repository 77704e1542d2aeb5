"""Does an answer match the gold: Match, Partial or Mismatch (SARK's verification and accuracy)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import Field

from benchmarks.schema import Question
from benchmarks.text import is_scorable_gold
from judges.judge import Item, JudgeCall, Measure, PointJudge, Score, counting, register_judge
from judges.llm.abstention import missing, rightly_declines
from judges.llm.ask import Case, Golds, LLMJudgeConfig, Worded, gold_rule, gold_text, has_gold, mean_scores, prompt_identity
from judges.llm.fences import cut
from judges.llm.reading import VERSION
from judges.metric import Batch
from judges.metric import parse as parse_metric
from methods.api import Prediction
from methods.flow import in_flight, one
from methods.models.endpoint import Messages
from methods.prompts import Shipped

MATCH, PARTIAL, MISMATCH = "Match", "Partial", "Mismatch"
VERDICTS = (MISMATCH, MATCH, PARTIAL)
_MODIFIED = {MATCH: ("exact", "full", "complete", "perfect", "clear"), MISMATCH: ("full", "complete", "total", "clear")}
ALIASES = {f"{modifier} {verdict.lower()}": verdict for verdict, modifiers in _MODIFIED.items() for modifier in modifiers} | {
    "partial match": PARTIAL,
    "mis match": MISMATCH,
}
"""Synonyms of the verdict words in replies."""
PART = "match"
EM, NO_ANSWER, ABSTENTION = "em", "no answer", "abstention"
"""Rules that decide without a call."""

MEASURES = (
    Measure("accuracy", "Share of verdicts that are Match; Partial and Mismatch are both wrong."),
    Measure("partial", "Share of verdicts that are Partial.", higher_is_better=False, ranks=False),
    Measure("mismatch", "Share of verdicts that are Mismatch.", higher_is_better=False, ranks=False),
)


class MatchConfig(LLMJudgeConfig):
    """Options of the match judge."""

    template: ClassVar[Shipped] = Shipped("judges.llm", "match", optional=frozenset(("rule",)))
    policy: ClassVar[frozenset[str]] = frozenset(("partial",))

    exact: Literal["squad", "strict", "none"] = Field(
        "squad", description="rules of the exact match that counts as a Match without a call (released: strict)"
    )
    golds: Golds = Field("all", description="gold answers in the prompt (released: all, joined without a separator)")
    partial: Literal["wrong", "drop"] = Field("wrong", description="value of Partial in accuracy; drop: the question is unscorable")


@register_judge(
    "match",
    kind="point",
    summary="an LLM says Match, Partial or Mismatch with the gold; exact matches need no call",
    source="SARK: effective knowledge evaluation",
    needs=("answer", "gold"),
    config=MatchConfig,
    measures=MEASURES,
    version=VERSION,
    also=prompt_identity,
)
class MatchJudge(Worded[MatchConfig]):
    """LLM judge of correctness: the model reads question, gold and answer, and replies Match, Partial or Mismatch.

    An exact match is a Match without a call; a missing, failed or blank answer is a Mismatch without a call. If the gold is a
    set phrase that abstains ("Unanswerable"), an abstaining answer is a Match without a call, unless `exact` is none. A reply
    with no verdict or with several is requested once more as JSON; if that fails, it is unscored. A question without gold, or
    marked as having no answer, is unscorable. Scores are averaged over readable repetitions; unscored if fewer than half are
    readable.

    Args:
        config: The judge's options.
        services: Provides the reply cache.
    """

    verdicts = VERDICTS
    aliases = ALIASES

    def score(self, item: Item, calls: Sequence[JudgeCall]) -> Mapping[str, Score]:
        dropped = None if self.config.partial == "drop" else 0.0
        return match_scores(calls, dropped)

    def cases(self, item: Item) -> list[Case]:
        if not has_gold(item.question):
            return []
        if unanswered(item):
            return [Case.ruled(PART, NO_ANSWER, verdict=MISMATCH)]
        if self.config.exact != "none" and exact_match(item, self.config.exact):
            return [Case.ruled(PART, EM, verdict=MATCH)]
        if self.config.exact != "none" and rightly_declines(item.question, item.prediction):
            return [Case.ruled(PART, ABSTENTION, verdict=MATCH)]
        return [Case(PART, self._messages(item))]

    def _messages(self, item: Item) -> Messages:
        return self.messages(
            question=item.question.text,
            gold=gold_text(item.question, self.config.golds),
            answer=cut(item.prediction.answer, self.config.max_answer_chars),
            rule=gold_rule(item.question, self.config.golds),
        )


def match_scores(calls: Sequence[JudgeCall], partial: float | None = 0.0) -> dict[str, Score]:
    """Convert verdicts to scores: Match 1, Mismatch 0; `partial` is the value of Partial for accuracy, None leaves it out."""
    return mean_scores(
        calls,
        {
            "accuracy": {MATCH: 1.0, PARTIAL: partial, MISMATCH: 0.0},
            "partial": {MATCH: 0.0, PARTIAL: 1.0, MISMATCH: 0.0},
            "mismatch": {MATCH: 0.0, PARTIAL: 0.0, MISMATCH: 1.0},
        },
    )


def unanswered(item: Item) -> bool:
    """Return whether there is no answer to judge."""
    return missing(item.prediction)


def exact_match(item: Item, rules: str) -> bool:
    """Return whether an answer equals a gold answer under the given rules of the metric `em`.

    To a gold answer that normalizes to nothing ("The The"), "A" is equal: that is left to the judge.
    """
    if not any(is_scorable_gold(gold, rules) for gold in item.question.golds):
        return False
    batch = Batch([item.question], [item.prediction])
    return bool(parse_metric(f"em(rules={rules})").compute(batch)[0] == 1.0)


_WORST_FIRST = (MISMATCH, PARTIAL, MATCH)


class MatchVerdicts:
    """Verdicts Match, Partial or Mismatch about single answers, for trainings (SARK's verification).

    Args:
        judge: A built `match` or `rule_match` judge.
        fingerprint: Hash of the judge's identity; "" if its replies are not stored.
    """

    def __init__(self, judge: PointJudge, fingerprint: str = "") -> None:
        self._ask, self.fingerprint = one(judge, "ask"), fingerprint
        self.in_flight = in_flight([(judge, "ask")])

    async def verdicts_one(self, question: Question, answer: str) -> str | None:
        """Return the majority verdict over repetitions about an answer, the worse one in a tie; None if it is unscored or unscorable."""
        return commonest(await self._ask(Item(question, Prediction(question.id, answer))))


def commonest(calls: Sequence[JudgeCall]) -> str | None:
    """Return the majority verdict of calls, the worse one in a tie; None if no reply was readable."""
    counts = Counter(call.parsed.value["verdict"] for call in counting(calls) if call.parsed.value is not None)
    most = {verdict for verdict, count in counts.items() if count == max(counts.values())}
    return next((verdict for verdict in _WORST_FIRST if verdict in most), None)
