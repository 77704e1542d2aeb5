"""Known traps of metrics in other tools: each is demonstrated, and ragmeter avoids it.

Traps of judges (parse failures as ties, "mismatch" containing "match") are tested with the judges, and unseeded
permutation tests with the statistics.
"""

from __future__ import annotations

import re
import string

import numpy as np
import pytest

from benchmarks.schema import Question
from benchmarks.text import normalize
from judges.metric import METRICS, Batch, parse
from judges.score import check_invariants, score
from methods.api import Evidence, Prediction
from tests.support.errors import raises


def make_question(*golds, name="q", **more):
    return Question(name, "?", tuple(golds), **more)


def make_prediction(answer="", *ranked, name="q", scores=None):
    scores = scores or [0.0] * len(ranked)
    return Prediction(name, answer, tuple(Evidence(*pair) for pair in zip(ranked, scores, strict=True)))


def score_one(metric, question, prediction):
    return float(score([question], [prediction], [metric])[str(parse(metric))][0])


@pytest.mark.parametrize("match", ["substring", "word", "tokens"])
def test_gold_that_is_an_article_does_not_match_every_answer(match):
    for gold in ("A", "The The", "an", "...", "?!", ""):
        assert normalize(gold) == ""  # the trap: part of every answer
        assert np.isnan(score_one(f"cover_em(match={match})", make_question(gold), make_prediction("any answer at all"))), gold


def test_gold_that_normalizes_to_nothing_is_unscorable_or_equal_and_counted():
    questions = [make_question("Rome", name="q1"), make_question("The The", name="q2")]
    result = score(questions, [make_prediction("Rome", name="q1"), make_prediction("x", name="q2")], ["em", "f1", "cover_em"])
    em, f1, cover_em = result.values()
    assert em.tolist() == [1, 0]  # "The" would be right, as in SQuAD's script
    assert f1 == pytest.approx([1, np.nan], nan_ok=True)
    assert cover_em == pytest.approx([1, np.nan], nan_ok=True)


def test_rog_metrics_still_match_a_gold_that_is_part_of_any_answer():
    question = make_question("A", "Rome", answer_set=True)
    assert score_one("rog_accuracy", question, make_prediction("Milan")) == 0.5
    assert score_one("strict_recall", question, make_prediction("Milan")) == 0


def test_punctuation_is_deleted_and_not_replaced_by_a_space():
    replaced = re.sub(f"[{re.escape(string.punctuation)}]", " ", "well-known")
    assert replaced == "well known"  # the trap
    assert normalize("well-known") == "wellknown"
    assert score_one("em", make_question("wellknown"), make_prediction("well-known")) == 1
    assert score_one("em", make_question("well known"), make_prediction("well-known")) == 0
    assert score_one("f1", make_question("U.S.A."), make_prediction("USA")) == 1


def test_rouge_replaces_punctuation_by_a_space():
    assert score_one("rouge", make_question("well known"), make_prediction("well-known")) == 1


def test_recall_and_hit_are_distinct_metrics():
    question = make_question("x", evidence=("p1", "p2", "p3", "p4"))
    result = make_prediction("", "p1", "n1", "n2")
    assert score_one("hit@3", question, result) == 1  # what others publish as recall@3
    assert score_one("recall@3", question, result) == 0.25


def test_mean_includes_questions_without_results():
    questions = [make_question("x", name=f"q{n}", evidence=("p1",)) for n in range(4)]
    predictions = [make_prediction("x", "p1", name="q0"), None, make_prediction("x", name="q2"), None]
    for metric in ("recall@5", "mrr@5", "ndcg@5", "map@5", "hit@5", "precision@1"):
        values = next(iter(score(questions, predictions, [metric]).values()))
        returned = [v for v, p in zip(values, predictions, strict=True) if p is not None and p.evidence]
        assert np.nanmean(values) == 0.25
        assert np.mean(returned) == 1  # the trap


def test_unanswered_hard_questions_never_raise_a_score():
    questions = [make_question("Rome", name=f"q{n}", evidence=("p1",)) for n in range(4)]
    answers = [
        make_prediction("Rome", "p1", name="q0"),
        make_prediction("Milan", "p2", "p1", name="q1"),
        make_prediction("no", "p9", name="q2"),
        make_prediction("Rome or so", "p1", name="q3"),
    ]
    names = [
        e.id + ("@2" if any(p.name == "k" for p in e.parameters) else "")
        for e in METRICS
        if e.higher_is_better and e.unit == "fraction" and not {"model", "texts", "graph"} & set(e.needs)
    ]
    whole = score(questions, answers, names)
    for dropped in range(4):
        part = score(questions, [None if n == dropped else each for n, each in enumerate(answers)], names)
        for name, values in part.items():
            if not np.isnan(whole[name]).all():
                assert np.nanmean(values) <= np.nanmean(whole[name]) + 1e-12, name


def test_question_without_positives_is_excluded_and_counted():
    questions = [make_question("x", name="q1", evidence=("p1",)), make_question("x", name="q2")]
    values = score(questions, [make_prediction("", "p1", name="q1"), make_prediction("", "p1", name="q2")], ["recall@5"])["recall@5#v2"]
    assert values[0] == 1
    assert np.isnan(values[1])


