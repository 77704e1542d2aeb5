"""Bradley–Terry with bootstrap intervals over 50,000 battles of 40 methods, against a plain loop over the rounds.

The plain loop is what one writes first: draw questions, gather their rows, fit a logistic regression on the rows. Two
of them: Newton's method in NumPy on the dense design matrix, and scikit-learn's `LogisticRegression` on the sparse
one. A few of their rounds are timed in full, the sides taking turns in one process, and their mean is multiplied by
the number of rounds. Each of those rounds must give the strengths that ours gives for the same questions. Seconds are
the processor's, one thread (`OMP_NUM_THREADS=1`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression

from perf.measuring import Bench, parser, say, timed
from results.statistics.bootstrap import bootstrap_weights
from results.statistics.bradley_terry import PRIOR, BradleyTerry, bradley_terry
from results.statistics.core import Resampling

METHODS = 40
QUESTIONS = 1_000
PER_QUESTION = 50
ROUNDS = 1_000
CASES = {"strengths": (False, 50.0, 5.0), "strengths, place and length": (True, 10.0, 15.0)}
"""By name: whether with covariates, the ratio to reach, the seconds to stay within. Battles of different lengths cannot
be gathered, so that with covariates ours has as many rows to go through as the plain loops have."""
Columns = dict[str, Any]


def battles(questions: int, seed: int = 0) -> Columns:
    """Simulate battles of random pairs under a judge with position and length bias; a tenth are ties."""
    rng = np.random.default_rng(seed)
    rows = questions * PER_QUESTION
    strength = np.linspace(-1, 1, METHODS)
    first = rng.integers(0, METHODS, rows)
    second = (first + rng.integers(1, METHODS, rows)) % METHODS
    shown = rng.random(rows) < 0.5
    lengths = rng.integers(5, 400, (2, rows))
    lean = 0.3 * np.where(shown, 1, -1) + 0.2 * np.log2((lengths[0] + 1) / (lengths[1] + 1))
    won = rng.random(rows) < 1 / (1 + np.exp(strength[second] - strength[first] - lean))
    score = np.where(rng.random(rows) < 0.1, 0.5, won)
    question = np.repeat(np.arange(questions), PER_QUESTION)
    return {"first": first, "second": second, "question": question, "score": score, "shown": shown, "lengths": lengths}


def ours(data: Columns, rounds: int, seed: int, *, covariates: bool) -> BradleyTerry:
    extra = {"shown_first": data["shown"], "lengths": tuple(data["lengths"])} if covariates else {}
    rows = (data[name] for name in ("first", "second", "question", "score"))
    return bradley_terry(*rows, how=Resampling(resamples=rounds, seed=seed), **extra)


def design(data: Columns, *, covariates: bool) -> np.ndarray:
    """Build the design matrix: one row per battle, +1 and -1 for the methods, then the covariates."""
    rows = np.arange(len(data["score"]))
    matrix = np.zeros((len(rows), METHODS + 2 * covariates))
    matrix[rows, data["first"]], matrix[rows, data["second"]] = 1.0, -1.0
    if covariates:
        longer, shorter = data["lengths"]
        matrix[:, -2], matrix[:, -1] = np.where(data["shown"], 1, -1), np.log2((longer + 1) / (shorter + 1))
    return matrix


def rows_of(data: Columns, weights: np.ndarray) -> np.ndarray:
    """Return the rows of resampled questions, repeated as often as they were drawn."""
    return np.repeat(np.arange(len(data["score"])), weights.astype(np.int64)[data["question"]])


def numpy_round(data: Columns, matrix: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Fit one bootstrap round in plain NumPy with Newton's method on the drawn rows."""
    drawn = rows_of(data, weights)
    x, y = matrix[drawn], data["score"][drawn]
    at = np.zeros(x.shape[1])
    for _ in range(50):
        chance = 1 / (1 + np.exp(-(x @ at)))
        slope = x.T @ (y - chance) - at / PRIOR**2
        curve = (x * (chance * (1 - chance))[:, None]).T @ x + np.eye(len(at)) / PRIOR**2
        step = np.linalg.solve(curve, slope)
        at += step
        if np.abs(step).max() < 1e-6:
            break
    return at


def sklearn_round(data: Columns, matrix: csr_array, weights: np.ndarray) -> np.ndarray:
    """Fit one bootstrap round with scikit-learn; a tie is half a win and half a loss."""
    drawn = rows_of(data, weights)
    x, y = matrix[drawn], data["score"][drawn]
    tied = np.flatnonzero(y == 0.5)
    both = csr_array(np.concatenate([x.toarray(), x[tied].toarray()])) if len(tied) else x
    label = np.concatenate([y > 0.25, np.zeros(len(tied), bool)])
    share = np.where(np.concatenate([y == 0.5, np.ones(len(tied), bool)]), 0.5, 1.0)
    model = LogisticRegression(C=PRIOR**2, fit_intercept=False, tol=1e-6, max_iter=1000)
    return model.fit(both, label, sample_weight=share).coef_[0]


def main(argv: Sequence[str] | None = None) -> int:
    """Compare the Bradley–Terry fit with plain NumPy and scikit-learn.

    Returns:
        1 if a target was missed or results differ, else 0.
    """
    arguments = parser(__doc__)
    arguments.add_argument("--turns", type=int, default=3)
    query = arguments.parse_args(argv)
    questions, rounds, turns = (40, 64, 1) if query.quick else (QUESTIONS, ROUNDS, query.turns)
    data = battles(questions)
    say(
        f"# {rounds:,} rounds over {questions} questions, {len(data['score']):,} battles of {METHODS} methods;"
        f" {turns} rounds of each plain loop timed in full, the rest extrapolated"
    )
    bench = Bench("bradley_terry", quick=query.quick)
    for name, (covariates, target, limit) in CASES.items():
        dense = design(data, covariates=covariates)
        sides: dict[str, Callable[[np.ndarray], np.ndarray]] = {
            "NumPy, rows": partial(numpy_round, data, dense),
            "scikit-learn, rows": partial(sklearn_round, data, csr_array(dense)),
        }
        mine: list[float] = []
        theirs: dict[str, list[float]] = {side: [] for side in sides}
        apart = dict.fromkeys(sides, 0.0)
        for turn in range(turns):
            seconds, result = timed(partial(ours, data, rounds, turn, covariates=covariates))
            mine.append(seconds)
            weights = next(bootstrap_weights(questions, turn, rounds))[turn]
            for side, work in sides.items():
                seconds, at = timed(partial(work, weights))
                theirs[side].append(seconds)
                apart[side] = max(apart[side], float(np.abs(at[:METHODS] - result.draws[:, turn]).max()))
        seconds = float(np.median(mine))
        for side in sides:
            other = float(np.mean(theirs[side])) * rounds
            # scikit-learn stops where its gradient is small, a little before the maximum.
            differs = apart[side] > (1e-5 if side.startswith("NumPy") else 0.02)
            bench.ratio(f"{name}, {side}", seconds, other, target, equal=not differs, remark=f"; apart by {apart[side]:.1g}")
        bench.figure(f"{name}, ours", seconds, "s", at_most=limit)
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
