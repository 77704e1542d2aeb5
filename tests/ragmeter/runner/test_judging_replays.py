"""Judgings replayed without calls: every verdict is accounted for under faults and with another policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from judges.judge import LOST, Judge, Score, counting
from judges.llm import ask
from methods.api import Services
from methods.models.reply_cache import ResponseCache
from methods.models.weights import POCKET
from ragmeter.runner.judging import Replayed, replay
from results.judging import judgments
from results.judging.battles import battle_boards
from results.store import queries
from results.store.store import Store
from tests.support.faults import Faults
from tests.support.scripted import WorldTruth
from tests.support.server import ChatRequest


@pytest.fixture(scope="session")
def small(module_at: Callable[[Path], ModuleType]) -> ModuleType:
    return module_at(Path(__file__).with_name("small_experiment.py"))


@pytest.fixture(scope="session")
def experiment_text(small: ModuleType) -> str:
    return small.EXPERIMENT


def again(store: Store, old: Judge, new: Judge | None = None) -> list[Replayed]:
    def kept(keys: Sequence[str]) -> dict[str, str]:
        return {key: reply.reply["text"].strip() for key, reply in ResponseCache(store.cache).get(keys).items()}

    return replay(store, str(old), new or old, Services(), queries.runs(store), kept)


JUDGED = ("battles", "battle_calls", "judge_calls", "scores", "summaries")


@pytest.mark.slow
def test_pairwise_judging_of_all_pairs_survives_faults_and_replays_offline(small: ModuleType, store: Store) -> None:
    """A fifth of the tries and a fifth of the replies are faulty."""
    repetitions, chosen = 2, ["bm25", "random + extractive", "gold_answer"]
    faults = Faults(passing=0.2)
    truth = WorldTruth.of(small.REFERENCE, corruption=0.2, faults=faults)
    server = truth.server()
    with server.running() as url:
        pairwise = small.llm("pairwise", url, repetitions=repetitions, timeout_s=2.0)
        small.judge(store, pairwise, small.runs(store, *chosen))
        query = server.calls
    assert sum(faults.played.values()) > 0
    assert sum(truth.corrupted.values()) > 0
    assert truth.unrecognized == 0

    (board,) = battle_boards(store, small.runs(store, *chosen), "bm25")
    for pairing in board.pairings:
        response = pairing.rate.verdicts
        assert pairing.pending == 0
        assert sum(response.values()) == 2 * repetitions * (small.QUESTIONS - pairing.unscorable)
    kept = small.rows(store, "battles")["battles"]
    by_cell = Counter((row[4], row[5], row[6], row[3], row[7], row[8]) for row in kept)  # question … repetition
    assert set(by_cell.values()) == {1}
    pairs = len(chosen) - 1
    verdicts = [(row[9], row[10]) for row in kept if (row[9], row[10]) != (None, None)]
    unscorable = {row[4] for row in kept} - {row[4] for row in kept if (row[9], row[10]) != (None, None)}
    assert len(verdicts) == pairs * (small.QUESTIONS - len(unscorable)) * 2 * repetitions * len(pairwise.entry.criteria)
    assert all((verdict is None) != (reason is None) for verdict, reason in verdicts)
    assert any(reason for _, reason in verdicts)

    before = small.rows(store, *JUDGED)
    boards_before = [board.to_json() for board in battle_boards(store, small.runs(store, *chosen), "bm25")]
    (*results,) = again(store, pairwise)
    assert server.calls == query
    assert sum(item.changed + item.lost for item in results) == 0
    assert sum(item.questions for item in results) == pairs * small.QUESTIONS
    assert small.rows(store, *JUDGED) == before
    assert [board.to_json() for board in battle_boards(store, small.runs(store, *chosen), "bm25")] == boards_before


class Sheet:
    """Match judging with given replies in the store's cache."""

    def __init__(self, small: ModuleType, store: Store) -> None:
        self.truth = WorldTruth.of(small.REFERENCE)
        response = iter(["Match", "Partial", "Mismatch", "dunno", "dunno"] * small.QUESTIONS)

        @self.truth.handle
        def tell(_: WorldTruth, request: ChatRequest) -> str | None:
            return next(response) if "Partial" in str(request.messages) else None

        self.server = self.truth.server()
        (self.run,) = small.runs(store, "random + extractive")
        with self.server.running() as url:
            self.judge = small.llm("match", url, exact="none", concurrency=1)
            small.judge(store, self.judge, [self.run])
        self.calls = self.server.calls

    def other(self, **options: Any) -> Judge:
        return Judge.of("match", {**self.judge.config.model_dump(), **options})


@pytest.mark.slow
def test_replay_with_another_policy_keeps_old_scores_and_makes_no_call(small: ModuleType, store: Store) -> None:
    sheet = Sheet(small, store)
    before = judgments.scores(store, sheet.run.run, str(sheet.judge))
    drop = sheet.other(partial="drop")
    (result,) = again(store, sheet.judge, drop)
    after = judgments.scores(store, sheet.run.run, str(drop))
    made = judgments.calls(store, sheet.run.run, str(sheet.judge))
    verdicts = {question: (counting(calls)[0].parsed.value or {}).get("verdict") for question, calls in made.items()}
    partial = {question for question, verdict in verdicts.items() if verdict == "Partial"}
    assert len(partial) > 1
    assert {q for q in before if before[q]["accuracy"] != after[q]["accuracy"]} == partial
    assert all(before[q]["accuracy"].value == 0.0 for q in partial)
    assert all(after[q]["accuracy"] == Score(None) for q in partial)
    assert judgments.scores(store, sheet.run.run, str(sheet.judge)) == before
    assert (result.questions, result.changed, result.lost) == (small.QUESTIONS, len(partial), 0)
    assert sheet.server.calls == sheet.calls


