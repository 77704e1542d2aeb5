"""Training examples: one per row as in the paper, several turns over one encoding in ragmeter's variant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

from methods.clara.config import InstructionStage, ScpStage
from methods.clara.data import instruction_examples, scp_examples
from methods.clara.rows import InstructionRow, ScpRow

PAIRS = {"A": ("what is a ?", "is it a ?", "which a ?"), "B": ("what is b ?",)}


def rows() -> list[ScpRow]:
    results = []
    for text, questions in PAIRS.items():
        results.append(ScpRow("qa", text, questions, tuple(f"{question} yes" for question in questions), f"{text}/simple"))
        results.append(ScpRow("paraphrase", text, (), (f"{text} rephrased",), f"{text}/paraphrase"))
    results.insert(3, ScpRow("qa", "A", ("both ?",), ("both yes",), "A/complex"))
    return results


def test_default_is_one_training_example_per_row_as_in_the_paper() -> None:
    examples = scp_examples(rows(), ScpStage(), 0)
    assert [example.documents for example in examples] == [(row.document,) for row in rows()]
    assert [[exchange.prompt.kind for exchange in example.exchanges] for example in examples] == [
        ["qa_pairs"],
        ["paraphrase"],
        ["qa_pairs"],
        ["qa_pairs"],
        ["paraphrase"],
    ]


def test_questions_option_groups_a_documents_questions_over_one_encoding() -> None:
    examples = scp_examples(rows(), ScpStage(questions=2), 0)
    assert [example.documents for example in examples] == [("A",), ("B",)]
    first, second = (
        {exchange.prompt.question: exchange.target for exchange in example.exchanges if exchange.prompt.kind == "answer"}
        for example in examples
    )
    assert len(first) == 2
    assert set(first) < {*PAIRS["A"], "both ?"}
    assert all(answer == question.removesuffix(" ?") + " yes" or answer == f"{question} yes" for question, answer in first.items())
    assert second == {"what is b ?": "what is b ? yes"}
    assert [[exchange.target for exchange in example.exchanges if exchange.prompt.kind == "paraphrase"] for example in examples] == [
        ["A rephrased"],
        ["B rephrased"],
    ]
    assert all(exchange.prompt.documents == 1 for example in examples for exchange in example.exchanges)
    drawn = {tuple(exchange.target for exchange in scp_examples(rows(), ScpStage(questions=2), seed)[0].exchanges) for seed in range(20)}
    assert len(drawn) > 2


def tuning(documents: list[list[int]], evidence: list[int | None]) -> list[InstructionRow]:
    return [
        InstructionRow(f"q{n} ?", tuple(f"d{text}" for text in texts), f"a{n}", f"a{n}", f"q{n}", () if position is None else (position,))
        for n, (texts, position) in enumerate(zip(documents, evidence, strict=True))
    ]


def test_default_is_one_question_per_encoding_as_in_the_paper() -> None:
    given_rows = tuning([[1, 2, 3], [2, 3, 4]], [0, 0])
    examples = instruction_examples(given_rows, InstructionStage(documents=2), 0)
    assert [(example.documents, [exchange.target for exchange in example.exchanges]) for example in examples] == [
        (("d1", "d2"), ["a0"]),
        (("d2", "d3"), ["a1"]),
    ]


def test_together_adds_questions_that_the_documents_answer() -> None:
    # The second row asks about d2, which the first and the fourth have; the third about d9, the fourth does not say;
    # the fifth about d1, which the first has.
    given_rows = tuning([[1, 2, 3], [4, 2, 5], [9, 6, 7], [2, 3, 4], [1, 8, 7]], [0, 1, 0, None, 0])
    examples = instruction_examples(given_rows, InstructionStage(documents=3, together=4), 0)
    results = [(example.documents, [exchange.prompt.question for exchange in example.exchanges]) for example in examples]
    assert [texts for texts, _ in results] == [row.documents for row in given_rows]
    own, joined = [query[0] for _, query in results], [{*query[1:]} for _, query in results]
    assert own == [row.question for row in given_rows]
    assert joined == [{"q1 ?", "q4 ?"}, set(), set(), {"q1 ?"}, {"q0 ?"}]
    few = [instruction_examples(given_rows, InstructionStage(documents=3, together=2), seed)[0] for seed in range(20)]
    assert {item.exchanges[1].prompt.question for item in few} == {"q1 ?", "q4 ?"}
    assert all(len(item.exchanges) == 2 for item in few)


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 12), min_size=5, max_size=5, unique=True), st.integers(0, 4)), min_size=1, max_size=40),
    st.integers(1, 9),
    st.integers(0, 3),
)
def test_every_question_has_its_own_example_and_joins_others_with_its_evidence(
    drawn: list[tuple[list[int], int]], together: int, seed: int
) -> None:
    given_rows = tuning([texts for texts, _ in drawn], [position for _, position in drawn])
    examples = instruction_examples(given_rows, InstructionStage(documents=5, together=together), seed)
    needs = {row.question: row.documents[row.evidence[0]] for row in given_rows}
    answers = {row.question: row.answer for row in given_rows}
    assert [example.exchanges[0].prompt.question for example in examples] == [row.question for row in given_rows]
    for example in examples:
        queries = [exchange.prompt.question for exchange in example.exchanges]
        able = [question for question, text in needs.items() if text in example.documents]
        assert len(set(queries)) == len(queries) == min(together, len(able))
        assert {*queries} <= {*able}
        assert [exchange.target for exchange in example.exchanges] == [answers[question] for question in queries]
