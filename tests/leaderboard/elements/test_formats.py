"""Number formats."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as some

from leaderboard.elements import formats
from leaderboard.elements.formats import PERCENT, PLAIN, scale_of
from results.boards.tables import plus_minus

NAN = float("nan")


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (PERCENT.value(0.61249), "61.2"),
        (PERCENT.value(1.0), "100.0"),
        (PERCENT.value(-0.0001), "0.0"),
        (PERCENT.value(NAN), "–"),
        (PERCENT.value(None), "–"),
        (PERCENT.interval(0.571, 0.6539), "[57.1, 65.4]"),
        (PERCENT.interval(NAN, NAN), "–"),
        (PERCENT.difference(0.031), "+3.1"),
        (PERCENT.difference(-0.031), "−3.1"),
        (PERCENT.difference(0.0), "0.0"),
        (PERCENT.difference(-0.0004), "0.0"),
        (PERCENT.differences(-0.004, 0.058), "[−0.4, +5.8]"),
        (PLAIN.value(12.3456), "12.35"),
        (PLAIN.difference(-1.5), "−1.50"),
        (formats.p_value(0.0001), "p < .001"),
        (formats.p_value(0.0123), "p = .012"),
        (formats.p_value(1.0), "p = 1.000"),
        (formats.p_value(None), "–"),
        (formats.count(1852.4), "1,852"),
        (formats.count(3.25), "3.2"),
        (formats.count(0.0), "0"),
        (formats.seconds(0.00212), "0.00212"),
        (formats.seconds(0.00212, milliseconds=True), "2.1"),
        (formats.seconds(1234.5), "1,234"),
        (formats.seconds(None), "–"),
        (formats.dollars(0.0), "0"),
        (formats.dollars(0.0042), "0.0042"),
        (formats.dollars(12.5), "12.50"),
        (formats.duration(0.0142), "14 ms"),
        (formats.duration(0.00088), "0.9 ms"),
        (formats.duration(3.4), "3.4 s"),
    ],
)
def test_numbers_are_formatted_as_expected(shown: str, expected: str) -> None:
    assert shown == expected


@given(some.floats(-1, 1))
def test_printed_difference_parses_back_within_its_last_digit(value: float) -> None:
    text = PERCENT.difference(value)
    assert re.fullmatch(r"[+−]?\d+\.\d", text)
    assert float(text.replace("−", "-")) == pytest.approx(100 * value, abs=0.0501)


def test_fractions_are_shown_as_percentages_and_numbers_unscaled() -> None:
    known = {"rog_f1#v1": {"unit": "fraction", "high": None}, "strict_golds#v1": {"unit": "number"}}
    assert scale_of("rog_f1#v1", known) is PERCENT
    assert scale_of("strict_golds#v1", known) is PLAIN
    assert scale_of("never heard of", known) is PERCENT


@pytest.mark.parametrize(
    ("identifier", "name", "details"),
    [
        ("em#v1", "EM", ""),
        ("recall@5#v1", "recall@5", ""),
        ("f1(rules=hotpotqa)#v1", "F1", "rules=hotpotqa"),
        ("ndcg@10(gain=linear)#v2", "nDCG@10", "gain=linear, version 2"),
        ("has_answer@20#v1", "has answer@20", ""),
        ("words#v2-3fa2c1d0", "words", "version 2, code 3fa2c1d0"),
        ("accuracy(judge=a,model=b)#v1", "accuracy", "judge=a, model=b"),
    ],
)
def test_metric_id_is_shown_as_name_and_parameters(identifier: str, name: str, details: str) -> None:
    assert formats.metric_name(identifier) == (name, details)


@given(some.lists(some.integers(0, 8), min_size=1, max_size=400))
def test_terminal_and_pages_round_a_mean_equally_for_any_summation_order(eighths: list[int]) -> None:
    values = [eighth / 8 for eighth in eighths]
    mean, other = math.fsum(values) / len(values), sum(value / len(values) for value in values)
    assert PERCENT.value(mean) == PERCENT.value(other) == plus_minus(mean, math.nan, math.nan)
    assert PERCENT.difference(mean) == PERCENT.difference(other)


def test_metric_version_is_shown_only_next_to_another_version() -> None:
    shown = ("recall@5#v2", "recall@5#v1", "recall@20#v2")
    assert [formats.metric_label(metric, shown) for metric in shown] == ["recall@5 (version 2)", "recall@5", "recall@20"]
    assert formats.metric_label("ndcg@10(gain=linear)#v2", shown) == "nDCG@10 (gain=linear)"


def test_metric_name_keeps_only_the_details_that_distinguish_columns() -> None:
    one, other = "accuracy(model=rule,as=4ae5e6fc)#v2", "accuracy(model=rule,as=99ab)#v2"
    assert formats.metric_name(one, [one, "mismatch(model=rule,as=4ae5e6fc)#v2"]) == ("accuracy", "model=rule")
    assert formats.metric_name(one, [one, other]) == ("accuracy", "model=rule, as=4ae5e6fc")
    assert formats.metric_name(one, [one, one.replace("#v2", "#v1")]) == ("accuracy", "model=rule, version 2")
