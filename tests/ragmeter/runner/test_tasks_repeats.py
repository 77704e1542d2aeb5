"""Repeats: every question is answered and judged several times, and the board merges the answers in one row."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
import pytest

from judges.judge import Judge
from methods.api import Services
from ragmeter.api import run
from ragmeter.experiment import JudgePlan
from ragmeter.runner.judging import execute, judgings
from results.boards import sample_size
from results.boards.board import Board, boards
from results.judging.battles import battle_boards
from results.store import queries, score_queries
from results.store.store import Store
from tests.support.server import ChatRequest, OpenAIServer, Written

pytestmark = pytest.mark.slow


class Silent:
    """Progress without output."""

    def begin(self, name: str, total: int, done: int) -> None: ...
    def advance(self, questions: int) -> None: ...


TEXT = """\
name: again
repeats: {repeats}
reference: varies
benchmarks: [{{id: worlds/multihop, split: test, setting: distractor, limit: 3, config: {{worlds: 1}}}}]
methods:
  - {{id: bm25, name: varies, reader: {{id: chat, config: {{llm: {{model: varies, base_url: "{url}", key_variable: null}}}}}}}}
  - {{id: bm25, name: steady, reader: {{id: chat, config: {{llm: {{model: steady, base_url: "{url}", key_variable: null}}}}}}}}
  - {{id: gold_answer, name: once, repeats: 1}}
