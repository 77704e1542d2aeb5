"""`ragmeter results style`: printed gaps and curves equal the paired statistics of stored scores."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.registry import Benchmark, load
from benchmarks.schema import Question
from benchmarks.styles import STYLED
from benchmarks.styles.mix import styled
from methods.api import Prediction
from ragmeter.show import console
from results.boards.style import style_curves, style_gaps
from results.boards.tables import plus_minus
from results.statistics.intervals import difference, differences_together, estimate
from results.store.store import FINISHED, Run, Store
from results.store.variants import StyledRun, style_of_name
from tests.support.errors import raises

METRIC = "em(rules=squad)#v2"
QUESTIONS = 40
UNITS = [number % 30 for number in range(QUESTIONS)]
"""The world of each question: thirty in turn."""


Command = Callable[..., Any]


@pytest.fixture
def ragmeter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Command) -> Command:
    """Return a function that runs the real command line with a store of this test, in this process."""
    for name, value in {"NO_COLOR": "1", "RAGMETER_STORE": str(tmp_path / "store")}.items():
        monkeypatch.setenv(name, value)
    # A console keeps the width from its creation by another test of this process.
    monkeypatch.setattr(console.out, "_width", 200)
    return call


Scores = Mapping[tuple[str, str], np.ndarray]
"""Scores by style and method, shape (questions,)."""


def survivors(mix: str) -> np.ndarray:
    """Return which questions keep their gold string."""
    return np.arange(QUESTIONS) % 5 != 0 if mix != "formal" else np.ones(QUESTIONS, dtype=bool)


MIXES: dict[str, dict[str, float]] = {
    "formal": {"informal": 0.0},
    "half": {"informal": 0.5},
    "informal": {"informal": 1.0},
    "humor": {"humor": 1.0},
}


@pytest.fixture(scope="module")
def benchmarks() -> dict[str, Benchmark]:
    """Return one base in four styles; losses of gold strings are made up, so that their share is known."""
    base = load("worlds/multihop:test").limited(QUESTIONS)
    results = {}
    for name, mix in MIXES.items():
        made = styled(base, mix=mix)
        questions = [
            replace(item, metadata={**item.metadata, STYLED: {**item.metadata[STYLED], "survived": bool(alive)}})
            for item, alive in zip(made.questions, survivors(name), strict=True)
        ]
        # Another style stores its questions in another order.
        results[name] = replace(made, questions=questions[::-1] if name == "humor" else questions)
    return results


def stored(
    folder: Path, benchmarks: Mapping[str, Benchmark], scores: Scores, k: Mapping[str, int] | None = None, *, remember: bool = True
) -> Store:
    """Create a store with one experiment `e` whose runs have these scores, in the base's question order."""
    store, runs, names = Store(folder), [], []
    order = [question.id for question in benchmarks["formal"].questions]
    if not remember:
        benchmarks = {name: replace(item, questions=list(map(_forgotten, item.questions))) for name, item in benchmarks.items()}
    for rendering in dict.fromkeys(rendering for rendering, _ in scores):
        store.put_benchmark(benchmarks[rendering], benchmarks[rendering].fingerprint)
    for number, ((rendering, method), values) in enumerate(scores.items()):
        benchmark = benchmarks[rendering]
        described: dict[str, Any] = {
            "method": {"id": "full_context"},
            "rerankers": [{"id": method.partition(",")[0]}],
            "reader": None,
            "compressor": None,
            "k": (k or {}).get(method, 5),
            "depth": None,
        }
        kind = "control" if method == "control" else "retriever"
        run = Run(
            f"run{number:04d}",
            method,
            "full_context",
            kind,
            described,
            benchmark.name,
            benchmark.fingerprint,
            "distractor",
            0,
            QUESTIONS,
            {},
        )
        store.start(run)
        by_id = dict(zip(order, values, strict=True))
        queries = [question.id for question in benchmark.questions]
        store.append(run.run, [Prediction(item, "x") for item in queries], {METRIC: np.array([by_id[o] for o in queries])})
        store.end(run.run, FINISHED)
        runs.append(run.run)
        names.append(method)
    store.put_experiment("e", "name: e", None, None, None, runs, names=names)
    return store


def _forgotten(question: Question) -> Question:
    return replace(question, metadata={key: value for key, value in question.metadata.items() if key != STYLED})


@pytest.fixture(scope="module")
def scores() -> dict[tuple[str, str], np.ndarray]:
    draw = np.random.default_rng(0)
    results = {}
    for method in ("base", "SARK", "control"):
        formal = (draw.random(QUESTIONS) < 0.8) * 1.0
        results["formal", method] = formal
        for rendering, kept in (("half", 0.8), ("informal", 0.6), ("humor", 0.9)):
            results[rendering, method] = formal * (draw.random(QUESTIONS) < kept)
    results["informal", "SARK"][3] = np.nan
    return results


