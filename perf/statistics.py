"""All pairs of many methods at once, against SciPy pair by pair, in one process, the sides taking turns.

Ours is `all_pairs`: for every pair the paired bootstrap interval, the sign-flip p-value, wins and losses. SciPy has the
interval in `scipy.stats.bootstrap` and the p-value in `scipy.stats.permutation_test`; each is timed alone. It takes
minutes for all pairs, so a few are timed in full and their mean is multiplied by the number of pairs. Seconds are
the processor's, one thread (`OMP_NUM_THREADS=1`).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy import stats

from results.statistics.core import Difference
from results.statistics.intervals import all_pairs, sign_flip_all_pairs

TARGET = 50.0
METHODS = 20
QUESTIONS = 10_000
RESAMPLES = 10_000
TIMED_PAIRS = ((0, 1), (3, 17), (8, 12))
BATCH = 16
PERMUTATION_BATCH = 1024
"""Resamples that SciPy holds at a time: the fastest of 16, 64, 256 and 1,024 for each of the two on this size."""


def scores(methods: int, questions: int, seed: int = 0) -> np.ndarray:
    """F1-like scores of methods a little different in strength on questions of different difficulty."""
    rng = np.random.default_rng(seed)
    ease = rng.beta(1, 1, questions)
    strength = np.linspace(-0.05, 0.05, methods)[:, None]
    right = rng.random((methods, questions)) < np.clip(ease + strength, 0, 1)
    return np.where(right, 1.0, np.round(rng.beta(0.4, 2, (methods, questions)), 2))


def gap(a: np.ndarray, b: np.ndarray, axis: int = -1) -> np.ndarray:
    return a.mean(axis=axis) - b.mean(axis=axis)


def scipy_paired(a: np.ndarray, b: np.ndarray, resamples: int) -> Any:
    """The call of SciPy's documentation for paired samples."""
    result = stats.bootstrap((a, b), gap, paired=True, vectorized=True, method="percentile", n_resamples=resamples, batch=BATCH, rng=1)
    return result.confidence_interval


def scipy_differences(a: np.ndarray, b: np.ndarray, resamples: int) -> Any:
    """The same interval from the differences as a single sample: SciPy's faster way."""
    result = stats.bootstrap((a - b,), np.mean, vectorized=True, method="percentile", n_resamples=resamples, batch=BATCH, rng=1)
    return result.confidence_interval


def scipy_permutation(a: np.ndarray, b: np.ndarray, resamples: int) -> float:
    """Sign flips of the differences."""
    return stats.permutation_test(
        (a - b,), np.mean, permutation_type="samples", vectorized=True, n_resamples=resamples, batch=PERMUTATION_BATCH, rng=1
    ).pvalue


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def intervals_agree(ours: Difference, theirs: Any) -> bool:
    """Two bootstraps with different draws: bounds within a tenth of the interval's width."""
    near = 0.1 * (ours.high - ours.low)
    return abs(ours.low - theirs.low) < near and abs(ours.high - theirs.high) < near


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark.

    Returns:
        1 where a target was missed or results differ, else 0.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, no targets: only that both sides agree")
    parser.add_argument("--turns", type=int, default=3)
    query = parser.parse_args(argv)
    questions, resamples = (500, 1000) if query.quick else (QUESTIONS, RESAMPLES)
    columns = scores(METHODS, questions)
    pairs = METHODS * (METHODS - 1) // 2
    sides: dict[str, Callable[[np.ndarray, np.ndarray, int], Any]] = {
        "scipy.stats.bootstrap(paired=True)": scipy_paired,
        "scipy.stats.bootstrap of differences": scipy_differences,
        "scipy.stats.permutation_test": scipy_permutation,
    }
    ours: list[float] = []
    flips: list[float] = []
    theirs: dict[str, list[float]] = {name: [] for name in sides}
    equal = dict.fromkeys(sides, True)
    for turn in range(1 if query.quick else query.turns):
        seconds, match = timed(partial(all_pairs, columns, resamples=resamples, method="percentile", seed=turn))
        ours.append(seconds)
        seconds, p = timed(partial(sign_flip_all_pairs, columns, resamples=resamples, seed=turn))
        flips.append(seconds)
        i, j = TIMED_PAIRS[turn % len(TIMED_PAIRS)]
        for name, side in sides.items():
            seconds, result = timed(partial(side, columns[i], columns[j], resamples))
            theirs[name].append(seconds)
            if side is scipy_permutation:
                equal[name] &= abs(p[i, j] - result) < 0.02 and abs(match[i, j].p - result) < 0.02
            else:
                equal[name] &= intervals_agree(match[i, j], result)
    print(
        f"# {resamples:,} resamples x {questions:,} questions, {pairs} pairs of {METHODS} methods; {len(ours)} of"
        f" SciPy's pairs timed in full, the rest extrapolated"
    )
    print(f"{'name':<74}{'ours':>9}{'theirs':>11}{'ratio':>8}{'target':>8}")
    failed = False
    for name in sides:
        alone = sides[name] is scipy_permutation
        mine = float(np.median(flips if alone else ours))
        other = float(np.mean(theirs[name])) * pairs
        what = "sign flips of all pairs" if alone else "intervals and sign flips of all pairs"
        missed = other / mine < TARGET and not query.quick
        failed |= missed or not equal[name]
        remark = ("  MISSED" if missed else "") + ("" if equal[name] else "  DIFFERENT RESULTS")
        print(
            f"{what + ', ' + name.removeprefix('scipy.stats.'):<74}{mine:>8.3f}s{other:>10.1f}s{other / mine:>8.0f}"
            f"{'-' if query.quick else f'{TARGET:g}':>8}{remark}"
        )
    holed = columns[:, : questions // 20].copy()
    holed[np.random.default_rng(1).random(holed.shape) < 0.02] = np.nan
    whole = timed(partial(all_pairs, np.nan_to_num(holed), resamples=resamples))[0]
    gaps = timed(partial(all_pairs, holed, resamples=resamples))[0]
    print(f"# {questions // 20:,} questions: {whole:.2f} s without gaps, {gaps:.2f} s where every pair has its own gaps")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
