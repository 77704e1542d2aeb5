"""Which submissions a server accepts, and what a preview says of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import registry, settings
from benchmarks.core.errors import UserError
from judges.metric import parse
from methods.api import Prediction
from results.boards.board import board
from results.store import queries
from results.store.store import FINISHED, Run, Store
from results.submission.card import Card
from results.submission.storing import beside, preview, require_board, require_known, store_report, to_json
from results.submission.validate import Target, validate
from tests.support.errors import raises

METRICS = [parse("em"), parse("f1(rules=hotpotqa)")]


def card(**changes: Any) -> Card:
    responses = {
        "method": {"name": "theirs", "version": "1"},
        "benchmark": "worlds/multihop:validation",
        "setting": "distractor",
        "training_data": [],
        "limit": 5,
    }
    return Card.model_validate(responses | changes)


@pytest.fixture
def target() -> Target:
    loaded = registry.load("worlds/multihop:validation").limited(5)
    return Target(loaded, settings.apply("distractor", loaded, 0))


@pytest.fixture
def ours(store: Store, target: Target) -> Store:
    """A store with one unanswered run over the target."""
    loaded = target.loaded
    store.put_benchmark(loaded, loaded.fingerprint)
    store.start(Run("ab" * 8, "m", "m", "method", {}, loaded.name, loaded.fingerprint, "distractor", 0, 5, {}))
    store.end("ab" * 8, FINISHED)
    return store


def test_a_board_that_is_here_is_taken(ours: Store, target: Target) -> None:
    require_known(ours, card())
    require_board(ours, card(), target.loaded.fingerprint)
    assert [row.run for row in beside(queries.runs(ours), target.loaded.fingerprint, "distractor", 0)] == ["ab" * 8]


@pytest.mark.parametrize(
    "changes",
    [
        {"benchmark": "worlds/long:validation"},
        {"benchmark": "worlds/multihop:test"},
        {"setting": "corpus"},
        {"seed": 1},
        {"config": {"worlds": 10**9}},
    ],
)
def test_nothing_else_is_and_the_boards_that_are_here_are_named(ours: Store, changes: dict[str, Any]) -> None:
    with pytest.raises(UserError) as caught:
        require_known(ours, card(**changes))
    if "config" not in changes:
        assert "worlds/multihop:validation, setting distractor, seed 0" in str(caught.value.try_this)


def test_an_empty_store_has_no_board(store: Store) -> None:
    store.put_cards([], [])
    with raises("no-board-for-setting") as caught:
        require_known(store, card())
    assert caught.value.try_this == "run something first: ragmeter demo"


def test_other_questions_of_the_same_benchmark_are_another_board(ours: Store) -> None:
    with raises("no-board-for-questions"):
        require_board(ours, card(limit=4), registry.load("worlds/multihop:validation").limited(4).fingerprint)


@pytest.mark.slow
def test_a_preview_has_the_numbers_that_the_board_shows_afterwards(
    ours: Store, target: Target, tmp_path: Path, rows: Callable[..., Path]
) -> None:
    answers = [question.answers[0] if n % 2 else "no" for n, question in enumerate(target.loaded.questions)]
    with rows(target, answers).open("rb") as source:
        report = validate(card(), source, target, file="x", metrics=METRICS)
    seen = preview(report, target)
    assert report.ok
    assert set(seen) == {str(metric) for metric in METRICS}
    run = store_report(ours, report, target, METRICS, environment={}).run
    (row,) = [row for row in queries.runs(ours) if row.run == run]
    shown = {metric: cell.estimate for metric, cell in board(ours, [row]).rows[0].cells.items()}
    assert to_json(seen) == to_json(shown)


def test_what_cannot_be_stored_has_no_preview(target: Target, rows: Callable[..., Path]) -> None:
    with rows(target, ["no"] * 4).open("rb") as source:
        report = validate(card(), source, target, file="x", metrics=METRICS)
    assert not report.ok
    assert preview(report, target) == {}


@pytest.fixture
def rows(tmp_path: Path) -> Callable[..., Path]:
    """From answers to the first questions to a file of predictions."""

    def write(target: Target, answers: list[str]) -> Path:
        responses = [Prediction(q.query_id, answer) for q, answer in zip(target.loaded.questions, answers, strict=False)]
        file = tmp_path / "predictions.jsonl"
        file.write_text("".join(json.dumps(item.to_json()) + "\n" for item in responses), "utf-8")
        return file

    return write