@pytest.mark.slow
@pytest.mark.parametrize("model", [{"scripted": "worlds/multihop:test", "corruption": 0.2}, {"local": POCKET}], ids=["script", "weights"])
def test_replies_of_a_local_model_are_replayed_without_it(
    small: ModuleType, store: Store, monkeypatch: pytest.MonkeyPatch, model: dict[str, Any]
) -> None:
    judge = Judge.of("match", {"llm": model, "exact": "none", "repetitions": 2})
    runs = small.runs(store, "random + extractive", "gold_answer")
    small.judge(store, judge, runs)
    tables = [name for name in JUDGED if name != "summaries"]  # whose last bits depend on the row order
    before = small.rows(store, *tables)
    made = [call for run in runs for calls in judgments.calls(store, run.run, str(judge)).values() for call in calls]
    cached = set(ResponseCache(store.cache).get([call.key for call in made if call.key is not None]))
    assert len(cached) > small.QUESTIONS

    def opened(*_: object, **__: object) -> None:
        raise AssertionError("a model was opened")

    monkeypatch.setattr(ask, "open_llm", opened)
    results = again(store, judge)
    assert [(item.lost, item.changed) for item in results] == [(0, 0)] * 2
    assert sum(item.calls for item in results) == sum(call.key is not None for call in made)
    # It is not opened to find that everything is judged.
    small.judge(store, judge, runs)
    assert small.rows(store, *tables) == before


@pytest.mark.slow
def test_missing_reply_is_unscored_under_another_policy(small: ModuleType, store: Store) -> None:
    sheet = Sheet(small, store)
    calls = judgments.calls(store, sheet.run.run, str(sheet.judge))
    read = [question for question, made in calls.items() if counting(made)[0].parsed.value is not None]
    assert 0 < len(read) < len(calls)
    store.cache.unlink()
    before = judgments.scores(store, sheet.run.run, str(sheet.judge))
    drop = sheet.other(partial="drop")
    (result,) = again(store, sheet.judge, drop)
    assert (result.calls, result.lost) == (sheet.calls - len(read), len(read))
    after = judgments.scores(store, sheet.run.run, str(drop))
    assert {score["accuracy"].unscored for question, score in after.items() if question in read} == {LOST}
    # An unreadable reply then stays unreadable.
    assert {q: s for q, s in after.items() if q not in read} == {q: s for q, s in before.items() if q not in read}


@pytest.mark.slow
def test_replay_of_the_same_judge_keeps_verdicts_without_replies(small: ModuleType, store: Store) -> None:
    sheet = Sheet(small, store)
    before = judgments.scores(store, sheet.run.run, str(sheet.judge))
    store.cache.unlink()
    (result,) = again(store, sheet.judge)
    assert result.lost > 0
    assert result.changed == 0
    assert judgments.scores(store, sheet.run.run, str(sheet.judge)) == before


@pytest.mark.slow
def test_rule_judges_judge_again_in_a_replay(small: ModuleType, store: Store) -> None:
    loose, strict = Judge.of("rule_match", {"partial_f1": 0.05}), Judge.of("rule_match", {"partial_f1": 1.0})
    (run,) = small.runs(store, "random + extractive")
    for item in (loose, strict):
        small.judge(store, item, [run])
    direct = judgments.scores(store, run.run, str(strict))
    with store.database.writing() as connection:
        connection.execute("DELETE FROM judge_calls WHERE judge = ?", [str(strict)])
        connection.execute("DELETE FROM scores WHERE list_contains(?, metric)", [list(strict.metrics.values())])
    again(store, loose, strict)
    assert judgments.scores(store, run.run, str(strict)) == direct


@pytest.mark.slow
def test_unscorable_question_stays_unscorable_under_another_policy(small: ModuleType, store: Store) -> None:
    """A question without gold needs no call, but every judge counts it."""
    (run,) = small.runs(store, "random + extractive")
    first = store.predictions(run.run)[0].question_id
    with store.database.writing() as connection:
        connection.execute("UPDATE questions SET answers = [], golds = [] WHERE question = ?", [first])
    sheet = Sheet(small, store)
    drop = sheet.other(partial="drop")
    again(store, sheet.judge, drop)
    assert judgments.scores(store, run.run, str(drop))[first]["accuracy"] == Score(None)
    assert len(judgments.scores(store, run.run, str(drop))) == small.QUESTIONS
    pairwise = Judge.of("rule_pairwise")
    chosen = small.runs(store, "bm25", "random + extractive")
    small.judge(store, pairwise, chosen)
    ((_, total, done),) = small.judge(store, pairwise, chosen).prepared
    assert (total, done) == (small.QUESTIONS, small.QUESTIONS)
    before = small.rows(store, "battles")
    again(store, pairwise)
    assert small.rows(store, "battles") == before
    (board,) = battle_boards(store, chosen, "bm25")
    assert {pairing.unscorable for pairing in board.pairings} == {1}
