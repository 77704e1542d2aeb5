"""Boards that submissions join, targets rebuilt from the store, and previews."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import registry, settings
from benchmarks.settings import Setting
from judges.metric import parse
from methods.api import Evidence, Prediction
from results.boards.board import board
from results.store import queries, score_queries
from results.store.store import FINISHED, Run, Store
from results.submission.card import Card, parse_card
from results.submission.from_store import known_board, stored_target, template_of
from results.submission.storing import board_runs, preview, store_report, to_json
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
    board = known_board(ours, card())
    assert (board.fingerprint, [run.run for run in board.runs]) == (target.fingerprint, ["ab" * 8])
    assert [row.run for row in board_runs(queries.runs(ours), target.fingerprint, "distractor", 0)] == ["ab" * 8]


@pytest.mark.parametrize("changes", [{"limit": 4}, {"limit": 4, "config": {"worlds": 3}}, {"config": {"worlds": 3}}])
def test_the_fingerprint_of_a_template_names_its_board_whatever_else_it_says(ours: Store, target: Target, changes: dict[str, Any]) -> None:
    assert known_board(ours, card(dataset_fingerprint=target.fingerprint, **changes)).fingerprint == target.fingerprint


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"benchmark": "worlds/long:validation"}, "no-board-for-setting"),
        ({"benchmark": "worlds/multihop:test"}, "no-board-for-setting"),
        ({"setting": "corpus"}, "no-board-for-setting"),
        ({"seed": 1}, "no-board-for-setting"),
        ({"config": {"worlds": 3}}, "benchmark-options-refused"),
        ({"limit": 4}, "no-board-for-questions"),
        ({"dataset_fingerprint": "ab" * 8}, "no-board-for-questions"),
    ],
)
def test_other_boards_are_refused_and_those_that_are_here_are_named(
    ours: Store, target: Target, changes: dict[str, Any], code: str
) -> None:
    with raises(code) as caught:
        known_board(ours, card(**changes))
    known = "worlds/multihop:validation, setting distractor, seed 0" if code == "no-board-for-setting" else target.fingerprint
    assert known in str(caught.value.try_this)


def test_an_empty_store_has_no_board(store: Store) -> None:
    store.put_cards([], [])
    with raises("no-board-for-setting") as caught:
        known_board(store, card())
    assert caught.value.try_this == "run an experiment first, for example ragmeter demo"


def test_limit_or_fingerprint_choose_between_two_boards_of_one_benchmark(ours: Store, target: Target) -> None:
    fewer = target.loaded.limited(3)
    ours.put_benchmark(fewer, fewer.fingerprint)
    ours.start(Run("cd" * 8, "m", "m", "method", {}, fewer.name, fewer.fingerprint, "distractor", 0, 3, {}))
    assert known_board(ours, card(limit=3)).fingerprint == fewer.fingerprint
    assert known_board(ours, card(limit=None, dataset_fingerprint=target.fingerprint)).fingerprint == target.fingerprint
    with raises("no-board-for-questions"):
        known_board(ours, card(limit=None))


def test_scores_from_the_store_equal_those_from_the_data(ours: Store, target: Target, rows: Callable[..., Path]) -> None:
    metrics = [*METRICS, parse("recall@5"), parse("ndcg@10")]
    evidence = [question.evidence[:1] for question in target.loaded.questions]
    reports = []
    for checked in (target, stored_target(ours, known_board(ours, card()), Setting.parse("distractor"))):
        with rows(target, ["no", *(question.answers[0] for question in target.loaded.questions[1:])], evidence).open("rb") as source:
            reports.append(validate(card(), source, checked, file="x", metrics=metrics))
    from_data, from_store = reports
    assert from_store.ok
    assert from_store.dataset_fingerprint == from_data.dataset_fingerprint
    assert from_store.means == from_data.means
    assert from_store.digest == from_data.digest
    assert "not_checked" in [finding.code for finding in from_store.findings]


def test_evidence_that_the_store_does_not_hold_is_counted_and_no_text_of_it_is_scored(
    ours: Store, target: Target, rows: Callable[..., Path]
) -> None:
    checked = stored_target(ours, known_board(ours, card()), Setting.parse("distractor"))
    metrics = [parse("recall@5"), parse("has_answer@5")]
    evidence = [("p" + "0" * 16, question.evidence[0]) for question in target.loaded.questions]
    with rows(target, ["no"] * 5, evidence).open("rb") as source:
        report = validate(card(), source, checked, file="x", metrics=metrics)
    assert list(report.scores) == ["recall@5#v2"]
    (note,) = [finding for finding in report.findings if finding.code == "not_checked"]
    assert "5 items" in note.what
    with rows(target, ["no"] * 5, [("my-own-id",)] * 5).open("rb") as source:
        report = validate(card(), source, checked, file="x", metrics=metrics)
    assert [(finding.code, finding.count) for finding in report.of("error")] == [("unknown_evidence", 5)]


def test_a_closed_book_submission_has_no_value_of_rankings(ours: Store, target: Target, rows: Callable[..., Path]) -> None:
    with rows(target, ["no"] * 5).open("rb") as source:
        report = validate(card(), source, target, file="x", metrics=[*METRICS, parse("recall@5"), parse("sp_f1")])
    assert list(report.scores) == [str(metric) for metric in METRICS]
    run = store_report(ours, report, target, METRICS, environment={}).run
    assert set(score_queries.metric_ids(ours, [run])) == {str(metric) for metric in METRICS}


def test_seeds_of_worlds_are_known_without_the_data(ours: Store) -> None:
    checked = stored_target(ours, known_board(ours, card()), Setting.parse("distractor"))
    assert {question.metadata["seed"] for question in checked.loaded.questions} == {10000}


def test_a_template_from_the_store_is_a_valid_submission_once_it_is_filled_in(ours: Store, target: Target) -> None:
    board = known_board(ours, card())
    packed = zipfile.ZipFile(io.BytesIO(template_of(ours, board, "distractor", 0)))
    filled = parse_card(packed.read("card.yaml").replace(b"# training_data: []", b"training_data: []"), "card.yaml")
    requests = [json.loads(line) for line in packed.read("questions.jsonl").splitlines()]
    assert known_board(ours, filled) == board
    assert [row["id"] for row in requests] == [question.query_id for question in target.loaded.questions]
    assert {key for row in requests for key in row} == {"id", "text"}


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

    def write(target: Target, answers: list[str], evidence: Sequence[Sequence[str]] = ()) -> Path:
        ranked = [tuple(Evidence(item, 0.0) for item in items) for items in evidence] or [()] * len(answers)
        triples = zip(target.loaded.questions, answers, ranked, strict=False)
        responses = [Prediction(question.query_id, answer, items) for question, answer, items in triples]
        file = tmp_path / "predictions.jsonl"
        file.write_text("".join(json.dumps(item.to_json()) + "\n" for item in responses), "utf-8")
        return file

    return write
