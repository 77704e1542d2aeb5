"""Topics and qrels of TREC RAG over document segments."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from benchmarks.core.errors import UserError
from benchmarks.registry import load
from judges.score import score
from methods.api import Evidence, Prediction

SEGMENTS = [
    {"docid": f"doc_{d}#{s}_9", "url": "u", "title": f"T{d}", "headings": "", "segment": f"text {d} {s}"}
    for d in range(2)
    for s in range(2)
]
QRELS = "2024-1 0 doc_0#1_9 3\n2024-1 0 doc_1#0_9 0\n2024-9 0 doc_1#0_9 1\n"


def test_topics_have_judgments_by_segment_and_by_document(tmp_path: Path) -> None:
    (tmp_path / "topics.rag24.test.txt").write_text("\ufeff2024-1\twhy?\r\n\r\n2024-2\thow?\r\n")
    (tmp_path / "qrels.txt").write_text(QRELS)
    (tmp_path / "segments").mkdir()
    for part in range(2):
        raw = "".join(json.dumps(row) + "\n" for row in SEGMENTS[2 * part : 2 * part + 2]).encode()
        (tmp_path / "segments" / f"msmarco_v2.1_doc_segmented_0{part}.json.gz").write_bytes(gzip.compress(raw))
    options = {"path": str(tmp_path / "topics.rag24.test.txt"), "qrels": str(tmp_path / "qrels.txt")}
    benchmark = load("trec_rag:test", {**options, "corpus": str(tmp_path / "segments")})
    assert benchmark.name == "trec_rag:test(topics.rag24.test)"
    assert [(question.id, question.text, len(question.grades)) for question in benchmark.questions] == [
        ("2024-1", "why?", 2),
        ("2024-2", "how?", 0),
    ]
    assert benchmark.extra["counts"] == {"topics_without_judgments": 1, "judged_without_topic": 1}
    other = Evidence(str(benchmark.corpus.by_native_id("doc_0#0_9")), 1.0)
    predictions = [Prediction("2024-1", "", (other,)), Prediction("2024-2", "")]
    values = score(benchmark.questions, predictions, ["hit@1", "hit@1(level=documents)"], lambda name: benchmark.corpus.get([name])[0])
    assert [row[0] for row in values.values()] == [0.0, 1.0]
    assert load("trec_rag:test", options).extra["counts"]["judgments_left_out"] == 3


@pytest.mark.parametrize(
    ("text", "words"), [("1 why?\n", "topic"), ("1\twhy?\n1\thow?\n", "twice"), ("\n", "no topic"), ("7\twhy?\n", "share")]
)
def test_unreadable_topics_are_reported(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "topics.tsv").write_text(text)
    (tmp_path / "qrels.txt").write_text(QRELS)
    with pytest.raises(UserError, match=words) as error:
        load("trec_rag:test", {"path": str(tmp_path / "topics.tsv"), "qrels": str(tmp_path / "qrels.txt")})
    assert "topics.tsv" in (error.value.where or "")