@pytest.fixture(scope="module")
def _full(tmp_path_factory: pytest.TempPathFactory, benchmarks: dict[str, Benchmark], scores: dict[tuple[str, str], np.ndarray]) -> Path:
    return stored(tmp_path_factory.mktemp("drops") / "store", benchmarks, scores).folder


@pytest.fixture
def full(_full: Path, tmp_path: Path) -> Store:
    """Return the store for commands of this test, with all of these scores."""
    return Store(Path(shutil.copytree(_full, tmp_path / "store")))


def test_style_is_parsed_from_the_benchmark_name(benchmarks: dict[str, Benchmark]) -> None:
    results = {name: style_of_name(benchmark.name) for name, benchmark in benchmarks.items()}
    assert {item.base for item in results.values()} == {"worlds/multihop:test"}
    assert {name: item.name for name, item in results.items()} == {
        "formal": "formal",
        "half": "50 % informal",
        "informal": "informal",
        "humor": "humor",
    }
    assert {name: item.formal for name, item in results.items()} == {"formal": 1, "half": 0.5, "informal": 0, "humor": 0}
    assert results["half"].drawn == "by=rule,seed=0"
    assert style_of_name("worlds/multihop:test") == StyledRun("worlds/multihop:test") == results["formal"]
    several = style_of_name("styled:dev(nq/dpr,informal=0.3,humor=0.2,by=gpt-x+rule,seed=7,draw=coin)")
    assert (several.base, several.formal, several.style) == ("nq/dpr:dev", 0.5, None)
    assert (several.name, several.drawn) == ("30 % informal + 20 % humor", "by=gpt-x+rule,seed=7,draw=coin")


@pytest.mark.slow
def test_style_drop_is_formal_minus_styled_paired_by_question(full: Store, scores: dict[tuple[str, str], np.ndarray]) -> None:
    (table,) = style_gaps(full, "e", ["em"])
    assert (table.base, table.setting, table.metric, table.scale) == ("worlds/multihop:test", "distractor", METRIC, 100)
    assert [row.method for row in table.rows] == ["base", "SARK", "control"]
    for row in table.rows:
        formal = scores["formal", row.method]
        assert row.formal == replace(estimate(formal, clusters=UNITS), unscorable=row.formal.unscorable)
        named = {"50 % informal": "half", "informal": "informal", "humor": "humor"}
        assert [gap.styled.name for gap in row.gaps] == list(named)
        columns = np.array([scores[named[gap.styled.name], row.method] for gap in row.gaps])
        together = differences_together(np.broadcast_to(formal, columns.shape), columns, clusters=UNITS)
        for gap, values, expected in zip(row.gaps, columns, together.differences, strict=True):
            mine = gap.result.gap
            assert (mine.value, mine.n, mine.p) == pytest.approx((expected.value, expected.n, expected.p), nan_ok=True)
            assert (mine.low, mine.high) == pytest.approx((expected.low, expected.high), nan_ok=True)
            both = ~np.isnan(values)
            assert gap.value.value == pytest.approx(values[both].mean())
            assert gap.relative == pytest.approx(1 - values[both].mean() / formal[both].mean())
        assert [gap.result.p_holm for gap in row.gaps] == pytest.approx(list(together.p), nan_ok=True)


@pytest.mark.slow
def test_style_drop_is_compared_with_the_reference_by_question(
    full: Store, scores: dict[tuple[str, str], np.ndarray], ragmeter: Command
) -> None:
    (alone,) = style_gaps(full, "e", ["em"])
    assert alone.reference is None
    assert all(gap.beyond is None for row in alone.rows for gap in row.gaps)
    (table,) = style_gaps(full, "e", ["em"], reference="base")
    assert table.reference == "base"
    named = {"50 % informal": "half", "informal": "informal", "humor": "humor"}
    costs = {
        method: {name: scores["formal", method] - scores[rendering, method] for name, rendering in named.items()}
        for method in ("base", "SARK", "control")
    }
    assert all(gap.beyond is None for gap in table.rows[0].gaps)
    others = [row.method for row in table.rows[1:]]
    for name in named:
        columns = np.array([costs[method][name] for method in others])
        together = differences_together(columns, np.broadcast_to(costs["base"][name], columns.shape), clusters=UNITS)
        gaps = [gap for row in table.rows[1:] for gap in row.gaps if gap.styled.name == name]
        for gap, expected, p, column in zip(gaps, together.differences, together.p, columns, strict=True):
            assert gap.beyond is not None
            ends = expected.value, expected.low, expected.high
            assert (gap.beyond.value, gap.beyond.low, gap.beyond.high) == pytest.approx(ends, nan_ok=True)
            assert gap.beyond.value == pytest.approx(np.nanmean(column - costs["base"][name]))
            assert gap.beyond_p == pytest.approx(p, nan_ok=True)
    done = ragmeter("results", "style", "gap", "e", "--metric", "em", "--reference", "base", "--json")
    (result,) = json.loads(done.out)["tables"]
    assert result["reference"] == "base"
    assert result["methods"][0]["styles"][0]["beyond_reference"] is None
    value = result["methods"][1]["styles"][0]["beyond_reference"]["value"]
    assert value == pytest.approx(table.rows[1].gaps[0].beyond.value)  # type: ignore[union-attr]
    missing = ragmeter("results", "style", "gap", "e", "--reference", "bse")
    assert missing.code == 2
    assert "did you mean 'base'" in missing.err


