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
from methods.models.llm import AskingConfig, llm_name, llm_weights, open_llm
from methods.models.local_llm import LocalConfig
from methods.prompts import Prompt, Shipped
from methods.work import CHARACTERS, Lengths, Needs, Use, Where, Work, ask, needs_of, tokens, unknown


class AskingJudgeConfig(AskingConfig, JudgeConfig):
    """Options of judges that call a model: the model, and the number of repetitions."""

    alongside: ClassVar[Mapping[str, Any]] = {"llm": {"usd_per_million_prompt_tokens", "usd_per_million_completion_tokens"}}

    repetitions: int = Field(1, ge=1, description="replies per prompt; more than one is informative with a temperature above 0")

    @property
    def label(self) -> str:
        """Return the model's name as it appears in metric ids."""
        return llm_name(self.llm)

    @property
    def weights(self) -> str:
        """Return the hash of a local model's weights; "" without local weights."""
        return llm_weights(self.llm)

    @property
    def needs(self) -> Needs:
        """Return the model's requirements, such as packages, keys and weights."""
        return needs_of(self.llm)

    def work(self, lengths: Lengths, judgments: float, answer: float, shown: int = 1) -> Work:
        """Estimate the work: one call per judgment at least; the number of tokens is reported as unknown."""
        where: Where = "here" if isinstance(self.llm, LocalConfig) else "away"
        calls = Work((Use(self.label, calls=judgments, where=where),)) if judgments else Work()
        return calls + unknown(f"tokens of judging by {self.label}: how many calls a judgment takes varies")


class LLMJudgeConfig(AskingJudgeConfig):
    """Options of a judge whose prompt is one of ragmeter's templates, or the user's own."""

    # The template is hashed: `prompt_identity`.
    alongside: ClassVar[Mapping[str, Any]] = {**AskingJudgeConfig.alongside, "prompt": True}

    template: ClassVar[Shipped]
    """The shipped prompt."""
    keys: ClassVar[frozenset[str]] = frozenset()
    """Keys of the requested JSON, in addition to those of all judges."""

    prompt: str | None = Field(None, description="your own template file; null: the shipped one")
    max_answer_chars: int = Field(8_000, ge=1, description="maximum characters of a judged text; cuts are marked")

    def preflight(self) -> None:
        """Check that the model can be called and that the template is valid."""
        super().preflight()
        self.load()

    def load(self) -> Prompt:
        """Load the prompt template.

        Raises:
            UserError: The template cannot be read or used.
        """
        return self.template.load(self.prompt)

    def work(self, lengths: Lengths, judgments: float, answer: float, shown: int = 1) -> Work:
        """Estimate the work: one call per judgment, whose prompt holds question, gold, judged text and possibly the gold document."""
        length = sum(map(tokens, self.load().texts)) + lengths.question + lengths.answer
        document = 2 * lengths.passage if getattr(self, "reference", None) == "document" else 0
        return ask(self.llm, judgments, length + document + shown * min(answer, self.max_answer_chars / CHARACTERS))


def prompt_identity(config: LLMJudgeConfig) -> Mapping[str, Any]:
    """Return the parts of a judge's identity beyond its options: the template's text, and the version of the rules for
    inserting untrusted text.
    """
    return {"prompt": config.load().hash, "fences": str(VERSION)}


NO_REPLY = "no reply"
"""Prefix of the reason of a call without a reply."""


@dataclass(frozen=True, slots=True)
class Case:
    """One request to a judge's model, or a decision that a rule made without it.

    Attributes:
        part: Name of the judge's prompt.
        messages: The messages to send; None if a rule decided.
        settled: The rule's verdict; None if the model is called.
        shape: JSON form requested from the model; None for text. Replies are always parsed by the judge's own parser, whatever
            their form.
        strict: JSON form to request after an unreadable reply; None uses `shape`.
    """

    part: str
    messages: Messages | None = None
    settled: Parsed | None = None
    shape: type[BaseModel] | None = None
    strict: type[BaseModel] | None = None

    @classmethod
    def ruled(cls, part: str, by: str, **value: object) -> Case:
        """Make a case that a rule decides; `by` names the rule."""
        return cls(part, settled=Parsed({**value, "by": by}))


AGAIN = "This reply could not be read. Give it once more, as one JSON object and nothing else, with"
"""Beginning of the message that requests the verdict again."""


def asked_again(messages: Messages, reply: str, form: type[BaseModel]) -> Messages:
    """Append the unreadable reply and a request to repeat the verdict in JSON form to the conversation."""
    fields = []
    for name, field in form.model_fields.items():
        words = [word for word in get_args(field.annotation) if isinstance(word, str)]
        fields.append(f'"{name}" (one of: {", ".join(words)})' if words else f'"{name}"')
    return [*messages, {"role": "assistant", "content": reply}, {"role": "user", "content": f"{AGAIN} {', '.join(fields)}."}]


