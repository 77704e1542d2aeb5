"""The layouts that WebQSP and CWQ share: RoG's rows, and NSM's JSON Lines over vocabularies (GNN-RAG has it too).

A layout turns a record into an `Asked`: the question, its graph by names, and what was odd about it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks.errors import UserError
from benchmarks.open_file import archive_of, open_bytes
from benchmarks.schema import Question, Triple
from benchmarks.sources import Record


@dataclass(slots=True)
class Asked:
    """What one record yields.

    Attributes:
        question: The question, without candidates; its metadata is made of what JSON can write.
        graph: Its triples as the record lists them; None where the layout has no graphs.
        counts: What was met (keys of `graph_qa.NOTES`).
        record: The record.
    """

    question: Question
    graph: list[Triple] | None
    counts: Counter[str]
    record: Record


Parse = Callable[[Record], Asked]


@dataclass(frozen=True, slots=True)
class Layout:
    """A way in which a dataset's files are written.

    Attributes:
        title: As messages call it.
        fields: What its records have and those of the dataset's other layouts do not, one of each group at least.
        reader: From the first file to what reads its records.
        items: The field of a single object that holds all records, "" where each record stands for itself.
        sizes: Number of questions by split, where it differs from the card's.
        has_graphs: Whether its records bring graphs.
        beside: From a file to other files that its records cannot be read without.
    """

    title: str
    fields: tuple[frozenset[str], ...]
    reader: Callable[[Path], Parse]
    items: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    has_graphs: bool = False
    beside: Callable[[Path], Sequence[Path]] = lambda path: ()

    def fits(self, fields: Mapping[str, Any]) -> bool:
        """Whether a record with these fields is written so."""
        return all(group & fields.keys() for group in self.fields)


def answered(record: Record, name: str) -> tuple[tuple[str, ...], Counter[str]]:
    """A field of answers that may be absent or empty: each answer once, nulls left out, and how many of both."""
    listed = record.fields.get(name)
    if not isinstance(listed, list):
        return (record.answers(name) if record.has(name) else ()), Counter()
    answers = [record.expect(item, f"{name}[{i}]", str) for i, item in enumerate(listed) if item is not None]
    once = tuple(dict.fromkeys(answers))
    return once, Counter(repeated_answers=len(answers) - len(once), null_answers=len(listed) - len(answers))


def topics_once(names: Collection[str], counts: Counter[str]) -> tuple[str, ...]:
    """Topic entities by name, each once, and counted where two have the same name."""
    once = tuple(dict.fromkeys(names))
    counts["repeated_topics"] += len(names) - len(once)
    return once


# --- RoG -----------------------------------------------------------------------------------------------------


def rog(record: Record) -> Asked:
    """Read RoG's row: `id, question, answer[], q_entity[], a_entity[], graph[[h, r, t]]`.

    Raises:
        BadRecord: A field is missing or of the wrong type.
    """
    answers, counts = answered(record, "answer")
    topics = [record.expect(topic, f"q_entity[{i}]", str) for i, topic in enumerate(record.field("q_entity", list))]
    metadata = {"a_entity": list(record.texts("a_entity", ()))}
    question = Question(
        id=record.text("id"),
        text=record.text("question"),
        answers=answers,
        answer_set=True,
        topic_entities=topics_once(topics, counts),
        metadata={name: value for name, value in metadata.items() if value},
    )
    return Asked(question, _named_triples(record, "graph"), counts, record)


ROG = Layout("RoG's rows", (frozenset({"q_entity"}), frozenset({"graph"})), lambda path: rog, has_graphs=True)


def _named_triples(record: Record, name: str) -> list[Triple]:
    rows = record.field(name, list)
    if set(map(type, rows)) <= {list} and set(map(len, rows)) <= {3} and set(map(type, chain(*rows))) <= {str}:
        return [(head, relation, tail) for head, relation, tail in rows]
    wrong = next(i for i, row in enumerate(rows) if not _is_triple(row))
    raise record.problem(f"field '{name}[{wrong}]' is no triple", f"{name}[{wrong}]", "a list of three strings")


def _is_triple(row: Any) -> bool:
    return type(row) is list and len(row) == 3 and all(type(part) is str for part in row)


# --- NSM, GNN-RAG --------------------------------------------------------------------------------------------

ENTITIES, RELATIONS = "entities.txt", "relations.txt"
NAMES = ("entity_name.txt", "entities_names.json")
"""Names of entities: a line `id TAB name` each (`None` for no name), or one JSON object from id to name."""


@dataclass(frozen=True)
class Vocabulary:
    """What the numbers in NSM's files stand for.

    Attributes:
        entities: Ids, by number.
        relations: Names, by number.
        names: Names of entities, by id; where there is none, the id stands for it.
        files: Where they come from, entities' and relations' first.
    """

    entities: Sequence[str]
    relations: Sequence[str]
    names: Mapping[str, str]
    files: tuple[Path, ...]

    @classmethod
    def beside(cls, path: Path) -> Vocabulary:
        """The vocabularies that lie beside a file, or one folder up.

        Raises:
            UserError: One is missing or cannot be read.
        """
        files = vocabulary_files(path)
        names: dict[str, str] = {}
        listed = None
        for file in files:
            if file.name in NAMES:
                names.update(_names(file))
            elif file.name == ENTITIES:
                listed = [line for _, line in _lines(file)]
        relations = next(file for file in files if file.name == RELATIONS)
        # Without entities.txt, the order of the names is that of the numbers.
        entities = listed if listed is not None else list(names)
        shown = {identifier: name for identifier, name in names.items() if name}
        return cls(entities, [line for _, line in _lines(relations)], shown, files)

    @cached_property
    def shown(self) -> list[str]:
        """The name of every entity, or its id, by number."""
        return [self.names.get(identifier, identifier) for identifier in self.entities]

    @cached_property
    def homonyms(self) -> int:
        """Named entities whose name another one has too."""
        return len(self.names) - len(set(self.names.values()))

    def entity(self, record: Record, value: Any, name: str) -> str:
        """The name of an entity given by number, by id, or as `{kb_id, text}`.

        Raises:
            BadRecord: There is no such number, or it is none of these.
        """
        if isinstance(value, dict):
            value = value.get("kb_id", value.get("text"))
        if type(value) is int:
            return _at(record, self.shown, value, name, self.files[0])
        return self.names.get(value, value) if isinstance(value, str) else record.expect(value, name, str)

    def relation(self, record: Record, value: Any, name: str) -> str:
        """The name of a relation given by number, by name, or as `{rel_id, text}`.

        Raises:
            BadRecord: There is no such number, or it is none of these.
        """
        if isinstance(value, dict):
            value = value.get("rel_id", value.get("text"))
        if type(value) is int:
            return _at(record, self.relations, value, name, Path(RELATIONS))
        return record.expect(value, name, str)


def _at(record: Record, texts: Sequence[str], number: int, name: str, file: Path) -> str:
    if 0 <= number < len(texts):
        return texts[number]
    raise record.problem(f"field {name!r} is {number}, and {file.name} has {len(texts)} lines", name)


def vocabulary_files(path: Path) -> tuple[Path, ...]:
    """The files that NSM's numbers refer to, beside a file or one folder up.

    Raises:
        UserError: There is no relations.txt, or neither entities.txt nor entity_name.txt.
    """
    archive = archive_of(path)
    folder = path.parent if archive is None else archive[0].parent
    found: list[Path] = []
    for name in (ENTITIES, *NAMES, RELATIONS):
        places = (folder / name, folder.parent / name)
        found.extend([place for place in places if place.is_file()][:1])
    names = {file.name for file in found}
    lacking = RELATIONS if RELATIONS not in names else "" if {ENTITIES, NAMES[0]} & names else ENTITIES
    if lacking:
        raise UserError(
            f"the numbers in this file stand for lines of {lacking}, which is not there",
            where=str(folder),
            try_this=f"put {lacking} beside {path.name}, as it comes with the data",
        )
    return tuple(found)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines split at line feeds alone: names hold other characters that end a line elsewhere."""
    with open_bytes(path) as source:
        for number, raw in enumerate(source, 1):
            try:
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                byte = raw[error.start]
                raise UserError(f"byte 0x{byte:02x} is not UTF-8", where=f"{path}, line {number}") from error
            yield number, text.rstrip("\r\n")


