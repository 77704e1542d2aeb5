"""Quality against cost: the Pareto front, and the methods that are dominated beyond their intervals."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def pareto_front(quality: ArrayLike, costs: ArrayLike) -> NDArray[np.bool_]:
    """Return a mask of the Pareto-optimal methods: no other method is at least as good and as cheap, and strictly better on one.

    Args:
        quality: Shape (methods,), higher is better.
        costs: Shape (methods,) or (methods, columns): tokens, seconds, money; lower is better.

    Returns:
        Shape (methods,). Equal methods are all on the front. A method with a missing value (NaN) is not on it and dominates
        nothing.

    Raises:
        ValueError: The arrays have different numbers of methods.
    """
    good = np.asarray(quality, np.float64)
    paid = np.asarray(costs, np.float64)
    paid = paid[:, None] if paid.ndim == 1 else paid
    if good.ndim != 1 or len(good) != len(paid):
        raise ValueError(f"quality and costs must be of the same methods, got {good.shape} and {paid.shape}")
    less = np.column_stack([-good, paid])
    known = np.asarray(~np.isnan(less).any(axis=1), dtype=np.bool_)
    no_worse = (less[:, None, :] <= less[None, :, :]).all(axis=2)
    better = (less[:, None, :] < less[None, :, :]).any(axis=2)
    dominated = (no_worse & better & known[:, None]).any(axis=0)
    return np.asarray(known & ~dominated, dtype=np.bool_)


def certainly_dominated(quality: ArrayLike, costs: ArrayLike) -> NDArray[np.bool_]:
    """Return a mask of the methods that another method dominates whatever the true values within the intervals are.

    A method is dominated if another one's whole quality interval lies above its own, and the other's cost is equal or its whole
    cost interval does not lie above.

    Args:
        quality: Shape (methods, 3): low, value, high; higher is better. A method without an interval (NaN) is never dominated
            with certainty.
        costs: Shape (methods, 3): low, value, high; lower is better. Without an interval the value is exact.

    Returns:
        Shape (methods,). A method without a value is not dominated and dominates no other.
    """
    good, paid = np.asarray(quality, np.float64), np.asarray(costs, np.float64)
    low, high = (np.where(np.isnan(paid[:, side]), paid[:, 1], paid[:, side]) for side in (0, 2))
    better = good[:, None, 0] > good[None, :, 2]
    as_cheap = (high[:, None] <= low[None, :]) | (paid[:, None, 1] == paid[None, :, 1])
    return np.asarray((better & as_cheap).any(axis=0), dtype=np.bool_)
