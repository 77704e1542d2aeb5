"""How often the verdicts of `results.statistics` are wrong, and how often they are given, in 50 situations with known truth.

A situation draws paired differences of questions in clusters. Three truths each: no difference (a star is false), a mean
loss of just the gate's margin (a pass is false), and a loss of twice the margin (the gate should say so). Beside it the
exact test of `scipy.stats` is asked the same: sign flips of the clusters (`permutation_test` by Monte Carlo), the
binomial test where all differences are of one size.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from results.statistics.difference import paired
from results.statistics.gate import clusters_needed, decided

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int, float], Floats]
"""Differences of shape (sets, questions) whose mean is the last argument."""


@dataclass(frozen=True)
class Situation:
    """What is drawn.

    Attributes:
        name: For the table.
        sizes: Questions of each cluster.
        draw: As `Draw`.
        margin: Of the gate.
    """

    name: str
    sizes: NDArray[np.int64]
    draw: Draw
    margin: float = 0.02

    @property
    def labels(self) -> list[str]:
        return [f"u{cluster}" for cluster in np.repeat(np.arange(len(self.sizes)), self.sizes)]


def changes(sizes: NDArray[np.int64], share: float, together: float = 0.0) -> Draw:
    """0/1 scores: a share of the questions changes by one; with probability `together` a cluster's changes have one sign."""

    def draw(rng: np.random.Generator, sets: int, mean: float) -> Floats:
        n, clusters = int(sizes.sum()), len(sizes)
        up = (1 + mean / share) / 2
        alone = rng.random((sets, n)) < up
        shared = np.repeat(rng.random((sets, clusters)) < up, sizes, axis=1)
        joint = np.repeat(rng.random((sets, clusters)) < together, sizes, axis=1)
        return np.where(rng.random((sets, n)) < share, np.where(np.where(joint, shared, alone), 1.0, -1.0), 0.0)

    return draw


def skewed(sizes: NDArray[np.int64], rare: float, often: float, size: float = 1.0, *, gains: bool = False) -> Draw:
    """Rarely a large loss, often a small gain (or the other way round) that makes up for it."""

    def draw(rng: np.random.Generator, sets: int, mean: float) -> Floats:
        sign = -1.0 if gains else 1.0
        # The mean asked for is reached by the frequency of the losses, or of the gains where these are rare.
        small = rare * size / often
        rate = rare - sign * mean / size
        u = rng.random((sets, int(sizes.sum())))
        return sign * np.where(u < rate, -size, np.where(u < rate + often, small, 0.0))

    return draw


def graded(sizes: NDArray[np.int64], ties: float, within: float = 0.0, shape: float = 1.0) -> Draw:
    """Differences of F1-like scores: many ties, the rest between -1 and 1; `within` is the part that a cluster shares."""

    def draw(rng: np.random.Generator, sets: int, mean: float) -> Floats:
        n, clusters = int(sizes.sum()), len(sizes)
        own = rng.beta(shape, shape, (sets, n)) * 2 - 1
        shared = np.repeat(rng.beta(shape, shape, (sets, clusters)) * 2 - 1, sizes, axis=1)
        value = (1 - within) * own + within * shared + mean / (1 - ties)
        return np.where(rng.random((sets, n)) < ties, 0.0, value)

    return draw


def heavy(sizes: NDArray[np.int64], scale: float) -> Draw:
    """Costs: differences of log-normal values, long tails on one side."""

    def draw(rng: np.random.Generator, sets: int, mean: float) -> Floats:
        values = rng.lognormal(0, scale, (sets, int(sizes.sum())))
        spread = np.sqrt((np.exp(scale**2) - 1) * np.exp(scale**2))
        return 0.2 * (values - np.exp(scale**2 / 2)) / spread + mean

    return draw


def situations() -> Iterator[Situation]:
    """The fifty."""
    for n in (4, 8, 12, 20, 50, 100, 200, 500):
        yield Situation(f"{n} questions, em, 30 % change", np.ones(n, int), changes(np.ones(n, int), 0.3), 0.05)
    for n in (20, 50, 100, 200, 500):
        yield Situation(f"{n} questions, em, 6 % change", np.ones(n, int), changes(np.ones(n, int), 0.06))
    for n in (50, 100, 200, 500, 1000):
        yield Situation(f"{n} questions, 1 % lose all, 10 % gain .1", np.ones(n, int), skewed(np.ones(n, int), 0.01, 0.1), 0.01)
        yield Situation(f"{n} questions, 2 % gain all, 20 % lose .1", np.ones(n, int), skewed(np.ones(n, int), 0.02, 0.2, gains=True), 0.01)
    yield Situation("200 questions, 0.5 % lose all, 50 % gain .01", np.ones(200, int), skewed(np.ones(200, int), 0.005, 0.5), 0.01)
    yield Situation("500 questions, 5 % lose half, 25 % gain .1", np.ones(500, int), skewed(np.ones(500, int), 0.05, 0.25, 0.5), 0.01)
    for n in (10, 20, 50, 100, 200):
        yield Situation(f"{n} questions, f1, 90 % ties", np.ones(n, int), graded(np.ones(n, int), 0.9))
        yield Situation(f"{n} questions, f1, 40 % ties", np.ones(n, int), graded(np.ones(n, int), 0.4), 0.05)
    for n in (30, 100, 400):
        yield Situation(f"{n} questions, log-normal differences", np.ones(n, int), heavy(np.ones(n, int), 1.0))
    for clusters in (4, 10, 30, 100):
        sizes = np.full(clusters, 10)
        yield Situation(f"{clusters} clusters of 10, em, signs shared", sizes, changes(sizes, 0.3, 0.7), 0.05)
        yield Situation(f"{clusters} clusters of 10, f1, half shared", sizes, graded(sizes, 0.3, 0.5), 0.05)
    for clusters in (12, 30, 100):
        sizes = 1 + np.random.default_rng(clusters).geometric(0.1, clusters)
        yield Situation(f"{clusters} clusters of 2 to {sizes.max()}, em, signs shared", sizes, changes(sizes, 0.3, 0.7), 0.05)
    for clusters, largest in ((30, 30), (100, 100)):
        sizes = np.r_[np.ones(clusters - 1, int), largest]
        yield Situation(f"{clusters} clusters, one holds half", sizes, changes(sizes, 0.3, 0.7), 0.05)
    sizes = np.r_[np.full(59, 5), 60]
    yield Situation("60 clusters, one holds a sixth, f1 shared", sizes, graded(sizes, 0.3, 0.5), 0.05)
    sizes = np.full(30, 10)
    yield Situation("30 clusters of 10, 1 % lose all, 10 % gain .1", sizes, skewed(sizes, 0.01, 0.1), 0.01)


