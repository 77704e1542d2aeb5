"""Generate questions with a language model, and check each with and without its passages.

    write → do the quotes are in the passages? → answered with the passages? → not without them? → (multi) not by one alone?

Rejected questions are saved with the reason, so that a second run repeats no call. All prompts and replies are saved with each
question.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from benchmarks.core.fingerprint import content_hash, fingerprint
from benchmarks.own.library import places_of
from benchmarks.schema import Passage
from benchmarks.text import cover_em, f1, is_abstention, normalize
from methods.api import Services
from methods.models.chat import ChatModel
from methods.models.llm import LLM, AskingConfig, defaults, open_llm
from methods.models.structured import parse
from methods.prompts import shipped
from methods.questions.material import Material
from methods.training import Progress, Silent
from methods.training.journal import Journal, each_once

VERSION = 2
KINDS = ("single", "multi", "unanswerable")
ABSENT = "not in the passages"
AGREES = 0.5
"""Minimum F1 at which two answers count as the same."""
TEMPLATES = shipped("methods.questions", *KINDS, "answer", "guess")

KEPT = "kept"
REASONS: Mapping[str, str] = {
    "unreadable": "no reply of the model was the JSON asked for",
    "unwritten": "no question could be written about the passages",
    "quotes": "a quote does not stand in the passages",
    "unanswered": "the passages do not answer it",
    "answered": "the passages answer it, and it should be unanswerable",
    "known": "it is answered without the passages",
    "one_suffices": "one of the two passages suffices",
    "duplicate": "it nearly repeats another question",
}
"""Reasons for rejecting a question, in the order of the checks."""


Said = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
"""Text of a reply; models write null for none, and years as numbers."""


class Draft(BaseModel):
    """Reply of a model that writes a question."""

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)

    question: Said
    answer: Said
    quotes: Annotated[list[str], BeforeValidator(lambda value: [value] if isinstance(value, str) else value or [])]


class Answered(BaseModel):
    """Reply of a model that answers a question."""

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)

    answer: Said


class WritingConfig(AskingConfig):
    """Options of question generation: language model and limits."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    llm: Annotated[LLM, defaults(max_tokens=512)] = Field(description="the model")
    tries: int = Field(3, ge=1, description="maximum attempts of a call if its reply is not the requested JSON")
    prompts: str | None = Field(None, description="folder of your own templates; null: the shipped ones")
    at_once: int = Field(32, ge=1, description="questions written at once", exclude=True)


@dataclass(frozen=True, slots=True)
class Written:
    """A generated question, or the reason why there is none.

    Attributes:
        status: `KEPT`, a key of `REASONS`, or why a call failed.
        quotes: Verbatim quotes from the passages that answer it.
        calls: Step, prompt and reply of each call.
        failed: Whether a call failed permanently; it is retried next time.
    """

    kind: str
    status: str
    question: str = ""
    answer: str = ""
    quotes: tuple[str, ...] = ()
    documents: tuple[str, ...] = ()
    by: str = ""
    calls: tuple[Mapping[str, str], ...] = ()
    failed: bool = False

    @property
    def came(self) -> bool:
        """Return whether any call got a reply."""
        return bool(self.calls) or not self.failed

    @property
    def lasting(self) -> bool:
        """Return whether the result is final and saved."""
        return not self.failed


class _Lost(Exception):
    """Raised if a call failed permanently."""


