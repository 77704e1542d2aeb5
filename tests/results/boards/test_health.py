"""Health lines: each fault gives its code and numbers, and a healthy run gives none, in text, JSON and on the pages."""

from __future__ import annotations

import io
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from benchmarks.datasets import longbench
from judges.judge import AS_GIVEN, FIRST, SECOND, Judge, JudgeCall, Parsed, Score
from leaderboard.matrix.benchmark import of_metrics
from leaderboard.matrix.table import legend
from methods.api import ENDPOINTS, Call, Indexed, Prediction, kept
from ragmeter.show.board_text import show_board
from results.boards import health as module
from results.boards.board import board
from results.boards.compare import compare
from results.boards.diff import diff
from results.boards.health import health, health_text, run_lines
from results.boards.health_lines import HealthLine
from results.boards.health_models import is_same_model
from results.gate.warnings import warnings_of
from results.judging import judgments
from results.judging.judgments import Match
from results.store import queries
from results.store.queries import RunRow
from results.store.store import Store
from tests.support.stores import answer_again, score_again

GOLDS = [f"gold{number}" for number in range(20)]
PROMPT = "user: " + "a passage of text " * 1000
ORDINARY = Call("reader", "", PROMPT, "gold", len(PROMPT) // 4, 3, 0.1, finish_reason="stop", model="m")


@pytest.fixture
def run(store: Store, fill: Any) -> RunRow:
    """A run of twenty right answers without calls."""
    row: RunRow = fill(store, {"m": GOLDS}, GOLDS)["m"]
    return row


def called(store: Store, run: RunRow, calls: Sequence[Call], notes: dict[str, Any] | None = None) -> None:
    """Give the first questions of a run these calls, one each, and all of these notes."""
    predictions = store.predictions(run.run)
    changed = [replace(item, notes=notes or {}, calls=(call,)) for item, call in zip(predictions, calls, strict=False)]
    answer_again(store, run.run, changed)


def lines_of(store: Store, *runs: RunRow) -> dict[str, HealthLine]:
    return {line.code: line for line in health(store, runs)}


def test_healthy_run_has_no_line(store: Store, run: RunRow) -> None:
    assert health(store, [run]) == ()
    stated = {ENDPOINTS: [{"asked": "m", "model": "m-2025-01-31", "system_fingerprint": "fp_1", "version": ""}]}
    called(store, run, [ORDINARY] * 20, stated)
    assert health(store, [run]) == ()
    assert health(store, []) == ()


def test_rankings_of_a_run_that_names_no_passage_are_reported(store: Store, fill: Any) -> None:
    row = fill(store, {"m": GOLDS}, GOLDS, metrics=("em", "recall@5"))["m"]
    assert "no_rankings" not in lines_of(store, row)
    silent = [replace(item, evidence=()) for item in store.predictions(row.run)]
    answer_again(store, row.run, silent)
    score_again(store, row.run, [item.question_id for item in silent], {"recall@5#v2": np.zeros(len(silent))})
    assert [metric.partition("#")[0] for metric in lines_of(store, row)["no_rankings"].values["metrics"]] == ["recall@5"]
    assert "no_rankings" not in lines_of(store, replace(row, setting="closed_book"))


REFUSED = "Error code: 400 - {'error': {'code': 'content_filter'}}"


@pytest.mark.parametrize(
    ("count", "note", "reasons"),
    [
        (1, {"failed": [REFUSED]}, {"refusal": 1}),
        (3, {"fallbacks": {"failed": 2, "unusable": 1}}, {"failed call": 3, "unusable reply": 3}),
        (2, {"summaries": 4, "failed": 2}, {"failed call": 2}),
        (1, {"fallback": f"the question as keywords: {REFUSED}"}, {"refusal": 1}),
        (20, {"fallback": "the question as keywords: no JSON object"}, {"the question as keywords": 20}),
        (20, {"fallback": "dense", "names": []}, {"dense": 20}),
        (0, {"names": ["failed"], "fallbacks": {}, "failed": [], "fallback": ""}, None),
        (0, {"fallbacks": ["x"], "failed": {"y": 1}, "fallback": 3}, None),
    ],
)
def test_answers_for_which_a_step_failed_are_reported(store: Store, run: RunRow, count: int, note: Any, reasons: Any) -> None:
    spoilt = [replace(item, notes={"system": note, "other": {"calls": 1}}) for item in store.predictions(run.run)[: count or 20]]
    answer_again(store, run.run, spoilt)
    line = lines_of(store, run).get("fallbacks")
    assert (line and line.values) == (reasons and {"questions": count, "reasons": reasons})
    # A submission's notes are its sender's.
    assert "fallbacks" not in lines_of(store, replace(run, origin="submitted"))


def test_rare_fallbacks_without_a_failed_call_are_usual(store: Store, fill: Any) -> None:
    row = fill(store, {"m": GOLDS * 2}, GOLDS * 2)["m"]
    for count, reported in ((1, False), (2, True)):
        answer_again(store, row.run, [replace(item, notes={"m": {"fallback": "dense"}}) for item in store.predictions(row.run)[:count]])
        assert ("fallbacks" in lines_of(store, row)) is reported


def test_passages_that_no_model_read_are_reported(store: Store, run: RunRow) -> None:
    assert "unread_passages" not in lines_of(store, run)
    lost = {"failed": 3, "unusable": 1, "of": 40}
    store.put_indexing(run.run, Indexed("", False, notes={"unread_passages": lost}))
    assert lines_of(store, run)["unread_passages"].values == lost


def test_reading_with_our_prompt_of_a_benchmark_with_published_ones_is_said(store: Store, run: RunRow) -> None:
    def follows(dataset: str, prompt: str) -> RunRow:
        return replace(run, dataset=dataset, description={**run.description, "reading": {"prompt": prompt}})

    ours, theirs = longbench.SETS["qasper"].prompt, "Article: $passages Question: $question"
    assert lines_of(store, follows("longbench/qasper:test", ours))["our_prompt"].values == {"dataset": "longbench/qasper:test"}
    assert health(store, [follows("longbench/qasper:test", theirs), follows("ultradomain/mix:test", ours)]) == ()


def test_store_without_calls_says_nothing_about_replies(store: Store, run: RunRow) -> None:
    called(Store(store.folder, calls=False), run, [replace(ORDINARY, thought="hm", finish_reason="length")] * 20)
    assert health(store, [run]) == ()


def test_thoughts_cuts_and_refusals_are_counted(store: Store, run: RunRow) -> None:
    calls = [ORDINARY] * 9 + [replace(ORDINARY, thought="hm")] * 6 + [replace(ORDINARY, finish_reason="length")] * 3
    calls += [replace(ORDINARY, finish_reason="length", failed=True), replace(ORDINARY, refusal="no", failed=True)]
    called(store, run, calls)
    lines = lines_of(store, run)
    assert {code: dict(line.values) for code, line in lines.items()} == {
        "thoughts": {"replies": 20, "thoughts": 6},
        "cut": {"replies": 20, "cut": 4},
        "refusals": {"replies": 20, "refusals": 1},
    }
    assert {line.run for line in lines.values()} == {run.run}
    assert lines["cut"].text.startswith("4 of 20 replies")


@pytest.mark.parametrize(
    ("reported", "calls", "share"),
    [(512, 20, 512 / 4500), (0, 20, None), (10, 20, None), (3600, 20, None), (2048, 20, 2048 / 4500), (512, 2, 512 / 4500)],
)
def test_endpoint_that_counts_far_fewer_prompt_tokens_is_reported(
    store: Store, run: RunRow, reported: int, calls: int, share: float | None
) -> None:
    called(store, run, [replace(ORDINARY, prompt_tokens=reported)] * calls + [ORDINARY] * (20 - calls))
    line = lines_of(store, run).get("prompt_tokens")
    assert (line and line.values["share"]) == (pytest.approx(share, rel=0.01) if share else None)
    assert line is None or line.values["calls"] == calls


def test_length_of_a_prompt_that_is_kept_in_part_is_that_of_the_whole(store: Store, run: RunRow) -> None:
    called(store, run, [replace(ORDINARY, prompt=kept("x" * 40_000), prompt_tokens=512)] * 20)
    values = lines_of(store, run)["prompt_tokens"].values
    assert (values["estimated"], values["reported"]) == (pytest.approx(20 * 10_000, rel=0.01), 20 * 512)


def test_tokens_of_short_prompts_are_not_estimated(store: Store, run: RunRow) -> None:
    called(store, run, [replace(ORDINARY, prompt="user: who? " * 100, prompt_tokens=110)] * 20)
    assert health(store, [run]) == ()


@pytest.mark.parametrize(
    ("requested", "served", "same"),
    [
        ("m", "m", True),
        ("gpt-4o", "gpt-4o-2024-08-06", True),
        ("gpt-4", "gpt-4-0613", True),
        ("gemini-1.5-pro", "gemini-1.5-pro-002", True),
        ("openai/gpt-4o", "gpt-4o", True),
        ("/models/Qwen3-8B", "Qwen/qwen3-8b", True),
        ("claude-3-5-sonnet-latest", "claude-3-5-sonnet-20241022", True),
        ("llama3", "llama3:latest", True),
        ("m", "cheap-mini", False),
        ("gpt-4o", "gpt-4o-mini", False),
        ("gpt-4o", "gpt-4o-mini-2024-07-18", False),
        ("gpt-4o-2024-08-06", "gpt-4o-2024-05-13", False),
        ("llama-3-70b", "llama-3-8b", False),
    ],
)
def test_dated_form_of_a_model_is_the_same_model(requested: str, served: str, same: bool) -> None:
    assert is_same_model(requested, served) is same


def test_other_model_than_requested_is_reported_even_without_calls(store: Store, run: RunRow) -> None:
    stated = {ENDPOINTS: [{"asked": "m", "model": "cheap-mini", "system_fingerprint": "", "version": ""}]}
    called(Store(store.folder, calls=False), run, [ORDINARY] * 7, stated)
    line = lines_of(store, run)["served_model"]
    assert line.values == {"requested": "m", "served": "cheap-mini", "questions": 7}
    assert line.text == "requested m, served cheap-mini"


def test_model_that_changes_between_the_questions_of_a_run_is_reported_first(store: Store, run: RunRow) -> None:
    predictions = store.predictions(run.run)
    served = ["m-2024-08-06"] * 12 + ["m-2024-11-20"] * 8
    notes = [{ENDPOINTS: [{"asked": "m", "model": model}]} for model in served]
    changed = [replace(item, answer="same", notes=of) for item, of in zip(predictions, notes, strict=True)]
    answer_again(store, run.run, changed)
    line = health(store, [run])[0]
    assert (line.code, line.values) == ("changed_model", {"requested": "m", "served": {"m-2024-08-06": 12, "m-2024-11-20": 8}})
    two = replace(run, provenance={"revisions": {"m at http://one": "", "m at http://two": ""}})
    assert "changed_model" not in lines_of(store, two)


@pytest.mark.parametrize("malformed", ["x", {"asked": "m"}, ["m"], None, 5])
def test_malformed_endpoints_of_a_stored_run_are_counted_as_unreadable(store: Store, run: RunRow, malformed: Any) -> None:
    called(Store(store.folder, calls=False), run, [ORDINARY] * 7, {ENDPOINTS: malformed})
    lines = lines_of(store, run)
    assert lines["unreadable_endpoints"].values == {"questions": 7}
    assert "served_model" not in lines


def test_identical_answers_are_reported_unless_they_are_right(store: Store, fill: Any) -> None:
    answers = {"same": ["Lyon"] * 20, "two": ["Lyon"] * 19 + ["Paris"], "control": ["Lyon"] * 20, "few": ["Lyon"] * 5 + [None] * 15}
    runs = fill(store, answers, ["Lyon"] * 10 + ["Oslo"] * 10, kinds={"control": "control"})
    lines = [line for line in health(store, list(runs.values())) if line.code == "identical_answers"]
    assert [(line.method, line.values["answers"]) for line in lines] == [("same", 20)]


def test_identical_answers_that_every_question_wants_are_healthy(store: Store, fill: Any) -> None:
    assert health(store, [fill(store, {"m": ["Lyon"] * 20}, ["Lyon"] * 20)["m"]]) == ()


@pytest.mark.parametrize(("metric", "codes"), [("em", ["empty_answers"]), ("recall@5", [])])
def test_empty_answers_are_reported_if_answers_are_scored(store: Store, fill: Any, metric: str, codes: list[str]) -> None:
    row = fill(store, {"m": [""] * 20}, GOLDS, metrics=(metric,))["m"]
    assert list(lines_of(store, row)) == codes


def test_refusals_as_text_are_counted_and_abstentions_are_not(store: Store, fill: Any) -> None:
    refusals = [
        "I'm sorry, but I can't help with that.",
        "I’m sorry, but I can’t assist with that request.",
        "Sorry, I cannot provide information on how to do this.",
        "As an AI language model, I am not able to assist with this.",
        "I won't engage with that.",
        "抱歉，我无法协助处理这个问题。",
        "Es tut mir leid, aber ich kann Ihnen dabei nicht helfen.",
        "Je suis désolé, mais je ne peux pas vous aider avec cette demande.",
        "Lo siento, pero no puedo ayudarte con eso.",
        "Mi dispiace, ma non posso aiutarti.",
        "Desculpe, mas não posso ajudar com isso.",
        "Извините, но я не могу помочь с этим.",
        "申し訳ありませんが、そのご要望にはお応えできません。",
        "죄송하지만 도와드릴 수 없습니다.",
    ]
    others = [
        "I don't know",
        "I Can't Help Myself",
        "I'm sorry, but I can't help with that based on the passages",
        "Sorry",
        "I cannot answer",
        "Ich kann das nicht beantworten",
    ]
    answers = [*refusals, *others, *GOLDS[len(refusals) + len(others) :]]
    lines = lines_of(store, fill(store, {"m": answers}, GOLDS)["m"])
    assert {code: line.values for code, line in lines.items()} == {"written_refusals": {"answers": 20, "refusals": len(refusals)}}


def test_replies_that_go_on_after_the_answer_are_counted(store: Store, run: RunRow) -> None:
    ends = ["\nParis", "\n\n- **Paris**", "\n\nThe passage says so.", "", "\n```", "\n\n---\n", ""]
    predictions = store.predictions(run.run)
    raws = [f"Answer:\n{item.answer}{end}" for item, end in zip(predictions, ends, strict=False)]
    raws[-1] = f"{predictions[6].answer} is it.\nSo: {predictions[6].answer}."
    answer_again(store, run.run, [replace(item, raw=raw) for item, raw in zip(predictions, raws, strict=False)])
    (line,) = health(store, [run])
    assert (line.code, dict(line.values)) == ("dropped_lines", {"answers": 20, "dropped": 3})


def test_empty_answers_of_a_retrieval_only_run_are_usual(store: Store, fill: Any) -> None:
    row = fill(store, {"m": [""] * 20}, GOLDS)["m"]
    for usual in ({"description": {"reader": {"id": "retrieval_only"}}}, {"card": {"retrieval_only": True}}):
        assert not lines_of(store, replace(row, **usual))


def test_answers_that_differ_only_in_form_are_counted(store: Store, fill: Any) -> None:
    golds = ["Beyoncé", "1914-1918", "yes", "Marks & Spencer", "well-known", "Lyon", "Oslo"]
    differing = [unicodedata.normalize("NFD", "Beyoncé"), "1914–1918", "Yes, both are.", "Marks &amp; Spencer", "well known"]
    runs = fill(
        store, {"m": [*differing, "Paris", "Oslo"], "right": golds, "wrong": ["北京", "x", "no", "y", "z", "Paris", "Bergen"]}, golds
    )
    (line,) = health(store, list(runs.values()))
    assert (line.code, line.method, line.values["answers"], line.values["of"]) == ("form_only", "m", 5, 7)


def test_form_is_not_reported_without_an_official_exact_match(store: Store, fill: Any) -> None:
    for metrics in (("f1",), ("em(rules=lenient)",), ("em(rules=strict)",)):
        row = fill(store, {"m": ["lyon"] * 3}, ["L\u200byon", "Lyon", "LYON"], metrics=metrics)["m"]
        assert health(store, [row]) == ()


def test_truncation_and_a_missing_preset_are_kept_with_the_index(store: Store, run: RunRow) -> None:
    cut = {"limit": 256, "passages": 40, "truncated": 30, "share": 0.57}
    preset = {"name": "e5-base-v2", "options": 'query_prompt: "query: "', "model": "./e5-base-v2"}
    store.put_indexing(run.run, Indexed(notes={"truncated": cut, "preset": preset}))
    lines = lines_of(store, run)
    assert lines["truncated_passages"].values == {"part": "encoder", **cut}
    assert lines["truncated_passages"].text == "57 % of the passage text exceeds the encoder's 256 tokens"
    assert lines["preset"].values == preset


def test_missing_prompts_of_a_served_encoder_are_named(store: Store, run: RunRow) -> None:
    preset = {"name": "e5-base-v2", "options": 'query_prompt: "query: "', "model": "intfloat/e5-base-v2", "served": True}
    store.put_indexing(run.run, Indexed(notes={"preset": preset}))
    assert "set preset" not in lines_of(store, run)["preset"].text


def test_endpoint_that_counts_few_passage_tokens_is_reported(store: Store, run: RunRow) -> None:
    read = {"reported": 250, "estimated": 1000}
    store.put_indexing(run.run, Indexed(notes={"endpoint_read": read}))
    line = lines_of(store, run)["prompt_tokens"]
    assert line.values == read
    assert "25 %" in line.text


def test_a_little_truncation_is_usual(store: Store, run: RunRow) -> None:
    store.put_indexing(run.run, Indexed(notes={"truncated": {"limit": 256, "passages": 40, "truncated": 2, "share": 0.02}}))
    assert health(store, [run]) == ()


def judged(store: Store, judge: Judge, one: RunRow, other: RunRow, winners: Sequence[RunRow | None]) -> None:
    """Verdicts of a pair judge by question; None: the reply could not be read."""
    judgments.put_judge(store, judge)
    first, second = sorted((one, other), key=lambda row: row.run)
    calls = [
        [JudgeCall(AS_GIVEN, 0, "k", Parsed({"by": "hand"}) if winner else Parsed(None, "no verdict in the reply"))] for winner in winners
    ]
    responses = [[dict.fromkeys(judge.entry.criteria, FIRST if winner is first else SECOND)] if winner else [{}] for winner in winners]
    match = Match(one.dataset_fingerprint, one.setting, first.run, second.run)
    judgments.put_battles(store, match, judge, [f"q{number}" for number in range(len(winners))], calls, responses)


@pytest.fixture
def pair(store: Store, fill: Any) -> tuple[RunRow, RunRow]:
    runs = fill(store, {"m": GOLDS, "gold_answer": GOLDS}, GOLDS, kinds={"gold_answer": "control"})
    return runs["m"], runs["gold_answer"]


@pytest.mark.parametrize(("lost", "reported"), [(12, True), (10, True), (9, False), (0, False)])
def test_judge_by_which_the_gold_answer_loses_is_reported(store: Store, pair: tuple[RunRow, RunRow], lost: int, reported: bool) -> None:
    method, gold = pair
    judge = Judge.of("pairwise", {"llm": {"model": "m"}, "repetitions": 1})
    judged(store, judge, method, gold, [method] * lost + [gold] * (12 - lost))
    line = lines_of(store, method, gold).get("gold_answer_loses")
    assert (line is not None) is ((reported and lost > 9) or lost == 12)
    if line is not None:
        assert line.values == {"judge": str(judge), "rival": "m", "won": 12 - lost, "lost": lost, "tied": 0}
        assert line.run == gold.run


def test_unread_verdicts_are_counted_per_judge(store: Store, pair: tuple[RunRow, RunRow]) -> None:
    method, gold = pair
    judge = Judge.of("pairwise", {"llm": {"model": "m"}, "repetitions": 1})
    judged(store, judge, method, gold, [gold] * 14 + [None] * 6)
    line = lines_of(store, method, gold)["unread_verdicts"]
    assert line.values == {"judge": str(judge), "verdicts": 20, "unread": 6, "kinds": {"other": 6}}
    assert line.run == ""
    assert line.text.endswith("could not be read")


@pytest.mark.parametrize(("served", "codes"), [(("j-1", "j-1"), []), (("j-1", "j-2"), ["changed_judge"]), (("j-1", ""), [])])
def test_judge_whose_model_changes_between_runs_is_reported(store: Store, fill: Any, served: tuple[str, str], codes: list[str]) -> None:
    runs = list(fill(store, {"m": GOLDS, "n": GOLDS}, GOLDS).values())
    judge = Judge.of("match", {"llm": {"model": "j"}})
    judgments.put_judge(store, judge)
    for row, model in zip(runs, served, strict=True):
        models = [f"{model}, system_fingerprint fp_{number}" if model else "" for number in range(20)]
        calls = [[JudgeCall("match", 0, "k", Parsed({"verdict": "Match"}), model=name)] for name in models]
        scores = [dict.fromkeys(judge.metrics, Score(1.0)) for _ in GOLDS]
        judgments.put_judgments(store, row.run, judge, [f"q{number}" for number in range(20)], calls, scores)
    changed = [line for line in health(store, runs) if line.code == "changed_judge"]
    assert [line.code for line in changed] == codes
    for line in changed:
        assert (line.run, line.values) == ("", {"judge": str(judge), "served": {"j-1": 20, "j-2": 20}})


@pytest.mark.parametrize("reasons", [("refusal: no", "no verdict in the reply"), ("no verdict in the reply", "refusal: no")])
def test_kinds_of_unread_verdicts_do_not_stand_in_the_order_of_replies(
    store: Store, pair: tuple[RunRow, RunRow], reasons: tuple[str, str]
) -> None:
    one, other = sorted(pair, key=lambda row: row.run)
    judge = Judge.of("pairwise", {"llm": {"model": "m"}, "repetitions": 1})
    judgments.put_judge(store, judge)
    calls = [[JudgeCall(AS_GIVEN, 0, "k", Parsed(None, reason))] for reason in reasons]
    judgments.put_battles(store, Match(one.dataset_fingerprint, one.setting, one.run, other.run), judge, ["q0", "q1"], calls, [[{}], [{}]])
    line = lines_of(store, *pair)["unread_verdicts"]
    assert list(line.values["kinds"].items()) == [("other", 1), ("refusal", 1)]
    assert line.text.endswith("(other 1, refusal 1)")


def test_lines_stand_below_the_table_on_the_page_and_in_json(store: Store, run: RunRow) -> None:
    called(store, run, [replace(ORDINARY, thought="hm")] * 20)
    shown = board(store, [run])
    text = io.StringIO()
    show_board(shown, Console(file=text, width=120))
    assert "m: 20 of 20 replies contain a thought" in text.getvalue()
    assert "20 of 20 replies contain a thought" in str(legend(of_metrics(shown, shown.metrics[0], {}, ({}, {}), {})).to_json())
    assert shown.to_json()["health"] == [
        {
            "code": "thoughts",
            "run": run.run,
            "text": "20 of 20 replies contain a thought",
            "values": {"replies": 20, "thoughts": 20},
            "method": "m",
        }
    ]


def test_lines_that_say_the_same_of_several_methods_are_one() -> None:
    lines = [HealthLine("cut", name, "cut", {}, name) for name in "abc"] + [HealthLine("x", "", "of all")]
    assert health_text(lines) == ["3 methods: cut", "of all"]


def test_further_checks_are_added_to_the_list(store: Store, run: RunRow, monkeypatch: pytest.MonkeyPatch) -> None:
    line = HealthLine("cache", run.run, "all from the cache", {"replies": 20}, run.method)
    monkeypatch.setattr(module, "CHECKS", [*module.CHECKS, lambda store, runs: [line]])
    assert health(store, [run]) == (line,)


def test_prediction_of_a_failed_question_is_no_answer(store: Store, fill: Any) -> None:
    row = fill(store, {"m": ["x"] * 12 + [None] * 8}, GOLDS)["m"]
    assert lines_of(store, row)["identical_answers"].values["answers"] == 12
    assert queries.runs(store)[0].failed == 8
    assert isinstance(store.predictions(row.run)[0], Prediction)


def test_equal_repeats_of_all_seeds_are_counted_together(store: Store, run: RunRow) -> None:
    rows = [replace(run, method=name, seed=seed) for seed in (0, 1) for name in ("base", "base ~2")]
    (line,) = [line for line in health(store, rows) if line.code == "equal_repeats"]
    assert line.values == {"repeats": 4}


def test_compared_runs_and_gates_state_fallbacks_of_either_side(store: Store, fill: Any) -> None:
    rows = fill(store, {"m": GOLDS, "n": GOLDS}, GOLDS)
    spoilt = [replace(item, notes={"m": {"failed": [REFUSED]}}) for item in store.predictions(rows["m"].run)[:3]]
    answer_again(store, rows["m"].run, spoilt)
    lines = [line.text for line in lines_of(store, rows["m"]).values() if line.code == "fallbacks"]
    assert run_lines(store, {"baseline": rows["n"], "candidate": rows["m"]}) == [f"candidate: {text}" for text in lines] != []
    assert f"first: {lines[0]}" in diff(store, rows["m"], rows["n"]).doubts
    assert f"candidate: {lines[0]}" in warnings_of(store, rows["n"], rows["m"])
    assert f"m: {lines[0]}" in compare(store, [rows["m"], rows["n"]], "em#v2").read
