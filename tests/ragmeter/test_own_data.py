"""The example under `examples/own-data`: every quote occurs in a document, and its experiment runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.registry import load
from benchmarks.schema import SPANS
from ragmeter import experiment
from ragmeter.runner.experiment import How, run_experiment
from results.boards.board import boards
from results.store.store import Store

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "own-data"


@pytest.mark.parametrize("options", [{"chunker": "headings"}, {"chunk_size": 20, "chunk_overlap": 5}, {"chunker": "whole"}])
def test_every_quote_occurs_in_a_document(options: dict[str, object]) -> None:
    benchmark = load("files", {"path": str(EXAMPLE / "questions.csv"), "documents": str(EXAMPLE / "handbook"), **options})
    assert len(benchmark.questions) == 14
    for question in benchmark.questions:
        assert question.answers
        (span,) = question.metadata[SPANS]
        assert set(question.evidence) <= {passage.id for passage in benchmark.corpus}
        assert max(end for _, end in span[1].values()) == span[0]


@pytest.mark.slow
def test_experiment_compares_both_passage_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("bm25s")
    monkeypatch.chdir(EXAMPLE)
    store = Store(tmp_path / "store")
    run_experiment(experiment.load("compare.yaml"), store, How(), talk=False)
    results = boards(store, "own-data")
    assert [board.dataset for board in results] == ["files:test(questions.csv-headings-256)", "files:test(questions.csv-words-40)"]
    for board in results:
        values = {row.run.method: row.cells[board.metrics[0]].estimate.value for row in board.rows}
        assert values["bm25"] > 0.9 > values["random"]