def _names(path: Path) -> dict[str, str]:
    """Id to name, "" where an entity has none, in the file's order."""
    if path.suffix == ".json":
        with open_bytes(path) as source:
            try:
                listed = json.loads(source.read().decode("utf-8-sig"))
            except ValueError as error:
                raise UserError(f"this is not JSON: {error}", where=str(path)) from error
        if not isinstance(listed, dict):
            raise UserError("this must be one object, from entity id to name", where=str(path))
        return {str(key): name if isinstance(name, str) else "" for key, name in listed.items()}
    names: dict[str, str] = {}
    for number, line in _lines(path):
        identifier, tab, name = line.partition("\t")
        if not tab or identifier in names:
            what = "an entity stands here twice" if tab else "there is no tab between an entity and its name"
            raise UserError(what, where=f"{path}, line {number}", try_this="a line is: id, tab, name")
        names[identifier] = "" if name == "None" else name
    return names


def nsm(path: Path) -> Parse:
    """What reads NSM's records: `id, question, entities, answers[{kb_id, text}], subgraph{tuples, entities}`."""
    vocabulary = Vocabulary.beside(path)
    once = Counter(entities_sharing_a_name=vocabulary.homonyms)

    def parse(record: Record) -> Asked:
        names: list[str] = []
        ids: list[str] = []
        for i, item in enumerate(record.field("answers", list, [])):
            answer = record.expect(item, f"answers[{i}]", dict)
            # In some files the id is in `text`, and `kb_id` is a number of a graph's own.
            identifier = answer.get("kb_id") if isinstance(answer.get("kb_id"), str) else answer.get("text")
            ids.append(record.expect(identifier, f"answers[{i}].kb_id", str))
            names.append(answer.get("text") or vocabulary.names.get(ids[-1], ids[-1]))
        given = record.field("entities", list)
        topics = [vocabulary.entity(record, entity, f"entities[{i}]") for i, entity in enumerate(given)]
        counts = once + Counter(repeated_answers=len(names) - len(set(names)))
        once.clear()
        question = Question(
            id=record.text("id"),
            text=record.text("question"),
            answers=tuple(dict.fromkeys(names)),
            answer_set=True,
            topic_entities=topics_once(topics, counts),
            metadata={"answer_ids": ids},
        )
        return Asked(question, _numbered_triples(record, vocabulary), counts, record)

    return parse


