"""Rows of a predictions file: strict JSON, strict types, the nearest key for an unknown one."""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, NoReturn

from benchmarks.core.errors import nearest
from judges.metric import METRICS
from methods.api import ANSWERABLE, ENDPOINTS, FAILED, SCRIPTED, SUPPORT, TRIPLES, TRUNCATED, Evidence, Prediction, Usage, support_claims
from methods.record import RECORD, Malformed, read_record
from results.offered import MIB, Limits
from results.submission import Findings, shown
from results.submission.card import SCORE_KEYS

_FOREIGN = {
    codecs.BOM_UTF32_LE: ("UTF-32", "iconv -f UTF-32 -t UTF-8"),
    codecs.BOM_UTF32_BE: ("UTF-32", "iconv -f UTF-32 -t UTF-8"),
    codecs.BOM_UTF16_LE: ("UTF-16", "iconv -f UTF-16 -t UTF-8"),
    codecs.BOM_UTF16_BE: ("UTF-16", "iconv -f UTF-16 -t UTF-8"),
    b"\x1f\x8b": ("gzip-compressed", "gunzip it; only a bundle (.zip) may be compressed"),
    b"BZh": ("bzip2-compressed", "unpack it; only a bundle (.zip) may be compressed"),
    b"\xfd7zXZ": ("xz-compressed", "unpack it; only a bundle (.zip) may be compressed"),
    b"\x28\xb5\x2f\xfd": ("zstd-compressed", "unpack it; only a bundle (.zip) may be compressed"),
    b"PK\x03\x04": ("a zip archive", "give it the ending .zip if it is a bundle, or unpack it"),
    b"\x80\x02": ("a Python pickle", "write JSON Lines: nothing is ever unpickled here"),
    b"\x80\x03": ("a Python pickle", "write JSON Lines: nothing is ever unpickled here"),
    b"\x80\x04": ("a Python pickle", "write JSON Lines: nothing is ever unpickled here"),
    b"\x80\x05": ("a Python pickle", "write JSON Lines: nothing is ever unpickled here"),
    b"PAR1": ("Parquet", "write JSON Lines"),
    b"\x93NUMPY": ("a NumPy file", "write JSON Lines"),
}


@dataclass(frozen=True, slots=True)
class Line:
    """Decoded line of a file, without its line end; `number` is 1-based."""

    number: int
    text: str


