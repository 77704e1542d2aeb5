"""Qrels and runs in every known layout: equal values, and errors that name line and layout."""

from __future__ import annotations

import codecs
import gzip
import json
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.core.errors import UserError
from benchmarks.io.judged import Kind, read_table
from tests.support.errors import raises

GRADES = {"q1": {"d1": 2.0, "d2": 0.0}, "q2": {"d3": 1.0}}
ROWS = [(question, document, grade) for question, row in GRADES.items() for document, grade in row.items()]
TREC = "".join(f"{q} 0 {d} {g:.0f}\n" for q, d, g in ROWS)
NAMED = [{"query-id": q, "corpus-id": d, "score": g} for q, d, g in ROWS]


def joined(delimiter: str, *header: str, form: str = "{:.0f}") -> str:
    lines = [delimiter.join(header)] if header else []
    return "\n".join([*lines, *(delimiter.join((q, d, form.format(g))) for q, d, g in ROWS)])


QRELS = {
    "TREC": TREC,
    "TREC with tabs and several blanks": "".join(f"{q}\t0  {d}\t {g:.0f} \n" for q, d, g in ROWS),
    "TREC with float grades": "".join(f"{q} 0 {d} {g:e}\n" for q, d, g in ROWS),
    "TREC with CRLF, blank lines and comments": "# judged\r\n\r\n" + TREC.replace("\n", "\r\n\r\n  # a note\r\n"),
    "TREC with a byte order mark": "\ufeff" + TREC,
    "BEIR as Python's csv quotes it": 'query-id\tcorpus-id\tscore\n"q1"\t"d1"\t2\nq1\t"d2"\t0\n"q2"\td3\t"1"\n',
    "BEIR": joined("\t", "query-id", "corpus-id", "score"),
    "BEIR with a byte order mark and CRLF": "\ufeff" + joined("\t", "query-id", "corpus-id", "score").replace("\n", "\r\n"),
    "BEIR without a header": joined("\t", form="{:.1f}"),
    "CSV with other columns": "topic,docno,iteration,Relevance\n" + "\n".join(f'"{q}",{d},0,{g}' for q, d, g in ROWS),
    "TSV with TREC's columns named": "qid\tQ0\tpid\trel\n" + "\n".join(f"{q}\t0\t{d}\t{g:.0f}" for q, d, g in ROWS),
    "CSV with semicolons and decimal commas": "qid;docno;rel\n" + "".join(f"{q};{d};{g:.1f}\n".replace(".", ",") for q, d, g in ROWS),
    "JSON Lines": "\n".join(map(json.dumps, NAMED)),
    "JSON array": json.dumps(NAMED, indent=1),
    "JSON object in a line": json.dumps(GRADES),
    "JSON object in lines": json.dumps(GRADES, indent=2),
    "JSON object of whole numbers": json.dumps({q: {d: int(g) for d, g in row.items()} for q, row in GRADES.items()}),
}
RUNS = {
    "TREC": "".join(f"{q} Q0 {d} 1 {g} tag\n" for q, d, g in ROWS),
    "TREC with ranks that are none": "".join(f"{q} Q0 {d} - {g} tag\n" for q, d, g in ROWS),
    "TREC with a tag of several words": "".join(f"{q} Q0 {d} 1 {g} my own tag\n" for q, d, g in ROWS),
    "ColBERT": "".join(f"{q}\t{d}\t{rank}\t{g}\n" for rank, (q, d, g) in enumerate(ROWS, 1)),
    "semicolons without a header": "".join(f"{q};{d};{g}\n" for q, d, g in ROWS),
    "JSON object of documents with scores": json.dumps({q: [[d, g] for d, g in row.items()] for q, row in GRADES.items()}),
    "scores without ranks": joined("\t", form="{:.1f}"),
    "JSON object": json.dumps(GRADES),
    "named columns": "qid,docid,rank,score\n" + "\n".join(f"{q},{d},1,{g}" for q, d, g in ROWS),
    "PyTerrier's table": "query,qid,docid,docno,rank,score\n" + "\n".join(f"who,{q},17,{d},0,{g}" for q, d, g in ROWS),
}


