"""Both evaluators of graph QA: hand-computed tables, a naive restatement of RoG's script, and invariants."""

from __future__ import annotations

import re
import string

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.schema import Question
from judges.metric import parse
from judges.metrics.graph_qa import micro, rog_lines, rog_scores, strict_counts
from judges.score import score
from methods.api import Prediction

ROG = ("rog_accuracy", "rog_hit", "rog_hit1", "rog_recall", "rog_precision", "rog_f1")
STRICT = ("strict_hit1", "strict_precision", "strict_recall", "strict_f1")
COUNTS = ("strict_matched", "strict_lines", "strict_golds")


def make_question(*answers, **more):
    return Question("q", "?", answers, answer_set=more.pop("answer_set", True), **more)


def score_one(question, answer, names=ROG + STRICT + COUNTS):
    result = score([question], [Prediction("q", answer)], names)
    return {name.partition("#")[0]: float(values[0]) for name, values in result.items()}


def rog_normalize(s):
    s = s.lower()
    exclude = set(string.punctuation)
    s = "".join(char for char in s if char not in exclude)
    s = re.sub(r"\b(a|an|the)\b", " ", s)
    s = re.sub(r"\b(<pad>)\b", " ", s)
    return " ".join(s.split())


def rog_match(s1, s2):
    return rog_normalize(s2) in rog_normalize(s1)


def official(prediction, answer):
    """Return `eval_acc`, `eval_hit` and `eval_f1` of RoG over lines, with hit1 as in GNN-RAG."""
    if not isinstance(prediction, list):
        prediction = prediction.strip()
        prediction = prediction.split("\n") if prediction else []
    if len(prediction) == 0:
        return dict.fromkeys(ROG, 0.0)
    prediction_str = " ".join(prediction)
    matched = 0.0
    for a in answer:
        if rog_match(prediction_str, a):
            matched += 1
    precision, recall = matched / len(prediction), matched / len(answer)
    f1 = 0.0 if precision + recall == 0 else 2 * precision * recall / (precision + recall)
    hit = 0
    for a in answer:
        if rog_match(prediction_str, a):
            hit = 1
    hit1 = 0
    for a in answer:
        if rog_match(prediction[0], a):
            hit1 = 1
    return {
        "rog_accuracy": matched / len(answer),
        "rog_hit": hit,
        "rog_hit1": hit1,
        "rog_recall": recall,
        "rog_precision": precision,
        "rog_f1": f1,
    }


def naive_strict(prediction, golds):
    lines = []
    for line in prediction.split("\n"):
        line = rog_normalize(line)
        if line and line not in lines:
            lines.append(line)
    wanted = [gold for gold in dict.fromkeys(map(rog_normalize, golds)) if gold]
    wanted.sort(key=len, reverse=True)  # of equally long ones the first named
    free, matched = list(lines), 0
    for gold in wanted:
        for line in free:
            if gold in line:
                free.remove(line)
                matched += 1
                break
    precision = matched / len(lines) if lines else 0.0
    recall = matched / len(wanted)
    hit1 = float(bool(lines) and any(gold in lines[0] for gold in wanted))
    f1 = 0.0 if matched == 0 else 2 * precision * recall / (precision + recall)
    return {
        "strict_hit1": hit1,
        "strict_precision": precision,
        "strict_recall": recall,
        "strict_f1": f1,
        "strict_matched": matched,
        "strict_lines": len(lines),
        "strict_golds": len(wanted),
    }


