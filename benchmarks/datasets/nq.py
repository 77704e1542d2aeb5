"""Natural Questions, open domain: real search-engine questions with short answers, over all of Wikipedia.

Source: Kwiatkowski et al., 2019; Lee et al., 2019 (NQ-open); Karpukhin et al., 2020 (DPR,
https://github.com/facebookresearch/DPR); Petroni et al., 2021 (KILT, https://github.com/facebookresearch/KILT).
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import content_id
from benchmarks.corpus import Corpus, CorpusBuilder
from benchmarks.corpus_build import open_corpus
from benchmarks.datasets import QuestionIds, count_notes
from benchmarks.io import records as tab_separated
from benchmarks.io.files import open_bytes, refuse_foreign
from benchmarks.io.literals import LIST, NUMPY, printed_by_numpy
from benchmarks.io.records import is_parquet
from benchmarks.records import BadRecord, Record, looks_like, read_records, records, refuse_other_dataset
from benchmarks.registry import Benchmark, DataReference, DatasetCard, DatasetConfig, SkippedRecord, register
from benchmarks.schema import Passage, PassageIds, Question, passage_id
from benchmarks.sources import find_files

# | layout | a record |
# | --- | --- |
# | `open` | JSON `{question, answer[]}`: NQ-open's JSON Lines and the hub's Parquet |
# | `csv` | a line `question TAB ['answer', …]`, the answers a Python literal: DPR's `nq-*.qa.csv` |
# | `reader` | JSON `{question, answers, positive_ctxs, negative_ctxs, hard_negative_ctxs}`: DPR's training files |
# | `kilt` | JSON `{id, input, output[{answer, provenance}]}` |
# | `contexts` | JSON `{question, answers, ctxs[{title, text, isgold, hasanswer …}]}`: retrieved or chosen passages |


_NATIVE_IDS = ("passage_id", "psg_id", "id")
"""Fields with a context's id in its dump, in DPR's order of preference."""
_KILT_ID = re.compile(r"-?\d+")


@dataclass(slots=True)
class Parsed:
    """Question and passages of one record.

    Attributes:
        question: The question; if the record has no id, the question's id is a hash of its text.
        passages: The record's contexts.
        native_ids: The positives' id and title in the dump, by passage id.
        record: The record.
        has_id: Whether the id comes from the record.
        repeated: Number of duplicate contexts in the record.
    """

    question: Question
    record: Record
    has_id: bool = False
    passages: list[Passage] = field(default_factory=list)
    native_ids: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    repeated: int = 0


Parse = Callable[[Record, str], Parsed]
"""Function that parses a record of the requested split."""


def layout_of(path: Path) -> str:
    """Detect a file's layout from its first record.

    Raises:
        UserError: The file cannot be read, or is of another dataset.
    """
    if not is_parquet(path):
        with open_bytes(path) as source:
            head = source.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
            # A list and then a tab: a line of two fields in the wrong order, not an array.
            if head[:1] not in (b"[", b"{", b"") or re.match(rb"\[[^\n]*\]\t", head):
                refuse_foreign(head, path)
                return "csv"
    for record in records(path):
        if isinstance(record, Record):
            result = _layout(record.fields)
            if result is None:
                refuse_other_dataset(record, "nq")
                raise UserError(
                    f"this is not a record of Natural Questions: it has the fields {', '.join(record.fields)}",
                    code="not-nq-record",
                    where=record.where,
                    try_this=f"one of the layouts {', '.join(LAYOUTS)}",
                )
            return result
    return "open"  # nothing can be read: `read_records` says why


def read(layout: str) -> Callable[[Path], Iterator[Record | BadRecord]]:
    """Return the function that yields a file's records in a layout."""
    return _csv_records if layout == "csv" else records


def parser(layout: str, split: str) -> Callable[[Record], Parsed]:
    """Return the parser of records in a layout.

    The parser raises `BadRecord` for an invalid record, and UserError for a record of another dataset.
    """
    mark, known, parse = LAYOUTS[layout]

    def checked(record: Record) -> Parsed:
        fields = record.fields
        if mark not in fields or not fields.keys() <= known:
            looks = looks_like(fields)
            if looks is not None and "(nq)" not in looks:
                refuse_other_dataset(record, "nq")
            result = _layout(fields)
            if result not in (None, layout) and layout != "csv":
                what = f"this record is of the layout {result}, the file of {layout}"
                raise record.problem(what, ", ".join(fields))
        return parse(record, split)

    return checked


