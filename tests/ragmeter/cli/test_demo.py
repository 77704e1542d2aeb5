"""`ragmeter demo`: its parts, skipped parts, and printed lines. The complete demo runs in tests/test_wheel.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, DataReference
from benchmarks.schema import Question
from methods.registry import METHODS
from perf import results_page
from ragmeter import experiment as experiments
from ragmeter.cli import demo
from ragmeter.cli.demo import PARTS
from ragmeter.runner.experiment import How, run_experiment
from ragmeter.show.gains import AHEAD, APPROACHES, UNTESTED, Against, Gain, gains, in_sets
from results.boards.board import boards
from results.store.store import Store
from results.store.variants import without_options
from tests.results.gate.test_decision import run_of
from tests.support.toy import CARD
from tools.measure import rows_of


def test_demo_loads_shipped_checkpoints_or_trains_small_ones_on_request(tmp_path: Path) -> None:
    seen = set()
    for name in PARTS:
        shipped, trained = (experiments.load(name, profile=profile, store=tmp_path) for profile in (None, "train"))
        assert not shipped.trainings
        for training in trained.trainings:
            assert any(training in method.needs for method in trained.methods)
        names = {method.name for method in trained.methods}
        assert names <= {method.name for method in shipped.methods}
        seen |= names & set(APPROACHES)
        (reference,) = [method for method in trained.methods if method.name == trained.reference]
        assert METHODS.get(reference.composition.method.id).kind != "control"
    assert seen == set(APPROACHES)
    assert set(demo.LONGEST_FIRST) == set(PARTS)


def test_demo_skips_missing_or_faulty_real_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[..., Any]) -> None:
    (tmp_path / "data" / "musique").mkdir(parents=True)
    (tmp_path / "data" / "musique" / "musique_ans_v1.0_train.jsonl").write_text("{}\n")
    monkeypatch.setenv("RAGMETER_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(demo, "PARTS", {name: PARTS[name] for name in ("demo", "demo-real")})
    references: dict[str, list[str]] = {}

    def run(experiment: experiments.Experiment, *_: Any, **__: Any) -> list[Any]:
        references[experiment.name] = [str(benchmark.reference) for benchmark in experiment.benchmarks]
        if experiment.name == "demo-real":
            raise UserError("this record cannot be read")
        return []

    monkeypatch.setattr("ragmeter.runner.experiment.run_experiment", run)
    monkeypatch.setattr(demo, "_measure_at_once", lambda *_: set())
    monkeypatch.setattr("ragmeter.show.gains.gains", lambda *_, **__: [])
    done = call("demo", "--store", str(tmp_path / "store"))
    assert references["demo-real"] == ["musique/ans:train"]
    for text in ("hotpotqa/distractor:train, 2wikimultihopqa:dev", "1 of 2: ARK", "this record cannot be read"):
        assert text in done.err
    assert " leaderboard --open --store " in done.out
    assert done.code == 2
    monkeypatch.setattr(demo, "PARTS", {})
    assert call("demo", "--quiet", "--store", str(tmp_path / "store")).err == ""


EXPERIMENT = """
name: small
reference: base
metrics: [recall@5, mrr@5]
benchmarks:
  - {id: worlds/multihop, split: test, config: {questions: 90}}
methods:
  - {id: bm25, name: ARK, reader: retrieval_only}
  - {id: random, name: base, reader: retrieval_only}
  - {id: full_context, name: listed, reader: retrieval_only}
  - {id: oracle_evidence, reader: retrieval_only}
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[experiments.Experiment, Store]:
    store = Store(tmp_path_factory.mktemp("gains"))
    experiment = experiments.parse(EXPERIMENT, "small", store=store.folder)
    run_experiment(experiment, store, How(), talk=False)
    return experiment, store


