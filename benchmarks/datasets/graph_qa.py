"""What WebQSP and CWQ share: records with a graph each, made into files that are mapped into memory, once.

A layout with graphs is read a single time: its graphs go to `graphs.GraphWriter`, its questions beside them, into a
folder of the cache that is named by the hash of the source. From then on a load reads questions alone.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from benchmarks.corpus import Corpus
from benchmarks.datasets.assembling import QuestionIds, said
from benchmarks.datasets.graph_layouts import Asked, Layout
from benchmarks.errors import Broke, UserError, unknown_name
from benchmarks.fingerprint import file_sha256, fingerprint
from benchmarks.graph_writer import GraphWriter, made_once
from benchmarks.graphs import Graphs, TripleCorpus
from benchmarks.open_file import archive_of, open_bytes
from benchmarks.registry import Benchmark, DataReference, DatasetCard, DatasetConfig, SkippedRecord
from benchmarks.schema import Question
from benchmarks.sources import BadRecord, Record, find_files, read_records, records, refuse_other_dataset

CACHE_VARIABLE = "RAGMETER_CACHE"
"""Environment variable: the folder for what is made of data once and read again; ~/.cache/ragmeter without it."""

NOTES = {
    "questions_without_gold": "{n} questions have no gold answer in the file and cannot be scored",
    "questions_without_parses": "{n} questions have no parse, hence no answer",
    "questions_without_good_parse": "{n} questions have no parse that the authors call good and complete; their own "
    "script leaves them out, here they are scored (metadata good_parse tells them apart)",
    "questions_without_topic": "{n} questions name no topic entity",
    "repeated_topics": "{n} topic entities have the name of another one of their question; each counts once",
    "repeated_answers": "{n} answers stand twice at their question; each counts once",
    "null_answers": "{n} answers are null in the file; they are left out",
    "unnamed_answers": "{n} answers have no name in the file: their id is the answer",
    "empty_graphs": "{n} questions have an empty graph",
    "duplicate_triples": "{n} triples stand twice in one graph; each counts once",
    "questions_with_topics_outside": "{n} questions have a topic entity that is not in their graph",
    "answers_outside": "{n} answers are not in their question's graph; they stay in the gold",
    "questions_with_answers_outside": "{n} questions have an answer that is not in their graph",
    "questions_with_no_answer_inside": "{n} questions have answers, and none of them is in their graph",
    "entities_sharing_a_name": "{n} entities of the vocabulary have the name of another one; in graphs by name, as "
    "RoG has them too, they are one",
}
"""What each count of `Benchmark.extra["counts"]` means, as it is said in `Benchmark.extra["notes"]`."""

WITHOUT_GRAPHS = ("closed_book",)
"""The settings that are left where a layout has no graphs."""

_VERSION = 1
_QUESTIONS, _CARD = "questions.jsonl", "card.json"


class GraphConfig(DatasetConfig):
    """Options of the loaders of graph QA."""

    layout: str | None = Field(None, description="how the file is written: rog, official, nsm or tog; told from its content when absent")


@dataclass(frozen=True, slots=True)
class Source:
    """What a dataset says of its files.

    Attributes:
        name: Its name in references.
        folders: Names that its folder may have.
        layouts: Its layouts by name, the one that papers use first.
        files: By layout, file name patterns by `:split`.
        hub: Names in the hub's repository by `:split`; they are in RoG's layout.
        refuse: Raises `UserError` for a record of another dataset or split, told by its id.
    """

    name: str
    folders: tuple[str, ...]
    layouts: Mapping[str, Layout]
    files: Mapping[str, Mapping[str, Sequence[str]]]
    hub: Mapping[str, Sequence[str]]
    refuse: Callable[[Question, str, str], None]


def assemble(reference: DataReference, version: int, card: DatasetCard, config: GraphConfig, source: Source) -> Benchmark:
    """Find a split's files, read them in their layout, and bring questions and graphs together.

    `Question.candidates` are the ids of the question's triples, as a view (`graphs.TripleIds`); the corpus holds
    every triple of the split (`graphs.TripleCorpus`), and `extra["graphs"]` the graphs by question id
    (`graphs.Graphs`). Layouts without graphs give questions alone. `extra["layout"]` names the layout.

    Raises:
        UserError: A file is missing, is not what was asked for, or cannot be read.
    """
    paths = _files(reference, card, config, source)
    name = _layout(config, paths[0], source)
    layout = source.layouts[name]
    skipped: list[SkippedRecord] = []
    counts: Counter[str] = Counter()
    graphs: Graphs | None = None
    corpus = Corpus.of(())
    reader = _Reader(reference, config, source, layout, skipped)
    if layout.has_graphs:
        questions, graphs, corpus = _compiled(reader, paths, (source.name, version, name), counts)
    else:
        questions = [asked.question for asked in _counted(reader.read(paths), counts)]
    counts["questions_without_gold"] = sum(not question.answers for question in questions)
    counts["questions_without_topic"] = sum(not question.topic_entities for question in questions)
    expected = layout.sizes.get(reference.split or "", card.splits[reference.split or ""])
    notes = []
    if expected is not None and len(questions) != expected:
        notes.append(f"{len(questions):,} questions were read; in {layout.title} the split has {expected:,}")
    extra: dict[str, Any] = {**said(counts, NOTES, *notes), "layout": name, "expected": expected}
    if graphs is not None:
        extra["graphs"] = graphs
    else:
        card = card.model_copy(update={"settings": WITHOUT_GRAPHS})
    return Benchmark(reference, version, card, questions, corpus, tuple(skipped), extra)


def _files(reference: DataReference, card: DatasetCard, config: GraphConfig, source: Source) -> tuple[Path, ...]:
    if config.layout is not None and config.layout not in source.layouts:
        raise unknown_name(f"layout of {source.name}", config.layout, source.layouts, where="layout")
    wanted = [config.layout] if config.layout is not None else list(source.layouts)
    splits = [f":{split}" for split in card.splits]
    patterns = {key: [name for layout in wanted for name in source.files[layout].get(key, ())] for key in splits}
    hub = source.hub if "rog" in wanted else {}
    return find_files(reference, config, card=card, folders=source.folders, patterns=patterns, hub=hub)


def _layout(config: GraphConfig, path: Path, source: Source) -> str:
    """The layout of a file, by the fields of the first record that can be read."""
    if config.layout is not None:
        return config.layout
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
            f"by its fields this is in no layout of {source.name} that is known: {', '.join(list(record.fields)[:8])}",
            where=record.where,
            try_this=f"set layout to one of {', '.join(source.layouts)} to see what is missing",
        )
    raise first or UserError("the file holds no record", where=str(path))


def _is_one_object(path: Path) -> bool:
    """Whether a file is a single object over several lines, as the official WebQSP is."""
    with open_bytes(path) as file:
        return b'"Questions"' in file.read(4096)


class _Reader:
    """Reads the records of files in a layout."""

    def __init__(self, reference: DataReference, config: GraphConfig, source: Source, layout: Layout, skipped: list[SkippedRecord]) -> None:
        self.split = reference.split or ""
        self.skip_bad = config.skip_bad
        self.layout = layout
        self.skipped = skipped
        self._source = source

    def read(self, paths: Sequence[Path]) -> Iterator[Asked]:
        """What the records yield, in order.

        Raises:
            UserError: A record is bad and `skip_bad` is off, is of another dataset or split, or has an id again.
        """
        parse = self.layout.reader(paths[0])
        whole = bool(self.layout.items)
        ids = QuestionIds(paths)
        each = read_records(paths, lambda record: self._each(record, parse), skip_bad=self.skip_bad, skipped=self.skipped, whole=whole)
        for asked in (asked for several in each for asked in several):
            ids.add(asked.question.id, asked.record)
            yield asked
        if not ids:
            raise UserError("the file holds no question that can be read", where=str(paths[0]))

    def _each(self, record: Record, parse: Callable[[Record], Asked]) -> list[Asked]:
        """What a record yields: one question, or where it is the whole file all of them."""
        if not self.layout.fits(record.fields):
            refuse_other_dataset(record, self._source.name)
        if not self.layout.items:
            return [self._one(record, parse)]
        found = []
        for i, item in enumerate(record.field(self.layout.items, list)):
            name = f"{self.layout.items}[{i}]"
            try:
                fields = record.expect(item, name, dict)
                found.append(self._one(Record(fields, record.path, f"{record.place}, {name}"), parse))
            except BadRecord as error:
                if not self.skip_bad:
                    raise
                self.skipped.append(SkippedRecord(error.where or record.where, error.what))
        return found

    def _one(self, record: Record, parse: Callable[[Record], Asked]) -> Asked:
        asked = parse(record)
        self._source.refuse(asked.question, self.split, record.where)
        return asked


def _counted(read: Iterable[Asked], counts: Counter[str]) -> Iterator[Asked]:
    for asked in read:
        counts.update(asked.counts)
        yield asked


# --- made once -----------------------------------------------------------------------------------------------


def cache_folder() -> Path:
    """Where question graphs are kept: the folder `graphs` of RAGMETER_CACHE, or of ~/.cache/ragmeter."""
    named = os.environ.get(CACHE_VARIABLE)
    base = Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "ragmeter"
    return base.expanduser() / "graphs"


def _compiled(
    reader: _Reader, paths: Sequence[Path], identity: tuple[str, int, str], counts: Counter[str]
) -> tuple[list[Question], Graphs, TripleCorpus]:
    """Questions and graphs of files, from the cache or read into it."""
    hashes = [file_sha256(archive_of(path)[0] if archive_of(path) else path) for path in paths]  # type: ignore[index]
    beside = [file_sha256(path) for path in reader.layout.beside(paths[0])]
    members = [str(archive_of(path)[1]) if archive_of(path) else "" for path in paths]  # type: ignore[index]
    key = fingerprint(_VERSION, identity, reader.split, reader.skip_bad, hashes, members, beside)
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
    """Read files into a folder of the cache, unless it is there."""
    try:
        with made_once(folder) as place:
            if place is not None:
                _fill(place, reader.read(paths), reader.skipped)
    except OSError as error:
        raise Broke(
            f"the graphs of {paths[0].name} cannot be kept: {error.strerror or error}",
            where=str(folder.parent),
            try_this=f"make room there, or set {CACHE_VARIABLE} to another folder",
        ) from error


def _fill(place: Path, read: Iterable[Asked], skipped: Sequence[SkippedRecord]) -> None:
    counts: Counter[str] = Counter()
    with GraphWriter(place) as writer, open(place / _QUESTIONS, "w", encoding="utf-8", newline="\n") as kept:
        for asked in _counted(read, counts):
            graph = list(dict.fromkeys(asked.graph or ()))
            counts.update(_met(asked, graph))
            writer.add(graph)
            kept.write(json.dumps(_row(asked.question), ensure_ascii=False) + "\n")
    left_out = [[skip.where, skip.reason] for skip in skipped]
    (place / _CARD).write_text(json.dumps({"counts": dict(counts), "skipped": left_out}), "utf-8")


def _met(asked: Asked, graph: Sequence[tuple[str, str, str]]) -> dict[str, int]:
    """What a reader of scores should know of a question's graph (keys of `NOTES`)."""
    nodes = {head for head, _, _ in graph} | {tail for _, _, tail in graph}
    answers = asked.question.answers
    outside = sum(answer not in nodes for answer in answers)
    return {
        "empty_graphs": int(not graph),
        "duplicate_triples": len(asked.graph or ()) - len(graph),
        "questions_with_topics_outside": int(not nodes.issuperset(asked.question.topic_entities)),
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
        candidates=graphs[row["id"]].ids,
        topic_entities=tuple(row["topics"]),
        metadata=row["metadata"],
    )
