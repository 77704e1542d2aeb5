"""A metric or a judge that ranks a control wrongly is flagged on the board that shows it; a sane one is not."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from judges.judge import Judge, JudgeCall, Parsed, Score
from judges.metric import METRICS, register
from ragmeter.show.board_text import show_board
from results.boards.added import add_columns
from results.boards.board import boards
from results.boards.controls import wrongly_ranked
from results.judging import judgments
from results.store.store import Store

CONTROLS = {
    "gold_answer": ["ann", "bob", "cyd"],
    "empty_answer": ["", "", ""],
    "idk": ["I don't know"] * 3,
    "shuffled_answer": ["bob", "cyd", "ann"],
    "whole_passage": ["0: ann was here", "1: bob was here", "2: cyd was here"],
}
METHODS = {"good": ["ann", "bob", "x"], "bad": ["x", "y", "cyd"]}
KINDS = dict.fromkeys(CONTROLS, "control")


@pytest.fixture
def scratch() -> Iterator[None]:
    """Metrics that a test registers are gone after it."""
    list(METRICS)
    before = dict(METRICS._entries)
    yield
    METRICS._entries.clear()
    METRICS._entries.update(before)


def flagged(store: Store, fill: Any, metric: str) -> list[str]:
    """What is flagged on a board of controls and methods, on the board and in what is printed."""
    fill(store, {**METHODS, **CONTROLS}, ["ann", "bob", "cyd"], kinds=KINDS, metrics=(metric,), reference="good")
    (board,) = boards(store, "toy")
    console = Console(width=200, record=True, file=io.StringIO())
    show_board(board, console)
    text = console.export_text()
    results = [sentence for wrong in board.flags.values() for sentence in wrong]
    assert board.to_json()["flags"] == board.flags
    assert ("⚑" in text) == bool(results)
    assert all(sentence in text for sentence in results)
    return results


def made_up(worth: dict[str, float], *, higher: bool = True, group: str = "answer") -> str:
    """A metric that gives each method's answers the values it was made with."""
    by_answer = {answer: value for name, value in worth.items() for answer in {**METHODS, **CONTROLS}[name]}

    @register(
        "test_made_up", source="a test", group=group, needs=("answer",), low=None, high=None, higher_is_better=higher, missing="empty"
    )
    def compute(batch):  # type: ignore[no-untyped-def]
        """The values."""
        return np.array([by_answer.get(answer, 0.0) for answer in batch.answers])

    return "test_made_up"


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["em", "f1(rules=squad)"])
def test_a_sane_metric_is_not_flagged(store: Store, fill: Any, metric: str) -> None:
    assert flagged(store, fill, metric) == []


@pytest.mark.slow
def test_a_metric_that_asks_only_for_the_gold_to_occur_cannot_tell_passages_from_answers(store: Store, fill: Any) -> None:
    assert flagged(store, fill, "cover_em") == ["cannot tell a whole passage from the gold answer"]


@pytest.mark.slow
def test_a_metric_of_length_is_flagged_for_all_it_gets_wrong(store: Store, fill: Any, scratch: None) -> None:
    @register("too_long", source="a test", group="answer", needs=("answer",), low=None, high=None)
    def length(batch):  # type: ignore[no-untyped-def]
        """Characters of the answer."""
        return np.array([len(answer) for answer in batch.answers], dtype=float)

    result = flagged(store, fill, "too_long")
    assert result == [
        "ranks idk above the gold answer",
        "ranks whole_passage above the gold answer",
        "ranks idk as high as the best method",
        "ranks shuffled_answer as high as the best method",
    ]


@pytest.mark.slow
def test_each_control_above_the_gold_is_named(store: Store, fill: Any, scratch: None) -> None:
    result = flagged(store, fill, made_up({"good": 0.5, "gold_answer": 0.8, "idk": 0.9, "whole_passage": 0.9}))
    assert {f"ranks {worthless} above the gold answer" for worthless in ("idk", "whole_passage")} <= {*result}


