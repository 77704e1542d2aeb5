"""Near-duplicates, compared with an exhaustive search of all pairs."""

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.near_duplicates import near_duplicates
from benchmarks.text import normalize

few = st.lists(st.text("abcdefg ", max_size=12), max_size=8)


def naive(first, second, threshold):
    left, right = ([set(normalize(text).split()) for text in texts] for texts in (first, second))
    every = [*left, *right]

    def weight(words):
        return sum(1 + math.log(len(every) / sum(word in text for text in every)) for word in words)

    results = {}
    for (i, a), (j, b) in product(enumerate(left), enumerate(right)):
        if a | b and weight(a & b) / weight(a | b) >= threshold - 1e-9:
            results[i, j] = weight(a & b) / weight(a | b)
    return results


@given(few, few, st.sampled_from([0.05, 0.3, 0.5, 0.8, 1.0]))
def test_prefix_filter_finds_exactly_the_naive_pairs(first, second, threshold):
    results = {(pair.first, pair.second): pair.similarity for pair in near_duplicates(first, second, threshold)}
    assert results == pytest.approx(naive(first, second, threshold))


def test_near_duplicates_ignore_case_and_punctuation():
    (pair,) = near_duplicates(["Who wrote Emma?", "x"], ["y", "who wrote EMMA"])
    assert (pair.first, pair.second, pair.similarity) == (0, 1, 1.0)


def test_same_template_with_another_name_is_not_a_duplicate():
    names = ["Quibble Hall", "Zanzibar Star", "Oak Manor", "Elm Lodge", "Pine Court", "Ash Villa"]
    first = [f"Where was the director of the film {name} born?" for name in names[:3]]
    second = [f"Where was the director of the film {name} born?" for name in names[3:]]
    assert near_duplicates(first, second) == []
    assert len(near_duplicates(first, [*second, first[1].replace("Where was", "Where exactly was")], 0.7)) == 1


def test_texts_that_normalize_to_nothing_have_no_duplicates():
    assert near_duplicates(["?", "the"], ["?", "an"], 0.1) == []
