"""Compute personalized PageRank for many restart distributions at once, by sparse power iteration.

For a restart distribution χ (a column that sums to 1), the scores are the fixed point of `x = t χ + (1 − t) W x`, with `W = Aᵀ
D⁻¹` column-stochastic and teleport probability t. In closed form, `x = t (I − (1 − t) W)⁻¹ χ`. The iteration starts with χ, so
unreachable nodes stay exactly 0, and stops for each question when its largest change is below the tolerance. In the L1 norm,
the error is at most (1 − t)/t times the last change.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from benchmarks.core.errors import Broke, MissingPackage
from benchmarks.core.models import RetiredOptions
from methods.graphs.knowledge_graph import KnowledgeGraph

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Walk:
    """Transition matrix `follow · W` of a graph, prepared for iteration. W = Aᵀ D⁻¹ is column-stochastic, except for nodes
    without edges.

    Attributes:
        matrix: CSR, shape (nodes, nodes), over nodes in `order`.
        order: Index in the adjacency matrix of each row, shape (nodes,).
        ends: Rows of dangling nodes (without outgoing edges).
        follow: Probability of following an edge, 1 − t.
    """

    matrix: Any
    order: NDArray[np.intp]
    ends: NDArray[np.intp]
    follow: float


def walk_over(adjacency: Any, follow: float, *, weighted: bool, dtype: Any) -> Walk:
    """Prepare the transition matrix of a graph.

    Args:
        adjacency: Sparse, shape (nodes, nodes); entry (i, j) leads from i to j.
        follow: Probability of following an edge, in [0, 1).
        weighted: Whether entries are weights; otherwise every nonzero entry counts as 1.
        dtype: Data type of the matrix.
    """
    from scipy.sparse import csr_array

    order = _near_each_other(adjacency)
    matrix = csr_array(adjacency, dtype=np.float64, copy=True)[order][:, order]
    if not weighted:
        matrix.data = (matrix.data != 0).astype(np.float64)
    leaving = matrix.sum(axis=1)
    share = np.divide(follow, leaving, out=np.zeros_like(leaving), where=leaving > 0)
    back = matrix.T.tocsr()
    back.sort_indices()
    data = (back.data * share[back.indices]).astype(dtype)
    # Half as many bytes to read per edge as with 64-bit indices.
    index = np.int32 if back.nnz < 2**31 else np.int64
    walk = csr_array((data, back.indices.astype(index), back.indptr.astype(index)), shape=back.shape)
    return Walk(walk, order, np.flatnonzero(leaving == 0), follow)


def _near_each_other(adjacency: Any) -> NDArray[np.intp]:
    """Return a node order that keeps neighbors together, for cache locality."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    return reverse_cuthill_mckee(csr_matrix(adjacency), symmetric_mode=True).astype(np.intp)


Dangling = Literal["restart", "drop"]

RELEASED_TELEPORT = 0.15
"""Teleport probability of ARK's released code: it passes the paper's 0.85 as networkx's alpha, the probability of following
edges.
"""
COLUMNS = 24
"""Number of questions iterated together, chosen for cache efficiency."""


class PageRankConfig(RetiredOptions):
    """Options of personalized PageRank."""

    retired = MappingProxyType({"preset": None, "weighted": False})

    teleport: float = Field(RELEASED_TELEPORT, gt=0, le=1, description="share of the mass that restarts in every step")
    eps: float = Field(1e-4, gt=0, description="stop when no score changes by more than this")
    dangling: Dangling = Field(
        "restart", description="mass on entities without a relation: restart, it restarts (released), or it is lost (paper)"
    )
    released_exact: bool = Field(
        False,
        description="reproduction only: call networkx like the released code (tol 1e-4, uniform start), which stops after a few "
        "steps on large graphs; teleport, eps and dangling then have the released values",
    )

    @model_validator(mode="after")
    def _is_the_released(self) -> Self:
        if self.released_exact and self.teleport != RELEASED_TELEPORT:
            raise ValueError("released_exact fixes teleport at 0.15")
        return self


@dataclass(frozen=True, slots=True)
class Ranks:
    """Result of a power iteration.

    Attributes:
        scores: Shape (nodes, questions).
        iterations: Number of iterations per question.
        changes: Largest change in the last iteration, per question.
    """

    scores: Floats
    iterations: NDArray[np.int64]
    changes: Floats


def power_iteration(
    adjacency: Any,
    restarts: Floats,
    *,
    teleport: float = 0.15,
    tolerance: float = 1e-4,
    dangling: Dangling = "restart",
    weighted: bool = False,
) -> Ranks:
    """Compute personalized PageRank by iterating until no score of a question changes by `tolerance` or more.

    Up to rounding, a question's scores do not depend on the other questions.

    Args:
        adjacency: Sparse, shape (nodes, nodes); entry (i, j) leads from i to j.
        restarts: Shape (nodes, questions), non-negative; each column is scaled to the sum 1. Its type (float32 or
            float64) is that of the scores.
        teleport: Teleport probability t, in (0, 1].
        tolerance: Convergence threshold in the maximum norm.
        dangling: Where the mass of dangling nodes goes.
        weighted: Whether entries of `adjacency` are weights; otherwise every nonzero entry counts as 1.

    Raises:
        ValueError: A column of `restarts` sums to 0 or has negative entries, or shapes do not match.
    """
    restarts = _checked(restarts, adjacency.shape)
    if not 0 < teleport <= 1 or tolerance <= 0:
        raise ValueError("teleport lies in (0, 1], and the tolerance above 0")
    walk = walk_over(adjacency, 1 - teleport, weighted=weighted, dtype=restarts.dtype)
    return iterate(walk, restarts, tolerance=tolerance, dangling=dangling)