@pytest.mark.parametrize("name", QRELS)
@pytest.mark.parametrize("packed", [False, True])
def test_qrels_are_equal_in_every_layout(name: str, packed: bool, tmp_path: Path) -> None:
    raw = QRELS[name].encode()
    (tmp_path / "file").write_bytes(gzip.compress(raw) if packed else raw)
    table = read_table(tmp_path / "file", "qrels")
    assert table.values == GRADES
    assert table.reading.layout


@pytest.mark.parametrize("name", RUNS)
def test_runs_are_equal_in_every_layout(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(RUNS[name])
    assert read_table(tmp_path / "file", "run").values == GRADES


def test_qrels_are_read_from_parquet_and_archives(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(NAMED), tmp_path / "qrels.parquet")
    with zipfile.ZipFile(tmp_path / "beir.zip", "w") as archive:
        archive.writestr("set/qrels/test.tsv", QRELS["BEIR"])
    for path in (tmp_path / "qrels.parquet", Path(f"{tmp_path}/beir.zip!set/qrels/test.tsv")):
        assert read_table(path, "qrels").values == GRADES


def test_ms_marco_run_is_ordered_by_rank(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("q1\td2\t2\nq1\td1\t1\nq1\td3\t3\n")
    scores = read_table(tmp_path / "run", "run").values["q1"]
    assert sorted(scores, key=scores.__getitem__, reverse=True) == ["d1", "d2", "d3"]


def test_json_lists_hold_relevant_or_ranked_documents(tmp_path: Path) -> None:
    (tmp_path / "lists").write_text('{"q": ["d2", "d1"], "r": [7], "s": []}')
    assert read_table(tmp_path / "lists", "qrels").values == {"q": {"d2": 1.0, "d1": 1.0}, "r": {"7": 1.0}}
    assert read_table(tmp_path / "lists", "run").values == {"q": {"d2": -1.0, "d1": -2.0}, "r": {"7": -1.0}}
    (tmp_path / "lists").write_text('{"qid": ["q"], "docid": ["d"], "score": [1]}')
    with raises("bad-line"):
        read_table(tmp_path / "lists", "run")


def test_run_of_colbert_may_begin_with_passage_0_and_qrels_are_no_run(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("7\t0\t1\t25.5\n7\t3\t2\t24.0\n")
    assert read_table(tmp_path / "run", "run").values == {"7": {"0": 25.5, "3": 24.0}}
    for qrels in ("7\t0\t1\t1\n", "7 0 1 1\n", "7\tQ0\t1\t2\n", "7\t1\td\t1\n"):
        (tmp_path / "run").write_text(qrels)
        with raises("bad-line"):
            read_table(tmp_path / "run", "run")


@pytest.mark.parametrize("text", ["q\td\t12\nq\te\t7\n", "q d 3\nq e 2\nq f 1\nr d 1\n", "q d 1\nq e 0\n"])
def test_whole_scores_in_the_place_of_a_rank_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "run").write_text(text)
    with raises("rank-column-mismatch"):
        read_table(tmp_path / "run", "run")


def test_ids_keep_their_bytes_and_spaces(tmp_path: Path) -> None:
    (tmp_path / "trec").write_bytes("q 0 no\u00a0break 1\n".encode() + b"q 0 \xff 2\n")
    assert read_table(tmp_path / "trec", "qrels").values["q"] == {"no\u00a0break": 1.0, "\udcff": 2.0}
    (tmp_path / "beir").write_text("query-id\tcorpus-id\tscore\nq\tmy document, one\t1\n")
    assert read_table(tmp_path / "beir", "qrels").values["q"] == {"my document, one": 1.0}
    (tmp_path / "plain").write_text("q\tmy document\t1\n")
    assert read_table(tmp_path / "plain", "qrels").values["q"] == {"my document": 1.0}
    (tmp_path / "trec-by-tabs").write_text("q\t0\tmy document\t1\nq\t0\td\t0\n")
    assert read_table(tmp_path / "trec-by-tabs", "qrels").values["q"] == {"my document": 1.0, "d": 0.0}
    (tmp_path / "run-by-tabs").write_text("q\tQ0\tmy document\t1\t2.5\tt\nq\tQ0\td\t2\t1.5\tt\n")
    assert read_table(tmp_path / "run-by-tabs", "run").values["q"] == {"my document": 2.5, "d": 1.5}


@pytest.mark.parametrize("question", ["[", "{", "[1]", '{"a"', "[]", "{}"])
@pytest.mark.parametrize("layout", ["{} Q0 d1 1 0.5 tag", "{}\td1\t0.5"])
def test_ids_that_start_with_a_bracket_are_not_parsed_as_json(question: str, layout: str, tmp_path: Path) -> None:
    path = tmp_path / "run.txt"
    path.write_text(layout.format(question) + "\n")
    assert read_table(path, "run").values == {question: {"d1": 0.5}}


def test_comments_are_counted(tmp_path: Path) -> None:
    (tmp_path / "qrels").write_text("# one\n" + TREC + "#q9 0 d 1\n")
    assert read_table(tmp_path / "qrels", "qrels").notes == ("qrels: 2 lines that begin with # were skipped as comments",)


@pytest.mark.parametrize(
    ("kind", "text", "line", "words"),
    [
        ("qrels", "q 0 d 1\nq 0 d\n", 2, "TREC qrels"),
        ("qrels", "query-id\tcorpus-id\tscore\nq\td\n", 2, "BEIR"),
        ("qrels", "query-id\tcorpus-id\nq\td\n", 1, "the grade"),
        ("qrels", "q 0 d 1\nq 0 e nan\n", 2, "nan"),
        ("qrels", "q 0 d 1e12\n", 1, "finite"),
        ("qrels", "q 0 d 1\nq 0 d 1\n", 2, "twice"),
        ("qrels", "q Q0 d 1 1.0 t\n", 1, "6 columns"),
        ("qrels", '{"q": {"d": 1}, "q": {"e": 1}}', 1, "twice"),
        ("qrels", '{"q": {"d": true}}', 1, "True"),
        ("qrels", '{"q": {"d": 1}, "r": 2}', 1, "'query-id'|no column"),
        ("qrels", '{"q": {"d": 1},\n"r": }', 2, "JSON"),
        ("qrels", '{"qid": "q", "docid": "d", "rel": 1}\n[1]\n', 2, "not an object"),
        ("run", "q 0 d 1\n", 1, "qrels"),
        ("run", "q\td\t1\nq\te\t0.5\n", 2, "rank"),
        ("run", "q\td\t12\nq\te\t7\n", None, "score"),
        ("run", "q Q0 d 1 1 t\nq Q0 e 1 1\n", 2, "TREC run"),
        ("run", "q Q0 d 1 1 t\nq Q0 e\0 1 1 t\n", 2, "NUL"),
        ("run", "q Q0 d 1 2 t\nq Q0 e 2 1 t\nr Q0 d 1 1 u\n", 3, "'u' differs from the tag 't'"),
        ("run", "hello\n", 1, "1 columns"),
        ("run", "# nothing\n", None, "no data lines"),
    ],
)
def test_unreadable_line_is_reported_with_its_layout(kind: Kind, text: str, line: int | None, words: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(UserError) as error:
        read_table(tmp_path / "file", kind)
    message = f"{error.value.what} {error.value.try_this}"
    assert any(word in message for word in words.split("|"))
    assert (error.value.where or "").endswith("file" if line is None else f"file:{line}")


def test_other_encodings_are_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(codecs.BOM_UTF16_LE + TREC.encode("utf-16-le"))
    with raises("not-utf8"):
        read_table(tmp_path / "file", "qrels")


@pytest.mark.parametrize(("kind", "line"), [("qrels", "q{0} 0 d{0} 1\n"), ("run", "q{0}\td{0}\t1.5\n")])
def test_byte_order_marks_of_joined_files_are_no_part_of_an_id(kind: Kind, line: str, tmp_path: Path) -> None:
    path = tmp_path / "joined.txt"
    path.write_text("".join(f"\ufeff{line.format(number)}" for number in (1, 2)), "utf-8")
    assert set(read_table(path, kind).values) == {"q1", "q2"}
