"""Rows as they are taught: one lesson a row in the paper, several exchanges over one reading where that is ours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

from methods.clara.config import InstructionStage, ScpStage
from methods.clara.data import instruction_lessons, scp_lessons
from methods.clara.rows import InstructionRow, ScpRow

PAIRS = {"A": ("what is a ?", "is it a ?", "which a ?"), "B": ("what is b ?",)}


def rows() -> list[ScpRow]:
    found = []
    for text, questions in PAIRS.items():
        found.append(ScpRow("qa", text, questions, tuple(f"{one} yes" for one in questions), f"{text}/simple"))
        found.append(ScpRow("paraphrase", text, (), (f"{text} retold",), f"{text}/paraphrase"))
    found.insert(3, ScpRow("qa", "A", ("both ?",), ("both yes",), "A/complex"))
    return found


def test_a_row_is_a_lesson_as_in_the_paper() -> None:
    lessons = scp_lessons(rows(), ScpStage(), 0)
    assert [one.documents for one in lessons] == [(row.document,) for row in rows()]
    assert [[said.prompt.kind for said in one.exchanges] for one in lessons] == [
        ["qa_pairs"],
        ["paraphrase"],
        ["qa_pairs"],
        ["qa_pairs"],
        ["paraphrase"],
    ]


def test_questions_asked_one_by_one_are_the_documents_own_over_one_reading() -> None:
    lessons = scp_lessons(rows(), ScpStage(asked=2), 0)
    assert [one.documents for one in lessons] == [("A",), ("B",)]
    first, second = ({said.prompt.question: said.target for said in one.exchanges if said.prompt.kind == "answer"} for one in lessons)
    assert len(first) == 2
    assert set(first) < {*PAIRS["A"], "both ?"}
    assert all(answer == question.removesuffix(" ?") + " yes" or answer == f"{question} yes" for question, answer in first.items())
    assert second == {"what is b ?": "what is b ? yes"}
    assert [[said.target for said in one.exchanges if said.prompt.kind == "paraphrase"] for one in lessons] == [["A retold"], ["B retold"]]
    assert all(said.prompt.documents == 1 for one in lessons for said in one.exchanges)
    drawn = {tuple(said.target for said in scp_lessons(rows(), ScpStage(asked=2), seed)[0].exchanges) for seed in range(20)}
    assert len(drawn) > 2


def tuning(documents: list[list[int]], evidence: list[int | None]) -> list[InstructionRow]:
    return [
        InstructionRow(f"q{n} ?", tuple(f"d{one}" for one in texts), f"a{n}", f"a{n}", f"q{n}", () if place is None else (place,))
        for n, (texts, place) in enumerate(zip(documents, evidence, strict=True))
    ]


def test_one_question_a_reading_is_the_paper() -> None:
    given_rows = tuning([[1, 2, 3], [2, 3, 4]], [0, 0])
    lessons = instruction_lessons(given_rows, InstructionStage(documents=2), 0)
    assert [(one.documents, [said.target for said in one.exchanges]) for one in lessons] == [(("d1", "d2"), ["a0"]), (("d2", "d3"), ["a1"])]


def test_questions_that_the_documents_answer_join_a_reading() -> None:
    # The second row asks about d2, which the first and the fourth have; the third about d9, the fourth does not say;
    # the fifth about d1, which the first has.
    given_rows = tuning([[1, 2, 3], [4, 2, 5], [9, 6, 7], [2, 3, 4], [1, 8, 7]], [0, 1, 0, None, 0])
    lessons = instruction_lessons(given_rows, InstructionStage(documents=3, together=4), 0)
    found = [(one.documents, [said.prompt.question for said in one.exchanges]) for one in lessons]
    assert [texts for texts, _ in found] == [row.documents for row in given_rows]
    own, joined = [asked[0] for _, asked in found], [{*asked[1:]} for _, asked in found]
    assert own == [row.question for row in given_rows]
    assert joined == [{"q1 ?", "q4 ?"}, set(), set(), {"q1 ?"}, {"q0 ?"}]
    few = [instruction_lessons(given_rows, InstructionStage(documents=3, together=2), seed)[0] for seed in range(20)]
    assert {one.exchanges[1].prompt.question for one in few} == {"q1 ?", "q4 ?"}
    assert all(len(one.exchanges) == 2 for one in few)


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 12), min_size=5, max_size=5, unique=True), st.integers(0, 4)), min_size=1, max_size=40),
    st.integers(1, 9),
    st.integers(0, 3),
)
def test_every_question_has_a_lesson_of_its_own_and_joins_others_that_answer_it(
    drawn: list[tuple[list[int], int]], together: int, seed: int
) -> None:
    given_rows = tuning([texts for texts, _ in drawn], [place for _, place in drawn])
    lessons = instruction_lessons(given_rows, InstructionStage(documents=5, together=together), seed)
    needs = {row.question: row.documents[row.evidence[0]] for row in given_rows}
    answers = {row.question: row.answer for row in given_rows}
    assert [one.exchanges[0].prompt.question for one in lessons] == [row.question for row in given_rows]
    for one in lessons:
        asked = [said.prompt.question for said in one.exchanges]
        able = [question for question, text in needs.items() if text in one.documents]
        assert len(set(asked)) == len(asked) == min(together, len(able))
        assert {*asked} <= {*able}
        assert [said.target for said in one.exchanges] == [answers[question] for question in asked]
