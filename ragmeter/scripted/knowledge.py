"""Answer the prompts of knowledge graphs as the scripted LLM: extraction, names in a text, augmented queries.

It extracts what the world says, not what the text's words say: it finds the place of a chunk in the texts of its
worlds, and tells the facts of the sentences that are there whole, every entity by its full name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

from benchmarks.schema import Question
from benchmarks.worlds.text import NO_FACT, Rendering, Text, articles, document, statements
from benchmarks.worlds.world import Fact, World
from methods.graphs.augmented_queries import QueryRequest, TemplateQueries
from methods.graphs.claims import CONFIRMED
from methods.graphs.claims import PROMPT as CLAIMS
from methods.graphs.extraction import PROMPTS
from methods.graphs.knowledge_graph import END, FIELD, RECORD, EntityRecord, Node, RelationRecord, clean_name, render
from ragmeter.scripted.prompt_patterns import Shown, Truth, answers

STRENGTH = 8.0


class _Place(NamedTuple):
    """Position of a sentence in a text without white space, with its facts."""

    start: int
    end: int
    fact: Fact


class Shelf:
    """Index of worlds' texts without white space, so that a chunk is found however its passages were joined."""

    def __init__(self, worlds: Mapping[int, World], rendering: Rendering) -> None:
        self._texts: list[tuple[str, list[_Place]]] = []
        self._titles: set[str] = set()
        for world in worlds.values():
            long = [document(world, community, rendering).texts for community in range(world.communities)]
            for texts in [*long, *((text,) for text in articles(world, rendering).texts)]:
                self._texts.append(_squeezed(world, texts))
                self._titles.update(_tight(text.passage.title) for text in texts)

    def facts(self, chunk: str) -> list[Fact]:
        """Return the facts of all sentences that a chunk contains completely, in order."""
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


def records(truth: Truth, shown: Shown, keywords: bool) -> str:
    """Format the facts of a chunk as GraphRAG or LightRAG records; `keywords` adds keywords."""
    entities: list[EntityRecord] = []
    relations: list[RelationRecord] = []
    for fact in truth.shelf.facts(shown["text"]):
        sentence = statements(fact)[0]
        entities += [EntityRecord(fact.head.name, fact.head.kind, sentence), EntityRecord(fact.text, fact.relation.tail, sentence)]
        about = [fact.relation.id.replace("_", " ")] if keywords else []
        relations.append(RelationRecord(fact.head.name, fact.text, sentence, STRENGTH, *about))
    return render(dict.fromkeys(entities), relations)


answers(PROMPTS["extraction"])(partial(records, keywords=False))
answers(PROMPTS["extraction_keywords"])(partial(records, keywords=True))


@answers(CLAIMS)
def claims(truth: Truth, shown: Shown) -> str:
    """Reply to GraphRAG's claim prompt with every fact of a chunk about a listed entity, confirmed and without a date."""
    named = set(shown["entities"].split(", "))
    about = [fact for fact in truth.shelf.facts(shown["text"]) if clean_name(fact.head.name) in named]
    rows = [(fact.head.name, fact.text, fact.relation.id, CONFIRMED, "NONE", "NONE", statements(fact)[0]) for fact in about]
    return f"{RECORD}\n".join([*(f"({FIELD.join(row)})" for row in rows), END])


@answers(PROMPTS["names"])
def name_entities(truth: Truth, shown: Shown) -> str:
    """Reply to the prompt for names in a text with the entities that it names, else with the text itself."""
    text = shown["text"]
    names = [entity.name for world in truth.worlds.values() for entity in world.entities if entity.name in text]
    return json.dumps({"names": names or [text.strip()]}, ensure_ascii=False)


@answers(PROMPTS["queries"])
def write_queries(truth: Truth, shown: Shown) -> str:
    """Reply to the prompt for augmented queries with those of the template generator for the same entities."""
    value = json.loads(shown["given"])
    question = Question("", value["question"], (value["answer"],) if value["answer"] else ())
    nodes = tuple(Node(item["name"], item["type"], tuple(item["descriptions"])) for item in value["entities"])
    made = TemplateQueries(int(shown["most"])).generate([QueryRequest(question, nodes)])[0]
    return json.dumps({"queries": list(made.queries)}, ensure_ascii=False)


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
