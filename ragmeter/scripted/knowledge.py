"""How the scripted LLM answers the prompts of knowledge graphs: extraction, names in a text, augmented queries.

It extracts what the world says, not what the text's words say: it finds the place of a chunk in the texts of its
worlds, and tells the facts of the sentences that stand there whole, every entity by its full name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

from benchmarks.schema import Question
from benchmarks.worlds.text import NO_FACT, Rendering, Text, articles, document, statements
from benchmarks.worlds.world import Fact, World
from methods.graphs.augmented_queries import QueryRequest, TemplateQueries
from methods.graphs.extraction import PROMPTS
from methods.graphs.knowledge_graph import EntityRecord, Node, RelationRecord, render
from ragmeter.scripted.prompt_patterns import Request, filled

STRENGTH = 8.0


class Knows(Protocol):
    """What of the scripted LLM is needed here."""

    @property
    def worlds(self) -> Mapping[int, World]: ...

    @property
    def rendering(self) -> Rendering: ...


class _Place(NamedTuple):
    """Where a sentence stands in a text without white space, and what it states."""

    start: int
    end: int
    fact: Fact


class Shelf:
    """The texts of worlds without any white space, so that a chunk is found however its passages were joined."""

    def __init__(self, worlds: Mapping[int, World], rendering: Rendering) -> None:
        self._texts: list[tuple[str, list[_Place]]] = []
        self._titles: set[str] = set()
        for world in worlds.values():
            long = [document(world, community, rendering).texts for community in range(world.communities)]
            for texts in [*long, *((text,) for text in articles(world, rendering).texts)]:
                self._texts.append(_squeezed(world, texts))
                self._titles.update(_tight(text.passage.title) for text in texts)

    def facts(self, chunk: str) -> list[Fact]:
        """The facts of the sentences that stand whole in a chunk, in order."""
        tight = _tight(chunk)
        # A passage of a long document may begin with the document's title.
        for wanted in (tight, self._untitled(tight), _tight(chunk.partition("\n")[2])):
            for text, positions in self._texts:
                start = text.find(wanted)
                if wanted and start >= 0:
                    end = start + len(wanted)
                    return [position.fact for position in positions if start <= position.start and position.end <= end]
        return []

    def _untitled(self, tight: str) -> str:
        for title in sorted(self._titles, key=len, reverse=True):
            tight = tight.replace(title, "")
        return tight


def extract(truth: Knows, request: Request) -> str | None:
    """The prompt of the extraction: the facts of a chunk as records."""
    result = filled(PROMPTS["extraction"].load(), request)
    if result is None:
        return None
    entities: list[EntityRecord] = []
    relations: list[RelationRecord] = []
    for fact in shelf_of(truth).facts(result["text"]):
        sentence = statements(fact)[0]
        entities += [EntityRecord(fact.head.name, fact.head.kind, sentence), EntityRecord(fact.text, fact.relation.tail, sentence)]
        relations.append(RelationRecord(fact.head.name, fact.text, sentence, STRENGTH))
    return render(dict.fromkeys(entities), relations)


def name_entities(truth: Knows, request: Request) -> str | None:
    """The prompt for names in a text: the entities of a world that it names, or the text itself."""
    result = filled(PROMPTS["names"].load(), request)
    if result is None:
        return None
    text = result["text"]
    names = [entity.name for world in truth.worlds.values() for entity in world.entities if entity.name in text]
    return json.dumps({"names": names or [text.strip()]}, ensure_ascii=False)


def write_queries(truth: Knows, request: Request) -> str | None:
    """The prompt of augmented queries: what the template generator makes of the same entities."""
    result = filled(PROMPTS["queries"].load(), request)
    if result is None:
        return None
    value = json.loads(result["given"])
    question = Question("", value["question"], (value["answer"],) if value["answer"] else ())
    nodes = tuple(Node(item["name"], item["type"], tuple(item["descriptions"])) for item in value["entities"])
    made = TemplateQueries(int(result["most"])).generate([QueryRequest(question, nodes)])[0]
    return json.dumps({"queries": list(made.queries)}, ensure_ascii=False)


KNOWLEDGE: tuple[Callable[[Any, Request], str | None], ...] = (extract, name_entities, write_queries)


_SHELVES: WeakKeyDictionary[Any, Shelf] = WeakKeyDictionary()


def shelf_of(truth: Knows) -> Shelf:
    """The texts of its worlds; made once."""
    if truth not in _SHELVES:
        _SHELVES[truth] = Shelf(truth.worlds, truth.rendering)
    return _SHELVES[truth]


def _squeezed(world: World, texts: tuple[Text, ...]) -> tuple[str, list[_Place]]:
    parts: list[str] = []
    positions: list[_Place] = []
    at = 0
    for sentence, fact in _sentences(texts):
        tight = _tight(sentence)
        if fact != NO_FACT:
            positions.append(_Place(at, at + len(tight), world.facts[fact]))
        parts.append(tight)
        at += len(tight)
    return "".join(parts), positions


def _sentences(texts: tuple[Text, ...]) -> Iterator[tuple[str, int]]:
    for text in texts:
        yield from zip(text.passage.sentences, text.facts, strict=True)


def _tight(text: str) -> str:
    return re.sub(r"\s+", "", text)