@pytest.mark.slow
def test_gains_equal_the_board_differences_from_base_and_best_untrained_row(ran: tuple[experiments.Experiment, Store]) -> None:
    experiment, store = ran
    # BM25 plays the role of the approach, so it is a baseline too unless marked as trained.
    trained = replace(experiment, methods=tuple(replace(m, needs=(m,) if m.name == "ARK" else ()) for m in experiment.methods))  # type: ignore[arg-type]
    results = list(gains(trained, store, ["recall@5", "mrr@5"]))
    assert [gain.metric for gain in results] == ["recall@5", "mrr@5"]
    for gain in results:
        assert gain.strongest is not None
        for item in (gain.base, gain.strongest):
            assert item is not None
            (board,) = boards(store, "small", reference=item.name)
            (row,) = [row for row in board.rows if row.run.method == "ARK"]
            metric = next(metric for metric in board.metrics if metric.startswith(gain.metric))
            assert item.cell.difference == row.cells[metric].difference
        values = {row.run.method: row.cells[metric].estimate.value for row in board.rows}
        assert gain.strongest.name == max(("base", "listed"), key=values.__getitem__)
        # A verdict is the sign of the whole interval.
        low, high = gain.base.cell.difference.low, gain.base.cell.difference.high  # type: ignore[union-attr]
        assert gain.significant == (low > 0)
        assert gain.base.verdict.endswith("of") == (low > 0), (low, high)  # type: ignore[union-attr]
    assert "3 questions" not in results[0].asked
    assert without_options(results[0].board.dataset) in results[0].asked
    assert gain.to_json()["strongest"]["method"] == gain.strongest.name


