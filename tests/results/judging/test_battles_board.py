"""Win rates on a board, by a table made by hand: swapped orders, ties, nobody, failures, what cannot be judged."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from judges.judge import AS_GIVEN, FIRST, NONE, SECOND, SWAPPED, TIE, Judge, JudgeCall, Parsed
from leaderboard.views import battles as views
from ragmeter.show.board_text import RANKS, show_battles
from results.judging import judgments
from results.judging.battles import BattleBoard, Pairing, battle_boards
from results.judging.judgments import Match
from results.statistics.bradley_terry import bradley_terry
from results.statistics.holm import holm
from results.store.queries import RunRow
from results.store.store import RUNNING, Store

JUDGE = Judge.of("pairwise", {"llm": {"model": "m"}, "repetitions": 1})
GOLDS = [f"gold{n}" for n in range(8)] + [""]
BY_HAND: dict[str, tuple[str | None, ...]] = {
    "q0": ("mine", "mine"),  # a win
    "q1": ("mine", "theirs"),  # the orders contradict each other: a tie
    "q2": ("theirs", "theirs"),  # a loss
    "q3": (TIE, "mine"),  # ¾ of a win: a win
    "q4": (NONE, NONE),  # both are out
    "q5": (None, None),  # the judge failed
    "q6": (None, "theirs"),  # it failed once: what it said counts
    "q8": (),  # nothing to judge by
}
"""By question the winner named with the answers as given and swapped; of q7 nothing is said yet."""


def fight(store: Store, mine: RunRow, theirs: RunRow, responses: Mapping[str, Sequence[str | None]]) -> None:
    """Store verdicts, each about the order in which the answers were shown."""
    item, other = sorted((mine, theirs), key=lambda run: run.run)
    owner = {"mine": mine.run, "theirs": theirs.run}
    judgments.put_judge(store, JUDGE)
    every_call, every_verdict = [], []
    for winners in responses.values():
        calls, verdicts = [], []
        for part, winner in zip((AS_GIVEN, SWAPPED), winners, strict=False):
            first = item.run if part == AS_GIVEN else other.run
            verdict = winner if winner in (TIE, NONE, None) else FIRST if owner[str(winner)] == first else SECOND
            parsed = Parsed(None, "no JSON") if winner is None else Parsed({"by": "hand"})
            calls.append(JudgeCall(part, 0, "k", parsed))
            verdicts.append(dict.fromkeys(JUDGE.entry.criteria, verdict))
        every_call.append(calls)
        every_verdict.append(verdicts)
    match = Match(item.dataset_fingerprint, item.setting, item.run, other.run)
    judgments.put_battles(store, match, JUDGE, list(responses), every_call, every_verdict)


def board_of(store: Store, runs: Mapping[str, RunRow], reference: str | None, **options: Any) -> BattleBoard:
    (board,) = battle_boards(store, list(runs.values()), reference, **options)
    return board


def overall(board: BattleBoard) -> Pairing:
    return next(pairing for pairing in board.pairings if pairing.criterion == "overall")


def overall_of(board: BattleBoard, method: str, opponent: str = "last") -> Pairing:
    return next(
        pairing for pairing in board.pairings if (pairing.criterion, pairing.method, pairing.opponent) == ("overall", method, opponent)
    )


@pytest.fixture
def runs(store: Store, fill: Any, once: Callable[..., dict[str, RunRow]]) -> dict[str, RunRow]:
    def fought(store: Store) -> dict[str, RunRow]:
        answers = ["x"] * len(GOLDS)
        results: dict[str, RunRow] = fill(store, {"mine": answers, "theirs": answers}, GOLDS, metrics=())
        fight(store, results["mine"], results["theirs"], BY_HAND)
        return results

    return once(store, by=fought)


@pytest.mark.slow
def test_the_table_made_by_hand(store: Store, runs: dict[str, RunRow]) -> None:
    pairing = overall(board_of(store, runs, "theirs"))
    rate = pairing.rate
    assert (pairing.method, pairing.opponent) == ("mine", "theirs")
    assert (rate.wins, rate.ties, rate.losses, rate.none, rate.unscored) == (2, 1, 2, 1, 1)
    assert (rate.n, pairing.unscorable, pairing.pending) == (6, 1, 1)
    assert rate.decided.value == pytest.approx(2 / 4)
    assert rate.decided_failures_zero.value == pytest.approx(2 / 5)
    assert rate.with_ties.value == pytest.approx(2.5 / 6)
    assert rate.with_ties_failures_zero.value == pytest.approx(2.5 / 7)
    assert (rate.flips.flips, rate.flips.both_decided) == (1, 3)
    assert rate.verdicts == {"loss": 4, "tie": 1, "win": 4, "none": 2, "unscored": 3}


@pytest.mark.slow
def test_implausible_and_contaminated_submissions_are_marked(store: Store, runs: dict[str, RunRow]) -> None:
    signs = {"implausible": ["all answers are equal"], "review": [{"status": "accepted"}]}
    cards = {"mine": {"submission": signs}, "theirs": {"submission": {"contamination": ["data:test"]}}}
    board = board_of(store, {name: replace(run, card=cards[name]) for name, run in runs.items()}, None)
    assert {name: [kind for kind, _ in why] for name, why in board.doubts.items()} == {"mine": ["implausible"], "theirs": ["contaminated"]}
    assert board.to_json()["doubts"]["theirs"] == {"contaminated": "data:test"}
    assert board_of(store, runs, None).doubts == {}
    marked = views.win_rates(board, "overall")[0]
    assert [list(node.texts()) for node in marked.find(cls="badge")] == [["implausible"], ["contaminated"]]
    text = io.StringIO()
    show_battles(board, Console(file=text, width=120))
    assert "data:test" in text.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("status", [RUNNING, "incomplete", "failed"])
def test_pair_with_an_unfinished_run_has_no_rate(status: str, store: Store, fill: Any) -> None:
    golds = [f"gold{n}" for n in range(60)]
    named: dict[str, RunRow] = fill(store, {name: ["x"] * 60 for name in ("mine", "theirs")}, golds, metrics=())
    fight(store, named["mine"], named["theirs"], {f"q{n}": ("mine", "mine") for n in range(60)})
    assert overall(board_of(store, named, "theirs")).won
    runs = named | {"mine": replace(named["mine"], status=status, done=30)}
    pairing = overall(board_of(store, runs, "theirs"))
    assert (pairing.won, np.isnan(pairing.shown.p), np.isnan(pairing.share.value)) == (None, True, True)
    assert pairing.incomplete


def test_runs_of_one_name_keep_their_own_win_rates(store: Store, fill: Any) -> None:
    # Two experiments may call different pipelines the same.
    runs = fill(store, {name: ["x"] * 4 for name in ("old", "new", "last")}, [f"gold{n}" for n in range(4)], metrics=())
    fight(store, runs["old"], runs["last"], {f"q{n}": ("mine", "mine") for n in range(4)})
    fight(store, runs["new"], runs["last"], {f"q{n}": ("theirs", "theirs") for n in range(4)})
    same = {name: runs[name] if name == "last" else replace(runs[name], method="bm25") for name in runs}
    board = board_of(store, same, "last")
    won = {p.method: p.rate.wins for p in board.pairings if p.criterion == "overall"}
    assert won == {f"bm25 ({runs['old'].short})": 4, f"bm25 ({runs['new'].short})": 0}
    assert {name for name, _ in board.strengths["overall"]} == {*won, "last"}


def test_every_criterion_has_its_line(store: Store, runs: dict[str, RunRow]) -> None:
    board = board_of(store, runs, "theirs")
    assert [pairing.criterion for pairing in board.pairings] == list(JUDGE.entry.criteria)


@pytest.mark.slow
@pytest.mark.parametrize("reference", ["mine", "theirs"])
def test_the_reference_is_the_opponent(store: Store, runs: dict[str, RunRow], reference: str) -> None:
    pairing = overall(board_of(store, runs, reference))
    assert pairing.opponent == reference
    wins, losses = (2, 2)
    assert (pairing.rate.wins, pairing.rate.losses) == (wins, losses)
    fight(store, runs["mine"], runs["theirs"], {"q7": ("mine", "mine")})
    pairing = overall(board_of(store, runs, reference))
    assert (pairing.rate.wins, pairing.rate.losses) == ((2, 3) if reference == "mine" else (3, 2))
    assert pairing.pending == 0


def test_without_a_reference_the_first_in_the_table_is_the_method(store: Store, runs: dict[str, RunRow]) -> None:
    assert overall(board_of(store, runs, None)).method == "mine"
    assert overall(board_of(store, dict(reversed(runs.items())), None)).method == "theirs"


@pytest.mark.slow
def test_tie_rules_take_no_call(store: Store, runs: dict[str, RunRow]) -> None:
    for ties, expected in ("half", 2.5 / 6), ("loss", 2 / 6), ("win", 3 / 6), ("ignore", 2 / 5):
        rate = overall(board_of(store, runs, "theirs", ties=ties)).rate
        assert rate.with_ties.value == pytest.approx(expected), ties
        assert rate.decided.value == pytest.approx(0.5), ties


def test_table_and_json_show_pending_and_unscorable_questions(store: Store, runs: dict[str, RunRow]) -> None:
    board = board_of(store, runs, "theirs")
    console = Console(width=140, record=True, file=io.StringIO())
    show_battles(board, console)
    text = console.export_text()
    assert "overall: 14 verdicts, 3 of them unscored" in text
    assert re.search(r"mine\s+2/1/2\s+1\s+1\s", text)
    assert "mine against theirs: 1 answer of both is not judged yet" in text
    assert "mine against theirs: left out, without the fields that the judge needs: 1 question" in text
    value = json.loads(json.dumps(board.to_json(), allow_nan=False))
    shown = next(item for item in value["pairings"] if item["criterion"] == "overall")
    expected = {"wins": 2, "ties": 1, "losses": 2, "none": 1, "unscored": 1, "unscorable": 1, "pending": 1, "n": 6}
    assert {name: shown[name] for name in expected} == expected
    assert shown["flip_rate"] == pytest.approx(1 / 3)


@pytest.mark.slow
def test_rules_are_called_rules(store: Store, fill: Any) -> None:
    rule = Judge.of("rule_pairwise")
    runs = fill(store, {"mine": ["x"], "theirs": ["x"]}, ["gold"], metrics=())
    item, other = sorted(runs.values(), key=lambda run: run.run)
    judgments.put_judge(store, rule)
    call = JudgeCall(AS_GIVEN, 0, None, Parsed({"by": "rule"}), "rule")
    match = Match(item.dataset_fingerprint, item.setting, item.run, other.run)
    judgments.put_battles(store, match, rule, ["q0"], [[call]], [[dict.fromkeys(rule.entry.criteria, TIE)]])
    board = board_of(store, runs, None)
    console = Console(width=140, record=True, file=io.StringIO())
    show_battles(board, console)
    assert board.rule
    assert "by rules, not by a model" in console.export_text()


def test_two_judges_have_two_boards(store: Store, runs: dict[str, RunRow]) -> None:
    other = Judge.of("pairwise", {"llm": {"model": "m", "temperature": 0.5}, "repetitions": 1})
    judgments.put_judge(store, other)
    (_, match), *_ = judgments.matches(store)
    call = JudgeCall(AS_GIVEN, 0, "k", Parsed({}))
    judgments.put_battles(store, match, other, ["q0"], [[call]], [[dict.fromkeys(other.entry.criteria, FIRST)]])
    boards = battle_boards(store, list(runs.values()), "theirs")
    assert sorted(board.judge for board in boards) == sorted((str(JUDGE), str(other)))
    assert {overall(board).rate.n for board in boards} == {1, 6}


@pytest.mark.slow
def test_strengths_need_three_methods_and_are_those_of_the_arithmetic(store: Store, fill: Any) -> None:
    names = ["good", "fair", "poor"]
    runs = fill(store, {name: ["x"] * 4 for name in names}, [f"gold{n}" for n in range(4)], metrics=())
    beaten = [("good", "fair", 3), ("good", "poor", 3), ("fair", "poor", 3)]
    fight(store, runs["good"], runs["fair"], {f"q{n}": ("mine" if n < 3 else "theirs",) * 2 for n in range(4)})
    assert board_of(store, runs, None).strengths == {}
    for mine, theirs, wins in beaten[1:]:
        fight(store, runs[mine], runs[theirs], {f"q{n}": ("mine" if n < wins else "theirs",) * 2 for n in range(4)})
    board = board_of(store, runs, None)
    assert set(board.strengths) == set(JUDGE.entry.criteria)
    assert [name for name, _ in board.strengths["overall"]] == names
    # By symmetry the middle one stands at the mean; each battle of the outer two was shown in both orders.
    strengths = dict(board.strengths["overall"])
    assert strengths["fair"].logit.value == pytest.approx(0, abs=1e-6)
    assert strengths["good"].logit.value == pytest.approx(-strengths["poor"].logit.value, abs=1e-6)
    rows = [(a, b, q, float(q < 3), order) for a, b in ((0, 1), (0, 2), (1, 2)) for q in range(4) for order in (1, 0)]
    item, other, question, score, _ = (np.array(column) for column in zip(*rows, strict=True))
    expected = bradley_terry(item, other, question, score, methods=3).strengths
    assert strengths["good"].logit.value == pytest.approx(expected[0].logit.value, abs=0.02)


@pytest.mark.slow
def test_significant_wins_are_corrected_over_all_pairs_with_a_note(store: Store, fill: Any) -> None:
    names = ["best", "same", "other", "last"]
    runs = fill(store, {name: ["x"] * 18 for name in names}, [f"gold{n}" for n in range(18)], metrics=())

    def beats(mine: str, theirs: str, wins: int, losses: int) -> None:
        responses = ["mine"] * wins + ["theirs"] * losses + [TIE] * (18 - wins - losses)
        fight(store, runs[mine], runs[theirs], {f"q{n}": (item, item) for n, item in enumerate(responses)})

    beats("best", "last", 18, 0)
    beats("same", "last", 7, 0)
    board = board_of(store, runs, None)
    assert [overall_of(board, name).won for name in ("best", "same")] == [True, True]
    for mine, theirs in (("best", "same"), ("best", "other"), ("same", "other"), ("other", "last")):
        beats(mine, theirs, 4, 4)
    board = board_of(store, runs, "best")
    chosen = [pairing for pairing in board.pairings if pairing.criterion == "overall"]
    assert len(chosen) == 6
    assert [item.corrected for item in chosen] == pytest.approx(holm([item.rate.p for item in chosen]))
    best, same = overall_of(board, "last", "best"), overall_of(board, "same", "last")
    assert (best.rate.p, best.won) == (pytest.approx(2 / 2**18), False)
    # Its own p is .016, but of six pairs.
    assert (same.rate.p, same.corrected, same.won) == (pytest.approx(2 / 2**7), pytest.approx(5 * 2 / 2**7), None)
    assert same.rate.with_ties.low > 0.5
    console = Console(width=140, record=True, file=io.StringIO())
    show_battles(board, console)
    text = console.export_text()
    assert re.search(r"last\s+0/0/18 .*▼ 0\.0", text)
    assert re.search(r"same\s+7/11/0 .*(?<!▲) 69\.4", text)
    assert text.count("▲") == 1  # in the legend
    positions = {name: item.positions for name, item in board.strengths["overall"]}
    assert all(f"rank {position}" in text for position in positions.values())
    assert RANKS in " ".join(text.split())
    value = json.loads(json.dumps(board.to_json(), allow_nan=False))
    shown = {(item["method"], item["opponent"]): item for item in value["pairings"] if item["criterion"] == "overall"}
    assert shown["same", "last"]["corrected"] == pytest.approx(5 * 2 / 2**7)
    assert shown["same", "last"]["p"] == pytest.approx(2 / 2**7)
    for row, (_, item) in zip(value["strengths"]["overall"], board.strengths["overall"], strict=True):
        assert (row["band"]["low"], row["band"]["high"]) == (item.band.low, item.band.high)


def test_nothing_is_shown_where_nobody_has_judged(store: Store, fill: Any) -> None:
    runs = fill(store, {"mine": ["x"], "theirs": ["x"]}, ["gold"], metrics=())
    assert battle_boards(store, list(runs.values())) == []
    assert battle_boards(Store(store.folder / "none"), []) == []


def test_at_80_columns_no_number_is_broken_and_the_same_numbers_are_printed_once(store: Store, runs: dict[str, RunRow]) -> None:
    board = board_of(store, runs, "theirs")
    text = io.StringIO()
    show_battles(board, Console(width=80, file=text), {"mine"})
    lines = text.getvalue().splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert [line.split()[0] for line in lines if "2/1/2" in line] == ["mine"]
    assert any("mine (control)" in line for line in lines)
    assert [line for line in lines if "the same numbers as overall" in line] == [
        f"{criterion}: the same numbers as overall" for criterion in JUDGE.entry.criteria if criterion != "overall"
    ]
    assert "none: both answers disqualified" in " ".join(text.getvalue().split())
