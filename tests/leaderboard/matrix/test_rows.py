"""Filters, sorting, hiding and searching: the rows of a matrix, and which of them are drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from leaderboard.elements.formats import MAIN
from leaderboard.matrix.rows import (
    ANY_DATA,
    OWN,
    Filters,
    Order,
    choices,
    columns_of,
    default_order,
    matches,
    ordered,
    own_metrics,
    sort_columns,
    visible_rows,
)
from results.boards.matrix import Cell, Column, Matrix
from results.boards.primary import Primary
from results.boards.systems import System, key_of
from results.store.cost_queries import Cost
from results.store.queries import RunRow
from results.store.variants import style_of_name


def run(name: str, kind: str = "retriever") -> RunRow:
    day = datetime(2026, 3, 1)
    return RunRow(f"run-{name}", "e", name, f"id-{name}", kind, "nq:test", "f" * 16, "distractor", 0, 10, 10, 0,
                  "finished", None, day, day, "run", {}, {}, {}, None, None, style_of_name("nq:test"))  # fmt: skip


def row(name: str, kind: str = "retriever", **facts: Any) -> System:
    day = datetime(2026, 3, 1)
    plain = System(key_of(name), name, {"a": run(name, kind)}, ("phi",), None, None, day, day, (), True)
    return replace(plain, **facts)


F1, EM, RECALL, JUDGED = "f1(rules=hotpotqa)#v2", "em#v2", "recall@5#v2", "judge_match#v1"
SCORED = {"run-bm25": [F1, EM, RECALL, JUDGED]}
CARDS = {"f" * 16: {"card": {"metrics": ("f1(rules=hotpotqa)", "em")}}}


@pytest.mark.parametrize(
    ("named", "primary", "measure", "expected"),
    [
        ((EM,), None, OWN, EM),
        ((EM, F1), None, OWN, EM),
        ((RECALL, EM), None, OWN, RECALL),
        ((RECALL, EM), Primary("em"), OWN, EM),
        ((RECALL, EM), Primary("f1"), OWN, RECALL),  # declared, but another experiment's score
        ((EM,), None, JUDGED, JUDGED),  # requested
        (None, None, OWN, F1),  # runs of no experiment follow the dataset
    ],
)
def test_experiment_is_ranked_by_its_declared_metrics(
    named: tuple[str, ...] | None, primary: Primary | None, measure: str, expected: str
) -> None:
    runs = [replace(run("bm25"), metrics=named)]
    (column,) = columns_of([runs], SCORED, {}, CARDS, MAIN, measure, primary)
    assert column.metric == expected
    assert own_metrics(runs, SCORED["run-bm25"]) == list(named or SCORED["run-bm25"])


ROWS = [
    row("bm25", readers=("phi", "mistral")),
    row("small", parameters=500_000_000, open_weights=True, last=datetime(2026, 4, 1)),
    row("huge", "method", parameters=405_000_000_000, open_weights=False, readers=("gpt",), training=("nq:train",)),
    row("mute", "method", declares=False, last=datetime(2026, 5, 1)),
    row("gold", "control"),
]


def admitted(**query: Any) -> set[str]:
    return {item.name for item in ROWS if Filters(**query).admits(item)} - {"gold"}


@pytest.mark.parametrize(
    ("queries", "expected"),
    [
        ({}, {"bm25", "small", "huge", "mute"}),
        ({"kinds": frozenset({key_of("method")})}, {"huge", "mute"}),
        ({"readers": frozenset({key_of("mistral"), key_of("gpt")})}, {"bm25", "huge"}),
        ({"size": "under-1b"}, {"small"}),
        ({"size": "over-100b"}, {"huge"}),
        ({"size": "1b-10b"}, set()),
        ({"size": "unstated"}, {"bm25", "mute"}),
        ({"weights": "open"}, {"small"}),
        ({"weights": "closed"}, {"huge"}),
        ({"weights": "unstated"}, {"bm25", "mute"}),
        ({"untrained": frozenset({"nq:train"})}, {"bm25", "small", "mute"}),
        ({"untrained": frozenset({"nq:dev"})}, {"bm25", "small", "huge", "mute"}),
        ({"untrained": frozenset({"nq"})}, {"bm25", "small", "mute"}),  # all of it, and so what is trained on a split
        ({"untrained": frozenset({"styled:train(nq)"})}, {"bm25", "small", "mute"}),  # the same questions
        ({"untrained": frozenset({ANY_DATA})}, {"bm25", "small"}),
    ],
)
def test_filter_admits_expected_rows(queries: dict[str, Any], expected: set[str]) -> None:
    assert admitted(**queries) == expected
    assert Filters(**queries).active == len(queries)
    assert Filters(**queries).admits(ROWS[-1])  # controls are not ranked


def test_filter_choices_come_from_the_store() -> None:
    result = choices(ROWS)
    assert set(result.kinds.values()) == {"retriever", "method"}
    assert set(result.readers.values()) == {"phi", "mistral", "gpt"}
    assert list(result.training.values()) == [ANY_DATA, "nq:train"]
    assert (result.sizes_known, result.weights_known) == (True, True)
    unknown = choices([ROWS[0], ROWS[-1]])
    assert (unknown.sizes_known, unknown.weights_known, unknown.training) == (False, False, {})


def test_search_matches_name_method_and_reader() -> None:
    assert [item.name for item in ROWS if matches(item, "PHI id-")] == ["bm25", "small", "mute", "gold"]
    assert not any(matches(item, "phi gpt") for item in ROWS)


def board(values: dict[str, float], apart: tuple[str, ...] = ()) -> Matrix:
    column = Column("a", tuple(item.runs["a"] for item in ROWS), "em#v2")
    why = dict.fromkeys(apart, "a reason")
    cells = {
        (item.key, "a"): Cell(
            item.runs["a"], values[item.name], values[item.name] - 0.1, values[item.name] + 0.1, 10, 0, 0, "", why.get(item.name, ""), False
        )
        for item in ROWS
        if item.name in values
    }
    costs = {"run-bm25": Cost(0.5, 10, 1, 0, 1, 0.2), "run-huge": Cost(2.0, 100, 1, 5, 1, 0.1)}
    return Matrix((column,), tuple(ROWS), cells, costs)


VALUES = {"bm25": 0.5, "small": 0.7, "huge": 0.6, "gold": 1.0}


@pytest.mark.parametrize(
    ("column", "descending", "expected"),
    [
        ("a", True, ["small", "huge", "bm25", "mute", "gold"]),
        ("a", False, ["bm25", "huge", "small", "mute", "gold"]),
        ("method", False, ["bm25", "huge", "mute", "small", "gold"]),
        ("parameters", True, ["huge", "small", "bm25", "mute", "gold"]),
        ("seconds", True, ["huge", "bm25", "small", "mute", "gold"]),
        ("tokens", False, ["bm25", "huge", "small", "mute", "gold"]),
        ("cost", True, ["bm25", "huge", "small", "mute", "gold"]),
    ],
)
def test_rows_are_sorted_with_missing_values_last(column: str, descending: bool, expected: list[str]) -> None:
    assert [item.name for item in ordered(board(VALUES), Order(column, descending))] == expected


@pytest.mark.parametrize("descending", [False, True])
def test_incomparable_values_are_sorted_below_comparable_ones(descending: bool) -> None:
    rows = ordered(board(VALUES, apart=("small",)), Order("a", descending))
    assert [item.name for item in rows][2:] == ["small", "mute", "gold"]


def test_default_order_lists_the_best_row_first() -> None:
    assert default_order(board(VALUES)) == Order("a", True)
    less = board(VALUES)
    assert default_order(replace(less, columns=(replace(less.columns[0], higher_is_better=False),))) == Order("a", False)
    assert default_order(board({})).column == "method"
    assert set(sort_columns(less)) == {"a", "method", "mean", "tokens", "seconds", "cost", "parameters"}


def names(rows: tuple[System, ...]) -> list[str]:
    return [item.name for item in rows]


def test_hidden_rows_are_removed_and_controls_stay_last() -> None:
    key: Callable[[str], str] = key_of
    made = board(VALUES)
    plain = visible_rows(made, Order("a", True), [], "", 0)
    assert names(plain.rows) == names(plain.matching) == ["small", "huge", "bm25", "mute", "gold"]
    less = visible_rows(made, Order("a", True), [key("huge"), "no such row"], "", 0)
    assert names(less.rows) == ["small", "bm25", "mute", "gold"]
    assert less.hidden == (key("huge"),)
    assert less.total == 3


@pytest.mark.parametrize(
    ("first", "expected"), [(0, ["small", "huge"]), (3, ["bm25", "mute"]), (99, ["bm25", "mute"]), (-5, ["small", "huge"])]
)
def test_page_numbers_are_clamped_to_existing_pages(first: int, expected: list[str]) -> None:
    result = visible_rows(board(VALUES), Order("a", True), [], "", first, page=2)
    assert names(result.rows) == [*expected, "gold"]
    assert result.total == 4
    assert result.first in (0, 2)
