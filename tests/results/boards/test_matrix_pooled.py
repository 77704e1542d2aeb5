"""Pooled differences of stored runs against sums over plain dictionaries of questions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, DataReference
from benchmarks.schema import Question
from leaderboard.matrix.exports import still_matrix
from methods.api import Prediction
from results.statistics.difference import Range
from results.statistics.intervals import difference
from results.store.store import FINISHED, Run, Store
from tests.support.toy import CARD

IDS = [f"q{n}" for n in range(40)]
METRICS = ("em#v2", "recall@5#v2")
Scores = dict[str, dict[str, dict[str, float]]]
"""By split, method and question."""


def filled(folder: Path, source: str = "", extra: tuple[str, ...] = ()) -> tuple[Store, Scores]:
    """Two splits of the same questions, stored in other orders; the first is scored on `extra`, too."""
    rng, store, scores = np.random.default_rng(4), Store(folder), dict[str, dict[str, dict[str, float]]]()
    gain = dict(zip(IDS, rng.uniform(-0.2, 0.4, len(IDS)).tolist(), strict=True))
    for split in ("first", "second"):
        order = [str(name) for name in rng.permutation(IDS)]
        questions = [Question(name, f"what {name}?", ("a",)) for name in order]
        benchmark = Benchmark(DataReference("toy", None, split), 1, CARD, questions, Corpus.of([]))
        store.put_benchmark(benchmark, benchmark.fingerprint)
        scores[split] = {}
        for name, share in (("base", 0.0), ("ours", 1.0)):
            known = scores[split][name] = {one: float(rng.uniform(0.4, 0.5)) + share * gain[one] for one in order}
            run = f"{split}-{name}"
            store.start(Run(run, name, "x", "retriever", {}, f"toy:{split}", benchmark.fingerprint, "distractor", 0, len(order), {}))
            values = np.array(list(known.values()))
            scored = dict.fromkeys((*METRICS, *(extra if split == "first" else ())), values)
            store.append(run, [Prediction(name, "x") for name in order], scored)
            store.end(run, FINISHED)
    runs = [f"{split}-{name}" for split in scores for name in ("base", "ours")]
    names, metrics = ["base", "ours"] * 2, [list(METRICS)] * 4
    store.put_experiment("toy", source, None, None, "base", runs, names=names, metrics=metrics)
    return store, scores


def test_questions_that_benchmarks_store_in_other_orders_are_matched_by_id(tmp_path: Path) -> None:
    store, scores = filled(tmp_path / "store")
    whole = still_matrix(store, "toy")
    assert whole is not None
    (result,) = [line.pooled for line in whole.board.overall if line.pooled is not None]
    pairs = [(scores[split]["ours"][one], scores[split]["base"][one], one) for one in IDS for split in scores]
    expected = difference(*np.array([pair[:2] for pair in pairs]).T, clusters=[pair[2] for pair in pairs], metric=Range())
    assert (result.value, result.low, result.high) == pytest.approx((expected.value, expected.low, expected.high), abs=1e-6)
    # With the questions of one benchmark in the order of the other the interval would be another one.
    orders = [list(scores[split]["ours"]) for split in scores]
    positions = [str(position) for order in orders for position, _ in enumerate(order)]
    rows = [[scores[split][name][one] for split in scores for one in scores[split][name]] for name in ("ours", "base")]
    wrong = difference(*rows, clusters=positions, metric=Range())
    assert wrong.high - wrong.low < 0.9 * (expected.high - expected.low)


@pytest.mark.parametrize(("source", "metric"), [("", "em#v2"), ("primary: {metric: recall@5}", "recall@5#v2")])
def test_the_primary_metric_is_pooled_and_metrics_of_other_experiments_do_not_count(tmp_path: Path, source: str, metric: str) -> None:
    store, _ = filled(tmp_path / "store", source, extra=("f1(rules=squad)#v2",))
    store.put_experiment("more", "", None, None, None, ["first-base"], names=["base"], metrics=[["f1(rules=squad)#v2"]])
    whole = still_matrix(store, "toy")
    assert whole is not None
    assert {column.metric for column in whole.board.columns} == {metric}
    assert [line.generalizes for line in whole.board.overall if line.pooled is not None] == ["new questions"]
