"""Recall of gold spans by characters, for any passage size."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.schema import SPANS, Passage, Question
from judges.metric import Batch, parse
from methods.api import Evidence, Prediction
from tests.support.errors import raises


def value(
    metric: str, spans: list[tuple[int, dict[str, tuple[int, int]]]] | None, ranking: list[str], texts: dict[str, str] | None = None
) -> float:
    question = Question("q", "?", (), metadata={} if spans is None else {SPANS: spans})
    prediction = Prediction("q", "", tuple(Evidence(name, 1.0) for name in ranking))
    passage = None if texts is None else lambda name: Passage(name, "", texts[name])
    parsed = parse(metric)
    return float(parsed.entry.compute(Batch([question], [prediction], passage), **parsed.values)[0])


@pytest.mark.parametrize(
    ("spans", "ranking", "expected"),
    [
        ([(10, {"a": (0, 10)})], ["a"], 1.0),
        ([(10, {"a": (0, 6), "b": (4, 10)})], ["b", "a"], 1.0),
        ([(10, {"a": (0, 6), "b": (4, 10)})], ["x", "b"], 0.6),
        ([(10, {"a": (0, 10)}), (30, {"b": (0, 30)})], ["a"], 0.25),
        ([(10, {"a": (0, 10)})], ["x", "y", "a"], 0.0),
        ([(10, {"gone": (0, 0)})], ["gone"], 0.0),
    ],
)
def test_span_recall_is_the_share_of_retrieved_characters(
    spans: list[tuple[int, dict[str, tuple[int, int]]]], ranking: list[str], expected: float
) -> None:
    assert value("span_recall@2", spans, ranking) == pytest.approx(expected)


def test_span_recall_is_unscorable_without_spans() -> None:
    assert np.isnan(value("span_recall@2", None, ["a"]))


def test_word_budget_truncates_rankings_of_passages_of_different_sizes() -> None:
    spans, texts = [(10, {"a": (0, 10)})], {"x": "one two three", "a": "four five"}
    assert value("span_recall@9(words=5)", spans, ["x", "a"], texts) == 1.0
    assert value("span_recall@9(words=4)", spans, ["x", "a"], texts) == 0.0
    with raises("words-need-passages"):
        value("span_recall@9(words=4)", spans, ["x"])
