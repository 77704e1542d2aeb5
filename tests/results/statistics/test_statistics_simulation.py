"""Simulations with known truth: do intervals cover, are p-values uniform, does the gate err as rarely as it says?

The slow ring runs a small version of each; `make soak` runs the full one and prints the figures that
docs/statistics.md quotes (`python -m pytest -m soak -s tests/results/statistics/test_statistics_simulation.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from scipy import stats

from results.statistics.bootstrap import bootstrap_means, distribution, sign_flip_ps, units_of
from results.statistics.closed_form import all_differences, bands
from results.statistics.core import Method
from results.statistics.gate import decide_all, non_inferiority
from results.statistics.intervals import difference, estimates, holm

METHODS: tuple[Method, ...] = ("expanded", "percentile", "bca")
Draw = Callable[[np.random.Generator, int], np.ndarray]


def binary(n: int, p: float) -> Draw:
    return lambda rng, sets: (rng.random((sets, n)) < p).astype(float)


def clustered_binary(sizes: np.ndarray, p: float, correlation: float) -> Draw:
    strength = 1 / correlation - 1

    def draw(rng: np.random.Generator, sets: int) -> np.ndarray:
        share = rng.beta(p * strength, (1 - p) * strength, (sets, len(sizes)))
        return (rng.random((sets, sizes.sum())) < np.repeat(share, sizes, axis=1)).astype(float)

    return draw


def changes(n: int, share: float, balance: float) -> Draw:
    """Differences of two 0/1 scores: a share of the questions changes, wins exceed losses by balance."""

    def draw(rng: np.random.Generator, sets: int) -> np.ndarray:
        signs = np.where(rng.random((sets, n)) < (1 + balance) / 2, 1.0, -1.0)
        return np.where(rng.random((sets, n)) < share, signs, 0.0)

    return draw


def partial_credit(n: int, zero: float) -> Draw:
    """Scores like F1: many zeros, the rest between 0 and 1; mean (1 - zero) * 3 / 4."""
    return lambda rng, sets: np.where(rng.random((sets, n)) < zero, 0.0, rng.beta(3, 1, (sets, n)))


def coverage(
    draw: Draw, truth: float, clusters: list[str] | None = None, *, sets: int, seed: int, resamples: int = 1999
) -> dict[str, float]:
    """Share of the 95 % intervals that hold the truth, by method; datasets of a batch share their resamples."""
    rng = np.random.default_rng(seed)
    hits = dict.fromkeys(METHODS, 0.0)
    batches = -(-sets // 500)
    for _ in range(batches):
        units = units_of(draw(rng, 500), clusters)
        means = bootstrap_means(units, int(rng.integers(1 << 30)), resamples)
        for method in METHODS:
            spread = distribution(means, units.means, units.skew, len(units.counts), method)
            low, high = spread.interval(0.95)
            hits[method] += float(((low <= truth + 1e-12) & (truth - 1e-12 <= high)).mean())
    return {method: count / batches for method, count in hits.items()}


def documents(sizes: np.ndarray) -> list[str]:
    return [f"d{number}" for number in np.repeat(np.arange(len(sizes)), sizes)]


def cells(full: bool) -> Iterator[tuple[str, Draw, float, list[str] | None]]:
    """What lies inside the promise: n ≥ 200, p in [.2, .8], ≥ 30 documents."""
    for n in (200, 500, 1000) if full else (200,):
        for p in (0.2, 0.35, 0.5, 0.65, 0.8) if full else (0.2, 0.5):
            yield f"0/1, n={n}, p={p}", binary(n, p), p, None
    for n in (200, 500) if full else (200,):
        for zero in (0.2, 0.5, 0.7) if full else (0.7,):
            yield f"f1-like, n={n}, {zero:.0%} zeros", partial_credit(n, zero), (1 - zero) * 0.75, None
        for share, balance in ((0.1, 0.0), (0.1, 0.5), (0.3, 0.2)) if full else ((0.2, 0.3),):
            name = f"difference, n={n}, {share:.0%} change, balance {balance}"
            yield name, changes(n, share, balance), share * balance, None
    for number in (30, 60) if full else (30,):
        shapes = {
            "equal": np.full(number, 10),
            "random": 1 + np.bincount(np.random.default_rng(number).integers(0, number, 9 * number), minlength=number),
        }
        for shape, sizes in shapes.items():
            for p in (0.2, 0.5, 0.8) if full else (0.5,):
                for correlation in (0.1, 0.3) if full else (0.3,):
                    name = f"{number} {shape} documents, n={sizes.sum()}, p={p}, correlation {correlation}"
                    yield name, clustered_binary(sizes, p, correlation), p, documents(sizes)


@pytest.mark.slow
def test_default_intervals_cover_at_93_to_97_percent_small() -> None:
    for name, draw, truth, clusters in cells(full=False):
        result = coverage(draw, truth, clusters, sets=1000, seed=4, resamples=999)["expanded"]
        # Three standard errors of a thousand datasets on top of the promise.
        assert 0.93 - 0.024 <= result <= 0.97 + 0.017, (name, result)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_default_intervals_cover_at_93_to_97_percent() -> None:
    results = {}
    for name, draw, truth, clusters in cells(full=True):
        results[name] = coverage(draw, truth, clusters, sets=5000, seed=11)
        print(f"{name:<62}" + "  ".join(f"{method} {share:.3f}" for method, share in results[name].items()), flush=True)
    for method in METHODS:
        shares = [shares[method] for shares in results.values()]
        print(f"{method}: {min(shares):.3f} to {max(shares):.3f} over {len(shares)} cells")
    wrong = {name: shares["expanded"] for name, shares in results.items() if not 0.93 <= shares["expanded"] <= 0.97}
    assert not wrong


UNEVEN = 1 + np.random.default_rng(30).geometric(0.1, 30)
"""Sizes of thirty documents of which a few hold most questions."""

POOR = {
    "0/1, n=50, p=.05": (binary(50, 0.05), 0.05, None),
    "0/1, n=200, p=.02": (binary(200, 0.02), 0.02, None),
    "10 documents, p=.2": (clustered_binary(np.full(10, 30), 0.2, 0.5), 0.2, documents(np.full(10, 30))),
    "30 uneven documents, p=.2": (clustered_binary(UNEVEN, 0.2, 0.5), 0.2, documents(UNEVEN)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", POOR)
def test_intervals_that_fall_short_of_their_coverage_are_flagged(name: str) -> None:
    draw, truth, clusters = POOR[name]
    result = coverage(draw, truth, clusters, sets=2000, seed=2, resamples=999)
    print(name, result)
    assert result["expanded"] < 0.93
    flagged = estimates(draw(np.random.default_rng(5), 200), clusters=clusters, resamples=50)
    assert np.mean([item.reliable for item in flagged]) < 0.02
    assert all(item.reliable == (item.doubt == "") for item in flagged)


@pytest.mark.slow
def test_intervals_inside_the_promise_are_not_flagged() -> None:
    for name, draw, _, clusters in cells(full=False):
        columns = draw(np.random.default_rng(6), 200)
        if name.startswith("difference"):
            results = [difference(row, 0 * row, clusters=clusters, resamples=50) for row in columns[:40]]
        else:
            results = estimates(columns, clusters=clusters, resamples=50)  # type: ignore[assignment]
        # Around half of the datasets of p = .2 have a share just outside.
        assert np.mean([item.reliable for item in results]) > (0.4 if "p=0.2" in name else 0.9), name


def null_p_values(draw: Draw, sets: int, seed: int, resamples: int = 999) -> np.ndarray:
    rng = np.random.default_rng(seed)
    blocks = [sign_flip_ps(draw(rng, 50).T, int(rng.integers(1 << 30)), resamples) for _ in range(-(-sets // 50))]
    return np.concatenate(blocks)


@pytest.mark.parametrize(
    "sets", [pytest.param(500, marks=pytest.mark.slow), pytest.param(20_000, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])]
)
def test_p_values_are_uniform_under_the_null(sets: int) -> None:
    continuous = null_p_values(lambda rng, k: rng.normal(size=(k, 80)), sets, seed=3)
    assert stats.kstest(continuous, "uniform").pvalue > 0.001
    discrete = null_p_values(changes(200, 0.2, 0.0), sets, seed=4)
    for name, p in (("continuous", continuous), ("0/1 differences", discrete)):
        shares = {alpha: float((p <= alpha).mean()) for alpha in (0.01, 0.05, 0.1, 0.5)}
        print(name, shares)
        for alpha, share in shares.items():
            assert share <= alpha + 3 * np.sqrt(alpha * (1 - alpha) / sets), (name, alpha)


def gate_outcomes(truth: float, *, strict: bool, sets: int, seed: int, documents_of: int = 0) -> dict[str, float]:
    """Shares of outcomes at a margin of 2 points, 400 questions of which a fifth changes."""
    rng = np.random.default_rng(seed)
    counts = dict.fromkeys(("pass", "regressed", "inconclusive"), 0)
    clusters = documents(np.full(400 // documents_of, documents_of)) if documents_of else None
    for row in changes(400, 0.2, truth / 0.2)(rng, sets):
        result = non_inferiority(
            row, 0 * row, margin=0.02, strict=strict, clusters=clusters, resamples=999, seed=int(rng.integers(1 << 30))
        )
        counts[result.outcome] += 1
    return {name: count / sets for name, count in counts.items()}


@pytest.mark.parametrize(
    "sets", [pytest.param(200, marks=pytest.mark.slow), pytest.param(10_000, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])]
)
def test_the_gate_errs_as_rarely_as_it_says(sets: int) -> None:
    allowed = 0.025 + 0.005 + 3 * np.sqrt(0.025 * 0.975 / sets)
    for name, documents_of in (("questions", 0), ("40 documents", 10)):
        at_margin = gate_outcomes(-0.02, strict=False, sets=sets, seed=1, documents_of=documents_of)
        equal_strict = gate_outcomes(0.0, strict=True, sets=sets, seed=2, documents_of=documents_of)
        print(f"{name}: truth at the margin {at_margin}; truth equal, strict {equal_strict}")
        assert at_margin["pass"] <= allowed
        assert at_margin["regressed"] <= allowed
        assert equal_strict["regressed"] <= allowed
    # And it does see what is there to be seen.
    fell, rose = (gate_outcomes(truth, strict=False, sets=sets, seed=3) for truth in (-0.1, 0.06))
    print(f"truth -10 points {fell}; truth +6 points {rose}")
    assert fell["regressed"] > 0.9
    assert rose["pass"] > 0.9


@pytest.mark.parametrize(
    "sets", [pytest.param(150, marks=pytest.mark.slow), pytest.param(4000, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])]
)
def test_several_metrics_raise_no_more_false_alarms_than_one(sets: int) -> None:
    rng = np.random.default_rng(8)
    uncorrected = corrected = passed = 0
    for number in range(sets):
        columns = {f"m{k}": row for k, row in enumerate(changes(300, 0.3, -0.02 / 0.3)(rng, 5))}
        base = {name: np.zeros(300) for name in columns}
        result = decide_all(columns, base, margins=0.02, resamples=999, seed=number)
        corrected += result.outcome == "regressed"
        uncorrected += any(decision.p <= 0.025 for decision in result.decisions.values())
        # One metric at the margin, four clearly fine: the whole passes falsely only where that one does.
        for name in list(columns)[1:]:
            columns[name] = changes(300, 0.3, 0.5)(rng, 1)[0]
        passed += decide_all(columns, base, margins=0.02, resamples=999, seed=number).outcome == "pass"
    print(
        f"5 metrics at the margin: alarms {corrected / sets:.4f} with Holm, {uncorrected / sets:.4f} without; "
        f"one at the margin beside four fine ones: passes {passed / sets:.4f}"
    )
    allowed = 0.025 + 0.005 + 3 * np.sqrt(0.025 * 0.975 / sets)
    assert corrected / sets <= allowed
    assert passed / sets <= allowed
    assert uncorrected > corrected


@pytest.mark.parametrize(
    "sets", [pytest.param(150, marks=pytest.mark.slow), pytest.param(3000, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])]
)
def test_equal_methods_are_rarely_significantly_below_the_best(sets: int) -> None:
    rng = np.random.default_rng(9)
    all_pairs = against_best = missed = 0
    for _ in range(sets):
        # Ten methods, equal in truth, that share the difficulty of the questions.
        hard = rng.beta(1, 1, 200)
        columns = (rng.random((10, 200)) < hard).astype(float)
        pairs = all_differences(columns)
        results = bands(pairs)
        all_pairs += any(not item.best for item in results)
        missed += any(item.low > 1 or item.high < 10 for item in results)
        best = int(np.argmax(columns.mean(axis=1)))
        p = pairs.p[best]
        against_best += min(holm([value for row, value in enumerate(p) if row != best])) <= 0.05
    print(
        f"ten equal methods: one significantly below the best in {all_pairs / sets:.3f} of all boards, Holm over all pairs, "
        f"{against_best / sets:.3f} over the pairs with the best; sure ranks wrong {missed / sets:.3f}"
    )
    assert all_pairs / sets <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / sets)
    assert missed / sets <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / sets)
    assert against_best > all_pairs
