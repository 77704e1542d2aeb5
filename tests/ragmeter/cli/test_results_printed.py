"""Printed comparisons and gates: stars, outcomes, intervals and JSON never contradict each other."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, DataReference
from benchmarks.schema import Question
from judges.metric import parse
from methods.api import Prediction
from ragmeter.show import console
from results.store.store import FINISHED, Run, Store
from tests.support.toy import CARD

pytestmark = pytest.mark.slow

QUESTIONS = 60
SHIFTS = (0.0, 0.02, 0.05, 0.08, 0.12, 0.2)
METRICS = ("em", "f1", "recall@5", "perplexity")
NUMBER = r"[-+−]?(?:\d+(?:\.\d+)?|∞)(?:e[-−]\d+)?"
DIFFERENCE = re.compile(rf"  ([+−]\d+\.\d)(?: ± ({NUMBER})| \[({NUMBER}), ({NUMBER})\])(\*{{0,2}}|\?| \?)  ")
GATED = re.compile(rf"  difference ({NUMBER}) \[({NUMBER}), ({NUMBER})\], margin ({NUMBER})(?:pp)?(?=, )")
GATED_VALUES = re.compile(rf"  baseline ({NUMBER}), candidate ({NUMBER})")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a base and methods that are a little better or worse, on bounded metrics and an unbounded lower-is-better one."""
    rng, store = np.random.default_rng(3), Store(tmp_path_factory.mktemp("printed") / "store")
    benchmark = Benchmark(
        DataReference("toy", None, "dev"), 1, CARD, [Question(f"q{n}", f"what {n}?", ("a",)) for n in range(QUESTIONS)], Corpus.of([])
    )
    store.put_benchmark(benchmark, benchmark.fingerprint)
    metrics = [parse(metric) for metric in METRICS]
    store.put_cards([], metrics)
    ids = [str(metric) for metric in metrics]
    ease = rng.random(QUESTIONS)
    for number, shift in enumerate(SHIFTS):
        run = f"m{number}"
        store.start(Run(run, run, "x", "retriever", {"n": number}, "toy:dev", benchmark.fingerprint, "distractor", 0, QUESTIONS, {}))
        hits = (rng.random(QUESTIONS) < np.clip(ease + shift, 0, 1)).astype(float)
        graded = np.clip(ease + shift * rng.random(QUESTIONS) * 2, 0, 1)
        ranked = np.clip(ease * 0.9 - 0.3 * shift + 0.1 * rng.random(QUESTIONS), 0, 1)
        fluency = 1 + rng.lognormal(2 + shift, 0.3, QUESTIONS)
        scores = dict(zip(ids, (hits, graded, ranked, fluency), strict=True))
        store.append(run, [Prediction(f"q{n}", "x") for n in range(QUESTIONS)], scores)
        store.end(run, FINISHED)
    names = [f"m{number}" for number in range(len(SHIFTS))]
    store.put_experiment("toy", "name: toy", None, None, "m0", names, names=names, metrics=[ids] * len(names))
    return store.folder


@pytest.fixture
def ragmeter(folder: Path, call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    for name, value in {"NO_COLOR": "1", "RAGMETER_STORE": str(folder)}.items():
        monkeypatch.setenv(name, value)
    # A console reads the terminal width when it is created, which may be before this test.
    monkeypatch.setattr(console.out, "_width", 150)
    return call


def number(text: str) -> float:
    return float(text.replace("−", "-").replace("∞", "inf"))


def path(method: str) -> str:
    return f"toy/{method}/toy:dev/distractor/0"


def test_star_is_printed_exactly_if_the_printed_interval_excludes_zero(ragmeter: Callable[..., Any]) -> None:
    starred = []
    for other in range(1, len(SHIFTS)):
        text = ragmeter("results", "compare", path("m0"), path(f"m{other}"), "--count", "0").out
        known = json.loads(ragmeter("results", "compare", path("m0"), path(f"m{other}"), "--count", "0", "--json").out)
        cells = DIFFERENCE.findall(text)
        assert len(cells) == len(METRICS) == len(known["metrics"])
        marks = []
        for (value, half, low, high, mark), item in zip(cells, known["metrics"], strict=True):
            ends = (number(value) - number(half), number(value) + number(half)) if half else (number(low), number(high))
            assert mark.startswith("*") == (ends[0] > 0 or ends[1] < 0), text
            result = item["difference"]
            assert mark.startswith("*") == (result["p_holm"] < 0.05) == (result["low"] > 0 or result["high"] < 0)
            marks.append(mark.startswith("*"))
        assert ("marks hold for" in text) == any(marks)
        assert "plain numbers as they are" in text
        assert ("± half" in text) == ("\u00b1 " in text.replace("± half", ""))
        starred += marks
    assert {True, False} == set(starred)


def test_printed_gate_bounds_agree_with_the_outcome(ragmeter: Callable[..., Any]) -> None:
    outcomes = set()
    for baseline, candidate, metric in (("m0", "m5", "recall@5"), ("m0", "m5", "perplexity"), ("m0", "m5", "f1")):
        command = ["gate", "--baseline", path(baseline), "--candidate", path(candidate), "--metric", metric, "--margin"]
        first = json.loads(ragmeter(*command, "5pp", "--json").out)["metrics"][0]
        side = 1 if first["higher_is_better"] else -1
        loss = min(-side * first["difference"][end] for end in ("low", "high"))
        # Just inside and just outside the bound that decides on a regression.
        for margin in (0.05, *([loss - 3e-8, loss + 3e-8] if loss > 0.001 else [])):
            done = ragmeter(*command, f"{margin:.12f}")
            (printed,) = GATED.findall(done.out)
            value, low, high, bar = map(number, printed)
            least, most = (low, high) if side > 0 else (-high, -low)
            expected = "regressed" if most < -bar else "pass" if least > -bar else "inconclusive"
            outcome = done.out.rstrip().rsplit("\n", 1)[-1]
            assert outcome == expected, done.out + done.err
            assert low <= value <= high
            outcomes.add(outcome)
    assert outcomes == {"pass", "regressed", "inconclusive"}


@pytest.mark.parametrize(("metric", "scale"), [("perplexity", 1), ("f1", 100)])
def test_gate_prints_numbers_on_the_scale_of_tables(ragmeter: Callable[..., Any], tmp_path: Path, metric: str, scale: int) -> None:
    command = ["gate", "--baseline", path("m0"), "--candidate", path("m5"), "--metric", metric, "--margin", "0.25"]
    first = json.loads(ragmeter(*command, "--json").out)["metrics"][0]
    done = ragmeter(*command, "--comment", str(tmp_path / "c.md"), "--summary", str(tmp_path / "s.md"))
    means = [f"{scale * first[side]:.2f}" for side in ("baseline", "candidate")]
    assert GATED_VALUES.findall(done.out) == [tuple(means)]
    assert number(GATED.findall(done.out)[0][3]) == pytest.approx(0.25 * scale)
    for file in ("c.md", "s.md"):
        assert f"| {' | '.join(means)} | " in (tmp_path / file).read_text("utf-8")
