"""Statistics compared with counts by hand and by NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.registry import load
from benchmarks.verify import QUANTILES, Distribution, statistics


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=60))
def test_quantiles_are_observed_values_and_bins_hold_every_value(values):
    distribution = Distribution.of(values)
    ordered = sorted(values)
    for share, quantile in zip(QUANTILES, distribution.quantiles, strict=True):
        # The smallest value with at least this share of values at or below it.
        assert quantile == ordered[max(0, int(np.ceil(share * len(values) - 1e-9)) - 1)]
    bins = distribution.histogram()
    assert sum(count for _, _, count in bins) == len(values)
    assert all(low < high for low, high, _ in bins)
    for low, high, count in bins[:-1]:
        assert count == sum(low <= value < high for value in values)


def test_empty_values_give_no_bins_and_zero_statistics():
    empty = Distribution.of([])
    assert (empty.mean, empty.quantiles, empty.histogram()) == (0.0, (0,) * len(QUANTILES), [])


@pytest.mark.parametrize("subset", ["multihop", "long", "graph"])
def test_counts_and_lengths_equal_a_naive_count(subset):
    benchmark = load(f"worlds/{subset}:test", {"questions": 30})
    result = statistics(benchmark)
    assert result.counts["questions"] == len(benchmark.questions) == sum(result.types.values())
    assert result.counts["passages"] == len(list(benchmark.corpus))
    for name, texts in {
        "questions": [question.text for question in benchmark.questions],
        "answers": [answer for question in benchmark.questions for answer in question.answers],
        "passages": [passage.text for passage in benchmark.corpus],
    }.items():
        assert result.words[name].values.tolist() == sorted(len(text.split()) for text in texts)
        assert result.characters[name].mean == pytest.approx(np.mean([len(text) for text in texts]))
    assert result.each["answers"].mean == pytest.approx(np.mean([len(q.answers) for q in benchmark.questions]))


def test_document_length_is_the_sum_of_its_passages():
    benchmark = load("worlds/long:test", {"questions": 10})
    lengths = [
        sum(len(passage.text.split()) for passage in benchmark.corpus.get(identifiers))
        for identifiers in benchmark.corpus.by_document.values()
    ]
    assert statistics(benchmark).words["documents"].values.tolist() == sorted(lengths)


def test_statistics_omit_absent_fields():
    result = statistics(load("worlds/multihop:test", {"questions": 5}))
    assert "documents" not in result.words
    assert "topic entities" not in result.each
