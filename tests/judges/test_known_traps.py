"""Known traps of other tools' metrics, each shown to exist and shown not to be ours.

The traps of judges (parse failures as ties, "mismatch" containing "match") are tested with the judges, unseeded
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


def asked(*golds, name="q", **more):
    return Question(name, "?", tuple(golds), **more)


def said(answer="", *ranked, name="q", scores=None):
    scores = scores or [0.0] * len(ranked)
    return Prediction(name, answer, tuple(Evidence(*pair) for pair in zip(ranked, scores, strict=True)))


def one(metric, question, prediction):
    return float(score([question], [prediction], [metric])[str(parse(metric))][0])


@pytest.mark.parametrize("match", ["substring", "word", "tokens"])
def test_a_gold_that_is_part_of_everything_covers_nothing(match):
    for gold in ("A", "The The", "an", "...", "?!", ""):
        assert normalize(gold) == ""  # the trap: part of every answer
        assert np.isnan(one(f"cover_em(match={match})", asked(gold), said("any answer at all"))), gold


def test_a_gold_that_normalizes_to_nothing_is_unscorable_and_counted_not_zero_and_not_one():
    questions = [asked("Rome", name="q1"), asked("The The", name="q2")]
    result = score(questions, [said("Rome", name="q1"), said("x", name="q2")], ["em", "f1", "cover_em", "rouge"])
    for name, values in result.items():
        if name.startswith("rouge"):
            continue  # ROUGE keeps articles
        assert np.nanmean(values) == 1
        assert int(np.isnan(values).sum()) == 1


def test_under_rog_alone_such_a_gold_still_matches_because_its_published_numbers_have_it_so():
    question = asked("A", "Rome", answer_set=True)
    assert one("rog_accuracy", question, said("Milan")) == 0.5
    assert one("strict_recall", question, said("Milan")) == 0


def test_punctuation_is_deleted_not_replaced_by_a_space():
    replaced = re.sub(f"[{re.escape(string.punctuation)}]", " ", "well-known")
    assert replaced == "well known"  # the trap
    assert normalize("well-known") == "wellknown"
    assert one("em", asked("wellknown"), said("well-known")) == 1
    assert one("em", asked("well known"), said("well-known")) == 0
    assert one("f1", asked("U.S.A."), said("USA")) == 1


def test_rouge_replaces_it_by_a_space_as_its_own_definition_says():
    assert one("rouge", asked("well known"), said("well-known")) == 1


def test_recall_is_the_share_of_positives_and_hit_is_not_called_recall():
    question = asked("x", evidence=("p1", "p2", "p3", "p4"))
    result = said("", "p1", "n1", "n2")
    assert one("hit@3", question, result) == 1  # what others publish as recall@3
    assert one("recall@3", question, result) == 0.25


def test_the_mean_is_over_all_questions_not_over_those_that_returned_something():
    questions = [asked("x", name=f"q{n}", evidence=("p1",)) for n in range(4)]
    predictions = [said("x", "p1", name="q0"), None, said("x", name="q2"), None]
    for metric in ("recall@5", "mrr@5", "ndcg@5", "map@5", "hit@5", "precision@1"):
        values = next(iter(score(questions, predictions, [metric]).values()))
        returned = [v for v, p in zip(values, predictions, strict=True) if p is not None and p.evidence]
        assert np.nanmean(values) == 0.25
        assert np.mean(returned) == 1  # the trap


def test_dropping_hard_questions_never_raises_a_score():
    questions = [asked("Rome", name=f"q{n}", evidence=("p1",)) for n in range(4)]
    answers = [
        said("Rome", "p1", name="q0"),
        said("Milan", "p2", "p1", name="q1"),
        said("no", "p9", name="q2"),
        said("Rome or so", "p1", name="q3"),
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


def test_a_question_without_positives_is_left_out_and_counted():
    questions = [asked("x", name="q1", evidence=("p1",)), asked("x", name="q2")]
    values = score(questions, [said("", "p1", name="q1"), said("", "p1", name="q2")], ["recall@5"])["recall@5#v2"]
    assert values[0] == 1
    assert np.isnan(values[1])


def test_tied_scores_are_never_sorted_again():
    question = asked("x", evidence=("p1",))
    for scores in ([0.5, 0.5, 0.5], [0.1, 0.9, 0.5], [0.9, 0.5, 0.1]):
        assert one("mrr@3", question, said("", "p1", "p2", "p3", scores=scores)) == 1
        assert one("mrr@3", question, said("", "p3", "p2", "p1", scores=scores)) == pytest.approx(1 / 3)
    by_score_and_id = sorted([("p1", 0.5), ("p3", 0.5)], key=lambda item: (-item[1], item[0]))
    assert by_score_and_id[0][0] == "p1"  # the trap: trec_eval and its kin would lift p1 to the top
    assert one("mrr@1", question, said("", "p3", "p1", scores=[0.5, 0.5])) == 0


def test_a_repeated_passage_counts_once_at_its_first_mention():
    question = asked("x", evidence=("p1", "p2"))
    assert one("recall@2", question, said("", "p1", "p1")) == 0.5
    assert one("recall@2", question, said("", "p1", "p1", "p2")) == 1


def test_yes_and_no_must_match_whole_where_the_owner_says_so_and_only_there():
    question = asked("yes")
    assert one("f1(rules=hotpotqa)", question, said("yes it is")) == 0
    assert one("f1(rules=clara)", question, said("yes it is")) == 0
    for rules in ("squad", "musique", "longbench"):
        assert one(f"f1(rules={rules})", question, said("yes it is")) == 0.5
    assert one("f1(rules=hotpotqa)", asked("no way"), said("no")) == 0  # a prediction of one word too
    assert len({str(parse(f"f1(rules={rules})")) for rules in ("squad", "hotpotqa", "musique", "longbench")}) == 4


def test_the_score_on_the_first_answer_alone_has_an_id_of_its_own():
    question = asked("Rome", "Milan")
    assert one("f1", question, said("Milan")) == 1
    assert one("f1(golds=first)", question, said("Milan")) == 0
    assert str(parse("f1")) != str(parse("f1(golds=first)"))


def test_there_is_one_prediction_a_question_and_no_best_of_several():
    """A method that revises its answer is scored on what it returned; nothing in a batch holds alternatives."""
    question = asked("Rome")
    revised = Prediction("q", "Milan", notes={"revisions": ["Rome", "Roma", "Milan"], "answers": ["Rome"]})
    for metric in ("em", "f1", "cover_em", "rouge", "rog_hit", "strict_recall"):
        assert one(metric, question, revised) == 0
    twice = [said("Rome"), said("Milan")]
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
    question = asked("he runs")
    assert one("rouge(type=rouge1,stem=true)", question, said("he runs running")) == pytest.approx(0.8)
    assert one("rouge(type=rouge1,stem=true)", question, said("he running")) == 1
    assert one("rouge(type=rouge1,stem=false)", question, said("he running")) == 0.5
    assert str(parse("rouge(stem=true)")) != str(parse("rouge(stem=false)"))


def test_different_measures_that_papers_call_accuracy_have_names_of_their_own():
    question = asked("New York")
    answer = said("York is new to me")
    assert one("em", question, answer) == 0
    assert one("cover_em(match=substring)", question, answer) == 0  # CLaRa's wording
    assert one("cover_em(match=tokens)", question, answer) == 1  # CLaRa's code
    assert one("cover_em(match=substring)", asked("John"), said("Johnson")) == 1
    assert one("cover_em(match=tokens)", asked("John"), said("Johnson")) == 0


def test_values_are_fractions_and_a_percentage_is_noticed():
    perfect = score([asked("Rome", evidence=("p1",))], [said("Rome", "p1")], ["em", "f1", "recall@1", "rouge"])
    assert {values[0] for values in perfect.values()} == {1.0}
    percent = {parse(name): 100 * values for name, values in perfect.items()}
    complaints = check_invariants(percent)
    for name in perfect:
        assert any(f"{name} is above its highest value 1" in complaint for complaint in complaints)


def test_every_metric_says_whether_it_is_a_fraction():
    for entry in METRICS:
        if METRICS.source(entry.id).startswith("judges.metrics."):
            assert entry.unit in ("fraction", "number")
            if entry.high == 1:
                assert entry.unit == "fraction"
