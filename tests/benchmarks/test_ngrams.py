"""Search for n-grams in a stream of words, compared with sets of tuples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.ngrams import NOWHERE, NgramIndex
from tests.support.training_files import grams

few_words = st.lists(st.sampled_from("abcd"), max_size=14)


@pytest.mark.slow
@given(st.lists(few_words, max_size=8), st.lists(few_words, max_size=8), st.integers(1, 5))
def test_ngram_index_agrees_with_sets_of_tuples(wanted, stream, n):
    index = NgramIndex(wanted, n)
    piece, positions = [], []
    for number, text in enumerate(stream):
        piece += [0, *index.numbered(text)]
        positions += [number] * (len(text) + 1)
    index.meet(np.array(piece, dtype=np.int32), lambda at: np.array(positions, dtype=np.int64)[at])
    met, total, first = index.counts()
    held = [{tuple(text[i : i + m]) for m in range(1, n + 1) for i in range(len(text) - m + 1)} for text in stream]
    for position, text in enumerate(wanted):
        own = grams(text, n)
        where = [number for gram in own for number, known in enumerate(held) if gram in known]
        assert total[position] == len(own)
        assert met[position] == sum(any(gram in known for known in held) for gram in own)
        assert first[position] == min(where, default=NOWHERE)


def test_ngrams_with_colliding_keys_are_rehashed(monkeypatch):
    real = np.random.default_rng

    class Constant:
        def integers(self, low, high, count, dtype):
            return np.full(count, 7, dtype=dtype)

    seeds = []

    def rng(seed):
        seeds.append(seed)
        return Constant() if seed == 0 else real(seed)

    monkeypatch.setattr(np.random, "default_rng", rng)
    index = NgramIndex([["a", "b"], ["c", "d"]], 2)
    assert seeds == [0, 1]
    index.meet(np.array(index.numbered(["c", "d"]), dtype=np.int32), lambda at: at)
    assert index.counts()[0].tolist() == [0, 1]


def test_empty_index_finds_nothing():
    index = NgramIndex([[], []], 13)
    index.meet(np.array([0, 0], dtype=np.int32), lambda at: at)
    assert [values.tolist() for values in index.counts()] == [[0, 0], [0, 0], [NOWHERE, NOWHERE]]
