"""Load the three multi-hop datasets (HotpotQA, 2WikiMultihopQA, MuSiQue): records with their own paragraphs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from sys import intern
from typing import Any

from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import content_id
from benchmarks.corpus import Corpus, CorpusBuilder
from benchmarks.datasets import QuestionIds, count_notes
from benchmarks.records import Record, read_records
from benchmarks.registry import Benchmark, DataReference, DatasetCard, DatasetConfig, SkippedRecord
from benchmarks.schema import Passage, PassageIds, Question, passage_id, sentence_id, sentence_of

# The copies hold lists of objects as objects of lists (`context {title, sentences}`), lists within Parquet as JSON text,
# and call the id `id`, or have none. Questions, answers and texts are the authors'.


MADE_ID = "made_id"
"""Field that marks a restored record whose id was generated, because the row has none."""

PAIRS = {"context": ("title", "sentences"), "supporting_facts": ("title", "sent_id")}
"""Nested fields in hub rows of HotpotQA and 2WikiMultihopQA, with the two columns that form each pair."""
TRIPLES = {"evidences": ("fact", "relation", "entity"), "evidences_id": ("fact", "relation", "entity")}
OBJECTS = ("paragraphs", "question_decomposition")
"""Nested list-of-object fields in hub rows of MuSiQue."""
CONTENT = "content"
"""Alternative name, in some copies, of the field with a context's sentences."""


def restorer() -> Callable[[Record], Record]:
    """Return a function that converts the records of one file to the authors' layout; the file's layout is detected.

    Raises (the function):
        UserError: A record has another layout than the file's first record.
        BadRecord: Nested columns have different lengths.
    """
    first: list[bool] = []

    def restore(record: Record) -> Record:
        hub = is_hub_row(record.fields)
        if not first:
            first.append(hub)
        if hub != first[0]:
            names = {True: "the hub's row layout", False: "the authors' own layout"}
            raise UserError(
                f"this record is in {names[hub]}, the first of the file in {names[first[0]]}",
                code="mixed-record-layouts",
                where=record.where,
                try_this="give one of the two files",
            )
        return restored(record) if hub else record

    return restore


def is_hub_row(fields: Mapping[str, Any]) -> bool:
    """Return whether a record has the layout of the hub's copies, judged by the form of its paragraphs."""
    nested = fields.get("context"), fields.get("paragraphs")
    rows = isinstance(nested[0], list) and any(isinstance(item, dict) for item in nested[0])
    return rows or any(isinstance(value, dict) or _is_json(value) for value in nested)


def restored(record: Record) -> Record:
    """Convert a row of the hub's copy to the authors' record."""
    fields = dict(record.fields)
    for name in (*PAIRS, *TRIPLES, *OBJECTS):
        if _is_json(fields.get(name)):
            fields[name] = _parsed(record, name)
    for name, columns in (PAIRS | TRIPLES).items():
        value = fields.get(name)
        if isinstance(value, dict):
            known = [CONTENT if column == "sentences" and CONTENT in value else column for column in columns]
            fields[name] = [list(row) for row in _zip_columns(record, name, value, known)]
        elif isinstance(value, list):
            fields[name] = [_cells(item, columns) if isinstance(item, dict) else item for item in value]
    for name in OBJECTS:
        value = fields.get(name)
        if isinstance(value, dict):
            fields[name] = [dict(zip(value, row, strict=True)) for row in _zip_columns(record, name, value, list(value))]
    if "paragraphs" not in fields:
        _identify(fields)
    return Record(fields, record.path, record.position)


def _cells(item: Mapping[str, Any], columns: Sequence[str]) -> list[Any]:
    """Return the values of an object in the order of columns; the sentences may be called `content`."""
    return [item.get(CONTENT if column == "sentences" and CONTENT in item else column) for column in columns]


def _identify(fields: dict[str, Any]) -> None:
    if fields.get("_id") is not None:
        return
    if fields.get("id") is not None:
        fields["_id"] = fields.pop("id")
        return
    # A question asked twice over other paragraphs is another question.
    context = fields.get("context")
    titles = [str(pair[0]) for pair in context if pair] if isinstance(context, list) else []
    fields["_id"] = content_id("h", str(fields.get("question")), *titles)
    fields[MADE_ID] = True


