"""Augmented queries: questions that are easily confused with a given one, written from its neighbourhood.

They are never trained on; they are searched with, and what they find besides the evidence makes hard negatives.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice, zip_longest
from typing import Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from benchmarks.fingerprint import fingerprint
from benchmarks.schema import Question
from methods.api import Services
from methods.knowledge.extraction import chat_model
from methods.knowledge.graph import Node
from methods.knowledge.json_lists import strings_in
from methods.knowledge.prompts import load_prompt
from methods.knowledge.tuples import clean_name
from methods.models.chat import ChatConfig, ChatModel
from methods.models.replies import Reply

MOST = 10
"""Queries per question and size."""
UNREADABLE = "the reply holds no list of queries"


class QueriesChat(ChatConfig):
    """The model that writes queries: long replies, and some variety."""

    max_tokens: int = Field(2048, ge=1, description="longest reply")
    temperature: float = Field(0.7, ge=0)


class QueriesConfig(BaseModel):
    """Who writes the queries, and how many."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    generator: Literal["template", "llm"] = Field(
        "template", description="llm: ask `chat`; template: fill sentence patterns, without a model"
    )
    most: int = Field(MOST, ge=1, le=50, description="queries per question and size")
    chat: QueriesChat | None = Field(None, description="the model of generator llm; paper: Gemini-2.5-Pro")
    prompt: str | None = Field(None, description="a template file of one's own; null: the one that ships")

    @model_validator(mode="after")
    def _has_a_model(self) -> Self:
        if self.generator == "llm" and self.chat is None:
            raise ValueError("generator llm needs chat: {model: …}")
        return self


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """What queries are written from.

    Attributes:
        question: With its gold; its first answer is the one that queries share.
        entities: The cut neighbourhood, best first.
        seeds: Names of the entities that the answer names.
    """

    question: Question
    entities: tuple[Node, ...]
    seeds: tuple[str, ...] = ()

    @property
    def answer(self) -> str:
        """The first answer."""
        return self.question.answers[0] if self.question.answers else ""


@dataclass(frozen=True, slots=True)
class AugmentedQueries:
    """The queries of one question and size.

    Attributes:
        queries: Distinct, at most as many as asked for.
        model: Who wrote them.
        prompt: Hash of the prompt's template, "" where there was none.
        failed: Why there are none.
        lasting: Whether asking again would end alike: replies came, but could not be used. A call that failed is not.
    """

    queries: tuple[str, ...]
    model: str
    prompt: str = ""
    failed: str | None = None
    lasting: bool = True


class QueryGenerator(Protocol):
    """Writes queries."""

    @property
    def fingerprint(self) -> str:
        """Of all that decides what it writes."""
        ...

    def generate(self, requests: Sequence[QueryRequest]) -> list[AugmentedQueries]:
        """One set of queries per request."""
        ...


class LLMQueries:
    """Asks a model, and once more where its reply could not be used.

    Args:
        model: The model.
        most: Queries per request.
        prompt: A template file of one's own.
    """

    def __init__(self, model: ChatModel, most: int = MOST, prompt: str | None = None) -> None:
        self._model = model
        self._most = most
        self._prompt = load_prompt("queries", prompt)

    @property
    def fingerprint(self) -> str:
        return fingerprint("llm", self._model.config.model_dump(mode="json"), self._prompt.hash, self._most)

    def generate(self, requests: Sequence[QueryRequest]) -> list[AugmentedQueries]:
        conversations = [self._prompt.messages(given=given(request), most=str(self._most)) for request in requests]
        found = [self._read(reply) for reply in self._model.complete(conversations)]
        again = [number for number, one in enumerate(found) if one.failed]
        if again:
            replies = self._model.complete([conversations[number] for number in again], repetition=1)
            for number, reply in zip(again, replies, strict=True):
                found[number] = self._read(reply)
        return found

    def _read(self, reply: Reply) -> AugmentedQueries:
        model = reply.model or self._model.config.model
        queries = read_queries(reply.text, self._most)
        if queries:
            return AugmentedQueries(queries, model, self._prompt.hash)
        failed = reply.failed or UNREADABLE
        return AugmentedQueries((), model, self._prompt.hash, failed, lasting=reply.failed is None)


