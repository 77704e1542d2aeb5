"""How often the verdicts of `results.statistics` are false, and how often they are given, in situations with known truth.

`questions`: paired differences of questions in clusters, with losing tails among them, in three truths each: no difference
(a star is false), a loss of just the gate's margin (a pass is false), and of twice the margin (the gate should say so).
Beside it the exact test of `scipy.stats` is asked the same. `trainings`, `judges`, `unread`: answers of two methods to the
same questions, with three seeds that differ, a judge that errs, or verdicts that were not read. `repeats`: several answers
to each question. `benchmarks`: differences pooled over several of them. Every situation also says
how often 0 lies outside the interval that is shown: the error among shown results. `failing`: a method that fails in a few
clusters, which samples may miss; nothing is promised there. `memory`: gates in a row, with and
without what the gate remembers: pushes that each lose a little, and one candidate that is asked again until it passes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perf.measuring import record
from results.statistics.difference import Range, Side, compared, paired
from results.statistics.gate import clusters_needed, decided
from results.statistics.pooled import Stratum, pooled
from results.statistics.spending import of_attempt, of_decision
from results.statistics.tested import Tested

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int, float], Floats]
"""Differences of shape (sets, questions) whose mean is the last argument."""
BOUNDED, OPEN_ENDED = Range(), Range(None, None)


@dataclass(frozen=True)
class Situation:
    """Simulated situation for checking error rates of tests.

    Attributes:
        name: Name in the report.
        sizes: Number of questions per cluster.
        draw: Samples differences (see `Draw`).
        margin: Margin of the gate.
        metric: Range of the scores.
    """

    name: str
    sizes: NDArray[np.int64]
    draw: Draw
    margin: float = 0.02
    metric: Range = BOUNDED

    @property
    def labels(self) -> list[str]:
        return [f"u{cluster}" for cluster in np.repeat(np.arange(len(self.sizes)), self.sizes)]


def changes(sizes: NDArray[np.int64], share: float, together: float = 0.0) -> Draw:
    """Sample differences of 0/1 scores: a share of the questions changes; with probability `together`, a cluster's changes have
    one sign.
    """

    def draw(rng: np.random.Generator, sets: int, mean: float) -> Floats:
        n, clusters = int(sizes.sum()), len(sizes)
        up = (1 + mean / share) / 2
        alone = rng.random((sets, n)) < up
        shared = np.repeat(rng.random((sets, clusters)) < up, sizes, axis=1)
        joint = np.repeat(rng.random((sets, clusters)) < together, sizes, axis=1)
        return np.where(rng.random((sets, n)) < share, np.where(np.where(joint, shared, alone), 1.0, -1.0), 0.0)

    return draw


def tailed(sizes: NDArray[np.int64], *parts: tuple[float, float]) -> Draw:
    """Sample differences with a few values, each with its share of questions; the last share is chosen to give the requested mean."""

    def draw(rng: np.random.Generator, sets: int, mean: float) -> Floats:
        *others, (rare, share) = parts
        shares = [each for _, each in others] + [share + (mean - sum(value * each for value, each in parts)) / rare]
        edges = np.cumsum([0.0, *shares])
        at = np.searchsorted(edges, rng.random((sets, int(sizes.sum()))), side="right") - 1
        return np.append([value for value, _ in others] + [rare], 0.0)[at]

    return draw


def graded(sizes: NDArray[np.int64], ties: float, within: float = 0.0, shape: float = 1.0) -> Draw:
    """Sample differences of F1-like scores: many ties, the rest between -1 and 1; `within` is the part shared by a cluster."""

    def draw(rng: np.random.Generator, sets: int, mean: float) -> Floats:
        n, clusters = int(sizes.sum()), len(sizes)
        own = rng.beta(shape, shape, (sets, n)) * 2 - 1
        shared = np.repeat(rng.beta(shape, shape, (sets, clusters)) * 2 - 1, sizes, axis=1)
        moved = mean / (1 - ties)
        value = (1 - abs(moved)) * ((1 - within) * own + within * shared) + moved
        return np.where(rng.random((sets, n)) < ties, 0.0, value)

    return draw


def lopsided(sizes: NDArray[np.int64], within: float, rare: float = 5.0) -> Draw:
    """Sample differences with a long tail of losses and no ties; `within` is the part shared by a cluster."""

    def draw(rng: np.random.Generator, sets: int, mean: float) -> Floats:
        own = rng.beta(1, rare, (sets, int(sizes.sum())))
        shared = np.repeat(rng.beta(1, rare, (sets, len(sizes))), sizes, axis=1)
        return mean + 0.9 * (1 / (1 + rare) - (1 - within) * own - within * shared)

    return draw


def heavy(sizes: NDArray[np.int64], scale: float) -> Draw:
    """Sample cost differences: log-normal values with a long tail on one side."""

    def draw(rng: np.random.Generator, sets: int, mean: float) -> Floats:
        values = rng.lognormal(0, scale, (sets, int(sizes.sum())))
        spread = np.sqrt((np.exp(scale**2) - 1) * np.exp(scale**2))
        return 0.2 * (values - np.exp(scale**2 / 2)) / spread + mean

    return draw


def situations() -> Iterator[Situation]:
    """Yield situations in which only questions are sampled."""
    for n in (4, 8, 12, 20, 50, 100, 200, 500):
        yield Situation(f"{n} questions, em, 30 % change", np.ones(n, int), changes(np.ones(n, int), 0.3), 0.05)
    for n in (20, 50, 100, 200, 500):
        yield Situation(f"{n} questions, em, 6 % change", np.ones(n, int), changes(np.ones(n, int), 0.06))
    for n in (50, 100, 200, 500, 1000):
        one = np.ones(n, int)
        yield Situation(f"{n} questions, 10 % gain .1, 1 % lose all", one, tailed(one, (0.1, 0.1), (-1.0, 0.01)), 0.01)
        yield Situation(f"{n} questions, 20 % lose .1, 2 % gain all", one, tailed(one, (-0.1, 0.2), (1.0, 0.02)), 0.01)
        yield Situation(
            f"{n} questions, 10 % gain .1, 5 % lose .05, 0.75 % all", one, tailed(one, (0.1, 0.1), (-0.05, 0.05), (-1.0, 0.0075))
        )
        yield Situation(f"{n} questions, 30 % gain .1, 10 % lose .1, 2 % all", one, tailed(one, (0.1, 0.3), (-0.1, 0.1), (-1.0, 0.02)))
        yield Situation(f"{n} questions, 50 % gain .1, 5 % lose all", one, tailed(one, (0.1, 0.5), (-1.0, 0.05)))
    yield Situation(
        "200 questions, 50 % gain .01, 0.5 % lose all", np.ones(200, int), tailed(np.ones(200, int), (0.01, 0.5), (-1, 0.005)), 0.01
    )
    yield Situation(
        "500 questions, 25 % gain .1, 5 % lose half", np.ones(500, int), tailed(np.ones(500, int), (0.1, 0.25), (-0.5, 0.05)), 0.01
    )
    for n in (10, 20, 50, 100, 200):
        yield Situation(f"{n} questions, f1, 90 % ties", np.ones(n, int), graded(np.ones(n, int), 0.9))
        yield Situation(f"{n} questions, f1, 40 % ties", np.ones(n, int), graded(np.ones(n, int), 0.4), 0.05)
    for n in (30, 100, 400):
        yield Situation(f"{n} questions, log-normal differences", np.ones(n, int), heavy(np.ones(n, int), 1.0), metric=OPEN_ENDED)
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
    for n in (12, 30, 100, 300):
        yield Situation(f"{n} questions, long tail of losses, no ties", np.ones(n, int), lopsided(np.ones(n, int), 0.0), 0.05)
    for clusters in (12, 30):
        sizes = np.full(clusters, 20)
        yield Situation(f"{clusters} clusters of 20, long tail of losses, half shared", sizes, lopsided(sizes, 0.5), 0.05)
    sizes = np.full(30, 10)
    yield Situation("30 clusters of 10, 10 % gain .1, 1 % lose all", sizes, tailed(sizes, (0.1, 0.1), (-1.0, 0.01)), 0.01)


@dataclass(frozen=True)
class Errors:
    """Error rates over the simulated sets of one situation.

    Attributes:
        star: Rate of false significance stars.
        outside: Rate of intervals that miss the true difference.
        passed: Rate of false passes of the gate.
        regressed: Rate at which the gate detects losses of twice the margin.
        exact: The same rate of the exact test.
    """

    star: float
    outside: float
    passed: float
    regressed: float
    exact: float


def measured(situation: Situation, sets: int, seed: int = 0) -> Errors:
    """Estimate the error rates in one situation by simulation."""
    rng, margin, block = np.random.default_rng(seed), situation.margin, min(sets, 500)
    counts = np.zeros(5)
    for _ in range(-(-sets // block)):
        null, bar, lost = (situation.draw(rng, block, mean) for mean in (0.0, -margin, -2 * margin))
        tests = [_of(delta, situation) for delta in (null, bar, lost)]
        low, high = tests[0].interval()
        starts = np.r_[0, np.cumsum(situation.sizes)[:-1]]
        counts += [
            (tests[0].p <= 0.05).mean(),
            ((low > 0) | (high < 0)).mean(),
            (decided(tests[1], margin) == "pass").mean(),
            (decided(tests[2], margin) == "regressed").mean(),
            (sign_flips(np.add.reduceat(lost + margin, starts, axis=1), rng) <= 0.025).mean(),
        ]
    return Errors(*(counts / -(-sets // block)).tolist())


def _of(delta: Floats, situation: Situation) -> Tested:
    return paired(np.maximum(delta, 0), np.maximum(-delta, 0), clusters=situation.labels, metric=situation.metric)


def decided_as_often(sets: int) -> Iterator[tuple[str, int, float, float]]:
    """Yield the detection rates of a loss of twice the margin, ours and the exact test's, with the planned number of clusters.

    The pilot is one sample of each kind of difference; the planned power is .8 at twice the margin.
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
        pilot = Situation(name, np.full(2000, size), draw(np.full(2000, size)), margin)
        clusters = max(100, clusters_needed(_of(pilot.draw(rng, 1, -2 * margin), pilot)[:1], margin) or 0)
        result = measured(Situation(name, np.full(clusters, size), draw(np.full(clusters, size)), margin), sets, number)
        yield name, clusters, result.regressed, result.exact


