"""Read triples and augmented queries from users' files instead of asking a language model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import file_sha256, fingerprint
from benchmarks.records import Record, read_records
from benchmarks.sources import data_path
from methods.graphs.chunking import Chunk
from methods.graphs.knowledge_graph import (
    DEFAULT_STRENGTH,
    UNKNOWN,
    EntityRecord,
    GraphBuilder,
    KnowledgeGraph,
    Records,
    RelationRecord,
    clean,
    clean_name,
)

SIZES = ("large", "small")
BROKEN = "triple without two ends"
"""Key of the count of triples that were dropped for lack of two different ends."""
MISSING = "passages that the file does not have"


def check_file(named: str, option: str) -> None:
    """Check that the file that an option names exists.

    Raises:
        UserError: The file does not exist.
    """
    if not data_path(named).is_file():
        raise UserError(
            "the file does not exist",
            code="missing-file",
            where=f"{option}: {named}",
            try_this=f"correct {option}; a relative path is relative to the working folder or to RAGMETER_DATA",
        )


class FileTriples:
    """Extractor that reads a document's graph from a file of passages with triples.

    Each line is an object with `text`, `triples` (lists of subject, predicate and object) and optionally `title`. An entity's
    descriptions are the triples that mention it. A passage may have several lines.

    Args:
        path: The file, JSON Lines.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def fingerprint(self) -> str:
        return fingerprint("file", file_sha256(self._path))

    @cached_property
    def _triples(self) -> Mapping[str, Sequence[tuple[str, ...]]]:
        results: dict[str, tuple[tuple[str, ...], ...]] = {}
        for key, triples in read_records(self._path, _passage, skip_bad=False, skipped=[]):
            known = results.get(key, ())
            results[key] = (*known, *(triple for triple in triples if triple not in known))
        return results

    def extract(self, document_id: str, chunks: Sequence[Chunk]) -> KnowledgeGraph:
        """Build the graph of a document's chunks; every chunk's text must occur in the file.

        Raises:
            UserError: The file lacks a chunk's text, or a line cannot be parsed.
        """
        builder, missing = GraphBuilder(), 0
        for chunk in chunks:
            triples = self._triples.get(_key(chunk.text))
            missing += triples is None
            builder.add(chunk.index, records_of(triples or ()))
        if chunks and missing == len(chunks):
            raise UserError(
                f"the file has none of the {len(chunks):,} passages of document {document_id!r}",
                code="triples-match-nothing",
                where=str(self._path),
                try_this="the file of these passages: kg.file",
            )
        if missing:
            builder.count(MISSING, missing)
        return builder.build(document_id)


def records_of(triples: Sequence[Sequence[str]]) -> Records:
    """Convert triples to entity and relation records; triples without two different ends are dropped and counted."""
    entities, relations, lost = list[EntityRecord](), list[RelationRecord](), Counter[str]()
    for triple in triples:
        ends = (clean_name(triple[0]), clean_name(triple[-1])) if len(triple) == 3 else ("", "")
        if not all(ends) or ends[0] == ends[1]:
            lost[BROKEN] += 1
            continue
        text = clean(" ".join(triple))
        entities += [EntityRecord(end, UNKNOWN, text) for end in ends]
        relations.append(RelationRecord(*ends, text, DEFAULT_STRENGTH, triple=(triple[0], triple[1], triple[2])))
    return Records(tuple(entities), tuple(relations), lost)


def _passage(record: Record) -> tuple[str, tuple[tuple[str, ...], ...]]:
    title, text = record.text("title", ""), record.text("text")
    listed = record.field("triples", list)
    triples = [record.expect(item, f"triples[{place}]", list) for place, item in enumerate(listed)]
    words = [
        tuple(record.expect(part, f"triples[{place}][{at}]", str) for at, part in enumerate(item)) for place, item in enumerate(triples)
    ]
    return _key(f"{title} {text}"), tuple(words)


def _key(text: str) -> str:
    return " ".join(text.split())


def recorded_queries(path: Path) -> dict[str, dict[str, tuple[str, ...]]]:
    """Read augmented queries by question id and size (`large`, `small`).

    A line is an object with `id`, `size` and `queries` (a list of texts); other fields are ignored.

    Raises:
        UserError: The file cannot be read, a line lacks a field, or two lines have the same id and size.
    """
    results: dict[str, dict[str, tuple[str, ...]]] = {}
    first: dict[tuple[str, str], str] = {}

    def parse(record: Record) -> None:
        identifier, size = record.nonblank("id"), record.text("size")
        if size not in SIZES:
            raise record.problem(f"field 'size' is {size!r}", "size", "large or small")
        if (other := first.setdefault((identifier, size), record.position)) != record.position:
            raise record.problem(f"{other} has queries of the same question and size", "id", "one line for each question and size")
        queries = record.texts("queries")
        if not all(query.strip() for query in queries):
            raise record.problem("a query is empty", "queries")
        results.setdefault(identifier, {})[size] = queries

    for _ in read_records(path, parse, skip_bad=False, skipped=[]):
        pass
    return results
