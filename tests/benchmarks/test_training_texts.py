"""Texts of training files: formats, positions, and which files of a folder are read."""

import csv
import gzip
import json
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.leakage import contamination
from benchmarks.training_texts import texts, training_files, unit
from tests.support.errors import raises
from tests.support.training_files import PASSAGE, QUESTION_TEXT, lines


def write_csv(path, delimiter=","):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter).writerows([["id", "text"], ["1", "a\nb"], ["2", QUESTION_TEXT]])


def write_zip(path):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("in/t.jsonl", json.dumps({"a": "x"}) + "\n" + json.dumps({"a": QUESTION_TEXT}) + "\n")


ROWS = [{"a": "x"}, {"a": QUESTION_TEXT}]
FORMATS = {
    "t.jsonl": (lambda path: lines(path, *ROWS), ":2"),
    "t.json": (lambda path: path.write_text(json.dumps(ROWS, indent=1)), ", record 2"),
    "one.json": (lambda path: path.write_text(json.dumps({"data": ROWS}, indent=1)), ":1"),
    "lines.json": (lambda path: lines(path, *ROWS), ":2"),
    "strings.jsonl": (lambda path: lines(path, "x", QUESTION_TEXT), ":2"),
    "t.csv": (write_csv, ":4"),
    "t.tsv": (lambda path: write_csv(path, "\t"), ":4"),
    "t.txt": (lambda path: path.write_text(f"[x]\n{QUESTION_TEXT}\n"), ":2"),
    "wrapped.md": (lambda path: path.write_text("x y\n" + QUESTION_TEXT.replace(" ", "\n")), ":2"),
    "unnamed": (lambda path: path.write_text(f"x\n{QUESTION_TEXT}\n"), ":2"),
    "t.jsonl.gz": (lambda path: path.write_bytes(gzip.compress(json.dumps(ROWS[1]).encode())), ":1"),
    "t.csv.gz": (lambda path: path.write_bytes(gzip.compress(f"a,b\nx,{QUESTION_TEXT}\n".encode())), ":2"),
    "t.parquet": (lambda path: pq.write_table(pa.Table.from_pylist(ROWS), path), ", row 2"),
    "t.zip!in/t.jsonl": (lambda path: write_zip(path.parent.parent / "t.zip"), ":2"),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_file_format_is_read_with_positions_in_the_file(name, benchmark_of, tmp_path):
    write, position = FORMATS[name]
    path = tmp_path / name
    write(path)
    (item,) = contamination([benchmark_of((QUESTION_TEXT, ("x",), PASSAGE))], training_files(path)).overlaps
    assert item.share == 1
    assert item.first == f"{path}{position}"


def test_listed_sentences_are_joined_but_fields_are_not(tmp_path):
    path = lines(tmp_path / "t.jsonl", {"a": ["x", "y"], "b": "z", "c": [["u"], ["v"]], "n": 3})
    assert [(text.text, text.joined) for text in texts(path)] == [("x", False), ("y", True), ("z", False), ("u", False), ("v", False)]


def test_folder_lists_its_training_files_by_name(tmp_path):
    for name in ("b.jsonl", "a/c.txt.gz", "image.bin"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    assert training_files(tmp_path) == [tmp_path / "a/c.txt.gz", tmp_path / "b.jsonl"]
    (tmp_path / "empty").mkdir()
    with raises("folder-without-training-file"):
        training_files(tmp_path / "empty")
    with raises("missing-file"):
        training_files(tmp_path / "none.jsonl")


def test_position_unit_depends_on_the_file_format(tmp_path):
    assert unit(lines(tmp_path / "a.jsonl", {"a": "x"})) == "line"
    (tmp_path / "b.jsonl").write_text('[{"a": "x"}]')
    assert unit(tmp_path / "b.jsonl") == "record"
