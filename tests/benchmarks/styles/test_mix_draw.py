"""Assignment of styles to candidates: exact shares that do not depend on other questions."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.core.errors import UserError
from benchmarks.styles.mix import assigned, formal_count, shares_of

ALL = lambda position, style: True  # noqa: E731
RATIOS = st.integers(0, 100).map(lambda percent: percent / 100)


@given(size=st.integers(0, 60), percent=st.integers(0, 100), seed=st.integers(0, 5), question=st.text(max_size=8))
def test_exact_sampling_keeps_the_rounded_share_formal(size, percent, seed, question):
    styles, short = assigned(size, {"informal": 1 - percent / 100}, seed, question, ALL)
    # In integers: round half to even, like `round`, without floating point.
    whole, rest = divmod(percent * size, 100)
    expected = whole + (rest > 50 or (rest == 50 and whole % 2 == 1))
    assert (styles.count("formal"), short) == (expected, 0)
    assert Counter(styles) == +Counter({"formal": expected, "informal": size - expected})


@given(size=st.integers(1, 60), seed=st.integers(0, 9), low=RATIOS, high=RATIOS)
def test_formal_candidates_stay_formal_at_larger_shares(size, seed, low, high):
    low, high = sorted((low, high))
    few, many = (assigned(size, {"humor": 1 - share}, seed, "q", ALL)[0] for share in (low, high))
    assert all(more == "formal" for less, more in zip(few, many, strict=True) if less == "formal")


@given(size=st.integers(0, 50), parts=st.lists(st.integers(0, 20), min_size=2, max_size=3))
def test_several_styles_split_the_remainder_to_the_nearest_integer(size, parts):
    whole = max(sum(parts), 1) * 2
    shares = {name: part / whole for name, part in zip(("informal", "humor", "romance"), parts, strict=False)}
    counts = Counter(assigned(size, shares, 1, "q", ALL)[0])
    assert counts["formal"] == formal_count(size, shares)
    rest = size - counts["formal"]
    for style, share in shares.items():
        wanted = rest * share / sum(shares.values()) if sum(shares.values()) else 0
        assert abs(counts[style] - wanted) < 1


def test_style_assignment_depends_only_on_seed_and_question():
    first = assigned(50, {"informal": 0.5}, 3, "q7", ALL)
    assert first == assigned(50, {"informal": 0.5}, 3, "q7", ALL)
    assert first != assigned(50, {"informal": 0.5}, 4, "q7", ALL)
    assert first != assigned(50, {"informal": 0.5}, 3, "q8", ALL)


def test_style_assignment_is_uniform_over_positions():
    """4,000 questions of ten candidates, half formal: each position is formal 2,000 times, within 5 standard deviations."""
    formal = Counter(
        position
        for question in range(4000)
        for position, style in enumerate(assigned(10, {"informal": 0.5}, 0, str(question), ALL)[0])
        if style == "formal"
    )
    assert all(abs(formal[position] - 2000) < 5 * (4000 * 0.25) ** 0.5 for position in range(10))


@given(size=st.integers(1, 40), lacking=st.sets(st.integers(0, 39)), ratio=RATIOS, seed=st.integers(0, 3))
def test_candidates_without_a_pair_stay_formal_and_are_replaced_by_others(size, lacking, ratio, seed):
    styles, short = assigned(size, {"informal": 1 - ratio}, seed, "q", lambda position, style: position not in lacking)
    styled = [position for position, style in enumerate(styles) if style == "informal"]
    wanted = size - formal_count(size, {"informal": 1 - ratio})
    there = size - len(lacking & set(range(size)))
    assert not set(styled) & lacking
    assert len(styled) == min(wanted, there)
    assert short == wanted - len(styled)


def test_style_available_for_one_candidate_is_assigned_to_it():
    for seed in range(20):
        has = lambda position, style: style == "informal" or position == 2  # noqa: E731
        styles, short = assigned(4, {"informal": 0.5, "humor": 0.25}, seed, "q", has)
        assert (styles[2], short) == ("humor", 0)
        assert Counter(styles) == {"formal": 1, "informal": 2, "humor": 1}


def test_independent_sampling_matches_the_shares_only_on_average():
    drawn = [assigned(50, {"informal": 0.3, "humor": 0.2}, 0, str(q), ALL, "coin")[0] for q in range(400)]
    counts = Counter(style for styles in drawn for style in styles)
    for style, share in (("formal", 0.5), ("informal", 0.3), ("humor", 0.2)):
        assert abs(counts[style] - share * 20_000) < 5 * (20_000 * share * (1 - share)) ** 0.5
    assert len({styles.count("formal") for styles in drawn}) > 10


@pytest.mark.parametrize("mix", [{"informal": 1.2}, {"informal": -0.1}, {"informal": 0.7, "humor": 0.4}, {"formal": 0.5, "informal": 0.4}])
def test_invalid_shares_are_refused(mix):
    with pytest.raises(UserError, match="share"):
        shares_of(mix)


def test_share_of_formal_is_optional():
    assert shares_of({"formal": 0.4, "informal": 0.6}) == shares_of({"informal": 0.6}) == {"informal": 0.6}
