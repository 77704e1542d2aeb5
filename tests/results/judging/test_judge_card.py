"""A judge's card: every number on it is the statistic, called by hand on what the store holds."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from judges.judge import AS_GIVEN, FIRST, NONE, SECOND, SWAPPED, TIE, Judge, JudgeCall, Parsed, Score
from results.boards.markup import to_csv
from results.judging import judgments, labels
from results.judging.judge_card import between_people, judge_card
from results.judging.judgments import Match
from results.statistics.judges import cohen_kappa
from results.statistics.prediction_powered import prediction_powered_mean
from results.store.queries import RunRow
from results.store.store import Store
from tests.support.stores import hide

N = 40
GOLDS = [f"gold{n}" for n in range(N)]
MATCH = Judge.of("match", {"llm": {"model": "m"}, "repetitions": 2})
OTHER = Judge.of("match", {"llm": {"model": "other"}})
PAIRWISE = Judge.of("pairwise", {"llm": {"model": "m"}, "repetitions": 1})


def judged(store: Store, run: RunRow, judge: Judge, values: Sequence[float | None], again: Sequence[int] = ()) -> None:
    """Store a verdict per question (None: unscored), and for judges that are asked twice those that differ again."""
    calls, scores = [], []
    for n, value in enumerate(values):
        verdict = None if value is None else "Match" if value else "Mismatch"
        other = "Partial" if n in again else verdict
        calls.append(
            [
                JudgeCall(
                    "match",
                    repetition,
                    f"k{n}",
                    Parsed({"verdict": response}) if response else Parsed(None, f"no verdict in '{n} words'"),
                    "m-1",
                    100,
                    10,
                    0.5,
                    0.001,
                )
                for repetition, response in enumerate((verdict, other)[: 2 if judge is MATCH else 1])
            ]
        )
        score = Score(value, None if value is not None else "no verdict")
        scores.append(dict.fromkeys(("accuracy", "partial", "mismatch"), score))
    judgments.put_judge(store, judge)
    judgments.put_judgments(store, run.run, judge, [f"q{n}" for n in range(len(values))], calls, scores)


def label(store: Store, path: Path, run: RunRow, annotator: str, responses: dict[int, str], other: RunRow | None = None) -> None:
    """Take labels in as a person's CSV has them; of pairs `1` is the first of the two runs."""
    first = f"{run.run}+{other.run}" if other else run.run
    rows = [(f"{first}/q{n}", "overall" if other else "accuracy", text) for n, text in responses.items()]
    path.write_text(to_csv(("item", "criterion", "label"), rows))
    labels.import_labels(store, path, annotator)


@pytest.fixture
def run(store: Store, fill: Any) -> RunRow:
    result: RunRow = fill(store, {"bm25": ["x"] * N}, GOLDS, metrics=())["bm25"]
    return result


@pytest.mark.slow
def test_calls_failures_price_and_speed_are_counted(store: Store, run: RunRow) -> None:
    judged(store, run, OTHER, [1.0] * 6 + [None] * 2)
    work = judge_card(store, str(OTHER)).work
    assert (work.calls, work.failure_rate) == (8, 0.25)
    assert work.unscored == {"no verdict in": 2}  # one reason, whatever is quoted
    assert (work.seconds, work.prompt_tokens, work.completion_tokens) == (0.5, 100, 10)
    assert work.cost_usd == pytest.approx(0.008)
    assert work.models == {"m-1": 8}


def test_cases_decided_by_rules_are_not_counted_as_calls(store: Store, run: RunRow) -> None:
    judgments.put_judge(store, OTHER)
    call = JudgeCall("match", 0, None, Parsed({"verdict": "Match", "by": "em"}))
    score = {name: Score(1.0) for name in ("accuracy", "partial", "mismatch")}
    judgments.put_judgments(store, run.run, OTHER, ["q0"], [[call]], [score])
    card = judge_card(store, str(OTHER))
    assert card.work.calls == 0
    assert math.isnan(card.work.failure_rate)
    assert card.to_json()["failure_rate"] is None


@pytest.mark.slow
def test_repetitions_are_held_against_each_other(store: Store, run: RunRow) -> None:
    judged(store, run, MATCH, [1.0] * 10, again=(0, 1, 2))
    result = judge_card(store, str(MATCH)).repetitions["match"]
    assert (result.differing.value, result.pairs) == (pytest.approx(0.3), 10)
    judged(store, run, OTHER, [1.0] * 10)
    assert judge_card(store, str(OTHER)).repetitions == {}


