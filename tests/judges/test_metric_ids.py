"""Metric ids: stored ids stay stable, default parameters are omitted, and needs are known words."""

from __future__ import annotations

import itertools
from contextlib import nullcontext

import numpy as np
import pytest

from benchmarks.schema import Passage, Question
from benchmarks.text_batch import AnswerPairs
from judges.metric import METRICS, NEEDS, Batch, Metric, Parameter, parse, register, require_language
from judges.metrics import answer as answer_module
from judges.metrics import graph_qa as graph_module
from judges.metrics import retrieval as retrieval_module
from judges.score import score
from methods.api import FAILED, Evidence, Prediction
from tests.support.errors import raises

STORED = [
    "em(rules=squad)#v2",
    "em(rules=strict)#v2",
    "f1(rules=squad)#v2",
    "f1(rules=hotpotqa)#v2",
    "f1(rules=musique)#v2",
    "f1(rules=longbench)#v2",
    "f1(rules=clara)#v2",
    "cover_em(match=substring)#v1",
    "answer_precision(rules=squad)#v2",
    "answer_recall(rules=squad)#v2",
    "recall@5#v2",
    "ndcg@10(gain=linear)#v2",
    "has_answer@20#v2",
    "sp_f1#v2",
    "joint_f1(rules=2wiki)#v2",
    "support_f1#v2",
    "evidence_f1#v2",
]
"""Ids in existing stores."""


def test_stored_metric_ids_stay_stable():
    assert [str(parse(text)) for text in STORED] == list(STORED)


@pytest.mark.parametrize("bare", ["em", "f1", "cover_em", "answer_precision", "answer_recall"])
def test_parameter_golds_first_appears_in_the_id_and_the_default_does_not(bare):
    usual, first = parse(bare), parse(f"{bare}(golds=first)")
    assert "golds" not in str(usual)
    assert str(parse(f"{bare}(golds=all)")) == str(usual)
    assert str(first).endswith(f",golds=first)#v{usual.entry.version}")
    assert parse(str(first)) == first != usual


def test_every_parameter_combination_round_trips_through_the_id():
    seen = set()
    for entry in METRICS:
        options = [[(p.name, v) for v in ((1, 7) if p.name == "k" else p.choices or (p.default,))] for p in entry.parameters]
        for chosen in itertools.product(*options):
            metric = Metric(entry, dict(chosen))
            assert parse(str(metric)) == metric
            assert str(metric) not in seen
            seen.add(str(metric))
    assert len(seen) > 100


def test_booleans_are_written_true_and_false():
    assert str(parse("rouge(stem=false)")) == "rouge(type=rougeL,stem=false)#v1"
    assert parse("rouge(stem=false)").values["stem"] is False
    for wrong in ("0", "False", "no", ""):
        with raises("not-type"):
            parse(f"rouge(stem={wrong})")


@pytest.mark.parametrize("text", ["f1(rules=squad,rules=clara)", "recall@5(k=3)", "em(golds=all, golds=first)"])
def test_repeated_parameter_is_refused(text):
    with raises("duplicate-entry"):
        parse(text)


ROME = Question("q", "?", ("Rome", "Milan"), aliases={"Rome": ("Roma",)})


@pytest.mark.parametrize(
    ("metric", "answer", "all_golds", "first"),
    [
        ("em", "Milan", 1, 0),
        ("em", "Roma", 1, 0),
        ("em", "Rome", 1, 1),
        ("f1", "Milan", 1, 0),
        ("f1", "in Rome", 2 / 3, 2 / 3),
        ("cover_em", "to Milan", 1, 0),
        ("answer_precision", "Milan now", 0.5, 0),
        ("answer_recall", "Milan now", 1, 0),
    ],
)
def test_golds_first_uses_only_the_first_answer(metric, answer, all_golds, first):
    responses = [Prediction("q", answer)]
    name = metric + "{}"
    results = [score([ROME], responses, [name.format(more)]) for more in ("", "(golds=first)")]
    assert [next(iter(values.values()))[0] for values in results] == pytest.approx([all_golds, first])


def test_golds_first_requires_only_the_first_answer_of_a_set():
    both = Question("q", "?", ("Rome", "Milan"), answer_set=True)
    result = score([both], [Prediction("q", "Rome")], ["em", "em(golds=first)", "f1(golds=first)"])
    assert [values[0] for values in result.values()] == [0, 1, 1]


def test_golds_first_ignores_other_answers_if_the_first_one_normalizes_to_nothing():
    question = Question("q", "?", ("The", "Milan"))
    result = score([question], [Prediction("q", "Milan")], ["em", "em(golds=first)", "f1(golds=first)"])
    assert [float(values[0]) for values in result.values()] == pytest.approx([1, 0, np.nan], nan_ok=True)


def test_every_metric_declares_known_needs():
    for entry in METRICS:
        assert entry.needs
        assert set(entry.needs) <= NEEDS.keys()


@pytest.mark.parametrize("needs", [("anwser",), ("answer", "verdicts"), ()])
def test_unknown_need_is_refused_at_registration(needs):
    with pytest.raises(ValueError, match=r"inputs|needs"):

        @register("faulty", source="nobody", group="answer", needs=needs)
        def faulty(batch):
            """Register a metric that declares the given needs."""

    assert "faulty" not in METRICS