def test_tied_scores_keep_the_ranking_order():
    question = make_question("x", evidence=("p1",))
    for scores in ([0.5, 0.5, 0.5], [0.1, 0.9, 0.5], [0.9, 0.5, 0.1]):
        assert score_one("mrr@3", question, make_prediction("", "p1", "p2", "p3", scores=scores)) == 1
        assert score_one("mrr@3", question, make_prediction("", "p3", "p2", "p1", scores=scores)) == pytest.approx(1 / 3)
    by_score_and_id = sorted([("p1", 0.5), ("p3", 0.5)], key=lambda item: (-item[1], item[0]))
    assert by_score_and_id[0][0] == "p1"  # the trap: trec_eval and similar tools would move p1 to the top
    assert score_one("mrr@1", question, make_prediction("", "p3", "p1", scores=[0.5, 0.5])) == 0


def test_repeated_passage_counts_once_at_its_first_rank():
    question = make_question("x", evidence=("p1", "p2"))
    assert score_one("recall@2", question, make_prediction("", "p1", "p1")) == 0.5
    assert score_one("recall@2", question, make_prediction("", "p1", "p1", "p2")) == 1


def test_yes_and_no_must_match_exactly_only_under_rules_that_require_it():
    question = make_question("yes")
    assert score_one("f1(rules=hotpotqa)", question, make_prediction("yes it is")) == 0
    assert score_one("f1(rules=clara)", question, make_prediction("yes it is")) == 0
    for rules in ("squad", "musique", "longbench"):
        assert score_one(f"f1(rules={rules})", question, make_prediction("yes it is")) == 0.5
    assert score_one("f1(rules=hotpotqa)", make_question("no way"), make_prediction("no")) == 0  # a prediction of one word too
    assert len({str(parse(f"f1(rules={rules})")) for rules in ("squad", "hotpotqa", "musique", "longbench")}) == 4


def test_first_gold_variant_has_a_separate_metric_id():
    question = make_question("Rome", "Milan")
    assert score_one("f1", question, make_prediction("Milan")) == 1
    assert score_one("f1(golds=first)", question, make_prediction("Milan")) == 0
    assert str(parse("f1")) != str(parse("f1(golds=first)"))


def test_only_the_returned_answer_is_scored_and_no_best_of_several():
    """A method that revises its answer is scored on the returned answer; a batch holds no alternatives."""
    question = make_question("Rome")
    revised = Prediction("q", "Milan", notes={"revisions": ["Rome", "Roma", "Milan"], "answers": ["Rome"]})
    for metric in ("em", "f1", "cover_em", "rouge", "rog_hit", "strict_recall"):
        assert score_one(metric, question, revised) == 0
    twice = [make_prediction("Rome"), make_prediction("Milan")]
    assert len(Batch([question], twice[:1]).answers) == 1
    with raises("prediction-count-mismatch"):
        score([question], twice, ["em"])


def test_rescaled_and_raw_bertscore_never_share_a_column():
    raw, rescaled = parse("bertscore(rescale=false)"), parse("bertscore(rescale=true)")
    assert str(raw) != str(rescaled)
    assert raw != rescaled
    others = {str(parse(f"bertscore({what})")) for what in ("model=roberta-large,layer=17", "layer=9", "layer=12")}
    assert len(others) == 3


def test_rouge_with_and_without_stems_never_share_a_column():
    question = make_question("he runs")
    assert score_one("rouge(type=rouge1,stem=true)", question, make_prediction("he runs running")) == pytest.approx(0.8)
    assert score_one("rouge(type=rouge1,stem=true)", question, make_prediction("he running")) == 1
    assert score_one("rouge(type=rouge1,stem=false)", question, make_prediction("he running")) == 0.5
    assert str(parse("rouge(stem=true)")) != str(parse("rouge(stem=false)"))


def test_measures_that_papers_call_accuracy_have_distinct_names():
    question = make_question("New York")
    answer = make_prediction("York is new to me")
    assert score_one("em", question, answer) == 0
    assert score_one("cover_em(match=substring)", question, answer) == 0  # CLaRa's wording
    assert score_one("cover_em(match=tokens)", question, answer) == 1  # CLaRa's code
    assert score_one("cover_em(match=substring)", make_question("John"), make_prediction("Johnson")) == 1
    assert score_one("cover_em(match=tokens)", make_question("John"), make_prediction("Johnson")) == 0


def test_values_are_fractions_and_percentages_violate_the_range():
    perfect = score([make_question("Rome", evidence=("p1",))], [make_prediction("Rome", "p1")], ["em", "f1", "recall@1", "rouge"])
    assert {values[0] for values in perfect.values()} == {1.0}
    percent = {parse(name): 100 * values for name, values in perfect.items()}
    complaints = check_invariants(percent)
    for name in perfect:
        assert any(f"{name} is above its highest value 1" in complaint for complaint in complaints)


def test_every_metric_declares_its_unit():
    for entry in METRICS:
        if METRICS.source(entry.id).startswith("judges.metrics."):
            assert entry.unit in ("fraction", "number")
            if entry.high == 1:
                assert entry.unit == "fraction"
