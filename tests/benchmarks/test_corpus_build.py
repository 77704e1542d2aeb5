"""Corpora built from passage dumps: what is read and kept, and resuming a killed build."""

import csv
import errno
import gzip
import hashlib
import io
import json
import os
import signal
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import corpus_build, dumps
from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus
from benchmarks.corpus_build import build_corpus, open_corpus
from benchmarks.schema import Passage, passage_id
from tests.support.errors import raises


def dpr(rows, header=("id", "text", "title"), newline="\n"):
    """Return a dump as written by Python's csv module, like psgs_w100.tsv."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter="\t", lineterminator=newline)
    if header:
        writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue().encode()


def rows(count, start=1):
    """Return rows of a dump in which every tenth repeats earlier content, with quotes everywhere."""
    made = []
    for i in range(start, start + count):
        content = i - 3 if i % 10 == 0 else i
        made.append((str(i), f'Aaron ( or ; ""Ahärôn"" ) "{content}" \u2028 is\x00a prophet', f'A "{content % 7}" \U0001f600'))
    return made


def expected(rows):
    results = {}
    for _, text, title in rows:
        results.setdefault(passage_id(title, text), Passage(passage_id(title, text), title, text))
    return list(results.values())


def contents(folder):
    """Return the hash of every file of a folder by name."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(corpus_build, "BATCH_ROWS", 7)
    monkeypatch.setattr(corpus_build, "SHARD_RECORDS", 21)


def test_dpr_dump_gives_distinct_passages_in_order(tmp_path, small_shards):
    source = rows(100)
    (tmp_path / "psgs.tsv").write_bytes(dpr(source))
    corpus = build_corpus(tmp_path / "psgs.tsv", tmp_path / "built")
    assert list(corpus) == expected(source)
    assert len(list((tmp_path / "built").glob("passages-*.arrow"))) > 1
    assert corpus.fingerprint == Corpus.of(expected(source)).fingerprint
    card = json.loads((tmp_path / "built" / "corpus.json").read_text())
    assert (card["records"], card["passages"], card["repeated"], card["bad"]) == (100, 90, 10, 0)
    for position, passage in enumerate(expected(source)):
        assert corpus.row(passage.id) == position
    assert corpus.get([p.id for p in expected(source)[::-9]]) == expected(source)[::-9]
    assert "p" + "0" * 16 not in corpus
    assert "other" not in corpus


def test_every_native_id_maps_to_its_passage_including_duplicates(tmp_path, small_shards):
    source = rows(100)
    (tmp_path / "psgs.tsv").write_bytes(dpr(source))
    corpus = build_corpus(tmp_path / "psgs.tsv", tmp_path / "built")
    for native, text, title in source:
        assert corpus.by_native_id(native) == passage_id(title, text)
    assert corpus.by_native_id("0") is None
    assert Corpus.of(corpus).by_native_id("1") is None


def _variants(source):
    as_json = [{"id": native, "title": title, "text": text} for native, text, title in source]
    lines = lambda values: "".join(json.dumps(v, ensure_ascii=False) + "\n" for v in values).encode()  # noqa: E731
    return {
        "psgs.tsv": dpr(source),
        "crlf.tsv": dpr(source, newline="\r\n"),
        "bom.tsv": b"\xef\xbb\xbf" + dpr(source),
        "headless.tsv": dpr(source, header=None),
        "reordered.tsv": dpr([(i, title, text) for i, text, title in source], header=("id", "title", "text")),
        "psgs.tsv.gz": gzip.compress(dpr(source)),
        "lines.jsonl": lines(as_json),
        "lines.jsonl.gz": gzip.compress(lines(as_json)),
        "numbers.jsonl": lines([{**item, "id": int(item["id"])} for item in as_json]),
        "atlas.jsonl": lines([{**item, "section": ""} for item in as_json]),
    }


@pytest.mark.parametrize("name", [*_variants([]), "rows.parquet"])
def test_equal_passages_in_every_layout_give_the_same_corpus(tmp_path, small_shards, name):
    source = rows(50)
    if name == "rows.parquet":
        columns = dict(zip(("id", "text", "title"), zip(*source, strict=True), strict=True))
        pq.write_table(pa.table({**columns, "embeddings": [[0.5]] * 50}), tmp_path / name, row_group_size=13)
    else:
        (tmp_path / name).write_bytes(_variants(source)[name])
    corpus = build_corpus(tmp_path / name, tmp_path / "built")
    assert list(corpus) == expected(source)
    assert corpus.by_native_id("30") == passage_id(source[29][2], source[29][1])