metrics: [em]
judges: [{{id: match, config: {{repetitions: 1, llm: {{model: judge, base_url: "{url}", key_variable: null}}}}}}]
"""


class Models:
    """Served models: `varies` never answers the same twice, `steady` always does.

    Attributes:
        requests: Number of requests by model and prompt.
    """

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()

    def __call__(self, request: ChatRequest) -> Written:
        if request.prompt.startswith("Reply with the word ok"):
            return Written("ok")
        key = request.model, str(request.messages)
        self.requests[key] += 1
        times = self.requests[key]
        if request.model == "judge":
            return Written(("Match", "Mismatch")[len(self.requests) % 2])
        times = times if request.model == "varies" else 0
        return Written(f"Lyon {times}", 10, 2)


class Repeated(NamedTuple):
    """A store in which every method has answered three times, and the requests for it.

    Attributes:
        store: The store.
        board: Its board.
        first: Runs by method after each question had been answered once.
        requests: Number of requests by model and prompt.
    """

    store: Store
    board: Board
    first: dict[str, str]
    requests: Counter[tuple[str, str]]

    def per_prompt(self, model: str) -> set[int]:
        return {times for (name, _), times in self.requests.items() if name == model}

    def runs(self) -> dict[str, str]:
        return {row.method: row.run for row in queries.runs(self.store, "again")}


@pytest.fixture(scope="module")
def repeated(tmp_path_factory: pytest.TempPathFactory) -> Repeated:
    folder, models = tmp_path_factory.mktemp("repeats"), Models()
    store, first = Store(folder / "store"), dict[str, str]()
    with OpenAIServer("m", models, any_model=True).running() as url:
        for repeats in (1, 3):
            (folder / "again.yaml").write_text(TEXT.format(repeats=repeats, url=url))
            assert not run(folder / "again.yaml", store=store.folder).failed
            first = first or {row.method: row.run for row in queries.runs(store, "again")}
    (board,) = boards(store, "again")
    return Repeated(store, board, first, models.requests)


def test_each_repeat_answers_every_question_once_and_keeps_earlier_runs(repeated: Repeated) -> None:
    assert repeated.per_prompt("varies") == repeated.per_prompt("steady") == {3}
    runs = repeated.runs()
    assert list(runs) == ["varies", "varies ~2", "varies ~3", "steady", "steady ~2", "steady ~3", "once"]
    assert repeated.first.items() <= runs.items()
    answers = [{p.answer for p in repeated.store.predictions(runs[name])} for name in ("varies", "varies ~2", "varies ~3")]
    assert answers == [{"Lyon 1"}, {"Lyon 2"}, {"Lyon 3"}]


def test_equal_answers_of_each_repeat_are_judged_again(repeated: Repeated) -> None:
    assert repeated.per_prompt("judge") == {1, 3}


def test_repeats_are_one_row_of_the_board(repeated: Repeated) -> None:
    assert [row.run.method for row in repeated.board.rows] == ["varies (3 repeats)", "steady (3 repeats)", "once"]


def test_equal_repeats_are_reported_and_varying_ones_are_not(repeated: Repeated) -> None:
    lines = [line for line in repeated.board.health if line.code == "equal_repeats"]
    assert [(line.method, line.values) for line in lines] == [("steady", {"repeats": 3})]


def test_repeat_row_has_the_mean_per_question_and_is_not_a_training(repeated: Repeated) -> None:
    cells = {row.run.method: row.cells for row in repeated.board.rows}
    metric = next(name for name in repeated.board.metrics if not name.startswith("em"))
    runs = [run for name, run in repeated.runs().items() if name.startswith("varies")]
    scores = score_queries.score_columns(repeated.store, repeated.board.dataset_fingerprint, runs, [metric])
    single = np.stack([scores.values[name, metric] for name in runs])
    cell = cells["varies (3 repeats)"][metric]
    assert single.std(axis=0).max() > 0
    assert cell.estimate.value == pytest.approx(single.mean())
    assert cell.by_repeat == pytest.approx(tuple(single.mean(axis=1)))
    assert cell.by_seed == ()
    difference = cells["steady (3 repeats)"][metric].difference
    assert difference is not None
    assert "checkpoint" not in difference.generalizes


def test_pairwise_judges_compare_runs_of_the_same_repeat(repeated: Repeated) -> None:
    plan, rows = JudgePlan(Judge.of("rule_pairwise")), queries.runs(repeated.store, "again")
    pairs = {frozenset(run.method for run in pair.runs) for pair in judgings([plan], rows, "varies")}
    same = {frozenset((f"varies{mark}", f"steady{mark}")) for mark in ("", " ~2", " ~3")}
    assert pairs == same | {frozenset(("varies", "once"))}


def test_reference_with_fewer_repeats_is_compared_by_its_first_repeat(repeated: Repeated) -> None:
    plan, rows = JudgePlan(Judge.of("rule_pairwise")), queries.runs(repeated.store, "again")
    pairs = {frozenset(run.method for run in pair.runs) for pair in judgings([plan], rows, "once")}
    assert pairs == {frozenset(("once", name)) for name in repeated.runs() if name != "once"}


def test_power_plan_uses_all_repeats_of_both_pilots(repeated: Repeated) -> None:
    rows = {row.method: row for row in queries.runs(repeated.store, "again")}
    (plan,) = sample_size.planned(repeated.store, rows["steady"], rows["varies"], ["accuracy"], 0.2)
    cells = {row.run.method: row.cells for row in repeated.board.rows}
    difference = cells["steady (3 repeats)"][plan.metric].difference
    assert difference is not None
    assert plan.pilot.value == pytest.approx(-difference.value)
    assert {(item.seeds, item.repeats) for item in plan.others} <= {(None, 1), (None, 3), (None, 10)}


def test_each_repeat_has_a_board_of_battles(repeated: Repeated) -> None:
    rows = queries.runs(repeated.store, "again")
    execute(judgings([JudgePlan(Judge.of("rule_pairwise"))], rows, "varies"), repeated.store, Services(), Silent())
    fought = [
        {(item.method, item.opponent) for item in board.pairings if item.criterion == "overall"}
        for board in battle_boards(repeated.store, rows, "varies")
    ]
    assert fought == [{("steady", "varies"), ("once", "varies")}, {("steady ~2", "varies ~2")}, {("steady ~3", "varies ~3")}]
