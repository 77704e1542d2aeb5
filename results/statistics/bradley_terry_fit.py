"""The fit behind Bradley–Terry: many weighted logistic regressions of the same battles at once, by Newton's method.

The model is logit P(i beats j) = θ_i - θ_j + β·x. Battles that agree in both methods and in every covariate are one *cell*
with a number of battles n and of wins w of its lower method, without loss of information. Resamples of the same battles
differ only in n and w, so their fits share every index and are computed together, as columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from results.statistics.core import Floats

Codes = NDArray[np.int64]
_CLOSE = 1e-5
"""A step smaller than this in every coefficient ends the search; the remaining error is about its square."""
_STEPS = 200
_STRETCH = 1024
"""Cells worked on at a time."""
_FARTHEST = 700.0
"""Log-odds above which an odds ratio overflows."""


@dataclass(frozen=True, slots=True)
class Cells:
    """Battles grouped into cells with equal methods and covariates, so that a fit needs one row per cell.

    Attributes:
        methods: Number of methods.
        left, right: Shape (pairs,), the lower and the higher method of each pair that met.
        starts: Shape (pairs,), the first cell of each pair.
        covariates: Shape (covariates, cells), seen from the lower method.
    """

    methods: int
    left: Codes
    right: Codes
    starts: Codes
    covariates: Floats

    @property
    def cells(self) -> int:
        """Return the number of cells."""
        return self.covariates.shape[1]

    @property
    def incidence(self) -> Floats:
        """Return the incidence matrix, shape (methods, pairs): 1 if a method is the lower one of a pair, -1 if it is the higher one."""
        pairs = np.arange(len(self.left))
        signs = np.zeros((self.methods, len(pairs)))
        signs[self.left, pairs], signs[self.right, pairs] = 1.0, -1.0
        return signs

    def by_pair(self, values: Floats) -> Floats:
        """Sum values over the cells of each pair: shape (cells, columns) becomes (pairs, columns)."""
        return values if len(self.starts) == self.cells else np.add.reduceat(values, self.starts, axis=0)

    def stretches(self) -> list[_Stretch]:
        """Split the cells into blocks that fit into the processor's cache."""
        results = []
        for start in range(0, self.cells, _STRETCH):
            stop = min(start + _STRETCH, self.cells)
            low = int(np.searchsorted(self.starts, start, side="right")) - 1
            high = int(np.searchsorted(self.starts, stop, side="left"))
            begin = np.maximum(self.starts[low:high], start) - start
            results.append(_Stretch(slice(start, stop), slice(low, high), begin, np.diff(begin, append=stop - start)))
        return results


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Some neighboring cells, the pairs they belong to, and where in the stretch each pair's part begins."""

    cells: slice
    pairs: slice
    starts: Codes
    sizes: Codes

    def spread(self, values: Floats) -> Floats:
        """Return values of all pairs, given to each cell of the stretch."""
        part = values[self.pairs]
        return part if len(part) == self.cells.stop - self.cells.start else np.repeat(part, self.sizes, axis=0)

    def add(self, into: Floats, values: Floats) -> None:
        """Add the cells' values to those of their pairs."""
        into[self.pairs] += np.add.reduceat(values, self.starts, axis=0)