class Writer:
    """Generator of questions about passages, which also checks each question; both with a language model.

    Args:
        config: Options with the model and limits.
        services: Services: reply cache, and for a local model device and seed.

    Raises:
        UserError: The API key is not set, or a prompt is invalid.
    """

    def __init__(self, config: WritingConfig, services: Services) -> None:
        self.config = config
        self.prompts = {name: template.load_from(config.prompts) for name, template in TEMPLATES.items()}
        self.model: ChatModel = open_llm(config.llm, services, role="questions")
        texts = content_hash(text for prompt in self.prompts.values() for text in prompt.texts)
        self._made_of = [VERSION, config.tries, self.model.config.identity(address=False), texts]

    def write(self, material: Sequence[Material], journal: Journal, progress: Progress | None = None) -> list[Written]:
        """Generate and check a question for each piece of material; saved results are reused.

        Raises:
            Broke: All calls failed.
        """
        progress = progress or Silent()
        progress.begin("writing questions", len(material))
        items = [(item.id, fingerprint(*self._made_of, item.text), item) for item in material]
        return each_once(self._one, items, Written, journal, progress, self.config.at_once, "--model")

    def outlook(self, material: Sequence[Material]) -> dict[str, float]:
        """Return upper bounds of calls, tokens and dollars, ignoring saved results; makes no calls."""
        count, calls, prompt = self.model.counter.count, 0, 0
        for item in material:
            calls += 1 + self._checks(item.kind)
            prompt += count(self.prompts[item.kind].messages(passages=item.text))
            prompt += self._checks(item.kind) * count(self.prompts["answer"].messages(passages=item.text, question="", absent=ABSENT))
        completion = calls * self.config.llm.longest
        return {"calls": calls, "prompt_tokens": prompt, "completion_tokens": completion, "usd": self.config.llm.usd(prompt, completion)}

    @staticmethod
    def _checks(kind: str) -> int:
        return {"single": 2, "multi": 4, "unanswerable": 1}[kind]

    async def _one(self, item: Material) -> Written:
        calls: list[Mapping[str, str]] = []
        by: Counter[str] = Counter()

        async def ask(prompt: str, shape: type[BaseModel], **values: str) -> Any:
            messages = self.prompts[prompt].messages(**values)
            for draw in range(self.config.tries):
                reply = await self.model.ask(messages, shape=shape, repetition=draw, step=prompt)
                if reply.failed is not None and not reply.model:
                    raise _Lost(reply.failed)
                by[reply.model] += 1
                calls.append({"step": prompt, "prompt": "\n\n".join(message["content"] for message in messages), "reply": reply.text})
                if (value := parse(reply.text, shape).value) is not None:
                    return value
            return None

        async def answered(question: str, passages: Sequence[Passage] | None) -> str:
            values = {"question": question, "absent": ABSENT}
            if passages is not None:
                values["passages"] = "\n\n".join(passage.full_text for passage in passages)
            reply = await ask("guess" if passages is None else "answer", Answered, **values)
            return "" if reply is None or is_absent(reply.answer) else reply.answer

        draft = None
        try:
            draft = await ask(item.kind, Draft, passages=item.text)
            if draft is None:
                status = "unreadable"
            else:
                status = await _checked(draft, item, answered) if draft.question.strip() else "unwritten"
        except _Lost as lost:
            return Written(item.kind, str(lost), documents=item.documents, calls=tuple(calls), failed=True)
        if draft is None:
            return Written(item.kind, status, documents=item.documents, calls=tuple(calls))
        quotes = tuple(quote.strip() for quote in draft.quotes if quote.strip())
        answer = "" if item.kind == "unanswerable" else draft.answer.strip()
        question = " ".join(draft.question.split())
        return Written(item.kind, status, question, answer, quotes, item.documents, ", ".join(by), tuple(calls))


async def _checked(draft: Draft, item: Material, answered: Any) -> str:
    """Return `KEPT`, or the reason for rejecting a question."""
    if item.kind == "unanswerable":
        return "answered" if await answered(draft.question, item.passages) else KEPT
    held_by = [places_of(quote, [passage.text for passage in item.passages]) for quote in draft.quotes if quote.strip()]
    if not draft.answer.strip() or not all(held_by) or len(set().union(*held_by)) < len(item.passages):
        return "quotes"
    if not same_answer(await answered(draft.question, item.passages), draft.answer):
        return "unanswered"
    if same_answer(await answered(draft.question, None), draft.answer):
        return "known"
    if item.kind == "multi":
        for passage in item.passages:
            if same_answer(await answered(draft.question, [passage]), draft.answer):
                return "one_suffices"
    return KEPT


def is_absent(answer: str) -> bool:
    """Return whether a model answers that the passages do not hold the answer, also within a sentence."""
    return normalize(ABSENT) in normalize(answer) or is_abstention(answer)


def same_answer(answer: str, gold: str) -> bool:
    """Return whether an answer contains the gold answer, or agrees with it by F1 (`AGREES`).

    Whole words are compared, because "I do not know" contains "no", and "1914" contains "1"; in scripts without spaces, characters.
    """
    match = "word" if normalize(gold).isascii() else "substring"
    return bool(answer.strip()) and (cover_em(answer, [gold], match) == 1 or f1(answer, [gold]) >= AGREES)
