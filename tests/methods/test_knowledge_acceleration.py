"""Where power iteration begins on undirected graphs, against dense solutions and eigenvalues."""

from __future__ import annotations

import networkx
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from methods.knowledge.acceleration import Accelerated, radius_of
from methods.knowledge.pagerank import power_iteration
from methods.knowledge.walk import Walk, walk_over


def walk(graph: networkx.Graph, follow: float = 0.85) -> Walk:
    return walk_over(networkx.to_scipy_sparse_array(graph), follow, weighted=True, dtype=np.float64)


def second_largest(of: Walk, parts: int) -> float:
    """The largest eigenvalue in size but for one of the mass per connected part, from the dense matrix."""
    return float(np.sort(np.abs(np.linalg.eigvals(of.matrix.toarray())))[::-1][parts])


@pytest.mark.parametrize("seed", range(4))
def test_the_radius_is_that_of_the_dense_matrix_and_not_far_below(seed: int) -> None:
    one = networkx.barabasi_albert_graph(300, 4, seed=seed)
    two = networkx.random_regular_graph(5, 120, seed=seed)
    both = networkx.disjoint_union(one, two)
    both.add_nodes_from(["alone", "alone too"])
    for graph, parts in ((one, 1), (both, 2)):
        exact = second_largest(walk(graph), parts)
        assert 0.97 * exact <= radius_of(walk(graph)) <= 1.05 * exact


def test_an_even_cycle_goes_back_and_forth_and_has_the_whole_radius() -> None:
    assert radius_of(walk(networkx.cycle_graph(200))) == pytest.approx(0.85, rel=0.02)


def test_a_graph_without_edges_has_a_radius() -> None:
    assert 0 < radius_of(walk(networkx.empty_graph(300))) <= 0.85


@settings(max_examples=25, deadline=None)
@example(nodes=247, degree=2.58984375, seed=247, tolerance=1e-10)
@given(nodes=st.integers(3, 250), degree=st.floats(0.5, 6), seed=st.integers(0, 10**6), tolerance=st.sampled_from([1e-8, 1e-10, 1e-13]))
def test_accelerated_scores_are_the_dense_solution(nodes: int, degree: float, seed: int, tolerance: float) -> None:
    of = walk(networkx.gnp_random_graph(nodes, min(1.0, degree / nodes), seed=seed))
    chi = np.random.default_rng(seed).dirichlet(np.full(nodes, 0.05), size=4).T
    found = Accelerated.towards(of, tolerance).scores(chi)
    exact = 0.15 * np.linalg.solve(np.eye(nodes) - of.matrix.toarray(), chi)
    assert (found >= 0).all()
    # Near is enough, power iteration goes on from there: mass between parts fades slower than the radius says.
    assert np.abs(found - exact).max() < 10_000 * tolerance


@pytest.mark.parametrize("kind", ["hubs", "chain of cliques"])
def test_an_undirected_graph_takes_fewer_steps_than_power_iteration_would(kind: str) -> None:
    graph = networkx.barabasi_albert_graph(2000, 4, seed=1) if kind == "hubs" else networkx.ring_of_cliques(200, 10)
    adjacency = networkx.to_scipy_sparse_array(graph)
    chi = np.eye(len(graph))[:, :3]
    found = power_iteration(adjacency, chi, tolerance=1e-10)
    matrix = walk(graph)
    now, steps, change, back = chi[matrix.order], 0, 1.0, 0.15 * chi[matrix.order]
    while change >= 1e-10:
        then = back + matrix.matrix @ now
        change, now, steps = float(np.abs(then - now).max()), then, steps + 1
    assert found.iterations.max() < steps
    assert np.abs(found.scores[matrix.order] - now).max() < 1e-8
    assert (found.changes < 1e-10).all()


def test_a_directed_graph_is_known_as_such_and_has_the_scores_of_networkx() -> None:
    graph = networkx.gnp_random_graph(150, 0.04, seed=3, directed=True)
    adjacency = networkx.to_scipy_sparse_array(graph)
    assert not walk_over(adjacency, 0.85, weighted=False, dtype=np.float64).both_ways
    found = power_iteration(adjacency, np.eye(150)[:, :1], tolerance=1e-12).scores[:, 0]
    theirs = networkx.pagerank(graph, alpha=0.85, personalization={0: 1}, tol=1e-15, max_iter=1000)
    assert found == pytest.approx([theirs[node] for node in range(150)], abs=1e-10)


def test_weights_that_differ_there_and_back_make_a_graph_directed() -> None:
    adjacency = csr_array(np.array([[0, 2.0], [1.0, 0]]))
    assert walk_over(adjacency, 0.85, weighted=False, dtype=np.float64).both_ways
    assert not walk_over(adjacency, 0.85, weighted=True, dtype=np.float64).both_ways
