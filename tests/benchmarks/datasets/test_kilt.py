"""KILT's tasks, and its metrics compared with the official scripts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.core.errors import UserError
from benchmarks.registry import Benchmark, load
from benchmarks.schema import PAGES
from judges.score import score
from methods.api import Evidence, Prediction
from tests.support.hub_server import HubServer, Repository

# Outputs as (answer, pages, a digit each), the predicted answer and pages; and what KILT's eval_downstream.py and eval_retrieval.py
# give for each question.
CASES = [
    ([("Lyon", "12")], "Lyon", "213"),
    ([("Lyon", "12"), ("the Lyon", "3")], "lyon.", "31"),
    ([("Lyon", "1"), ("Lyon", "1"), ("Ulm", "45")], "Ulm", "5614"),
    ([("Lyon old town", "12"), ("Ulm", "")], " old Lyon ", "12"),
    ([("Lyon", "12"), ("", "23")], "Lyon", "2314"),
    ([("Lyon", "1")], "Lyon", ""),
    ([("Lyon", "1")], "", "1"),
    ([("Lyon", "112")], "Lyon", "1122"),
]
OFFICIAL = {
    "kilt_rprec": [1.0, 1.0, 0.5, 1.0, 1.0, 0.0, 1.0, 1.0],
    "kilt_recall@2": [1.0, 0.5, 0.5, 1.0, 1.0, 0.0, 1.0, 1.0],
    "kilt_recall@5": [1.0, 0.5, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0],
    "kilt_em": [1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0],
    "kilt_f1": [1.0, 1.0, 0.0, 0.8, 1.0, 0.0, 0.0, 1.0],
    "kilt_accuracy": [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0],
}


def output(answer: str, pages: str) -> dict[str, Any]:
    provenance = [{"wikipedia_id": page, "title": f"Page {page}"} for page in pages]
    return ({"answer": answer} if answer else {}) | ({"provenance": provenance} if pages else {})


ROWS = [{"id": str(n), "input": f"question {n}", "output": [output(*gold) for gold in golds]} for n, (golds, _, _) in enumerate(CASES)]


def read(folder: Path, rows: Sequence[dict[str, Any]], task: str = "hotpotqa", split: str = "dev", **options: Any) -> Benchmark:
    (folder / f"{task}-{split}-kilt.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return load(f"kilt/{task}:{split}", {"path": str(folder), **options})


@pytest.mark.parametrize("name", OFFICIAL)
def test_metrics_equal_the_official_script(name: str, tmp_path: Path) -> None:
    questions = read(tmp_path, ROWS).questions
    predictions = [Prediction(str(n), answer, notes={PAGES: list(pages)}) for n, (_, answer, pages) in enumerate(CASES)]
    (values,) = score(questions, predictions, [name]).values()
    np.testing.assert_allclose(values, OFFICIAL[name], atol=1e-9)


def test_ranked_passages_count_as_their_pages(tmp_path: Path) -> None:
    chunks = [{"id": f"c{n}", "title": "t", "text": f"text {n}", "wikipedia_id": int(page)} for n, page in enumerate("9112")]
    (tmp_path / "chunks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chunks))
    benchmark = read(tmp_path, ROWS[:1], corpus=str(tmp_path / "chunks.jsonl"))
    ranked = tuple(Evidence(str(benchmark.corpus.by_native_id(name)), 1.0) for name in ("c1", "c2", "c3", "c0"))
    metrics = ["kilt_rprec", "kilt_recall@1", "kilt_recall@2"]
    values = score(benchmark.questions, [Prediction("0", "Lyon", ranked)], metrics, lambda name: benchmark.corpus.get([name])[0])
    # Page 1 is returned twice; a set of two pages takes one rank, once both are returned.
    assert [row[0] for row in values.values()] == [1.0, 1.0, 1.0]


def test_knowledge_source_pages_are_positives(tmp_path: Path) -> None:
    pages = [
        {"_id": page, "wikipedia_id": page, "wikipedia_title": f"Page {page}", "text": [f"Page {page}\n", "A text."]} for page in "123"
    ]
    (tmp_path / "source.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pages))
    benchmark = read(tmp_path, ROWS[:1], corpus=str(tmp_path / "source.jsonl"))
    assert [(p.title, p.text) for p in benchmark.corpus.get(benchmark.questions[0].evidence)] == [
        ("Page 1", "Page 1\nA text."),
        ("Page 2", "Page 2\nA text."),
    ]


def test_question_without_gold_or_pages_is_unscorable(tmp_path: Path) -> None:
    benchmark = read(tmp_path, [{"id": "a", "input": "?", "output": [{"answer": "x"}]}, {"id": "b", "input": "?"}], split="test")
    values = score(benchmark.questions, [Prediction("a", "x"), Prediction("b", "x")], ["kilt_rprec", "kilt_em"])
    assert [np.isnan(row).tolist() for row in values.values()] == [[True, True], [False, True]]
    assert benchmark.extra["counts"] == {"questions_without_gold": 1, "questions_without_pages": 2}


def test_hub_rows_give_the_same_questions(tmp_path: Path) -> None:
    rows = [{**row, "output": [{"answer": "", "provenance": [], **part} for part in row["output"]]} for row in ROWS]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    repository = Repository({"fever/validation-00000-of-00001.parquet": (tmp_path / "rows.parquet").read_bytes()})
    with HubServer({"facebook/kilt_tasks": repository}).as_hub(tmp_path / "home"):
        fetched = load("kilt/fever:dev", {"revision": "main"})
    assert fetched.questions == read(tmp_path, ROWS).questions


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"id": "a", "output": [{"answer": "x"}]}, "input"),
        ({"id": "a", "input": "?", "output": []}, "output"),
        ({"id": "a", "input": "?", "output": [{"answer": "x", "provenance": [{"wikipedia_id": True}]}]}, "provenance"),
        ({"id": "a", "input": "?", "output": ["x"]}, "output[0]"),
    ],
)
def test_unreadable_record_is_reported(row: dict[str, Any], field: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        read(tmp_path, [row])
    assert field in (error.value.where or "")
    assert "line 1" in (error.value.where or "")


def test_malformed_pages_of_a_prediction_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="pages"):
        score(read(tmp_path, ROWS[:1]).questions, [Prediction("0", "Lyon", notes={PAGES: "12"})], ["kilt_rprec"])