def test_default_outside_the_choices_is_refused():
    for entry in METRICS:
        for parameter in entry.parameters:
            assert parameter.help
            if parameter.choices and parameter.default is not None:
                assert parameter.default in parameter.choices
            if parameter.quiet:
                assert parameter.default is not None


def counted(monkeypatch, module, name):
    """Count the calls of a function of a module."""
    calls = []
    real = getattr(module, name)
    monkeypatch.setattr(module, name, lambda *args, **more: (calls.append(args), real(*args, **more))[1])
    return calls


REQUESTED = [Question(f"q{n}", "?", (f"gold {n}", "other"), evidence=("p1",)) for n in range(3)]
STATED = [Prediction(q.id, "gold 1\nother", (Evidence("p1", 1.0), Evidence("p2", 0.5))) for q in REQUESTED]


def test_answers_are_normalized_once_for_rules_with_equal_normalization(monkeypatch):
    calls = counted(monkeypatch, answer_module, "AnswerPairs")
    score(
        REQUESTED,
        STATED,
        [
            "em",
            "f1",
            "f1(rules=hotpotqa)",
            "f1(rules=musique)",
            "f1(rules=longbench)",
            "cover_em",
            "cover_em(match=word)",
            "answer_precision",
            "answer_recall",
        ],
    )
    assert len(calls) == 1
    score(REQUESTED, STATED, ["em(rules=clara)", "em", "em(golds=first)"])
    assert len(calls) == 4
    assert isinstance(AnswerPairs([], []), AnswerPairs)


def test_positives_are_looked_up_once_for_all_ranking_metrics(monkeypatch):
    calls = counted(monkeypatch, retrieval_module, "find_positives")
    score(REQUESTED, STATED, [f"{name}@{k}" for name in ("recall", "hit", "mrr", "map", "ndcg", "all") for k in (1, 5, 20)])
    assert len(calls) == 1


def test_passages_are_normalized_once_for_all_cutoffs(monkeypatch):
    read = []

    def text(identifier):
        read.append(identifier)
        return Passage(identifier, "", "no such thing")

    score(REQUESTED, STATED, ["has_answer@20", "has_answer@1", "has_answer@5"], text)
    assert sorted(read) == ["p1", "p2"]


def test_graph_answers_are_matched_once_for_all_metrics_of_an_evaluator(monkeypatch):
    rog, strict = (counted(monkeypatch, graph_module, name) for name in ("rog_scores", "strict_counts"))
    score(REQUESTED, STATED, [entry.id for entry in METRICS if entry.group == "graph"])
    assert (len(rog), len(strict)) == (3, 3)


def test_once_caches_none_results():
    batch, made = Batch([], []), []
    for _ in range(3):
        assert batch.once("key", lambda: made.append("made")) is None
    assert made == ["made"]


def test_missing_answer_scores_the_declared_missing_value():
    more = {"all_classes": ["Rome", "Milan"], "parses": [{"answers": ["Rome"], "answer_ids": ["m.1"], "good": True}]}
    questions = [Question("q1", "?", ("Rome",), metadata=more), Question("q2", "?", ("Rome", "Milan"), answer_set=True, metadata=more)]
    for entry in METRICS:
        if "answer" not in entry.needs or "model" in entry.needs or "support" in entry.needs:
            continue
        name = str(parse(entry.id))
        absent = score(questions, [None, None], [name])[name]
        failed = [Prediction(q.id, "Rome\nMilan", notes={FAILED: "broke"}) for q in questions]
        empty = score(questions, [Prediction(q.id, "") for q in questions], [name])[name]
        expected = empty if entry.missing == "empty" else np.where(np.isnan(empty), np.nan, entry.missing)
        np.testing.assert_array_equal(absent, expected, err_msg=name)
        np.testing.assert_array_equal(score(questions, failed, [name])[name], expected, err_msg=name)


def test_parameter_check_message_is_shown_in_the_error():
    parameter = Parameter("size", int, 3, check=lambda size: "must be odd" if size % 2 == 0 else None)
    try:

        @register("odd_size", source="this test", group="answer", needs=("answer",), parameters=(parameter,), identity="version")
        def odd_size(batch, size):
            """Metric of this test with a parameter that must be odd."""
            return np.zeros(len(batch))

        assert str(parse("odd_size(size=5)")) == "odd_size(size=5)#v1"
        with raises("bad-option"):
            parse("odd_size(size=4)")
    finally:
        METRICS._entries.pop("odd_size", None)


@pytest.mark.parametrize(
    ("metric", "languages", "fits"),
    [
        ("f1(rules=squad)", ("zh",), False),
        ("rouge(type=rougeL)", ("zh",), False),
        ("longbench_rouge(words=spaces)", ("zh",), False),
        ("f1(rules=longbench_zh)", ("en",), False),
        ("f1(rules=longbench_zh)", ("zh",), True),
        ("longbench_rouge(words=jieba)", ("en", "zh"), True),
        ("em(rules=strict)", ("zh",), True),
        ("f1(rules=squad)", ("de",), True),
        ("f1(rules=squad)", (), True),
    ],
)
def test_metric_language_must_match_the_answers(metric, languages, fits):
    with nullcontext() if fits else raises("answer-language-mismatch"):
        require_language(parse(metric), languages)
