"""Questions and answers come out of the store as they went in, with all the gold that scoring and judging read."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks import registry as datasets
from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, DataReference, DatasetCard
from benchmarks.schema import Passage, Question, passage_id
from judges.score import score
from methods.api import Evidence, Prediction
from results.store import queries, records
from results.store.store import Run, Store

REFERENCE = DataReference("toy", None, "dev")


@cache
def card() -> DatasetCard:
    return datasets.load("worlds/multihop:test", {"questions": 1}).card


def put(store: Store, questions: list[Question], passages: list[Passage], **run: Any) -> str:
    """Keep questions, and a run that has not answered yet; returns the data's fingerprint."""
    benchmark = Benchmark(REFERENCE, 1, card(), questions, Corpus.of(passages))
    store.put_benchmark(benchmark, benchmark.fingerprint)
    store.start(Run("abcd", "m", "m", "retriever", run, "toy:dev", benchmark.fingerprint, "corpus", 0, len(questions), {}))
    return benchmark.fingerprint


def stored(question: Question) -> Question:
    """What is to come back: everything but what only a loader and a method need."""
    return replace(question, candidates=None, metadata={})


names = st.text(st.characters(blacklist_categories=("Cs",)), max_size=8)
words = st.lists(names, max_size=3).map(tuple)
questions = st.builds(
    Question,
    id=names.filter(bool),
    text=names,
    answers=words,
    aliases=st.dictionaries(names, words, max_size=2),
    answer_set=st.booleans(),
    evidence=words,
    supporting_facts=words,
    triples=st.lists(st.tuples(names, names, names), max_size=2).map(tuple),
    type=names,
    answerable=st.booleans(),
    document_id=st.none() | names,
    topic_entities=words,
    grades=st.dictionaries(names, st.floats(-1, 9), max_size=2),
    excluded=words,
)


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(questions, min_size=1, max_size=4, unique_by=lambda question: question.id))
def test_any_question_comes_back_with_all_of_its_gold(tmp_path_factory: pytest.TempPathFactory, requests: list[Question]) -> None:
    store = Store(tmp_path_factory.mktemp("any") / "s")
    fingerprint = put(store, requests, [])
    result = records.gold_questions(store, fingerprint)
    assert list(result.values()) == [stored(question) for question in requests]
    assert list(result) == [question.id for question in requests]


@pytest.mark.slow
@pytest.mark.parametrize("reference", ["worlds/multihop:test", "worlds/graph:test"])
def test_questions_of_worlds_come_back_and_score_the_same(store: Store, reference: str) -> None:
    benchmark = datasets.load(reference, {})
    store.put_benchmark(benchmark, benchmark.fingerprint)
    kept = list(records.gold_questions(store, benchmark.fingerprint).values())
    assert kept == [stored(question) for question in benchmark.questions]
    responses = [Prediction(question.id, question.golds[0] if n % 3 else "x") for n, question in enumerate(kept)]
    metrics = [str(metric) for metric in benchmark.card.metrics]
    fresh, again = (score(query, responses, metrics) for query in (benchmark.questions, kept))
    assert set(fresh) == set(again)
    for metric, values in fresh.items():
        np.testing.assert_array_equal(values, again[metric])


def test_answers_come_in_the_datasets_order_and_only_where_there_are_some(store: Store) -> None:
    put(store, [Question(f"q{n}", "?", ("a",)) for n in (3, 1, 2)], [])
    store.append("abcd", [Prediction("q2", "two"), Prediction("q3", "three")], {})
    requests, responses = records.answered(store, queries.find_run(store, "abcd"))
    assert [question.id for question in requests] == [p.question_id for p in responses] == ["q3", "q2"]
    assert [prediction.answer for prediction in responses] == ["three", "two"]


@pytest.mark.parametrize(("k", "expected"), [(None, ["one", "two", "three"]), (2, ["one", "two"])])
def test_an_answer_was_read_from_the_first_k_each_passage_once(store: Store, k: int | None, expected: list[str]) -> None:
    passages = [Passage(passage_id("", text), "", text, (text,)) for text in ("one", "two", "three")]
    entry, two, three = (passage.id for passage in passages)
    put(store, [Question("q", "?", ("a",))], passages, **({} if k is None else {"k": k}))
    ranking = (entry, two, three)
    response = Prediction("q", "a", tuple(Evidence(identifier, 1.0) for identifier in ranking))
    store.append("abcd", [response], {}, passages)
    (item,) = records.items(store, queries.find_run(store, "abcd"))
    assert [passage.text for passage in item.passages] == expected
    assert item.prediction == response


def test_positives_are_those_that_the_store_holds(store: Store) -> None:
    known = Passage(passage_id("T", "x"), "T", "x")
    requests = [Question("q1", "?", ("a",), evidence=("p-unknown", known.id)), Question("q2", "?", ("a",))]
    put(store, requests, [known])
    assert records.positives(store, requests) == [(known,), ()]
