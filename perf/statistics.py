"""All pairs of many methods at once, against SciPy pair by pair, in one process, the sides taking turns.

Ours is `all_pairs`: for every pair the interval and the p-value in closed form. SciPy has the interval, corrected
for skewness as ours is, in `scipy.stats.bootstrap(method="BCa")`; it takes minutes for all pairs, so a few are timed and
their mean is multiplied by the number of pairs. Seconds are the processor's, one thread (`OMP_NUM_THREADS=1`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy import stats

from perf.measuring import Bench, parser, say, timed
from results.statistics.difference import all_pairs

TARGET = 50.0
METHODS = 20
QUESTIONS = 10_000
TIMED_PAIRS = ((0, 1), (3, 17), (8, 12))


def scores(methods: int, questions: int, seed: int = 0) -> np.ndarray:
    """Simulate F1-like scores of methods of slightly different strength, on questions of different difficulty."""
    rng = np.random.default_rng(seed)
    ease = rng.beta(1, 1, questions)
    strength = np.linspace(-0.05, 0.05, methods)[:, None]
    right = rng.random((methods, questions)) < np.clip(ease + strength, 0, 1)
    return np.where(right, 1.0, np.round(rng.beta(0.4, 2, (methods, questions)), 2))


def main(argv: Sequence[str] | None = None) -> int:
    """Compare intervals of all pairs of methods with SciPy.

    Returns:
        1 if the target was missed or results differ, else 0.
    """
    quick = parser(__doc__).parse_args(argv).quick
    columns, pairs = scores(METHODS, 500 if quick else QUESTIONS), METHODS * (METHODS - 1) // 2

    def ours() -> tuple[np.ndarray, np.ndarray]:
        moments = all_pairs(list(columns))
        _ = moments.p
        return moments.interval()

    def theirs(i: int, j: int) -> Any:
        resamples = 1000 if quick else 9999
        pair = (columns[i] - columns[j],)
        return stats.bootstrap(pair, np.mean, method="BCa", n_resamples=resamples, batch=16, rng=1).confidence_interval

    mine, others, equal = [], [], True
    for i, j in TIMED_PAIRS[: 1 if quick else None]:
        seconds, (low, high) = timed(ours)
        mine.append(seconds)
        seconds, bounds = timed(partial(theirs, i, j))
        others.append(seconds)
        near = 0.1 * (high[i, j] - low[i, j])
        equal &= bool(abs(low[i, j] - bounds.low) < near and abs(high[i, j] - bounds.high) < near)
    bench = Bench("statistics", quick=quick)
    say(
        f"# {pairs} pairs of {METHODS} methods, {columns.shape[1]:,} questions; {len(others)} of SciPy's pairs timed, the rest extrapolated"
    )
    bench.ratio(
        "intervals and tests of all pairs, scipy.stats.bootstrap(BCa)",
        float(np.median(mine)),
        float(np.mean(others)) * pairs,
        TARGET,
        equal=equal,
    )
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