def iterate(walk: Walk, restarts: Floats, *, tolerance: float = 1e-4, dangling: Dangling = "restart") -> Ranks:
    """Run `power_iteration` with a prepared `Walk`, to reuse it for several batches of questions."""
    restarts = _checked(restarts, walk.matrix.shape)
    mass, teleport = restarts.sum(axis=0), 1 - walk.follow
    returned = walk.ends if dangling == "restart" else walk.ends[:0]
    scores = np.empty_like(restarts)
    iterations = np.zeros(restarts.shape[1], np.int64)
    changes = np.zeros(restarts.shape[1], restarts.dtype)
    for block in _blocks(restarts.shape[1]):
        chi = restarts[walk.order, block] / mass[block]
        scores[walk.order, block], iterations[block], changes[block] = _iterate(walk.matrix, returned, chi, teleport, tolerance)
    return Ranks(scores, iterations, changes)


def _checked(restarts: Floats, shape: tuple[int, ...]) -> Floats:
    """Validate restart distributions, and return them as float32 or float64."""
    restarts = np.asarray(restarts)
    restarts = restarts if restarts.dtype == np.float32 else restarts.astype(np.float64, copy=False)
    if restarts.ndim != 2 or shape != (len(restarts), len(restarts)):
        raise ValueError(f"an adjacency of shape {shape} does not fit restarts of shape {restarts.shape}")
    mass = restarts.sum(axis=0)
    if not (np.isfinite(mass).all() and (mass > 0).all() and (restarts >= 0).all()):
        raise ValueError("every column of restarts needs a positive entry, and no entry may be negative")
    return restarts


def _blocks(questions: int) -> Iterator[slice]:
    """Split questions into blocks of about `COLUMNS`."""
    firsts = [*range(0, questions - COLUMNS // 2, COLUMNS)] or [0]
    return map(slice, firsts, [*firsts[1:], questions])


def _iterate(walk: Any, ends: NDArray[np.intp], chi: Floats, teleport: float, tolerance: float) -> tuple[Floats, NDArray[np.int64], Floats]:
    """Iterate one block; returns scores, number of steps and last changes, each at the step of convergence."""
    scores = np.empty_like(chi)
    steps = np.zeros(chi.shape[1], np.int64)
    changes = np.full(chi.shape[1], np.inf, chi.dtype)
    seeds = np.flatnonzero(chi.any(axis=1))
    restart = chi[seeds]
    now, step, most = chi, 0, enough_steps(teleport, tolerance)
    while not steps.all():
        step += 1
        then = walk @ now
        stranded = now[ends].sum(axis=0) if len(ends) else 0.0
        then[seeds] += restart * (teleport + (1 - teleport) * stranded)
        largest = np.abs(then - now).max(axis=0)
        finished = ((largest < tolerance) | (step == most)) & (steps == 0)
        scores[:, finished] = then[:, finished]
        steps[finished], changes[finished] = step, largest[finished]
        now = then
    return scores, steps, changes


def enough_steps(teleport: float, tolerance: float) -> int:
    """Return an upper bound on the iterations until every change is below the tolerance; it guards against endless rounding
    cycles.
    """
    if teleport == 1:
        return 2
    return max(2, 2 + math.ceil(math.log(tolerance / 2) / math.log1p(-teleport)))


def scores_from_seeds(graph: KnowledgeGraph, seeds: Sequence[Sequence[str]], config: PageRankConfig) -> Floats:
    """Compute personalized PageRank scores from seed entities, for all questions of a document at once.

    Args:
        graph: The graph.
        seeds: Names of the seed nodes per question, at least one each; restarts are uniform over them.
        config: Options.

    Returns:
        Shape (nodes, questions), float64.

    Raises:
        Broke: networkx did not converge (preset `released_exact`).
    """
    if config.released_exact:
        return _released(graph, seeds)
    chi = np.zeros((len(graph.nodes), len(seeds)))
    for column, names in enumerate(seeds):
        chi[[graph.positions[name] for name in names], column] = 1.0
    return power_iteration(graph.adjacency(), chi, teleport=config.teleport, tolerance=config.eps, dangling=config.dangling).scores


def _released(graph: KnowledgeGraph, seeds: Sequence[Sequence[str]]) -> Floats:
    """Compute PageRank as ARK's released code does, with its loose stopping rule."""
    try:
        import networkx
    except ImportError as error:
        raise MissingPackage("networkx", "models", "released_exact") from error
    nodes = networkx.Graph()
    nodes.add_nodes_from(node.name for node in graph.nodes)
    nodes.add_edges_from((edge.source, edge.target) for edge in graph.edges)
    columns = []
    for names in seeds:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it says itself that this tolerance is too loose for the graph
                result = networkx.pagerank(nodes, alpha=0.85, personalization=dict.fromkeys(names, 1.0), tol=1e-4, weight=None)
        except networkx.PowerIterationFailedConvergence as error:
            raise Broke(
                f"networkx did not converge: {error}",
                code="pagerank-not-converged",
                where="released_exact",
                try_this="released_exact: false",
            ) from None
        columns.append([result[node.name] for node in graph.nodes])
    return np.array(columns).T