class TemplateQueries:
    """Fills sentence patterns of all four kinds in turn with what is said of the neighbouring entities.

    What names the question or its answer is left out as long as something else is left.

    Args:
        most: Queries per request.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most

    @property
    def fingerprint(self) -> str:
        return fingerprint("template", PATTERNS, self._most)

    def generate(self, requests: Sequence[QueryRequest]) -> list[AugmentedQueries]:
        return [self._written(request) for request in requests]

    def _written(self, request: QueryRequest) -> AugmentedQueries:
        facts = _told(request)
        if not facts:
            return AugmentedQueries((), "template", failed="no entity around the answer has a description")
        names = list(dict.fromkeys(name for name, _ in facts))
        # As many rounds as it takes for every fact to meet every pattern.
        patterns = [pattern for kind in zip(*PATTERNS.values(), strict=True) for pattern in kind]
        drafts = (
            pattern.format(name=name.title(), other=_another(names, name, turn).title(), fact=text.rstrip("."), quote=text)
            for turn, (pattern, (name, text)) in enumerate(
                zip(islice(cycle(patterns), len(patterns) * len(facts)), islice(cycle(facts), len(patterns) * len(facts)), strict=True)
            )
        )
        return AugmentedQueries(distinct(drafts, self._most), "template")


PATTERNS = {
    "comparison": (
        "How does {name}, of whom it is said that {fact}, differ from {other}?",
        "Which of {name} and {other} fits the words: {fact}?",
    ),
    "causal": ("What followed from it that {fact}, where {other} is concerned?", "What brought it about that {fact}?"),
    "quotation": (
        "“{quote}” – about what else do those speak who say this of {name}?",
        "Where is it told in the words “{quote}” what became of {name}?",
    ),
    "perspective": (
        "Seen from {other}, what is to be known about {name}, given that {fact}?",
        "What would {name} have to tell of {other}, knowing that {fact}?",
    ),
}
"""By kind; `name` and `other` are entities, `fact` and `quote` what is said of the first."""


def generator_of(config: QueriesConfig, services: Services) -> QueryGenerator:
    """The generator that options name."""
    if config.generator == "template" or config.chat is None:
        return TemplateQueries(config.most)
    return LLMQueries(chat_model(config.chat, "augmented queries", services.cache), config.most, config.prompt)


def given(request: QueryRequest) -> str:
    """What a model is told of a question: JSON with its text, answer and entities; relations are not passed on."""
    entities = [{"name": node.name, "type": node.type, "descriptions": list(node.descriptions)} for node in request.entities]
    value = {"question": request.question.text, "answer": request.answer, "entities": entities}
    return json.dumps(value, ensure_ascii=False, indent=1)


def read_queries(reply: str, most: int = MOST) -> tuple[str, ...]:
    """The queries of a reply, distinct and none empty, at most so many; none where it cannot be read."""
    return distinct(strings_in(reply) or (), most)


def distinct(texts: Iterable[str], most: int) -> tuple[str, ...]:
    """The first so many texts that differ in more than letter case and white space."""
    kept: dict[str, str] = {}
    for text in texts:
        flat = " ".join(text.split())
        if flat:
            kept.setdefault(flat.casefold(), flat)
        if len(kept) == most:
            break
    return tuple(kept.values())


def _told(request: QueryRequest) -> list[tuple[str, str]]:
    """What is said of entities, in their order, one description of each, then the second …"""
    answer, question = clean_name(request.answer), clean_name(request.question.text)
    avoided = {*request.seeds, answer}
    columns = [[(node.name, text) for text in node.descriptions] for node in request.entities]
    facts = [pair for turn in zip_longest(*columns) for pair in turn if pair is not None]
    free = [
        (name, text) for name, text in facts if name not in avoided and name not in question and not (answer and answer in clean_name(text))
    ]
    return list({text: (name, text) for name, text in reversed(free or facts)}.values())[::-1]


def _another(names: Sequence[str], name: str, turn: int) -> str:
    others = [one for one in names if one != name]
    return others[turn % len(others)] if others else name
