"""Provide what LLM judges share: options, calls and averages.

`fences.py` writes the prompts, and `reading.py` reads the replies. A reply that cannot be read is asked for once more, as JSON (`Asker`).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import count
from statistics import fmean
from typing import Any, ClassVar, Generic, Literal, TypeVar, get_args

from pydantic import BaseModel, Field, create_model

from benchmarks.schema import Question
from judges.judge import JudgeCall, JudgeConfig, Parsed, Score, counting
from judges.llm.abstention import gold_abstains
from judges.llm.fences import VERSION, fenced
from judges.llm.reading import read_word, refused
from methods.api import Services
from methods.flow import together
from methods.models.chat import ChatModel
from methods.models.endpoint import Messages
from methods.models.llm import AskingConfig, LocalConfig, llm_hash, llm_name, open_llm
from methods.prompts import Prompt, Shipped
from methods.work import CHARACTERS, Lengths, Needs, Use, Where, Work, ask, needs_of, tokens, unknown


class AskingJudgeConfig(AskingConfig, JudgeConfig):
    """Options of a model that judges, and of how often it is asked."""

    alongside: ClassVar[Mapping[str, Any]] = {"llm": {"usd_per_million_prompt_tokens", "usd_per_million_completion_tokens"}}

    repetitions: int = Field(1, ge=1, description="replies per prompt; more than one is informative with a temperature above 0")

    @property
    def label(self) -> str:
        """Return the model's name in ids."""
        return llm_name(self.llm)

    @property
    def weights(self) -> str:
        """Return hash of a local model's."""
        return llm_hash(self.llm)

    @property
    def needs(self) -> Needs:
        """Return the model."""
        return needs_of(self.llm)

    def work(self, lengths: Lengths, judgments: float, answer: float, shown: int = 1) -> Work:
        """Return the work: a call a judgment at least; what it reads and writes only those know that write its prompts."""
        where: Where = "here" if isinstance(self.llm, LocalConfig) else "away"
        calls = Work((Use(self.label, calls=judgments, where=where),)) if judgments else Work()
        return calls + unknown(f"tokens of judging by {self.label}: how many calls a judgment takes varies")


class LLMJudgeConfig(AskingJudgeConfig):
    """Options of a judge whose prompt is a template of ours."""

    # The template is hashed: `prompt_identity`.
    alongside: ClassVar[Mapping[str, Any]] = {**AskingJudgeConfig.alongside, "prompt": True}

    template: ClassVar[Shipped]
    """The prompt that ships."""
    keys: ClassVar[frozenset[str]] = frozenset()
    """Keys of the JSON that it asks for, next to those of all judges."""

    prompt: str | None = Field(None, description="your own template file; null: the shipped one")
    max_answer_chars: int = Field(8_000, ge=1, description="maximum characters of a judged text; cuts are marked")

    def preflight(self) -> None:
        """Check that the model can be asked, and the template."""
        super().preflight()
        self.load()

    def load(self) -> Prompt:
        """Return the prompt.

        Raises:
            UserError: The template cannot be read or used.
        """
        return self.template.load(self.prompt)

    def work(self, lengths: Lengths, judgments: float, answer: float, shown: int = 1) -> Work:
        """Return the work: one call per judgment; its prompt has the question, the gold, the judged text, and maybe the gold document."""
        length = sum(map(tokens, self.load().texts)) + lengths.question + lengths.answer
        document = 2 * lengths.passage if getattr(self, "reference", None) == "document" else 0
        return ask(self.llm, judgments, length + document + shown * min(answer, self.max_answer_chars / CHARACTERS))


def prompt_identity(config: LLMJudgeConfig) -> Mapping[str, Any]:
    """Return what next to its options decides what a judge is shown: the template's text and the rules of fencing."""
    return {"prompt": config.load().hash, "fences": str(VERSION)}


