"""Where power iteration over an undirected graph begins when it has far to go: near its end already.

The fixed point of `x = t χ + (1 − t) W x` solves a linear system. Where edges lead both ways W is like a symmetric
matrix, so that its eigenvalues are real, and Chebyshev's semi-iteration needs about the square root of the steps. They
are made in float32, with half the bytes to move, for what the scores in float64 still lack (iterative refinement).
Nothing here decides when scores are good: power iteration does, by its own rule, going on from them.

Source: Golub and Varga, "Chebyshev semi-iterative methods", Numer. Math. 3, 1961; Moler, "Iterative refinement in
floating point", J. ACM 14, 1967.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from methods.knowledge.walk import Floats, Walk

DIGITS = 5.7
"""Decimal digits that one round wins at most: float32 has seven."""
FEW = 100
"""Nodes of a graph so small that its radius is not looked for."""
ROUGHLY, MARGIN = 0.05, 1.03
"""How far the radius may be off, and what is added: Chebyshev's steps are slow for what lies outside."""


@dataclass(frozen=True)
class Accelerated:
    """Solves for the scores of many blocks of questions over one undirected graph.

    Attributes:
        walk: In float64, `both_ways`.
        coarse: The walk's matrix in float32.
        radius: As `radius_of` gives it.
        rounds: Times that what is lacking is computed in float64.
        steps: Steps of each round in float32.
    """

    walk: Walk
    coarse: Any
    radius: float
    rounds: int
    steps: int

    @classmethod
    def towards(cls, walk: Walk, tolerance: float) -> Self:
        """As many rounds and steps as bring all scores below the tolerance of power iteration."""
        digits = -math.log10(max(tolerance, float(np.finfo(np.float64).eps)))
        rounds = math.ceil(digits / DIGITS)
        radius = radius_of(walk)
        steps = math.ceil(math.acosh(10 ** (digits / rounds)) / math.acosh(1 / radius))
        return cls(walk, walk.matrix.astype(np.float32), radius, rounds, steps)

    def scores(self, chi: Floats) -> Floats:
        """Scores, mass on nodes without an edge being lost, none of them negative.

        Args:
            chi: Shape (nodes in the walk's order, questions), float64, each column of sum 1.
        """
        follow, ends = self.walk.follow, self.walk.ends
        mass = 1 - follow * chi[ends].sum(axis=0)
        scores, restart = chi.copy(), (1 - follow) * chi
        for _ in range(self.rounds):
            lacking = self.walk.matrix @ scores
            lacking += restart
            lacking -= scores
            scores += self._solved(lacking.astype(np.float32))
            scores *= mass / scores.sum(axis=0)  # of what rounding makes or loses, the mass would fade slowest
        return np.maximum(scores, 0, out=scores)

    def _solved(self, right: Floats) -> Floats:
        """`(I − walk)⁻¹ right`, as near as the steps come."""
        before, now, weight = np.zeros_like(right), right, 2.0
        for _ in range(self.steps - 1):
            weight = 1 / (1 - self.radius**2 * weight / 4)
            then = self.coarse @ now
            then += right
            then -= before
            then *= weight
            then += before
            before, now = now, then
        return now


def radius_of(walk: Walk) -> float:
    """About the size of the largest eigenvalue, but for those of the mass, which stays in each connected part.

    Were it too small, Chebyshev's steps would be slow, but no slower than those of power iteration.

    Args:
        walk: `both_ways`.

    Returns:
        In (0, walk.follow].
    """
    from scipy.sparse.csgraph import connected_components
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

    size = len(walk.leaving)
    if size <= FEW:
        return walk.follow
    root = np.sqrt(walk.leaving)
    inverse = np.divide(1, root, out=np.zeros_like(root), where=root > 0)
    parts, part = connected_components(walk.matrix, directed=False)
    # A node without an edge is a part of its own, and divides 0.
    within = np.maximum(np.bincount(part, walk.leaving, parts), np.finfo(np.float64).tiny)

    def step(vector: Floats) -> Floats:
        vector = root * vector.ravel()
        vector -= walk.leaving * (np.bincount(part, vector, parts) / within)[part]
        return inverse * (walk.matrix @ vector)

    try:
        (largest,) = eigsh(
            LinearOperator((size, size), matvec=step, dtype=np.float64),
            k=1,
            ncv=8,
            tol=ROUGHLY,
            v0=np.random.default_rng(0).standard_normal(size),
            return_eigenvectors=False,
        )
    except ArpackError:  # not found in time, or there is nothing but the mass
        return walk.follow
    return min(walk.follow, max(MARGIN * abs(float(largest)), ROUGHLY))