NSM = Layout("NSM's JSON Lines", (frozenset({"subgraph"}),), nsm, has_graphs=True, beside=vocabulary_files)


def _numbered_triples(record: Record, vocabulary: Vocabulary) -> list[Triple]:
    subgraph = Record(record.field("subgraph", dict), record.path, f"{record.place}, subgraph")
    rows = subgraph.field("tuples", list)
    if any(type(row) is not list or len(row) != 3 for row in rows):
        wrong = next(i for i, row in enumerate(rows) if type(row) is not list or len(row) != 3)
        raise subgraph.problem(f"field 'tuples[{wrong}]' is no triple", f"tuples[{wrong}]", "a list of three")
    shown, relations = vocabulary.shown, vocabulary.relations
    flat = list(chain(*rows))
    plain = set(map(type, flat)) <= {int} and min(flat, default=0) >= 0
    if plain and max([*flat[0::3], *flat[2::3]], default=-1) < len(shown) and max(flat[1::3], default=-1) < len(relations):
        return [(shown[head], relations[relation], shown[tail]) for head, relation, tail in rows]
    return [
        (
            vocabulary.entity(subgraph, head, f"tuples[{i}][0]"),
            vocabulary.relation(subgraph, relation, f"tuples[{i}][1]"),
            vocabulary.entity(subgraph, tail, f"tuples[{i}][2]"),
        )
        for i, (head, relation, tail) in enumerate(rows)
    ]


def topics_by_id(record: Record, name: str) -> dict[str, str]:
    """Topic entities as ToG's files have them: an object from id to name; absent in other files.

    Raises:
        BadRecord: It is no such object.
    """
    topics = record.field(name, dict, {})
    return {identifier: record.expect(text, f"{name}.{identifier}", str) for identifier, text in topics.items()}