def test_atlas_section_is_joined_to_its_title(tmp_path):
    lines = [{"id": "1", "title": "Ada", "section": "Life", "text": "Born."}, {"id": "2", "title": "Ada", "text": "A."}]
    (tmp_path / "text.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [p.title for p in build_corpus(tmp_path / "text.jsonl", tmp_path / "b")] == ["Ada: Life", "Ada"]


def test_ids_and_titles_are_optional_in_a_generic_dump(tmp_path):
    (tmp_path / "text.jsonl").write_text('{"text": "One."}\n{"title": null, "text": "Two.", "_id": "b"}\n')
    corpus = build_corpus(tmp_path / "text.jsonl", tmp_path / "b")
    assert [(p.title, p.text) for p in corpus] == [("", "One."), ("", "Two.")]
    assert corpus.by_native_id("b") == corpus.ids[1]


def test_folder_of_files_is_one_dump_in_name_order(tmp_path, small_shards):
    source = rows(60)
    (tmp_path / "dump").mkdir()
    (tmp_path / "dump" / "b.tsv.gz").write_bytes(gzip.compress(dpr(source[25:])))
    (tmp_path / "dump" / "a.tsv").write_bytes(dpr(source[:25]))
    (tmp_path / "dump" / "readme.txt").write_text("not a passage")
    assert list(build_corpus(tmp_path / "dump", tmp_path / "built")) == expected(source)
    (tmp_path / "empty").mkdir()
    with raises("folder-without-dump"):
        build_corpus(tmp_path / "empty", tmp_path / "other")


class Killed(BaseException):
    """Exception that stops a build in this process as abruptly as a signal."""


@pytest.mark.parametrize("name", ["psgs.tsv", "psgs.tsv.gz", "lines.jsonl", "rows.parquet"])
@pytest.mark.parametrize("after", [1, 3, 4, 9])
def test_interrupted_build_resumes_to_the_same_bytes(tmp_path, small_shards, name, after):
    source = rows(100)
    if name == "rows.parquet":
        columns = dict(zip(("id", "text", "title"), zip(*source, strict=True), strict=True))
        pq.write_table(pa.table(columns), tmp_path / name, row_group_size=13)
    else:
        (tmp_path / name).write_bytes(_variants(source)[name])
    whole = build_corpus(tmp_path / name, tmp_path / "whole")
    seen = []

    def kill(progress):
        seen.append(progress.records)
        if len(seen) == after:
            raise Killed

    with pytest.raises(Killed):
        build_corpus(tmp_path / name, tmp_path / "cut", progress=kill)
    with raises("unfinished-corpus"):
        open_corpus(tmp_path / "cut")
    again = []
    continued = build_corpus(tmp_path / name, tmp_path / "cut", progress=lambda p: again.append(p.records))
    # Finished shards (three batches of seven each) are not read again; a header is read but is not a record.
    header = name.startswith("psgs")
    assert again[0] == (after - 1) // 3 * 21 + 7 - header
    assert continued.fingerprint == whole.fingerprint
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


@pytest.mark.slow
def test_killed_build_process_resumes_to_the_same_bytes(tmp_path):
    source = [(str(i), f"passage {i % 9000} " + "w " * 40, f"T{i % 9000 % 50}") for i in range(1, 12001)]
    (tmp_path / "psgs.tsv").write_bytes(dpr(source))
    whole = build_corpus(tmp_path / "psgs.tsv", tmp_path / "whole")
    script = (
        "import sys; from pathlib import Path; from benchmarks import corpus_build as build\n"
        "build.BATCH_ROWS, build.SHARD_RECORDS = 500, 1000\n"
        "build.build_corpus(Path(sys.argv[1]), Path(sys.argv[2]), progress=lambda p: print(p.records, flush=True))"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "psgs.tsv"), str(tmp_path / "cut")]
    killed = 0
    for lines in (3, 5, 7, 24):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            for _ in range(lines):
                process.stdout.readline()
            os.kill(process.pid, signal.SIGKILL)
            killed += process.wait() == -signal.SIGKILL
    assert killed >= 3
    subprocess.run(command, check=True, capture_output=True)
    cut = Corpus.open(tmp_path / "cut")
    assert cut.fingerprint == whole.fingerprint
    assert list(cut) == list(whole)
    assert not (tmp_path / "cut" / "unfinished").exists()
    assert all(cut.by_native_id(native) == passage_id(title, text) for native, text, title in source[::501])


def test_finished_corpus_is_opened_without_rebuilding(tmp_path):
    (tmp_path / "psgs.tsv").write_bytes(dpr(rows(5)))
    build_corpus(tmp_path / "psgs.tsv", tmp_path / "built")
    before = contents(tmp_path / "built")
    calls = []
    assert len(build_corpus(tmp_path / "psgs.tsv", tmp_path / "built", progress=calls.append)) == 5
    assert (calls, contents(tmp_path / "built")) == ([], before)


