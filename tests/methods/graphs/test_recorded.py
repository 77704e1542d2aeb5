"""Graphs and augmented queries from files: content, counts, and errors that name the line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from methods.graphs.augmented_queries import QueriesConfig
from methods.graphs.chunking import Chunk
from methods.graphs.extraction import GraphConfig
from methods.graphs.recorded import BROKEN, MISSING, FileTriples, check_file, recorded_queries
from tests.support.errors import raises

LINE: dict[str, Any] = {"id": "q1", "size": "large", "entities": [], "queries": ["Who?", "Where?"]}


def lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows), "utf-8")
    return path


def test_queries_are_read_by_question_and_size(tmp_path: Path) -> None:
    path = lines(tmp_path / "q.jsonl", LINE, {**LINE, "size": "small", "queries": []}, {**LINE, "id": "q2"})
    assert recorded_queries(path) == {"q1": {"large": ("Who?", "Where?"), "small": ()}, "q2": {"large": ("Who?", "Where?")}}


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({**LINE, "id": "q2", "size": "medium"}, "size"),
        (LINE, "id"),
        ({**LINE, "id": " "}, "id"),
        ({**LINE, "id": "q2", "queries": ["Who?", " "]}, "queries"),
        ({**LINE, "id": "q2", "queries": "Who?"}, "queries"),
        ({**LINE, "id": "q2", "queries": [1]}, "queries[0]"),
        ({"id": "q2", "size": "small"}, "queries"),
        ("{", "line 2"),
    ],
)
def test_invalid_line_is_named_with_its_field(row: Any, field: str, tmp_path: Path) -> None:
    path = lines(tmp_path / "q.jsonl", LINE, row)
    with raises("bad-record", "line 2") as caught:
        recorded_queries(path)
    assert field in (caught.value.where or "")


def passages(folder: Path) -> Path:
    rows = [
        {
            "title": "Velmar",
            "text": "Velmar lies on\nthe Orn.",
            "triples": [["Velmar", "lies on", "Orn"], ["Velmar", "is"], ["Orn", "is", "orn"]],
        },
        {"text": "Nothing here.", "triples": []},
    ]
    return lines(folder / "p.jsonl", *rows)


def test_triples_of_passages_give_a_graph_with_described_entities(tmp_path: Path) -> None:
    chunks = [Chunk(0, "Velmar\nVelmar lies on the Orn.", 0, 0), Chunk(1, "Nothing here.", 0, 0), Chunk(2, "Unknown.", 0, 0)]
    graph = FileTriples(passages(tmp_path)).extract("d", chunks)
    assert [(node.name, node.descriptions, node.chunks) for node in graph.nodes] == [
        ("ORN", ("Velmar lies on Orn",), (0,)),
        ("VELMAR", ("Velmar lies on Orn",), (0,)),
    ]
    assert [(edge.source, edge.target) for edge in graph.edges] == [("ORN", "VELMAR")]
    assert graph.counts == {f"malformed: {BROKEN}": 2, MISSING: 1}


def test_triples_of_a_passage_in_several_lines_are_joined(tmp_path: Path) -> None:
    row = {"text": "Velmar lies on the Orn.", "triples": [["Velmar", "lies on", "Orn"]]}
    path = lines(tmp_path / "p.jsonl", row, {**row, "triples": [["Velmar", "lies on", "Orn"], ["Orn", "passes", "Karn"]]})
    graph = FileTriples(path).extract("d", [Chunk(0, row["text"], 0, 0)])
    assert [(edge.source, edge.target) for edge in graph.edges] == [("KARN", "ORN"), ("ORN", "VELMAR")]


def test_file_about_other_passages_is_refused(tmp_path: Path) -> None:
    with raises("triples-match-nothing", "p.jsonl"):
        FileTriples(passages(tmp_path)).extract("d", [Chunk(0, "Unknown.", 0, 0)])


def test_unnamed_or_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="path"):
        QueriesConfig.model_validate({"generator": "recorded"})
    with pytest.raises(ValueError, match="file"):
        GraphConfig.model_validate({"extractor": "file"})
    with raises("missing-file", "queries.path"):
        check_file(str(tmp_path / "none.jsonl"), "queries.path")
    assert "path" not in QueriesConfig.model_validate({}).model_dump()
    assert "file" not in GraphConfig.model_validate({}).model_dump()
