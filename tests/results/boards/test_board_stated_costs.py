"""What a submission does not say that it took is unknown: never free, never on the front, last when sorted."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, DataReference
from benchmarks.schema import Question
from judges.metric import parse
from leaderboard.elements.formats import PERCENT
from leaderboard.matrix.benchmark import of_metrics
from leaderboard.matrix.rows import Order, ordered
from leaderboard.views.budget import pareto_table
from methods.api import FAILED, Prediction, Usage
from results.boards.board import Board, boards
from results.boards.budget import budget_curves, informative_axis, quality_budget
from results.boards.markup import to_csv
from results.boards.matrix import Column, ranked_cells
from results.boards.systems import Wanted, figures, systems
from results.boards.tables import CSV_COLUMNS, tidy
from results.store import cost_queries, queries
from results.store.cost_queries import AS_STATED, NOT_STATED
from results.store.store import FINISHED, Run, Store
from tests.support.nodes import still
from tests.support.stores import change_score
from tests.support.toy import CARD

METRIC = str(parse("em"))
FULL = Usage(prompt_tokens=100, completion_tokens=5, model_calls=1, seconds={"read": 0.5}, cost_usd=0.01)
USAGES: Mapping[str, tuple[str, tuple[Usage, ...]]] = {
    "ours": ("run", (FULL,) * 3),
    "ours for nothing": ("run", (Usage(),) * 3),
    "silent": ("submitted", (Usage(),) * 3),
    "partly": ("submitted", (FULL, Usage(), FULL)),
    "timed": ("verified", (Usage(seconds={"retrieve": 0.1}),) * 3),
    "stated": ("submitted", (FULL,) * 3),
}


@pytest.fixture(scope="module")
def benchmark() -> Benchmark:
    questions = [Question(f"q{number}", f"what {number}?", ("a",)) for number in range(3)]
    return Benchmark(DataReference("toy", None, "dev"), 1, CARD, questions, Corpus.of([]))


@pytest.fixture
def board(store: Store, benchmark: Benchmark, once: Callable[..., Board]) -> Board:
    return once(store, benchmark, by=with_runs)


def with_runs(store: Store, benchmark: Benchmark) -> Board:
    store.put_benchmark(benchmark, benchmark.fingerprint)
    store.put_cards([], [parse("em")])
    for name, (origin, usages) in USAGES.items():
        keep(store, benchmark, name, origin, [Prediction(f"q{n}", "a", usage=usage) for n, usage in enumerate(usages)])
    (result,) = boards(store)
    return result


def keep(store: Store, benchmark: Benchmark, name: str, origin: str, predictions: list[Prediction]) -> None:
    run = Run(name, name, "m", "method", {}, "toy:dev", benchmark.fingerprint, "distractor", 0, 3, {}, {}, origin)
    store.start(run)
    store.append(name, predictions, {METRIC: np.ones(3)})
    store.end(name, FINISHED)


@pytest.mark.slow
def test_what_a_sender_does_not_say_is_unknown_and_what_was_measured_here_is_not(store: Store, board: Board) -> None:
    costs = cost_queries.costs(store, list(USAGES))
    assert (costs["ours"].tokens, costs["ours"].seconds, costs["ours"].cost_usd) == (105, 0.5, pytest.approx(0.03))
    assert costs["stated"] == costs["ours"]
    assert (costs["ours for nothing"].tokens, costs["ours for nothing"].cost_usd) == (0, 0)
    for name in ("silent", "partly"):
        assert all(math.isnan(getattr(costs[name], field)) for field in costs[name].__slots__), name
    timed = costs["timed"]
    assert timed.seconds == pytest.approx(0.1)
    assert math.isnan(timed.tokens)
    assert math.isnan(timed.delivered)
    assert math.isnan(timed.model_calls)
    assert math.isnan(timed.cost_usd)


def test_a_failed_question_needs_no_usage(store: Store, benchmark: Benchmark, board: Board) -> None:
    responses = [Prediction("q0", "", notes={FAILED: "timeout"}), *(Prediction(f"q{n}", "a", usage=FULL) for n in (1, 2))]
    keep(store, benchmark, "broke once", "submitted", responses)
    assert cost_queries.costs(store, ["broke once"])["broke once"].tokens == pytest.approx(70)


@pytest.mark.parametrize("axis", ["tokens", "delivered", "seconds", "cost"])
def test_an_unknown_cost_is_never_on_the_front_and_stands_last(board: Board, axis: str) -> None:
    results = quality_budget(board, METRIC, axis)  # type: ignore[arg-type]
    unknown = {"silent", "partly"} if axis == "seconds" else {"silent", "partly", "timed"}
    assert {item.row.run.method for item in results[-len(unknown) :]} == unknown
    assert [item.row.run.method for item in results if item.front] == ["ours for nothing"]
    shown = [" ".join(line.texts()) for line in pareto_table(results, axis, METRIC, PERCENT).find(tag="tr")]  # type: ignore[arg-type]
    assert [line for line in shown if " – " in line] == shown[-len(unknown) :]
    assert len(budget_curves(board, METRIC)) == 2


@pytest.mark.slow
def test_unknown_tokens_do_not_choose_the_axis(store: Store, benchmark: Benchmark) -> None:
    store.put_benchmark(benchmark, benchmark.fingerprint)
    for name in ("ours for nothing", "silent", "timed"):
        origin, usages = USAGES[name]
        keep(store, benchmark, name, origin, [Prediction(f"q{n}", "a", usage=usage) for n, usage in enumerate(usages)])
    assert informative_axis(boards(store)[0]) == "seconds"


@pytest.mark.parametrize("column", ["tokens", "seconds", "cost"])
@pytest.mark.parametrize("descending", [False, True])
def test_unknown_costs_sort_last_either_way(board: Board, column: str, descending: bool) -> None:
    methods = [row.name for row in ordered(of_metrics(board, METRIC, {}, ({}, {}), {}).board, Order(column, descending))]
    assert {"silent", "partly"} <= set(methods[-3:])


def test_a_table_shows_no_number_and_says_whose_word_the_others_are(board: Board) -> None:
    drawn = still(of_metrics(board, METRIC, {}, ({}, {}), {}))
    for line in [*drawn.find(tag="tr")][1:]:
        name, *cells = line.children
        spent = cells[-3:]
        texts, tips = [" ".join(cell.texts()) for cell in spent], [cell.tip for cell in spent]
        method = next(iter(name.texts()))
        assert (texts == ["–"] * 3) == (method in ("silent", "partly"))
        assert all((AS_STATED in tip) == (method in ("stated", "timed") and text != "–") for tip, text in zip(tips, texts, strict=True))
        assert [tip == NOT_STATED for tip in tips] == [text == "–" for text in texts]


def test_exports_leave_unknown_costs_empty(board: Board) -> None:
    rows = {row["method"]: row for row in csv.DictReader(io.StringIO(to_csv(CSV_COLUMNS, tidy(board))))}
    names = ("seconds_per_question", "tokens_per_question", "memory_tokens_per_question", "cost_usd")
    assert [rows["silent"][name] for name in names] == [""] * 4
    assert float(rows["timed"][names[0]]) == pytest.approx(0.1)
    assert [rows["timed"][name] for name in names[1:]] == [""] * 3
    assert float(rows["ours for nothing"]["tokens_per_question"]) == 0
    responses = {row["method"]: row["cost"] for row in board.to_json()["rows"]}
    assert set(responses["silent"].values()) == {None}


def test_a_column_of_costs_has_no_value_for_them(store: Store, benchmark: Benchmark, board: Board) -> None:
    runs = tuple(USAGES)
    wanted = [Wanted(metric, benchmark.fingerprint, runs, metric) for metric in ("tokens", "seconds", "dollars", METRIC)]
    results = {key: item.means.n.tolist() for key, item in figures(store, wanted).items()}
    assert results["tokens"] == [3, 3, 0, 0, 0, 3]
    assert results["dollars"] == [3, 3, 0, 0, 0, 3]
    assert results["seconds"] == [3, 3, 0, 0, 3, 3]
    assert results[METRIC] == [3] * 6


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["tokens", "seconds", "dollars"])
def test_a_cell_of_the_matrix_says_that_the_sender_does_not_state_it(store: Store, benchmark: Benchmark, board: Board, metric: str) -> None:
    column = Column("c", tuple(queries.runs(store)), metric, higher_is_better=False, ranked=False)
    result = figures(store, [Wanted("c", benchmark.fingerprint, tuple(USAGES), metric)])
    rows = systems({"c": column.runs}, {}, {})
    cells = ranked_cells([column], rows, result, cards={}, known={}, violations={})
    unknown = {"silent", "partly"} if metric == "seconds" else {"silent", "partly", "timed"}
    for cell in cells.values():
        assert (cell.apart, cell.n) == ((NOT_STATED, 0) if cell.run.method in unknown else ("", 3))
        assert cell.unscorable == 0
    assert len(cells) == len(USAGES)


def test_a_score_that_no_question_has_is_still_called_so(store: Store, benchmark: Benchmark, board: Board) -> None:
    change_score(store, "silent", METRIC, None)
    column = Column("c", tuple(run for run in queries.runs(store) if run.method == "silent"), METRIC)
    result = figures(store, [Wanted("c", benchmark.fingerprint, ("silent",), METRIC)])
    (item,) = ranked_cells([column], systems({"c": column.runs}, {}, {}), result, cards={}, known={}, violations={}).values()
    assert (item.apart, item.unscorable) == ("no question could be scored", 3)
