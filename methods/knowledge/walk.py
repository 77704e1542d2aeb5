"""The step of a random walk over a graph, as a sparse matrix laid out for many products with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Walk:
    """`follow · W`, `follow` the share of the mass that follows edges, W = Aᵀ D⁻¹ column-stochastic but for nodes without an edge.

    Attributes:
        matrix: CSR, shape (nodes, nodes), over nodes in `order`.
        order: Place in the adjacency of each row, shape (nodes,).
        ends: Rows of nodes without an edge to follow.
    """

    matrix: Any
    order: NDArray[np.intp]
    ends: NDArray[np.intp]


def walk_over(adjacency: Any, follow: float, *, weighted: bool, dtype: Any) -> Walk:
    """The walk over a graph.

    Args:
        adjacency: Sparse, shape (nodes, nodes); entry (i, j) leads from i to j.
        follow: The share of the mass that follows edges, in [0, 1).
        weighted: Whether the entries count, or only where they are.
        dtype: Of the walk's entries.
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
    return Walk(walk, order, np.flatnonzero(leaving == 0))


def _near_each_other(adjacency: Any) -> NDArray[np.intp]:
    """The nodes in an order that keeps neighbours together, so that what an edge reads was read a moment before."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    return reverse_cuthill_mckee(csr_matrix(adjacency), symmetric_mode=True).astype(np.intp)