def _layout(fields: Mapping[str, Any]) -> str | None:
    if "ctxs" in fields:
        return "contexts"
    if "positive_ctxs" in fields:
        return "reader"
    if "question" in fields:
        return "open" if fields.keys() <= _OPEN or looks_like(fields) is None else None
    if "input" in fields and "context" not in fields:
        return "kilt"
    return None


def _csv_records(path: Path) -> Iterator[Record | BadRecord]:
    for item in tab_separated.stream_tabs(path, ("question", "answers")):
        if item.problem is not None:
            comma = "1 tab-separated" in item.problem
            remedy = "separate question and answers by a tab, not by a comma" if comma else "repair the file, or set skip_bad"
            yield BadRecord(item.problem, code="bad-record", where=f"{path}, {item.position}", try_this=remedy)
        elif item.line > 1 or item.value[1].strip() not in ("answer", "answers"):
            yield Record({"question": item.value[0], "answers": item.value[1]}, path, item.position)


def _csv(record: Record, split: str) -> Parsed:
    answers = tuple(_literal(record))
    text = record.nonblank("question")
    return Parsed(Question(_hashed(text), text, _gold(record, split, answers, "answers")), record)


def _literal(record: Record) -> list[str]:
    """Parse the answers of a line, a Python literal."""
    text = record.text("answers").strip()
    if printed_by_numpy(text):
        raise record.problem(NUMPY, "answers", LIST)
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        if record.text("question").lstrip().startswith("["):
            raise UserError(
                "the first column has answers and the second the question",
                code="columns-swapped",
                where=record.where,
                try_this="put the question first: question TAB ['answer', …]",
            ) from error
        raise record.problem("the answers are not a Python literal", "answers", "a list such as ['one', \"two\"]") from error
    if type(value) is not list:
        raise record.problem(f"the answers are of type {type(value).__name__}", "answers", list)
    return [record.expect(item, f"answers[{i}]", str) for i, item in enumerate(value)]


def _open(record: Record, split: str) -> Parsed:
    name = "answer" if "answer" in record.fields else "answers"
    own, text = _own_id(record), record.nonblank("question")
    return Parsed(Question(own or _hashed(text), text, _answers(record, split, name)), record, own != "")


def _kilt(record: Record, split: str) -> Parsed:
    identifier = record.text("id")
    if not _KILT_ID.fullmatch(identifier):
        raise UserError(
            f"{identifier!r} is not an id of KILT's Natural Questions, which are whole numbers",
            code="not-kilt-id",
            where=f"{record.where}, field id",
            try_this="give nq/kilt the file nq-*-kilt.jsonl, not another task's",
        )
    answers, provenance = [], []
    for i, item in enumerate(record.field("output", list, [])):
        answer, sources = (item.get("answer", ""), item.get("provenance", ())) if type(item) is dict else (None, None)
        if type(answer) is str and sources is not None and set(map(type, sources)) <= {dict}:
            answers += [answer] * (answer != "")
            provenance += sources
            continue
        part = Record(record.expect(item, f"output[{i}]", dict), record.path, f"{record.position}, output {i}")
        if part.has("answer"):
            answers.append(part.text("answer"))
        provenance += [part.expect(entry, f"provenance[{j}]", dict) for j, entry in enumerate(_list(part, "provenance"))]
    question = Question(
        identifier,
        record.nonblank("input"),
        _gold(record, split, tuple(answers), "output"),
        metadata={"provenance": tuple(provenance)} if provenance else {},
    )
    return Parsed(question, record, has_id=True)


def _reader(record: Record, split: str) -> Parsed:
    _check_origin(record, split)
    passages: list[Passage] = []
    positives: dict[str, tuple[str, str]] = {}
    for name in ("positive_ctxs", "hard_negative_ctxs", "negative_ctxs"):
        for passage, part in _contexts(record, name):
            passages.append(passage)
            if name == "positive_ctxs":
                positives[passage.id] = _native_id(part), passage.title
    # The authors list positives first; in the order of their hashes nothing tells them from the rest.
    candidates = PassageIds(sorted({passage.id for passage in passages}))
    text = record.nonblank("question")
    question = Question(_hashed(text), text, _answers(record, split, "answers"), evidence=tuple(positives), candidates=candidates)
    return Parsed(question, record, False, passages, positives, len(passages) - len(candidates))


