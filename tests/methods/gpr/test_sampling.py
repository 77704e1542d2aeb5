"""Neighbors and negatives: their definition, their frequency, and that sampling ends."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from benchmarks.core.errors import UserError
from methods.gpr.sampling import SamplingConfig, TripleIndex
from tests.support.errors import raises

Row = tuple[int, int, int]

SMALL: list[Row] = [
    (0, 0, 1),
    (1, 1, 0),
    (0, 1, 1),  # twice there and once back
    (0, 0, 2),
    (0, 0, 3),
    (2, 2, 3),
    (4, 0, 1),
    (5, 0, 6),
    (6, 1, 7),
    (5, 2, 5),
    (7, 0, 5),  # a loop at 5
    (8, 0, 9),
    (9, 1, 8),
    (10, 2, 10),  # 10 knows only itself
]

ALL_OPTIONS = [SamplingConfig(nb_exclude_same_hr=exclude) for exclude in (False, True)]


def index(rows: list[Row]) -> TripleIndex:
    heads, relations, tails = np.array(rows, np.int32).T
    return TripleIndex(heads, relations, tails)


def ends(row: Row) -> set[int]:
    return {row[0], row[2]}


def naive_neighbors(rows: list[Row], anchor: Row, options: SamplingConfig, entities: set[int]) -> list[Row]:
    """Return the distinct triples that share one of the anchor's entities, one after another."""
    results = [other for other in dict.fromkeys(rows) if other != anchor and ends(other) & entities]
    if options.nb_exclude_same_hr:
        results = [other for other in results if other[:2] != anchor[:2]]
    return results


def naive_negatives(rows: list[Row], anchor: Row) -> list[Row]:
    return [other for other in dict.fromkeys(rows) if not ends(other) & ends(anchor)]


def neighbor_shares(rows: list[Row], anchor: Row, options: SamplingConfig) -> dict[Row, float]:
    """Return how often each neighbor is sampled by the definition."""
    results = naive_neighbors(rows, anchor, options, ends(anchor))
    return dict.fromkeys(results, 1 / len(results)) if results else {}


@pytest.mark.slow
@pytest.mark.parametrize("options", ALL_OPTIONS, ids=str)
def test_samples_follow_the_definition_on_a_small_graph(options: SamplingConfig) -> None:
    # Chi-square against a loop over the definition, for every triple of a graph with inverses, a hub and loops.
    times = 4000
    anchors = np.repeat(np.arange(len(SMALL)), times)
    drawn = index(SMALL).draw(3, 1, options, anchors)
    for position, anchor in enumerate(SMALL):
        mine = drawn.anchor == position
        shares = neighbor_shares(SMALL, anchor, options)
        assert mine.sum() == (times if shares else 0)
        if not shares:
            continue
        for got, expected in ((drawn.neighbor[mine], shares), (drawn.negative[mine], dict.fromkeys(naive_negatives(SMALL, anchor), 1.0))):
            counts = Counter(SMALL[item] for item in got.tolist())
            assert set(counts) == set(expected)
            if len(expected) > 1:
                total = sum(expected.values()) / times
                assert chisquare([counts[item] for item in expected], [expected[item] / total for item in expected]).pvalue > 1e-5


def test_triple_without_neighbor_is_dropped_and_counted() -> None:
    drawn = index(SMALL).draw(0, 0)
    assert drawn.dropped == 1
    assert drawn.rows.tolist() == list(range(13))
    assert drawn.anchor.tolist() == list(range(13))


def test_rows_record_the_index_of_their_triple() -> None:
    drawn = index(SMALL).draw(0, 0, None, np.array([13, 2, 2, 13, 0]))
    assert drawn.rows.tolist() == [1, 2, 4]
    assert drawn.anchor.tolist() == [2, 2, 0]
    assert drawn.dropped == 2


def test_triple_that_shares_both_entities_is_one_neighbor() -> None:
    rows = [(0, 0, 1), (1, 0, 0), (0, 0, 2), (5, 0, 6)]
    assert index(rows).neighbor_counts(np.arange(4)).tolist() == [2, 2, 2, 0]
    drawn = index(rows).draw(0, 0, None, np.zeros(20_000, int))
    assert Counter(drawn.neighbor.tolist())[1] == pytest.approx(10_000, abs=400)


def test_duplicate_triples_count_as_the_first_copy() -> None:
    rows = [(0, 0, 1), (0, 0, 2), (0, 0, 2), (0, 0, 2), (0, 1, 3), (7, 0, 8), (7, 0, 8), (0, 0, 1)]
    assert index(rows).neighbor_counts(np.arange(8)).tolist() == [2, 2, 2, 2, 2, 0, 0, 2]
    drawn = index(rows).draw(0, 0, None, np.repeat([0, 7], 10_000))
    assert Counter(drawn.neighbor.tolist())[1] == pytest.approx(10_000, abs=400)
    assert set(drawn.neighbor.tolist()) == {1, 4}
    assert set(drawn.negative.tolist()) == {5}
    assert set(drawn.anchor.tolist()) == {0, 7}