NO_REPLY = "no reply"
"""Prefix of the reason of a call without a reply."""


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to be judged.

    Attributes:
        part: The judge's prompt.
        messages: The request; None if the case is settled.
        settled: The verdict without a call.
        shape: The JSON that the reply is asked to be, None for text. A request: what comes back is read by the judge's
            own parser, now and when it is read again.
        strict: The JSON that is asked for if the reply cannot be read; None: that of `shape`.
    """

    part: str
    messages: Messages | None = None
    settled: Parsed | None = None
    shape: type[BaseModel] | None = None
    strict: type[BaseModel] | None = None

    @classmethod
    def ruled(cls, part: str, by: str, **value: object) -> Case:
        """Return a case that a rule settles; `by` says which."""
        return cls(part, settled=Parsed({**value, "by": by}))


AGAIN = "This reply could not be read. Give it once more, as one JSON object and nothing else, with"
"""First words of the message that asks for the verdict again."""


def asked_again(messages: Messages, reply: str, form: type[BaseModel]) -> Messages:
    """Return the conversation that asks for an unreadable verdict once more, in the form that is wanted."""
    fields = []
    for name, field in form.model_fields.items():
        words = [word for word in get_args(field.annotation) if isinstance(word, str)]
        fields.append(f'"{name}" (one of: {", ".join(words)})' if words else f'"{name}"')
    return [*messages, {"role": "assistant", "content": reply}, {"role": "user", "content": f"{AGAIN} {', '.join(fields)}."}]


class Asker:
    """Asks a judge's model, once more if the reply cannot be read.

    It is opened when first needed: reading cached replies again takes neither key, endpoint nor weights.

    Args:
        config: Options.
        services: Of them the cache of replies, and for a local model the device.
        parse: From a part and a raw reply to what it says.
    """

    def __init__(self, config: AskingJudgeConfig, services: Services, parse: Callable[[str, str], Parsed]) -> None:
        self.config = config
        self._services = services
        self._parse = parse
        self._since = time.time()

    @property
    def in_flight(self) -> int:
        """Return number of concurrent items that keep the model busy. Callers read it before asking, so it is computed outside
        the event loop.
        """
        return self._model.in_flight

    async def ask(self, cases: Sequence[Case]) -> list[JudgeCall]:
        """Return the calls of an item's cases, repetition by repetition; no case, no call.

        Raises:
            Broke: No further call could succeed.
        """
        made = await together(*(self.call(case, number) for number in range(self.config.repetitions) for case in cases))
        return [call for calls in made for call in calls]

    async def call(self, case: Case, repetition: int) -> list[JudgeCall]:
        """Make one call of one case, and a second one in a stricter form if the reply is unreadable.

        A judge that refuses is not asked again: a form that allows no refusal would make up a verdict. With
        `Services.reask_unread`, a draw that was cached before and cannot be read is replaced by the next draw.
        """
        if case.messages is None:
            return [JudgeCall(case.part, repetition, None, case.settled or Parsed(None, NO_REPLY))]
        for draw in count(repetition, self.config.repetitions):
            calls, old = await self._draw(case, case.messages, draw)
            if not (old and self._services.reask_unread) or any(call.read for call in calls):
                break
        return [replace(call, repetition=repetition) for call in calls]

    async def _draw(self, case: Case, messages: Messages, draw: int) -> tuple[list[JudgeCall], bool]:
        """Make the calls of one draw, and return whether all of their replies were cached before this judge began."""
        text, call, old = await self._ask(case.part, messages, case.shape, draw)
        form = case.strict or case.shape
        if text is None or form is None or call.read or refused(call.parsed):
            return [call], old
        _, second, also = await self._ask(case.part, asked_again(messages, text, form), form, draw)
        return [call, second], old and also

    async def _ask(self, part: str, messages: Messages, shape: type[BaseModel] | None, draw: int) -> tuple[str | None, JudgeCall, bool]:
        """Return the reply's text, None if there is none; the call as it is stored; whether the reply was cached before."""
        reply = await self._model.ask(messages, shape=shape, repetition=draw, step=part)
        call = JudgeCall(
            part,
            draw,
            reply.key,
            self._parse(part, reply.text) if reply.failed is None else Parsed(None, f"{NO_REPLY}: {reply.failed}"),
            reply.served,
            reply.prompt_tokens,
            reply.completion_tokens,
            reply.seconds,
            reply.cost_usd,
        )
        return None if reply.failed is not None else reply.text, call, reply.created is not None and reply.created < self._since

    @cached_property
    def _model(self) -> ChatModel:
        # Not the seed of a task: a judge's reply depends only on its identity and the repeat.
        return open_llm(self.config.llm, self._services.seeded(self._services.repeat), role="judge", known=True)