def test_build_refuses_a_folder_with_other_content(tmp_path):
    (tmp_path / "one.tsv").write_bytes(dpr(rows(5)))
    (tmp_path / "other.tsv").write_bytes(dpr(rows(6)))
    build_corpus(tmp_path / "one.tsv", tmp_path / "built")
    with raises("folder-of-other-corpus"):
        build_corpus(tmp_path / "other.tsv", tmp_path / "built")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.txt").write_text("mine")
    with raises("folder-in-use"):
        build_corpus(tmp_path / "one.tsv", tmp_path / "taken")
    assert (tmp_path / "taken" / "thesis.txt").read_text() == "mine"


def test_changed_dump_is_rebuilt_from_scratch(tmp_path, small_shards):
    (tmp_path / "psgs.tsv").write_bytes(dpr(rows(100)))

    def kill(progress):
        if progress.records > 50:
            raise Killed

    with pytest.raises(Killed):
        build_corpus(tmp_path / "psgs.tsv", tmp_path / "built", progress=kill)
    changed = [(i, text.replace("prophet", "poet"), title) for i, text, title in rows(30)]
    (tmp_path / "psgs.tsv").write_bytes(dpr(changed))
    assert list(build_corpus(tmp_path / "psgs.tsv", tmp_path / "built")) == expected(changed)
    assert len(list((tmp_path / "built").glob("passages-*.arrow"))) == 2


BAD_LINES = {
    "two fields": (b"2\tonly text\n", "2 tab-separated fields, not 3"),
    "open quote": (b'2\t"never closed\tT\n', "does not close"),
    "empty": (b"\n", "empty"),
    "bytes": (b"2\tcaf\xe9\tT\n", "byte 0xe9"),
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_bad_line_is_refused_or_skipped_and_listed(tmp_path, name):
    line, what = BAD_LINES[name]
    good = dpr(rows(5)).split(b"\n")
    (tmp_path / "psgs.tsv").write_bytes(b"\n".join(good[:2]) + b"\n" + line + b"\n".join(good[2:]))
    with pytest.raises(UserError, match=what) as caught:
        build_corpus(tmp_path / "psgs.tsv", tmp_path / "built")
    assert "psgs.tsv, line 3" in caught.value.where
    corpus = build_corpus(tmp_path / "psgs.tsv", tmp_path / "built", skip_bad=True)
    assert list(corpus) == expected(rows(5))
    card = json.loads((tmp_path / "built" / "corpus.json").read_text())
    assert card["bad"] == 1
    assert card["bad_listed"][0].startswith("psgs.tsv, line 3: ")


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b"[1]\n", "missing-columns"),
        (b"{oops\n", "missing-columns"),
        (b'{"title": "T"}\n', "bad-record"),
        (b'{"text": 3}\n', "bad-record"),
        (b'{"text": "\\ud83d"}\n', "missing-columns"),
        (b'{"text": "caf\xe9"}\n', "missing-columns"),
        (b"\n", "missing-columns"),
    ],
)
def test_bad_json_line_is_reported(tmp_path, line, what):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "good"}\n' + line + b'{"text": "good too"}\n')
    with raises(what) as caught:
        build_corpus(tmp_path / "a.jsonl", tmp_path / "built")
    assert "a.jsonl, line 2" in caught.value.where
    assert len(build_corpus(tmp_path / "a.jsonl", tmp_path / "built", skip_bad=True)) == 2


def test_truncated_last_line_is_reported(tmp_path):
    (tmp_path / "psgs.tsv").write_bytes(dpr(rows(3)) + b'4\t"half a pas')
    with raises("missing-columns"):
        build_corpus(tmp_path / "psgs.tsv", tmp_path / "built")
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "good"}\n{"text": "ha')
    with raises("missing-columns"):
        build_corpus(tmp_path / "a.jsonl", tmp_path / "other")


def test_damaged_and_empty_files_are_reported(tmp_path):
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress(dpr(rows(400)))[:-300])
    (tmp_path / "b.parquet").write_bytes(b"PAR1 and then nothing of the kind PAR1")
    (tmp_path / "c.tsv").write_bytes(b"")
    (tmp_path / "d.tsv").write_bytes(b"id\ttext\ttitle\n")
    (tmp_path / "e.txt").write_bytes(b"prose\n")
    pq.write_table(pa.table({"body": ["x"]}), tmp_path / "f.parquet")
    responses = {
        "a.tsv.gz": "damaged or cut off",
        "b.parquet": "damaged or cut off",
        "c.tsv": "empty",
        "d.tsv": "no readable passage",
        "e.txt": "unknown layout of a dump",
        "f.parquet": "no column text",
    }
    for name, what in responses.items():
        with pytest.raises(UserError, match=what) as caught:
            build_corpus(tmp_path / name, tmp_path / f"{name}-built")
        assert name in caught.value.where
    with raises("missing-file"):
        build_corpus(tmp_path / "none", tmp_path / "built")
    with raises("unknown-layout"):
        build_corpus(tmp_path / "e.txt", tmp_path / "built", layout="drp")


