"""Calls of models under the questions that they were made for, and a question's own seconds without its waiting."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from methods.api import FAILED, KEPT_CALLS, KEPT_CHARACTERS, WAIT, Call, Prediction, Usage, kept
from ragmeter.show import run_text as command
from results.formats import exchange, pruning
from results.store import answer_queries, cost_queries, provenance
from results.store.redaction import HIDDEN
from results.store.store import Run, Store

RUN = Run("f00dfeed", "hyde", "hyde", "retriever", {"id": "hyde"}, "toy:dev", "d1", "corpus", 0, 3, {})
CALLS = (
    Call("hyde", "expand", "user: who?", "a passage", 12, 40, 0.5),
    Call("reader", "", "user: and who\nwas it?", "He was.", 200, 3, 0.25, cached=True),
    Call("reader", "", "user: now?", "no reply: timeout", failed=True),
)


def append(store: Store, *predictions: Prediction) -> None:
    store.start(RUN)
    store.append(RUN.run, predictions, {})


def test_calls_are_kept_in_order_and_go_with_their_answer(store: Store) -> None:
    append(store, Prediction("q1", "", notes={FAILED: "HTTP 500"}, calls=CALLS), Prediction("q2", "b"))
    assert answer_queries.calls(store, RUN.run, "q1") == list(CALLS)
    assert answer_queries.calls(store, RUN.run, "q2") == []
    append(store, Prediction("q1", "again", calls=CALLS[1:]))
    assert answer_queries.calls(store, RUN.run, "q1") == list(CALLS[1:])
    store.forget(RUN.run)
    assert answer_queries.calls(store, RUN.run, "q1") == []


def test_calls_can_be_left_out(store: Store) -> None:
    append(Store(store.folder, calls=False), Prediction("q1", "a", calls=CALLS))
    assert answer_queries.calls(store, RUN.run, "q1") == []
    assert [prediction.answer for prediction in store.predictions(RUN.run)] == ["a"]


def test_what_is_kept_is_bounded_and_cut_once(store: Store) -> None:
    long = "x" * (2 * KEPT_CHARACTERS)
    append(store, Prediction("q1", "a", calls=(Call("reader", "", long, kept(long)), *CALLS * KEPT_CALLS)))
    stored = answer_queries.calls(store, RUN.run, "q1")
    assert len(stored) == KEPT_CALLS
    assert (stored[0].prompt, stored[0].reply) == (kept(long), kept(long))
    assert kept(kept(long)) == kept(long)
    assert len(kept(long)) <= KEPT_CHARACTERS


def test_keys_and_half_characters_of_models_are_not_shown(store: Store) -> None:
    secret = "sk-proj-Zq7Hostile0Key1Never2Shown3"
    further = {"thought": f"key {secret}", "raw": f"key {secret}", "refusal": f"key {secret}"}
    append(store, Prediction("q1", "a", calls=(Call("reader", "", f"key {secret}", "\ud800 half", **further),)))
    (call,) = answer_queries.calls(store, RUN.run, "q1")
    assert (call.prompt, call.reply) == (f"key {HIDDEN}", "? half")
    assert {call.thought, call.raw, call.refusal} == {f"key {HIDDEN}"}


def test_pruning_a_run_takes_its_calls(store: Store, tmp_path: Path) -> None:
    append(store, Prediction("q1", "a", calls=CALLS))
    exchange.export(store, tmp_path / "out", [RUN.run])
    pruning.prune(store, [RUN.run])
    assert answer_queries.calls(store, RUN.run, "q1") == []
    exchange.merge(store, tmp_path / "out")
    assert answer_queries.calls(store, RUN.run, "q1") == list(CALLS)


def test_a_question_takes_its_own_seconds_and_percentiles_are_those_of_numpy(store: Store) -> None:
    own = np.random.default_rng(3).exponential(size=41)
    usages = [Usage(seconds={"retrieve": spent / 4, "read": 3 * spent / 4, WAIT: 100.0}) for spent in own]
    append(store, *(Prediction(f"q{number:02}", "a", usage=usage) for number, usage in enumerate(usages)))
    cost = cost_queries.costs(store, [RUN.run])[RUN.run]
    assert (cost.seconds, cost.seconds_p50, cost.seconds_p95) == pytest.approx((own.mean(), *np.percentile(own, [50, 95])))
    assert store.predictions(RUN.run)[0].usage.seconds[WAIT] == 100.0


def test_costs_do_not_depend_on_the_order_of_answers(store: Store) -> None:
    # Added in this order, 0.1 is lost beside 1e16.
    spent = (0.1, 1e16, -1e16, 0.3, 0.7)
    costs = []
    for order in (spent, spent[::-1], spent[2:] + spent[:2]):
        store.forget(RUN.run)
        usages = [Usage(seconds={"read": value}, cost_usd=value) for value in order]
        append(store, *(Prediction(f"q{number}", "a", usage=usage) for number, usage in enumerate(usages)))
        costs.append((cost_queries.costs(store, [RUN.run]), provenance.stage_seconds(store, [RUN.run])))
    assert costs == [costs[0]] * len(costs)


def shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, verbose: bool, calls: Sequence[Call] = CALLS) -> str:
    question = answer_queries.QuestionRow("q1", "Who?", ("He",), ("He",), (), (), "", None)
    answer = answer_queries.AnswerRow("r", "m", "He", None, {}, (), {}, {}, {"read": 0.75}, 1, 1, 0, 3, 0.0, len(CALLS), 2.0)
    monkeypatch.setattr("ragmeter.show.run_text.score_queries", SimpleNamespace(definitions=lambda store: {}))
    calls = [*calls, replace(CALLS[0], prompt="begin " + "[bold]x " * 500 + "end")]
    any_store: Any = None
    command.show_question(any_store, question, answer, calls, verbose=verbose)
    return capsys.readouterr().out


def test_a_terminal_shows_calls_in_order_and_shortened(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(capsys, monkeypatch, verbose=False)
    assert "took:   0.75 s (read 0.75 s); waited 2 s for other work" in text
    lines = [line.strip() for line in text[text.index("4 calls of models, 1 from the cache") :].splitlines()]
    assert lines[1:4] == ["1 hyde/expand  12 + 40 tokens  0.5 s", "prompt user: who?", "reply  a passage"]
    assert lines[4:6] == ["2 reader  200 + 3 tokens  0.25 s  cached", "prompt user: and who was it?"]
    assert lines[7].endswith("failed")
    assert lines[11].startswith("prompt begin [bold]x")
    assert lines[11].endswith("end")
    assert len(lines) == 13


def test_cut_replies_are_marked_and_thoughts_shown_if_verbose(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [replace(CALLS[0], finish_reason="MAX_TOKENS", thought="It may be he."), replace(CALLS[0], finish_reason="stop")]
    text = shown(capsys, monkeypatch, verbose=True, calls=calls)
    assert [line.strip().endswith("cut at max_tokens") for line in text.splitlines() if "hyde/expand" in line] == [True, False, False]
    assert text.count("It may be he.") == 1
    assert "It may be he." not in shown(capsys, monkeypatch, verbose=False, calls=calls)


def test_verbose_shows_calls_whole(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(capsys, monkeypatch, verbose=True)
    assert text.count("[bold]x") == 500
    assert re.search(r"user: and who *\n      was it\? *\n", text)
