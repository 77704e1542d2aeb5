"""Support, triple and joint metrics, compared with restated evaluators of HotpotQA, 2Wiki and MuSiQue."""

from __future__ import annotations

import json
import re
import string
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.core.errors import UserError
from benchmarks.schema import Question, sentence_id, sentence_of
from benchmarks.text import em, precision_recall_f1
from judges.metric import Batch, parse
from methods.api import ANSWERABLE, SUPPORT, TRIPLES, Evidence, Prediction
from tests.support.errors import raises


def compute(metric, rows):
    """Compute a metric from (question, prediction) rows."""
    return parse(metric).compute(Batch([row[0] for row in rows], [row[1] for row in rows]))


def make_question(facts=(), evidence=(), triples=(), answers=("gold",), **more):
    return Question(
        "q", "?", tuple(answers), evidence=tuple(evidence), supporting_facts=tuple(facts), triples=tuple(map(tuple, triples)), **more
    )


def make_prediction(support=None, triples=None, answer="gold", evidence=()):
    notes = {}
    if support is not None:
        notes[SUPPORT] = list(support)
    if triples is not None:
        notes[TRIPLES] = [list(triple) for triple in triples]
    return Prediction("q", answer, tuple(Evidence(name, 1.0) for name in evidence), notes=notes)


def official_sp(prediction, gold):
    """Return HotpotQA's `update_sp` over (title, sentence) pairs."""
    cur_sp_pred, gold_sp_pred = set(map(tuple, prediction)), set(map(tuple, gold))
    tp, fp, fn = 0, 0, 0
    for e in cur_sp_pred:
        if e in gold_sp_pred:
            tp += 1
        else:
            fp += 1
    for e in gold_sp_pred:
        if e not in cur_sp_pred:
            fn += 1
    prec = 1.0 * tp / (tp + fp) if tp + fp > 0 else 0.0
    recall = 1.0 * tp / (tp + fn) if tp + fn > 0 else 0.0
    f1 = 2 * prec * recall / (prec + recall) if prec + recall > 0 else 0.0
    return (1.0 if fp + fn == 0 else 0.0), prec, recall, f1


def official_evidence(prediction, gold):
    """Return 2Wiki's `update_evi` (v1.1) with one wording per gold triple."""

    def normal(triple):
        exclude = set(string.punctuation)
        return tuple(" ".join("".join(ch for ch in part.lower() if ch not in exclude).split()) for part in triple)

    claims = {normal(triple) for triple in prediction}
    golds = [{normal(triple)} for triple in gold]
    matches = 0
    for claim in claims:
        for accepted in golds:
            if claim in accepted:
                matches += 1
                break
    prec = len(claims) and matches / len(claims)
    recall = len(golds) and matches / len(golds)
    f1 = 2 * prec * recall / (prec + recall) if prec + recall > 0 else 0.0
    return (1.0 if matches == len(claims) == len(golds) else 0.0), prec, recall, f1


pairs = st.lists(st.tuples(st.sampled_from(["p1", "p1#1", "p1#1#1", "#"]), st.integers(0, 2)), max_size=5)
parts = st.sampled_from(["Rome", "rome!", "the Rome", "Italy", "capital of"])
triples = st.lists(st.tuples(parts, parts, parts), max_size=4)


def sentence_ids(pairs):
    return [sentence_id(*pair) for pair in pairs]


@pytest.mark.slow
@given(st.lists(st.tuples(pairs, pairs), max_size=6))
@settings(deadline=None)
def test_sentence_metrics_equal_the_hotpotqa_script(rows):
    batch = [(make_question(facts=sentence_ids(gold)), make_prediction(support=response)) for response, gold in rows]
    expected = np.array([official_sp(response, gold) if gold else (np.nan,) * 4 for response, gold in rows]).reshape(-1, 4)
    for column, name in enumerate(("sp_em", "sp_precision", "sp_recall", "sp_f1")):
        np.testing.assert_allclose(compute(name, batch), expected[:, column], atol=1e-12)


