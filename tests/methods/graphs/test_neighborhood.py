"""Cutoffs of rankings: Algorithm 1 on hand-made scores, and the two sizes of a neighborhood."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from benchmarks.schema import Question
from methods.graphs.knowledge_graph import Edge, KnowledgeGraph, Node
from methods.graphs.neighborhood import PRESETS, CutConfig, NeighborhoodConfig, cut, neighborhoods, ranked, rounded

EPS = 1e-4


def rule(min_k: int = 1, max_k: int = 200, **more: bool) -> CutConfig:
    return CutConfig.model_validate({"min_k": min_k, "max_k": max_k, **more})


def size(scores: list[float], config: CutConfig, eps: float = EPS) -> int:
    return cut(np.array(scores), config, eps).size


def test_cutoff_is_before_the_largest_drop() -> None:
    result = cut(np.array([0.3, 0.28, 0.25, 0.02, 0.019]), rule(), EPS)
    assert (result.size, result.considered) == (3, 5)
    assert result.fall == pytest.approx(math.log(0.25 / 0.02))


def test_first_of_equal_drops_is_the_cutoff() -> None:
    assert size([0.5, 0.25, 0.125, 0.0625], rule()) == 1
    assert size([0.5, 0.5, 0.25, 0.25, 0.125], rule()) == 2


def test_equal_scores_keep_one_node() -> None:
    assert size([0.1] * 10, rule()) == 1
    assert size([0.1] * 10, rule(min_k=3, max_k=8)) == 3


@pytest.mark.parametrize("scores", [[], [0.7]])
def test_single_node_and_empty_neighborhood_are_kept(scores: list[float]) -> None:
    result = cut(np.array(scores), rule(), EPS)
    assert (result.size, result.fall) == (len(scores), None)


def test_scores_below_eps_are_dropped_before_the_cutoff() -> None:
    scores = [0.4, 0.3, 0.2, 1e-5]
    assert size(scores, rule()) == 2  # 0.3 to 0.2 is the largest fall that is left
    assert size(scores, rule(released=True)) == 3
    assert cut(np.array(scores), rule(), EPS).considered == 3
    assert cut(np.array([EPS, EPS / 2]), rule(), EPS).considered == 1


def test_drop_directly_after_k_counts_only_if_configured() -> None:
    scores = [0.3, 0.29, 0.28, 0.01]
    assert size(scores, rule(max_k=3)) == 2  # 0.29 to 0.28
    assert size(scores, rule(max_k=3, released=True)) == 3


def test_fewer_nodes_than_the_minimum_are_all_kept() -> None:
    assert size([0.5, 0.01, 0.009], rule(min_k=20, max_k=50)) == 3


def test_sizes_without_a_possible_cutoff_keep_the_first_nodes() -> None:
    assert size([0.5, 0.1, 0.05, 0.04], rule(min_k=2, max_k=2)) == 2


def test_sizes_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ValidationError, match="max_k"):
        rule(min_k=5, max_k=4)


falling = st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=80).map(lambda xs: sorted(xs, reverse=True))


@given(scores=falling, min_k=st.integers(1, 12), more=st.integers(0, 40), released=st.booleans())
def test_cutoff_equals_a_naive_implementation(scores: list[float], min_k: int, more: int, released: bool) -> None:
    config = rule(min_k, min_k + more, released=released)
    prefix = [score for score in scores if released or score >= EPS]
    k = min(config.max_k, len(prefix))
    stop = k + 1 if released and len(prefix) > config.max_k else k
    falls = {i: prefix[i - 1] / prefix[i] for i in range(min_k, stop)}
    wanted = min(i for i in falls if falls[i] == max(falls.values())) if falls else k
    result = size(scores, config)
    assert result == wanted
    if len(prefix) >= min_k:
        assert min_k <= result <= config.max_k
    if falls and not released:
        assert result < k


@given(scores=falling, power=st.integers(-12, 12), max_k=st.integers(1, 50))
def test_cutoff_is_invariant_to_scaling_of_scores(scores: list[float], power: int, max_k: int) -> None:
    config = rule(max_k=max_k, released=True)
    assert size(scores, config) == size([score * 2.0**power for score in scores], config)


def test_nodes_with_scores_equal_up_to_rounding_are_ordered_by_name() -> None:
    scores = np.array([0.1, 0.2, 0.1 + 1e-17, 0.0, 0.1 * (1 + 2e-16)])
    order, values = ranked(scores, ["D", "X", "B", "Z", "A"])
    assert order.tolist() == [1, 4, 2, 0]
    assert values.tolist() == [0.2, 0.1, 0.1, 0.1]
    assert rounded(np.array([1 / 3])).tolist() == [0.333333333333]


def tree(fan: int, depth: int) -> KnowledgeGraph:
    names, edges, level = ["A"], [], ["A"]
    for _ in range(depth):
        following = [f"{parent}{number}" for parent in level for number in range(fan)]
        edges += [Edge(parent, f"{parent}{number}", 1.0) for parent in level for number in range(fan)]
        names, level = names + following, following
    nodes = tuple(Node(name, "T", (f"about {name}",)) for name in sorted(names))
    return KnowledgeGraph("d", nodes, tuple(sorted(edges, key=lambda e: (e.source, e.target))))


def asked(identifier: str, answer: str) -> Question:
    return Question(identifier, f"what is {identifier}?", (answer,))


def test_small_neighborhood_is_within_the_large_and_both_have_configured_sizes() -> None:
    graph = tree(4, 4)
    config = NeighborhoodConfig.model_validate({"ppr": {"eps": 1e-6}})
    results = neighborhoods(graph, [asked("q1", "A"), asked("q2", "A013")], config)
    for item in results:
        assert set(item.small.entities) <= set(item.large.entities)
        assert item.large.entities[: len(item.small.entities)] == item.small.entities
        assert 20 <= len(item.large.entities) <= 50
        assert 3 <= len(item.small.entities) <= 10
        assert list(item.scores) == sorted(item.scores, reverse=True)


@pytest.mark.slow
@given(a=st.integers(1, 30), b=st.integers(0, 40), c=st.integers(1, 30), d=st.integers(0, 30), released=st.booleans())
def test_small_neighborhood_is_within_the_large_for_any_options(a: int, b: int, c: int, d: int, released: bool) -> None:
    config = NeighborhoodConfig.model_validate(
        {"large": {"min_k": a, "max_k": a + b, "released": released}, "small": {"min_k": c, "max_k": c + d}}
    )
    (result,) = neighborhoods(tree(3, 4), [asked("q", "A01")], config)
    assert set(result.small.entities) <= set(result.large.entities)


def test_question_without_an_answer_node_is_dropped_and_counted() -> None:
    graph = tree(2, 2)
    results = neighborhoods(graph, [asked("q1", "A0"), asked("q2", "yes")], NeighborhoodConfig.model_validate({}))
    assert [item.skipped for item in results] == [False, True]


def test_presets_differ_from_the_defaults_only_as_documented() -> None:
    default = NeighborhoodConfig.model_validate({}).model_dump()
    changed = {
        name: {
            f"{part}.{key}"
            for part, values in NeighborhoodConfig.model_validate(preset).model_dump().items()
            if isinstance(values, dict)
            for key, value in values.items()
            if default[part][key] != value
        }
        for name, preset in PRESETS.items()
    }
    assert changed["paper"] == {"ppr.teleport", "ppr.dangling", "large.min_k", "large.max_k", "small.min_k"}
    assert changed["released"] == {"ppr.released_exact", "large.released", "small.released"}