@pytest.mark.slow
def test_a_method_above_the_gold_answer_is_flagged(store: Store, fill: Any, scratch: None) -> None:
    by_answer = {"x": 3.0, "ann": 1.0, "bob": 1.0, "cyd": 1.0}

    @register("test_x", source="a test", group="answer", needs=("answer",), low=None, high=None)
    def likes_x(batch):  # type: ignore[no-untyped-def]
        """It likes x."""
        return np.array([by_answer.get(answer, 0.0) for answer in batch.answers])

    assert "ranks good above the gold answer" in flagged(store, fill, "test_x")


@pytest.mark.slow
def test_where_less_is_better_the_controls_are_turned_too(store: Store, fill: Any, scratch: None) -> None:
    worth = {"good": 0.5, "bad": 0.8, "idk": 1.0, "empty_answer": 1.0, "shuffled_answer": 1.0, "whole_passage": 1.0}
    # The shuffled answers are gold answers too, to a metric that reads the answer alone.
    result = flagged(store, fill, made_up(worth | {"gold_answer": 0.0}, higher=False))
    assert result == ["ranks shuffled_answer as high as the best method"]
    assert wrongly_ranked({"gold_answer": -0.0, "idk": -1.0, "whole_passage": -1.0}, {"good": -0.5}) == []


@pytest.mark.slow
def test_metrics_of_rankings_have_no_place_for_controls_of_answers(store: Store, fill: Any, scratch: None) -> None:
    assert flagged(store, fill, made_up({"idk": 1.0}, group="retrieval")) == []


@pytest.mark.slow
def test_without_controls_there_is_nothing_to_flag(store: Store, fill: Any) -> None:
    fill(store, METHODS, ["ann", "bob", "cyd"], metrics=("cover_em",))
    (board,) = boards(store, "toy")
    assert board.flags == {}


@pytest.mark.slow
def test_a_judge_is_held_to_the_controls_and_its_shares_are_not(store: Store, fill: Any) -> None:
    runs = fill(store, {**METHODS, **CONTROLS}, ["ann", "bob", "cyd"], kinds=KINDS, metrics=())
    judge = Judge.of("match", {"llm": {"model": "m"}})
    judgments.put_judge(store, judge)
    for name, run in runs.items():
        value = 1.0 if name in ("idk", "gold_answer") else 0.5
        call = JudgeCall("match", 0, "k", Parsed({"verdict": "Match"}))
        score = {"accuracy": Score(value), "partial": Score(1.0), "mismatch": Score(1.0)}
        judgments.put_judgments(store, run.run, judge, ["q0", "q1"], [[call]] * 2, [score] * 2)
        add_columns(store, run.run, list(judge.metrics.values()))
    (board,) = boards(store, "toy")
    assert board.flags == {
        judge.metric("accuracy"): [
            "ranks empty_answer as high as the best method",
            "ranks idk as high as the best method",
            "ranks shuffled_answer as high as the best method",
        ]
    }


@pytest.mark.parametrize(
    ("controls", "methods", "expected"),
    [
        ({}, {"m": 0.5}, []),
        ({"gold_answer": 1.0, "idk": 0.0, "whole_passage": 0.3}, {"m": 1.0}, []),
        ({"gold_answer": 0.9}, {"m": 0.95}, ["ranks m above the gold answer"]),
        ({"gold_answer": 1.0, "whole_passage": 1.0}, {"m": 0.5}, ["cannot tell a whole passage from the gold answer"]),
        ({"empty_answer": 0.5}, {"m": 0.5, "n": 0.2}, ["ranks empty_answer as high as the best method"]),
        ({"empty_answer": 0.4}, {"m": 0.5, "n": 0.2}, []),
        ({"gold_answer": 0.0, "idk": 0.0}, {}, ["ranks idk as high as the best method"]),
    ],
)
def test_places_by_hand(controls: dict[str, float], methods: dict[str, float], expected: list[str]) -> None:
    assert wrongly_ranked(controls, methods) == expected


@pytest.mark.parametrize(("name", "held"), [("grounding", "factual_correctness"), ("match", "accuracy")])
def test_of_a_judge_only_what_says_how_right_an_answer_is_has_places_for_controls(name: str, held: str) -> None:
    """Faithfulness has none: copying the wrong passage is more faithful than the gold answer."""
    judge = Judge.of(name, {"llm": {"model": "m"}})
    assert [measure["name"] for measure in judge.describe()["measures"] if measure["group"] == "judge"] == [held]