def _check_origin(record: Record, split: str) -> None:
    """Check the origin in a DPR record, such as `nq_dev_psgs_w100`.

    Raises:
        UserError: The record belongs to another dataset or split.
    """
    parts = record.text("dataset", "nq").split("_")
    if parts[0] != "nq" or (len(parts) > 1 and parts[1] in ("train", "dev", "test") and parts[1] != split):
        raise UserError(
            f"this record is of {'_'.join(parts[:2])}, not of nq_{split}",
            code="record-of-other-nq",
            where=f"{record.where}, field dataset",
            try_this="ask for the split that the file holds, or give the right file",
        )


def _with_contexts(record: Record, split: str) -> Parsed:
    passages: list[Passage] = []
    positives: dict[str, tuple[str, str]] = {}
    holding: list[str] = []
    for passage, part in _contexts(record, "ctxs"):
        passages.append(passage)
        if part.field("isgold", bool, False):
            positives[passage.id] = _native_id(part), passage.title
        if part.field("hasanswer", bool, False) or part.field("has_answer", bool, False):
            holding.append(passage.id)
    metadata: dict[str, Any] = {"has_answer": tuple(dict.fromkeys(holding))} if holding else {}
    if record.has("nq_annotated_gold"):
        metadata["nq_annotated_gold"] = record.field("nq_annotated_gold", dict)
    candidates = PassageIds(dict.fromkeys(passage.id for passage in passages))
    own, text = _own_id(record), record.nonblank("question")
    question = Question(
        own or _hashed(text), text, _answers(record, split, "answers"), evidence=tuple(positives), candidates=candidates, metadata=metadata
    )
    return Parsed(question, record, own != "", passages, positives, len(passages) - len(candidates))


def _contexts(record: Record, name: str) -> Iterator[tuple[Passage, Record]]:
    for i, item in enumerate(_list(record, name)):
        part = Record(record.expect(item, f"{name}[{i}]", dict), record.path, f"{record.position}, {name}[{i}]")
        title, text = part.text("title", ""), part.text("text")
        yield Passage(passage_id(title, text), title, text), part


def _native_id(part: Record) -> str:
    result = next((part.fields[name] for name in _NATIVE_IDS if part.fields.get(name) not in (None, "")), "")
    return str(result).removeprefix("wiki:")


def _own_id(record: Record) -> str:
    value = record.fields.get("id")
    return str(value) if type(value) is int else record.text("id", "")


def _hashed(text: str) -> str:
    return content_id("n", text)


def _answers(record: Record, split: str, name: str) -> tuple[str, ...]:
    there = record.fields.get(name) or record.has(name)
    return _gold(record, split, record.answers(name) if there else (), name)


def _gold(record: Record, split: str, answers: tuple[str, ...], name: str) -> tuple[str, ...]:
    """Return the answers; () in test files without answers."""
    if not answers and split != "test":
        raise record.problem(f"there is no answer, as in a test file; this is asked for as {split}", name)
    return answers


def _list(record: Record, name: str) -> list[Any]:
    return record.field(name, list, [])


_OPEN = frozenset({"question", "answer", "answers", "id"})
LAYOUTS: dict[str, tuple[str, frozenset[str], Parse]] = {
    "open": ("question", _OPEN, _open),
    "csv": ("question", frozenset({"question", "answers"}), _csv),
    "reader": (
        "positive_ctxs",
        frozenset({"dataset", "question", "answers", "positive_ctxs", "negative_ctxs", "hard_negative_ctxs"}),
        _reader,
    ),
    "kilt": ("input", frozenset({"id", "input", "output", "meta"}), _kilt),
    "contexts": ("ctxs", frozenset({"id", "question", "answers", "ctxs", "nq_annotated_gold"}), _with_contexts),
}
"""Layouts by name: a field that is always present, the fields that are usually present, and the parser."""


VERSION = 1

