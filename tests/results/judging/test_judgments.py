"""What judges say is kept whole, counted apart where it is nothing, and goes with the answers that it is about."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from judges.judge import AS_GIVEN, FIRST, NONE, SECOND, SWAPPED, TIE, Judge, JudgeCall, Parsed, Score
from methods.api import Prediction
from ragmeter.show.board_text import show_board
from results.boards.added import add_columns
from results.boards.board import boards
from results.boards.tables import labels, remarks, render
from results.formats import pruning
from results.judging import judgments
from results.judging.judgments import ONE, OTHER, Match
from results.store import score_queries
from results.store.drift import drift
from results.store.queries import RunRow
from results.store.store import Store
from tests.support.stores import answer_again

MATCH = Judge.of("match", {"llm": {"model": "m"}})
PAIRWISE = Judge.of("pairwise", {"llm": {"model": "m"}, "repetitions": 1})
RULE = Judge.of("rule_match")
GOLDS = ["a", "b", "c", "d", ""]
STATED = {"bm25": ["a", "x", "y", "z", "w"], "dense": ["a", "b", "y", "z", "w"]}


def call(value: dict[str, Any] | None, unscored: str | None = None, **other: Any) -> JudgeCall:
    return JudgeCall(other.pop("part", "match"), other.pop("repetition", 0), other.pop("key", "k"), Parsed(value, unscored), **other)


def three(accuracy: float | None, unscored: str | None = None) -> dict[str, Score]:
    return {name: Score(accuracy, unscored) for name in ("accuracy", "partial", "mismatch")}


def put(store: Store, run: RunRow, judge: Judge, values: Sequence[float | str | None]) -> None:
    """Say of questions q0, q1 … a number, a reason, or nothing: then there is nothing to judge by."""
    calls = [[] if v is None else [call(None, v)] if isinstance(v, str) else [call({"verdict": v})] for v in values]
    scores = [three(None, v) if isinstance(v, str) else three(v) for v in values]
    judgments.put_judge(store, judge)
    judgments.put_judgments(store, run.run, judge, [f"q{n}" for n in range(len(values))], calls, scores)


def put_pair(store: Store, runs: dict[str, RunRow], question: str, *verdicts: tuple[str, str | None], judge: Judge = PAIRWISE) -> Match:
    """Let a pair judge say the same by every criterion in each of the parts named."""
    match = match_of(runs)
    calls = [call({"said": 1} if responses else None, None if responses else "no JSON", part=part) for part, responses in verdicts]
    responses = [dict.fromkeys(judge.entry.criteria, verdict) for _, verdict in verdicts]
    judgments.put_judge(store, judge)
    judgments.put_battles(store, match, judge, [question], [calls], [responses])
    return match


def match_of(runs: dict[str, RunRow]) -> Match:
    item, other = sorted(runs.values(), key=lambda run: run.run)
    return Match(item.dataset_fingerprint, item.setting, item.run, other.run)


def rows(store: Store, table: str) -> list[tuple[Any, ...]]:
    with store.database.reading() as connection:
        return connection.execute(f"FROM {table} ORDER BY ALL").fetchall()


@pytest.mark.slow
def test_stored_judgments_read_back_equal(store: Store, fill: Any) -> None:
    run = fill(store, STATED, GOLDS)["bm25"]
    responses = [
        call({"verdict": "Match", "by": "em"}, key=None),
        call(None, "refusal: 'no'", repetition=1, model="m", prompt_tokens=7, completion_tokens=2, seconds=0.5, cost_usd=0.25),
    ]
    judgments.put_judge(store, MATCH)
    judgments.put_judgments(store, run.run, MATCH, ["q1", "q0"], [responses, []], [three(0.5), three(None)])
    assert judgments.calls(store, run.run, str(MATCH)) == {"q1": responses}
    assert judgments.scores(store, run.run, str(MATCH)) == {"q1": three(0.5), "q0": three(None)}
    assert judgments.judges(store)[str(MATCH)] == MATCH.describe()
    assert judgments.judged(store, run.run, MATCH) == {"q0", "q1"}
    assert judgments.judged_runs(store, str(MATCH)) == [run.run]


def test_judging_again_replaces_only_unreadable_verdicts(store: Store, fill: Any) -> None:
    run = fill(store, STATED, GOLDS)["bm25"]
    put(store, run, MATCH, [0.0, "no verdict"])
    put(store, run, MATCH, [1.0, 1.0])
    assert judgments.scores(store, run.run, str(MATCH)) == {"q0": three(0.0), "q1": three(1.0)}
    assert len(rows(store, "judge_calls")) == 2
    assert sum(row[2].startswith("accuracy") for row in rows(store, "scores")) == 2


def test_unscored_items_are_judged_again_only_on_request(store: Store, fill: Any) -> None:
    run = fill(store, STATED, GOLDS)["bm25"]
    put(store, run, MATCH, [1.0, "no verdict", None])
    assert judgments.judged(store, run.run, MATCH) == {"q0", "q1", "q2"}
    assert judgments.judged(store, run.run, MATCH, retry_unscored=True) == {"q0", "q2"}


@pytest.mark.slow
def test_unscored_and_unscorable_are_counted_apart_on_boards_tables_and_in_json(store: Store, fill: Any) -> None:
    run = fill(store, {"bm25": STATED["bm25"]}, GOLDS, metrics=())["bm25"]
    put(store, run, MATCH, [1.0, 0.0, "no verdict", "refusal", None])
    metric = MATCH.metric("accuracy")
    add_columns(store, run.run, [metric])
    columns = score_queries.score_columns(store, run.dataset_fingerprint, [run.run], [metric])
    assert (columns.unscored[run.run, metric], columns.unscorable[run.run, metric]) == (2, 1)
    (board,) = boards(store, "toy")
    (row,) = board.rows
    cell = row.cells[metric]
    assert (cell.estimate.n, cell.unscored, cell.estimate.unscorable) == (2, 2, 1)
    # By hand: (1 + 0) / 2 without the two, (1 + 0 + 0 + 0) / 4 with them wrong, (1 + 0 + 1 + 1) / 4 with them right.
    assert (cell.estimate.value, cell.bounds.if_wrong, cell.bounds.if_right) == (0.5, 0.25, 0.75)
    shown = board.to_json()["rows"][0]["metrics"][metric]
    assert (shown["value"], shown["low_if_wrong"], shown["high_if_right"]) == (0.5, 0.25, 0.75)
    assert (shown["n"], shown["unscored"], shown["unscorable"], shown["unread"], shown["scorable"]) == (2, 2, 1, 2, 4)
    console = Console(width=200, record=True, file=io.StringIO())
    show_board(board, console, verbose=True)
    for text in (console.export_text(), render([board], "markdown"), render([board], "latex")):
        response = text.replace("\\;", " ").replace("\\", "")
        assert "the judge gave 2 questions no value; counted as wrong or right, it is between 25.0 and 75.0" in response
        assert "[25.0, 75.0]" in response
        assert response.count("the judge gave 2 questions no value") == 1  # one line for all measures of a judge
        assert "up to 1 question is unscorable" in response
    with store.database.reading() as connection:
        kept = connection.execute("SELECT scored, n, mean, unscored FROM summaries WHERE metric = ?", [metric])
        assert kept.fetchall() == [(5, 2, 0.5, 2)]


@pytest.mark.slow
def test_judge_that_cannot_be_read_gives_no_number(store: Store, fill: Any) -> None:
    """Exact matches that were settled without a call say nothing of what the judge would have said."""
    run = fill(store, STATED, GOLDS, metrics=())["bm25"]
    put(store, run, MATCH, [1.0, "no verdict", "no verdict", 0.0, None])
    with store.database.writing() as connection:
        connection.execute("UPDATE judge_calls SET call = NULL WHERE unscored IS NULL")  # settled without a call
    add_columns(store, run.run, [MATCH.metric("accuracy")])
    (board,) = boards(store, "toy")
    shown = board.to_json()["rows"][0]["metrics"][MATCH.metric("accuracy")]
    assert (shown["value"], shown["low_if_wrong"], shown["high_if_right"]) == (None, 0.25, 0.75)
    assert shown["incomplete"].startswith("incomplete: none of the judge's replies could be read (2 of 4")
    assert not any("nan" in line for line in remarks(board.rows[0]))


@pytest.mark.slow
def test_two_judges_never_share_a_column_and_rules_are_called_rules(store: Store, fill: Any) -> None:
    strict = Judge.of("match", {"llm": {"model": "m"}, "exact": "strict"})
    run = fill(store, {"bm25": STATED["bm25"]}, GOLDS)["bm25"]
    for judge, value in ((MATCH, 1.0), (strict, 0.0), (RULE, 0.5)):
        put(store, run, judge, [value])
        add_columns(store, run.run, [judge.metric("accuracy")])
    (board,) = boards(store, "toy")
    judged = [metric for metric in board.metrics if metric.startswith("accuracy")]
    assert [board.rows[0].cells[metric].estimate.value for metric in judged] == [1.0, 0.0, 0.5]
    heads = labels(board.metrics)
    assert len(set(heads.values())) == len(board.metrics)
    assert heads[RULE.metric("accuracy")] == "accuracy (rule)"
    assert "model=m" in heads[MATCH.metric("accuracy")]  # two of one model: only the whole id tells them apart
    card = judgments.judges(store)[str(RULE)]
    assert (card["rule"], card["model"]) == (True, "rule")
    assert "model=rule" in str(RULE)


def test_another_spelling_of_the_same_options_is_the_same_judge() -> None:
    assert str(Judge.of("match", {"llm": {"model": "m", "concurrency": 2, "attempts": 1}})) == str(MATCH)
    for other in ({"llm": {"model": "m", "temperature": 0.5}}, {"partial": "drop"}, {"repetitions": 2}, {"golds": "first"}):
        assert str(Judge.of("match", {"llm": {"model": "m"}, **other})) != str(MATCH)


def test_a_metric_of_a_judge_is_defined_in_the_store(store: Store, fill: Any) -> None:
    run = fill(store, STATED, GOLDS)["bm25"]
    put(store, run, MATCH, [1.0])
    known = score_queries.definitions(store)
    assert known[MATCH.metric("accuracy")]["judge"] == str(MATCH)
    assert known["em(rules=squad)#v2"]["judge"] is None
    groups = {name: known[metric]["group"] for name, metric in MATCH.metrics.items()}
    assert groups == {"accuracy": "judge", "partial": "judge share", "mismatch": "judge share"}


def test_half_a_surrogate_pair_does_not_stop_a_judging(store: Store, fill: Any) -> None:
    run = fill(store, STATED, GOLDS)["bm25"]
    judgments.put_judge(store, MATCH)
    judgments.put_judgments(
        store, run.run, MATCH, ["q0"], [[call({"verdict": "\ud83d"}), call(None, "said \ud83d")]], [three(None, "\ud83d")]
    )
    assert judgments.scores(store, run.run, str(MATCH))["q0"]["accuracy"].unscored == "?"


texts = st.text(st.characters(blacklist_categories=("Cs",)), max_size=20)


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(part=texts, value=st.dictionaries(texts, texts, max_size=3), reason=texts.filter(bool))
def test_any_judgment_survives_the_store(
    tmp_path_factory: pytest.TempPathFactory, fill: Any, part: str, value: dict[str, str], reason: str
) -> None:
    store = Store(tmp_path_factory.mktemp("any") / "s")
    run = fill(store, {"bm25": ["x"]}, ["a"], metrics=())["bm25"]
    responses = [call(value, part=part), call(None, reason, part=part, repetition=1)]
    judgments.put_judge(store, MATCH)
    judgments.put_judgments(store, run.run, MATCH, ["q0"], [responses], [three(None, reason)])
    assert judgments.calls(store, run.run, str(MATCH)) == {"q0": responses}
    assert judgments.scores(store, run.run, str(MATCH)) == {"q0": three(None, reason)}


@pytest.mark.parametrize(
    ("part", "response", "kept"),
    [
        (AS_GIVEN, FIRST, ONE),
        (AS_GIVEN, SECOND, OTHER),
        (SWAPPED, FIRST, OTHER),
        (SWAPPED, SECOND, ONE),
        (AS_GIVEN, TIE, TIE),
        (SWAPPED, TIE, TIE),
        (SWAPPED, NONE, NONE),
        (SWAPPED, None, None),
    ],
)
def test_the_order_shown_is_undone(store: Store, fill: Any, part: str, response: str | None, kept: str | None) -> None:
    runs = fill(store, STATED, GOLDS)
    match = put_pair(store, runs, "q1", (part, response))
    results = judgments.battles(store, match.dataset_fingerprint, match.setting, str(PAIRWISE), match)
    assert {battle.verdict for battle in results} == {kept}
    assert Counter(battle.criterion for battle in results) == dict.fromkeys(PAIRWISE.entry.criteria, 1)
    assert {battle.unscored for battle in results} == {None if kept else "no JSON"}


def test_unknown_verdict_is_refused() -> None:
    with pytest.raises(ValueError, match="not a verdict"):
        judgments.undone(AS_GIVEN, "Answer 1")


def test_a_pair_that_was_judged_keeps_its_verdicts(store: Store, fill: Any) -> None:
    runs = fill(store, STATED, GOLDS)
    put_pair(store, runs, "q1", (AS_GIVEN, TIE))
    match = put_pair(store, runs, "q1", (AS_GIVEN, FIRST), (SWAPPED, SECOND))
    results = judgments.battles(store, match.dataset_fingerprint, match.setting, str(PAIRWISE), match)
    assert [battle.verdict for battle in results] == [TIE] * 3
    assert len(rows(store, "battle_calls")) == 1
    assert judgments.matches(store) == [(str(PAIRWISE), match)]


def test_pairs_without_a_verdict_are_judged_again_only_when_asked(store: Store, fill: Any) -> None:
    runs = fill(store, STATED, GOLDS)
    put_pair(store, runs, "q1", (AS_GIVEN, FIRST), (SWAPPED, SECOND))
    put_pair(store, runs, "q2", (AS_GIVEN, FIRST), (SWAPPED, None))
    match = put_pair(store, runs, "q4")
    assert judgments.judged(store, match, PAIRWISE) == {"q1", "q2", "q4"}
    assert judgments.judged(store, match, PAIRWISE, retry_unscored=True) == {"q1", "q4"}


def test_a_pair_with_nothing_to_judge_by_is_neither_a_verdict_nor_a_failure(store: Store, fill: Any) -> None:
    runs = fill(store, STATED, GOLDS)
    match = put_pair(store, runs, "q4")
    results = judgments.battles(store, match.dataset_fingerprint, match.setting, str(PAIRWISE), match)
    assert [(battle.criterion, battle.unscorable) for battle in results] == sorted(
        (criterion, True) for criterion in PAIRWISE.entry.criteria
    )


@pytest.mark.slow
def test_replacing_an_answer_deletes_its_judgments(store: Store, fill: Any) -> None:
    runs = fill(store, STATED, GOLDS)
    put(store, runs["bm25"], MATCH, [1.0, 0.0])
    put(store, runs["dense"], MATCH, [1.0, 1.0])
    for question in ("q0", "q1"):
        put_pair(store, runs, question, (AS_GIVEN, FIRST))
    answer_again(store, runs["bm25"].run, [Prediction("q1", "b")])
    assert set(judgments.calls(store, runs["bm25"].run, str(MATCH))) == {"q0"}
    assert judgments.judged(store, runs["bm25"].run, MATCH) == {"q0"}
    assert judgments.judged(store, runs["dense"].run, MATCH) == {"q0", "q1"}
    assert judgments.judged(store, match_of(runs), PAIRWISE) == {"q0"}
    assert {row[3] for row in rows(store, "battle_calls")} == {"q0"}


def test_pruning_a_run_takes_its_judgments_and_its_battles(store: Store, fill: Any) -> None:
    runs = fill(store, STATED, GOLDS)
    for run in runs.values():
        put(store, run, MATCH, [1.0])
    put_pair(store, runs, "q1", (AS_GIVEN, FIRST))
    pruning.prune(store, [runs["bm25"].run])
    assert judgments.judged_runs(store, str(MATCH)) == [runs["dense"].run]
    assert rows(store, "battles") == rows(store, "battle_calls") == []


def test_nothing_is_judged_where_nothing_was_written(store: Store) -> None:
    assert judgments.judges(store) == {}
    assert judgments.judged(store, "any", MATCH) == judgments.judged(store, Match("d", "s", "a", "b"), PAIRWISE) == set()


def test_a_judge_that_was_served_otherwise_is_named(store: Store, fill: Any) -> None:
    runs = fill(store, STATED, GOLDS)
    first, second = runs["bm25"], runs["dense"]
    judgments.put_judge(store, MATCH)
    for run, served in ((first, "m-1, system_fingerprint a"), (second, "m-1, system_fingerprint b")):
        calls = [[call({"verdict": "Match"}, model=served)], [call({"verdict": "Match"}, key=None, model="")]]
        judgments.put_judgments(store, run.run, MATCH, ["q0", "q1"], calls, [three(1.0)] * 2)
    (line,) = drift(store, first, second)
    assert all(word in line for word in (str(MATCH), "fingerprint a", "fingerprint b", first.path, second.path))
    assert drift(store, first, first) == []
