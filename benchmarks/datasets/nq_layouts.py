"""The layouts in which Natural Questions circulates, record by record.

| layout | a record |
| --- | --- |
| `open` | JSON `{question, answer[]}`: NQ-open's JSON Lines and the hub's Parquet |
| `csv` | a line `question TAB ['answer', …]`, the answers a Python literal: DPR's `nq-*.qa.csv` |
| `reader` | JSON `{question, answers, positive_ctxs, negative_ctxs, hard_negative_ctxs}`: DPR's training files |
| `kilt` | JSON `{id, input, output[{answer, provenance}]}` |
| `contexts` | JSON `{question, answers, ctxs[{title, text, isgold, hasanswer …}]}`: retrieved or chosen passages |
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import tab_separated
from benchmarks.errors import UserError
from benchmarks.fingerprint import content_id
from benchmarks.open_file import open_bytes
from benchmarks.parquet_rows import is_parquet
from benchmarks.schema import Passage, Question, passage_id
from benchmarks.sources import BadRecord, Record, looks_like, records, refuse_other_dataset
from benchmarks.views import PassageIds

_NATIVE_IDS = ("passage_id", "psg_id", "id")
"""What a context's id in its dump is called, in the order in which the files of DPR prefer."""
_KILT_ID = re.compile(r"-?\d+")


@dataclass(slots=True)
class Parsed:
    """What one record yields.

    Attributes:
        question: The question; where the record has no id, it is a hash of the text.
        passages: The contexts that the record brings.
        native_ids: Of positives: the dump's id and title by passage id.
        record: The record.
        has_id: Whether the id is the record's own.
        repeated: Contexts that stand twice in the record.
    """

    question: Question
    record: Record
    has_id: bool = False
    passages: list[Passage] = field(default_factory=list)
    native_ids: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    repeated: int = 0


Parse = Callable[[Record, str], Parsed]
"""From a record and the split asked for to what it yields."""


def layout_of(path: Path) -> str:
    """The layout of a file, by its first record.

    Raises:
        UserError: The file cannot be read, or is of another dataset.
    """
    if not is_parquet(path):
        with open_bytes(path) as source:
            if source.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] not in (b"[", b"{", b""):
                return "csv"
    for record in records(path):
        if isinstance(record, Record):
            found = _layout(record.fields)
            if found is None:
                refuse_other_dataset(record, "nq")
                raise UserError(
                    f"this is not a record of Natural Questions: it has the fields {', '.join(record.fields)}",
                    where=record.where,
                    try_this=f"one of the layouts {', '.join(LAYOUTS)}",
                )
            return found
    return "open"  # nothing can be read: `read_records` says why


def read(layout: str) -> Callable[[Path], Iterator[Record | BadRecord]]:
    """What gives the records of a file in a layout."""
    return _csv_records if layout == "csv" else records


def parser(layout: str, split: str) -> Callable[[Record], Parsed]:
    """What makes of a record in a layout what it yields.

    The function raises `BadRecord` for a record that cannot be used, UserError for one of another dataset.
    """
    mark, known, parse = LAYOUTS[layout]

    def checked(record: Record) -> Parsed:
        fields = record.fields
        if mark not in fields or not fields.keys() <= known:
            looks = looks_like(fields)
            if looks is not None and "(nq)" not in looks:
                refuse_other_dataset(record, "nq")
            found = _layout(fields)
            if found not in (None, layout) and layout != "csv":
                what = f"this record is of the layout {found}, the file of {layout}"
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
    for item in tab_separated.stream(path, ("question", "answers")):
        if item.problem is not None:
            yield BadRecord(item.problem, where=f"{path}, {item.place}", try_this="repair the file, or set skip_bad")
        else:
            yield Record({"question": item.value[0], "answers": item.value[1]}, path, item.place)


def _csv(record: Record, split: str) -> Parsed:
    answers = tuple(dict.fromkeys(_literal(record)))
    text = _question(record, "question")
    return Parsed(Question(_hashed(text), text, _gold(record, split, answers, "answers")), record)