@pytest.mark.slow
@given(st.lists(st.tuples(triples, triples), max_size=6))
@settings(deadline=None)
def test_triple_metrics_equal_the_2wiki_script(rows):
    batch = [(make_question(triples=gold), make_prediction(triples=response)) for response, gold in rows]
    expected = np.array([official_evidence(response, gold) if gold else (np.nan,) * 4 for response, gold in rows])
    for column, name in enumerate(("evidence_em", "evidence_precision", "evidence_recall", "evidence_f1")):
        np.testing.assert_allclose(compute(name, batch), expected.reshape(-1, 4)[:, column], atol=1e-12)


words = st.sampled_from(["gold", "the gold medal", "silver", "", "yes"])


@given(st.lists(st.tuples(words, st.lists(words, max_size=2), pairs, pairs, triples, triples), max_size=6), st.booleans())
@settings(deadline=None)
def test_joint_metrics_equal_the_official_products(rows, with_triples):
    batch, expected = [], []
    for answer, golds, response, gold, claims, gold_triples in rows:
        batch.append((make_question(sentence_ids(gold), (), gold_triples, golds), make_prediction(response, claims, answer)))
        golds = [text for text in dict.fromkeys(golds) if text]
        if not golds or not gold or (with_triples and not gold_triples):
            expected.append((np.nan,) * 4)
            continue
        precision, recall, _ = precision_recall_f1(answer, golds, "hotpotqa")
        product = np.array([em(answer, golds), precision, recall]) * official_sp(response, gold)[:3]
        if with_triples:
            product *= official_evidence(claims, gold_triples)[:3]
        exact, precision, recall = product
        f1 = 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0
        expected.append((exact, precision, recall, f1))
    rules = "2wiki" if with_triples else "hotpotqa"
    table = np.array(expected).reshape(-1, 4)
    for column, name in enumerate(("joint_em", "joint_precision", "joint_recall", "joint_f1")):
        np.testing.assert_allclose(compute(f"{name}(rules={rules})", batch), table[:, column], atol=1e-12)


@given(st.lists(st.tuples(pairs, st.lists(st.sampled_from(["p1", "p1#1", "p1#1#1", "#"]), max_size=3)), max_size=6))
@settings(deadline=None)
def test_paragraph_support_equals_the_musique_script(rows):
    """MuSiQue's `SupportMetric`: the same set F1 over paragraphs; a claimed sentence claims its paragraph."""
    batch = [(make_question(evidence=gold), make_prediction(support=responses)) for responses, gold in rows]
    paragraphs_of_text = [{(name,) for name, _ in responses} for responses, _ in rows]
    expected = [
        official_sp(responses, [(name,) for name in gold]) if gold else (np.nan,) * 4
        for responses, (_, gold) in zip(paragraphs_of_text, rows, strict=True)
    ]
    table = np.array(expected).reshape(-1, 4)
    np.testing.assert_allclose(compute("support_em", batch), table[:, 0], atol=1e-12)
    np.testing.assert_allclose(compute("support_f1", batch), table[:, 3], atol=1e-12)


SUPPORT_METRICS = [
    "sp_em",
    "sp_precision",
    "sp_recall",
    "sp_f1",
    "support_em",
    "support_f1",
    "evidence_em",
    "evidence_precision",
    "evidence_recall",
    "evidence_f1",
    "joint_em",
    "joint_precision",
    "joint_recall",
    "joint_f1",
    "joint_em(rules=2wiki)",
    "joint_f1(rules=2wiki)",
]
FULL = make_question(["p1#0", "p2#3"], ["p1", "p2"], [("Rome", "capital of", "Italy"), ("Po", "in", "Italy")])


@pytest.mark.parametrize("metric", SUPPORT_METRICS)
def test_prediction_without_claims_scores_zero(metric):
    assert compute(metric, [(FULL, make_prediction(evidence=FULL.evidence))]) == 0


@pytest.mark.parametrize("metric", SUPPORT_METRICS)
def test_gold_support_and_gold_answer_score_one(metric):
    right = make_prediction(map(sentence_of, FULL.supporting_facts), FULL.triples)
    assert compute(metric, [(FULL, right)]) == 1


@pytest.mark.parametrize("metric", SUPPORT_METRICS)
def test_question_without_gold_support_and_answer_is_unscorable(metric):
    assert np.isnan(compute(metric, [(make_question(), make_prediction([("p1", 0)], [("a", "b", "c")]))])).all()
    unanswerable = make_question(FULL.supporting_facts, FULL.evidence, FULL.triples, answerable=False)
    assert np.isnan(compute(metric, [(unanswerable, make_prediction(map(sentence_of, FULL.supporting_facts), FULL.triples))])).all()