@pytest.mark.slow
def test_content_loss_is_separated_and_the_parts_sum_to_the_gap(full: Store, scores: dict[tuple[str, str], np.ndarray]) -> None:
    (table,) = style_gaps(full, "e", ["em"], styles=["informal"])
    for row in table.rows:
        gap = next(gap for gap in row.gaps if gap.styled.name == "informal")
        formal, values = scores["formal", row.method], scores["informal", row.method]
        both, alive = ~np.isnan(values), survivors("informal")
        delta = np.where(both, formal - values, 0.0)
        result = gap.result
        assert gap.content_known
        assert result.content_lost.value == pytest.approx((~alive)[both].mean())
        assert result.from_content.value == pytest.approx(delta[~alive].sum() / both.sum())
        assert result.from_style.value == pytest.approx(delta[alive].sum() / both.sum())
        assert result.from_content.value + result.from_style.value == pytest.approx(result.gap.value)
        assert result.gap_where_survived.value == pytest.approx(delta[alive & both].mean())


@pytest.mark.slow
def test_without_evidence_drop_is_split_by_candidates_that_lost_the_answer(
    tmp_path: Path, benchmarks: dict[str, Benchmark], scores: dict[tuple[str, str], np.ndarray]
) -> None:
    """With any remaining candidate counted, no loss would be detected."""
    before, after = np.arange(QUESTIONS) % 4, np.arange(QUESTIONS) % 4 - (np.arange(QUESTIONS) % 3 == 0)
    after = np.maximum(after, 0)

    def thinned(benchmark: Benchmark) -> Benchmark:
        results = []
        for item, had, has in zip(benchmark.questions, before.tolist(), after.tolist(), strict=True):
            met = {"counts": {}, "among": "candidates", "with_answer_before": had, "with_answer": has, "answers_kept": has}
            met["survived"] = True if had else None
            results.append(replace(item, evidence=(), metadata={**item.metadata, STYLED: met}))
        return replace(benchmark, questions=results)

    options = {name: thinned(benchmarks[name]) for name in ("formal", "informal")}
    queries = {key: values for key, values in scores.items() if key[0] in options}
    (table,) = style_gaps(stored(tmp_path, options, queries), "e", ["em"])
    for row in table.rows:
        formal, values = scores["formal", row.method], scores["informal", row.method]
        both, lost = ~np.isnan(values), after < before
        (gap,) = row.gaps
        assert gap.result.content_lost.value == pytest.approx(lost[both].mean())
        assert gap.result.gap_where_survived.value == pytest.approx((formal - values)[both & ~lost].mean())
        holding = both & (before > 0)
        assert gap.answers_kept.value == pytest.approx((after[holding] / before[holding]).mean())
        assert gap.answers_kept.n == holding.sum()


@pytest.mark.slow
def test_mean_style_gap_excludes_controls(full: Store, scores: dict[tuple[str, str], np.ndarray]) -> None:
    (table,) = style_gaps(full, "e", ["em"])
    by_hand = np.mean([np.nanmean(scores["formal", m] - scores["humor", m]) for m in ("base", "SARK")])
    assert table.average["humor"] == pytest.approx(by_hand)


@pytest.mark.slow
def test_unrecorded_content_survival_is_reported_as_unknown(
    tmp_path: Path, benchmarks: dict[str, Benchmark], scores: dict[tuple[str, str], np.ndarray], ragmeter: Command
) -> None:
    stored(tmp_path / "store", benchmarks, scores, remember=False)
    done = ragmeter("results", "style", "gap", "e", "--json")
    for method in json.loads(done.out)["tables"][0]["methods"]:
        for style in method["styles"]:
            assert style["content_lost"] is style["answers_kept"] is None
            assert style["gap"]["n"]
    assert "unknown which answers restyling lost" in ragmeter("results", "style", "gap", "e").out