def cells_of(first: Codes, second: Codes, covariates: Floats, methods: int) -> tuple[Cells, Codes, NDArray[np.bool_]]:
    """Group battles into cells.

    Args:
        first, second: Shape (battles,), the methods, never the same one.
        covariates: Shape (covariates, battles), seen from the first method: the other side sees the opposite sign.
        methods: Number of methods.

    Returns:
        The cells, the cell of each battle, and whether the battle's second method is the cell's lower one.
    """
    turned = first > second
    lower, higher = np.minimum(first, second), np.maximum(first, second)
    signed = np.where(turned, -covariates, covariates) + 0.0  # -0 and 0 are one value
    pair = lower * methods + higher
    # The last key sorts first.
    keys = np.concatenate([signed, pair[None, :].astype(np.float64)])
    order = np.lexsort(keys)
    ordered = keys[:, order]
    new = np.ones(len(pair), dtype=np.bool_)
    new[1:] = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
    position = np.empty(len(pair), dtype=np.int64)
    position[order] = np.cumsum(new) - 1
    cell_pair = pair[order][new]
    met, starts = np.unique(cell_pair, return_index=True)
    return Cells(methods, met // methods, met % methods, starts, ordered[:-1, new]), position, turned


def fit(cells: Cells, battles: Floats, wins: Floats, prior: float, start: Floats) -> Floats:
    """Fit Bradley–Terry strengths and covariate effects by maximum a posteriori with a normal prior around 0.

    Args:
        cells: The battles' methods and covariates, grouped.
        battles, wins: Number of battles, and of wins of the lower method (a tie is half a win), shape (cells, fits).
        prior: Standard deviation of the prior of every coefficient, in log-odds.
        start: Initial coefficients, shape (methods + covariates, fits), or one column for all fits.

    Returns:
        Shape (methods + covariates, fits). Strengths sum to 0 within each set of linked methods.

    Raises:
        ArithmeticError: No maximum was found, which cannot happen with finite input.
    """
    at, losses, stretches = start, battles - wins, cells.stretches()
    slope, curve = _derivatives(cells, stretches, wins, losses, prior, at)
    for _ in range(_STEPS):
        step = np.linalg.solve(curve, slope.T[:, :, None])[:, :, 0].T
        if np.abs(step).max(initial=0.0) < _CLOSE:
            return at + step
        rise = (slope * step).sum(axis=0)
        share = np.ones(step.shape[1])
        while True:
            tried = at + share * step
            slope, curve = _derivatives(cells, stretches, wins, losses, prior, tried)
            # The likelihood has one peak: a slope that points back as steeply as half of what it was means that the
            # step went far beyond it, and a shorter one in the same direction does better.
            beyond = (slope * step).sum(axis=0) < -0.5 * rise - 1e-12
            if not beyond.any():
                break
            share = np.where(beyond, share / 2, share)
        at = tried
    raise ArithmeticError("the strengths of these battles have no maximum likelihood estimate")


def _derivatives(
    cells: Cells, stretches: list[_Stretch], wins: Floats, losses: Floats, prior: float, at: Floats
) -> tuple[Floats, NDArray[np.float64]]:
    """Return slope, shape (coefficients, fits), and negative curvature, shape (fits, coefficients, coefficients)."""
    methods, x, signs = cells.methods, cells.covariates, cells.incidence
    fits, size = wins.shape[1], len(at)
    gap, effect = at[cells.left] - at[cells.right], at[methods:]
    rest, weight = np.zeros((2, len(gap), fits))
    mixed = np.zeros((len(x), len(gap), fits))
    slope_of_x, curve_of_x = np.zeros((len(x), fits)), np.zeros((len(x), len(x), fits))
    for part in stretches:
        here = x[:, part.cells]
        logit = part.spread(gap)
        if len(x):
            logit = logit + here.T @ effect  # a single column where all fits begin at the same place
        odds = np.exp(np.clip(-logit, -_FARTHEST, _FARTHEST))
        chance = 1 / (1 + odds)
        against = odds * chance  # 1 - chance, of which nothing is left where only the prior holds a method
        up, down = wins[part.cells] * against, losses[part.cells] * chance
        pull, spread = up - down, up * chance + down * against
        part.add(rest, pull)
        part.add(weight, spread)
        slope_of_x += here @ pull
        for row, item in enumerate(here):
            leverage = spread * item[:, None]
            part.add(mixed[row], leverage)
            curve_of_x[row] += here @ leverage
    slope = np.concatenate([signs @ rest, slope_of_x]) - at / prior**2
    curve = np.zeros((fits, size, size))
    curve[:, cells.left, cells.right] = curve[:, cells.right, cells.left] = -weight.T
    own = np.arange(size)
    curve[:, own[:methods], own[:methods]] = (np.abs(signs) @ weight).T
    # Only differences of strengths are seen, and their sum is 0 at the peak: a price on it changes nothing but keeps
    # the system well-conditioned.
    curve[:, :methods, :methods] += 1 / methods
    for row in range(len(x)):
        curve[:, :methods, methods + row] = curve[:, methods + row, :methods] = (signs @ mixed[row]).T
        curve[:, methods + row, methods:] = curve_of_x[row].T
    curve[:, own, own] += 1 / prior**2
    return slope, curve


def mutual(cells: Cells, battles: Floats, wins: Floats) -> NDArray[np.bool_]:
    """Return which methods have beaten each other, directly or through others; shape (fits, methods, methods).

    Finite strengths without a prior exist exactly among methods that reach each other in both directions.

    Args:
        cells, battles, wins: As in `fit`. A tie counts as a win of either.

    Source: Ford (1957), "Solution of a ranking problem from binary comparisons".
    """
    won, all_of = cells.by_pair(wins), cells.by_pair(battles)
    reach = np.zeros((battles.shape[1], cells.methods, cells.methods), dtype=np.float32)
    reach[:, cells.left, cells.right] = (won > 1e-9).T
    reach[:, cells.right, cells.left] = (all_of - won > 1e-9).T
    reach[:, np.arange(cells.methods), np.arange(cells.methods)] = 1.0
    for _ in range(max(1, int(cells.methods - 1).bit_length())):
        reach = (reach @ reach > 0).astype(np.float32)
    there = reach > 0
    return there & there.transpose(0, 2, 1)