@pytest.mark.parametrize(
    ("golds", "answer", "expected"),
    [
        # golds, answer, (accuracy = recall, hit, hit1, precision, f1)
        (["Paris", "Lyon"], "Paris\nLyon", (1, 1, 1, 1, 1)),
        (["Paris", "Lyon"], "Nice\nParis", (0.5, 1, 0, 0.5, 0.5)),
        (["Paris", "Lyon", "Nice"], "Paris, Lyon and Nice", (1, 1, 1, 3, 1.5)),  # one line with three right answers
        (["Paris"], "It is the city of Paris!", (1, 1, 1, 1, 1)),
        (["Paris"], "Rome", (0, 0, 0, 0, 0)),
        (["Paris"], "", (0, 0, 0, 0, 0)),
        (["Paris"], " \n\n ", (0, 0, 0, 0, 0)),
        (["Paris"], "\nParis\n", (1, 1, 1, 1, 1)),  # stripped first
        (["Paris"], "Paris\n\nRome", (1, 1, 1, 1 / 3, 0.5)),  # a blank line between others counts
        (["York"], "New Yorkshire", (1, 1, 1, 1, 1)),  # substring, inside words too
        (["A", "Paris"], "Rome", (0.5, 1, 1, 1, 2 / 3)),  # a gold that normalizes to nothing always matches
        (["A", "Paris"], "", (0, 0, 0, 0, 0)),  # but not in an empty answer
        (["Paris", "Paris"], "Paris", (1, 1, 1, 2, 4 / 3)),  # repeated golds count twice
        (["New York"], "New\nYork", (1, 1, 0, 0.5, 2 / 3)),  # lines are joined by spaces before matching
    ],
)
def test_rog_metrics_equal_the_hand_computed_table(golds, answer, expected):
    result = score_one(make_question(*golds), answer)
    accuracy, hit, hit1, precision, f1 = expected
    wanted = {"rog_accuracy": accuracy, "rog_recall": accuracy, "rog_hit": hit, "rog_hit1": hit1, "rog_precision": precision, "rog_f1": f1}
    assert {name: result[name] for name in ROG} == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("golds", "answer", "expected"),
    [
        # golds, answer, (hit1, precision, recall, f1)
        (["Paris", "Lyon"], "Paris\nLyon", (1, 1, 1, 1)),
        (["Paris", "Lyon", "Nice"], "Paris, Lyon and Nice", (1, 1, 1 / 3, 0.5)),  # a line holds one answer
        (["York", "New York"], "New York\nYork", (1, 1, 1, 1)),  # the longest first
        (["York", "New York"], "New York", (1, 1, 0.5, 2 / 3)),  # a line is consumed
        (["Paris", "paris."], "Paris", (1, 1, 1, 1)),  # golds once each
        (["Paris"], "Paris\nParis\n\nParis", (1, 1, 1, 1)),  # lines once each, blank ones never
        (["A", "Paris"], "Rome", (0, 0, 0, 0)),  # a gold that normalizes to nothing is ignored
        (["A", "Paris"], "Paris", (1, 1, 1, 1)),
        (["Paris"], "Rome\nParis", (0, 0.5, 1, 2 / 3)),
        (["Paris"], "", (0, 0, 0, 0)),
    ],
)
def test_strict_metrics_equal_the_hand_computed_table(golds, answer, expected):
    result = score_one(make_question(*golds), answer)
    assert [result[name] for name in STRICT] == pytest.approx(list(expected))


def test_alias_counts_for_strict_metrics_but_not_for_rog():
    question = make_question("United States", "Canada", aliases={"United States": ("USA",)})
    result = score_one(question, "USA\nCanada")
    assert result["strict_recall"] == 1
    assert result["rog_recall"] == 0.5


def test_question_with_alternative_answers_requires_only_one():
    question = make_question("Rome", "Roma", answer_set=False, aliases={"Rome": ("The Eternal City", "A")})
    for answer in ("Rome", "roma", "eternal city"):
        result = score_one(question, answer)
        assert result["rog_recall"] == result["strict_recall"] == result["strict_f1"] == result["rog_f1"] == 1
    assert score_one(question, "Milan")["rog_hit"] == 0  # the empty wording of a single answer matches nothing


@pytest.mark.parametrize("question", [make_question("A", "The"), make_question(), make_question("x", answerable=False)])
def test_question_without_gold_is_unscorable_for_rog_and_strict(question):
    assert all(np.isnan(value) for value in score_one(question, "anything").values())