def _literal(record: Record) -> list[str]:
    """The answers of a line: a Python literal, which is parsed and never evaluated."""
    try:
        value = ast.literal_eval(record.text("answers").strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise record.problem("the answers are no literal", "answers", "a list such as ['one', \"two\"]") from error
    if type(value) is not list:
        raise record.problem(f"the answers are of type {type(value).__name__}", "answers", list)
    return [record.expect(item, f"answers[{i}]", str) for i, item in enumerate(value)]


def _open(record: Record, split: str) -> Parsed:
    name = "answer" if "answer" in record.fields else "answers"
    own, text = _own_id(record), _question(record, "question")
    return Parsed(Question(own or _hashed(text), text, _answers(record, split, name)), record, own != "")


def _kilt(record: Record, split: str) -> Parsed:
    identifier = record.text("id")
    if not _KILT_ID.fullmatch(identifier):
        raise UserError(
            f"{identifier!r} is no id of KILT's Natural Questions, which are whole numbers",
            where=f"{record.where}, field id",
            try_this="give nq/kilt the file nq-*-kilt.jsonl, not another task's",
        )
    answers, provenance = [], []
    for i, item in enumerate(record.field("output", list, [])):
        part = Record(record.expect(item, f"output[{i}]", dict), record.path, f"{record.place}, output {i}")
        if part.has("answer"):
            answers.append(part.text("answer"))
        provenance += [part.expect(one, f"provenance[{j}]", dict) for j, one in enumerate(_list(part, "provenance"))]
    question = Question(
        identifier,
        _question(record, "input"),
        _gold(record, split, tuple(dict.fromkeys(answers)), "output"),
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
    text = _question(record, "question")
    question = Question(_hashed(text), text, _answers(record, split, "answers"), evidence=tuple(positives), candidates=candidates)
    return Parsed(question, record, False, passages, positives, len(passages) - len(candidates))


def _check_origin(record: Record, split: str) -> None:
    """DPR's records say where they come from: `nq_dev_psgs_w100`.

    Raises:
        UserError: From another dataset or split.
    """
    parts = record.text("dataset", "nq").split("_")
    if parts[0] != "nq" or (len(parts) > 1 and parts[1] in ("train", "dev", "test") and parts[1] != split):
        raise UserError(
            f"this record is of {'_'.join(parts[:2])}, not of nq_{split}",
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
    own, text = _own_id(record), _question(record, "question")
    question = Question(
        own or _hashed(text), text, _answers(record, split, "answers"), evidence=tuple(positives), candidates=candidates, metadata=metadata
    )
    return Parsed(question, record, own != "", passages, positives, len(passages) - len(candidates))


def _contexts(record: Record, name: str) -> Iterator[tuple[Passage, Record]]:
    for i, item in enumerate(_list(record, name)):
        part = Record(record.expect(item, f"{name}[{i}]", dict), record.path, f"{record.place}, {name}[{i}]")
        title, text = part.text("title", ""), part.text("text")
        yield Passage(passage_id(title, text), title, text), part


def _native_id(part: Record) -> str:
    found = next((part.fields[name] for name in _NATIVE_IDS if part.fields.get(name) not in (None, "")), "")
    return str(found).removeprefix("wiki:")


def _own_id(record: Record) -> str:
    value = record.fields.get("id")
    return str(value) if type(value) is int else record.text("id", "")


def _hashed(text: str) -> str:
    return content_id("n", text)


def _question(record: Record, name: str) -> str:
    text = record.text(name)
    if not text.strip():
        raise record.problem(f"field {name!r} is empty", name, "a question")
    return text


def _answers(record: Record, split: str, name: str) -> tuple[str, ...]:
    there = record.fields.get(name) or record.has(name)
    return _gold(record, split, record.answers(name) if there else (), name)


def _gold(record: Record, split: str, answers: tuple[str, ...], name: str) -> tuple[str, ...]:
    """The answers; a test file may come without, and such questions are unscorable."""
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
"""By name: a field that its records always have, those that they have as a rule, and their parser."""
