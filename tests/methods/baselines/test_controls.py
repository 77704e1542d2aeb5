"""Controls: methods whose scores are known in advance."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.schema import Question, sentence_of
from benchmarks.text import normalize
from methods.api import SUPPORT, TRIPLES, Services
from methods.baselines.controls import deal
from methods.pipeline import assemble
from methods.registry import METHODS, Component


def run(identifier: str, ground: Any, **parts: Any) -> list[Any]:
    method: Any = assemble(Component.of(identifier), Services(), **parts)
    method.prepare(ground.questions)
    method.index(ground.corpus)
    return list(method.answer([question.gold_query() for question in ground.questions]))


def test_gold_control_returns_gold_answer_and_evidence(ground: Any) -> None:
    for question, prediction in zip(ground.questions, run("gold_answer", ground), strict=True):
        assert prediction.question_id == question.query_id
        assert prediction.answer == question.answers[0]
        assert tuple(item.id for item in prediction.evidence) == question.evidence
        assert prediction.notes[SUPPORT] == [list(sentence_of(fact)) for fact in question.supporting_facts]
        assert prediction.notes[TRIPLES] == [list(triple) for triple in question.triples]


def test_empty_answer_returns_no_text_and_idk_i_dont_know(ground: Any) -> None:
    assert {(p.answer, p.evidence) for p in run("empty_answer", ground)} == {("", ())}
    assert {p.answer for p in run("idk", ground)} == {"I don't know"}


def test_whole_passage_control_answers_with_the_first_positive(ground: Any) -> None:
    for question, prediction in zip(ground.questions, run("whole_passage", ground), strict=True):
        assert prediction.answer == ground.corpus.get(question.evidence)[0].text


def test_oracle_evidence_is_the_positives_and_works_with_any_reader(ground: Any) -> None:
    predictions = run("oracle_evidence", ground, reader=Component.of("extractive"))
    for question, prediction in zip(ground.questions, predictions, strict=True):
        assert tuple(item.id for item in prediction.evidence) == question.evidence
        assert prediction.answer == question.answers[0]


def test_control_refuses_a_query_without_gold(ground: Any) -> None:
    method: Any = assemble(Component.of("gold_answer"), Services())
    method.index(ground.corpus)
    with pytest.raises(TypeError, match="GoldQuery"):
        list(method.answer([ground.questions[0].query()]))


def test_every_control_is_registered_as_a_control() -> None:
    names = {"gold_answer", "empty_answer", "idk", "whole_passage", "shuffled_answer", "oracle_evidence"}
    assert {entry.id for entry in METHODS if entry.kind == "control"} >= names


def questions_with(answers: list[str]) -> list[Question]:
    return [Question(f"n{number}", "?", (answer,)) for number, answer in enumerate(answers)]


@given(st.lists(st.sampled_from(["yes", "no", "The Yes!", "Rome", "Oslo", "", "the"]), max_size=25), st.integers(0, 9))
def test_shuffled_answer_is_never_accepted_and_is_gold_of_another_question(answers: list[str], seed: int) -> None:
    questions = questions_with(answers)
    dealt = deal(questions, seed)
    assert deal(questions[::-1], seed) == dealt
    for question in questions:
        got, accepted = dealt[question.query_id], {normalize(gold) for gold in question.golds}
        others = {normalize(answer) for answer in answers} - accepted - {""}
        assert normalize(got) not in accepted - {""}
        assert (got in answers and normalize(got) in others) if others else got == ""


def test_distinct_answers_are_each_assigned_once() -> None:
    questions = questions_with([f"answer {number}" for number in range(30)])
    assert Counter(deal(questions, 0).values()) == Counter(f"answer {number}" for number in range(30))


def test_question_with_an_answer_set_gets_the_whole_set_of_another() -> None:
    questions = [Question("a", "?", ("x", "y"), answer_set=True), Question("b", "?", ("z",))]
    assert deal(questions, 0) == {questions[0].query_id: "z", questions[1].query_id: "x\ny"}


def test_aliases_of_a_question_are_not_assigned_to_it() -> None:
    questions = [Question("a", "?", ("US",), aliases={"US": ("America",)}), Question("b", "?", ("america",))]
    assert deal(questions, 0)[questions[0].query_id] == ""
