"""Finished runs never change: `--fresh` and retries start new ones, and other experiments keep what they showed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ragmeter.api import run
from ragmeter.runner.loop import Interrupted
from results.boards.board import boards
from results.formats import exchange, pruning
from results.store import queries, tags
from results.store.store import BY_RUN, FINISHED, INTERRUPTED, Store, fingerprint_of, token_of
from tests.support.server import ChatRequest, OpenAIServer, Refused, Written

pytestmark = pytest.mark.slow

QUESTIONS = 6


class Model:
    """Served model whose answers can be replaced.

    Attributes:
        says: Its answer; None refuses.
        asked: Number of requests so far, without preflights.
    """

    def __init__(self) -> None:
        self.says: str | None = "Lyon"
        self.asked = 0
        self.refuses = 0

    def __call__(self, request: ChatRequest) -> Written:
        if request.prompt.startswith("Reply with the word ok"):
            return Written("ok")
        self.asked += 1
        if self.refuses:
            self.refuses -= 1
            raise Refused(400, "this prompt is refused")
        return Written(str(self.says), 10, 2)


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def url(model: Model) -> Iterator[str]:
    with OpenAIServer("m", model, any_model=True).running() as address:
        yield address


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def experiment(name: str, url: str, **more: Any) -> dict[str, Any]:
    llm = {"model": "m", "base_url": url, "key_variable": None, "attempts": 1}
    return {
        "name": name,
        "benchmarks": [{"id": "worlds/multihop", "split": "test", "setting": "distractor", "limit": QUESTIONS}],
        "methods": [{"id": "bm25", "name": "rag", "reader": {"id": "chat", "config": {"llm": llm}}}],
        "metrics": ["em"],
        **more,
    }


def snapshot(store: Store, ids: list[str]) -> dict[str, list[Any]]:
    """Return every row of runs, and everything that refers to them."""
    with store.database.reading() as connection:
        rows = {table: connection.execute(f"FROM {table} WHERE list_contains(?, run) ORDER BY ALL", [ids]).fetchall() for table in BY_RUN}
        rows["runs"] = connection.execute("FROM runs WHERE list_contains(?, run) ORDER BY ALL", [ids]).fetchall()
        rows["tags"] = connection.execute("FROM tags ORDER BY ALL").fetchall()
    return rows


def answers(store: Store, row: queries.RunRow) -> set[str]:
    return {prediction.answer for prediction in store.predictions(row.run)}


def test_fresh_leaves_other_experiments_tags_and_judgments_unchanged(model: Model, url: str, store: Store) -> None:
    judged = {"judges": [{"id": "rule_match"}]}
    run(experiment("first", url, **judged), store=store.folder)
    run(experiment("second", url), store=store.folder)
    calls = model.asked
    (old,) = queries.runs(store, "first")
    assert [row.run for row in queries.runs(store, "second")] == [old.run]
    assert calls == QUESTIONS
    tags.tag_run(store, "main", old)
    before, table = snapshot(store, [old.run]), [board.to_json() for board in boards(store, "first")]

    model.says = "Paris"
    run(experiment("second", url), store=store.folder, fresh=True)

    (new,) = queries.runs(store, "second")
    assert model.asked == 2 * calls
    assert (new.fingerprint, new.execution, old.execution) == (old.run, 2, 1)
    assert token_of(new.run)
    assert snapshot(store, [old.run]) == before
    assert [board.to_json() for board in boards(store, "first")] == table
    assert tags.find_run(store, "main").run == old.run
    assert (answers(store, old), answers(store, new)) == ({"Lyon"}, {"Paris"})


def test_repeated_command_sends_no_requests_and_keeps_the_run(model: Model, url: str, store: Store) -> None:
    run(experiment("x", url), store=store.folder, fresh=True)
    run(experiment("x", url), store=store.folder, fresh=True)
    calls, (row,) = model.asked, queries.runs(store, "x")
    run(experiment("x", url), store=store.folder)
    assert model.asked == calls == 2 * QUESTIONS
    assert [item.run for item in queries.runs(store, "x")] == [row.run]


def test_fresh_run_with_reused_replies_sends_no_requests(model: Model, url: str, store: Store) -> None:
    run(experiment("x", url), store=store.folder)
    model.says = "Paris"
    run(experiment("x", url), store=store.folder, fresh=True, reuse_replies=True)
    (new,) = queries.runs(store, "x")
    assert (new.execution, model.asked, answers(store, new)) == (2, QUESTIONS, {"Lyon"})
    with store.database.reading() as connection:
        cached = connection.execute("SELECT sum(cached_replies), count(oldest_reply) FROM predictions WHERE run = ?", [new.run]).fetchone()
    assert cached == (QUESTIONS, QUESTIONS)


def test_run_argument_selects_the_newest_finished_execution(model: Model, url: str, store: Store) -> None:
    for _ in range(3):
        run(experiment("x", url), store=store.folder, fresh=True)
    every = sorted(queries.runs(store), key=lambda row: row.execution)
    first, second, third = every
    with store.database.writing() as connection:
        connection.execute("UPDATE runs SET status = 'interrupted' WHERE run = ?", [third.run])
    assert queries.find_run(store, first.run[:6]).run == second.run
    assert [queries.find_run(store, row.exact).run for row in every] == [row.run for row in every]
    assert queries.find_run(store, "x/rag").run == third.run  # the experiment's own
    assert queries.find_run(store, second.run).run == second.run


def test_interrupted_fresh_run_is_resumed_by_the_same_command(model: Model, url: str, store: Store) -> None:
    run(experiment("x", url), store=store.folder)
    run(experiment("x", url), store=store.folder, fresh=True)
    (new,) = queries.runs(store, "x")
    with store.database.writing() as connection:
        connection.execute("DELETE FROM predictions WHERE run = ? AND question = (SELECT min(question) FROM predictions)", [new.run])
        connection.execute("UPDATE runs SET status = 'interrupted' WHERE run = ?", [new.run])
    run(experiment("x", url), store=store.folder)
    (again,) = queries.runs(store, "x")
    assert (again.run, again.status, again.done) == (new.run, FINISHED, QUESTIONS)
    assert model.asked == 2 * QUESTIONS  # its own replies are cached


def test_fresh_run_killed_before_its_start_is_not_replaced_by_the_old_run(model: Model, url: str, store: Store) -> None:
    run(experiment("x", url), store=store.folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ragmeter.runner.experiment.reach", _interrupt)
        with pytest.raises(Interrupted):
            run(experiment("x", url), store=store.folder, fresh=True)
    (begun,) = queries.runs(store, "x")
    assert (begun.status, begun.done) == (INTERRUPTED, 0)
    model.says = "Rhine"
    run(experiment("x", url), store=store.folder)
    (again,) = queries.runs(store, "x")
    assert (again.run, again.status, answers(store, again)) == (begun.run, FINISHED, {"Rhine"})


def _interrupt(*_: object) -> None:
    raise Interrupted


def test_retry_of_a_finished_run_starts_another_with_its_answers(model: Model, url: str, store: Store) -> None:
    model.refuses = 1
    run(experiment("x", url, max_failure_rate=0.5), store=store.folder)
    (old,) = queries.runs(store, "x")
    assert (old.status, old.failed) == (FINISHED, 1)
    before = snapshot(store, [old.run])
    run(experiment("x", url, max_failure_rate=0.5), store=store.folder, retry_failed=True)
    (new,) = queries.runs(store, "x")
    assert (new.failed, new.done, model.asked) == (0, QUESTIONS, QUESTIONS + 1)
    assert fingerprint_of(new.run) == old.run
    assert snapshot(store, [old.run]) == before


def test_finished_run_keeps_its_answers_and_accepts_no_more(model: Model, url: str, store: Store) -> None:
    run(experiment("x", url), store=store.folder)
    (row,) = queries.runs(store, "x")
    before = snapshot(store, [row.run])
    predictions = store.predictions(row.run)
    store.append(row.run, predictions, {})
    store.start(queries_run(row))
    store.end(row.run, "failed", "no")
    store.forget(row.run)
    assert snapshot(store, [row.run]) == before


def queries_run(row: queries.RunRow) -> Any:
    """Return the run of a row, as passed to the store."""
    from results.store.store import Run

    return Run(row.run, row.method, row.method_id, row.kind, {}, row.dataset, row.dataset_fingerprint, row.setting, 0, QUESTIONS, {})


def test_merging_keeps_two_finished_executions_apart(model: Model, url: str, tmp_path: Path) -> None:
    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    run(experiment("x", url), store=here.folder)
    model.says = "Paris"
    run(experiment("x", url), store=there.folder)
    (mine,), before = queries.runs(here, "x"), snapshot(here, [queries.runs(here, "x")[0].run])
    for _ in range(2):  # a second merge adds nothing
        exchange.merge(here, there.folder)
        assert snapshot(here, [mine.run]) == before
        assert [(row.fingerprint, row.done) for row in queries.runs(here)] == [(mine.run, QUESTIONS)] * 2
    (other,) = [row for row in queries.runs(here) if row.run != mine.run]
    assert answers(here, other) == {"Paris"}


@pytest.mark.parametrize("kind", ["tag", "experiment"])
def test_pruning_lists_the_references_to_a_run(kind: str, model: Model, url: str, store: Store, call: Callable[..., Any]) -> None:
    run(experiment("x", url), store=store.folder)
    (row,) = queries.runs(store, "x")
    if kind == "tag":
        tags.tag_run(store, "main", row)
    names = pruning.references(store, [row.run])[row.run]
    assert names == (["experiment x", "tag main"] if kind == "tag" else ["experiment x"])
    done = call("store", "prune", row.run, "--store", str(store.folder), "--json")
    assert (done.code, json.loads(done.out)["references"], queries.has_runs(store)) == (0, {row.run: names}, True)


def test_board_over_all_experiments_shows_only_the_newest_execution(model: Model, url: str, store: Store) -> None:
    run(experiment("x", url), store=store.folder)
    run(experiment("y", url), store=store.folder)
    run(experiment("y", url), store=store.folder, fresh=True)
    (new,) = queries.runs(store, "y")
    (board,) = boards(store)
    assert [row.run.run for row in board.rows] == [new.run]
