"""Load graph QA datasets (WebQSP, CWQ): records with one graph each, converted once into memory-mapped files.

A file with graphs is parsed once: graphs (`graphs.GraphWriter`) and questions go into a cache folder named by the source's
hash. Later loads only read the questions.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from benchmarks.core.errors import Broke, UserError, unknown_name
from benchmarks.core.files import CACHE_VARIABLE, cache_home
from benchmarks.core.fingerprint import file_sha256, fingerprint
from benchmarks.core.random import Draws
from benchmarks.corpus import Corpus
from benchmarks.datasets import QuestionIds, count_notes, listed_ids
from benchmarks.datasets.graph_layouts import TRIPLES, GraphRow, Layout, holds_triples
from benchmarks.graphs import Graphs, GraphWriter, TripleCorpus, made_once, shortest_paths
from benchmarks.io.files import archive_of, open_bytes
from benchmarks.io.records import is_parquet
from benchmarks.records import BadRecord, Record, read_records, records, refuse_other_dataset
from benchmarks.registry import Benchmark, DataReference, DatasetCard, DatasetConfig, SkippedRecord
from benchmarks.schema import Question, triple_id
from benchmarks.sources import find_files

METRICS = ("rog_f1", "rog_hit", "rog_accuracy", "rog_precision", "rog_recall", "strict_f1", "strict_precision", "strict_recall")
SETTINGS = ("graph(scope=question)", "graph(scope=split)", "corpus", "closed_book")

NOTES = {
    "questions_without_gold": "{n} questions have no gold answer in the file and cannot be scored",
    "questions_without_parses": "{n} questions have no parse, hence no answer",
    "questions_without_good_parse": "{n} questions have no parse marked good and complete; the official "
    "script omits them, ragmeter scores them (metadata: good_parse)",
    "questions_without_topic": "{n} questions name no topic entity",
    "repeated_topics": "{n} topic entities have the name of another one of their question; each counts once",
    "repeated_answers": "{n} answers are repeated; RoG's evaluator counts each, all other metrics count one",
    "answers_as_text": "{n} questions have a string instead of a list of answers",
    "null_answers": "{n} answers are null in the file; they are left out",
    "unnamed_answers": "{n} answers have no name in the file: their id is the answer",
    "empty_graphs": "{n} questions have an empty graph",
    "duplicate_triples": "{n} triples occur twice in one graph; each counts once",
    "questions_with_topics_outside": "{n} questions have a topic entity that is not in their graph",
    "answers_outside": "{n} answers are not in their question's graph; they stay in the gold",
    "questions_with_answers_outside": "{n} questions have an answer that is not in their graph",
    "questions_with_no_answer_inside": "{n} questions have answers, and none of them is in their graph",
    "questions_without_path": "{n} questions have answers, and no path leads from a topic entity to one: no triple is their evidence",
    "entities_sharing_a_name": "{n} entities of the vocabulary have the name of another one; in graphs by name, as "
    "RoG has them too, they are one",
}
"""Note per count in `Benchmark.extra["counts"]`, shown in `Benchmark.extra["notes"]`."""

WITHOUT_GRAPHS = ("closed_book",)
"""Settings that are possible if a layout has no graphs."""

_TRIPLES = "triples"
_VERSION = 5
_QUESTIONS, _CARD = "questions.jsonl", "card.json"


class GraphConfig(DatasetConfig):
    """Options of graph QA datasets."""

    layout: str | None = Field(None, description="layout of the file: rog, official, nsm or tog; null: detected from its content")
    ids: str | None = Field(
        None,
        description="read only these questions and their graphs: a file with one id per line or a JSON list; FILE#KEY takes the list "
        "under a key of a JSON object",
    )

    hops: int | None = Field(
        None,
        ge=1,
        description="read only questions whose nearest answer is this many triples away from a topic entity; the graphs of all "
        "questions stay in the corpus",
    )

    @property
    def variant(self) -> str:
        """Describe which subset of the questions is used; "" for all."""
        ids = None if self.ids is None else self.ids.rpartition("#")[2] if "#" in self.ids else Path(self.ids).stem
        return ",".join(f"{name}={value}" for name, value in (("ids", ids), ("hops", self.hops)) if value is not None)


@dataclass(frozen=True, slots=True)
class Source:
    """File formats and locations of a graph QA dataset.

    Attributes:
        name: The dataset's name in references.
        folders: Accepted names of its folder.
        layouts: Layouts by name, the most common one in papers first.
        files: File name patterns by layout and `:split`.
        hub: File patterns on the hub by `:split`, in RoG's layout.
        refuse: Function that raises `UserError` if a record's id belongs to another dataset or split.
    """

    name: str
    folders: tuple[str, ...]
    layouts: Mapping[str, Layout]
    files: Mapping[str, Mapping[str, Sequence[str]]]
    hub: Mapping[str, Sequence[str]]
    refuse: Callable[[Question, str, str], None]


def assemble(reference: DataReference, version: int, card: DatasetCard, config: GraphConfig, source: Source) -> Benchmark:
    """Load a split of a graph QA dataset: find its files, detect their layout, and combine questions and graphs.

    `Question.candidates` are the ids of the question's triples, as a view (`graphs.TripleIds`), and `Question.evidence` those
    on shortest paths between a topic entity and an answer (`graphs.shortest_paths`); `Question.type` is the length of these
    paths (`2hop`) unless the record names a type. The corpus holds every triple of the split (`graphs.TripleCorpus`), and
    `extra["graphs"]` the graphs by question id (`graphs.Graphs`). Layouts without graphs give only questions. `extra["layout"]`
    names the layout.

    Raises:
        UserError: A file is missing, is not what was asked for, or cannot be read.
    """
    paths = _files(reference, card, config, source)
    name = _layout(config, paths[0], source, reference.split)
    layout = TRIPLES if name == _TRIPLES else source.layouts[name]
    skipped: list[SkippedRecord] = []
    counts: Counter[str] = Counter()
    graphs: Graphs | None = None
    corpus = Corpus.of(())
    reader = _Reader(reference, config, source, layout, skipped)
    if layout.has_graphs:
        questions, graphs, corpus = _compiled(reader, paths, (source.name, version, name), counts)
    else:
        questions = [query.question for query in _counted(reader.read(paths), counts)]
    if config.hops is not None:
        questions = _so_far(questions, config.hops, layout, graphs)
    counts["questions_without_gold"] = sum(not question.answers for question in questions)
    counts["questions_without_topic"] = sum(not question.topic_entities for question in questions)
    expected = layout.sizes.get(reference.split or "", card.splits[reference.split or ""])
    notes = []
    if expected is not None and len(questions) != expected and not config.variant:
        notes.append(f"{len(questions):,} questions were read; in {layout.title} the split has {expected:,}")
    extra: dict[str, Any] = {**count_notes(counts, NOTES, *notes), "layout": name, "expected": expected}
    if config.variant:
        extra["variant"] = config.variant
    if graphs is not None:
        extra["graphs"] = graphs
    else:
        card = card.model_copy(update={"settings": WITHOUT_GRAPHS})
    return Benchmark(reference, version, card, questions, corpus, tuple(skipped), extra)


def _so_far(questions: Sequence[Question], hops: int, layout: Layout, graphs: Graphs | None) -> list[Question]:
    """Return the questions whose answer is `hops` triples away.

    Raises:
        UserError: The layout has no graphs, or the question does not exist.
    """
    where = f"hops: {hops}"
    if graphs is None:
        raise UserError(
            f"{layout.title} has no graphs, so hops are unknown", code="hops-without-graphs", where=where, try_this="layout: rog or nsm"
        )
    kind = f"{hops}hop"
    results = [question for question in questions if question.type == kind]
    if not results:
        known = ", ".join(sorted({question.type for question in questions} - {""})) or "none has a path to an answer"
        raise UserError(f"no question is of the kind {kind}", code="no-such-hops", where=where, try_this=f"kinds of the questions: {known}")
    return results


def _files(reference: DataReference, card: DatasetCard, config: GraphConfig, source: Source) -> tuple[Path, ...]:
    if config.layout is not None and config.layout not in source.layouts:
        raise unknown_name(f"layout of {source.name}", config.layout, source.layouts, where="layout")
    wanted = [config.layout] if config.layout is not None else list(source.layouts)
    splits = [f":{split}" for split in card.splits]
    patterns = {key: [name for layout in wanted for name in source.files[layout].get(key, ())] for key in splits}
    hub = source.hub if "rog" in wanted else {}
    return find_files(reference, config, card=card, folders=source.folders, patterns=patterns, hub=hub)


def _layout(config: GraphConfig, path: Path, source: Source, split: str | None) -> str:
    """Detect a file's layout from the fields of its first readable record."""
    if config.layout is not None:
        return config.layout
    if not is_parquet(path) and holds_triples(path):
        if split == "test":
            raise UserError(
                "this file has triples and no questions: it serves to pretrain retrievers",
                code="triples-without-questions",
                where=str(path),
                try_this=f"--graph {source.name}:train; to evaluate, write one JSON object per question, see docs/methods/gpr.md",
            )
        return _TRIPLES
    first: BadRecord | None = None
    for record in records(path, whole=_is_one_object(path)):
        if isinstance(record, BadRecord):
            first = first or record
            continue
        for name, layout in source.layouts.items():
            if layout.fits(record.fields):
                return name
        refuse_other_dataset(record, source.name)
        raise UserError(
            f"the fields of this record fit no known layout of {source.name}: {', '.join(list(record.fields)[:8])}",
            code="unknown-record-layout",
            where=record.where,
            try_this=f"set layout to one of {', '.join(source.layouts)} to see what is missing",
        )
    raise first or UserError("the file has no records", code="no-record-in-file", where=str(path))


