"""Data that would load silently and be scored wrongly: refused, or reported in a note."""

from __future__ import annotations

import bz2
import io
import json
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.core.errors import UserError
from benchmarks.registry import Benchmark, load

PAPER: dict[str, Any] = {
    "input": "Where is the works?", "context": "The works is in Metz. " * 200, "answers": ["Metz"], "length": 900,
    "dataset": "qasper", "language": "en", "all_classes": None, "_id": "1",
}  # fmt: skip
OPEN = {"question": "where is the works", "answer": ["Metz"]}


def loaded(reference: str, folder: Path, content: bytes | str, name: str = "data.jsonl") -> Benchmark:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return load(reference, {"path": str(path)})


def zipped(*names: str) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for name in names:
            file.writestr(name, json.dumps(PAPER))
    return archive.getvalue()


@pytest.mark.parametrize(
    ("reference", "content", "says"),
    [
        ("longbench/qasper:test", json.dumps(PAPER | {"length": float("nan")}), "'length' is NaN"),
        ("longbench/qasper:test", json.dumps(PAPER | {"length": "900"}), "'length' is '900'"),
        ("longbench/qasper_e:test", json.dumps({name: value for name, value in PAPER.items() if name != "length"}), "'length'"),
        ("longbench/qasper:test", json.dumps(PAPER | {"all_classes": "City"}), "'all_classes' is a string"),
        ("longbench/qasper:test", json.dumps(PAPER | {"meta": {"x": [1, float("inf")]}}), "Infinity"),
        ("longbench/qasper:test", json.dumps(PAPER | {"input": PAPER["context"], "context": PAPER["input"]}), "the two fields are swapped"),
        ("nq/open:test", '{"question": "a", "question": "b", "answer": ["x"]}', "'question' stands twice"),
        ("nq/open:test", json.dumps([OPEN, OPEN]).replace('"answer"', '"answer": ["x"], "answer"', 1), "record 1"),
        ("nq/open:test", json.dumps({"question": "word " * 300_000, "answer": ["x"]}), "1,500,000 characters"),
        ("nq/open:test", "\n".join(json.dumps({"question": f"Metz {n}", "answer": [f"where is {n}?"]}) for n in range(3)), "swap"),
        ("nq/dpr:dev", "['Metz']\twhere is the works\n", "put the question first"),
        ("nq/dpr:dev", "where is the works,['Metz']\n", "by a tab, not by a comma"),
        ("nq/open:test", b"\x28\xb5\x2f\xfd" + b"x" * 99, "unzstd"),
        ("nq/open:test", b"7z\xbc\xaf\x27\x1c" + b"x" * 99, "7z x"),
        ("nq/open:test", b"x" * 257 + b"ustar" + bytes(250), "tar -xf"),
        ("nq/open:test", bz2.compress(json.dumps(OPEN).encode())[:-9], "cut off"),
        ("nq/open:test", "<!DOCTYPE html>", "web page"),
        ("nq/open:test", bytes(range(256)), "binary"),
        ("longbench/qasper:test", zipped("a.jsonl", "b.jsonl"), "data.jsonl!a.jsonl"),
    ],
)
def test_input_that_would_be_scored_wrongly_is_refused(reference: str, content: bytes | str, says: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        loaded(reference, tmp_path, content)
    assert says in str(caught.value)
    assert caught.value.try_this


@pytest.mark.parametrize("compress", [bz2.compress, lzma.compress])
def test_compressed_file_is_read(compress: Callable[[bytes], bytes], tmp_path: Path) -> None:
    rows = "\n".join(json.dumps({"question": f"where is {n}?", "answer": ["Metz"]}) for n in range(3))
    assert len(loaded("nq/open:test", tmp_path, compress(rows.encode())).questions) == 3


def test_nul_characters_and_strings_instead_of_lists_are_noted(tmp_path: Path) -> None:
    benchmark = loaded("longbench/qasper:test", tmp_path, json.dumps(PAPER | {"input": "Where\0?", "answers": "Metz"}))
    assert benchmark.questions[0].answers == ("Metz",)
    assert [note.split()[0] for note in benchmark.extra["notes"]] == ["1", "1"]
    assert {"NUL", "string"} <= set(" ".join(benchmark.extra["notes"]).split())


@pytest.mark.parametrize("answers", ["['Metz', 'Lyon']", '["Metz", "Lyon"]', ["Metz", "Lyon"]])
def test_list_encoded_as_a_string_is_decoded(answers: Any, tmp_path: Path) -> None:
    assert loaded("longbench/qasper:test", tmp_path, json.dumps(PAPER | {"answers": answers})).questions[0].answers == ("Metz", "Lyon")


def test_header_of_a_dpr_file_is_skipped(tmp_path: Path) -> None:
    assert len(loaded("nq/dpr:dev", tmp_path, "question\tanswers\nwhere is it\t['Metz']\n").questions) == 1


def test_only_file_of_an_archive_is_read_under_any_name(tmp_path: Path) -> None:
    assert len(loaded("longbench/qasper:test", tmp_path, zipped("folder/some.json")).questions) == 1


def test_blank_answers_are_dropped_and_repeated_answers_kept(tmp_path: Path) -> None:
    (question,) = loaded("longbench/qasper:test", tmp_path, json.dumps(PAPER | {"answers": ["Yes", "", "Yes"]})).questions
    assert (question.answers, question.wanted, question.metadata["listed"]) == (("Yes", "Yes"), ("Yes",), ("Yes", "", "Yes"))