def test_samples_depend_only_on_seed_and_epoch() -> None:
    rows = [(item % 40, item % 3, 40 + item * 7 % 41) for item in range(400)]
    first, again, later, other = (index(rows).draw(*key) for key in ((2, 5), (2, 5), (3, 5), (2, 6)))
    assert np.array_equal(first.neighbor, again.neighbor)
    assert np.array_equal(first.negative, again.negative)
    for different in (later, other):
        assert not np.array_equal(first.neighbor, different.neighbor)
        assert not np.array_equal(first.negative, different.negative)


def test_graph_in_which_all_triples_overlap_is_refused_immediately() -> None:
    star = [(0, 0, item) for item in range(1, 5000)]
    with raises("no-negative-triple"):
        index(star).draw(0, 0)


def test_one_triple_without_negative_is_named() -> None:
    rows = [(0, 0, 1), (0, 0, 2), (1, 0, 3), (0, 0, 3)]
    heads, relations, tails = np.array(rows).T
    names = [(f"e{h}", "r", f"e{t}") for h, _, t in rows]
    with raises("no-negative-triple"):
        TripleIndex(heads, relations, tails, names).draw(0, 0)


def test_a_graph_without_neighbors_is_refused() -> None:
    with raises("no-neighboring-triple"):
        index([(0, 0, 1), (2, 0, 3)]).draw(0, 0)
    alike = [(0, 0, 1), (0, 0, 2), (3, 0, 4), (3, 0, 5)]
    assert not index(alike).draw(0, 0).dropped
    with raises("no-neighboring-triple"):
        index(alike).draw(0, 0, SamplingConfig(nb_exclude_same_hr=True))


def test_a_graph_without_triples_is_refused() -> None:
    none = np.empty(0, np.int32)
    with raises("empty-graph"):
        TripleIndex(none, none, none)


def test_no_requested_triples_give_no_rows() -> None:
    drawn = index(SMALL).draw(0, 0, None, np.empty(0, int))
    assert [len(item) for item in drawn[:4]] == [0, 0, 0, 0]


def test_rare_negatives_are_sampled_uniformly() -> None:
    # All but five of 60,000 triples touch one hub: drawing and trying would take ten thousand tries for each.
    spokes = [(0, item % 2, item) for item in range(1, 60_001)]
    away = [(70_000 + 2 * item, 2, 70_001 + 2 * item) for item in range(5)]
    drawn = index(spokes + away).draw(0, 0, None, np.arange(60_000))
    counts = Counter(drawn.negative.tolist())
    assert set(counts) == set(range(60_000, 60_005))
    assert chisquare(list(counts.values())).pvalue > 1e-5


def test_only_negative_of_a_two_hub_graph_is_found() -> None:
    rows = [(0, 0, 1)]
    rows += [(0, 1, item) for item in range(10, 4000)] + [(1, 1, item) for item in range(10, 4000)]
    rows += [(9500, 2, 9501)]
    drawn = index(rows).draw(0, 0, None, np.zeros(50, int))
    assert set(drawn.negative.tolist()) == {len(rows) - 1}


graphs = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2), st.integers(0, 9)), min_size=1, max_size=40)


@pytest.mark.slow
@given(graphs, st.sampled_from(ALL_OPTIONS), st.integers(0, 5))
def test_sampled_rows_always_satisfy_the_definition(rows: list[Row], options: SamplingConfig, epoch: int) -> None:
    made = index(rows)
    neighbors = [naive_neighbors(rows, row, options, ends(row)) for row in rows]
    negatives = [naive_negatives(rows, row) for row in rows]
    counts = made.neighbor_counts(np.arange(len(rows)), options.nb_exclude_same_hr)
    assert counts.tolist() == [len(neighbor) for neighbor in neighbors]
    with_neighbor = [position for position, item in enumerate(neighbors) if item]
    if not with_neighbor or any(not negatives[position] for position in with_neighbor):
        with pytest.raises(UserError):
            made.draw(epoch, 0, options)
        return
    drawn = made.draw(epoch, 0, options)
    assert drawn.rows.tolist() == with_neighbor
    assert drawn.dropped == len(rows) - len(with_neighbor)
    for anchor, neighbor, negative in zip(drawn.anchor, drawn.neighbor, drawn.negative, strict=True):
        assert rows[neighbor] in neighbors[anchor]
        assert rows[negative] in negatives[anchor]