def _is_one_object(path: Path) -> bool:
    """Return whether a file is a single JSON object, like the official WebQSP file."""
    with open_bytes(path) as file:
        return b'"Questions"' in file.read(4096)


class _Reader:
    """Reader of files in one layout."""

    def __init__(self, reference: DataReference, config: GraphConfig, source: Source, layout: Layout, skipped: list[SkippedRecord]) -> None:
        self.split = reference.split or ""
        self._ids = config.ids
        self.only = None if config.ids is None else listed_ids(config.ids)
        self.skip_bad = config.skip_bad
        self.layout = layout
        self.skipped = skipped
        self._source = source

    def read(self, paths: Sequence[Path]) -> Iterator[GraphRow]:
        """Yield the questions and graphs of the records, in order.

        Raises:
            UserError: A record is bad and `skip_bad` is off, belongs to another dataset or split, or repeats an id.
        """
        parse = self.layout.reader(paths[0])
        whole = bool(self.layout.items)
        ids = QuestionIds(paths)
        each = read_records(
            paths,
            lambda record: self._each(record, parse),
            skip_bad=self.skip_bad,
            skipped=self.skipped,
            whole=whole,
            read=self.layout.read,
        )
        for query in (query for several in each for query in several):
            ids.add(query.question.id, query.record)
            if self.only is None or query.question.id in self.only:
                yield query
        if missing := [name for name in self.only or () if name not in ids]:
            raise UserError(
                f"{len(missing):,} of {len(self.only or ()):,} ids are not in the data, the first is {missing[0]!r}",
                code="ids-not-in-data",
                where=f"ids: {self._ids}",
                try_this=f"a file of ids of {paths[0]}",
            )
        if not ids:
            raise UserError("the file has no readable questions", code="no-question-in-file", where=str(paths[0]))

    def _each(self, record: Record, parse: Callable[[Record], GraphRow]) -> list[GraphRow]:
        """Return the rows in a record: one question, or all questions if the record is the whole file."""
        if not self.layout.fits(record.fields):
            refuse_other_dataset(record, self._source.name)
        if not self.layout.items:
            return [self._one(record, parse)]
        results = []
        for i, item in enumerate(record.field(self.layout.items, list)):
            name = f"{self.layout.items}[{i}]"
            try:
                fields = record.expect(item, name, dict)
                results.append(self._one(Record(fields, record.path, f"{record.position}, {name}"), parse))
            except BadRecord as error:
                if not self.skip_bad:
                    raise
                self.skipped.append(SkippedRecord(error.where or record.where, error.what))
        return results

    def _one(self, record: Record, parse: Callable[[Record], GraphRow]) -> GraphRow:
        query = parse(record)
        self._source.refuse(query.question, self.split, record.where)
        return query


