"""Repeats: every question is answered and judged several times, and the board joins the answers in one row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ragmeter import experiment as experiments
from ragmeter.api import run
from ragmeter.runner.judging import judgings
from results.boards.board import Board, boards
from results.store import queries
from results.store.store import Store
from tests.support.server import ChatRequest, OpenAIServer, Written

QUESTIONS = 6
TEXT = """\
name: again
repeats: {repeats}
reference: varies
benchmarks: [{{id: worlds/multihop, split: test, setting: distractor, limit: 6, config: {{worlds: 1}}}}]
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
        requests: How often each model was asked each prompt.
    """

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()

    def __call__(self, request: ChatRequest) -> Written:
        if request.prompt.startswith("Reply with the word ok"):
            return Written("ok")
        asked = request.model, str(request.messages)
        self.requests[asked] += 1
        times = self.requests[asked]
        if request.model == "judge":
            return Written(("Match", "Mismatch")[len(self.requests) % 2])
        times = times if request.model == "varies" else 0
        return Written(f"Lyon {times}", 10, 2)

    def per_prompt(self, model: str) -> list[int]:
        return [times for (name, _), times in self.requests.items() if name == model]


@pytest.fixture
def models() -> Models:
    return Models()


@pytest.fixture
def url(models: Models) -> Iterator[str]:
    with OpenAIServer("m", models, any_model=True).running() as address:
        yield address


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def answered(store: Store, url: str, repeats: int) -> Board:
    path = store.folder.parent / "again.yaml"
    path.write_text(TEXT.format(repeats=repeats, url=url))
    assert not run(path, store=store.folder).failed
    (result,) = boards(store, "again")
    return result


def test_questions_are_asked_once_per_repeat_and_only_new_repeats_are_asked(store: Store, url: str, models: Models) -> None:
    answered(store, url, 1)
    before = {row.method: row.run for row in queries.runs(store, "again")}
    board = answered(store, url, 3)
    assert models.per_prompt("varies") == models.per_prompt("steady") == [3] * QUESTIONS
    runs = {row.method: row.run for row in queries.runs(store, "again")}
    assert list(runs) == ["varies", "varies ~2", "varies ~3", "steady", "steady ~2", "steady ~3", "once"]
    assert before.items() <= runs.items()
    assert [row.run.method for row in board.rows] == ["varies (3 repeats)", "steady (3 repeats)", "once"]
    answers = [{p.answer for p in store.predictions(runs[name])} for name in ("varies", "varies ~2", "varies ~3")]
    assert answers == [{"Lyon 1"}, {"Lyon 2"}, {"Lyon 3"}]
    answered(store, url, 3)
    assert models.per_prompt("varies") == [3] * QUESTIONS
    assert sorted(set(models.per_prompt("judge"))) == [1, 3], "equal answers are judged again for each repeat"


def test_equal_repeats_are_reported_and_varying_ones_are_not(store: Store, url: str) -> None:
    lines = [line for line in answered(store, url, 3).health if line.code == "equal_repeats"]
    assert [(line.method, line.values) for line in lines] == [("steady", {"repeats": 3})]


def test_row_of_repeats_has_the_mean_of_each_question_and_is_not_a_training(store: Store, url: str) -> None:
    board = answered(store, url, 2)
    row = board.rows[0]
    (metric,) = [name for name in board.metrics if name != "em#v1" and "match" in name][:1]
    runs = [item.run for item in queries.runs(store, "again") if item.method.startswith("varies")]
    scores = queries.score_columns(store, board.dataset_fingerprint, runs, [metric]).values
    single = np.stack([scores[name, metric] for name in runs])
    assert row.cells[metric].estimate.value == pytest.approx(single.mean())
    assert row.cells[metric].by_repeat == pytest.approx(tuple(single.mean(axis=1)))
    assert row.cells[metric].by_seed == ()
    difference = board.rows[1].cells[metric].difference
    assert difference is not None
    assert "checkpoint" not in difference.generalizes


def test_pair_judges_compare_runs_of_one_repeat(store: Store, url: str, tmp_path: Path) -> None:
    answered(store, url, 2)
    path = tmp_path / "pairs.yaml"
    path.write_text(TEXT.format(repeats=2, url=url).replace("judges: [{id: match", "judges: [{id: rule_pairwise}, {id: match"))
    plans = experiments.load(str(path)).judges[:1]
    rows = queries.runs(store, "again")
    work = judgings(plans, rows, "varies")
    named = {frozenset(item.method for item in pair.runs) for pair in work}
    assert named == {frozenset(pair) for pair in (("varies", "steady"), ("varies ~2", "steady ~2"), ("varies", "once"))}
    single = [replace(item, method="varies ~3") if item.method == "varies ~2" else item for item in rows]
    named = {frozenset(item.method for item in pair.runs) for pair in judgings(plans, single, "varies")}
    assert frozenset(("varies", "steady ~2")) in named, "a reference with fewer repeats is compared with its first one"
