"""ARK's negatives and rows: against a naive union, without positives, sampled by seed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.core.errors import Broke
from benchmarks.schema import Passage, Question, passage_id
from methods.api import Services
from methods.ark.config import ArkTrainingConfig, MineConfig
from methods.ark.data import Document, Piece, TrainRow, check_rows, document_text, pieces_of, write_rows
from methods.ark.negatives import Augmented, GraphQueries, RecordedQueries, eligible, mine, random_pool, rows_of, union
from methods.flow import run
from methods.graphs.augmented_queries import GRAPH_CALLS_FAILED
from methods.graphs.chunking import ChunkConfig
from methods.graphs.knowledge_graph import KnowledgeGraph
from methods.training.journal import HOPELESS
from tests.support.errors import raises


class Planted:
    """Encoder whose vectors follow from the number at the end of a text."""

    def passages(self, texts: Any) -> Any:
        return np.eye(20, dtype=np.float32)[[int(text.split()[-1]) for text in texts]]

    def queries(self, texts: Any) -> Any:
        result = np.zeros((len(texts), 20), np.float32)
        for row, text in enumerate(texts):
            for rank, number in enumerate(text.split()):
                result[row, int(number)] = 1 - 0.1 * rank
        return result


def document(count: int = 8, questions: int = 2) -> Document:
    pieces = tuple(Piece(f"c{n}", n, f"chunk {n}", 10 * n, 10 * n + 12) for n in range(count))
    return Document("d", (), pieces, tuple(Question(f"q{n}", f"question {n}", ("a",)) for n in range(questions)))


POSITIVES = {"q0": ["c1", "c2"], "q1": ["c3"]}


@given(st.integers(0, 4), st.integers(1, 9), st.integers(1, 6), st.integers(0, 100))
def test_union_has_the_top_chunks_of_all_queries_ordered_by_best_rank(queries: int, chunks: int, top: int, seed: int) -> None:
    scores = np.random.default_rng(seed).normal(size=(queries, chunks)).astype(np.float32)
    result = union(scores, top)
    naive: dict[int, int] = {}
    for row in scores:
        for rank, position in enumerate(sorted(range(chunks), key=lambda n, row=row: (-row[n], n))[:top]):
            naive[position] = min(rank, naive.get(position, 99))
    assert result == sorted(naive, key=lambda position: (naive[position], position))


def test_chunks_found_by_augmented_queries_are_negatives_unless_positive() -> None:
    (first, second) = mine(document(), {"q0": ["1 4", "5 6"], "q1": []}, POSITIVES, Planted(), MineConfig(top_k=2), "stage2", "hash")
    assert first.retrieved == ("c1", "c5", "c4", "c6")
    assert first.negatives == ("c5", "c4", "c6")
    assert (first.model, first.stage) == ("hash", "stage2")
    assert second.negatives == second.retrieved == ()


def test_texts_equal_to_a_positive_are_excluded_and_duplicate_texts_are_removed() -> None:
    pieces = [Piece("a", 0, "same", 0, 4), Piece("b", 1, "same", 5, 9), Piece("c", 2, "other", 10, 15), Piece("e", 3, "other", 16, 20)]
    assert eligible([0, 1, 2, 3], pieces, ["a"]) == [2]
    assert eligible([3, 2], pieces, ["a"]) == [3]


def test_neighbors_that_share_text_with_a_positive_are_dropped_on_request() -> None:
    pieces = document().pieces
    assert eligible(range(5), pieces, ["c2"]) == [0, 1, 3, 4]


@given(st.integers(1, 8), st.integers(0, 5), st.integers(0, 50))
def test_rows_have_unique_negatives_from_their_document_and_no_positive(chunks: int, sample: int, seed: int) -> None:
    there = document(chunks, 1)
    gold = {"q0": [f"c{n}" for n in range(min(2, chunks))]}
    pools = {"q0": random_pool(there, gold["q0"])}
    rows, skipped = rows_of(there, gold, pools, "stage2", sample, seed)
    assert len(rows) + skipped == len(gold["q0"])
    assert skipped == (len(gold["q0"]) if sample and not pools["q0"] else 0)
    check_rows(rows, {piece.id: piece.text for piece in there.pieces})
    for row in rows:
        assert len(set(row.negative_ids)) == len(row.negative_ids) == min(sample, len(pools["q0"]))
        assert set(row.negative_ids) <= set(pools["q0"])


def test_pools_are_joined_by_question_id_so_a_missing_pool_shifts_no_row() -> None:
    there = document()
    pools = {"q0": ("c5", "c6", "c7"), "q1": ("c0", "c6")}
    whole, _ = rows_of(there, POSITIVES, pools, "stage2", 2, 0)
    without, skipped = rows_of(there, POSITIVES, {"q1": pools["q1"]}, "stage2", 2, 0)
    assert skipped == 2
    assert without == [row for row in whole if row.question_id == "q1"]


@pytest.mark.slow
def test_sampled_negatives_depend_only_on_the_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's hash randomization must not change samples."""
    program = (
        "import sys; from pathlib import Path; from methods.ark.negatives import *; from methods.ark.data import *;"
        "from methods.ark.data import *;"
        "p=tuple(Piece(f'c{n}', n, f'chunk {n}', 0, 1) for n in range(30));"
        "d=Document('d', (), p, (Question('q0', 'text', ('a',)),));"
        "r,_=rows_of(d, {'q0': ['c1','c2']}, {'q0': random_pool(d, ['c1','c2'])},"
        " 'stage2', 5, int(sys.argv[1]));"
        "write_rows(Path(sys.argv[2]), r)"
    )
    written = []
    for number, (seed, hashing) in enumerate((("0", "1"), ("0", None), ("1", None))):
        path = tmp_path / f"{number}.jsonl"
        if hashing is None:
            monkeypatch.setattr(sys, "argv", ["-c", seed, str(path)])
            exec(program, {})
        else:
            subprocess.run([sys.executable, "-c", program, seed, str(path)], check=True, env={**os.environ, "PYTHONHASHSEED": hashing})
        written.append(path.read_bytes())
    assert written[0] == written[1] != written[2]


