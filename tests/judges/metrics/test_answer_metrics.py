"""Answer metrics: hand-computed tables, several golds, answer sets, unanswerable questions."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import text
from benchmarks.schema import Question
from judges.metric import Batch, Scores, parse
from judges.score import score
from methods.api import Prediction


def question(*answers, **more):
    return Question("q", "?", tuple(answers), **more)


def scores(metric: str, questions, answers) -> Scores:
    predictions = [Prediction(q.query_id, a) for q, a in zip(questions, answers, strict=True)]
    return parse(metric).compute(Batch(questions, predictions))


def score_one(metric: str, query: Question, answer: str) -> float:
    return float(scores(metric, [query], [answer])[0])


@pytest.mark.parametrize(
    ("metric", "golds", "answer", "expected"),
    [
        ("em", ["The Beatles"], "beatles!", 1),
        ("em(rules=strict)", ["The Beatles"], "beatles!", 0),
        ("em(rules=strict)", ["x", "beatles!"], "beatles!", 0),  # only the first gold
        ("em(rules=strict)", ["A"], "A", 1),
        ("em(rules=clara)", ["yes"], "True", 1),
        ("em(rules=squad)", ["yes"], "True", 0),
        ("f1", ["cat sat down"], "the cat sat", 0.8),
        ("f1(rules=hotpotqa)", ["yes"], "yes it is", 0),
        ("f1(rules=squad)", ["yes"], "yes it is", 0.5),
        ("f1(rules=musique)", ["yes"], "yes it is", 0.5),
        ("f1(rules=longbench)", ["dog", "cat"], "cat", 1),
        ("answer_precision", ["cat sat down"], "the cat sat", 1),
        ("answer_recall", ["cat sat down"], "the cat sat", 2 / 3),
        ("cover_em", ["John"], "Johnson", 1),
        ("cover_em(match=word)", ["John"], "Johnson", 0),
        ("cover_em(match=tokens)", ["New York"], "York is new to me", 1),
    ],
)
def test_values_equal_the_hand_computed_table(metric, golds, answer, expected):
    assert score_one(metric, question(*golds), answer) == pytest.approx(expected, abs=1e-15)


def test_alias_counts_like_the_answer():
    query = question("United States", aliases={"United States": ("USA", "U.S.")})
    assert score_one("em", query, "the US") == 1
    assert score_one("cover_em", query, "in the usa") == 1


ANSWER_METRICS = [
    "em",
    "em(rules=squad_v2)",
    "em(rules=clara)",
    "f1",
    "f1(rules=hotpotqa)",
    "f1(rules=musique)",
    "f1(rules=longbench)",
    "f1(rules=squad_v2)",
    "answer_precision",
    "answer_recall",
    "cover_em",
    "cover_em(match=word)",
    "cover_em(match=tokens)",
]


EQUAL_IF_EMPTY = ("em", "em(rules=squad_v2)", "em(rules=clara)", "f1(rules=musique)", "f1(rules=squad_v2)")
"""Metrics whose script takes an answer for right if it and the gold are both empty after normalization."""


@pytest.mark.parametrize("metric", ANSWER_METRICS)
def test_gold_that_normalizes_to_nothing_equals_only_an_answer_that_does_too(metric):
    for golds, answer in product((["A"], ["The The"], ["", "..."]), ("", "the", "The The", "A.", "?", "anything at all", "vitamin A")):
        value = score_one(metric, question(*golds), answer)
        expected = float(answer not in ("anything at all", "vitamin A")) if metric in EQUAL_IF_EMPTY else np.nan
        assert value == pytest.approx(expected, nan_ok=True), (golds, answer)


def test_answer_set_whose_golds_normalize_to_nothing_is_equal_to_an_answer_that_does_too():
    both = question("The", "A", answer_set=True)
    assert [score_one("em", both, answer) for answer in ("a, the", "a dog")] == [1, 0]
    assert np.isnan(score_one("f1", both, "a, the"))


@pytest.mark.parametrize("metric", ["em", "f1(rules=musique)"])
def test_missing_and_failed_answers_score_zero_if_the_gold_normalizes_to_nothing(metric):
    wanted = [Question("q1", "?", ("The The",)), Question("q2", "?", ("The The",))]
    answers = [None, Prediction("q2", "", notes={"failed": "timeout"})]
    assert next(iter(score(wanted, answers, [metric]).values())).tolist() == [0, 0]


@pytest.mark.parametrize("metric", ANSWER_METRICS)
def test_blank_golds_and_unanswerable_questions_are_unscorable(metric):
    for golds, answer in product(([""], ["", " "], []), ("", "the", "anything at all")):
        assert np.isnan(score_one(metric, question(*golds), answer)), (golds, answer)
    # Next to a real gold, an empty one is ignored.
    assert [score_one(metric, question("A", "cat"), answer) for answer in ("", "the", "cat")] == [0, 0, 1]
    # Unanswerable questions count only under squad_v2.
    query = question("some gold", answerable=False)
    if "squad_v2" in metric:
        assert [score_one(metric, query, answer) for answer in ("", "Unanswerable.", "some gold")] == [1, 1, 0]
    else:
        assert np.isnan(score_one(metric, query, ""))


def test_abstention_on_an_answerable_question_scores_zero():
    assert score_one("em(rules=squad_v2)", question("cat"), "unanswerable") == 0
    assert score_one("f1(rules=squad_v2)", question("cat"), "") == 0


ALL_OF = question("Paris", "Lyon", "Aix-en-Provence", aliases={"Lyon": ("Lyons", "City of Lyon")}, answer_set=True)


@pytest.mark.parametrize(
    ("answer", "em", "f1", "cover"),
    [
        ("Paris, Lyon, Aix-en-Provence", 1, 1, 1),
        ("Aix-en-Provence\nLyons and Paris", 1, 1, 1),  # any order, any separators, an alias
        ("the City of Lyon, Paris and Aix-en-Provence", 1, 1, 1),
        ("Paris", 0, 0.5, 0),  # naming one of three is not complete: precision 1, recall 1/3
        ("Paris, Lyon", 0, 0.8, 0),
        ("Paris, Lyon, Aix-en-Provence, Nice", 0, 6 / 7, 1),
        ("Paris, Paris, Lyon, Aix-en-Provence", 0, 6 / 7, 1),  # once each
        ("Rome", 0, 0, 0),
        ("", 0, 0, 0),
    ],
)
def test_answer_set_requires_every_answer(answer, em, f1, cover):
    assert score_one("em", ALL_OF, answer) == em
    assert score_one("f1", ALL_OF, answer) == pytest.approx(f1)
    assert score_one("cover_em", ALL_OF, answer) == cover


def test_swapped_names_between_answers_of_a_set_are_not_exact():
    query = question("John Smith", "Jane Doe", answer_set=True)
    assert score_one("em", query, "John Doe, Jane Smith") == 0
    assert score_one("em", query, "Jane Doe, John Smith") == 1


def test_answer_of_a_set_may_contain_the_separator_or_share_a_prefix():
    query = question("Romeo and Juliet", "Romeo", answer_set=True)
    assert score_one("em", query, "Romeo and Romeo and Juliet") == 1
    assert score_one("em", query, "Romeo and Juliet and Romeo") == 1
    assert score_one("em", query, "Romeo and Juliet") == 0


def test_repeated_answer_in_a_set_is_required_once():
    assert score_one("em", question("Paris", "paris.", answer_set=True), "Paris") == 1


@pytest.mark.slow
def test_set_of_1000_answers_is_scored_quickly():
    names = [f"name {number}" for number in range(1000)]
    query = question(*names, answer_set=True)
    assert score_one("em", query, ", ".join(reversed(names))) == 1
    assert score_one("em", query, ", ".join(names[1:])) == 0


words = st.lists(st.sampled_from(["cat", "dog", "the", "and", "yes", "no", "York", "New"]), max_size=5).map(" ".join)
questions = st.builds(
    lambda answers, is_set, aliases: question(*answers, answer_set=is_set, aliases={answer: tuple(aliases) for answer in answers[:1]}),
    st.lists(words, max_size=3),
    st.booleans(),
    st.lists(words, max_size=2),
)


@pytest.mark.slow
@given(st.lists(st.tuples(questions, words), max_size=8))
@settings(deadline=None)
def test_em_never_exceeds_f1_precision_recall_or_cover(rows):
    query, answers = [row[0] for row in rows], [row[1] for row in rows]
    exact = scores("em", query, answers)
    for other in (
        "f1",
        "f1(rules=hotpotqa)",
        "f1(rules=musique)",
        "f1(rules=longbench)",
        "answer_precision",
        "answer_recall",
        "cover_em",
        "cover_em(match=word)",
        "cover_em(match=tokens)",
    ):
        larger = scores(other, query, answers)
        np.testing.assert_array_equal(np.isnan(exact), np.isnan(larger))
        scorable = ~np.isnan(exact)
        assert (larger[scorable] >= exact[scorable] - 1e-12).all()
        assert ((larger[scorable] >= 0) & (larger[scorable] <= 1)).all()


@pytest.mark.slow
@given(st.lists(st.tuples(questions, words), max_size=8), st.sampled_from(ANSWER_METRICS))
@settings(deadline=None)
def test_batch_scores_equal_single_question_scores(rows, metric):
    query, answers = [row[0] for row in rows], [row[1] for row in rows]
    alone = [score_one(metric, *row) for row in rows]
    np.testing.assert_array_equal(scores(metric, query, answers), np.array(alone))


@pytest.mark.slow
@given(st.lists(st.tuples(questions, words), max_size=8), st.sampled_from(["squad", "hotpotqa", "musique", "longbench"]))
@settings(deadline=None)
def test_scores_of_ordinary_questions_equal_the_primitives(rows, rules):
    rows = [(query, answer) for query, answer in rows if not query.answer_set]
    results = scores(f"f1(rules={rules})", [row[0] for row in rows], [row[1] for row in rows])
    for value, (query, answer) in zip(results, rows, strict=True):
        golds = [gold for gold in query.golds if text.is_scorable_gold(gold)]
        assert np.isnan(value) if not golds else value == text.f1(answer, golds, rules)


@given(st.lists(questions, max_size=8), st.sampled_from(ANSWER_METRICS))
@settings(deadline=None)
def test_gold_answers_score_one_if_scorable(queries, metric):
    results = []
    for each in queries:
        golds = [answer for answer in each.answers if text.is_scorable_gold(answer)]
        aliases = [alias for answer in each.answers for alias in each.aliases.get(answer, ())]
        wanted = golds if each.answer_set else (golds or aliases)[:1]
        if each.answer_set:  # an answer of which only an alias is left, and answers that normalize alike, once
            wanted = list({text.normalize(gold): gold for gold in golds}.values())
            if len(golds) < len(each.answers) or aliases:
                continue
        if not wanted or not text.is_scorable_gold(wanted[0]):
            continue
        results.append(score_one(metric, each, ", ".join(wanted)))
    assert all(value == 1 for value in results)
