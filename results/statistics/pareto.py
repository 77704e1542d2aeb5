"""Quality against what it costs: the Pareto front."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def pareto_front(quality: ArrayLike, costs: ArrayLike) -> NDArray[np.bool_]:
    """Return which methods are not dominated: no other one is at least as good and as cheap, and strictly better on one.

    Args:
        quality: Shape (methods,), more is better.
        costs: Shape (methods,) or (methods, columns): tokens, seconds, money; less is better.

    Returns:
        Shape (methods,). Equal methods share the front; a method with a gap (NaN) is not on it and dominates nothing.

    Raises:
        ValueError: The two are of different numbers of methods.
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