def test_rows_are_written_as_json_lines(tmp_path: Path) -> None:
    row = TrainRow("q", "d", "stage2", "text", "c1", ("c2", "c3"), ("c1",))
    path = tmp_path / "stage2.jsonl"
    write_rows(path, [row])
    assert json.loads(path.read_text()) == json.loads(json.dumps(asdict(row)))
    with raises("positive-among-negatives"):
        check_rows([TrainRow("q", "d", "s", "t", "c1", ("c2",), ("c1",))], {"c1": "same", "c2": "same"})


def test_document_is_chunked_as_configured_or_kept_as_its_passages() -> None:
    texts = ["One two three. ", "Four five six.", "Seven eight."]
    passages = [Passage(passage_id("T", text, "d"), "T", text, (), "d") for text in texts]
    whole = document_text(passages)
    assert whole == "One two three. Four five six.\nSeven eight.\n"
    taken = pieces_of("d", passages, "passages")
    assert [(piece.id, piece.text) for piece in taken] == [(passage.id, passage.full_text) for passage in passages]
    assert [whole[piece.start : piece.end] for piece in taken] == texts
    cut = pieces_of("d", passages, ChunkConfig(unit="word", size=4, overlap=1))
    assert [piece.text for piece in cut] == ["One two three. Four", "Four five six.\nSeven", "Seven eight."]
    assert len({piece.id for piece in cut}) == 3


def test_recorded_queries_are_limited_and_a_question_without_record_has_none(tmp_path: Path) -> None:
    path = tmp_path / "queries.jsonl"
    path.write_text(json.dumps({"id": "q0", "size": "small", "queries": ["a", "b", "c"]}) + "\n")
    source = RecordedQueries(path, most=2)
    assert run(source.queries(document(), document().questions)) == {"q0": Augmented("q0", (), ("a", "b")), "q1": Augmented("q1", (), ())}


def test_one_refused_document_has_no_queries_and_an_endpoint_that_is_down_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offline = {"kg": {"extractor": "worlds"}, "queries": {"generator": "template"}}
    config = ArkTrainingConfig.model_validate({"data": ["worlds/documents:train"], "base": "minilm", **offline})

    async def graph(self: GraphQueries, document: Document) -> KnowledgeGraph:
        if document.id.startswith("refused"):
            raise Broke("all calls failed", code=GRAPH_CALLS_FAILED)
        if document.id == "unknown model":
            raise Broke("no such model", code="unknown-model")
        return KnowledgeGraph(document.id, (), ())

    def made(source: GraphQueries, name: str) -> dict[str, Augmented]:
        one = Document(name, (), (Piece("c", 0, "text", 0, 4),), (Question(name, "Who?", ("a",)),))
        return dict(run(source.queries(one, one.questions)))

    monkeypatch.setattr(GraphQueries, "graph", graph)
    with raises(GRAPH_CALLS_FAILED):
        made(GraphQueries(config, tmp_path, Services()), "refused")
    source = GraphQueries(config, tmp_path, Services())
    made(source, "answered")
    assert made(source, "refused") == {"refused": Augmented("refused", (), ())}
    with raises("unknown-model"):
        made(source, "unknown model")
    made(source, "answered")
    for _ in range(HOPELESS - 1):
        made(source, "refused")
    with raises(GRAPH_CALLS_FAILED):
        made(source, "refused")
