"""The grounding judge: ragas' Faithfulness and FactualCorrectness, asked through our own chat client.

The prompts, their examples and the JSON asked for are ragas' own; the calls are ours, so that cache, tape, limits,
retries and faults are those of every other call, and each reply is kept raw. What is read out of the replies, and
the arithmetic, are in `grounding_claims`; a test holds the numbers against those of ragas' metric objects.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple

from pydantic import BaseModel, Field

from benchmarks.schema import Question
from judges.judging import Item, JudgeCall, Measure, Parsed, Score, register_judge
from judges.llm.asking import NO_REPLY
from judges.llm.gold import has_gold
from judges.llm.grounding_claims import (
    ANSWER_CLAIMS,
    ANSWER_VERDICTS,
    FOLLOWS,
    REFERENCE_CLAIMS,
    REFERENCE_VERDICTS,
    STATEMENT_VERDICTS,
    STATEMENTS,
    UNASKED,
    Mode,
    factual_correctness,
    faithfulness,
    mean_score,
    read_reply,
    rounds,
)
from judges.llm.grounding_prompts import Prompts, ragas_version
from judges.llm.llm_config import EndpointJudgeConfig
from judges.llm.match import unanswered
from methods.api import Services
from methods.models.chat import ChatModel, Messages

FAITHFULNESS = Measure(
    "faithfulness",
    "The share of the answer's claims that follow from what it was read from.",
    ranks=False,  # to its own passages: a wrong answer copied from them is more faithful than the gold
)
FACTUAL_CORRECTNESS = Measure(
    "factual_correctness", "Agreement of the answer's claims with the reference's, by the judge's mode (F1 unless set)."
)


class GroundingConfig(EndpointJudgeConfig):
    """Options of the grounding judge: the endpoint's, and ragas' own."""

    policy: ClassVar[frozenset[str]] = frozenset(("mode",))

    max_tokens: int = Field(2048, ge=1, description="longest reply; verdicts come with a reason each, ragas allows 1024 in all")
    mode: Mode = Field("f1", description="factual correctness as f1, precision or recall; precision saves two calls")
    atomicity: Literal["low", "high"] = Field("low", description="how far claims are broken down (ragas' examples)")
    coverage: Literal["low", "high"] = Field("low", description="whether every detail becomes a claim")

    def preflight(self) -> None:
        """Check the key, and that ragas is installed."""
        super().preflight()
        ragas_version()


class _Ask(NamedTuple):
    """One call to be made: for which item, which part, which repetition, and the prompt."""

    item: int
    part: str
    repetition: int
    prompt: str


class Grounding:
    """The judge.

    Args:
        config: Options.
        services: Of them the cache of replies.
    """

    def __init__(self, config: GroundingConfig, services: Services) -> None:
        self.config = config
        self.batch_size = 4 * config.concurrency
        self._cache = services.cache

    def ask(self, items: Sequence[Item]) -> list[list[JudgeCall]]:
        """Take texts apart, then have the claims judged; all items of a wave at once."""
        made: list[list[JudgeCall]] = [[] for _ in items]
        first = self._first(items)
        second = []
        for one, call in zip(first, self._calls(first), strict=True):
            made[one.item].append(call)
            claims = call.parsed.value["claims"] if call.parsed.value else []
            if claims:
                part = FOLLOWS[one.part]
                against = contexts(items[one.item])[part]
                second.append(_Ask(one.item, part, one.repetition, self._prompts.verdicts(part, against, claims)))
        for one, call in zip(second, self._calls(second), strict=True):
            made[one.item].append(call)
        return [calls or [unasked(item)] for item, calls in zip(items, made, strict=True)]

    def parse(self, part: str, reply: str) -> Parsed:
        return read_reply(part, reply)

    def score(self, item: Item, calls: Sequence[JudgeCall]) -> Mapping[str, Score]:
        """Both measures; see `judge_grounding` for the cases that need no call."""
        known = settled(item)
        said = rounds(calls)
        if FAITHFULNESS.name not in known:
            known[FAITHFULNESS.name] = mean_score([faithfulness(one) for one in said])
        if FACTUAL_CORRECTNESS.name not in known:
            scores = [factual_correctness(one, self.config.mode) for one in said]
            known[FACTUAL_CORRECTNESS.name] = mean_score(scores)
        return known

    # Made when first needed: reading kept replies again needs neither a key nor ragas.

    @cached_property
    def _model(self) -> ChatModel:
        return ChatModel(self.config, role="judge", cache=self._cache)

    @cached_property
    def _prompts(self) -> Prompts:
        return Prompts(self.config.atomicity, self.config.coverage)

    def _first(self, items: Sequence[Item]) -> list[_Ask]:
        """The calls that take texts apart."""
        return [
            _Ask(number, part, repetition, self._prompts.apart(part, item.question.text, text))
            for number, item in enumerate(items)
            for part, text in texts(item, self.config.mode).items()
            for repetition in range(self.config.repetitions)
        ]

    def _calls(self, asked: Sequence[_Ask]) -> list[JudgeCall]:
        """Make calls; those that ask for the same kind of JSON go together."""
        groups: dict[tuple[type[BaseModel], int], list[int]] = defaultdict(list)
        for place, one in enumerate(asked):
            groups[self._prompts.form(one.part), one.repetition].append(place)
        made: dict[int, JudgeCall] = {}
        for (form, repetition), places in groups.items():
            conversations: list[Messages] = [[{"role": "user", "content": asked[place].prompt}] for place in places]
            replies = self._model.complete_structured(conversations, form, repetition=repetition)
            for place, found in zip(places, replies, strict=True):
                reply, part = found.reply, asked[place].part
                parsed = Parsed(None, f"{NO_REPLY}: {reply.failed}") if reply.failed else self.parse(part, reply.text)
                made[place] = JudgeCall(
                    part,
                    repetition,
                    reply.key,
                    parsed,
                    reply.model,
                    reply.prompt_tokens,
                    reply.completion_tokens,
                    reply.seconds,
                    reply.cost_usd,
                )
        return [made[place] for place in range(len(asked))]


# -- which calls an item needs --


def reference_of(question: Question) -> str:
    """The reference text: the first answer, or all of them where all are wanted; "" where there is none."""
    wanted = [answer for answer in question.answers if answer.strip()] if has_gold(question) else []
    return ", ".join(wanted if question.answer_set else wanted[:1])


def settled(item: Item) -> dict[str, Score]:
    """The measures that are known without asking anybody; see `judge_grounding`."""
    known = {}
    if unanswered(item) or not contexts(item)[STATEMENT_VERDICTS].strip():
        known[FAITHFULNESS.name] = Score(0.0)
    if not reference_of(item.question):
        known[FACTUAL_CORRECTNESS.name] = Score(None)
    elif unanswered(item):
        known[FACTUAL_CORRECTNESS.name] = Score(0.0)
    return known


def texts(item: Item, mode: Mode) -> dict[str, str]:
    """The texts that must be taken apart, by part."""
    known = settled(item)
    wanted = {}
    if FAITHFULNESS.name not in known:
        wanted[STATEMENTS] = item.prediction.answer
    if FACTUAL_CORRECTNESS.name not in known:
        wanted[ANSWER_CLAIMS] = item.prediction.answer
        if mode != "precision":
            wanted[REFERENCE_CLAIMS] = reference_of(item.question)
    return wanted


def contexts(item: Item) -> dict[str, str]:
    """The texts that claims are held against, by part."""
    return {
        STATEMENT_VERDICTS: "\n".join(passage.full_text for passage in item.passages),
        ANSWER_VERDICTS: reference_of(item.question),
        REFERENCE_VERDICTS: item.prediction.answer,
    }


def unasked(item: Item) -> JudgeCall:
    """What is kept of an item for which nothing is asked."""
    why = "no answer" if unanswered(item) else "neither a passage nor a reference to hold the answer against"
    return JudgeCall(UNASKED, 0, None, Parsed({"by": why}))


@register_judge(
    "grounding",
    kind="point",
    summary="ragas' Faithfulness and FactualCorrectness by a chat model",
    source="ragas (Es et al. 2024), metrics.collections.Faithfulness and FactualCorrectness; CLaRa, Table 18",
    needs=("answer", "gold", "passages"),
    config=GroundingConfig,
    measures=(FAITHFULNESS, FACTUAL_CORRECTNESS),
    identity=lambda config: {"ragas": ragas_version()},
)
def judge_grounding(config: GroundingConfig, services: Services) -> Grounding:
    """A model takes the answer apart into claims and judges each against the passages that the answer was read from.

    Faithfulness is the share that follows from them. For factual correctness it takes answer and reference apart and
    judges the claims of each against the other text: tp and fp are the answer's claims that the reference does and
    does not support, fn the reference's claims that the answer does not; F1, precision tp/(tp+fp) or recall
    tp/(tp+fn), unrounded. The reference is the first gold answer, or all of them where all are wanted. Prompts and
    arithmetic are ragas'. An empty answer scores 0 on both, for a method must not rise by keeping silent; an answer
    read from no passage scores 0 in faithfulness, for nothing follows from nothing; without a gold answer factual
    correctness is unscorable. Unscored: a call that failed, a reply that cannot be read or breaks off, a verdict
    other than 0 and 1, not one verdict per claim, an answer in which no claim was found (faithfulness; ragas' NaN;
    its factual correctness is 0), a reference in which none was found. Repetitions that have a score are averaged.

    Args:
        config: Options.
        services: Of them the cache of replies.
    """
    return Grounding(config, services)
