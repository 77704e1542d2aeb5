"""Candidates found by a retriever: which retrievers a setting may name, with which presets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import registry
from benchmarks.settings import Setting
from methods.api import Services
from methods.registry import Component
from ragmeter.experiment import candidate_retriever, in_setting, read_setting
from tests.support.errors import raises


def test_setting_may_name_a_retriever_preset() -> None:
    setting = read_setting("corpus(retriever=dense[dpr-nq],n=50)", None)
    assert str(setting) == "corpus(retriever=dense[dpr-nq],n=50)"
    retriever = candidate_retriever(setting)
    assert retriever is not None
    assert retriever.config == Component.of("dense", {"preset": "dpr-nq"}).config
    assert retriever.config != Component.of("dense").config


def test_preset_applies_inside_an_oracle_setting() -> None:
    retriever = candidate_retriever(read_setting("oracle(base=corpus(retriever=dense[dpr-nq],n=50),n=10)", None))
    assert retriever is not None
    assert retriever.config == Component.of("dense", {"preset": "dpr-nq"}).config


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("corpus(retriever=dense[dpr-qn],n=5)", "unknown-preset"),
        ("corpus(retriever=dnse[dpr-nq],n=5)", "unknown-method"),
        ("corpus(retriever=extractive,n=5)", "not-retriever"),
    ],
)
def test_unknown_retriever_or_preset_is_refused(text: str, what: str) -> None:
    with raises(what):
        read_setting(text, "x.yaml:3")


@pytest.mark.slow
def test_retriever_of_a_preset_is_used_for_search() -> None:
    pytest.importorskip("bm25s")
    benchmark = registry.load("worlds/multihop:test").limited(20)
    by_hand = Component.of("bm25", {"k1": 0.9, "b": 0.4}).build(Services()).index(benchmark.corpus)
    result = in_setting(Setting.parse("corpus(retriever=bm25[pyserini],n=10)"), benchmark, Services())
    queries = [replace(question.query(), candidates=None) for question in benchmark.questions]
    expected = [ranking.ids for ranking in by_hand.retrieve(queries, 10)]
    assert [tuple(question.candidates or ()) for question in result.questions] == [tuple(ids) for ids in expected]
    default = in_setting(Setting.parse("corpus(retriever=bm25,n=10)"), benchmark, Services())
    assert [q.candidates for q in default.questions] != [q.candidates for q in result.questions]
