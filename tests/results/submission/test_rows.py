"""Lines and rows of a predictions file: what is read, and every way of refusing it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from methods.api import Evidence, Prediction, Usage
from results.offered import LIMITS, Limits
from results.submission import Finding, Findings
from results.submission.rows import PROMPT, PredictionRow, jsonl_rows, lines

SMALL = replace(LIMITS, line_bytes=200, chunk_bytes=16, file_bytes=10_000)


def read(raw: bytes, limits: Limits = LIMITS) -> tuple[list[PredictionRow], tuple[Finding, ...]]:
    findings = Findings()
    rows = list(jsonl_rows(io.BytesIO(raw), findings, limits))
    return rows, findings.all()


def refusal(raw: bytes, limits: Limits = LIMITS) -> tuple[str, int | None, str]:
    """Code, line and detail of the one problem of a file."""
    rows, findings = read(raw, limits)
    assert rows == []
    (finding,) = findings
    assert finding.severity == "error"
    position = finding.positions[0] if finding.positions else None
    return finding.code, position.line if position else None, position.detail if position else ""


def row(**fields: object) -> bytes:
    return json.dumps({"question_id": "q1", "answer": "a"} | fields).encode()


def test_a_row_is_read_as_the_prediction_that_it_says() -> None:
    prediction = Prediction(
        "q1",
        "Zürich 🏔",
        (Evidence("p1", 0.5), Evidence("p2#3", -1.0)),
        Usage(10, 2, 0, 1, {"read": 0.25}, 7, 0.001),
        {"support": ["p1"], "mine": {"deep": [1, None]}},
    )
    (result,), findings = read(json.dumps(prediction.to_json()).encode())
    assert (result.line, result.prediction, findings) == (1, prediction, ())


def test_prompts_become_messages_in_the_notes() -> None:
    texts = [row(prompt="one"), row(prompt=["one", "two"]), row(prompt=[{"role": "assistant", "content": "three"}])]
    results = [item.prediction.notes[PROMPT] for item in read(b"\n".join(texts))[0]]
    assert [[message["role"] for message in messages] for messages in results] == [["user"], ["user"] * 2, ["assistant"]]
    assert results[2] == [{"role": "assistant", "content": "three"}]


@pytest.mark.parametrize(
    ("raw", "code", "detail"),
    [
        (b'{"question_id": "q", "anwser": "a", "answer": ""}', "unknown_key", "did you mean 'answer'"),
        (b'{"question_id": "q", "text": "a"}', "unknown_key", "did you mean 'answer'"),
        (b'{"_id": "q", "answer": "a"}', "unknown_key", "did you mean 'question_id'"),
        (row(usage={"prompt_token": 3}), "unknown_key", "did you mean 'prompt_tokens'"),
        (row(evidence=[{"id": "p", "scores": 1}]), "own_scores", "scores"),
        (row(scores={"em": 1.0}), "own_scores", "scores"),
        (row(f1=1.0), "own_scores", "f1"),
        (b'{"answer": "a"}', "missing_field", ""),
        (b'{"question_id": 7, "answer": "a"}', "wrong_type", "question_id must be a text, not the number 7"),
        (b'{"question_id": "q", "answer": null}', "wrong_type", "answer must be a text, not null"),
        (row(evidence={"id": "p"}), "wrong_type", "evidence must be a list"),
        (row(evidence=["p"]), "wrong_type", "evidence 1"),
        (row(evidence=[{"score": 1.0}]), "wrong_type", "id of evidence 1"),
        (row(evidence=[{"id": "p", "score": "0.9"}]), "wrong_type", "must be a number, not the text '0.9'"),
        (row(evidence=[{"id": "p", "score": True}]), "wrong_type", "truth value"),
        (row(usage={"prompt_tokens": 1.5}), "wrong_type", "whole number"),
        (row(usage={"prompt_tokens": "12"}), "wrong_type", "whole number"),
        (row(usage={"model_calls": -1}), "wrong_type", "whole number"),
        (row(usage={"seconds": 1.0}), "wrong_type", "by stage"),
        (row(usage={"cost_usd": -0.5}), "wrong_type", "from 0 on"),
        (row(notes={"failed": True}), "wrong_type", "notes.failed"),
        (row(notes={"support": "p1"}), "wrong_type", "notes.support"),
        (row(notes={"scripted": 5}), "wrong_type", "notes.scripted"),
        (row(notes={"truncated": -3}), "wrong_type", "notes.truncated"),
        (row(notes={"truncated": {"unit": "tokens", "kept": -3, "of": 5}}), "wrong_type", "notes.truncated"),
        (row(usage={"cost_usd": 1e308}), "huge_number", "usage.cost_usd"),
        (row(usage={"seconds": {"read": 1e300}}), "huge_number", "usage.seconds.read"),
        (row(notes={"endpoints": "x"}), "wrong_type", "notes.endpoints"),
        (row(notes={"endpoints": ["x"]}), "wrong_type", "notes.endpoints"),
        (row(notes={"endpoints": {"asked": "x"}}), "wrong_type", "notes.endpoints"),
        (row(notes={"triples": [["a", "b"]]}), "wrong_type", "notes.triples"),
        (row(notes={"prompt": "x"}), "misplaced_prompt", ""),
        (row(prompt={"text": "x"}), "wrong_type", "prompt"),
        (row(prompt=[{"role": "oracle", "content": "x"}]), "wrong_type", "prompt"),
        (b'{"question_id": "q", "answer": NaN}', "not_finite", ""),
        (b'{"question_id": "q", "answer": "a", "usage": {"cost_usd": Infinity}}', "not_finite", ""),
        (b'{"question_id": "q", "answer": "a", "usage": {"cost_usd": 1e999}}', "huge_number", "1e999"),
        (b'{"question_id": "q", "answer": "a", "usage": {"cost_usd": ' + b"9" * 5000 + b"}}", "huge_number", "5000"),
        (b'{"question_id": "q", "answer": "a", "answer": "b"}', "duplicate_key", "answer"),
        (row(notes={"a": json.loads("[" * 30 + "]" * 30)}), "too_deep", ""),
        (b'{"question_id": "q", "answer": "a", "notes": {"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}", "too_deep", ""),
        (b"[1, 2]", "not_object", "a list"),
        (b'"text"', "not_object", "the text"),
        (b'{"question_id": "q", "answer": "a"', "not_json", "column"),
        (b'[{"question_id": "q", "answer": "a"}, ', "not_json", "column"),
        (b'{"question_id": "q", "answer": "\xff"}', "not_utf8", "byte 0xff at column 33"),
        (b'{"question_id": "q", "answer": "a\x00"}', "nul", "column 34"),
        (b'{"question_id": "q", "answer": "a\\u0000"}', "nul", ""),
        (b'{"question_id": "q", "answer": "\\ud83d"}', "surrogate", "\\ud83d"),
        (b'{"question_id": "\xed\xa0\xbd", "answer": "a"}', "not_utf8", "0xed"),
        (b"\xff\xfe{\x00}\x00", "not_text", ""),
        (b"\x1f\x8b\x08\x00abcdef", "not_text", ""),
        (b"\x80\x04\x95\x10\x00\x00\x00", "not_text", ""),
        (b"PK\x03\x04abcdef", "not_text", ""),
        (b"", "empty", ""),
        (row(answer="x" * 100_001), "answer_too_long", "100001"),
        (row(question_id="x" * 513), "bad_id", ""),
        (row(question_id=""), "bad_id", ""),
        (row(evidence=[{"id": str(i)} for i in range(1001)]), "too_much_evidence", "1001"),
        (row(notes={"long": "x" * 70_000}), "notes_too_long", ""),
        (row(usage={"seconds": {"s" * 65: 1}}), "bad_id", ""),
    ],
)
def test_what_is_no_row_is_refused_with_its_line_and_reason(raw: bytes, code: str, detail: str) -> None:
    result, line, response = refusal(raw)
    assert result == code
    assert line == 1
    assert detail in response


def test_an_escaped_backslash_before_u0000_is_no_nul() -> None:
    rows, findings = read(b'{"question_id": "q", "answer": "C:\\\\u0000"}')
    assert (rows[0].prediction.answer, findings) == ("C:\\u0000", ())


def test_a_pair_of_escaped_surrogates_is_one_character() -> None:
    assert read(b'{"question_id": "q", "answer": "\\ud83c\\udfd4"}')[0][0].prediction.answer == "🏔"


def test_a_byte_order_mark_is_skipped_and_noted() -> None:
    rows, (finding,) = read(b"\xef\xbb\xbf" + row() + b"\r\n")
    assert (len(rows), finding.code, finding.severity) == (1, "bom", "note")


def test_the_problems_of_one_kind_are_counted_and_the_first_are_listed() -> None:
    raw = b"\n".join([row(), *[b"{nonsense"] * 40, row(question_id="q2"), b"\xff"])
    rows, findings = read(raw)
    assert [item.line for item in rows] == [1, 42]
    not_json, not_utf8 = findings
    assert (not_json.count, [position.line for position in not_json.positions]) == (40, [2, 3, 4, 5, 6])
    assert (not_utf8.code, not_utf8.positions[0].line) == ("not_utf8", 43)


def test_a_line_beyond_the_limit_is_skipped_and_the_next_one_read() -> None:
    rows, (finding,) = read(b"\n".join([row(answer="x" * 300), row(), row(answer="y" * 300)]), SMALL)
    assert [item.line for item in rows] == [2]
    assert (finding.code, finding.count, [position.line for position in finding.positions]) == ("line_too_long", 2, [1, 3])


def test_a_file_beyond_the_limit_is_read_no_further() -> None:
    source = io.BytesIO((row() + b"\n") * 5000)
    findings = Findings()
    list(jsonl_rows(source, findings, SMALL))
    assert findings.count("file_too_long") == 1
    assert source.tell() <= SMALL.file_bytes + SMALL.chunk_bytes


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\0"), max_size=30), max_size=20), st.integers(1, 40))
def test_lines_are_those_that_a_whole_reading_would_give(texts: list[str], chunk: int) -> None:
    raw = "\n".join(["{}", *texts]).encode()
    findings = Findings()
    results = [(line.number, line.text) for line in lines(io.BytesIO(raw), findings, replace(LIMITS, chunk_bytes=chunk), 99)]
    wanted = [(number, text) for number, text in enumerate(["{}", *texts], 1) if text.encode().strip()]
    assert results == wanted
    assert findings.errors == 0


class Trickle(io.RawIOBase):
    """A pipe that gives a byte at a time."""

    def __init__(self, raw: bytes) -> None:
        self._raw = io.BytesIO(raw)

    def read(self, size: int = -1) -> bytes:
        return self._raw.read(1)


def test_a_slow_pipe_is_read_like_a_file() -> None:
    raw = b"\xef\xbb\xbf" + row() + b"\n" + row(question_id="q2")
    findings = Findings()
    rows = list(jsonl_rows(Trickle(raw), findings, LIMITS))  # type: ignore[arg-type]  # reads like one
    assert [item.prediction.question_id for item in rows] == ["q1", "q2"]


_PROBE = """
import resource, sys
from results.submission import Findings
from results.offered import LIMITS
from results.submission.rows import jsonl_rows
list(jsonl_rows(__import__("io").BytesIO(b'{"question_id": "q", "answer": "a"}'), Findings(), LIMITS))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
findings = Findings()
limits = __import__("dataclasses").replace(LIMITS, rows=20_000)
rows = sum(1 for _ in jsonl_rows(sys.stdin.buffer, findings, limits))
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(rows, (after - before) // 1024, *(f"{one.code}={one.count}" for one in findings.all()))
"""


def probe(writer: str) -> tuple[int, int, list[str]]:
    """Rows, MiB of memory that reading them added, and findings, for what a script writes into a pipe."""
    make = subprocess.Popen([sys.executable, "-c", textwrap.dedent(writer)], stdout=subprocess.PIPE)
    done = subprocess.run([sys.executable, "-c", _PROBE], stdin=make.stdout, capture_output=True, text=True)
    assert make.stdout is not None
    make.stdout.close()
    make.wait()
    assert done.returncode == 0, done.stderr
    rows, grown, *findings = done.stdout.split()
    return int(rows), int(grown), findings


@pytest.mark.slow
@pytest.mark.parametrize(
    ("megabytes", "rows", "findings"), [(250, 1, ["line_too_long=1"]), (300, 0, ["line_too_long=1", "file_too_long=1"])]
)
def test_a_line_of_hundreds_of_megabytes_costs_no_memory(megabytes: int, rows: int, findings: list[str]) -> None:
    result, grown, response = probe(f"""
        import sys
        try:
            sys.stdout.buffer.write(b'{{"question_id": "q", "answer": "')
            for _ in range({megabytes}):
                sys.stdout.buffer.write(b"x" * 1_000_000)
            sys.stdout.buffer.write(b'"}}\\n{{"question_id": "q2", "answer": "a"}}\\n')
        except BrokenPipeError:
            pass
    """)
    assert (result, response) == (rows, findings)
    assert grown < 24, f"{grown} MiB"


@pytest.mark.slow
def test_a_sparse_gigabyte_is_refused_without_reading_it_whole(tmp_path: Path) -> None:
    path = tmp_path / "sparse.jsonl"
    with open(path, "wb") as sink:
        sink.write(row() + b"\n")
        sink.truncate(2**30)
    findings = Findings()
    with open(path, "rb") as source:
        rows = list(jsonl_rows(source, findings, LIMITS))
        assert source.tell() <= LIMITS.file_bytes + LIMITS.chunk_bytes
    assert (len(rows), findings.count("file_too_long"), findings.count("line_too_long")) == (1, 1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("line", ["", "x", "{}"])
def test_endless_short_lines_stop_at_the_row_limit_without_memory(line: str) -> None:
    rows, grown, findings = probe(f"""
        import sys
        try:
            while True:
                sys.stdout.buffer.write(b"{line}\\n" * 1_000_000)
        except BrokenPipeError:
            pass
    """)
    assert rows == 0
    assert "too_many_rows=1" in findings
    assert grown < 24, f"{grown} MiB"
