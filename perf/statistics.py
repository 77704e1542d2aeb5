"""All pairs of many methods at once, against SciPy pair by pair, in one process, the sides taking turns.

Ours is `all_differences`: for every pair the interval and the p-value in closed form. SciPy has the interval, corrected
for skewness as ours is, in `scipy.stats.bootstrap(method="BCa")`; it takes minutes for all pairs, so a few are timed and
their mean is multiplied by the number of pairs. Seconds are the processor's, one thread (`OMP_NUM_THREADS=1`).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import numpy as np
from scipy import stats

from results.statistics.closed_form import all_differences

TARGET = 50.0
METHODS = 20
QUESTIONS = 10_000
TIMED_PAIRS = ((0, 1), (3, 17), (8, 12))


def scores(methods: int, questions: int, seed: int = 0) -> np.ndarray:
    """F1-like scores of methods a little different in strength on questions of different difficulty."""
    rng = np.random.default_rng(seed)
    ease = rng.beta(1, 1, questions)
    strength = np.linspace(-0.05, 0.05, methods)[:, None]
    right = rng.random((methods, questions)) < np.clip(ease + strength, 0, 1)
    return np.where(right, 1.0, np.round(rng.beta(0.4, 2, (methods, questions)), 2))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark.

    Returns:
        1 where the target was missed or results differ, else 0.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, no target: only that both sides agree")
    quick = parser.parse_args(argv).quick
    columns, pairs = scores(METHODS, 500 if quick else QUESTIONS), METHODS * (METHODS - 1) // 2
    ours, theirs, equal = [], [], True
    for i, j in TIMED_PAIRS[: 1 if quick else None]:
        start = time.process_time()
        moments = all_differences(columns)
        low, high = moments.interval()
        _ = moments.p
        ours.append(time.process_time() - start)
        start = time.process_time()
        bounds = stats.bootstrap(
            (columns[i] - columns[j],), np.mean, method="BCa", n_resamples=1000 if quick else 9999, batch=16, rng=1
        ).confidence_interval
        theirs.append(time.process_time() - start)
        near = 0.1 * (high[i, j] - low[i, j])
        equal &= abs(low[i, j] - bounds.low) < near and abs(high[i, j] - bounds.high) < near
    mine, other = float(np.median(ours)), float(np.mean(theirs)) * pairs
    missed = not quick and other / mine < TARGET
    print(
        f"# {pairs} pairs of {METHODS} methods, {columns.shape[1]:,} questions; {len(theirs)} of SciPy's pairs timed, the rest extrapolated"
    )
    remark = ("  MISSED" if missed else "") + ("" if equal else "  DIFFERENT RESULTS")
    print(f"intervals and tests of all pairs: {mine:.3f} s, scipy.stats.bootstrap(BCa) {other:.1f} s: {other / mine:.0f} x{remark}")
    return int(missed or not equal)


if __name__ == "__main__":
    sys.exit(main())
