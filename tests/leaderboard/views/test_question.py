"""Contexts, statements, searches and confidence on the question page."""

from __future__ import annotations

from leaderboard.elements.nodes import Node
from leaderboard.views.question import question, returned
from results.store.answer_queries import AnswerRow, QuestionRow
from tests.leaderboard.hostile import TEXT


def texts(node: Node | str) -> list[str]:
    return [node] if isinstance(node, str) else [text for child in node.children for text in texts(child)]


def test_contexts_statements_searches_and_confidence_are_shown() -> None:
    record = {
        "contexts": [
            {"text": TEXT, "url": "javascript:alert(1)", "score": 0.5, "matched": []},
            {"text": "b", "id": "d1", "matched": ["p1"]},
        ],
        "statements": [{"text": "Lyon.", "cites": [0, "d1"]}],
        "searches": [{"query": "city", "found": ["d1", "d2"], "used": ["d1"]}],
        "confidence": 0.25,
    }
    answer = AnswerRow("r", "app", "Lyon", None, {}, (), {}, {}, {}, 0, 0, 0, 0, 0.0, record=record)
    shown = texts(returned(answer, "q1"))
    assert TEXT in "".join(shown)
    assert shown.count("not in the corpus") == 1
    assert {"contexts: 2, statements: 1, searches: 1, confidence: 0.25", " cites 0, d1", " found 2, used 1"} <= set(shown)


def test_earlier_turns_are_shown_before_the_question() -> None:
    from benchmarks.schema import Turn

    row = QuestionRow("q1", "And there?", (), (), (), (), "", None, (Turn("user", "Hi"),))
    shown = texts(question(row))
    assert shown.index("Hi") < shown.index("And there?")