def _counted(read: Iterable[GraphRow], counts: Counter[str]) -> Iterator[GraphRow]:
    for query in read:
        counts.update(query.counts)
        yield query


def cache_folder() -> Path:
    """Return the cache folder of converted question graphs: `graphs` in RAGMETER_CACHE or ~/.cache/ragmeter."""
    return cache_home() / "graphs"


def _compiled(
    reader: _Reader, paths: Sequence[Path], identity: tuple[str, int, str], counts: Counter[str]
) -> tuple[list[Question], Graphs, TripleCorpus]:
    """Load questions and graphs from the cache; convert the files first if needed."""
    hashes = [file_sha256(archive_of(path)[0] if archive_of(path) else path) for path in paths]  # type: ignore[index]
    companion_hashes = [file_sha256(path) for path in reader.layout.alongside(paths[0])]
    members = [str(archive_of(path)[1]) if archive_of(path) else "" for path in paths]  # type: ignore[index]
    chosen = [] if reader.only is None else [sorted(reader.only)]
    key = fingerprint(_VERSION, identity, reader.split, reader.skip_bad, hashes, members, companion_hashes, *chosen)
    folder = cache_folder() / f"{identity[0]}-{reader.split}-{key}"
    _compile(reader, paths, folder)
    card = json.loads((folder / _CARD).read_text("utf-8"))
    counts.update(card["counts"])
    reader.skipped[:] = [SkippedRecord(*entry) for entry in card["skipped"]]
    with open(folder / _QUESTIONS, encoding="utf-8", newline="\n") as lines:
        rows = [json.loads(line) for line in lines]
    corpus = TripleCorpus.mapped(folder)
    graphs = Graphs.open(folder, corpus.triples, [row["id"] for row in rows])
    return [_question(row, graphs) for row in rows], graphs, corpus