def lines(source: BinaryIO, findings: Findings, limits: Limits, most: int) -> Iterator[Line]:
    """Yield the non-empty lines of a stream; lines that are too long or not UTF-8 become findings.

    Only one chunk and one line are in memory at a time. A UTF-8 byte order mark is skipped and noted. Reading stops after
    `most` lines, including empty ones.
    """
    buffer: list[bytes] = []
    size = total = 0
    number, skipping = 1, False
    while chunk := source.read(limits.chunk_bytes):
        if total == 0:
            chunk, refused = _head(source, chunk, findings)
            if refused:
                return
        total += len(chunk)
        if total > limits.file_bytes:
            findings.listed("file_too_long", line=number, mib=limits.file_bytes // MIB)
            return
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            if not skipping and size + len(end) <= limits.line_bytes:
                yield from _decoded(number, b"".join([*buffer, end]), findings)
            elif not skipping:
                findings.listed("line_too_long", line=number, mib=limits.line_bytes // MIB)
            buffer, size, skipping = [], 0, False
            number += 1
            if number > most:
                findings.listed("too_many_rows", line=number, most=most)
                return
        if skipping:
            continue
        if size + len(rest) > limits.line_bytes:
            findings.listed("line_too_long", line=number, mib=limits.line_bytes // MIB)
            buffer, size, skipping = [], 0, True
        elif rest:
            buffer.append(rest)
            size += len(rest)
    if buffer:
        yield from _decoded(number, b"".join(buffer), findings)
    if total == 0:
        findings.listed("empty", line=1)


def _head(source: BinaryIO, chunk: bytes, findings: Findings) -> tuple[bytes, bool]:
    """Return the first chunk without its byte order mark, and whether the file has another type."""
    while len(chunk) < 8 and (more := source.read(8 - len(chunk))):
        chunk += more
    for mark, (name, remedy) in _FOREIGN.items():
        if chunk.startswith(mark):
            findings.add("not_text", f"this is {name}, not a UTF-8 text", line=1, try_this=remedy)
            return b"", True
    if chunk.startswith(codecs.BOM_UTF8):
        findings.listed("bom", line=1)
        chunk = chunk[len(codecs.BOM_UTF8) :]
    return chunk, False


def _decoded(number: int, raw: bytes, findings: Findings) -> Iterator[Line]:
    if not raw.strip():
        return
    if b"\0" in raw:
        detail = f"column {raw.index(0) + 1}"
        findings.listed("nul", detail, line=number)
        return
    try:
        yield Line(number, raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        detail = f"byte 0x{raw[error.start]:02x} at column {error.start + 1}"
        findings.listed("not_utf8", detail, line=number)


KEYS = ("question_id", "answer", "evidence", "usage", "notes", "prompt", *RECORD)
_OTHER_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("id", "_id", "qid", "query_id", "q_id", "uid", "example_id", "sample_id"), "question_id"),
    **dict.fromkeys(("pred", "prediction", "predicted_answer", "output", "response", "generated_text", "generated_answer"), "answer"),
    **dict.fromkeys(("text", "completion", "result", "hypothesis", "model_output", "model_answer", "answers"), "answer"),
    **dict.fromkeys(("retrieved_contexts", "context", "ctxs", "docs", "documents", "passages", "source_documents"), "contexts"),
}
"""Names that other tools give to keys of a row."""
PROMPT = "prompt"
"""Key of the prompts in a row, and in the notes of its prediction."""
_COUNTS = ("prompt_tokens", "completion_tokens", "memory_tokens", "model_calls", "peak_memory_bytes")
_LARGEST = 2**53
_STAGE_CHARS = 64
_ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class PredictionRow:
    """Well-formed row of a submission.

    Attributes:
        line: 1-based line of the file.
        prediction: The prediction; `notes[PROMPT]` holds its prompts, if any.
        official: Whether the row is from a file for an official script, which may claim support that the corpus lacks.
    """

    line: int
    prediction: Prediction
    official: bool = False


RowReader = Callable[[BinaryIO, Findings, Limits], Iterator[PredictionRow]]
"""Function from a stream to rows; invalid rows become findings."""


class Bad(Exception):
    """Raised for a row that is refused: the finding's code, text, detail, remedy and, if it differs from the row's, its line."""

    line: int | None = None

    def __init__(self, code: str, what: str, detail: str = "", try_this: str | None = None) -> None:
        self.code, self.what, self.detail, self.try_this = code, what, detail, try_this
        super().__init__(what)


def jsonl_rows(source: BinaryIO, findings: Findings, limits: Limits) -> Iterator[PredictionRow]:
    """Read predictions from JSON Lines, one per line; invalid lines become findings."""
    # Every second line may be empty.
    for line in lines(source, findings, limits, 2 * limits.rows):
        try:
            value = read_json(line.text, limits)
            row = PredictionRow(line.number, prediction_of(value, limits))
        except Bad as bad:
            findings.add(bad.code, bad.what, bad.detail, line=line.number, try_this=bad.try_this)
            continue
        yield row


def _integer(text: str) -> int:
    if len(text) > 19:
        raise Bad("huge_number", "a number is too large", f"{text[:20]}… ({len(text)} digits)")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise Bad("huge_number", "a number is too large", shown(text, 24))
    return value


def _constant(text: str) -> NoReturn:
    raise Bad("not_finite", f"{text} is not a number that JSON knows", try_this="leave the field out")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    results = dict(pairs)
    if len(results) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise Bad("duplicate_key", "a key occurs twice in one object", shown(twice), "keep one of them")
    return results


DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_int=_integer, parse_float=_float, parse_constant=_constant, strict=True)


def read_json(text: str, limits: Limits) -> Any:
    """Parse JSON strictly.

    Raises:
        Bad: The text is not JSON, or contains values that a submission may not.
    """
    try:
        value = DECODER.decode(text)
    except json.JSONDecodeError as error:
        hint = None
        if text.lstrip().startswith("["):
            hint = "write one object per line instead of an array"
        elif text.strip() == "{":
            hint = "write each object on one line"
        elif not text.lstrip().startswith("{"):
            hint = '{"question_id": …, "answer": …} on each line; for a CSV with questions and answers: --format ragas'
        raise Bad("not_json", "a line is not JSON", f"{error.msg} at column {error.pos + 1}", hint) from None
    except RecursionError:
        raise too_deep(limits) from None
    check_value(value, limits)
    return value


def check_value(value: Any, limits: Limits) -> None:
    """Refuse a JSON value that is nested too deeply, or contains values that cannot be stored.

    Raises:
        Bad: The value is refused.
    """
    if _deeper(value, limits.depth):
        raise too_deep(limits)
    try:
        # An escape such as \ud800 makes half a character, which no file can hold.
        response = "".join(_strings(value))
        response.encode("utf-8")
    except UnicodeEncodeError as error:
        detail = f"\\u{ord(error.object[error.start]):04x} is half of a surrogate pair"
        raise Bad("surrogate", "a text contains half of a character", detail, "write the whole character") from None
    if "\0" in response:
        raise Bad("nul", "a line holds a NUL character", try_this="remove it")


def too_deep(limits: Limits) -> Bad:
    """Make the error for a row that is nested too deeply."""
    return Bad("too_deep", f"a row is nested deeper than {limits.depth} levels")


def _deeper(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth):
        level = [child for part in level if isinstance(part, list | dict) for child in (part.values() if isinstance(part, dict) else part)]
    return any(isinstance(part, list | dict) for part in level)


def _strings(value: Any) -> Iterator[str]:
    stack = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict):
            yield from part
            stack.extend(part.values())
        elif isinstance(part, list):
            stack.extend(part)