def sign_flips(sums: Floats, rng: np.random.Generator, flips: int = 999) -> Floats:
    """Return one-sided p-values of sign-flip tests over clusters that the mean is not below zero, shape (sets,)."""
    signs = rng.choice([-1.0, 1.0], (sums.shape[1], flips))
    return np.asarray(((sums @ signs <= sums.sum(axis=1)[:, None] + 1e-9).sum(axis=1) + 1) / (flips + 1))


def _starred(ours: Sequence[Side], theirs: Sequence[Side]) -> float:
    return float((compared(ours, theirs, metric=BOUNDED).p <= 0.05).mean())


def answers(
    rng: np.random.Generator, questions: int, rows: int = 1, gain: float = 0.0, deviation: float = 0.0, ease: Floats | None = None,
    *, tails: bool = False,
) -> Floats:  # fmt: skip
    """Sample correct and wrong answers to questions of different difficulty, one training seed per row; `tails`: Laplace-distributed."""
    hard = rng.random(questions) if ease is None else ease
    apart = rng.laplace(0, deviation / np.sqrt(2), (rows, 1)) if tails else rng.normal(0, deviation, (rows, 1))
    return (rng.random((rows, questions)) < np.clip(hard + gain + apart, 0, 1)).astype(float)


def trainings(
    sets: int,
    questions: int,
    deviation: float,
    *,
    gain: float = 0.0,
    seeds: int = 3,
    both: bool = False,
    tails: bool = False,
    seed: int = 0,
) -> tuple[float, float]:
    """Return how often a method with several seeds gets a star over its base, and how often it would if seeds were ignored.

    Args:
        sets, questions: Number of samples, and of questions per sample.
        deviation: Standard deviation of the seeds' means.
        gain: True difference.
        seeds: Number of trainings of the method.
        both: Whether the base was trained, too, with as many seeds and half their deviation.
        tails: Use heavy tails: most questions are very hard or very easy, and seeds sometimes fail (Laplace instead of normal).
        seed: Random seed.
    """
    rng = np.random.default_rng(seed)
    ours, blind, theirs = [], [], []
    for _ in range(sets):
        ease = rng.beta(0.5, 0.5, questions) if tails else rng.random(questions)
        rows = answers(rng, questions, seeds, gain, deviation, ease, tails=tails)
        ours.append(Side.of(rows, trainings=range(seeds)))
        blind.append(Side.of(rows))
        other = answers(rng, questions, seeds if both else 1, 0.0, deviation / 2 if both else 0.0, ease, tails=tails)
        theirs.append(Side.of(other, trainings=range(seeds) if both else None))
    return _starred(ours, theirs), _starred(blind, theirs)


