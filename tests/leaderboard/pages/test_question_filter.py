"""Question filters and rank cutoffs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import pytest

from leaderboard.elements.nodes import Node
from leaderboard.pages.question import hops_of, passing, worst_of
from leaderboard.views.question import cutoffs, evidence
from results.store.answer_queries import AnswerRow, EvidenceRow, Passage, QuestionRow
from results.store.queries import RunRow
from results.store.variants import style_of_name

ROWS = [
    QuestionRow("q0", "Who?", ("Ada",), ("Ada",), ("p1",), (), "bridge", None),
    QuestionRow("q1", " ".join(["word"] * 15), ("b",), ("b",), ("p1", "p2"), (), "comparison", None),
    QuestionRow("q2", " ".join(["word"] * 30), ("c",), ("c",), (), (), "bridge", None),
]
NAN = float("nan")
SCORES = np.array([[0.0, 1.0, 1.0], [0.5, 1.0, NAN]])


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, [0, 1, 2]),
        ({"failures": True}, [0]),
        ({"differ": True}, [0]),
        ({"kind": "bridge"}, [0, 2]),
        ({"hops": "0"}, [2]),
        ({"hops": "2"}, [1]),
        ({"length": "short"}, [0]),
        ({"length": "medium"}, [1]),
        ({"length": "long"}, [2]),
        ({"words": "ADA"}, [0]),
        ({"words": "word", "kind": "comparison"}, [1]),
    ],
)
def test_questions_must_meet_all_filter_conditions(wanted: dict[str, Any], expected: list[int]) -> None:
    assert passing(ROWS, SCORES, 0.0, **wanted) == expected


def test_unbounded_metric_has_no_failures_and_lower_is_better_fails_at_its_maximum() -> None:
    assert passing(ROWS, SCORES, None, failures=True) == []
    assert passing(ROWS, np.empty((0, 3)), 0.0, differ=True) == []
    assert worst_of({"low": 0.0, "high": 1.0, "higher_is_better": False}) == 1.0
    assert worst_of({"low": 0.0, "high": 1.0, "higher_is_better": True}) == 0.0
    assert worst_of({"low": 0.0, "high": None, "higher_is_better": False}) is None
    assert hops_of(ROWS) == ["0", "1", "2"]


def run(**description: Any) -> RunRow:
    day = datetime(2026, 3, 1)
    return RunRow("r", "e", "bm25", "bm25", "retriever", "nq:test", "f" * 16, "distractor", 0, 3, 3, 0,
                  "finished", None, day, day, "run", description, {}, {}, None, None, style_of_name("nq:test"))  # fmt: skip


def test_rank_k_of_metric_and_of_reader_are_marked() -> None:
    assert cutoffs(run(k=5, reader={"id": "x"}), "f1#v2") == {5: "the reader gets 5"}
    assert cutoffs(run(k=5, reader=None), "recall@2#v2") == {2: "recall@2 counts down to this rank"}
    assert cutoffs(run(k=2, reader={"id": "x"}), "recall@2#v2") == {2: "recall@2 counts down to this rank; the reader gets 2"}
    assert cutoffs(run(), "em#v2") == {}


def test_missed_gold_is_listed_below_the_ranking_and_rank_k_within_it() -> None:
    evidence_rows = tuple(EvidenceRow(number, f"p{number}", 1.0, f"title {number}", f"text {number}", (), number == 1) for number in (1, 3))
    answer = AnswerRow("r", "bm25", "Lyon", None, {}, evidence_rows, {}, {}, {}, 0, 0, 0, 0, 0.0)
    gold = {"p2": Passage("p2", "Second", "the text", ())}
    tree = evidence(ROWS[1], answer, gold, {1: "recall@1 counts down to this rank"}, opened=True)
    items = [" ".join(node.texts()) for node in next(tree.find(tag="ol")).children if isinstance(node, Node)]
    assert [text.partition(":")[0] for text in items[1:2]] == ["rank 1"]
    assert "Second" in items[-1]
    assert "missed gold" in items[-1]
    assert sum("missed gold" in text for text in items) == 1
    unknown = evidence(ROWS[1], answer, {}, {}, opened=True)
    assert "p2 missed gold" in " ".join(unknown.texts())