def prediction_of(row: Any, limits: Limits) -> Prediction:
    """Convert a row's JSON object to a `Prediction`.

    Raises:
        Bad: The row is not a valid prediction.
    """
    if not isinstance(row, dict):
        form = '{"question_id": …, "answer": …}'
        hint = f"write one object per line instead of an array: {form}" if isinstance(row, list) else form
        raise Bad("not_object", "a line is not a JSON object", f"it is {_kind(row)}", hint)
    for key in row:
        if key not in KEYS:
            raise _unknown_key(key, KEYS, "a row")
    for key in ("question_id", "answer"):
        if key not in row:
            raise Bad("missing_field", f"a row lacks {key!r}")
        if not isinstance(row[key], str):
            raise wrong(key, "a text", row[key])
    if not row["question_id"] or len(row["question_id"]) > limits.id_chars:
        raise Bad("bad_id", f"an id has 1 to {limits.id_chars} characters", shown(row["question_id"]))
    if len(row["answer"]) > limits.answer_chars:
        detail = f"{len(row['answer'])} characters"
        raise Bad("answer_too_long", f"an answer is longer than {limits.answer_chars} characters", detail)
    notes = _notes(row.get("notes", {}), limits)
    if PROMPT in row:
        notes[PROMPT] = _prompt(row[PROMPT])
    evidence = _evidence(row.get("evidence", []), limits)
    return Prediction(row["question_id"], row["answer"], evidence, _usage(row.get("usage", {})), notes, **_record(row, limits))


