"""First lines of planted stores: what they claim, and what they never claim."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from results.boards.board import boards
from results.boards.verdict import BoardVerdict
from results.boards.verdict_of import verdicts
from results.boards.verdict_text import headline_of, headline_parts, headline_text, headlines, html, text
from results.store import queries
from results.store.store import Store
from tests.support.planted import Planted, Row

EVIL = ("m" * 200, "🚀 👩‍👩‍👧", "\u202eمرحبا שלום", '<img src=x onerror=alert(1)> & "q"', " line\nbreak\ttab")
GAMMA = np.random.default_rng(0).gamma(4.0, 1.0, 200)


def share(rate: float, questions: int = 200) -> np.ndarray[Any, Any]:
    """Return scores of 0 and 1 in which the share `rate` is right, spread evenly."""
    at = np.arange(questions)
    return (np.floor((at + 1) * rate) > np.floor(at * rate)).astype(float)


def stated(store: Store, experiment: str | None = "e") -> list[str]:
    return [text(headline_parts(line)) for line in headlines(verdicts(store, experiment))]


@pytest.mark.parametrize(
    ("rows", "options", "outcome", "contains", "absent"),
    [
        ({"only": share(0.6)}, {}, "single", ["Only only is ranked on em: 60.0"], ["best"]),
        ({"gold": share(1.0)}, {"kinds": {"gold": "control"}}, "none", ["No method is ranked on em"], ["gold"]),
        ({"a": [1.0], "b": [0.0]}, {}, "insufficient_data", ["1 question, fewer than 10"], ["is best"]),
        ({"a": np.full(50, np.nan), "b": np.full(50, np.nan)}, {}, "none", ["a (no question could be scored)"], ["best", "highest"]),
        ({"a": share(0.7), "b": np.full(200, np.nan)}, {}, "single", ["Only a is ranked", "b (no question could be scored)"], ["best"]),
        ({"a": share(0.5), "b": share(0.5), "c": share(0.5)}, {}, "tied", ["a, b and c have the same value, 50.0"], ["highest", "takes"]),
        ({"a": share(0.5), "b": share(0.5), "c": share(0.1)}, {}, "tied", ["a and b share the highest value"], ["same value", "takes"]),
        ({"a": share(0.7), "b": np.zeros(200)}, {"failing": ["b"]}, "tied", ["failed answers", "could reverse it"], ["is best", "takes"]),
        ({name: share(0.9 - at / 10) for at, name in enumerate(EVIL)}, {}, "best", list(EVIL[:2]), []),
        (
            {name: {f"metric_{n}": share(rate) for n in range(40)} for name, rate in (("a", 0.9), ("b", 0.4))},
            {},
            "best",
            ["a is best on 39 metrics"],
            ["metric_7"],
        ),
        (
            {"a": {"nll": -GAMMA}, "b": {"nll": -3 * GAMMA}},
            {"better": {"nll": (False, None, None, "number")}},
            "best",
            ["b is best on nll (lower is better): −1"],
            ["a is best"],
        ),
        (
            {"slow": {"seconds": 1e-5 * GAMMA}, "quick": {"seconds": 1e-6 * GAMMA}},
            {"better": {"seconds": (False, 0.0, None, "number")}},
            "best",
            ["quick is best", "e-06"],
            ["0.0"],
        ),
        (
            {"a": {"em": share(0.5), "recall": share(0.7)}, "app@1": {"em": share(0.9)}},
            {"origins": {"app@1": "submitted"}},
            "best",
            ["app@1 is best on em", "40.0"],
            ["recall: app"],
        ),
        (
            {"a": {"pct": 100 * share(0.8)}, "b": {"pct": 100 * share(0.4)}},
            {"better": {"pct": (True, 0.0, 100.0, "number")}},
            "best",
            ["80.0"],
            ["8000"],
        ),
    ],
)
def test_first_line_claims_what_the_planted_scores_show(
    tmp_path: Path, rows: Mapping[str, Row], options: dict[str, Any], outcome: str, contains: list[str], absent: list[str]
) -> None:
    planted = Planted(tmp_path, **options)
    planted.experiment("e", {"d": rows})
    first = verdicts(planted.store, "e")[0]
    (line,) = stated(planted.store)
    assert first.outcome == outcome
    assert [part for part in contains if part not in line] == []
    assert [part for part in absent if part in line] == []
    (board,) = boards(planted.store, "e")
    assert headline_of(board, headlines(verdicts(planted.store, "e"))) is not None


def test_methods_without_common_questions_have_no_difference(tmp_path: Path) -> None:
    first, second = np.full(200, np.nan), np.full(200, np.nan)
    first[:100], second[100:] = share(0.9, 100), share(0.4, 100)
    planted = Planted(tmp_path)
    planted.experiment("e", {"d": {"a": first, "apart": second, "low": np.where(np.isnan(first), np.nan, share(0.2))}})
    (line,) = stated(planted.store)
    assert "insufficient data against apart" in line
    assert "nan" not in line


def test_positive_controls_never_compete(tmp_path: Path) -> None:
    planted = Planted(tmp_path, positive=["trained"])
    scores = {"a": share(0.8), "b": share(0.5), "trained": share(0.95)}
    planted.experiment("e", {"d": scores, "f": scores}, reference="b")
    for verdict in verdicts(planted.store, "e"):
        assert verdict.outcome == "best"
        assert (verdict.best and verdict.best.name, verdict.next and verdict.next.name) == ("a", "b")
    assert not any("trained" in line for line in stated(planted.store))


@pytest.mark.parametrize("reference", ["a", "b"])
def test_difference_from_the_next_method_has_the_interval_of_the_table(tmp_path: Path, reference: str) -> None:
    draw = np.random.default_rng(0)
    scores = {name: (draw.random(200) < rate).astype(float) for name, rate in (("a", 0.8), ("b", 0.5), ("c", 0.45), ("d", 0.4))}
    planted = Planted(tmp_path)
    planted.experiment("e", {"d": scores, "f": {name: values[::-1] for name, values in scores.items()}}, reference=reference)
    whole, first, _ = verdicts(planted.store, "e")
    assert first.next is not None
    assert (first.best and first.best.name, first.next.name) == ("a", "b")
    rows = {row.run.method: row for row in boards(planted.store, "e")[0].rows}
    shown = rows["b" if reference == "a" else "a"].cells["em#v1"].difference
    ends = (shown.low, shown.high) if reference == "b" else (-shown.high, -shown.low)
    assert (first.next.low, first.next.high) == pytest.approx(ends)
    if reference == "b":
        assert whole.next is not None
        assert whole.reference is not None
        assert (whole.next.low, whole.next.high) == (whole.reference.low, whole.reference.high)


def test_chosen_metrics_keep_their_order(tmp_path: Path) -> None:
    planted = Planted(tmp_path)
    planted.experiment("e", {"d": {"a": dict.fromkeys("xyz", share(0.6)), "b": dict.fromkeys("xyz", share(0.2))}})
    for order in ("zyx", "yxz"):
        assert [item.place.name for item in verdicts(planted.store, "e", metrics=[f"{name}#v1" for name in order])] == list(order)


def test_short_name_of_a_metric_means_the_experiments_own(tmp_path: Path) -> None:
    planted = Planted(tmp_path)
    planted.experiment("e", {"d": {"a": {"f1(rules=x)": share(0.6), "f1(rules=y)": share(0.5)}, "b": {"f1(rules=y)": share(0.4)}}})
    every = ["f1(rules=x)#v1", "f1(rules=y)#v1"]
    assert sorted(boards(planted.store, "e", metrics=["f1"])[0].metrics) == every
    runs = [run.run for run in queries.runs(planted.store, "e")]
    planted.store.put_experiment("e", "name: e", None, None, None, runs, names=["a", "b"], metrics=[every[1:]] * 2)
    assert [*boards(planted.store, "e", metrics=["f1"])[0].metrics] == every[1:]
    assert [*boards(planted.store, "e", metrics=["f1(rules=x)"])[0].metrics] == every[:1]


def test_benchmarks_that_disagree_have_no_best_method_together_and_state_what_would_decide(tmp_path: Path) -> None:
    planted = Planted(tmp_path)
    planted.experiment("e", {"d": {"a": share(0.8), "b": share(0.6)}, "f": {"a": share(0.3, 100), "b": share(0.6, 100)}})
    whole, first, second = verdicts(planted.store, "e")
    assert (whole.outcome, first.outcome, second.outcome) == ("tied", "best", "best")
    assert (first.best and first.best.name, second.best and second.best.name) == ("a", "b")
    assert whole.next is not None
    assert whole.next.needed is not None
    assert (whole.next.needed.questions or 0) > 300
    assert "Showing it takes about" in stated(planted.store)[0]


def test_methods_of_one_name_in_two_experiments_stay_two_rows_and_two_entrants(tmp_path: Path) -> None:
    planted = Planted(tmp_path)
    planted.experiment("one", {"d": {"bm25": share(0.8), "x": share(0.2)}})
    planted.descriptions = {"bm25": {"method": {"id": "bm25", "config": {"k1": 9}}}}
    planted.experiment("two", {"d": {"bm25": share(0.4)}})
    planted.experiment("three", {"d": {"bm25": share(0.6)}}, seed=1)
    every: list[BoardVerdict] = verdicts(planted.store, None)
    assert [item.place.seed for item in every] == [0, 1]
    best = every[0].best
    assert best is not None
    assert best.value == pytest.approx(0.8)
    for over_seeds in (False, True):
        shown = boards(planted.store, None, over_seeds=over_seeds)
        values = [[row.cells["em#v1"].estimate.value for row in board.rows] for board in shown]
        assert values == [pytest.approx([0.8, 0.2, 0.4]), pytest.approx([0.6])]
        lines = [headline_of(board, headlines(every)) for board in shown]
        assert [line and line.main.outcome for line in lines] == ["best", "single"]


def test_names_cannot_change_the_sentence_around_them(tmp_path: Path) -> None:
    planted = Planted(tmp_path)
    planted.experiment("e", {"d": {name: share(0.9 - at / 10) for at, name in enumerate(EVIL[2:])}})
    known = headlines(verdicts(planted.store, "e"))
    for shown in (html(known[0]), headline_text(known)):
        assert not {"\u202e", "\t"} & set(shown)
    assert "<img" not in html(known[0])