@pytest.mark.slow
def test_agreement_with_another_judge_is_kappa_over_common_items(store: Store, run: RunRow) -> None:
    mine: list[float | None] = [1.0, 1.0, 0.0, 0.0, 1.0, None, 1.0, 0.0]
    theirs: list[float | None] = [1.0, 0.0, 0.0, 1.0, 1.0, 1.0, None, 0.0]
    judged(store, run, MATCH, mine)
    judged(store, run, OTHER, theirs)
    both = [(a, b) for a, b in zip(mine, theirs, strict=True) if a is not None and b is not None]
    expected = cohen_kappa([a for a, _ in both], [b for _, b in both], difference="interval")
    card = judge_card(store, str(MATCH))
    assert card.with_judges["accuracy"] == {str(OTHER): expected}
    turned = cohen_kappa(*zip(*[(b, a) for a, b in both], strict=True), difference="interval")
    assert judge_card(store, str(OTHER)).with_judges["accuracy"] == {str(MATCH): turned}


@pytest.mark.slow
def test_agreement_with_people_is_by_person_and_people_are_held_against_each_other(store: Store, run: RunRow, tmp_path: Path) -> None:
    values = [float(n % 2) for n in range(10)]
    judged(store, run, OTHER, values)
    ann = {n: "right" if n % 2 else "wrong" for n in range(8)}
    bob = {n: "right" if n < 4 else "wrong" for n in range(8)}
    label(store, tmp_path / "ann.csv", run, "ann", ann)
    label(store, tmp_path / "bob.csv", run, "bob", bob)
    card = judge_card(store, str(OTHER))
    assert card.with_people["accuracy"]["ann"].corrected.value == 1.0
    expected = cohen_kappa(values[:8], [1.0] * 4 + [0.0] * 4, difference="interval")
    assert card.with_people["accuracy"]["bob"] == expected
    assert card.between_people["accuracy"].raw.value == pytest.approx(0.5)
    assert card.with_people["partial"] == {}


def test_mean_of_a_withdrawn_submission_is_not_on_the_card(store: Store, run: RunRow, tmp_path: Path) -> None:
    judged(store, run, OTHER, [float(n % 2) for n in range(10)])
    label(store, tmp_path / "ann.csv", run, "ann", {n: "right" if n % 2 else "wrong" for n in range(8)})
    assert [item.run for item in judge_card(store, str(OTHER)).corrected] == [run.run]
    hide(store, run.run)
    card = judge_card(store, str(OTHER))
    assert card.corrected == []
    assert card.with_people["accuracy"]["ann"].raw.n == 8