def _compile(reader: _Reader, paths: Sequence[Path], folder: Path) -> None:
    """Convert files into a cache folder, unless it exists."""
    try:
        with made_once(folder) as position:
            if position is not None:
                _fill(position, reader.read(paths), reader.skipped)
    except OSError as error:
        raise Broke(
            f"the graphs of {paths[0].name} cannot be kept: {error.strerror or error}",
            code="unwritable-graphs",
            where=str(folder.parent),
            try_this=f"make room there, or set {CACHE_VARIABLE} to another folder",
        ) from error


def _fill(position: Path, read: Iterable[GraphRow], skipped: Sequence[SkippedRecord]) -> None:
    counts: Counter[str] = Counter()
    with GraphWriter(position) as writer, open(position / _QUESTIONS, "w", encoding="utf-8", newline="\n") as kept:
        for query in _counted(read, counts):
            graph = list(dict.fromkeys(query.graph or ()))
            # In a record the triples on the way to the answer may stand first, and ties go by position.
            Draws("graph", query.question.id).shuffle(graph)
            counts.update(_met(query, graph))
            writer.add(graph)
            paths = shortest_paths(graph, query.question.topic_entities, query.question.wanted)
            counts["questions_without_path"] += bool(query.question.answers) and not paths.hops
            kind = query.question.type or (f"{paths.hops}hop" if paths.hops else "")
            row = {**_row(query.question), "type": kind, "evidence": [triple_id(triple) for triple in paths.triples]}
            kept.write(json.dumps(row, ensure_ascii=False) + "\n")
    left_out = [[skip.where, skip.reason] for skip in skipped]
    (position / _CARD).write_text(json.dumps({"counts": dict(counts), "skipped": left_out}), "utf-8")


def _met(query: GraphRow, graph: Sequence[tuple[str, str, str]]) -> dict[str, int]:
    """Count peculiarities of a question's graph (keys of `NOTES`)."""
    nodes = {head for head, _, _ in graph} | {tail for _, _, tail in graph}
    answers = query.question.wanted
    outside = sum(answer not in nodes for answer in answers)
    return {
        "empty_graphs": int(not graph),
        "duplicate_triples": len(query.graph or ()) - len(graph),
        "questions_with_topics_outside": int(not nodes.issuperset(query.question.topic_entities)),
        "answers_outside": outside,
        "questions_with_answers_outside": int(outside > 0),
        "questions_with_no_answer_inside": int(0 < len(answers) == outside),
    }


def _row(question: Question) -> dict[str, Any]:
    return {
        "id": question.id,
        "text": question.text,
        "answers": question.answers,
        "topics": question.topic_entities,
        "metadata": question.metadata,
    }


def _question(row: Mapping[str, Any], graphs: Graphs) -> Question:
    return Question(
        id=row["id"],
        text=row["text"],
        answers=tuple(row["answers"]),
        answer_set=True,
        type=row["type"],
        evidence=tuple(row["evidence"]),
        candidates=graphs[row["id"]].ids,
        topic_entities=tuple(row["topics"]),
        metadata=row["metadata"],
    )