def _zip_columns(record: Record, name: str, value: Mapping[str, Any], columns: list[str]) -> zip[tuple[Any, ...]]:
    """Convert an object of lists to rows."""
    lists = []
    for column in columns:
        if not isinstance(value.get(column), list):
            raise record.problem(f"field '{name}.{column}' is not a list", f"{name}.{column}")
        lists.append(value[column])
    if len({len(column) for column in lists}) > 1:
        lengths = ", ".join(f"{len(cells)} {column}" for column, cells in zip(columns, lists, strict=True))
        raise record.problem(f"the lists of field {name!r} differ in length ({lengths})", name)
    return zip(*lists, strict=True)


def _is_json(value: Any) -> bool:
    return isinstance(value, str) and value.lstrip()[:1] in ("[", "{")


def _parsed(record: Record, name: str) -> Any:
    try:
        return json.loads(record.fields[name])
    except ValueError as error:
        raise record.problem(f"field {name!r} holds text that is not JSON: {error}", name) from error


NOTES = {
    "questions_without_gold": "{n} questions have no gold answer in the file and cannot be scored",
    "made_ids": "{n} records have no id in the file: ragmeter made one from the question and the paragraph titles, the "
    "same in every copy without ids; it differs from the authors' id",
    "questions_without_positives": "{n} questions have no positive passage: retrieval metrics leave them out",
    "unanswerable": "{n} questions are unanswerable twins: answer and support metrics leave them out",
    "repeated_titles": "{n} records hold a title twice",
    "repeated_passages": "{n} passages stand twice in one record; each counts once as a candidate",
    "ambiguous_facts": "{n} supporting facts name a title that stands twice with different texts in their record; "
    "the first that has the sentence is taken",
    "facts_past_last_sentence": "{n} supporting facts point past the last sentence of their paragraph; they stay in "
    "the gold set, as in the official script, and cannot be found",
    "facts_without_paragraph": "{n} supporting facts name a title that is not in their record",
    "positives_found_by_title": "{n} positives were found in the corpus by their title",
    "positives_absent": "{n} positives are not in the corpus; they stay in every denominator and cannot be found",
    "questions_with_absent_positives": "{n} questions have a positive that is not in the corpus",
}
"""Note per count in `Benchmark.extra["counts"]`, shown in `Benchmark.extra["notes"]`."""


class MultiHopConfig(DatasetConfig):
    """Options of the multi-hop datasets."""

    corpus: str | None = Field(
        None,
        description="a pooled corpus to search instead of the records' own paragraphs: JSON, title to list of sentences, or a "
        "list (or JSON Lines) of {title, text}; the records' candidates are then dropped",
    )


@dataclass(slots=True)
class Parsed:
    """Question and paragraphs of one record.

    Attributes:
        question: The question; its evidence is a list of paragraph ids (`absent_passage` if there is no paragraph).
        passages: The record's paragraphs.
        titles: Title of each positive by its id, if titles identify passages in this dataset; else empty.
        counts: Number of each irregularity in the record (keys of `NOTES`).
        record: The record.
    """

    question: Question
    passages: list[Passage]
    titles: Mapping[str, str]
    counts: Counter[str]
    record: Record


TITLES = "titles"
"""Key of `Question.metadata`: title by id of each positive, if the corpus does not consist of the records' own paragraphs."""


def absent_passage(title: str) -> str:
    """Return a placeholder id for a positive of which only the title is known; no passage has this id."""
    return content_id("p", "absent", title)