CARD = DatasetCard(
    title="Natural Questions (open)",
    task="open-domain QA",
    description="Questions that people asked a search engine, with the short answers that annotators found in "
    "Wikipedia. dpr: DPR's splits; open: NQ-open as released and on the hub; kilt: KILT's splits, with provenance.",
    hub_id="google-research-datasets/nq_open",
    revision="5dd9790a83002ad084ddeb7c420dc716852c6f28",
    license="CC BY-SA 3.0",
    citation="@article{kwiatkowski2019natural, title={Natural Questions: A Benchmark for Question Answering Research}, "
    "author={Kwiatkowski, Tom and Palomaki, Jennimaria and Redfield, Olivia and Collins, Michael and Parikh, Ankur and "
    "Alberti, Chris and others}, journal={Transactions of the Association for Computational Linguistics}, volume={7}, "
    "year={2019}}",
    languages=("en",),
    splits={"train": 79168, "dev": 8757, "test": 3610},
    subset_splits={"open": {"train": 87925, "test": 3610}, "kilt": {"train": 87372, "dev": 2837, "test": 1444}},
    # KILT keeps NQ's train and dev split as far as their pages are in its Wikipedia; its test questions are new.
    same_questions={
        "open:train": ("nq/dpr:train", "nq/dpr:dev"),
        "open:test": ("nq/dpr:test",),
        "kilt:train": ("nq/dpr:train", "nq/dpr:dev"),
        "kilt:dev": ("nq/dpr:test",),
    },
    metrics=("em", "f1", "has_answer@20"),
    cluster="question",
    settings=("corpus", "oracle", "distractor", "closed_book"),
    subset_settings={"open": ("closed_book", "corpus", "oracle", "distractor"), "kilt": ("corpus", "closed_book")},
    notes="The 3,610 questions that NQ-open calls dev (the hub: validation) are called test by DPR and nearly every paper; here, "
    "they are the split test of both. NQ-open's train contains DPR's train and dev: train on dpr if dev must stay unseen. "
    "CLaRa evaluates 6,489 questions of its own selection, published only in its own rows. Questions have passages only in "
    "DPR's reader files and in files with ctxs; for the others, the option corpus names the corpus to search: DPR's "
    "psgs_w100.tsv (Wikipedia of 2018-12-20, 21,015,324 passages) or Atlas' Wikipedia-2021. Only KILT has ids; otherwise "
    "the id is a hash of the question's text. KILT's test split is released without answers.",
)

FOLDERS = ("nq", "nq_open", "nq-open", "natural_questions", "natural-questions", "naturalquestions", "kilt_nq")
_NQ_OPEN_DEV = ("NQ-open.dev.jsonl", "NQ-open.dev*.jsonl")
_CONTEXTS = ("nq-open-oracle*.jsonl", "nq-open-*_total_documents_gold_at_*.jsonl")


def _dpr(split: str) -> tuple[str, ...]:
    return (
        f"nq-{split}.qa.csv",
        f"nq-{split}.qa*.csv",
        f"nq-{split}*.csv",
        f"biencoder-nq-{split}.json",
        f"biencoder-nq-{split}*.json",
        f"nq-{split}.json",
    )


FILES = {
    "dpr:train": _dpr("train"),
    "dpr:dev": _dpr("dev"),
    "dpr:test": (*_dpr("test"), *_NQ_OPEN_DEV, *_CONTEXTS),
    "open:train": ("NQ-open.train.jsonl", "NQ-open.train*.jsonl"),
    "open:test": (*_NQ_OPEN_DEV, *_CONTEXTS),
    "kilt:train": ("nq-train-kilt.jsonl", "nq-train*kilt*.jsonl"),
    "kilt:dev": ("nq-dev-kilt.jsonl", "nq-dev*kilt*.jsonl"),
    "kilt:test": ("nq-test_without_answers-kilt.jsonl", "nq-test*kilt*.jsonl"),
}
_VALIDATION = ("nq_open/validation-*.parquet",)
HUB = {"open:train": ("nq_open/train-*.parquet",), "open:test": _VALIDATION, "dpr:test": _VALIDATION}

NOTES = {
    "questions_without_ids": "{n} questions have no id in the file: each got a hash of its text",
    "repeated_questions": "{n} questions repeat the text of an earlier one: they got ~2, ~3 … behind its id",
    "questions_without_gold": "{n} questions have no gold answer in the file and cannot be scored",
    "questions_without_positives": "{n} questions have no annotated positive passage: recall leaves them out, has_answer does not",
    "repeated_contexts": "{n} contexts stand twice in one record; each counts once as a candidate",
    "positives_found_by_native_id": "{n} positives were found in the corpus by the dump's own id",
    "positives_absent": "{n} positives are not in the corpus; they stay in every denominator and cannot be found",
    "questions_with_absent_positives": "{n} questions have a positive that is not in the corpus",
}
"""Note per count in `Benchmark.extra["counts"]`, shown in `Benchmark.extra["notes"]`."""