@pytest.mark.slow
def test_a_corrected_mean_is_the_statistic_on_judged_values_and_labels(store: Store, run: RunRow, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = [float(value) for value in rng.integers(0, 2, N)]
    responses = {n: ("right" if values[n] else "wrong") if n % 5 else "right" for n in range(0, N, 2)}
    judged(store, run, OTHER, values)
    label(store, tmp_path / "a.csv", run, "ann", responses)
    (result,) = judge_card(store, str(OTHER)).corrected
    human = [{"right": 1.0, "wrong": 0.0}[responses[n]] if n in responses else math.nan for n in range(N)]
    assert (result.run, result.measure) == (run.run, "accuracy")
    expected = prediction_powered_mean(values, human)
    assert result.mean.corrected.value == pytest.approx(expected.corrected.value)
    assert (result.mean.corrected.low, result.mean.corrected.high) == pytest.approx(
        (expected.corrected.low, expected.corrected.high), nan_ok=True
    )
    assert (result.mean.judged, result.mean.items) == (pytest.approx(np.mean(values)), N)


@pytest.mark.slow
def test_two_people_on_one_item_count_as_their_mean(store: Store, run: RunRow, tmp_path: Path) -> None:
    values = [float(n % 2) for n in range(N)]
    judged(store, run, OTHER, values)
    label(store, tmp_path / "a.csv", run, "ann", dict.fromkeys(range(10), "right"))
    label(store, tmp_path / "b.csv", run, "bob", dict.fromkeys(range(10), "wrong"))
    (result,) = judge_card(store, str(OTHER)).corrected
    expected = prediction_powered_mean(values, [0.5] * 10 + [math.nan] * (N - 10))
    assert result.mean.labeled.value == pytest.approx(0.5)
    assert result.mean.corrected.value == pytest.approx(expected.corrected.value)


@pytest.mark.slow
def test_labels_of_one_document_are_one_cluster(store: Store, fill: Any, tmp_path: Path) -> None:
    documents = [f"d{n // 4}" for n in range(N)]
    run = fill(store, {"bm25": ["x"] * N}, GOLDS, metrics=(), documents=documents)["bm25"]
    values = [float(n % 3 == 0) for n in range(N)]
    judged(store, run, OTHER, values)
    label(store, tmp_path / "a.csv", run, "ann", dict.fromkeys(range(4), "right"))
    assert judge_card(store, str(OTHER)).corrected == []  # four labels, one document
    label(store, tmp_path / "a.csv", run, "ann", {n: "right" if n % 2 else "wrong" for n in range(20)})
    (result,) = judge_card(store, str(OTHER)).corrected
    human = [float(n % 2) if n < 20 else math.nan for n in range(N)]
    expected = prediction_powered_mean(values, human, clusters=documents)
    assert result.mean.standard_error == pytest.approx(expected.standard_error)


def test_people_agree_over_documents_also_before_a_judge_has_judged(store: Store, fill: Any, tmp_path: Path) -> None:
    documents = [f"d{n // 4}" for n in range(N)]
    run = fill(store, {"bm25": ["x"] * N}, GOLDS, metrics=(), documents=documents)["bm25"]
    for name in ("ann", "bob"):
        label(store, tmp_path / "a.csv", run, name, {n: "right" if n % 2 else "wrong" for n in range(20)})
    agreement = between_people(store, labels.labels(store))["accuracy"]
    assert (agreement.raw.n, agreement.raw.clusters, agreement.corrected.clusters) == (20, 5, 5)
    assert between_people(store, []) == {}


def test_one_label_corrects_nothing(store: Store, run: RunRow, tmp_path: Path) -> None:
    judged(store, run, OTHER, [1.0] * N)
    label(store, tmp_path / "a.csv", run, "ann", {0: "wrong"})
    assert judge_card(store, str(OTHER)).corrected == []


def fought(store: Store, runs: dict[str, RunRow], verdicts: Sequence[tuple[str | None, str | None]]) -> Match:
    """Store verdicts about the order shown, of both orders."""
    item, other = sorted(runs.values(), key=lambda row: row.run)
    match = Match(item.dataset_fingerprint, item.setting, item.run, other.run)
    calls = [
        [
            JudgeCall(part, 0, "k", Parsed({"by": "hand"}) if responses else Parsed(None, "no JSON"), "m-1", 5, 5, 0.1)
            for part, responses in zip((AS_GIVEN, SWAPPED), both, strict=True)
        ]
        for both in verdicts
    ]
    responses = [[dict.fromkeys(PAIRWISE.entry.criteria, verdict) for verdict in both] for both in verdicts]
    judgments.put_judge(store, PAIRWISE)
    judgments.put_battles(store, match, PAIRWISE, [f"q{n}" for n in range(len(responses))], calls, responses)
    judgments.put_battles(store, match, PAIRWISE, [f"q{N - 1}"], [[]], [[]])  # nothing to judge by
    return match


@pytest.mark.slow
def test_the_habits_of_a_pair_judge_by_hand(store: Store, fill: Any) -> None:
    runs = fill(store, {"short": ["x"] * N, "long": ["a longer answer"] * N}, GOLDS, metrics=())
    item = min(runs.values(), key=lambda row: row.run)
    longer_first = item.method == "long"
    likes_long = (FIRST, SECOND) if longer_first else (SECOND, FIRST)
    verdicts = [likes_long] * 6 + [(FIRST, FIRST)] * 2 + [(TIE, TIE), (NONE, NONE), (None, FIRST), (None, None)]
    fought(store, runs, verdicts)
    card = judge_card(store, str(PAIRWISE))
    assert set(card.flips) == set(PAIRWISE.entry.criteria)
    assert (card.flips["overall"].value, card.flips["overall"].n) == (pytest.approx(2 / 8), 8)
    longer = card.longer["overall"]
    # Decided: 12 for the longer, 4 contradicting (2 each), and one of which only the swapped order was read.
    assert longer.decided == 17
    swapped_first_is_long = not longer_first
    assert longer.longer_wins.value == pytest.approx((12 + 2 + swapped_first_is_long) / 17, abs=0.02)
    assert (card.work.calls, card.work.unscored) == (24, {"no JSON": 3})
    assert json.dumps(card.to_json(), allow_nan=False)


@pytest.mark.slow
def test_people_and_a_pair_judge_are_compared_with_the_order_undone(store: Store, fill: Any, tmp_path: Path) -> None:
    runs = fill(store, {"short": ["x"] * N, "long": ["y"] * N}, GOLDS, metrics=())
    item, other = sorted(runs.values(), key=lambda row: row.run)
    fought(store, runs, [(FIRST, SECOND)] * 3 + [(SECOND, FIRST)] * 3)  # one wins three, other three
    label(store, tmp_path / "a.csv", item, "ann", {n: "1" if n < 3 else "2" for n in range(6)}, other)
    label(store, tmp_path / "b.csv", other, "bob", {n: "1" if n < 3 else "2" for n in range(6)}, item)
    result = judge_card(store, str(PAIRWISE)).with_people["overall"]
    assert result["ann"].corrected.value == 1.0
    assert result["bob"].corrected.value == -1.0
    assert judge_card(store, str(PAIRWISE)).between_people["overall"].raw.value == 0.0


def test_a_judge_of_which_nothing_is_known_has_an_empty_card(store: Store, run: RunRow) -> None:
    judgments.put_judge(store, OTHER)
    judgments.put_judge(store, PAIRWISE)
    for judge in (OTHER, PAIRWISE):
        card = judge_card(store, str(judge))
        assert card.work.calls == 0
        assert card.corrected == []
        assert json.dumps(card.to_json(), allow_nan=False)