@dataclass(frozen=True)
class Errors:
    """Shares of the sets of one situation: false stars, false passes, regressions that are seen, and those of the exact test."""

    star: float
    insufficient_data: float
    passed: float
    regressed: float
    exact: float


def measured(situation: Situation, sets: int, seed: int = 0) -> Errors:
    """What happens in one situation."""
    rng, margin, block = np.random.default_rng(seed), situation.margin, 500
    counts = np.zeros(5)
    for _ in range(-(-sets // block)):
        null, bar, lost = (situation.draw(rng, block, mean) for mean in (0.0, -margin, -2 * margin))
        moments = [paired(np.maximum(delta, 0), np.maximum(-delta, 0), clusters=situation.labels) for delta in (null, bar, lost)]
        star = moments[0].p
        outcome = [decided(one, margin) for one in moments[1:]]
        starts = np.r_[0, np.cumsum(situation.sizes)[:-1]]
        counts += [
            (star <= 0.05).mean(),
            np.isnan(star).mean(),
            (outcome[0] == "pass").mean(),
            (outcome[1] == "regressed").mean(),
            (sign_flips(np.add.reduceat(lost + margin, starts, axis=1), rng) <= 0.025).mean(),
        ]
    return Errors(*(counts / -(-sets // block)).tolist())


def decided_as_often(sets: int) -> Iterator[tuple[str, int, float, float]]:
    """Regressions seen at a loss of twice the margin, ours and the exact test's, with as many clusters as `clusters_needed` asks for.

    The pilot is one draw of each kind of difference; a power of .8 is wanted at one margin's distance from the margin.
    """
    kinds: list[tuple[str, Callable[[NDArray[np.int64]], Draw], int, float]] = [
        ("em, 30 % change", lambda sizes: changes(sizes, 0.3), 1, 0.08),
        ("em, 10 % change", lambda sizes: changes(sizes, 0.1), 1, 0.04),
        ("f1, 40 % ties", lambda sizes: graded(sizes, 0.4), 1, 0.08),
        ("f1, 80 % ties", lambda sizes: graded(sizes, 0.8), 1, 0.04),
        ("clusters of 10, em, signs shared", lambda sizes: changes(sizes, 0.3, 0.7), 10, 0.08),
        ("clusters of 10, f1, half shared", lambda sizes: graded(sizes, 0.3, 0.5), 10, 0.06),
    ]
    for number, (name, draw, size, margin) in enumerate(kinds):
        rng = np.random.default_rng(number)
        pilot = np.full(2000, size)
        delta = draw(pilot)(rng, 1, -2 * margin)
        spread = paired(
            np.maximum(delta, 0), np.maximum(-delta, 0), clusters=[f"u{cluster}" for cluster in np.repeat(np.arange(2000), pilot)]
        )
        clusters = max(100, clusters_needed(spread[0], margin))
        result = measured(Situation(name, np.full(clusters, size), draw(np.full(clusters, size)), margin), sets, number)
        yield name, clusters, result.regressed, result.exact


def sign_flips(sums: Floats, rng: np.random.Generator, flips: int = 999) -> Floats:
    """One-sided p-values of sign flips of the clusters that their mean is not below zero, shape (sets,)."""
    signs = rng.choice([-1.0, 1.0], (sums.shape[1], flips))
    return np.asarray(((sums @ signs <= sums.sum(axis=1)[:, None] + 1e-9).sum(axis=1) + 1) / (flips + 1))


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table.

    Returns:
        1 where a false star or pass is more frequent than promised, else 0.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", type=int, default=10_000)
    sets = parser.parse_args(argv).sets
    print("| situation | clusters | false star | insufficient data | false pass | twice the margin: regressed | exact test |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    wrong, every = 0, list(situations())
    for number, situation in enumerate(every):
        result = measured(situation, sets, number)
        # Three standard errors of the simulation itself.
        slack = 3 * np.sqrt(0.05 / sets), 3 * np.sqrt(0.025 / sets)
        bad = result.star > 0.05 + slack[0] or result.passed > 0.025 + slack[1]
        wrong += bad
        cells = (result.star, result.insufficient_data, result.passed, result.regressed, result.exact)
        shares = " | ".join(f"{100 * cell:.1f} %" for cell in cells)
        print(f"| {situation.name} | {len(situation.sizes)} | {shares} |{'  MISSED' if bad else ''}", flush=True)
    print("\n| a loss of twice the margin | clusters | regressed | exact test |\n| --- | --- | --- | --- |")
    for name, clusters, ours, exact in decided_as_often(sets):
        print(f"| {name} | {clusters} | {100 * ours:.1f} % | {100 * exact:.1f} % |", flush=True)
    print(f"\n{len(every)} situations, {sets:,} sets each; {wrong} beyond 5 % false stars or 2.5 % false passes")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
