"""Verdicts of planted results: who is best, who is not different or not tested, by how much, at what cost."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from benchmarks.clusters import Sampled
from leaderboard.elements.formats import MAIN
from leaderboard.matrix.rows import ranked_families
from results.boards.board import boards
from results.boards.primary import Primary
from results.boards.systems import Figures
from results.boards.unread import range_of_metric
from results.boards.verdict import BoardVerdict, CostRatio, Entrant, Place, cost_ratio, decide
from results.boards.verdict_of import main_metric, verdicts
from results.statistics.difference import Side, all_pairs, means, p_at_both_ends
from results.statistics.intervals import difference
from results.store.cost_queries import Cost
from results.store.queries import RunRow
from results.store.variants import style_of_name

BETWEEN_0_AND_1 = {"low": 0.0, "high": 1.0}


def answered(rate: float, questions: int = 200, shift: int = 0) -> np.ndarray[Any, Any]:
    """Return scores of 0 and 1 in which the share `rate` is right, spread evenly."""
    at = (np.arange(questions) + shift) % questions
    return (np.floor((at + 1) * rate) > np.floor(at * rate)).astype(float)


def planted(
    scores: Mapping[str, Side | np.ndarray[Any, Any]],
    *,
    apart: Mapping[str, str] | None = None,
    costs: Mapping[str, Cost] | None = None,
    failed: Mapping[str, int] | None = None,
    definition: Mapping[str, Any] = BETWEEN_0_AND_1,
    sampled: Sampled | None = None,
    higher_is_better: bool = True,
    scale: float = 100.0,
) -> BoardVerdict:
    """Decide between methods with these scores."""
    sides = [item if isinstance(item, Side) else Side.of(item) for item in scores.values()]
    sampled, metric, questions = sampled or Sampled(), range_of_metric(definition), sides[0].scores.shape[1]
    of = means(np.stack([side.mean for side in sides]), clusters=sampled.labels, metric=metric)
    pairs = all_pairs(sides, clusters=sampled.labels, metric=metric)
    zeros, low, high = np.zeros(len(sides), np.int64), *of.interval()
    p = p_at_both_ends(sides, pairs, clusters=sampled.labels, metric=metric)
    figures = Figures(
        {}, of, pairs, tuple(sides), zeros, zeros, ("",) * len(sides), questions, sampled, definition=definition, p=p
    )  # fmt: skip
    entrants = [
        Entrant(
            name,
            float(of.value[at]),
            float(low[at]),
            float(high[at]),
            int(of.n[at]),
            (apart or {}).get(name, ""),
            (failed or {}).get(name, 0),
            (costs or {}).get(name),
            at,
        )
        for at, name in enumerate(scores)
    ]
    clusters = sampled.count(questions)
    place = Place((("data:test", "distractor"),), "f1#v2", "f1", higher_is_better, scale, questions, clusters, sampled.kind)
    return decide(place, entrants, figures)


def spent(dollars: float = 0.0, tokens: float = 0.0, seconds: float = 0.0) -> Cost:
    return Cost(seconds, tokens, 0.0, 0.0, 1.0, dollars)


def test_clear_winner_is_best_and_its_lead_is_the_paired_difference() -> None:
    scores = {"low": answered(0.3), "high": answered(0.9), "middle": answered(0.5)}
    verdict = planted(scores, costs={"high": spent(tokens=300), "middle": spent(tokens=100)})
    assert (verdict.outcome, verdict.best and verdict.best.name) == ("best", "high")
    assert (verdict.equal, verdict.untested, verdict.worse) == ((), (), ("middle", "low"))
    assert verdict.next is not None
    assert verdict.next.name == "middle"
    assert verdict.next.value == pytest.approx(difference(scores["high"], scores["middle"]).value)
    assert 0 < verdict.next.low < verdict.next.value < verdict.next.high
    assert verdict.next.significant
    assert verdict.next.needed is None
    assert verdict.next.cost == CostRatio("tokens", 3.0)


def test_small_lead_is_tied_and_states_the_questions_that_would_show_it() -> None:
    verdict = planted({"a": answered(0.60), "b": answered(0.57, shift=7), "far": answered(0.1)})
    assert verdict.outcome == "tied"
    assert (verdict.best and verdict.best.name, verdict.equal, verdict.worse) == ("a", ("b",), ("far",))
    assert verdict.next is not None
    assert verdict.next.low <= 0 <= verdict.next.high
    assert verdict.next.needed is not None
    assert verdict.next.needed.questions is not None
    assert verdict.next.needed.questions > 200


def test_equal_scores_are_tied_without_a_number_of_questions_that_would_show_it() -> None:
    verdict = planted({"a": answered(0.5), "b": answered(0.5)})
    assert (verdict.outcome, verdict.equal) == ("tied", ("b",))
    assert verdict.next is not None
    assert (verdict.next.value, verdict.next.needed) == (0.0, None)


def test_interval_leaves_out_0_exactly_if_the_corrected_test_rejects() -> None:
    # Two methods differ significantly; among thirty methods, tests of all pairs do not reject the same difference.
    pair = {"a": answered(0.68), "b": answered(0.56)}
    alone = planted(pair)
    crowd = planted({**pair, **{f"m{n}": answered(0.55, shift=n) for n in range(28)}})
    for verdict in (alone, crowd):
        assert verdict.next is not None
        assert verdict.next.significant == (verdict.next.low > 0)
    assert (alone.outcome, crowd.outcome) == ("best", "tied")


@pytest.mark.parametrize("questions", [1, 4, 9])
def test_few_questions_are_insufficient_data(questions: int) -> None:
    verdict = planted({"a": np.ones(questions), "b": np.r_[np.ones(questions - 1), 0.0]})
    assert (verdict.outcome, verdict.untested) == ("insufficient_data", ("b",))
    assert verdict.next is not None
    assert verdict.next.insufficient_data
    assert verdict.next.needed is None


def test_equal_values_of_few_questions_are_no_tie() -> None:
    verdict = planted({"a": np.r_[1.0, 0.0, 1.0, 1.0], "b": np.r_[1.0, 1.0, 0.0, 1.0], "c": np.zeros(4)})
    assert (verdict.outcome, verdict.equal, verdict.untested) == ("insufficient_data", (), ("b", "c"))


def test_few_clusters_are_insufficient_data_however_many_questions_they_hold() -> None:
    sampled = Sampled("world", [f"w{number % 4}" for number in range(200)])
    verdict = planted({"a": answered(0.6), "b": answered(0.55, shift=3)}, sampled=sampled)
    assert (verdict.outcome, verdict.place.clusters) == ("insufficient_data", 4)
    assert verdict.next is not None
    assert (verdict.next.n, verdict.next.clusters) == (200, 4)


def test_method_without_common_questions_is_untested_and_the_best_of_the_others_is_named() -> None:
    first, second = np.full(200, np.nan), np.full(200, np.nan)
    first[:100], second[100:] = answered(0.9, 100), answered(0.4, 100)
    verdict = planted({"a": first, "apart": second, "low": np.where(np.isnan(first), np.nan, answered(0.2))})
    assert verdict.outcome in ("insufficient_data", "tied")
    assert "low" in verdict.worse
    assert "apart" in (*verdict.untested, *verdict.equal)


def test_single_method_has_nothing_to_compare_with() -> None:
    verdict = planted({"a": answered(0.6)})
    assert (verdict.outcome, verdict.next, verdict.equal) == ("single", None, ())


def test_unranked_methods_are_left_out_with_their_reasons() -> None:
    reasons = {"leak": "contaminated: it was trained on data:test", "half": "running: 10 of 200 questions answered"}
    verdict = planted({"leak": answered(1.0), "a": answered(0.8), "half": answered(1.0), "b": answered(0.2)}, apart=reasons)
    assert (verdict.best and verdict.best.name, verdict.worse, verdict.left_out) == ("a", ("b",), reasons)
    nobody = planted({"leak": answered(1.0), "half": answered(0.5)}, apart=reasons)
    assert (nobody.outcome, nobody.best, nobody.left_out) == ("none", None, reasons)


def test_lowest_value_is_best_if_less_is_better() -> None:
    seconds = np.random.default_rng(0).gamma(4.0, 1.0, 300)
    verdict = planted(
        {"slow": seconds * 3, "quick": seconds}, definition={"low": 0.0, "high": None, "unit": "number"}, higher_is_better=False, scale=1.0
    )
    assert (verdict.outcome, verdict.best and verdict.best.name) == ("best", "quick")
    assert verdict.next is not None
    assert verdict.next.high < 0


def test_failed_answers_leave_a_lead_open_that_they_could_overturn() -> None:
    better, worse = answered(0.7), answered(0.55)
    sure = planted({"a": better, "b": worse})
    failures = np.zeros((1, 200), np.bool_)
    failures[0, np.flatnonzero(worse == 0)[:60]] = True
    failed = planted({"a": better, "b": Side.of(worse, open=failures)}, failed={"b": 60})
    assert (sure.outcome, failed.outcome) == ("best", "tied")


def test_difference_is_over_common_questions_and_says_how_many() -> None:
    partly = answered(0.5)
    partly[:50] = np.nan
    verdict = planted({"a": answered(0.8), "b": partly})
    assert verdict.best is not None
    assert verdict.next is not None
    assert (verdict.best.n, verdict.next.n) == (200, 150)


def test_trained_sides_state_seeds_and_what_a_mark_holds_for() -> None:
    rng = np.random.default_rng(1)
    runs = np.clip(np.stack([answered(0.62, shift=s) * 0.8 + 0.1 + rng.normal(0, 0.02) for s in range(3)]), 0, 1)
    verdict = planted({"trained": Side.of(runs, trainings=("1", "2", "3")), "base": np.full(200, 0.55)})
    assert verdict.next is not None
    assert "trainings" in verdict.next.generalizes


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (spent(0.02, 100, 1), spent(0.01, 400, 1), CostRatio("cost", 2.0)),
        (spent(0.0, 100, 1), spent(0.01, 400, 1), CostRatio("tokens", 0.25)),
        (spent(math.nan, 100, 1), spent(0.01, 50, 1), CostRatio("tokens", 2.0)),
        (spent(0.0, 0.0, 3.0), spent(0.0, 10.0, 1.0), CostRatio("time", 3.0)),
        (spent(0.0, 0.0, 3.0), spent(0.0, 10.0, 0.0002), None),
        (spent(math.nan, math.nan, math.nan), spent(0.01, 50, 1), None),
        (None, spent(0.01, 50, 1), None),
    ],
)
def test_cost_ratio_uses_the_first_cost_that_both_have(ours: Cost | None, theirs: Cost | None, expected: CostRatio | None) -> None:
    assert cost_ratio(ours, theirs) == expected


@pytest.mark.parametrize(
    ("ours", "metrics", "official", "primary", "main"),
    [
        (None, ["em#v2", "f1#v2"], ["f1", "em"], None, "f1#v2"),
        (("em#v2", "f1#v2"), ["em#v2", "f1#v2"], ["f1", "em"], None, "em#v2"),
        (None, ["em#v2", "f1#v2"], ["f1"], Primary("em"), "em#v2"),
        (None, ["em#v2", "recall@5#v2"], ["f1"], Primary("ndcg@10"), "em#v2"),
        (None, ["em#v2"], [], None, "em#v2"),
        (None, [], ["f1"], None, None),
    ],
)
def test_main_metric_is_the_same_for_verdicts_and_boards(
    ours: tuple[str, ...] | None, metrics: Sequence[str], official: Sequence[str], primary: Primary | None, main: str | None
) -> None:
    runs = [
        RunRow("r", "e", "bm25", "bm25", "retriever", "nq:test", "f" * 16, "distractor", 0, 3, 3, 0, "done", None,
               datetime.now(), datetime.now(), "run", {}, {}, {}, None, ours, style_of_name("nq:test"))
    ]  # fmt: skip
    assert main_metric(runs, metrics, {"metrics": official}, primary) == main
    if metrics:
        assert ranked_families(runs, metrics, {}, {"metrics": official}, primary)[MAIN][0] == main


def test_verdicts_of_a_store_agree_with_its_boards(tmp_path: Path, module_at: Callable[[Path], ModuleType]) -> None:
    store = module_at(Path(__file__).parents[2] / "leaderboard" / "matrix_store.py").fill(tmp_path / "store")
    known = verdicts(store, "several")
    json.dumps([verdict.to_json() for verdict in known], allow_nan=False)
    suites = [verdict for verdict in known if verdict.place.suite]
    assert [verdict.place.name for verdict in suites] == ["em", "recall@5"]
    assert suites[0] is known[0]
    assert verdicts(store, "several", most=1) == known[:5]
    assert suites[0].place.questions == 180
    open_ = [verdict.next for verdict in suites if verdict.next and not (verdict.next.significant or verdict.next.insufficient_data)]
    assert [item.needed.questions > item.n for item in open_ if item.needed and item.needed.questions] == [True] * len(open_) != []
    assert "gold answer" not in {name for verdict in known for name in (*verdict.equal, *verdict.left_out)}
    shown = {(board.dataset, board.setting): board for board in boards(store, "several")}
    for verdict in known:
        if verdict.place.suite or verdict.place.metric != "em#v2":
            continue
        board = shown[verdict.place.benchmarks[0]]
        able = [row for row in board.rows if not row.cells["em#v2"].apart]
        values = {row.run.method: row.cells["em#v2"].estimate.value for row in able}
        assert verdict.best is not None
        assert verdict.best.value == max(values.values())
        assert {verdict.best.name, *verdict.equal, *verdict.untested, *verdict.worse} == set(values)
        assert {row.run.method for row in board.rows if row.cells["em#v2"].apart and not row.control} == set(verdict.left_out)
        assert verdict.reference is not None
        best = next(row.cells["em#v2"].difference for row in able if row.run.method == verdict.best.name)
        assert best is not None
        assert (verdict.reference.value, verdict.reference.low) == pytest.approx((best.value, best.low))
