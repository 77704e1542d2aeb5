from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from results.statistics.battles import Verdict, WinRate, win_rates
from results.statistics.intervals import estimate

WIN, TIE, LOSS, NONE, UNSCORED = Verdict.WIN, Verdict.TIE, Verdict.LOSS, Verdict.NONE, Verdict.UNSCORED
VALUE = {WIN: 1.0, TIE: 0.5, LOSS: 0.0}
Rows = list[tuple[int, int, int, int, Verdict]]
rows_of_battles = st.dictionaries(
    st.tuples(st.integers(0, 2), st.integers(0, 5), st.integers(0, 1), st.integers(0, 2)),
    st.sampled_from(list(Verdict)),
    min_size=1,
    max_size=60,
).map(lambda result: [(*cell, verdict) for cell, verdict in result.items()])


def judged(*questions: list[Verdict], **ways: object) -> WinRate:
    """A win rate of one pair; each question's verdicts alternate between the orders, repetition by repetition."""
    rows = [
        (question, position % 2, position // 2, verdict)
        for question, responses in enumerate(questions)
        for position, verdict in enumerate(responses)
    ]
    (result,) = win_rates([0] * len(rows), *zip(*rows, strict=True), **ways)  # type: ignore[arg-type]
    return result


def columns(rows: Rows) -> list[list[int]]:
    return [list(column) for column in zip(*rows, strict=True)]


def naive(rows: Rows, pair: int) -> dict[str, object]:
    """Every count by a plain loop over dictionaries."""
    responses = defaultdict(list)
    cells = defaultdict(dict)
    for its_pair, question, order, repetition, verdict in rows:
        if its_pair == pair:
            responses[question].append(verdict)
            cells[question, repetition][order] = verdict
    counts = dict.fromkeys(("wins", "ties", "losses", "none", "unscored"), 0)
    for verdicts in responses.values():
        values = [VALUE[verdict] for verdict in verdicts if verdict in VALUE]
        if values:
            mean = sum(values) / len(values)
            counts["wins" if mean > 0.5 else "losses" if mean < 0.5 else "ties"] += 1
        else:
            counts["none" if NONE in verdicts else "unscored"] += 1
    both = [cell for cell in cells.values() if len(cell) == 2 and set(cell.values()) <= {WIN, LOSS}]
    return counts | {"both": len(both), "flips": sum(item[0] != item[1] for item in both)}


def test_the_two_rates_are_the_papers_and_the_one_with_ties() -> None:
    result = judged([WIN, WIN], [WIN, TIE], [LOSS, LOSS], [TIE, TIE], [NONE, NONE], [UNSCORED, UNSCORED])
    assert (result.wins, result.ties, result.losses, result.none, result.unscored, result.n) == (2, 1, 1, 1, 1, 5)
    assert result.decided.value == pytest.approx(2 / 3)
    assert result.decided.n == 3
    assert result.decided_failures_zero.value == pytest.approx(2 / 4)
    assert result.with_ties.value == pytest.approx(2.5 / 5)
    assert result.with_ties_failures_zero.value == pytest.approx(2.5 / 6)
    assert (result.with_ties.n, result.with_ties.unscorable) == (5, 1)
    assert result.verdicts == {"win": 3, "tie": 3, "loss": 2, "none": 2, "unscored": 2}


def test_a_tie_rule_changes_the_rate_and_no_count() -> None:
    questions = [[WIN, WIN], [TIE, TIE], [TIE, TIE], [LOSS, LOSS]]
    rates = {rule: judged(*questions, ties=rule) for rule in ("half", "ignore", "loss", "win")}
    assert {rule: item.with_ties.value for rule, item in rates.items()} == {
        "half": 0.5,
        "ignore": 0.5,
        "loss": 0.25,  # the released code's wins / total
        "win": 0.75,
    }
    assert {rate.ties for rate in rates.values()} == {2}
    assert {rate.decided.value for rate in rates.values()} == {0.5}
    with pytest.raises(ValueError, match="choose half, ignore, loss, win"):
        judged(*questions, ties="quarter")


def test_a_failed_judgment_is_neither_a_tie_nor_a_loss() -> None:
    whole = judged([WIN, WIN], [LOSS, LOSS], [WIN, WIN])
    holed = judged([WIN, UNSCORED], [UNSCORED, LOSS], [WIN, WIN])
    assert (holed.wins, holed.ties, holed.losses) == (whole.wins, whole.ties, whole.losses)
    assert holed.decided == whole.decided
    assert holed.verdicts["unscored"] == 2


def test_nothing_decided_has_no_paper_rate() -> None:
    result = judged([TIE, TIE], [WIN, LOSS], [NONE, NONE])
    assert math.isnan(result.decided.value)
    assert result.with_ties.value == pytest.approx(1 / 3)
    failed = judged([UNSCORED, UNSCORED])
    assert (failed.n, failed.unscored) == (0, 1)
    assert math.isnan(failed.with_ties.value)
    assert failed.with_ties_failures_zero.value == 0.0


def test_orders_that_name_different_winners_are_a_flip_and_a_tie() -> None:
    result = judged([WIN, LOSS], [WIN, WIN], [WIN, TIE], [LOSS, NONE], [LOSS])
    assert (result.flips.flips, result.flips.both_decided, result.flips.rate) == (1, 2, 0.5)
    assert result.ties == 1
    assert math.isnan(judged([WIN], [LOSS]).flips.rate)


def test_repetitions_are_rated_one_by_one() -> None:
    # First repetition: won, lost; second: won, won; third: won, failed.
    result = judged([WIN, WIN, WIN, WIN, WIN, WIN], [LOSS, LOSS, WIN, WIN, UNSCORED, UNSCORED])
    rates = [0.5, 1.0, 1.0]
    assert result.repetitions.repetitions == 3
    assert result.repetitions.decided == pytest.approx(np.mean(rates))
    assert result.repetitions.decided_sd == pytest.approx(np.std(rates, ddof=1))
    assert result.repetitions.with_ties_sd == pytest.approx(np.std(rates, ddof=1))
    assert math.isnan(judged([WIN, WIN]).repetitions.decided_sd)


@pytest.mark.slow
@given(rows_of_battles)
def test_many_pairs_are_counted_as_a_plain_loop_counts_each(rows: Rows) -> None:
    results = win_rates(*columns(rows))
    assert len(results) == max(row[0] for row in rows) + 1
    for pair, item in enumerate(results):
        expected = naive(rows, pair)
        ours = {name: getattr(item, name) for name in ("wins", "ties", "losses", "none", "unscored")}
        assert ours | {"both": item.flips.both_decided, "flips": item.flips.flips} == expected
        questions = item.n + item.unscored
        assert item.with_ties.n + item.with_ties.unscorable == item.decided.n + item.decided.unscorable == questions
        if item.wins + item.losses:
            assert item.decided.value == pytest.approx(item.wins / (item.wins + item.losses))
        if item.n:
            assert item.with_ties.value == pytest.approx((item.wins + item.ties / 2) / item.n)


@pytest.mark.slow
@given(rows_of_battles)
def test_naming_the_methods_the_other_way_round_swaps_wins_and_losses(rows: Rows) -> None:
    swapped = {WIN: LOSS, LOSS: WIN, TIE: TIE, NONE: NONE, UNSCORED: UNSCORED}
    other_way = [(pair, question, 1 - order, repetition, swapped[response]) for pair, question, order, repetition, response in rows]
    for item, other in zip(win_rates(*columns(rows)), win_rates(*columns(other_way)), strict=True):
        assert (item.wins, item.ties, item.losses, item.none) == (other.losses, other.ties, other.wins, other.none)
        assert item.flips == other.flips
        np.testing.assert_equal(asdict(item.with_ties_opponent), asdict(other.with_ties))
        np.testing.assert_equal(asdict(item.with_ties), asdict(other.with_ties_opponent))
        if item.n:
            assert item.with_ties.value + other.with_ties.value == pytest.approx(1 - item.none / item.n)


@pytest.mark.slow
@given(rows_of_battles, st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(rows: Rows, random: object) -> None:
    mixed = list(rows)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert repr(win_rates(*columns(mixed))) == repr(win_rates(*columns(rows)))


def many(pairs: int, questions: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    cells = np.stack([axis.ravel() for axis in np.indices((pairs, questions, 2, 2))])
    lean = np.repeat(rng.beta(2, 2, (pairs, questions)).ravel(), 4)
    response = np.where(rng.random(len(lean)) < lean, WIN, LOSS)
    response = np.where(rng.random(len(lean)) < 0.15, rng.choice([TIE, NONE, UNSCORED], len(lean)), response)
    return [*cells, response]


def test_all_pairs_equals_the_comparison_of_each_pair() -> None:
    rows = many(4, 250)
    for pair, result in enumerate(win_rates(*rows)):
        kept = rows[0] == pair
        (alone,) = win_rates(np.zeros(kept.sum(), int), *(column[kept] for column in rows[1:]))
        assert repr(result) == repr(alone)
        assert result.decided == estimate([1.0] * result.wins + [0.0] * result.losses + [math.nan] * (250 - result.wins - result.losses))


def test_questions_of_one_document_are_resampled_together() -> None:
    rows = many(2, 240, seed=4)
    rows[4] = np.where(rows[1] // 20 % 2, WIN, LOSS)  # a document wins or loses as a whole
    documents = [f"d{question // 20}" for question in range(240)]
    alone, clustered = win_rates(*rows)[0], win_rates(*rows, clusters=documents)[0]
    assert clustered.with_ties.value == alone.with_ties.value
    assert clustered.with_ties.clusters == 12
    width = clustered.with_ties.high - clustered.with_ties.low
    assert width > 3 * (alone.with_ties.high - alone.with_ties.low)
    with pytest.raises(ValueError, match="cluster labels"):
        win_rates(*rows, clusters=documents[:-1])


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([(0, 0, 0, 0, WIN), (0, 0, 0, 0, LOSS)], "judged twice: pair 0, question 0, order 0, repetition 0"),
        ([(0, 0, 2, 0, WIN)], "order: codes are whole numbers from 0 to 1"),
        ([(0, -1, 0, 0, WIN)], "question: codes"),
        ([(0, 0, 0, 0, 5)], "verdict: codes are whole numbers from 0 to 4"),
        ([(0, 0, 0, 0, 0.5)], "verdict: codes"),
    ],
)
def test_rows_that_mean_nothing_are_refused(rows: list[tuple[float, ...]], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        win_rates(*(list(column) for column in zip(*rows, strict=True)))


def test_win_rates_are_empty_without_verdicts_and_refuse_uneven_columns() -> None:
    assert win_rates([], [], [], [], []) == []
    with pytest.raises(ValueError, match="same verdicts"):
        win_rates([0], [0], [0, 1], [0], [1])


def test_p_is_the_sign_test_of_questions_won_and_lost() -> None:
    rest = [[TIE, TIE]] * 5 + [[NONE, NONE]] * 3
    result = judged(*[[WIN, WIN]] * 9, *[[LOSS, TIE]] * 2, *rest)
    assert result.p == pytest.approx(binomtest(9, 11).pvalue)
    assert judged(*[[WIN, WIN]] * 9, *[[LOSS, TIE]] * 2, *rest, ties="loss").p == result.p
    assert judged(*[[LOSS, LOSS]] * 9, *[[WIN, TIE]] * 2, *rest).p == result.p
    lacking = judged(*[[WIN, WIN]] * 9, *[[LOSS, TIE]] * 2, *rest, *[[UNSCORED, UNSCORED]] * 2)
    assert lacking.p == pytest.approx(binomtest(9, 13).pvalue)  # the two counted as lost
    assert math.isnan(judged([UNSCORED]).p)


def test_questions_of_one_document_are_one_cluster() -> None:
    won = [[WIN]] * 8
    assert judged(*won, *[[LOSS]] * 4).p == pytest.approx(binomtest(8, 12).pvalue)
    # Two documents won and one lost, each whole: three coins say nothing.
    assert (judged(*won, *[[LOSS]] * 4, clusters=[f"d{question // 4}" for question in range(12)]).p) == 1.0