class NQConfig(DatasetConfig):
    """Options of Natural Questions."""

    corpus: str | None = Field(
        None,
        description="corpus to search: a corpus folder (ragmeter data build-corpus), or a dump such as psgs_w100.tsv, which is "
        "indexed once in a folder next to it; the records' own contexts are then not candidates",
    )
    layout: Literal["open", "csv", "reader", "kilt", "contexts"] | None = Field(
        None, description="layout of the file, needed if its first record is ambiguous"
    )


@register("nq", card=CARD, version=VERSION, config=NQConfig, subsets=("dpr", "open", "kilt"))
def load(reference: DataReference, config: NQConfig) -> Benchmark:
    """Load a split; the file's layout is detected.

    The evidence consists of the contexts annotated as positive (`isgold`, `positive_ctxs`). `metadata` keeps `has_answer` (ids
    of contexts that contain an answer string), `nq_annotated_gold` and KILT's `provenance`.

    Raises:
        UserError: The file is missing, or belongs to another dataset or split.
    """
    paths = find_files(reference, config, card=CARD, folders=FOLDERS, patterns=FILES, hub=HUB)
    layout = config.layout or layout_of(paths[0])
    skipped: list[SkippedRecord] = []
    parsed = read_records(paths, parser(layout, reference.split or "dev"), skip_bad=config.skip_bad, skipped=skipped, read=read(layout))
    counts: Counter[str] = Counter()
    builder = CorpusBuilder()
    questions, natives = [], []
    for item in _identified(parsed, paths, counts):
        questions.append(item.question)
        if config.corpus is not None:
            natives.append(item.native_ids)
        if item.passages:
            counts["repeated_contexts"] += item.repeated
            builder.add(item.passages)
    notes = [] if reference.subset != "open" else [_OPEN_NOTES[reference.split or ""]]
    corpus = builder.build()
    if config.corpus is not None:
        corpus = open_corpus(Path(config.corpus).expanduser())
        resolve = _Resolve(corpus, counts)
        questions = [resolve(question, known) for question, known in zip(questions, natives, strict=True)]
        notes.append(f"the corpus is {Path(config.corpus).name}, not the records' own contexts")
    counts["questions_without_gold"] = sum(not question.answers for question in questions)
    counts["questions_without_positives"] = sum(not question.evidence for question in questions)
    extra = {**count_notes(counts, NOTES, *notes), "layout": layout}
    return Benchmark(reference, VERSION, CARD, questions, corpus, tuple(skipped), extra)


_OPEN_NOTES = {
    "train": "NQ-open's train file holds both train and dev of DPR",
    "test": "NQ-open's dev file is what DPR and nearly every paper call test",
}


def _identified(parsed: Iterator[Parsed], paths: Sequence[Path], counts: Counter[str]) -> Iterator[Parsed]:
    """Make the ids of repeated questions without own ids unique.

    Raises:
        UserError: Two records have the same native id.
    """
    ids = QuestionIds(paths)
    times: dict[str, int] = {}
    for item in parsed:
        identifier = item.question.id
        if item.has_id:
            ids.add(identifier, item.record)
        else:
            number = times[identifier] = times.get(identifier, 0) + 1
            if number > 1:
                item.question = replace(item.question, id=f"{identifier}~{number}")
        yield item
    counts["questions_without_ids"] = sum(times.values())
    counts["repeated_questions"] = sum(times.values()) - len(times)


class _Resolve:
    """Looks up positives in another corpus, by content or by the dump's id and title."""

    def __init__(self, corpus: Corpus, counts: Counter[str]) -> None:
        self._corpus = corpus
        self._counts = counts

    def __call__(self, question: Question, natives: Mapping[str, tuple[str, str]]) -> Question:
        results = [self._find(identifier, *natives.get(identifier, ("", ""))) for identifier in question.evidence]
        absent = results.count(None)
        self._counts["positives_absent"] += absent
        self._counts["questions_with_absent_positives"] += absent > 0
        evidence = [new or old for new, old in zip(results, question.evidence, strict=True)]
        return replace(question, evidence=tuple(dict.fromkeys(evidence)), candidates=None)

    def _find(self, identifier: str, native_id: str, title: str) -> str | None:
        if identifier in self._corpus:
            return identifier
        match = self._corpus.by_native_id(native_id) if native_id else None
        # Numbers alone would also fit a dump that counts differently.
        if match is None or self._corpus.get([match])[0].title != title:
            return None
        self._counts["positives_found_by_native_id"] += 1
        return match