def repeats(sets: int, questions: int, count: int, *, size: int = 1, seed: int = 0) -> tuple[float, float]:
    """Return how often equal methods with repeated answers get a star, and how often they would if each answer were a question.

    Args:
        sets, questions: Number of samples, and of questions per sample.
        count: Number of answers per method and question.
        size: Number of equally difficult questions per cluster.
        seed: Random seed.
    """
    rng = np.random.default_rng(seed)
    clusters = [f"c{number // size}" for number in range(questions)]
    sides: list[list[Side]] = [[], []]
    flat: list[list[Side]] = [[], []]
    for _ in range(sets):
        # Each method has questions of its own that it finds easy; over all questions the two are equal.
        eases = [np.repeat(rng.random(questions // size), size) for _ in range(2)]
        for side, ease in enumerate(eases):
            rows = answers(rng, questions, count, ease=ease)
            sides[side].append(Side.of(rows))
            flat[side].append(Side.of(rows.ravel()))
    star = (compared(*sides, clusters=clusters, metric=BOUNDED).p <= 0.05).mean()
    return float(star), float((compared(*flat, metric=BOUNDED).p <= 0.05).mean())


def together(sets: int, parts: Sequence[tuple[Draw, int, float]], seed: int = 0) -> tuple[float, float]:
    """Return how often a pooled difference over benchmarks gets a star, and its width relative to the narrowest benchmark's.

    Args:
        sets: Number of samples.
        parts: For each benchmark, how differences are sampled, the number of questions, and the true difference.
        seed: Random seed.
    """
    rng = np.random.default_rng(seed)
    strata = []
    for kin, (draw, questions, mean) in enumerate(parts):
        delta = draw(rng, sets, mean)
        ours, theirs = ([Side.of(row) for row in np.maximum(sign * delta, 0)] for sign in (1, -1))
        strata.append(Stratum(ours, theirs, [f"q{number}" for number in range(questions)], None, kin, BOUNDED))
    rows = pooled(strata)
    alone = [compared(part.candidates, part.references, metric=BOUNDED) for part in strata]
    # As wide as the parts are at 95 %: the first of a family of one.
    single = [pooled([replace(part, candidates=part.candidates[:1], references=part.references[:1]) for part in strata])[0]]
    width = np.mean([row.high - row.low for row in single]) / min(float((one.interval()[1] - one.interval()[0])[0]) for one in alone)
    return float(np.mean([row.p <= 0.05 for row in rows])), float(width)


def failing(sets: int, clusters: int, share: float, spread: float, seed: int = 0) -> float:
    """Return how often a method gets a star that gains a little in most clusters, scores 0 in the others, and is equal on average.

    No test can see a kind of cluster that was not sampled: it can only assume that there may be some.

    Args:
        sets, clusters: Number of samples, and of clusters of ten questions per sample.
        share: Share of clusters in which the method scores 0.
        spread: Range of the scores within a cluster.
        seed: Random seed.
    """
    rng, size = np.random.default_rng(seed), 10
    labels = [f"u{cluster}" for cluster in range(clusters) for _ in range(size)]
    level = rng.uniform(0.35, 0.65, (sets, clusters))
    gained = np.where(rng.random((sets, clusters)) < share, 0.0, level + 0.5 * share / (1 - share))
    theirs, ours = (np.repeat(rows, size, axis=1) for rows in (level, gained))
    theirs, ours = (np.clip(rows + spread * (rng.beta(2, 2, rows.shape) - 0.5) * (rows > 0), 0, 1) for rows in (theirs, ours))
    return float((paired(ours, theirs, clusters=labels, metric=BOUNDED).p <= 0.05).mean())


def benchmark_situations() -> Iterator[tuple[str, list[tuple[Draw, int, float]]]]:
    """Yield suites of benchmarks on which two methods are equal on average."""
    few, fifty = np.ones(10, int), np.ones(50, int)
    yield "2 benchmarks of 10 questions, em", [(changes(few, 0.3), 10, 0.0)] * 2
    yield "2 benchmarks of 10 questions, +20 and -20 pp", [(changes(few, 0.3), 10, 0.2), (changes(few, 0.3), 10, -0.2)]
    yield "8 benchmarks of 50 questions, em", [(changes(fifty, 0.3), 50, 0.0)] * 8
    yield "4 benchmarks of 50 questions, 1 % lose all", [(tailed(fifty, (0.1, 0.1), (-1.0, 0.01)), 50, 0.0)] * 4
    yield "10 and 50 questions, em", [(changes(few, 0.3), 10, 0.0), (changes(fifty, 0.3), 50, 0.0)]


def seed_situations() -> Iterator[tuple[int, float, dict[str, bool]]]:
    """Yield numbers of questions, seed deviations and sampling options, for methods that are equal."""
    for questions in (900, 3000):
        for deviation in (0.0, 0.01, 0.03, 0.05):
            yield questions, deviation, {}
    for deviation in (0.01, 0.03, 0.05):
        yield 3000, deviation, {"both": True}
        yield 3000, deviation, {"tails": True}


def judges(sets: int, questions: int, *, labels: int = 100, seed: int = 0) -> tuple[float, float]:
    """Return how often equal methods get a star from a biased judge, with and without human labels."""
    rng = np.random.default_rng(seed)
    sides: list[list[Side]] = [[], []]
    plain: list[list[Side]] = [[], []]
    for _ in range(sets):
        ease = rng.random(questions)
        labeled = rng.permutation(questions) < labels
        for side, specificity in enumerate((0.9, 0.8)):
            truth = answers(rng, questions, ease=ease)[0]
            judged = (rng.random(questions) < np.where(truth > 0, 0.95, 1 - specificity)).astype(float)
            sides[side].append(Side.of(judged, labels=np.where(labeled, truth, np.nan)))
            plain[side].append(Side.of(judged))
    return _starred(*sides), _starred(*plain)


def unread(sets: int, questions: int, *, share: float = 0.1, seed: int = 0) -> tuple[float, float]:
    """Return how often equal methods get a star if some of one's wrong answers are unread: with bounds, and with them left out."""
    rng = np.random.default_rng(seed)
    ours, left_out, theirs = [], [], []
    for _ in range(sets):
        ease = rng.random(questions)
        mine = answers(rng, questions, ease=ease)[0]
        gone = (mine == 0) & (rng.random(questions) < share)
        known = np.where(gone, np.nan, mine)
        ours.append(Side.of(known, open=gone))
        left_out.append(Side.of(known))
        theirs.append(Side.of(answers(rng, questions, ease=ease)))
    return _starred(ours, theirs), _starred(left_out, theirs)


def pushes(sets: int, losses: Sequence[float], *, questions: int = 1000, margin: float = 0.01, seed: int = 0) -> tuple[float, float]:
    """Return how often a series of pushes is stopped as "regressed", with an anchor before the first one and without.

    Args:
        sets: Number of simulated series.
        losses: True loss of each push; each changes 5 % of the answers.
        questions, margin: Number of questions and margin of every gate.
        seed: Random seed.
    """
    rng = np.random.default_rng(seed)
    truth = 0.7
    anchor = (rng.random((sets, questions)) < truth).astype(float)
    before, stopped, blind = anchor, np.zeros(sets, np.bool_), np.zeros(sets, np.bool_)
    for number, loss in enumerate(losses, 1):
        fall, rise = (0.05 + loss) / 2 / truth, (0.05 - loss) / 2 / (1 - truth)
        after = np.where(rng.random((sets, questions)) < np.where(before > 0, fall, rise), 1 - before, before)
        truth -= loss
        blind |= decided(paired(after, before, metric=BOUNDED), margin) == "regressed"
        level = 1 - 2 * of_decision(number)
        stopped |= decided(paired(after, anchor, metric=BOUNDED), margin, level=level, upper=level) == "regressed"
        before = after
    return float((stopped | blind).mean()), float(blind.mean())


def retries(sets: int, attempts: int = 30, *, questions: int = 1000, margin: float = 0.01, seed: int = 0) -> tuple[float, float]:
    """Return how often a candidate that is worse by the margin passes in one of several attempts, with and without counting attempts."""
    rng = np.random.default_rng(seed)
    ease = rng.uniform(margin, 1, (sets, questions))
    before = (rng.random((sets, questions)) < ease).astype(float)
    passed, blind = np.zeros(sets, np.bool_), np.zeros(sets, np.bool_)
    for attempt in range(1, attempts + 1):
        tests = paired((rng.random((sets, questions)) < ease - margin).astype(float), before, metric=BOUNDED)
        passed |= decided(tests, margin, level=1 - 2 * of_attempt(attempt)) == "pass"
        blind |= decided(tests, margin) == "pass"
    return float(passed.mean()), float(blind.mean())


def main(argv: Sequence[str] | None = None) -> int:
    """Run all simulations, print the rates and write them as JSON.

    Returns:
        1 if a false star or pass is more frequent than promised, else 0.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", type=int, default=10_000, help="samples per situation")
    parser.add_argument(
        "--only", choices=["memory", "repeats"], help="measure this part alone (repeats: and benchmarks); other figures stay"
    )
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent / "measured", help="where verdicts.json is written")
    options = parser.parse_args(argv)
    sets: int = options.sets
    rows: list[dict[str, object]] = []

    def add(kind: str, name: str, figures: dict[str, float], bad: bool = False) -> None:
        rows.append({"kind": kind, "situation": name, **figures, "missed": bad})
        print(
            f"{kind}: {name}: " + ", ".join(f"{key} {100 * value:.1f} %" for key, value in figures.items()) + "  MISSED" * bad, flush=True
        )

    def finish() -> int:
        missed = sum(bool(row["missed"]) for row in rows)
        parts = {str(row["kind"]): {"sets": sets, "situations": [item for item in rows if item["kind"] == row["kind"]]} for row in rows}
        record("verdicts", parts, options.folder)
        print(f"\n{len(rows)} situations, {sets:,} sets each; {missed} beyond what is promised")
        return int(missed > 0)

    # Three standard errors of the simulation itself.
    most_stars, most_passes = 0.05 + 3 * np.sqrt(0.05 / sets), 0.025 + 3 * np.sqrt(0.025 / sets)
    fewer = max(200, sets // 5)
    slack = 3 * np.sqrt(0.05 / fewer)
    if options.only in (None, "repeats"):
        for questions, count, size in ((300, 1, 1), (300, 3, 1), (300, 5, 5), (1000, 3, 1)):
            star, ignored = repeats(fewer, questions, count, size=size, seed=count)
            name = f"{questions} questions, {count} answers each" + f", in clusters of {size}" * (size > 1)
            add("repeats", name, {"star": star, "as_questions": ignored}, bool(star > 0.05 + slack))
        for name, parts in benchmark_situations():
            star, width = together(fewer, parts)
            add("benchmarks", name, {"star": star, "width": width}, bool(star > 0.05 + slack))
    if options.only == "repeats":
        return finish()
    stops, blind = pushes(fewer, [0.005] * 20)
    add("memory", "20 pushes of -0.5 pp, margin 1 pp", {"stopped": stops, "without_anchor": blind}, stops < 0.8)
    stops, blind = pushes(fewer, [0.01] + [0.0] * 59, seed=1)
    add("memory", "60 pushes at -1 pp in all, margin 1 pp", {"stopped": stops, "without_anchor": blind}, bool(stops > 0.05 + slack))
    passed, blind = retries(fewer)
    add(
        "memory",
        "30 attempts at -1 pp, margin 1 pp",
        {"passed": passed, "not_counted": blind},
        bool(passed > 0.025 + 3 * np.sqrt(0.025 / fewer)),
    )
    if options.only is not None:
        return finish()
    for number, situation in enumerate(situations()):
        result = measured(situation, sets, number)
        shown = result.outside if situation.metric.bounded else result.star
        add("questions", situation.name, asdict(result), bool(shown > most_stars or result.passed > most_passes))
    for clusters in (12, 30, 100):
        for share in (0.02, 0.05, 0.1, 0.2):
            for spread in (0.02, 0.3, 0.8):
                star = failing(fewer, clusters, share, spread, clusters)
                name = f"{clusters} clusters of 10, {100 * share:.0f} % fail, spread {spread}"
                add("failing", name, {"star": star})
    for name, clusters, ours, exact in decided_as_often(sets):
        add("planned", f"{name}, {clusters} clusters", {"regressed": ours, "exact": exact}, ours < 0.75)
    for number, (questions, deviation, how) in enumerate(seed_situations()):
        star, ignored = trainings(fewer, questions, deviation, seed=number, **how)
        name = f"{questions} questions, seed deviation {100 * deviation:.0f} pp{''.join(f', {key}' for key in how)}"
        add("trainings", name, {"star": star, "seeds_ignored": ignored}, bool(star > 0.05 + slack))
    for seeds, least in ((3, 0.3), (4, 0.5), (5, 0.6)):
        power, _ = trainings(fewer, 900, 0.03, gain=0.06, seeds=seeds, seed=1)
        add("trainings", f"900 questions, seed deviation 3 pp, gain 6 pp, {seeds} seeds", {"found": power}, power < least)
    for questions in (500, 2000):
        star, ignored = judges(fewer, questions, seed=questions)
        add("judges", f"{questions} questions, 100 labels", {"star": star, "without_labels": ignored}, bool(star > 0.05 + slack))
    for questions in (300, 1000):
        star, ignored = unread(fewer, questions, seed=questions)
        add("unread", f"{questions} questions, 10 % of the wrong unread", {"star": star, "left_out": ignored}, bool(star > 0.05 + slack))
    return finish()


if __name__ == "__main__":
    sys.exit(main())
