"""Turn records of graph QA files into questions with their graphs; RoG's layout, which both datasets have.

A layout turns a record into a `GraphRow`: the question, its graph by names, and what was odd about it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as default
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks.core.errors import UserError
from benchmarks.io.records import cut_off, fields, numbered_lines
from benchmarks.records import BadRecord, Record, bad_record
from benchmarks.schema import Question, Triple


@dataclass(slots=True)
class GraphRow:
    """Question and graph of one record.

    Attributes:
        question: The question without candidates; its metadata is JSON-serializable.
        graph: The record's triples; None if the layout has no graphs.
        counts: Number of peculiarities (keys of `NOTES`).
        record: The record.
    """

    question: Question
    graph: list[Triple] | None
    counts: Counter[str]
    record: Record


Parse = Callable[[Record], GraphRow]


@dataclass(frozen=True, slots=True)
class Layout:
    """A file format of a graph QA dataset.

    Attributes:
        title: Name in messages.
        fields: Fields that distinguish it from the dataset's other layouts; a record has at least one of each group.
        reader: Function from the first file to a parser of its records.
        items: Field with the list of records if the file is one object; "" if each record is an object of its own.
        sizes: Number of questions by split, if different from the card.
        has_graphs: Whether its records contain graphs.
        alongside: Function from a file to further files that parsing needs.
        read: Function from a file that is not JSON to its records.
    """

    title: str
    fields: tuple[frozenset[str], ...]
    reader: Callable[[Path], Parse]
    items: str = ""
    sizes: Mapping[str, int] = default(default_factory=dict)
    has_graphs: bool = False
    alongside: Callable[[Path], Sequence[Path]] = lambda path: ()
    read: Callable[[Path], Iterable[Record | BadRecord]] | None = None

    def fits(self, fields: Mapping[str, Any]) -> bool:
        """Return whether a record with these fields is in this layout."""
        return all(group & fields.keys() for group in self.fields)


def answered(record: Record, name: str) -> tuple[tuple[str, ...], Counter[str]]:
    """Return the answers in an optional field (nulls dropped), and counts of repeated and null answers."""
    listed = record.fields.get(name)
    if not isinstance(listed, list):
        if not record.has(name):
            return (), Counter()
        answers = record.answers(name)
        # G-Retriever's files join the answers with bars.
        return answers if len(answers) != 1 else tuple(answers[0].split("|")), Counter(answers_as_text=1)
    answers = tuple(_name(record, item, f"{name}[{i}]") for i, item in enumerate(listed) if item is not None)
    return answers, Counter(repeated_answers=len(answers) - len(set(answers)), null_answers=len(listed) - len(answers))


def topics_once(names: Collection[str], counts: Counter[str]) -> tuple[str, ...]:
    """Return distinct topic entity names, and count entities that share a name."""
    once = tuple(dict.fromkeys(names))
    counts["repeated_topics"] += len(names) - len(once)
    return once


def rog(record: Record) -> GraphRow:
    """Parse RoG's row: `id, question, answer[], q_entity[], a_entity[], graph[[h, r, t]]`.

    Raises:
        BadRecord: A field is missing or of the wrong type.
    """
    answers, counts = answered(record, "answer")
    topics = _names(record, "q_entity") if record.fields.get("q_entity") is not None else record.field("q_entity", list)
    metadata = {"a_entity": _names(record, "a_entity") if record.has("a_entity") else []}
    question = Question(
        id=record.text("id"),
        text=record.nonblank("question"),
        answers=answers,
        answer_set=True,
        topic_entities=topics_once(topics, counts),
        metadata={name: value for name, value in metadata.items() if value},
    )
    return GraphRow(question, _named_triples(record, "graph"), counts, record)


ROG = Layout("RoG's rows", (frozenset({"q_entity"}), frozenset({"graph"})), lambda path: rog, has_graphs=True)


def _names(record: Record, name: str) -> list[str]:
    """Return the entity names in a field: a list, a list written as text, or one name."""
    value = record.fields[name]
    if isinstance(value, str):
        written = record.written_list(name, value)
        value = [value] if written is None else written
    return [_name(record, item, f"{name}[{i}]") for i, item in enumerate(record.expect(value, name, list))]


def _name(record: Record, value: Any, position: str) -> str:
    """Return a name; numbers are years and the like that another program wrote without quotes."""
    return str(value) if type(value) is int else record.expect(value, position, str)


def _named_triples(record: Record, name: str) -> list[Triple]:
    rows = record.fields.get(name)
    rows = record.written_list(name, rows) if isinstance(rows, str) else rows
    if isinstance(rows, list):
        rows = [_listed_triple(row) for row in rows] if any(type(row) is not list or int in map(type, row) for row in rows) else rows
    rows = record.field(name, list) if rows is None else record.expect(rows, name, list)
    if set(map(type, rows)) <= {list} and set(map(len, rows)) <= {3} and set(map(type, chain(*rows))) <= {str}:
        return [(head, relation, tail) for head, relation, tail in rows]
    wrong = next(i for i, row in enumerate(rows) if not _is_triple(row))
    raise record.problem(f"field '{name}[{wrong}]' is not a triple", f"{name}[{wrong}]", "a list of three strings")


def _listed_triple(row: Any) -> Any:
    """Return a triple given as an object or tuple, or with numbers, as a list of strings; other values are unchanged."""
    if isinstance(row, dict) and len(row) == 3:
        row = next(([row[name] for name in names] for names in _TRIPLE_FIELDS if row.keys() == set(names)), row)
    return [str(part) if type(part) is int else part for part in row] if isinstance(row, list | tuple) else row


_TRIPLE_FIELDS = (("head", "relation", "tail"), ("h", "r", "t"), ("subject", "predicate", "object"), ("subject", "relation", "object"))


def _is_triple(row: Any) -> bool:
    return type(row) is list and len(row) == 3 and all(type(part) is str for part in row)


_COLUMNS = ("head", "relation", "tail")
_HEADER = (
    frozenset(("head", "h", "subject", "subj", "s", "source", "src", "from", "start", "entity_1", "entity1", "e1")),
    frozenset(("relation", "r", "rel", "relationship", "predicate", "pred", "p", "property", "edge", "type")),
    frozenset(("tail", "t", "object", "obj", "o", "target", "tgt", "dst", "to", "end", "entity_2", "entity2", "e2")),
)
"""Names of the columns head, relation and tail, which tools write in different orders."""
_N_TRIPLE = re.compile(rb"(?:<[^<>]*>|_:\S+)\s+<[^<>]*>\s+\S.*\.\s*$")


def holds_triples(path: Path) -> bool:
    """Return whether the first line of a file has three columns separated by tabs.

    Raises:
        UserError: The file is in RDF's N-Triples, whose nodes are addresses instead of names.
    """
    first = next((raw for _, raw in numbered_lines(path) if raw.strip() and not _is_comment(raw)), b"")
    if _N_TRIPLE.match(first):
        raise UserError(
            "this file is in N-Triples, whose nodes are addresses: retrievers read names",
            code="n-triples",
            where=str(path),
            try_this="write head, relation and tail by their names (rdfs:label), separated by tabs, one triple per line",
        )
    return first.count(b"\t") == 2 and not first.startswith((b"{", b"["))


def _is_comment(raw: bytes) -> bool:
    """Return whether a line is a comment; names may begin with this sign, too."""
    return raw.startswith(b"#") and b"\t" not in raw


def _order(row: Sequence[str]) -> list[int] | None:
    """Return the columns of head, relation and tail that a header names; None for a triple."""
    words = [re.sub(r"_?(id|label|name|entity)$", "", re.sub(r"[\W_]+", "_", part.lower()).strip("_")) for part in row]
    columns = [next((at for at, word in enumerate(words) if word in names), None) for names in _HEADER]
    return None if None in columns else [at for at in columns if at is not None]


def _triple_records(path: Path) -> Iterator[Record | BadRecord]:
    """Yield the triples of a table without questions as one of RoG's rows, after errors for its bad lines.

    Raises:
        UserError: The table has numbers instead of names.
    """
    triples: list[list[str]] = []
    order: list[int] | None = None
    for number, raw in numbered_lines(path):
        if not raw.strip() or (not triples and _is_comment(raw)):
            continue
        try:
            triple = fields(raw, _COLUMNS)
            if not all(part.strip() for part in triple):
                raise ValueError("a column is empty")
        except ValueError as error:
            yield bad_record(f"{error}{cut_off(raw)}", path, f"line {number}")
            continue
        if not triples and order is None and (order := _order(triple)) is not None:
            continue
        triples.append(triple if order is None else [triple[at] for at in order])
    if triples and all(part.strip().isdecimal() for triple in triples for part in triple):
        raise UserError(
            "this table numbers its entities and relations: retrievers read names",
            code="numbered-triples",
            where=str(path),
            try_this="replace each number by its name, as in the data set's list of entities and list of relations",
        )
    if triples:
        row = {"id": "graph", "question": "none", "answer": [], "q_entity": [], "graph": triples}
        yield Record(row, path, f"{len(triples):,} triples")


TRIPLES = Layout("a table of triples", (), lambda path: rog, sizes={"train": 1, "validation": 1}, has_graphs=True, read=_triple_records)
"""Lines `head TAB relation TAB tail` without questions, as knowledge graphs are published; their header is optional."""

HUB_FILES = {f":{split}": (f"data/{split}-*.parquet",) for split in ("train", "validation", "test")}
"""Patterns of RoG's files on the hub, by split."""


def rog_files(name: str) -> dict[str, tuple[str, ...]]:
    """Return the file patterns of RoG's rows for a dataset, by split."""
    short = {"train": "train", "validation": "val", "test": "test"}
    files = {split: (f"{split}-*.parquet", f"RoG-{name}_{split}.jsonl", f"rog*{name}*{part}*.jsonl") for split, part in short.items()}
    return {f":{split}": (*names, f"rog_style_{name}.jsonl") if split == "test" else names for split, names in files.items()}


def nested_records(record: Record, name: str) -> Iterator[Record]:
    """Yield the objects in a record's list field; none if the field is absent."""
    for i, item in enumerate(record.field(name, list, [])):
        yield Record(record.expect(item, f"{name}[{i}]", dict), record.path, f"{record.position}, {name}[{i}]")


def topics_by_id(record: Record, name: str) -> dict[str, str]:
    """Return ToG's topic entities, an object from id to name; empty if absent.

    Raises:
        BadRecord: The field has another form.
    """
    topics = record.field(name, dict, {})
    return {identifier: record.expect(text, f"{name}.{identifier}", str) for identifier, text in topics.items()}
