"""Read NSM's layout of graph QA files, whose numbers refer to lines of vocabulary files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks.core.errors import UserError
from benchmarks.datasets.graph_layouts import GraphRow, Layout, Parse, topics_once
from benchmarks.io.files import archive_of, open_bytes
from benchmarks.records import Record
from benchmarks.schema import Question, Triple

NSM_FILES = {
    f":{split}": (f"nsm/{stem}_simple.json", f"nsm/{stem}.json", f"{stem}_simple.json", f"{stem}.json")
    for split, stem in (("train", "train"), ("validation", "dev"), ("test", "test"))
}
"""Patterns of NSM's files, by split."""
ENTITIES, RELATIONS = "entities.txt", "relations.txt"
NAMES = ("entity_name.txt", "entities_names.json")
"""Files of entity names: lines `id TAB name` (`None` for no name), or one JSON object from id to name."""


@dataclass(frozen=True)
class Vocabulary:
    """Entities and relations to which the numbers in NSM's files refer.

    Attributes:
        entities: Entity ids by number.
        relations: Relation names by number.
        names: Entity name by id; an entity without a name is shown by its id.
        files: Source files, first those of entities and relations.
    """

    entities: Sequence[str]
    relations: Sequence[str]
    names: Mapping[str, str]
    files: tuple[Path, ...]

    @classmethod
    def alongside(cls, path: Path) -> Vocabulary:
        """Load the vocabularies in a file's folder or its parent folder.

        Raises:
            UserError: A vocabulary is missing or cannot be read.
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
    def names_shown(self) -> list[str]:
        """Return every entity's name, or its id if it has none, by number."""
        return [self.names.get(identifier, identifier) for identifier in self.entities]

    @cached_property
    def homonyms(self) -> int:
        """Return the number of entities whose name an earlier entity already has."""
        return len(self.names) - len(set(self.names.values()))

    def entity(self, record: Record, value: Any, name: str) -> str:
        """Return the name of an entity given by number, by id, or as `{kb_id, text}`.

        Raises:
            BadRecord: The number is unknown, or the value has another form.
        """
        identifier = _text(record, value, name, "kb_id", self.entities, self.files[0])
        return self.names.get(identifier, identifier)

    def relation(self, record: Record, value: Any, name: str) -> str:
        """Return the name of a relation given by number, by name, or as `{rel_id, text}`.

        Raises:
            BadRecord: The number is unknown, or the value has another form.
        """
        return _text(record, value, name, "rel_id", self.relations, Path(RELATIONS))


def _text(record: Record, value: Any, name: str, key: str, lines: Sequence[str], file: Path) -> str:
    """Return a text that a field has, or that the line has whose number it is; objects have either under a key, or under `text`."""
    if isinstance(value, dict):
        value = value.get(key, value.get("text"))
    if type(value) is not int:
        return record.expect(value, name, str)
    if 0 <= value < len(lines):
        return lines[value]
    raise record.problem(f"field {name!r} is {value}, and {file.name} has {len(lines)} lines", name)


def vocabulary_files(path: Path) -> tuple[Path, ...]:
    """Find NSM's vocabulary files in a file's folder or its parent folder.

    Raises:
        UserError: relations.txt is missing, or both entities.txt and entity_name.txt are.
    """
    archive = archive_of(path)
    folder = path.parent if archive is None else archive[0].parent
    results: list[Path] = []
    for name in (ENTITIES, *NAMES, RELATIONS):
        positions = (folder / name, folder.parent / name)
        results.extend([position for position in positions if position.is_file()][:1])
    names = {file.name for file in results}
    lacking = RELATIONS if RELATIONS not in names else "" if {ENTITIES, NAMES[0]} & names else ENTITIES
    if lacking:
        raise UserError(
            f"the numbers in this file refer to lines of {lacking}, which does not exist",
            code="missing-line-file",
            where=str(folder),
            try_this=f"put {lacking} next to {path.name}; it is part of the data",
        )
    return tuple(results)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield numbered lines, split only at line feeds."""
    with open_bytes(path) as source:
        for number, raw in enumerate(source, 1):
            try:
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                byte = raw[error.start]
                raise UserError(f"byte 0x{byte:02x} is not UTF-8", code="not-utf8", where=f"{path}, line {number}") from error
            yield number, text.rstrip("\r\n")


def _names(path: Path) -> dict[str, str]:
    """Read a mapping from id to name in file order; "" for entities without a name."""
    if path.suffix == ".json":
        with open_bytes(path) as source:
            try:
                listed = json.loads(source.read().decode("utf-8-sig"))
            except ValueError as error:
                raise UserError(f"this is not JSON: {error}", code="not-json", where=str(path)) from error
        if not isinstance(listed, dict):
            raise UserError("this must be one object, from entity id to name", code="not-entity-names", where=str(path))
        return {str(key): name if isinstance(name, str) else "" for key, name in listed.items()}
    names: dict[str, str] = {}
    for number, line in _lines(path):
        identifier, tab, name = line.partition("\t")
        if not tab or identifier in names:
            what = "this entity is listed twice" if tab else "there is no tab between an entity and its name"
            raise UserError(what, code="bad-names", where=f"{path}, line {number}", try_this="a line is: id, tab, name")
        names[identifier] = "" if name == "None" else name
    return names


def nsm(path: Path) -> Parse:
    """Return a parser for NSM's records: `id, question, entities, answers[{kb_id, text}], subgraph{tuples, entities}`."""
    vocabulary = Vocabulary.alongside(path)
    once = Counter(entities_sharing_a_name=vocabulary.homonyms)

    def parse(record: Record) -> GraphRow:
        names: list[str] = []
        ids: list[str] = []
        for i, item in enumerate(record.field("answers", list, [])):
            answer = record.expect(item, f"answers[{i}]", dict)
            # In some files the id is in `text`, and `kb_id` is a number of a graph's own.
            identifier = answer.get("kb_id") if isinstance(answer.get("kb_id"), str) else answer.get("text")
            ids.append(record.expect(identifier, f"answers[{i}].kb_id", str))
            names.append(answer.get("text") or vocabulary.names.get(ids[-1], ids[-1]))
        options = record.field("entities", list)
        topics = [vocabulary.entity(record, entity, f"entities[{i}]") for i, entity in enumerate(options)]
        counts = once + Counter(repeated_answers=len(names) - len(set(names)))
        once.clear()
        question = Question(
            id=record.text("id"),
            text=record.nonblank("question"),
            answers=tuple(names),
            answer_set=True,
            topic_entities=topics_once(topics, counts),
            metadata={"answer_ids": ids},
        )
        return GraphRow(question, _numbered_triples(record, vocabulary), counts, record)

    return parse


NSM = Layout("NSM's JSON Lines", (frozenset({"subgraph"}),), nsm, has_graphs=True, alongside=vocabulary_files)


def _numbered_triples(record: Record, vocabulary: Vocabulary) -> list[Triple]:
    subgraph = Record(record.field("subgraph", dict), record.path, f"{record.position}, subgraph")
    rows = subgraph.field("tuples", list)
    if any(type(row) is not list or len(row) != 3 for row in rows):
        wrong = next(i for i, row in enumerate(rows) if type(row) is not list or len(row) != 3)
        raise subgraph.problem(f"field 'tuples[{wrong}]' is not a triple", f"tuples[{wrong}]", "a list of three")
    shown, relations = vocabulary.names_shown, vocabulary.relations
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