@pytest.mark.slow
def test_seeds_of_a_method_share_one_row(tmp_path: Path, benchmarks: dict[str, Benchmark]) -> None:
    draw = np.random.default_rng(1)
    options = {
        (rendering, f"SARK #{seed}"): (draw.random(QUESTIONS) < 0.5) * 1.0 for rendering in ("formal", "informal") for seed in (0, 1, 2)
    }
    store = stored(tmp_path, benchmarks, options)
    assert [row.method for row in style_gaps(store, "e")[0].rows] == ["SARK #0", "SARK #1", "SARK #2"]
    (row,) = style_gaps(store, "e", over_seeds=True)[0].rows
    mean = {t: np.mean([options[t, f"SARK #{seed}"] for seed in (0, 1, 2)], axis=0) for t in ("formal", "informal")}
    assert row.method == "SARK (3 seeds)"
    expected = difference(mean["formal"], mean["informal"], clusters=UNITS)
    assert (row.gaps[0].result.gap.value, row.gaps[0].result.gap.low) == pytest.approx((expected.value, expected.low))


@pytest.mark.slow
def test_style_gap_requires_both_styles(
    tmp_path: Path, benchmarks: dict[str, Benchmark], scores: dict[tuple[str, str], np.ndarray]
) -> None:
    half = {key: value for key, value in scores.items() if key[0] in ("half", "humor")}
    store = stored(tmp_path, benchmarks, half)
    with raises("experiment-without-styles") as caught:
        style_gaps(store, "e")
    assert "{informal: 0}" in str(caught.value.try_this)
    with raises("experiment-without-curve"):
        style_curves(store, "e", "k")


@pytest.mark.slow
def test_curve_over_style_shares_ends_at_formal_candidates(full: Store, scores: dict[tuple[str, str], np.ndarray]) -> None:
    informal, humor = style_curves(full, "e", "formal", ["em"])
    assert informal.title.startswith("worlds/multihop:test, informal")
    assert (informal.positions, humor.positions) == ((0, 0.5, 1), (0, 1))
    for curve in informal.curves:
        lists = [scores[rendering, curve.method] for rendering in ("informal", "half", "formal")]
        assert [point.value for point in curve.points.values()] == pytest.approx([np.nanmean(item) for item in lists])
        expected = difference(lists[-1], lists[0], clusters=UNITS)
        assert (curve.change.value, curve.change.p) == pytest.approx((expected.value, expected.p))


@pytest.mark.slow
def test_curve_over_depth_joins_methods_that_differ_only_in_k(tmp_path: Path, benchmarks: dict[str, Benchmark]) -> None:
    draw, depth = np.random.default_rng(2), {"SARK, K=5": 5, "SARK, K=20": 20, "base, K=5": 5, "other": 7}
    options = {("informal", name): (draw.random(QUESTIONS) < 0.5) * 1.0 for name in depth}
    (table,) = style_curves(stored(tmp_path, benchmarks, options, depth), "e", "k")
    assert table.title == "worlds/multihop:test, informal, setting distractor"
    (curve,) = table.curves
    assert (curve.method, list(curve.points)) == ("SARK", [5, 20])
    assert curve.points[20].value == options["informal", "SARK, K=20"].mean()


def columns(line: str) -> Sequence[str]:
    return [part for part in line.split("  ") if part.strip()]


@pytest.mark.slow
def test_style_command_prints_the_values_of_its_json(full: Store, ragmeter: Command) -> None:
    done = ragmeter("results", "style", "gap", "e", "--style", "informal")
    assert done.code == 0, done.err
    response = json.loads(ragmeter("results", "style", "gap", "--style", "informal", "--json").out)["tables"][0]
    base = next(row for row in response["methods"] if row["method"] == "base")
    gap = next(item for item in base["styles"] if item["style"] == "informal")
    line = next(line for line in done.out.splitlines() if line.startswith("base") and "50 %" not in line)
    assert f" {plus_minus(*(base['formal'][key] for key in ('value', 'low', 'high')))} " in line
    assert f"{plus_minus(*(gap['gap'][key] for key in ('value', 'low', 'high')), '{:+.1f}')}" in line
    assert f"{100 * gap['relative_gap']:+.1f} %" in line
    assert f"{100 * gap['content_lost']['value']:.1f}" in columns(line)[-3].strip()
    assert columns(line)[-4].strip() == f"{100 * gap['answers_kept']['value']:.1f}"
    assert "control (control)" in done.out
    assert "humor" not in done.out
    mean = next(line for line in done.out.splitlines() if line.startswith("(mean gap)") and "50 %" not in line)
    assert f"{100 * response['mean_gap']['informal']:+.1f}" in mean

    curve = ragmeter("results", "style", "curve", "e", "--over", "mix", "--metric", "em")
    assert curve.code == 0, curve.err
    assert "0 % formal" in curve.out
    assert "100 % formal" in curve.out
    wrong = ragmeter("results", "style", "curve", "e", "--over", "mixx")
    assert wrong.code == 2
    assert "did you mean 'mix'?" in wrong.err
    assert ragmeter("results", "style", "gap", "nowhere").code == 2
