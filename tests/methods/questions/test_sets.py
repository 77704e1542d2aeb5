"""The table for manual review: loaded by the dataset `files` with all of its gold."""

from __future__ import annotations

from pathlib import Path

from benchmarks.registry import CAVEATS, load
from methods.questions.sets import without_duplicates, write_table
from methods.questions.writing import KEPT, Written


def question(text: str, kind: str = "single", **values: object) -> Written:
    return Written(kind, KEPT, text, documents=("a.md",), by="m", **values)  # type: ignore[arg-type]


def test_first_of_near_duplicates_is_kept() -> None:
    texts = ["Who opens the harbor studio?", "Who opens the harbor studio", "What does the saw cost?", "the harbor studio: who opens?"]
    assert [item.status for item in without_duplicates([question(text) for text in texts])] == [KEPT, "duplicate", KEPT, "duplicate"]


def test_written_table_loads_with_answers_gold_evidence_and_origin(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.md").write_text("The office opens at eight. It closes at six, at the latest.")
    (docs / "b.md").write_text("Keys hang behind the door.")
    rows = [
        question("When does it open?", answer="eight", quotes=("The office opens at eight.",)),
        Written("multi", KEPT, 'Where are "keys", after six?', "[behind the door]", ("at six", "behind the door"), ("a.md", "b.md"), "m"),
        question("Who founded it?", "unanswerable"),
        Written("single", "known", "Removed?", "x"),
    ]
    assert write_table(tmp_path / "q.csv", rows) == 3
    benchmark = load("files", {"path": str(tmp_path / "q.csv"), "documents": str(docs)})
    assert [(q.text, q.answers, q.type, q.answerable) for q in benchmark.questions] == [
        ("When does it open?", ("eight",), "single", True),
        ('Where are "keys", after six?', ("[behind the door]",), "multi", True),
        ("Who founded it?", (), "unanswerable", False),
    ]
    assert [[p.document_id for p in benchmark.corpus.get(q.evidence)] for q in benchmark.questions] == [["a.md"], ["a.md", "b.md"], []]
    assert benchmark.extra[CAVEATS][0].startswith("synthetic questions: 3 of 3")
