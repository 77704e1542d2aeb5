"""Damaged and packed files, through the loaders of long documents and training rows."""

import codecs
import gzip
import io
import json
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.core.errors import UserError
from benchmarks.registry import load, resolve
from tests.support.errors import raises
from tests.support.hub_server import HubServer, Repository

ODD = "one\u2028two\x85three\0four\u200b\r\nfive ﬁ\U0001f600"
"""Unicode line separators, a NUL, a line break inside a string, and characters beyond the basic plane."""


def longbench(number, text="Ada was born in Zoll."):
    return {
        "input": f"Where was number {number} born?",
        "context": f"{text} {number}",
        "answers": ["Zoll"],
        "length": 5,
        "dataset": "qasper",
        "language": "en",
        "all_classes": None,
        "_id": str(number),
    }


def ultradomain(number, text="Ada was born in Zoll."):
    return {
        "input": f"Where was number {number} born?",
        "context": f"{text} {number}",
        "answers": ["Zoll"],
        "context_id": f"c{number}",
        "_id": str(number),
        "label": "biology",
        "meta": {"title": "Lives", "authors": ""},
    }


def described(number, text="Ada was born in Zoll."):
    return {"data_type": "qa", "question": [f"Where was number {number} born?"], "answers": ["Zoll"], "docs": [f"{text} {number}"]}


def joint(number, text="Ada was born in Zoll."):
    return {
        "question": f"Where was number {number} born?",
        "golden_answers": ["Zoll"],
        "docs": ["Something else.", f"{text} {number}"],
        "pos_index": [1],
    }


def tuning(number, text="Ada was born in Zoll."):
    return {"query": f"Where was number {number} born?", "docs": [f"{text} {number}", "Something else."], "mistral_label": "Zoll"}


RECORDS = {
    "longbench/qasper:test": longbench,
    "ultradomain/biology:test": ultradomain,
    "clara_stages/pretraining:train": described,
    "clara_stages/e2e_training_nq_with_pos:train": joint,
    "pisco:train": tuning,
}
every = pytest.mark.parametrize("reference", RECORDS)


def lines(reference, count=3, end="\n", **options):
    return "".join(json.dumps(RECORDS[reference](number, **options), ensure_ascii=False) + end for number in range(count))


def read(folder, reference, content, name="records.jsonl", **options):
    path = folder / name
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return load(reference, {"path": str(path), **options})


def texts(benchmark):
    return "\n".join(passage.text for passage in benchmark.corpus)


@every
def test_equal_records_in_every_file_format_give_the_same_benchmark(tmp_path, reference):
    plain = lines(reference)
    array = "[" + ",\n".join(plain.splitlines()) + "]"
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("data/records.jsonl", plain)
    expected = read(tmp_path, reference, plain)
    assert len(expected.questions) == 3
    packed = {
        "marked.jsonl": codecs.BOM_UTF8 + plain.encode(),
        "crlf.jsonl": lines(reference, end="\r\n"),
        "open.jsonl": plain.removesuffix("\n"),
        "array.json": array,
        "records.jsonl.gz": gzip.compress(plain.encode()),
        "compressed-without-saying-so.jsonl": gzip.compress(plain.encode()),
    }
    results = {name: read(tmp_path, reference, content, name) for name, content in packed.items()}
    (tmp_path / "data.zip").write_bytes(zipped.getvalue())
    results["data.zip"] = load(reference, {"path": str(tmp_path / "data.zip!data/records.jsonl")})
    assert {name: benchmark.fingerprint for name, benchmark in results.items()} == dict.fromkeys(results, expected.fingerprint)


@every
def test_unusual_characters_are_preserved(tmp_path, reference):
    benchmark = read(tmp_path, reference, lines(reference, text=ODD))
    assert len(benchmark.questions) == 3
    assert texts(benchmark).count(ODD) == 3
    # A raw NUL inside a string is not valid JSON, but occurs in some files.
    raw = lines(reference, text=ODD).replace("\\u0000", "\0")
    assert read(tmp_path, reference, raw, "raw.jsonl").fingerprint == benchmark.fingerprint


