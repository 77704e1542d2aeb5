"""Knowledge graphs as tables of triples: read where a graph is pretrained on, refused where questions are asked."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from benchmarks.registry import Benchmark, load
from tests.support.errors import raises

TABLE = "Lyon\tlies on\tRhône\nLyon\tfounded by\tPlancus\n"
TRIPLES = {("Lyon", "lies on", "Rhône"), ("Lyon", "founded by", "Plancus")}


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGMETER_CACHE", str(tmp_path / "cache"))


def graph(path: Path, content: str | bytes, reference: str = "webqsp:train", **options: Any) -> tuple[set[tuple[str, ...]], Benchmark]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    benchmark = load(reference, {"path": str(path), **options})
    return {triple for each in benchmark.extra["graphs"].values() for triple in each}, benchmark


@pytest.mark.parametrize(
    "content",
    [
        TABLE,
        "\ufeffHead\tRelation\tTail\r\n" + TABLE.replace("\n", "\r\n") + "\r\n",
        "subject\tpredicate\tobject\n" + TABLE.replace("Plancus", '"Plancus"'),
        gzip.compress(TABLE.encode()),
        "head\ttail\trelation\nLyon\tRhône\tlies on\nLyon\tPlancus\tfounded by\n",
        ":START_ID\t:END_ID\t:TYPE\nLyon\tRhône\tlies on\nLyon\tPlancus\tfounded by\n",
        "# my graph\n#source\trelation\ttarget\n" + TABLE,
        "head_id\trelation_id\ttail_id\n" + TABLE,
    ],
    ids=["plain", "crlf and header", "quotes", "gzip", "tail second", "type last", "comment", "ids"],
)
@pytest.mark.parametrize("reference", ["webqsp:train", "cwq:validation"])
def test_table_of_triples_is_a_graph(reference: str, content: str | bytes, tmp_path: Path) -> None:
    triples, benchmark = graph(tmp_path / "graph.tsv", content, reference)
    assert triples == TRIPLES
    assert [question.answers for question in benchmark.questions] == [()]


def test_line_without_three_names_is_refused_or_counted(tmp_path: Path) -> None:
    content = TABLE + "Paris\tlies on\n\tlies on\tSeine\n"
    with raises("bad-record", where="line 3"):
        graph(tmp_path / "graph.tsv", content)
    triples, benchmark = graph(tmp_path / "graph.tsv", content, skip_bad=True)
    assert triples == TRIPLES
    assert len(benchmark.skipped) == 2


def test_first_triple_of_words_in_a_header_is_a_triple(tmp_path: Path) -> None:
    table = "Source\tlies in\tTarget\n#1\tis\tnumber\n"
    assert graph(tmp_path / "graph.tsv", table)[0] == {("Source", "lies in", "Target"), ("#1", "is", "number")}


def test_numbered_triples_are_refused(tmp_path: Path) -> None:
    with raises("numbered-triples"):
        graph(tmp_path / "train2id.tsv", "head\trelation\ttail\n0\t3\t17\n5\t0\t2\n")
    assert graph(tmp_path / "graph.tsv", "1990\tyear after\t1989\n")[0] == {("1990", "year after", "1989")}


def test_graph_without_questions_is_not_evaluated(tmp_path: Path) -> None:
    with raises("triples-without-questions"):
        graph(tmp_path / "graph.tsv", TABLE, "webqsp:test")


@pytest.mark.parametrize("line", ['<http://a/Lyon> <http://a/name> "Lyon"@en .', "_:b0\t<http://a/on>\t<http://a/Rhône> ."])
def test_n_triples_are_refused_with_a_remedy(line: str, tmp_path: Path) -> None:
    with raises("n-triples"):
        graph(tmp_path / "graph.nt", f"# made by a tool\n{line}\n")
