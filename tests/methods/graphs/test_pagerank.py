"""Personalized PageRank against its closed form, networkx and its properties."""

from __future__ import annotations

from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.sparse import csr_array

from methods.graphs.knowledge_graph import Edge, KnowledgeGraph, Node
from methods.graphs.pagerank import COLUMNS, PageRankConfig, power_iteration, scores_from_seeds
from tests.support.errors import raises

TIGHT = 1e-12


def personalized_pagerank(*arguments: Any, **options: Any) -> np.ndarray:
    return power_iteration(*arguments, **options).scores


def random_graph(nodes: int, edges: int, seed: int, isolated: int = 0) -> np.ndarray:
    """Return weights of an undirected graph; the last nodes have no edge."""
    rng = np.random.default_rng(seed)
    matrix = np.zeros((nodes, nodes))
    for _ in range(edges):
        a, b = rng.integers(0, nodes - isolated, 2)
        if a != b:
            matrix[a, b] = matrix[b, a] = rng.integers(1, 11)
    return matrix


def restarts(nodes: int, questions: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    chi = np.zeros((nodes, questions))
    for column in range(questions):
        chi[rng.choice(nodes, rng.integers(1, 4), replace=False), column] = 1
    return chi


def closed_form(matrix: np.ndarray, chi: np.ndarray, t: float, *, weighted: bool = False) -> np.ndarray:
    """Compute t (I − (1 − t) W)⁻¹ χ; nodes without an edge lose their mass."""
    a = matrix if weighted else (matrix != 0).astype(float)
    degrees = a.sum(axis=1)
    w = a.T / np.where(degrees > 0, degrees, 1)
    return t * np.linalg.inv(np.eye(len(a)) - (1 - t) * w) @ (chi / chi.sum(axis=0))


def by_networkx(matrix: np.ndarray, chi: np.ndarray, t: float, weight: str | None) -> np.ndarray:
    graph = networkx.from_numpy_array(matrix)
    columns = []
    for column in chi.T:
        start = {node: value for node, value in enumerate(column) if value}
        result = networkx.pagerank(graph, alpha=1 - t, personalization=start, weight=weight, tol=1e-14, max_iter=1000)
        columns.append([result[node] for node in range(len(matrix))])
    return np.array(columns).T


@pytest.mark.parametrize("t", [0.15, 0.5, 0.85])
@pytest.mark.parametrize("weighted", [False, True])
def test_power_iteration_equals_the_closed_form(t: float, weighted: bool) -> None:
    matrix, chi = random_graph(60, 150, 1, isolated=4), restarts(60, 30, 2)
    result = personalized_pagerank(csr_array(matrix), chi, teleport=t, tolerance=TIGHT, dangling="drop", weighted=weighted)
    assert np.abs(result - closed_form(matrix, chi, t, weighted=weighted)).max() < 1e-8


@pytest.mark.parametrize("t", [0.15, 0.85])
@pytest.mark.parametrize("weighted", [False, True])
def test_power_iteration_equals_networkx_even_with_an_isolated_seed(t: float, weighted: bool) -> None:
    matrix, chi = random_graph(50, 120, 3, isolated=3), restarts(50, 12, 4)
    chi[49, 0] = chi[48, 1] = 1
    result = personalized_pagerank(csr_array(matrix), chi, teleport=t, tolerance=TIGHT, weighted=weighted)
    assert np.abs(result - by_networkx(matrix, chi, t, "weight" if weighted else None)).max() < 1e-9


def test_dropping_dangling_mass_equals_restarting_it_up_to_a_scale() -> None:
    matrix, chi = random_graph(40, 90, 5, isolated=2), restarts(40, 5, 6)
    chi[39] = 1
    kept, lost = (personalized_pagerank(csr_array(matrix), chi, tolerance=TIGHT, dangling=rule) for rule in ("restart", "drop"))
    assert (lost.sum(axis=0) < 0.99).all()
    assert np.abs(lost / lost.sum(axis=0) - kept).max() < 1e-9


@pytest.mark.parametrize("t", [0.15, 0.5, 0.85])
def test_star_graph_has_its_exact_scores(t: float) -> None:
    leaves = 7
    matrix = np.zeros((leaves + 1, leaves + 1))
    matrix[0, 1:] = matrix[1:, 0] = 1
    result = personalized_pagerank(csr_array(matrix), np.eye(leaves + 1)[:, :1], teleport=t, tolerance=TIGHT)[:, 0]
    center = t / (1 - (1 - t) ** 2)
    assert result[0] == pytest.approx(center, abs=1e-9)
    assert result[1:] == pytest.approx([(1 - t) * center / leaves] * leaves, abs=1e-9)


@pytest.mark.parametrize(
    ("t", "scores"), [(0.85, [0.859727, 0.129697, 0.009838, 0.000738]), (0.15, [0.302224, 0.358175, 0.238316, 0.101284])]
)
def test_path_graph_has_exact_scores_and_small_teleport_ranks_its_seed_lower(t: float, scores: list[float]) -> None:
    path = np.diag(np.ones(3), 1) + np.diag(np.ones(3), -1)
    result = personalized_pagerank(csr_array(path), np.eye(4)[:, :1], teleport=t, tolerance=TIGHT)[:, 0]
    assert result == pytest.approx(scores, abs=1e-6)


@pytest.mark.slow
@given(
    nodes=st.integers(2, 25),
    edges=st.integers(0, 60),
    seed=st.integers(0, 10**6),
    t=st.sampled_from([0.15, 0.5, 0.85]),
    tolerance=st.sampled_from([1e-4, 1e-6, 1e-11]),
)
def test_scores_are_a_distribution_over_reachable_nodes(nodes: int, edges: int, seed: int, t: float, tolerance: float) -> None:
    matrix, chi = random_graph(nodes, edges, seed), restarts(nodes, 2, seed + 1) if nodes > 4 else np.eye(nodes)
    result = personalized_pagerank(csr_array(matrix), chi, teleport=t, tolerance=tolerance)
    assert (result >= 0).all()
    assert result.sum(axis=0) == pytest.approx(1, abs=1e-9)
    graph = networkx.from_numpy_array(matrix)
    for column in range(chi.shape[1]):
        reached = set().union(*(networkx.node_connected_component(graph, s) for s in np.flatnonzero(chi[:, column])))
        assert not result[[n for n in range(nodes) if n not in reached], column].any()


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_renumbering_nodes_permutes_scores(seed: int) -> None:
    matrix, chi = random_graph(30, 70, seed), restarts(30, 3, seed)
    order = np.random.default_rng(seed).permutation(30)
    result = personalized_pagerank(csr_array(matrix), chi, tolerance=TIGHT)
    moved = personalized_pagerank(csr_array(matrix[order][:, order]), chi[order], tolerance=TIGHT)
    assert np.abs(moved - result[order]).max() < 1e-10


def test_scores_are_linear_in_the_restarts_if_mass_is_dropped() -> None:
    matrix, chi = random_graph(30, 40, 8, isolated=2), np.eye(30)
    single = personalized_pagerank(csr_array(matrix), chi, tolerance=TIGHT, dangling="drop")
    mixture = np.random.default_rng(1).random((30, 1))
    result = personalized_pagerank(csr_array(matrix), mixture, tolerance=TIGHT, dangling="drop")
    assert np.abs(result - single @ (mixture / mixture.sum())).max() < 1e-10


@pytest.mark.parametrize("tolerance", [1e-3, 1e-6, 1e-11])
@pytest.mark.parametrize("t", [0.15, 0.85])
def test_iteration_stops_by_the_largest_change_and_bounds_the_l1_error(t: float, tolerance: float) -> None:
    matrix, chi = random_graph(80, 200, 9), restarts(80, 12, 10)
    result = power_iteration(csr_array(matrix), chi, teleport=t, tolerance=tolerance)
    assert (result.changes < tolerance).all()
    a = (matrix != 0).astype(float)
    degrees = a.sum(axis=1)
    w = a.T / np.where(degrees > 0, degrees, 1)
    start = chi / chi.sum(axis=0)
    stuck = start * ((1 - t) * result.scores[degrees == 0].sum(axis=0))
    following = t * start + (1 - t) * w @ result.scores + stuck
    error = np.abs(result.scores - by_networkx(matrix, chi, t, None)).sum(axis=0)
    # The step after the last is known: its L1 length bounds what is still missing.
    assert (error <= np.abs(following - result.scores).sum(axis=0) / t + 1e-10).all()


def test_the_plain_iteration_stops_in_the_first_step_below_the_tolerance() -> None:
    matrix, chi = random_graph(80, 200, 11), restarts(80, COLUMNS + 7, 12)
    result = power_iteration(csr_array(matrix), chi, tolerance=1e-5)
    a = (matrix != 0).astype(float)
    degrees = a.sum(axis=1)
    w = a.T / np.where(degrees > 0, degrees, 1)
    for column in range(chi.shape[1]):
        start = chi[:, column] / chi[:, column].sum()
        now, steps, change = start, 0, np.inf
        while change >= 1e-5:
            then = 0.15 * start + 0.85 * (w @ now + start * now[degrees == 0].sum())
            change, now, steps = np.abs(then - now).max(), then, steps + 1
        assert result.iterations[column] == steps
        assert result.scores[:, column] == pytest.approx(now, abs=1e-14)


def test_a_larger_teleport_needs_fewer_steps() -> None:
    matrix, chi = random_graph(80, 200, 13), restarts(80, 5, 14)
    steps = [power_iteration(csr_array(matrix), chi, teleport=t).iterations.max() for t in (0.15, 0.5, 0.85, 1.0)]
    assert steps == sorted(steps, reverse=True)
    assert steps[0] > steps[-2]


@pytest.mark.slow
def test_scores_do_not_depend_on_other_questions() -> None:
    matrix, chi = random_graph(60, 150, 15), restarts(60, 2 * COLUMNS + 3, 16)
    for tolerance in (1e-4, 1e-11):
        whole = personalized_pagerank(csr_array(matrix), chi, tolerance=tolerance)
        alone = np.hstack([personalized_pagerank(csr_array(matrix), chi[:, [n]], tolerance=tolerance) for n in range(chi.shape[1])])
        assert np.abs(whole - alone).max() < 1e-14


@pytest.mark.parametrize("tolerance", [1e-9, 1e-15, 1e-18, 5.0])
def test_iteration_ends_if_rounding_causes_a_cycle(tolerance: float) -> None:
    star = np.zeros((1501, 1501))
    star[0, 1:] = star[1:, 0] = 1
    result = power_iteration(csr_array(star), np.eye(1501)[:, :2], tolerance=tolerance)
    center = 0.15 / (1 - 0.85**2)
    assert result.scores[0, 0] == pytest.approx(center, abs=max(10 * tolerance, 1e-12))


def test_float32_input_gives_float32_scores() -> None:
    matrix, chi = random_graph(40, 100, 17), restarts(40, 3, 18)
    result = personalized_pagerank(csr_array(matrix), chi.astype(np.float32), tolerance=1e-6)
    assert result.dtype == np.float32
    assert np.abs(result - closed_form(matrix, chi, 0.15)).max() < 1e-4


@pytest.mark.parametrize("chi", [np.zeros((4, 1)), -np.eye(4)[:, :1], np.full((4, 1), np.nan), np.ones((3, 1)), np.ones(4)])
def test_restarts_that_are_not_a_distribution_are_refused(chi: np.ndarray) -> None:
    with pytest.raises(ValueError, match="restarts"):
        personalized_pagerank(csr_array(np.ones((4, 4))), chi)


def test_released_exact_fixes_the_teleport_probability() -> None:
    assert PageRankConfig.model_validate({}).teleport == 0.15
    with pytest.raises(ValidationError):
        PageRankConfig.model_validate({"alpha": 0.85})
    with pytest.raises(ValidationError, match="released_exact"):
        PageRankConfig.model_validate({"released_exact": True, "teleport": 0.85})


def a_graph(size: int, edges: list[tuple[int, int]]) -> KnowledgeGraph:
    names = [f"N{number:05d}" for number in range(size)]
    return KnowledgeGraph(
        "d", tuple(Node(name, "THING") for name in names), tuple(Edge(names[min(e)], names[max(e)], 1.0) for e in sorted(edges))
    )


def test_released_exact_equals_networkx_with_its_loose_tolerance() -> None:
    ring = networkx.random_regular_graph(4, 3000, seed=1)
    graph = a_graph(3000, [tuple(sorted(edge)) for edge in ring.edges])
    ours = scores_from_seeds(graph, [["N00000"]], PageRankConfig.model_validate({"eps": 1e-10}))
    released = scores_from_seeds(graph, [["N00000"]], PageRankConfig.model_validate({"released_exact": True}))
    theirs = networkx.pagerank(ring, alpha=0.85, personalization={0: 1}, tol=1e-4, weight=None)
    assert released[:, 0] == pytest.approx([theirs[node] for node in range(3000)], abs=1e-15)
    assert np.abs(released - ours).sum() > 0.5


def test_released_exact_reports_that_networkx_did_not_converge(monkeypatch: pytest.MonkeyPatch) -> None:
    def give_up(*_: object, **__: object) -> None:
        raise networkx.PowerIterationFailedConvergence(100)

    monkeypatch.setattr(networkx, "pagerank", give_up)
    with raises("pagerank-not-converged"):
        scores_from_seeds(a_graph(2, [(0, 1)]), [["N00000"]], PageRankConfig.model_validate({"released_exact": True}))