@every
def test_truncated_last_line_is_reported_and_can_be_skipped(tmp_path, reference):
    cut = lines(reference)[:-20]
    with pytest.raises(UserError, match="cut off") as caught:
        read(tmp_path, reference, cut)
    assert "records.jsonl, line 3" in caught.value.where
    benchmark = read(tmp_path, reference, cut, skip_bad=True)
    assert len(benchmark.questions) == 2
    assert [("line 3" in skip.where, "cut off" in skip.reason) for skip in benchmark.skipped] == [(True, True)]


@every
@pytest.mark.parametrize(("line", "response"), [("", "the line is empty"), ("7", "must be an object"), ('{"a": "\udcff"}', "not UTF-8")])
def test_invalid_line_is_reported_and_can_be_skipped(tmp_path, reference, line, response):
    first, rest = lines(reference).split("\n", 1)
    content = f"{first}\n{line}\n{rest}".encode("utf-8", "surrogateescape")
    with pytest.raises(UserError, match=response) as caught:
        read(tmp_path, reference, content)
    assert "line 2" in caught.value.where
    benchmark = read(tmp_path, reference, content, skip_bad=True)
    assert len(benchmark.questions) == 3
    assert len(benchmark.skipped) == 1


@every
@pytest.mark.parametrize(
    ("content", "response"),
    [
        (b"", "empty-file"),
        (b"\n\n", "empty-file"),
        ("{}".encode("utf-16"), "not-utf8"),
        (gzip.compress(b"{}" * 99, mtime=0)[:-9], "damaged-archive"),
    ],
)
def test_unreadable_file_is_an_error_even_with_skip_bad(tmp_path, reference, content, response):
    with raises(response) as caught:
        read(tmp_path, reference, content, skip_bad=True)
    assert "records.jsonl" in caught.value.where


@every
def test_file_with_only_bad_records_is_an_error(tmp_path, reference):
    with raises("no-record-in-file"):
        read(tmp_path, reference, '{"a": 1}\n{"b": 2}\n', skip_bad=True)


NAMES = {
    "longbench/qasper:test": ("data.zip", "data/qasper.jsonl"),
    "ultradomain/biology:test": ("biology.jsonl", None),
    "clara_stages/pretraining:train": ("pretraining.jsonl", None),
    "clara_stages/e2e_training_nq_with_pos:train": ("e2e_training_nq_with_pos.jsonl", None),
    "pisco:train": ("data/train-00000-of-00001.parquet", None),
}


def packed(reference):
    """Return the repository's file as stored on the hub."""
    name, member = NAMES[reference]
    if name.endswith(".parquet"):
        table = pa.Table.from_pylist([RECORDS[reference](number) for number in range(3)])
        sink = io.BytesIO()
        pq.write_table(table, sink)
        return {name: sink.getvalue()}
    content = lines(reference).encode()
    if member:
        sink = io.BytesIO()
        with zipfile.ZipFile(sink, "w") as archive:
            archive.writestr(member, content)
            archive.writestr("data/other.jsonl", b"{}")
        content = sink.getvalue()
    return {name: content}


@every
def test_hub_and_file_give_the_same_questions(tmp_path, monkeypatch, reference):
    monkeypatch.delenv("RAGMETER_DATA", raising=False)
    entry = resolve(reference)[1]
    files = packed(reference)
    with HubServer({entry.card.hub_id: Repository(files)}).as_hub(tmp_path):
        fetched = load(reference, {"revision": "main"})
    local = read(tmp_path, reference, lines(reference))
    assert [(q.id, q.text, q.golds) for q in fetched.questions] == [(q.id, q.text, q.golds) for q in local.questions]
    assert fetched.corpus.fingerprint == local.corpus.fingerprint
    assert list(fetched.extra["source"]["files"]) == list(files)
    assert fetched.extra["source"]["hub"] == entry.card.hub_id