@pytest.mark.slow
def test_demo_output_fits_two_screens_and_marks_insignificant_gains(
    ran: tuple[experiments.Experiment, Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, store = ran
    sure = next(gains(experiment, store, ["recall@5"]))
    few = Store(tmp_path)
    run_experiment(experiment, few, How(limit=2), talk=False)
    unsure = next(gains(experiment, few, ["recall@5"]))
    assert sure.significant
    assert sure.base is not None
    # An approach of one seed never beats its base, whatever the test says.
    assert not sure.beats
    difference = replace(sure.base.cell.difference, generalizes="new questions and new trainings")  # type: ignore[type-var]
    sure = replace(sure, base=replace(sure.base, cell=replace(sure.base.cell, difference=difference)))
    assert sure.beats
    assert not unsure.significant
    assert unsure.base is not None
    assert unsure.base.verdict == UNTESTED
    assert unsure.why_not()
    several = [replace(gain, approach=name) for name in APPROACHES for gain in (sure, unsure, unsure)]
    monkeypatch.setattr(demo, "out", Console(width=100, color_system=None))
    with demo.out.capture() as shown:
        demo.show_gains(several, trained=False)
    lines = shown.get().splitlines()
    assert len(lines) <= 2 * 40
    assert max(map(len, lines)) <= 100
    assert sum(line.startswith(f"{name}  recall@5 ") for name in APPROACHES for line in lines) == len(APPROACHES)
    with demo.out.capture() as shown:
        demo.show_gains([unsure], trained=True)
    assert "no gain over its base can be claimed for ARK" in " ".join(shown.get().split())
    rows = [
        row
        for _, row in results_page.gains(
            {"small": {"command": "ragmeter run small", "rows": json.loads(json.dumps(list(rows_of([sure, unsure]))))}}
        )
    ]
    assert ["beats its base" in row[3] for row in rows if "minus" not in row[0]] == [True, False]
    assert {row[4] for row in rows} == {"`ragmeter run small`"}


@pytest.mark.parametrize(("last", "verdict"), [(0.9, AHEAD), (0.3, f"not shown to be {AHEAD}")])
def test_gain_is_claimed_only_if_every_set_of_worlds_confirms_it(last: float, verdict: str, tmp_path: Path) -> None:
    store = Store(tmp_path)
    worlds = np.repeat(np.arange(36), 5)
    questions = [Question(f"q{n}", f"what {n}?", ("a",), metadata={"world": str(world)}) for n, world in enumerate(worlds)]
    benchmark = Benchmark(DataReference("toy", None, "dev"), 1, CARD.model_copy(update={"cluster": "world"}), questions, Corpus.of([]))
    store.put_benchmark(benchmark, benchmark.fingerprint)
    noise = np.tile([0.0, 0.02], 90)
    for name, values in (("base", 0.4 + noise), ("ARK", np.where(worlds % 3 == 2, last, 0.9) - noise)):
        run_of(store, benchmark, name, {"recall@5#v2": values.tolist()})
    store.put_experiment("e", "name: e", None, None, "base", ["base-fingerprint", "ARK-fingerprint"])
    (board,) = boards(store, "e")
    row = next(row for row in board.rows if row.run.method == "ARK")
    sets = in_sets(store, board, row.run.run, "recall@5#v2")
    assert sets == pytest.approx((0.48, 0.48, last - 0.42))
    assert Against("base", row.cells["recall@5#v2"]).verdict == AHEAD
    item = Against("base", row.cells["recall@5#v2"], sets)
    assert item.verdict == verdict
    gain = Gain("ARK", board, "recall@5", item, None, item.cell, ("whole passages", replace(item, name="whole")))
    assert gain.significant == (verdict == AHEAD)
    assert "whole passages, whole (" in gain.sentence()
    assert gain.significant or "−12.0" in gain.why_not()
    assert in_sets(store, board, "base-fingerprint", "recall@5#v2") == ()


def test_results_page_contains_every_claim_and_gain() -> None:
    text = results_page.page(f"# Results\n\n{results_page.MARK}")
    gains_shown = sum(
        1 + len({other["method"] for side in ("base", "strongest") if (other := row[side] or {}).get("value") is not None})
        for part in results_page.read("gains").values()
        for row in part["rows"]
    )
    claimed = sum(len(part["claims"]) for part in results_page.read("claims").values())
    simulated = sum(len(part["situations"]) for name in ("verdicts", "coverage") for part in results_page.read(name).values())
    sections = len(results_page.SECTIONS) + 1
    assert sum(line.startswith("| ") for line in text.splitlines()) == gains_shown + claimed + simulated + 2 * sections


@pytest.mark.parametrize(
    ("p", "p_control", "expected"),
    [
        (0.6, 0.001, ("No effect shown", "is detected")),
        (0.6, 0.4, ("No effect shown", "no evidence")),
        (0.01, 0.001, ("Significant difference", "+3.0")),
    ],
)
def test_results_of_real_text_are_read_with_their_positive_control(p: float, p_control: float, expected: tuple[str, ...]) -> None:
    def row(approach: str, p: float) -> dict[str, Any]:
        base = {"method": "base", "value": 0.03, "low": 0.0, "high": 0.06, "p_holm": p, "detectable": 0.05}
        return {"approach": approach, "asked": "files:test", "metric": "mrr@10", "scale": 100.0, "base": base}

    part = {"command": "ragmeter run sark/real", "rows": [row("SARK", p), row("control", p_control)], "control": "control"}
    (sentence,) = results_page.real_text("sark", {"sark/real": part})
    assert all(words in sentence for words in (*expected, "detectable difference 5.0"))
    assert not list(results_page.real_text("ark", {"sark/real": part}))


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        ("worlds/long:test", "worlds/long:test"),
        ("worlds/multihop:test(mix=single:1)", "worlds/multihop:test"),
        ("styled:test(worlds/multihop,formal=1,seed=0)", "worlds/multihop:test, formal"),
        ("styled:test(worlds/multihop,informal=0.5,by=rule,seed=0)", "worlds/multihop:test, 50 % informal"),
    ],
)
def test_demo_table_uses_short_dataset_names(dataset: str, expected: str) -> None:
    assert without_options(dataset) == expected
