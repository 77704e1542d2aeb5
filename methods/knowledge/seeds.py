"""Where the search in a graph begins: the entities that a question's answer names, found among the graph's nodes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from benchmarks.fingerprint import fingerprint
from benchmarks.schema import Question
from methods.knowledge.graph import KnowledgeGraph
from methods.knowledge.json_lists import strings_in
from methods.knowledge.prompts import load_prompt
from methods.knowledge.similarity import TextEncoder
from methods.knowledge.tuples import clean_name
from methods.models.chat import ChatConfig, ChatModel

NEAREST = 5
"""Nodes that take the place of names which no node has."""
_WORD = re.compile(r"\w+(?:[.'’-]\w+)*")


class NamesChat(ChatConfig):
    """The model that names entities."""

    max_tokens: int = Field(512, ge=1, description="longest reply")


class SeedConfig(BaseModel):
    """Which entities a question starts from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: Literal["answer", "question", "both"] = Field("answer", description="the text that names them")
    fallback: Literal["jaccard5", "embedding", "none"] = Field(
        "jaccard5",
        description=f"where no name is a node's: the {NEAREST} nodes that share most words with one, the {NEAREST} "
        "nearest by an encoder, or none, which leaves the question out",
    )
    namer: Literal["graph", "llm"] = Field(
        "graph", description="who finds names in a text: llm asks `chat`; graph: the text itself and the nodes in it"
    )
    chat: NamesChat | None = Field(None, description="the model of namer llm")
    prompt: str | None = Field(None, description="a template file of one's own; null: the one that ships")

    @model_validator(mode="after")
    def _has_a_model(self) -> Self:
        if self.namer == "llm" and self.chat is None:
            raise ValueError("namer llm needs chat: {model: …}")
        return self


@dataclass(frozen=True, slots=True)
class Seeds:
    """Where one question starts.

    Attributes:
        names: Nodes, by name; empty where the question is left out.
        found: How: `name`, `jaccard5`, `embedding`, or "" where it is left out.
        asked: The names that were looked for.
        failed: Why the names could not be had, where a call failed.
    """

    names: tuple[str, ...]
    found: str
    asked: tuple[str, ...]
    failed: str | None = None


class Namer(Protocol):
    """Finds the entities that texts name."""

    @property
    def fingerprint(self) -> str:
        """Of all that decides what it finds."""
        ...

    def names(self, texts: Sequence[str], graph: KnowledgeGraph) -> list[tuple[str, ...] | str]:
        """For each text its names, cleaned, or why there are none (a failed call)."""
        ...


class GraphNamer:
    """A text is a name itself, and names every node that occurs in it, unless within the name of another."""

    @property
    def fingerprint(self) -> str:
        return "graph"

    def names(self, texts: Sequence[str], graph: KnowledgeGraph) -> list[tuple[str, ...] | str]:
        by_words = {tuple(_words(node.name)): node.name for node in reversed(graph.nodes)}
        by_words.pop((), None)
        longest = max(map(len, by_words), default=0)
        return [self._named(text, by_words, longest) for text in texts]

    @staticmethod
    def _named(text: str, by_words: dict[tuple[str, ...], str], longest: int) -> tuple[str, ...]:
        words = _words(text)
        found = [clean_name(text)]
        start = 0
        while start < len(words):
            for length in range(min(longest, len(words) - start), 0, -1):
                name = by_words.get(tuple(words[start : start + length]))
                if name is not None:
                    found.append(name)
                    start += length - 1
                    break
            start += 1
        return tuple(dict.fromkeys(name for name in found if name))


class LLMNamer:
    """Asks a model which entities a text names.

    Args:
        model: The model.
        prompt: A template file of one's own.
    """

    def __init__(self, model: ChatModel, prompt: str | None = None) -> None:
        self._model = model
        self._prompt = load_prompt("names", prompt)

    @property
    def fingerprint(self) -> str:
        return fingerprint("llm", self._model.config.model_dump(mode="json"), self._prompt.hash)

    def names(self, texts: Sequence[str], graph: KnowledgeGraph) -> list[tuple[str, ...] | str]:
        distinct = list(dict.fromkeys(texts))
        replies = self._model.complete([self._prompt.messages(text=text) for text in distinct])
        found: dict[str, tuple[str, ...] | str] = {}
        for text, reply in zip(distinct, replies, strict=True):
            names = (clean_name(name) for name in strings_in(reply.text) or ())
            found[text] = reply.failed or tuple(dict.fromkeys(name for name in names if name))
        return [found[text] for text in texts]


def seeds_of(
    graph: KnowledgeGraph, questions: Sequence[Question], config: SeedConfig, namer: Namer, encoder: TextEncoder | None = None
) -> list[Seeds]:
    """The seeds of questions about one document.

    Args:
        graph: The document's graph.
        questions: With their gold: the first answer is looked at.
        config: Options.
        namer: Finds names.
        encoder: Needed where the fallback is `embedding`.

    Raises:
        ValueError: The fallback is `embedding`, and there is no encoder.
    """
    if config.fallback == "embedding" and encoder is None:
        raise ValueError("the fallback 'embedding' needs an encoder")
    texts = [_texts(question, config.source) for question in questions]
    named = iter(namer.names([text for several in texts for text in several], graph))
    finder = _Finder(graph, config.fallback, encoder)
    return [finder.seeds([next(named) for _ in several]) for several in texts]


class _Finder:
    """Finds nodes for names."""

    def __init__(self, graph: KnowledgeGraph, fallback: str, encoder: TextEncoder | None) -> None:
        self._graph = graph
        self._fallback = fallback
        self._encoder = encoder
        self._words = [frozenset(_words(node.name)) for node in graph.nodes] if fallback == "jaccard5" else []
        self._vectors: np.ndarray | None = None

    def seeds(self, named: Sequence[tuple[str, ...] | str]) -> Seeds:
        failed = next((why for why in named if isinstance(why, str)), None)
        asked = tuple(dict.fromkeys(name for names in named if not isinstance(names, str) for name in names))
        exact = tuple(name for name in asked if name in self._graph.places)
        if exact or not asked or not self._graph.nodes:
            return Seeds(exact, "name" if exact else "", asked, failed)
        near = self._nearest(asked)
        return Seeds(near, self._fallback if near else "", asked, failed)

    def _nearest(self, asked: Sequence[str]) -> tuple[str, ...]:
        if self._fallback == "none":
            return ()
        scores = self._jaccard(asked) if self._fallback == "jaccard5" else self._cosines(asked)
        # Nodes are in the order of their names, so that a stable sort breaks ties by name.
        best = np.argsort(-scores, kind="stable")[:NEAREST]
        return tuple(self._graph.nodes[place].name for place in best if scores[place] > 0)

    def _jaccard(self, asked: Sequence[str]) -> np.ndarray:
        wanted = [frozenset(_words(name)) for name in asked]
        return np.array([max(_overlap(words, one) for one in wanted) for words in self._words])

    def _cosines(self, asked: Sequence[str]) -> np.ndarray:
        assert self._encoder is not None
        if self._vectors is None:
            self._vectors = _unit(self._encoder.passages([node.text for node in self._graph.nodes]))
        return (self._vectors @ _unit(self._encoder.passages(list(asked))).T).max(axis=1)


def _texts(question: Question, source: str) -> list[str]:
    answer = [question.answers[0]] if question.answers else []
    return {"answer": answer, "question": [question.text], "both": [*answer, question.text]}[source]


def _words(text: str) -> list[str]:
    return _WORD.findall(text.upper())


def _overlap(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other) if one or other else 0.0


def _unit(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)