def assemble(
    reference: DataReference,
    version: int,
    card: DatasetCard,
    config: MultiHopConfig,
    paths: Sequence[Path],
    parse: Callable[[Record], Parsed],
    *,
    joiner: str = "",
) -> Benchmark:
    """Read a file and build the benchmark from its questions and paragraphs.

    The corpus is the union of the records' paragraphs, or `config.corpus`. A positive whose id is not in the corpus is looked
    up by title, if titles are unique in the dataset; its supporting sentences keep their numbers. If no passage or several have
    that title, the id stays in the gold and counts as not retrieved.

    Args:
        reference: The reference, with split.
        version: The loader's code version.
        card: The dataset's card.
        config: The dataset's options.
        paths: The authors' file, or the shards of the hub's copy, in order.
        parse: Function from a record in the authors' layout (`restorer`) to its question and paragraphs.
        joiner: Text between the sentences of a paragraph.

    Raises:
        UserError: The file cannot be read, or two records have the same question id.
    """
    builder, counts, skipped = CorpusBuilder(), Counter[str](), list[SkippedRecord]()
    questions: list[Question] = []
    unsure: dict[int, Mapping[str, str]] = {}
    ids = QuestionIds(paths)
    restore = restorer()

    def parse_restored(record: Record) -> Parsed:
        record = restore(record)
        parsed = parse(record)
        if MADE_ID in record.fields:
            parsed.counts["made_ids"] += 1
        return parsed

    for parsed in read_records(paths, parse_restored, skip_bad=config.skip_bad, skipped=skipped):
        ids.add(parsed.question.id, parsed.record)
        # Where the records make the corpus, it has every positive that is among a question's own paragraphs.
        own = [p.id for p in parsed.passages] if config.corpus is None else ()
        if any(positive not in own for positive in parsed.question.evidence):
            unsure[len(questions)] = parsed.titles
        if config.corpus is not None and parsed.titles:
            parsed.question = replace(parsed.question, metadata={**parsed.question.metadata, TITLES: parsed.titles})
        questions.append(parsed.question)
        for name, number in parsed.counts.items():
            if number:
                counts[name] += number
        builder.add(parsed.passages)
    corpus = builder.build()
    if config.corpus is not None:
        corpus = _pooled(Path(config.corpus).expanduser(), corpus, joiner)
        questions = [replace(question, candidates=None) for question in questions]
    _resolve(questions, unsure, corpus, counts)
    counts["questions_without_gold"] = sum(not q.answers and q.answerable for q in questions)
    counts["questions_without_positives"] = sum(not q.evidence and q.answerable for q in questions)
    counts["unanswerable"] = sum(not q.answerable for q in questions)
    notes = []
    if config.corpus is not None:
        notes.append(f"the corpus is {Path(config.corpus).name}, not the records' own paragraphs")
    return Benchmark(reference, version, card, questions, corpus, tuple(skipped), count_notes(counts, NOTES, *notes))


def _resolve(questions: list[Question], unsure: Mapping[int, Mapping[str, str]], corpus: Corpus, counts: Counter[str]) -> None:
    """Look up missing positives by title, and count those that stay missing.

    Args:
        questions: The questions, updated in place.
        unsure: By position of a question, the titles by id of positives that may be missing.
        corpus: Corpus to search.
        counts: Counter of peculiarities.
    """
    outside = {position: [item for item in questions[position].evidence if item not in corpus] for position in unsure}
    missing = {unsure[position][identifier] for position, ids in outside.items() for identifier in ids if identifier in unsure[position]}
    holders: dict[str, list[str]] = {}
    for passage in corpus if missing else ():
        if passage.title in missing:
            holders.setdefault(passage.title, []).append(passage.id)
    for position, ids in outside.items():
        known = unsure[position]
        results = {identifier: holders[known[identifier]][0] for identifier in ids if len(holders.get(known.get(identifier, ""), ())) == 1}
        counts["positives_found_by_title"] += len(results)
        counts["positives_absent"] += len(ids) - len(results)
        counts["questions_with_absent_positives"] += len(ids) > len(results)
        if results:
            questions[position] = _renamed(questions[position], results)


def _renamed(question: Question, results: Mapping[str, str]) -> Question:
    facts = []
    for fact in question.supporting_facts:
        passage, index = sentence_of(fact)
        facts.append(sentence_id(results.get(passage, passage), index))
    evidence = tuple(dict.fromkeys(results.get(identifier, identifier) for identifier in question.evidence))
    return replace(question, evidence=evidence, supporting_facts=tuple(dict.fromkeys(facts)))


def _pooled(path: Path, own: Corpus, joiner: str) -> Corpus:
    """Load a pooled corpus; passages that also occur in records keep their sentences."""
    if not path.is_file():
        raise UserError("there is no such corpus file", code="missing-file", where=str(path), try_this="correct the option corpus")
    builder = CorpusBuilder()

    def add(record: Record) -> None:
        titled = {"title", "text"} <= record.fields.keys()
        passages = [_entry(record)] if titled else _by_title(record, joiner)
        builder.add(own.get([p.id])[0] if p.id in own else p for p in passages)

    for _ in read_records(path, add, skip_bad=False, skipped=[], whole=True):
        pass
    return builder.build()


def _entry(record: Record) -> Passage:
    title, text = record.text("title"), record.text("text")
    return Passage(passage_id(title, text), title, text)


def _by_title(record: Record, joiner: str) -> list[Passage]:
    return [paragraph(record, title, record.expect(sentences, title, list), title, joiner) for title, sentences in record.fields.items()]


