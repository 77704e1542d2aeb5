"""Weigh the gradients of several tasks in one step (multiple-gradient descent, MGDA).

λ gives the convex combination of both gradients with the smallest norm:

    λ* = argmin over λ in [0, 1] of ‖λ g_p + (1 − λ) g_l‖² = clip( g_l · (g_l − g_p) / ‖g_p − g_l‖², 0, 1 )

and ½ if both are equal. A step in this direction lowers both losses, and the task with the smaller gradient gets more weight.
The released code searches a grid, which is inaccurate for small gradients.

For more than two tasks, the minimum is searched on every face of the gradients' convex hull (`minimum_norm_weights`).

Source: Désidéri 2012, Multiple-gradient descent algorithm; Sener and Koltun 2018, Multi-Task Learning as
Multi-Objective Optimization.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Gradients = Sequence["Tensor | None"]
"""One tensor per parameter; None if the loss does not depend on the parameter."""


@dataclass(frozen=True)
class Products:
    """Inner products of two tasks' gradients g_p (passage) and g_l (listwise), over some parameters.

    Attributes:
        passage, listwise: Squared norm of each gradient.
        both: g_p · g_l.
        gap: g_l · (g_l − g_p).
        between: ‖g_l − g_p‖².
    """

    passage: float
    listwise: float
    both: float
    gap: float
    between: float

    @classmethod
    def of(cls, passage: Gradients, listwise: Gradients) -> Products:
        """Compute the products in double precision.

        The difference is computed before multiplying, because nearly equal gradients would otherwise cancel.
        """
        import torch

        results: list[Tensor] = []
        for item, other in zip(passage, listwise, strict=True):
            if item is None and other is None:
                continue
            item = torch.zeros_like(other) if item is None else item.float()
            other = torch.zeros_like(item) if other is None else other.float()
            gap = other - item
            pairs = ((item, item), (other, other), (other, gap), (gap, gap))
            results.append(torch.stack([(left * right).sum(dtype=torch.float64) for left, right in pairs]))
        if not results:
            return cls(0.0, 0.0, 0.0, 0.0, 0.0)
        first, second, apart, between = torch.stack(results).sum(0).tolist()
        # Only the cosine is made of it, which rounding may take a little of.
        return cls(first, second, second - apart, apart, between)

    @property
    def finite(self) -> bool:
        """Return whether all products are finite."""
        return all(map(math.isfinite, (self.passage, self.listwise, self.both, self.gap, self.between)))

    @property
    def weight(self) -> float:
        """Return λ*, the weight of the passage task."""
        return minimum_norm_weight(self.gap, self.between)

    @property
    def cosine(self) -> float:
        """Return the cosine between both gradients; 0 if one is 0."""
        length = math.sqrt(self.passage) * math.sqrt(self.listwise)
        return max(-1.0, min(1.0, self.both / length)) if length > 0 else 0.0


def minimum_norm_weight(gap: float, between: float) -> float:
    """Compute λ* from g_l · (g_l − g_p) and ‖g_l − g_p‖²; ½ if the latter is 0."""
    if between <= 0:
        return 0.5
    return min(1.0, max(0.0, gap / between))


def minimum_norm_weights(products: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute the weights of the minimum-norm point in the convex hull of several gradients.

    In the interior of a face, all gradients of that face have the same inner product with the point; every face is tried.

    Args:
        products: Gram matrix of the gradients, [n, n]; n is small.

    Returns:
        Non-negative weights [n] with sum 1.
    """
    n = len(products)
    best, least = np.full(n, 1 / n), math.inf
    for size in range(1, n + 1):
        for face in combinations(range(n), size):
            own = products[np.ix_(face, face)]
            # λ from the conditions: equal products with the point, and sum 1.
            system = np.block([[own, np.ones((size, 1))], [np.ones((1, size)), np.zeros((1, 1))]])
            solved = np.linalg.lstsq(system, np.append(np.zeros(size), 1.0), rcond=None)[0][:size]
            if solved.min() < -1e-12 or not math.isclose(solved.sum(), 1.0, rel_tol=1e-6):
                continue
            weights = np.zeros(n)
            weights[list(face)] = solved.clip(min=0) / solved.clip(min=0).sum()
            norm = float(weights @ products @ weights)
            if norm < least * (1 - 1e-9) or least == math.inf:
                best, least = weights, norm
    return best


def combined(passage: Gradients, listwise: Gradients, weight: float) -> list[Tensor | None]:
    """Compute λ g_p + (1 − λ) g_l per parameter, without a gradient through λ."""
    import torch

    results: list[Tensor | None] = []
    for item, other in zip(passage, listwise, strict=True):
        if item is not None and other is not None:
            results.append(torch.lerp(other, item, weight))
        elif item is not None:
            results.append(item * weight)
        else:
            results.append(None if other is None else other * (1 - weight))
    return results