def mean_scores(calls: Sequence[JudgeCall], values: Mapping[str, Mapping[str, float | None]]) -> dict[str, Score]:
    """Return a score for each measure.

    Args:
        calls: Made for one item; none if it is unscorable.
        values: For each measure what a verdict counts; None leaves the verdict out.

    Returns:
        The mean over the verdicts that count. Unscored, with the first reason, if more of the repetitions are unread
        than read: those that are read would say too little of the others. Neither without a call, and if the policy
        leaves out all that was read.
    """
    last = counting(calls)
    return {measure: _mean(last, worth) for measure, worth in values.items()}


def _mean(calls: Sequence[JudgeCall], worth: Mapping[str, float | None]) -> Score:
    unread = [call.parsed.unscored or "unscored" for call in calls if call.parsed.value is None]
    if 2 * len(unread) > len(calls):
        return Score(None, unread[0])
    counted = [value for call in calls if call.parsed.value is not None and (value := worth[call.parsed.value["verdict"]]) is not None]
    return Score(fmean(counted)) if counted else Score(None, unread[0] if unread else None)


Golds = Literal["all", "first"]
"""Every accepted wording, or only the first answer."""

ONE = "The gold is the right answer."
ANY = "The gold lists accepted answers, separated by |: one of them suffices."
DECLINED = "If the gold says that the question cannot be answered, an answer that says the same states what the gold states."
ALL = "The gold is a set of answers, separated by |, each with other wordings in brackets: the answer must name all."


def has_gold(question: Question) -> bool:
    """Return whether there is an answer to judge by; questions that the evidence does not answer have none."""
    return question.answerable and any(gold.strip() for gold in question.golds)


def gold_text(question: Question, golds: Golds) -> str:
    """Return the gold in one line; of a set of answers always all."""
    if question.answer_set:
        return " | ".join(_with_wordings(answer, question.aliases.get(answer, ())) for answer in question.wanted)
    return next(gold for gold in question.golds if gold.strip()) if golds == "first" else " | ".join(question.golds)


def gold_rule(question: Question, golds: Golds) -> str:
    """Return the sentence that says how the gold is meant, as `gold_text` writes it."""
    if question.answer_set:
        return ALL
    rule = ANY if golds == "all" and len(question.golds) > 1 else ONE
    return f"{rule} {DECLINED}" if gold_abstains(question) else rule


def _with_wordings(answer: str, wordings: tuple[str, ...]) -> str:
    return f"{answer} ({'; '.join(wordings)})" if wordings else answer


C = TypeVar("C", bound=LLMJudgeConfig)


class CaseJudge(ABC, Generic[C]):
    """A judge that puts cases before a model.

    Args:
        config: Options.
        services: Of them the cache of replies, and for a local model the device.
    """

    def __init__(self, config: C, services: Services) -> None:
        self.config = config
        self._template = config.load()
        self._asker = Asker(config, services, self.parse)

    @property
    def in_flight(self) -> int:
        """See `Asker`."""
        return self._asker.in_flight

    async def ask_one(self, item: Any) -> list[JudgeCall]:
        """Return the calls made for an item."""
        return await self._asker.ask(self.cases(item))

    def messages(self, **texts: str) -> Messages:
        """Return the conversation about some texts."""
        return fenced(self._template, texts, self.config.keys)

    @abstractmethod
    def cases(self, item: Any) -> list[Case]:
        """Return the parts of an item (or pair) to judge; none if it is unscorable."""

    @abstractmethod
    def parse(self, part: str, reply: str) -> Parsed:
        """Read a raw reply."""


class Worded(CaseJudge[C]):
    """A judge whose model answers with one word of a few."""

    verdicts: ClassVar[Sequence[str]]
    aliases: ClassVar[Mapping[str, str]] = {}
    """Further wordings of the verdicts, as `read_word` takes them."""

    def parse(self, part: str, reply: str) -> Parsed:
        return read_word(reply, self.verdicts, self.aliases)

    async def ask_one(self, item: Any) -> list[JudgeCall]:
        form = _verdict_form(tuple(self.verdicts))
        return await self._asker.ask([replace(case, strict=case.strict or form) for case in self.cases(item)])


@lru_cache(maxsize=16)
def _verdict_form(words: tuple[str, ...]) -> type[BaseModel]:
    """Return the JSON that asks for one word of a few."""
    field: Any = (Literal[words], ...)
    return create_model("Verdict", verdict=field)