def test_native_id_shared_by_two_passages_is_an_error(tmp_path):
    (tmp_path / "psgs.tsv").write_bytes(dpr([("1", "a", "A"), ("2", "b", "B"), ("1", "c", "C")]))
    with raises("ambiguous-passage-id"):
        build_corpus(tmp_path / "psgs.tsv", tmp_path / "built")
    (tmp_path / "same.tsv").write_bytes(dpr([("1", "a", "A"), ("2", "b", "B"), ("1", "a", "A")]))
    assert len(build_corpus(tmp_path / "same.tsv", tmp_path / "fine")) == 2


def test_opening_a_dump_builds_the_corpus_next_to_it(tmp_path):
    (tmp_path / "psgs.tsv").write_bytes(dpr(rows(9)))
    assert list(open_corpus(tmp_path / "psgs.tsv")) == expected(rows(9))
    assert list(open_corpus(tmp_path / "psgs.tsv.corpus")) == expected(rows(9))
    Corpus.of(expected(rows(9))).save(tmp_path / "saved")
    assert list(open_corpus(tmp_path / "saved")) == expected(rows(9))
    with raises("no-corpus"):
        open_corpus(tmp_path / "none")


def test_unwritable_target_is_reported_as_wrong_input(tmp_path):
    (tmp_path / "psgs.tsv").write_bytes(dpr(rows(3)))
    (tmp_path / "file").write_text("in the way")
    for target in (tmp_path / "file" / "built", tmp_path / "file"):
        with pytest.raises(UserError, match="the corpus cannot be written") as caught:
            build_corpus(tmp_path / "psgs.tsv", target)
        assert (caught.value.exit_code, caught.value.where) == (2, str(target))
        assert "another folder" in caught.value.try_this


def test_build_resumes_after_a_full_disk_error(tmp_path, monkeypatch):
    (tmp_path / "psgs.tsv").write_bytes(dpr(rows(9)))
    with monkeypatch.context() as full:
        full.setattr(corpus_build, "_write_json", no_space)
        with raises("system-no-space-left-on-device"):
            build_corpus(tmp_path / "psgs.tsv", tmp_path / "built")
    assert list(build_corpus(tmp_path / "psgs.tsv", tmp_path / "built")) == expected(rows(9))


def no_space(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_progress_counts_records_up_to_the_total(tmp_path, small_shards):
    (tmp_path / "psgs.tsv").write_bytes(dpr(rows(50)))
    reported = []
    build_corpus(tmp_path / "psgs.tsv", tmp_path / "built", progress=reported.append)
    assert [p.records for p in reported] == sorted(p.records for p in reported)
    assert (reported[-1].records, reported[-1].passages, reported[-1].share) == (50, 45, 1.0)


def test_damaged_corpus_folder_is_reported(tmp_path):
    (tmp_path / "psgs.tsv").write_bytes(dpr(rows(9)))
    build_corpus(tmp_path / "psgs.tsv", tmp_path / "built")
    card = tmp_path / "built" / "corpus.json"
    whole = card.read_text()
    card.write_text(whole.replace('"passages": 9', '"passages": 8'))
    with raises("corpus-count-mismatch"):
        Corpus.open(tmp_path / "built")
    card.write_text(whole.replace('"format": 1', '"format": 0'))
    with raises("corpus-format-mismatch"):
        Corpus.open(tmp_path / "built")
    card.write_text("{")
    with raises("unreadable-corpus-card"):
        Corpus.open(tmp_path / "built")
    card.write_text(whole)
    (tmp_path / "built" / "passages-00000.arrow").write_bytes(b"short")
    with raises("unreadable-corpus"):
        Corpus.open(tmp_path / "built")


cells = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=12)


@pytest.mark.slow
@given(st.lists(st.tuples(cells, cells), min_size=1, max_size=12), st.integers(0, 11))
def test_dpr_dump_round_trips_any_text_from_any_start_line(tmp_path_factory, pairs, skip):
    folder = tmp_path_factory.mktemp("any")
    source = [(f"n{i}", text, title) for i, (text, title) in enumerate(pairs)]
    # Python's csv quotes a lone \r only where it would end a line for it; a title at a line's end must not lose one.
    text = "".join("\t".join(f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in row) + "\n" for row in source)
    (folder / "psgs.tsv").write_bytes(text.encode())
    results = [read.entry for read in dumps.read(folder / "psgs.tsv", "dpr", min(skip, len(source)))]
    assert results == [dumps.Entry(i, title, text) for i, text, title in source[skip:]]
