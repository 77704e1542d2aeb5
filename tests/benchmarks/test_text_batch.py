"""Batch functions, compared with the primitives row by row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.text import COVER_MATCHES, RULES, cover_em, em, f1, has_answer, is_scorable_gold, normalize, precision_recall_f1
from benchmarks.text_batch import AnswerPairs, has_answer_all, normalize_all
from tests.support.errors import raises

PIECES = [
    "a", "The", " an ", "  ", "\t", "\x1c", "\x00", "\x01", "é", "a\u0301", "–", "ΑΣ", "İ", "yes", "no", "True", "-",
    ".", "\u00a0", "9", "\ud800", "cat ", " dog", "cat dog ",
]  # fmt: skip
texts = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)
pairs = st.lists(st.tuples(texts, st.lists(texts, max_size=3)), max_size=12)
rules_names = st.sampled_from(sorted(RULES))


@pytest.mark.slow
@given(st.lists(texts, max_size=20), rules_names)
def test_batch_normalization_equals_single_normalization(many, rules):
    assert normalize_all(many, rules) == [normalize(text, rules) for text in many]


@pytest.mark.parametrize("strange", ["a\x00b", "the\x01an", "é the", "plain"])
def test_one_unusual_text_does_not_change_the_others(strange):
    many = [f"The {number} cats, a dog" for number in range(5000)]
    many[4500] = strange
    assert normalize_all(many) == [normalize(text) for text in many]


@given(pairs, rules_names)
def test_batch_scores_equal_a_loop(rows, rules):
    predictions, golds = [row[0] for row in rows], [row[1] for row in rows]
    both = list(zip(predictions, golds, strict=True))
    batch = AnswerPairs(predictions, golds, rules)
    assert batch.em().tolist() == [em(p, g, rules) for p, g in both]
    assert batch.f1(rules).tolist() == [f1(p, g, rules) for p, g in both]
    parts = batch.precision_recall_f1(rules)
    assert [tuple(part[row] for part in parts) for row in range(len(rows))] == [precision_recall_f1(p, g, rules) for p, g in both]
    for match in COVER_MATCHES:
        assert batch.cover_em(match).tolist() == [cover_em(p, g, match, rules) for p, g in both]
    assert has_answer_all(predictions, golds).tolist() == [has_answer(p, g) for p, g in both]


@given(pairs)
@settings(deadline=None)
def test_scorable_golds_remain_after_dropping_empty_ones(rows):
    predictions = [row[0] for row in rows]
    kept = [[gold for gold in row[1] if is_scorable_gold(gold)] for row in rows]
    dropped = AnswerPairs(predictions, [row[1] for row in rows], drop_empty=True)
    assert dropped.scorable.tolist() == [bool(golds) for golds in kept]
    whole = AnswerPairs(predictions, kept)
    assert dropped.em().tolist() == whole.em().tolist()
    assert dropped.f1().tolist() == whole.f1().tolist()


def test_rows_without_golds_score_zero_at_any_position():
    scores = AnswerPairs(["x", "y", "z", "w"], [[], ["y"], [], ["v", "w"]]).em()
    np.testing.assert_array_equal(scores, [0, 1, 0, 1])
    assert AnswerPairs([], []).em().shape == (0,)
    assert AnswerPairs(["x", "y"], [[], []]).f1().tolist() == [0, 0]


def test_unequal_lengths_are_an_error():
    with pytest.raises(ValueError, match="2 predictions for 1"):
        AnswerPairs(["a", "b"], [["a"]])


def test_unknown_match_is_an_error():
    with raises("unknown-match"):
        AnswerPairs(["x"], [["x"]]).cover_em("substr")