def paragraph(record: Record, title: str, sentences: list[Any], name: str, joiner: str) -> Passage:
    """Build a passage from a title and sentences; `name` is the field in error messages."""
    for i, sentence in enumerate(sentences):
        if type(sentence) is not str:
            record.expect(sentence, f"{name}[{i}]", str)
    text = joiner.join(sentences)
    return Passage(passage_id(title, text), title, text, tuple(sentences))


def sentence_record(record: Record, *, split: str, joiner: str) -> Parsed:
    """Parse the fields that HotpotQA and 2WikiMultihopQA share.

    A supporting fact becomes the id of a sentence of the paragraph with its title. A supporting fact beyond the last sentence
    gets the id that this sentence would have. One with an unknown title gets the id of a sentence of `absent_passage`. Both
    stay in the gold set, as in the official scripts.

    Args:
        record: `_id, question, answer, type, supporting_facts [[title, index]], context [[title, [sentences]]]`;
            in the test split answer and supporting facts may be missing.
        split: The requested split.
        joiner: Text between the sentences of a paragraph.

    Raises:
        BadRecord: A field is missing or of the wrong type.
    """
    identifier = record.text("_id")
    passages = _context(record, joiner)
    candidates = PassageIds(dict.fromkeys(passage.id for passage in passages))
    by_title: dict[str, list[Passage]] = {}
    for passage in passages:
        by_title.setdefault(passage.title, []).append(passage)
    counts = Counter(repeated_titles=int(len(by_title) < len(passages)), repeated_passages=len(passages) - len(candidates))
    evidence: dict[str, str] = {}
    facts: dict[str, None] = {}
    unreachable = []
    for title, index in _facts(record, gold=split != "test"):
        result, kind = holder(by_title.get(title, ()), index)
        if kind:
            counts[kind] += 1
        if kind in ("facts_past_last_sentence", "facts_without_paragraph"):
            unreachable.append([title, index])
        identity = result.id if result else absent_passage(title)
        evidence[identity] = title
        facts[sentence_id(identity, index)] = None
    question = Question(
        id=identifier,
        text=record.nonblank("question"),
        answers=gold_answers(record, split),
        evidence=tuple(evidence),
        supporting_facts=tuple(facts),
        type=intern(record.text("type", "")),
        candidates=candidates,
        metadata={"unreachable_facts": unreachable} if unreachable else {},
    )
    return Parsed(question, passages, evidence, counts, record)


def gold_answers(record: Record, split: str) -> tuple[str, ...]:
    """Return the answer of a record as a tuple; () in test files without answers, whose questions are then unscorable.

    Raises:
        BadRecord: A training or development record has no answer.
    """
    if record.has("answer"):
        return record.answers("answer")
    if split == "test":
        return ()
    state = "empty" if record.fields.get("answer") is not None else "missing"
    raise record.problem(f"field 'answer' is {state}, as in a test file; this is asked for as {split}", "answer")


def _context(record: Record, joiner: str) -> list[Passage]:
    passages = []
    for i, pair in enumerate(record.field("context", list)):
        name = f"context[{i}]"
        if type(pair) is not list or len(pair) != 2:
            raise record.problem(f"field {name!r} is not a pair", name, "a list [title, [sentences]]")
        title = record.expect(pair[0], f"{name}[0]", str)
        passages.append(paragraph(record, title, record.expect(pair[1], f"{name}[1]", list), f"{name}[1]", joiner))
    return passages


def _facts(record: Record, *, gold: bool) -> list[tuple[str, int]]:
    facts = []
    for i, pair in enumerate(record.field("supporting_facts", list, None if gold else [])):
        name = f"supporting_facts[{i}]"
        if type(pair) is not list or len(pair) != 2:
            raise record.problem(f"field {name!r} is not a pair", name, "a list [title, sentence number]")
        facts.append((record.expect(pair[0], f"{name}[0]", str), record.expect(pair[1], f"{name}[1]", int)))
    return facts


def holder(paragraphs: Sequence[Passage], index: int) -> tuple[Passage | None, str]:
    """Among paragraphs with the same title, return the one that a supporting fact refers to, and the peculiarity found (a key
    of `NOTES`, or "").
    """
    if not paragraphs:
        return None, "facts_without_paragraph"
    holding = [p for p in paragraphs if 0 <= index < len(p.sentences)]
    if not holding:
        return paragraphs[0], "facts_past_last_sentence"
    return holding[0], "ambiguous_facts" if len({p.id for p in paragraphs}) > 1 else ""
