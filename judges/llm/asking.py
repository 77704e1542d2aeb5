"""Putting cases before a language model: every repetition of every prompt, and what needs no opinion without a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from pydantic import BaseModel

from judges.judging import JudgeCall, Parsed
from judges.llm.llm_config import LLMJudgeConfig
from methods.api import Services
from methods.models.chat import ChatModel, Messages, Reply
from methods.models.tokens import Estimate

NO_REPLY = "no reply"
"""How the reason of a call begins that brought none."""


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to be judged.

    Attributes:
        part: Which of the judge's prompts.
        messages: What is asked; None where the case is settled.
        settled: What holds without an opinion.
    """

    part: str
    messages: Messages | None = None
    settled: Parsed | None = None

    @classmethod
    def ruled(cls, part: str, by: str, **value: object) -> Case:
        """A case that a rule settles; `by` says which."""
        return cls(part, settled=Parsed({**value, "by": by}))


class Asker:
    """Asks a judge's model.

    The client is made when first needed: reading kept replies again takes neither a key nor an endpoint.

    Args:
        config: Options.
        services: Of them the cache of replies.
        parse: From a part and a raw reply to what it says.
        shape: The JSON that replies are asked to be, None for text.

    Attributes:
        batch_size: Cases that keep the endpoint busy when given at once.
    """

    def __init__(
        self, config: LLMJudgeConfig, services: Services, parse: Callable[[str, str], Parsed], shape: type[BaseModel] | None = None
    ) -> None:
        self.config = config
        self.batch_size = 4 * config.concurrency
        self._cache = services.cache
        self._parse = parse
        self._shape = shape

    def ask(self, items: Sequence[Sequence[Case]]) -> list[list[JudgeCall]]:
        """For each item the calls of its cases, repetition by repetition; no case, no call.

        Raises:
            Broke: No further call could succeed.
        """
        asked = [case.messages for case in chain.from_iterable(items) if case.messages is not None]
        calls: list[list[JudgeCall]] = [[] for _ in items]
        for repetition in range(self.config.repetitions):
            replies = iter(self._complete(asked, repetition) if asked else ())
            for made, cases in zip(calls, items, strict=True):
                made.extend(self._call(case, repetition, replies) for case in cases)
        return calls

    def estimate(self, items: Sequence[Sequence[Case]]) -> Estimate:
        """What asking would take, without asking."""
        asked = [case.messages for case in chain.from_iterable(items) if case.messages is not None]
        each = [self._model.estimate(asked, repetition=number) for number in range(self.config.repetitions)]
        return Estimate(
            sum(one.calls for one in each),
            sum(one.cached for one in each),
            sum(one.prompt_tokens for one in each),
            sum(one.completion_tokens for one in each),
            sum(one.usd for one in each),
            each[0].counted_by,
        )

    @cached_property
    def _model(self) -> ChatModel:
        return ChatModel(self.config, role="judge", cache=self._cache)

    def _complete(self, asked: Sequence[Messages], repetition: int) -> list[Reply]:
        if self._shape is None:
            return self._model.complete(asked, repetition=repetition)
        # The shape is a request. What came back is read by the judge's own parser, now and when it is read again.
        return [one.reply for one in self._model.complete_structured(asked, self._shape, repetition=repetition)]

    def _call(self, case: Case, repetition: int, replies: Iterator[Reply]) -> JudgeCall:
        if case.settled is not None:
            return JudgeCall(case.part, repetition, None, case.settled)
        reply = next(replies)
        failed = reply.failed is not None
        return JudgeCall(
            case.part,
            repetition,
            reply.key,
            Parsed(None, f"{NO_REPLY}: {reply.failed}") if failed else self._parse(case.part, reply.text),
            reply.model,
            reply.prompt_tokens,
            reply.completion_tokens,
            reply.seconds,
            reply.cost_usd,
        )
