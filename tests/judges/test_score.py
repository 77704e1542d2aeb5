"""Scoring a run: missing and failed answers, refused input, and invariants."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.schema import Passage, Question
from judges import score as scoring
from judges.metric import METRICS, Metric, QuestionGraphs, parse
from judges.score import check_invariants, score
from methods.api import FAILED, SUPPORT, TRIPLES, Evidence, Prediction
from tests.support.errors import raises

TEXTS = {"p1#0": "Rome", "p2#1": "", "p1": "Rome is the capital of Italy.", "p2": "Milan is not.", "p3": "The Po flows to the sea."}
PASSAGES = {name: Passage(name, "", text) for name, text in TEXTS.items()}


def question(name, answers=("Rome",), evidence=("p1", "p2"), **more):
    return Question(name, "?", tuple(answers), evidence=tuple(evidence), **more)


def predicted(query, answer="Rome", evidence=("p1", "p3", "p2"), **notes):
    return Prediction(query.query_id, answer, tuple(Evidence(name, 1.0) for name in evidence), notes=notes)


def test_results_are_keyed_by_canonical_metric_id():
    query = question("q1")
    result = score([query], [predicted(query)], ["recall@1", parse("f1"), "ndcg@3"])
    assert list(result) == ["recall@1#v2", "f1(rules=squad)#v2", "ndcg@3(gain=linear)#v2"]
    assert result["recall@1#v2"].tolist() == [0.5]


def test_missing_query_counts_as_zero_and_stays_in_the_mean():
    queries = [question("q1"), question("q2")]
    result = score(queries, [predicted(queries[0]), None], ["em", "recall@3"])
    assert result["em(rules=squad)#v2"].tolist() == [1, 0]
    assert result["recall@3#v2"].tolist() == [1, 0]


def test_missing_answer_is_not_an_abstention():
    queries = [question("q1", answerable=False), question("q2", answerable=False)]
    result = score(queries, [predicted(queries[0], ""), None], ["em(rules=squad_v2)"])
    assert result["em(rules=squad_v2)#v2"].tolist() == [1, 0]


def test_failed_answer_is_not_an_abstention_but_its_evidence_counts():
    query = question("q1", answerable=False)
    result = score([query], [predicted(query, "", **{FAILED: "timeout"})], ["em(rules=squad_v2)", "recall@3"])
    assert result["em(rules=squad_v2)#v2"].tolist() == [0]
    assert result["recall@3#v2"].tolist() == [1]


def test_missing_prediction_keeps_an_unscorable_question_unscorable():
    query = question("q1", answers=["The"], evidence=[])
    result = score([query], [None], ["f1", "cover_em", "recall@3", "mrr@3"])
    assert all(np.isnan(values).all() for values in result.values())


def test_predictions_by_id_may_be_unordered_and_incomplete():
    queries = [question("q1"), question("q2"), question("q3")]
    by_id = {queries[2].query_id: predicted(queries[2], "Milan"), "q1": predicted(queries[0])}
    assert score(queries, by_id, ["em"])["em(rules=squad)#v2"].tolist() == [1, 0, 0]


def test_predictions_of_other_questions_are_refused():
    queries = [question("q1"), question("q2")]
    with raises("predictions-out-of-order"):
        score(queries, [predicted(queries[1]), predicted(queries[0])], ["em"])
    with raises("prediction-of-other-question"):
        score(queries, {"q9": predicted(queries[0])}, ["em"])
    with raises("prediction-count-mismatch"):
        score(queries, [predicted(queries[0])], ["em"])


def test_unknown_metric_suggests_the_nearest():
    with raises("unknown-metric"):
        score([], [], ["recal@5"])


def test_empty_benchmark_gives_no_scores():
    result = score([], [], every_metric(), PASSAGES.__getitem__, QuestionGraphs())
    assert all(values.shape == (0,) for values in result.values())


MODELS = {"bertscore", "perplexity"}
"""Metrics that need a model have their own tests."""


def spellings(entry):
    """Yield a metric with every combination of its parameter values, including omitted ones."""
    options = [
        [(p.name, value) for value in ((1, 3, 5, 10, 20, 100) if p.name == "k" else p.choices or (p.default,))] for p in entry.parameters
    ]
    for chosen in itertools.product(*options):
        yield str(Metric(entry, dict(chosen)))


@functools.cache
def every_id():
    """Return every metric of the package with every value of every parameter."""
    ours = [entry for entry in METRICS if METRICS.source(entry.id).startswith("judges.metrics.")]
    return [text for entry in ours if entry.id not in MODELS | {"entity_preservation"} for text in spellings(entry)]


@functools.cache
def every_metric():
    return [parse(text) for text in every_id()]


def test_every_metric_id_round_trips_through_text():
    ids = every_id()
    assert len(ids) > 70
    for text in ids:
        metric = parse(text)
        assert parse(str(metric)) == metric
        assert str(parse(str(metric))) == str(metric)
        assert str(metric).endswith(f"#v{metric.entry.version}")


def test_every_metric_has_a_definition_and_a_source():
    for entry in METRICS:
        assert len(entry.definition) > 40
        assert entry.source
        assert entry.needs


answers = st.sampled_from(["Rome", "the Rome", "Rome and Milan", "yes", "no", "True", "", "A", "unanswerable"])
passages = st.sampled_from(["p1", "p2", "p3", "p1#0", "p2#1"])
called_a_model = st.builds(
    lambda number, golds, positives, answerable, is_set: question(
        f"q{number}", golds, positives, answerable=answerable, answer_set=is_set, supporting_facts=("p1#0",), triples=(("a", "b", "c"),)
    ),
    st.integers(0, 10**6),
    st.lists(answers, max_size=3),
    st.lists(st.sampled_from(["p1", "p2", "p3"]), max_size=3),
    st.sampled_from([True, True, True, False]),
    st.booleans(),
)


def answered(query, answer, evidence, outcome):
    if outcome == "missing":
        return None
    notes = {FAILED: "broke"} if outcome == "failed" else {SUPPORT: list(evidence), TRIPLES: [["A", "b", "c."]]}
    return predicted(query, answer, evidence, **notes)


outcomes = st.sampled_from(["answered", "answered", "failed", "missing"])
runs = st.lists(st.tuples(called_a_model, answers, st.lists(passages, max_size=5), outcomes), max_size=6)


@pytest.mark.slow
@given(runs)
def test_random_runs_satisfy_all_invariants(rows):
    queries = [row[0] for row in rows]
    result = score(queries, [answered(*row) for row in rows], every_metric(), PASSAGES.__getitem__, QuestionGraphs())
    assert check_invariants({parse(name): values for name, values in result.items()}) == []


def scores_of(**values):
    return {parse(name.replace("_at_", "@")): np.array(numbers, float) for name, numbers in values.items()}


@pytest.mark.parametrize(
    ("scores", "complaint"),
    [
        (scores_of(recall_at_1=[0.5, 1], recall_at_5=[1, 0.5]), "recall@1#v2 is greater than recall@5#v2"),
        (scores_of(hit_at_3=[1], hit_at_10=[0]), "hit@3#v2 is greater"),
        (scores_of(all_at_3=[1], all_at_10=[0]), "all@3#v2 is greater"),
        (scores_of(mrr_at_1=[1], precision_at_1=[0]), "differ"),
        (scores_of(precision_at_1=[1], hit_at_1=[0]), "differ"),
        (scores_of(em=[1], f1=[0.9]), "em(rules=squad)#v2 is greater than f1(rules=squad)#v2"),
        (scores_of(em=[1], cover_em=[0]), "is greater than cover_em"),
        (scores_of(f1=[1.5]), "above its highest value 1"),
        (scores_of(f1=[-0.1]), "below its lowest value 0"),
        (scores_of(f1=[np.inf]), "infinite"),
        (scores_of(em=[np.nan, 1], f1=[0, 1]), "differ in what is unscorable"),
        (scores_of(hit_at_1=[np.nan], mrr_at_1=[0]), "differ in what is unscorable"),
        (scores_of(rog_accuracy=[1], rog_recall=[0.5]), "rog_accuracy#v1 and rog_recall#v1 differ"),
        (scores_of(rog_accuracy=[1], rog_recall=[np.nan]), "differ in what is unscorable"),
        (scores_of(strict_precision=[3]), "strict_precision#v1 is above its highest value 1"),
        (scores_of(strict_f1=[1.5]), "strict_f1#v1 is above its highest value 1"),
        (scores_of(rog_precision=[-1]), "rog_precision#v1 is below its lowest value 0"),
        (scores_of(perplexity=[0.5]), "below its lowest value 1"),
        (scores_of(perplexity=[np.inf]), "infinite"),
        (scores_of(bertscore=[1.01]), "above its highest value 1"),
        (scores_of(em=[1], answer_recall=[0]), "is greater than answer_recall"),
        (scores_of(**{"em(golds=first)": [1], "f1(golds=first)": [0]}), "is greater than f1(rules=squad,golds=first)"),
        (scores_of(**{"em(rules=clara)": [1], "f1(rules=clara)": [0]}), "is greater than f1(rules=clara)"),
        (scores_of(**{"cover_em(match=word)": [1], "cover_em(match=tokens)": [0]}), "than cover_em(match=tokens)"),
        (scores_of(**{"cover_em(match=word)": [1], "cover_em": [0]}), "is greater than cover_em(match=substring)"),
        (scores_of(**{"rouge(type=rougeL)": [1], "rouge(type=rouge1)": [0]}), "is greater than rouge(type=rouge1"),
        (scores_of(**{"joint_em(rules=2wiki)": [1], "joint_f1(rules=2wiki)": [0]}), "than joint_f1(rules=2wiki"),
    ],
)
def test_violated_invariant_is_reported(scores, complaint):
    assert any(complaint in violation for violation in check_invariants(scores))


def test_permitted_differences_are_not_violations():
    fine = scores_of(recall_at_1=[0.5, np.nan], recall_at_5=[1, np.nan], precision_at_5=[0.2, np.nan], em=[0, 1], f1=[0.1, 1])
    assert check_invariants(fine) == []
    # A gold such as "The The" can be equal, but has no tokens.
    assert check_invariants(scores_of(em=[1, 1], f1=[np.nan, 1], cover_em=[np.nan, 1])) == []
    for item, other in (
        ("em(rules=strict)", "f1(rules=hotpotqa)"),
        ("em(golds=first)", "f1"),  # the first of a set of answers is another question
        ("em", "f1(golds=first)"),
        ("em(rules=clara)", "f1"),
        ("cover_em(match=tokens)", "cover_em(match=substring)"),
        ("rouge(type=rouge2)", "rouge(type=rouge1)"),
        ("rouge(type=rougeL,stem=true)", "rouge(type=rouge1,stem=false)"),
        ("recall@5", "hit@1"),
        ("joint_em(rules=hotpotqa)", "joint_f1(rules=2wiki)"),
        ("strict_hit1", "strict_recall"),
    ):
        assert check_invariants({parse(item): np.array([1.0]), parse(other): np.array([0.0])}) == []
    assert check_invariants(scores_of(rog_precision=[11.8], rog_f1=[2], perplexity=[5000], strict_golds=[40])) == []


@pytest.mark.parametrize(("smaller", "larger"), sorted(scoring._NEVER_ABOVE))
def test_every_declared_metric_order_is_checked(smaller, larger):
    cut = "@5" if any(p.name == "k" for p in METRICS.get(smaller).parameters) else ""
    item, other = parse(smaller + cut), parse(larger + cut)
    violations = check_invariants({item: np.array([0.0, 1.0]), other: np.array([0.0, 0.5])})
    assert violations == [f"{item} is greater than {other} for 1 question, first in row 1"]
    assert check_invariants({item: np.array([0.0, 0.5]), other: np.array([0.0, 1.0])}) == []


def test_violation_reports_its_question_count_and_the_first_question():
    violations = check_invariants(scores_of(em=[0, 1, 1], f1=[0, 0, 0]))
    assert violations == ["em(rules=squad)#v2 is greater than f1(rules=squad)#v2 for 2 questions, first in row 1"]


def test_metrics_read_only_their_declared_needs():
    """Changing what a metric does not need must not change its score."""
    queries = [question("q1", supporting_facts=("p1#0",), triples=(("a", "b", "c"),))]
    base = predicted(queries[0], "Rome", ("p1", "p3"), **{SUPPORT: [("p1", 0)], TRIPLES: [["a", "b", "c"]]})
    changed = {
        "answer": predicted(queries[0], "?", ("p1", "p3"), **base.notes),
        "ranking": predicted(queries[0], "Rome", ("p2",), **base.notes),
        "support": predicted(queries[0], "Rome", ("p1", "p3"), **{**base.notes, SUPPORT: []}),
        "triples": predicted(queries[0], "Rome", ("p1", "p3"), **{**base.notes, TRIPLES: []}),
    }
    graphs = QuestionGraphs()
    expected = score(queries, [base], every_metric(), PASSAGES.__getitem__, graphs)
    for part, other in changed.items():
        result = score(queries, [other], every_metric(), PASSAGES.__getitem__, graphs)
        for name, values in result.items():
            if part not in parse(name).entry.needs:
                np.testing.assert_array_equal(values, expected[name], err_msg=f"{name} changes with {part}")
