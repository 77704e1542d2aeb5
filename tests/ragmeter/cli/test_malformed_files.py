"""Malformed files in real layouts: each loads, or is refused with its name and a remedy, without a traceback."""

from __future__ import annotations

import gzip
import io
import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.evaluator_files import CASES, write

Call = Callable[..., Any]
KINDS: tuple[Any, ...] = (None, 7, float("nan"), "", "text", [], ["x"], [["x", 1]], {}, {"x": 1}, True)


def texts(raw: bytes) -> dict[str, bytes]:
    """Yield the same bytes in other encodings, truncated and packed."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("folder/data.jsonl", raw)
    packed = gzip.compress(raw)
    return {
        "empty": b"",
        "blank": b" \n \n",
        "BOM": b"\xef\xbb\xbf" + raw,
        "UTF-16": raw.decode().encode("utf-16"),
        "Latin-1": raw + "é".encode("latin-1"),
        "half": raw[: len(raw) // 2],
        "one byte less": raw[:-1],
        "twice": raw + raw,
        "an array in an array": b"[" + raw.strip() + b"]",
        "a byte that is no text": raw[:40] + b"\xff" + raw[40:],
        "NUL": raw.replace(b"uestion", b"uest\0ion", 1),
        "gzip": packed,
        "half a gzip": packed[: len(packed) // 2],
        "zip": archive.getvalue(),
        "half a zip": archive.getvalue()[:-30],
        "CRLF": raw.replace(b"\n", b"\r\n"),
        "deep": b'[{"question": ' + b"[" * 5000 + b"]" * 5000 + b"}]",
        "a web page": b"<!DOCTYPE html><html></html>",
        "numbers": b"1\n2\n",
        "a long number": raw.replace(b"0", b"1" * 5000, 1),
        "half a surrogate": raw.replace(b"Question", b"\\ud800", 1),
        "a key twice": raw.replace(b'"question":', b'"question": "other", "question":', 1),
    }


def fields(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Yield the records with one field of the first record missing, or of another type."""
    changed = {"no record": [], "the first record twice": [rows[0], *rows]}
    for name in rows[0]:
        changed[f"no {name}"] = [{key: value for key, value in rows[0].items() if key != name}, *rows[1:]]
        for kind in KINDS:
            changed[f"{name}: {kind!r}"] = [{**rows[0], name: kind}, *rows[1:]]
    return changed


def mutations(name: str, folder: Path) -> tuple[str, dict[str, bytes]]:
    """Return the reference of a data file, and its mutations."""
    case = CASES[name][1](random.Random(f"{name} 3"))
    raw = write(case, folder)[0].read_bytes()
    array = case.reference.startswith(("hotpotqa", "2wiki"))
    made = texts(raw)
    for label, rows in fields(case.rows).items():
        text = json.dumps(rows) if array else "".join(json.dumps(row) + "\n" for row in rows)
        made[label] = text.encode("utf-8", "surrogatepass")
    return case.reference, made


def require_plain(done: Any, path: Path, label: str) -> None:
    """Check that a command loaded the file, or refused it with a message that names it."""
    output = done.out + done.err
    assert "Traceback" not in output, label
    assert "bug in the loader" not in output, (label, output)
    assert done.code in (0, 2), (label, done.code, output)
    if done.code == 2:
        assert path.name in output.replace("\n", ""), (label, output)


def require_all_plain(made: dict[str, bytes], path: Path, call: Call, *command: str) -> None:
    for label, raw in made.items():
        path.write_bytes(raw)
        require_plain(call(*command), path, label)


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the path of the malformed file."""
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setenv("RAGMETER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "broken.jsonl"


@pytest.mark.parametrize("name", ["2wiki", "musique full", "longbench", "squad"])
def test_malformed_data_file_loads_or_is_refused_by_name(name: str, call: Call, path: Path, tmp_path: Path) -> None:
    reference, made = mutations(name, tmp_path / "case")
    picked = [*list(made)[:22], *random.Random(name).sample(list(made)[22:], 12)]
    require_all_plain({label: made[label] for label in picked}, path, call, "data", "sample", reference, "--set", f"path={path}")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CASES))
def test_every_malformed_data_file_loads_or_is_refused_by_name(name: str, call: Call, path: Path, tmp_path: Path) -> None:
    reference, made = mutations(name, tmp_path / "case")
    assert len(made) > 50
    require_all_plain(made, path, call, "data", "sample", reference, "--set", f"path={path}")


@pytest.mark.parametrize("name", sorted(CASES))
def test_malformed_predictions_are_refused_without_traceback(name: str, call: Call, path: Path, tmp_path: Path) -> None:
    case = CASES[name][1](random.Random(f"{name} 3"))
    data, predictions = write(case, tmp_path / "case")
    options = ["--format", CASES[name][0], "--method", "theirs@1", "--benchmark", case.reference, "--set", f"path={data}"]
    made = texts(predictions.read_bytes())
    require_all_plain(made, path, call, "submit", "check", str(path), *options, "--store", str(tmp_path / "store"))