def test_repeated_lines_are_deduplicated_and_sorted_by_frequency():
    assert rog_lines(["Rome", "Paris", "Paris", "Nice"]) == ["Paris", "Rome", "Nice"]
    result = rog_scores(["Rome", "Paris", "Paris"], [["Paris"]])
    assert (result.hit1, result.precision) == (1, 0.5)
    assert strict_counts(["Rome", "Paris", "Paris"], [["Paris"]]).lines == 2


names = st.sampled_from(["York", "New York", "the A", "A", "Paris", "Par", "U.S.", "Zürich", "", "Old York City", "yo"])
answers = st.lists(st.one_of(names, st.text("aAtheY .\n,\u00dc", max_size=8)), max_size=6).map("\n".join)
golds = st.lists(names, min_size=1, max_size=5)


@pytest.mark.slow
@given(golds, answers)
def test_rog_metrics_equal_the_official_script(golds, answer):
    result = score_one(make_question(*golds), answer)
    if not any(map(rog_normalize, golds)):
        assert all(np.isnan(value) for value in result.values())
        return
    expected = official(answer, golds)
    assert {name: result[name] for name in ROG} == pytest.approx(expected, abs=1e-15)
    assert {name: result[name] for name in STRICT + COUNTS} == pytest.approx(naive_strict(answer, golds), abs=1e-15)


@pytest.mark.slow
@given(golds, st.lists(names, max_size=6))
def test_lists_score_like_their_distinct_items_in_the_rog_script(golds, listed):
    distinct = sorted(dict.fromkeys(listed), key=listed.count, reverse=True)
    result, expected = rog_scores(listed, [[gold] for gold in golds]), official(distinct, golds)
    assert (result.accuracy, result.hit, result.hit1, result.precision, result.f1) == pytest.approx(
        (expected["rog_accuracy"], expected["rog_hit"], expected["rog_hit1"], expected["rog_precision"], expected["rog_f1"])
    )


@given(golds)
@settings(deadline=None)
def test_golds_as_lines_reach_full_recall(golds):
    if any(map(rog_normalize, golds)):
        result = score_one(make_question(*golds), "\n".join(golds))
        assert result["rog_recall"] == result["rog_hit"] == result["strict_recall"] == result["strict_precision"] == 1


@pytest.mark.slow
@given(st.lists(st.tuples(golds, answers), min_size=1, max_size=5))
def test_micro_averages_follow_from_the_counts(rows):
    questions = [make_question(*row[0]) for row in rows]
    result = score(questions, [Prediction("q", row[1]) for row in rows], [*COUNTS])
    scorable = [naive_strict(row[1], row[0]) for row in rows if any(map(rog_normalize, row[0]))]
    matched, lines, wanted = (sum(row[name] for row in scorable) for name in COUNTS)
    precision = matched / lines if lines else 0
    recall = matched / wanted if wanted else 0
    f1 = 2 * precision * recall / (precision + recall) if matched else 0
    assert micro(*result.values()) == pytest.approx((precision, recall, f1))
    means = [np.nanmean(values) if scorable else 0 for values in result.values()]
    if lines:
        assert means[0] / means[1] == pytest.approx(precision)


def test_unanswered_question_counts_its_golds_in_the_micro_average():
    questions = [make_question("Paris"), Question("q2", "?", ("Rome", "Milan"), answer_set=True)]
    result = score(questions, [Prediction("q", "Paris"), None], [*COUNTS])
    assert result["strict_golds#v1"].tolist() == [1, 2]
    assert micro(*result.values()) == pytest.approx((1, 1 / 3, 0.5))


def test_unbounded_metrics_declare_no_maximum():
    for name in ("rog_precision", "rog_f1", *COUNTS):
        assert parse(name).entry.high is None
    for name in ("rog_accuracy", "rog_hit", "rog_hit1", "rog_recall", *STRICT):
        assert parse(name).entry.high == 1