def _record(row: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    """Return the fields of a row that describe how the system obtained its answer."""
    try:
        fields = read_record(row)
    except Malformed as error:
        raise wrong(error.name, error.wanted, error.value) from None
    for name in ("contexts", "statements", "searches"):
        if len(fields.get(name, ())) > limits.evidence:
            raise Bad("too_much_evidence", f"a row has more than {limits.evidence} {name}", str(len(fields[name])))
    contexts = fields.get("contexts", ())
    if (size := sum(len(item.text) for item in contexts)) > limits.contexts_chars:
        raise Bad("contexts_too_long", f"the contexts of a row are longer than {limits.contexts_chars} characters", f"{size} characters")
    if (longest := max((len(name) for item in contexts for name in (item.id, item.url)), default=0)) > limits.url_chars:
        raise Bad("bad_id", f"an id or url of a context is longer than {limits.url_chars} characters", f"{longest} characters")
    if "contexts" in fields:
        # The passages in a context are matched here; submitted matches are ignored.
        fields["contexts"] = tuple(replace(item, matched=None) for item in contexts)
    return fields


def _evidence(items: Any, limits: Limits) -> tuple[Evidence, ...]:
    if not isinstance(items, list):
        raise wrong("evidence", "a list", items)
    if len(items) > limits.evidence:
        raise Bad("too_much_evidence", f"a row has more than {limits.evidence} items of evidence", str(len(items)))
    results = []
    for rank, item in enumerate(items, 1):
        if isinstance(item, str):
            raise wrong(f"evidence {rank}", 'an object {"id": …, "score": …}', item)
        if not isinstance(item, dict):
            raise wrong(f"evidence {rank}", "an object", item)
        for key in item:
            if key not in ("id", "score"):
                raise _unknown_key(key, ("id", "score"), "evidence")
        if not isinstance(item.get("id"), str) or not 0 < len(item["id"]) <= limits.id_chars:
            raise wrong(f"id of evidence {rank}", f"a text of 1 to {limits.id_chars} characters", item.get("id"))
        results.append(Evidence(item["id"], _number(f"score of evidence {rank}", item.get("score", 0.0), signed=True)))
    return tuple(results)


def _usage(options: Any) -> Usage:
    if not isinstance(options, dict):
        raise wrong("usage", "an object", options)
    for key in options:
        if key not in Usage.__slots__:
            raise _unknown_key(key, Usage.__slots__, "usage")
    for name in _COUNTS:
        value = options.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _LARGEST:
            raise wrong(f"usage.{name}", "a whole number from 0 on", value)
    stages = options.get("seconds", {})
    if not isinstance(stages, dict):
        raise wrong("usage.seconds", 'an object by stage, e.g. {"retrieve": 0.1, "read": 1.2},', stages)
    seconds = {_stage(stage): _number(f"usage.seconds.{stage}", spent) for stage, spent in stages.items()}
    cost = _number("usage.cost_usd", options.get("cost_usd", 0.0))
    for name, value in (("cost_usd", cost), *((f"seconds.{stage}", spent) for stage, spent in seconds.items())):
        if value >= _LARGEST:
            raise Bad("huge_number", "a number is too large", f"usage.{name} is {value:g}")
    return Usage(**{name: options.get(name, 0) for name in _COUNTS}, seconds=seconds, cost_usd=cost)


def _stage(name: str) -> str:
    if len(name) > _STAGE_CHARS:
        raise Bad("bad_id", f"a stage's name is longer than {_STAGE_CHARS} characters", shown(name))
    return name


def _notes(notes: Any, limits: Limits) -> dict[str, Any]:
    if not isinstance(notes, dict):
        raise wrong("notes", "an object", notes)
    if PROMPT in notes:
        raise Bad("misplaced_prompt", "notes contain a prompt", try_this='make "prompt" a key of the row')
    size = len(json.dumps(notes, ensure_ascii=False)) if notes else 0
    if size > limits.notes_chars:
        raise Bad("notes_too_long", f"notes are longer than {limits.notes_chars} characters", f"{size} characters")
    if FAILED in notes and not isinstance(notes[FAILED], str):
        raise wrong(f"notes.{FAILED}", "a text that gives the reason why there is no answer", notes[FAILED])
    if ANSWERABLE in notes and not isinstance(notes[ANSWERABLE], bool):
        raise wrong(f"notes.{ANSWERABLE}", "true or false", notes[ANSWERABLE])
    if SCRIPTED in notes and not isinstance(notes[SCRIPTED], str):
        raise wrong(f"notes.{SCRIPTED}", "a text that names the script", notes[SCRIPTED])
    if TRUNCATED in notes and not _is_cut(notes[TRUNCATED]):
        raise wrong(f"notes.{TRUNCATED}", 'an object {"unit": "tokens", "kept": 90, "of": 100}', notes[TRUNCATED])
    support, triples = notes.get(SUPPORT, []), notes.get(TRIPLES, [])
    if support_claims(support) is None:
        raise wrong(f"notes.{SUPPORT}", "a list of ids of passages and of sentences [passage id, index]", support)
    well_formed = isinstance(triples, list) and all(
        isinstance(triple, list) and len(triple) == 3 and all(isinstance(part, str) for part in triple) for triple in triples
    )
    if not well_formed:
        raise wrong(f"notes.{TRIPLES}", "a list of [head, relation, tail]", triples)
    endpoints = notes.get(ENDPOINTS, [])
    if not isinstance(endpoints, list) or not all(isinstance(item, dict) for item in endpoints):
        raise wrong(f"notes.{ENDPOINTS}", 'a list of objects {"asked": …, "model": …}', endpoints)
    return dict(notes)


def _is_cut(value: Any) -> bool:
    """Return whether a value says how much of a context was kept."""
    if not isinstance(value, dict):
        return False
    kept, of = value.get("kept"), value.get("of")
    if isinstance(kept, bool) or isinstance(of, bool) or not isinstance(kept, int) or not isinstance(of, int):
        return False
    return isinstance(value.get("unit"), str) and 0 <= kept <= of


def _prompt(prompt: Any) -> list[dict[str, str]]:
    """Convert prompts to messages: from a text, a list of texts, or a list of {role, content}."""
    messages = prompt if isinstance(prompt, list) else [prompt]
    results = []
    for message in messages:
        if isinstance(message, str):
            results.append({"role": "user", "content": message})
            continue
        if not isinstance(message, dict) or set(message) != {"role", "content"}:
            raise wrong("prompt", "a text, a list of texts, or a list of {role, content}", message)
        if message["role"] not in _ROLES or not isinstance(message["content"], str):
            raise wrong("prompt", f"a role among {', '.join(_ROLES)} and a text as content", message)
        results.append({"role": message["role"], "content": message["content"]})
    return results


def _number(name: str, value: Any, *, signed: bool = False) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong(name, "a number", value)
    if value < 0 and not signed:
        raise wrong(name, "a number from 0 on", value)
    if not math.isfinite(value):
        raise wrong(name, "a finite number", value)
    return float(value)


def wrong(name: str, wanted: str, value: Any) -> Bad:
    """Make the error for a field whose value has the wrong type."""
    hint = None
    if isinstance(value, str) and re.fullmatch(r"\s*-?[0-9.]+([eE][+-]?[0-9]+)?\s*", value[:40]):
        hint = "write the number without quotes"
    actual = "null" if value is None else f"{_kind(value)} {shown(value, 40)}"
    detail = f"{shown(name)[1:-1]} must be {wanted.rstrip(',')}, not {actual}"
    return Bad("wrong_type", "a field has the wrong type", detail, hint)


def _unknown_key(key: str, known: tuple[str, ...], of: str) -> Bad:
    if key in SCORE_KEYS or (of == "a row" and key.partition("@")[0] in METRICS):
        return Bad(
            "own_scores",
            "a row carries scores of its own",
            shown(key),
            "remove them: scores are always computed here, from the predictions",
        )
    guess = (_OTHER_NAMES.get(key.lower()) if of == "a row" else None) or nearest(key[:64], known)
    hint = f"did you mean {guess!r}?" if guess else f"known keys of {of}: {', '.join(known)}"
    return Bad("unknown_key", "an unknown key", f"{shown(key)} in {of}: {hint}")


def _kind(value: Any) -> str:
    names: Mapping[type, str] = {
        dict: "an object",
        list: "a list",
        str: "the text",
        bool: "the truth value",
        int: "the number",
        float: "the number",
        type(None): "null",
    }
    return names[type(value)]