class Asker:
    """Calls a judge's model, and asks a second time if the reply is unreadable.

    The model is opened on first use, so cached replies can be read without key, endpoint or weights.

    Args:
        config: The judge's options.
        services: Provides the reply cache and, for a local model, the device.
        parse: Parses a raw reply to the prompt named by its first argument.
    """

    def __init__(self, config: AskingJudgeConfig, services: Services, parse: Callable[[str, str], Parsed]) -> None:
        self.config = config
        self._services = services
        self._parse = parse
        self._since = time.time()

    @property
    def in_flight(self) -> int:
        """Return the number of concurrent items that keeps the model busy. Read it outside the event loop, because it may load
        the model.
        """
        return self._model.in_flight

    async def ask(self, cases: Sequence[Case]) -> list[JudgeCall]:
        """Make all calls for an item's cases, in the order of repetitions; without cases, make none.

        Raises:
            Broke: No further call can succeed, for example because the key is invalid.
        """
        made = await together(*(self.call(case, number) for number in range(self.config.repetitions) for case in cases))
        return [call for calls in made for call in calls]

    async def call(self, case: Case, repetition: int) -> list[JudgeCall]:
        """Make one call for a case, and a second one in a stricter form if the reply is unreadable.

        A refusal is not asked again, because a form without that choice would force an arbitrary verdict. With
        `Services.reask_unread`, an unreadable cached reply is replaced by a new one.
        """
        if case.messages is None:
            return [JudgeCall(case.part, repetition, None, case.settled or Parsed(None, NO_REPLY))]
        for draw in count(repetition, self.config.repetitions):
            calls, old = await self._draw(case, case.messages, draw)
            if not (old and self._services.reask_unread) or any(call.read for call in calls):
                break
        return [replace(call, repetition=repetition) for call in calls]

    async def _draw(self, case: Case, messages: Messages, draw: int) -> tuple[list[JudgeCall], bool]:
        """Make the calls of one repetition; return whether all replies were cached before this judge started."""
        text, call, old = await self._ask(case.part, messages, case.shape, draw)
        form = case.strict or case.shape
        if text is None or form is None or call.read or refused(call.parsed):
            return [call], old
        _, second, also = await self._ask(case.part, asked_again(messages, text, form), form, draw)
        return [call, second], old and also

    async def _ask(self, part: str, messages: Messages, shape: type[BaseModel] | None, draw: int) -> tuple[str | None, JudgeCall, bool]:
        """Return the reply's text (None without a reply), the call in its stored form, and whether the reply was cached before."""
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
    """Average verdicts over repetitions into one score per measure.

    Args:
        calls: Calls about one item; empty if it is unscorable.
        values: For each measure, the number that each verdict counts as; None leaves the verdict out.

    Returns:
        The mean over the verdicts that count. Unscored, with the first reason, if more repetitions are unreadable than
        readable. Unscorable without calls, or if all verdicts are left out.
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
"""All accepted wordings, or only the first answer."""

ONE = "The gold is the right answer."
ANY = "The gold lists accepted answers, separated by |: one of them suffices."
DECLINED = "If the gold says that the question cannot be answered, an answer that says the same states what the gold states."
ALL = "The gold is a set of answers, separated by |, each with other wordings in brackets: the answer must name all."


def has_gold(question: Question) -> bool:
    """Return whether the question has a gold answer to judge by; unanswerable questions have none."""
    return question.answerable and any(gold.strip() for gold in question.golds)


def gold_text(question: Question, golds: Golds) -> str:
    """Format the gold answers in one line for a prompt; for a set of answers, always all of them."""
    if question.answer_set:
        return " | ".join(_with_wordings(answer, question.aliases.get(answer, ())) for answer in question.wanted)
    return next(gold for gold in question.golds if gold.strip()) if golds == "first" else " | ".join(question.golds)


def gold_rule(question: Question, golds: Golds) -> str:
    """Return the sentence of the prompt that explains how the gold answers are meant (alternatives, or a set)."""
    if question.answer_set:
        return ALL
    rule = ANY if golds == "all" and len(question.golds) > 1 else ONE
    return f"{rule} {DECLINED}" if gold_abstains(question) else rule


def _with_wordings(answer: str, wordings: tuple[str, ...]) -> str:
    return f"{answer} ({'; '.join(wordings)})" if wordings else answer


C = TypeVar("C", bound=LLMJudgeConfig)


class CaseJudge(ABC, Generic[C]):
    """Base class of judges that show cases to a model.

    Args:
        config: The judge's options.
        services: Provides the reply cache and, for a local model, the device.
    """

    def __init__(self, config: C, services: Services) -> None:
        self.config = config
        self._template = config.load()
        self._asker = Asker(config, services, self.parse)

    @property
    def in_flight(self) -> int:
        """Return the number of concurrent items that keeps the model busy (`Asker.in_flight`)."""
        return self._asker.in_flight

    async def ask_one(self, item: Any) -> list[JudgeCall]:
        """Make all calls about an item."""
        return await self._asker.ask(self.cases(item))

    def messages(self, **texts: str) -> Messages:
        """Fill the prompt template with texts, and return the messages."""
        return fenced(self._template, texts, self.config.keys)

    @abstractmethod
    def cases(self, item: Any) -> list[Case]:
        """Return the requests that judging an item (or pair) needs; empty if it is unscorable."""

    @abstractmethod
    def parse(self, part: str, reply: str) -> Parsed:
        """Parse a raw reply."""


class Worded(CaseJudge[C]):
    """Base class of judges whose model answers with one of a few words."""

    verdicts: ClassVar[Sequence[str]]
    aliases: ClassVar[Mapping[str, str]] = {}
    """Further wordings of the verdicts, in the form that `read_word` expects."""

    def parse(self, part: str, reply: str) -> Parsed:
        return read_word(reply, self.verdicts, self.aliases)

    async def ask_one(self, item: Any) -> list[JudgeCall]:
        form = _verdict_form(tuple(self.verdicts))
        return await self._asker.ask([replace(case, strict=case.strict or form) for case in self.cases(item)])


@lru_cache(maxsize=16)
def _verdict_form(words: tuple[str, ...]) -> type[BaseModel]:
    """Return the JSON schema of one verdict word."""
    field: Any = (Literal[words], ...)
    return create_model("Verdict", verdict=field)
