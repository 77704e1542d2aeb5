"""Declared training data compared with what a store has, and nothing loaded for it."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from benchmarks import registry, settings
from benchmarks.registry import Benchmark, DataReference
from benchmarks.schema import Question
from results.store.store import Store
from results.submission import Report
from results.submission.card import parse_card
from results.submission.leakage import stored_training
from results.submission.validate import Target, validate
from tests.support.errors import raises


@pytest.fixture(scope="module")
def world() -> Benchmark:
    return registry.load("worlds/multihop:validation").limited(4)


def keep(store: Store, world: Benchmark, reference: str, questions: Sequence[Question]) -> None:
    held = replace(world, reference=DataReference.parse(reference), questions=list(questions))
    store.put_benchmark(held, held.fingerprint)


def check(store: Store, world: Benchmark, *references: str) -> Report:
    data = ", ".join(f"{{reference: '{reference}'}}" for reference in references)
    card = parse_card(
        f"method: {{name: m, version: '1'}}\nbenchmark: worlds/multihop:validation\nsetting: distractor\nlimit: 4\n"
        f"training_data: [{data}]\n".encode(),
        "card.yaml",
    )
    rows = "".join(json.dumps({"question_id": question.id, "answer": "x"}) + "\n" for question in world.questions)
    target = Target(world, settings.apply("distractor", world, 0))
    return validate(card, io.BytesIO(rows.encode()), target, file="p", training=stored_training(store))


def test_questions_in_the_store_are_compared_and_no_dataset_is_loaded(
    store: Store, world: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.registry.load", lambda *value: pytest.fail("a dataset was loaded"))
    shared = replace(world.questions[0], id="elsewhere", text=f" {world.questions[0].text.upper()}")
    keep(store, world, "hotpotqa/distractor:train", [shared])
    (response,) = check(store, world, "hotpotqa:train").contamination
    assert "1 of the evaluated questions word for word" in response
    assert check(store, world, "hotpotqa/distractor:train+dev", "hotpotqa:test").contamination[0].startswith("training data 1 ")
    report = check(store, world, "hotpotqa:dev", "musique:train", "hotpotqa/fullwiki:dev")
    assert report.contamination == ()
    (note,) = [finding for finding in report.findings if finding.code == "training_data_not_compared"]
    assert (note.severity, note.count) == ("note", 3)


def test_stored_data_that_hold_more_than_a_reference_say_nothing_of_it(store: Store, world: Benchmark) -> None:
    keep(store, world, "hotpotqa/distractor:train+dev", [replace(world.questions[0], id="elsewhere")])
    with raises("unknown-question"):
        stored_training(store)("hotpotqa:train")
    assert len(stored_training(store)("hotpotqa:dev+train")) == 1
    assert len(stored_training(store)("hotpotqa")) == 1


@pytest.mark.slow
def test_a_thousand_references_read_the_store_once(store: Store, world: Benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    from results.store import answer_queries

    keep(store, world, "hotpotqa/distractor:train", [replace(world.questions[0], id="elsewhere")])
    read: list[str] = []
    real = answer_queries.questions
    monkeypatch.setattr("results.store.answer_queries.questions", lambda of, data: read.append(data) or real(of, data))
    report = check(store, world, *["hotpotqa:train", "hotpotqa:train+dev", "hotpotqa:dev+train"] * 333)
    assert len(report.contamination) == 999
    assert len(read) == 1