def test_claimed_passage_claims_no_sentence():
    row = FULL, make_prediction(["p1", ("p1", 0), ["p2", 3]])
    assert compute("sp_em", [row]) == 1
    assert compute("sp_recall", [(FULL, make_prediction(["p1", "p2"]))]) == 0
    assert compute("support_f1", [(FULL, make_prediction(["p1", "p2"]))]) == 1


def test_fact_past_the_last_sentence_counts_but_cannot_be_claimed():
    assert compute("sp_recall", [(make_question(["p1#0", "p1#99"]), make_prediction([("p1", 0)]))]) == 0.5


def test_musique_pair_counts_if_both_answerability_claims_are_correct():
    """The order does not matter; a question without its twin has no score."""

    def pair(first, second, group="g"):
        return [
            (
                make_question(evidence=["p1"], group=group),
                replace(make_prediction(["p1", "p2"]), notes={SUPPORT: ["p1", "p2"], ANSWERABLE: first}),
            ),
            (make_question(answers=(), group=group, answerable=False), Prediction("q", "gold", notes={ANSWERABLE: second})),
        ]

    for first, second, right in ((True, False, 1), (True, True, 0), (False, False, 0), (True, None, 0)):
        rows = pair(first, second) + pair(True, False, "other")
        assert compute("group_answer_f1", rows)[[0, 2]].tolist() == [right, 1]
        assert compute("group_support_f1", rows[::-1])[[3, 1]] == pytest.approx([right * 2 / 3, 2 / 3])
        assert np.isnan(compute("group_answer_f1", rows)[[1, 3]]).all()
        assert compute("sufficiency", rows).tolist() == [first, second is False, 1, 1]
    assert np.isnan(compute("group_answer_f1", pair(True, False)[:1])).all()
    assert np.isnan(compute("sufficiency", [(make_question(), make_prediction())])).all()
    with raises("bad-notes"):
        compute("sufficiency", pair("yes", False))


def test_articles_are_kept_in_triples():
    row = make_question(triples=[("The Who", "from", "London")])
    assert compute("evidence_em", [(row, make_prediction(triples=[("the who!", "from", " london")]))]) == 1
    assert compute("evidence_em", [(row, make_prediction(triples=[("Who", "from", "London")]))]) == 0


def test_answer_alias_is_accepted_in_a_triple_but_counts_once():
    row = make_question(triples=[("Po", "in", "Italy"), ("Rome", "in", "Lazio")], answers=["Italy"], aliases={"Italy": ("Italia",)})
    assert compute("evidence_recall", [(row, make_prediction(triples=[("Po", "in", "Italia")]))]) == 0.5
    twice = [("Po", "in", "Italia"), ("Po", "in", "Italy"), ("Rome", "in", "Lazio")]
    assert compute("evidence_recall", [(row, make_prediction(triples=twice))]) == 1
    assert compute("evidence_em", [(row, make_prediction(triples=twice))]) == 0


def test_malformed_claims_are_reported():
    for metric, notes, key in (
        ("sp_f1", {SUPPORT: "p1#0"}, "support"),
        ("support_f1", {SUPPORT: [3]}, "support"),
        ("support_f1", {SUPPORT: [["p1", True]]}, "support"),
        ("evidence_f1", {TRIPLES: [["a", "b"]]}, "triples"),
        ("evidence_f1", {TRIPLES: "abc"}, "triples"),
    ):
        with pytest.raises(UserError, match=key):
            compute(metric, [(FULL, Prediction("q", "", notes=notes))])


def test_real_2wiki_evidence_scores_one_against_identical_claims(data_folder):
    for path in sorted((data_folder / "2wikimultihopqa").glob("2wiki_dev*.json")):
        records = json.loads(path.read_text(encoding="utf-8"))
        rows = [(make_question(triples=record["evidences"]), make_prediction(triples=record["evidences"])) for record in records]
        assert len(rows) == 40
        repeated = [len({re.sub(r"\W", "", str(e).lower()) for e in r["evidences"]}) < len(r["evidences"]) for r in records]
        f1 = compute("evidence_f1", rows)
        assert all(value == 1 or again for value, again in zip(f1, repeated, strict=True))
