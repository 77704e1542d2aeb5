"""Controls among pairwise verdicts: what is right, not distinguishable and wrong, by the tests that mark the win rates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from judges.judge import AS_GIVEN, FIRST, SECOND, Judge, JudgeCall, Parsed
from results.judging import judgments
from results.judging.battles import BattleBoard, Pairing, Placed, battle_boards, misplaced, not_placed, placed
from results.judging.judgments import Match
from results.statistics.battles import Verdict, win_rates
from results.statistics.holm import holm
from results.store.queries import RunRow
from results.store.store import Store

KINDS = {
    "gold": "gold_answer",
    "wrong": "shuffled_answer",
    "blank": "empty_answer",
    "passage": "whole_passage",
    "reader": "oracle_evidence",
}


def board(responses: Mapping[tuple[str, str], tuple[int, int]], controls: Mapping[str, str] = KINDS) -> BattleBoard:
    """A board on which the first of each pair won and lost so many questions."""
    rates = []
    for wins, losses in responses.values():
        verdicts = [Verdict.WIN] * wins + [Verdict.LOSS] * losses
        nought = [0] * len(verdicts)
        rates += win_rates(nought, list(range(len(verdicts))), nought, nought, verdicts)
    corrected = holm([rate.p for rate in rates])
    pairings = [Pairing("overall", *pair, rate, corrected=p) for pair, rate, p in zip(responses, rates, corrected, strict=True)]
    return BattleBoard("j", True, "toy", "distractor", 0, 40, tuple(pairings), {}, dict(controls))


def by_name(result: BattleBoard) -> dict[str, Placed]:
    return {item.control: item for item in placed(result, "overall")}


def test_each_control_is_held_against_whom_it_met_whichever_side_it_stood_on() -> None:
    result = board(
        {
            ("gold", "a"): (30, 2),
            ("b", "gold"): (2, 30),
            ("wrong", "a"): (30, 2),
            ("b", "wrong"): (10, 12),
            ("blank", "a"): (1, 30),
            ("b", "blank"): (30, 1),
        }
    )
    assert by_name(result) == {
        "gold": Placed("gold", True, ("a", "b"), (), ()),
        "wrong": Placed("wrong", False, (), ("b",), ("a",)),
        "blank": Placed("blank", False, ("a", "b"), (), ()),
    }
    assert misplaced(result, "overall") == {"wrong": ("a",)}


def test_a_method_above_the_gold_answer_speaks_against_the_judge() -> None:
    result = board({("gold", "a"): (2, 30), ("gold", "b"): (14, 16)})
    assert by_name(result)["gold"] == Placed("gold", True, (), ("b",), ("a",))
    assert misplaced(result, "overall") == {"a": ("gold",)}


def test_a_wrong_answer_above_the_gold_answer_is_reported_once() -> None:
    result = board({("wrong", "gold"): (30, 2)})
    assert by_name(result)["gold"].wrong == ("wrong",)
    assert by_name(result)["wrong"].wrong == ("gold",)
    assert misplaced(result, "overall") == {"wrong": ("gold",)}


def test_nonsignificant_difference_is_no_evidence_against_a_judge() -> None:
    # 9 of 10 is p = .021 alone, and .043 among two pairs, .064 among three; 6 of 6 are too few to say.
    assert misplaced(board({("wrong", "a"): (6, 0)}), "overall") == {}
    assert misplaced(board({("wrong", "a"): (9, 1)}), "overall") == {"wrong": ("a",)}
    result = board({("wrong", "a"): (9, 1), ("b", "c"): (5, 5), ("b", "d"): (5, 5)})
    assert by_name(result)["wrong"].level == ("a",)
    assert misplaced(result, "overall") == {}


def test_nothing_is_expected_where_nothing_is_known_beforehand() -> None:
    result = board({("reader", "a"): (30, 2), ("passage", "a"): (30, 2), ("wrong", "blank"): (30, 2), ("a", "b"): (9, 9)})
    assert placed(result, "overall") == []
    assert misplaced(result, "overall") == {}
    assert not_placed(result, "overall") == ["wrong", "blank", "passage", "reader"]
    # A whole passage is no answer: beside the gold answer that is known.
    beside = board({("passage", "gold"): (30, 2), ("passage", "a"): (2, 30)})
    assert by_name(beside)["passage"] == Placed("passage", False, (), (), ("gold",))
    assert by_name(beside)["gold"].rivals == 1
    assert not_placed(beside, "overall") == []


def test_another_criterion_says_nothing() -> None:
    assert placed(board({("wrong", "a"): (30, 2)}), "conciseness") == []


@pytest.mark.slow
@pytest.mark.parametrize("first_wins", [True, False])
def test_stored_battles_mark_controls(store: Store, fill: Any, first_wins: bool) -> None:
    golds = [f"gold{number}" for number in range(12)]
    runs: dict[str, RunRow] = fill(
        store, {"a": ["x"] * 12, "shuffled_answer": ["y"] * 12}, golds, metrics=(), kinds={"shuffled_answer": "control"}
    )
    judge = Judge.of("pairwise", {"llm": {"model": "m"}, "repetitions": 1})
    judgments.put_judge(store, judge)
    item, other = sorted(runs.values(), key=lambda run: run.run)
    winner = item if first_wins else other
    responses = [dict.fromkeys(judge.entry.criteria, FIRST if winner is item else SECOND)]
    match = Match(item.dataset_fingerprint, item.setting, item.run, other.run)
    queries = [f"q{number}" for number in range(12)]
    calls = [[JudgeCall(AS_GIVEN, 0, "k", Parsed({"by": "hand"}))] for _ in queries]
    judgments.put_battles(store, match, judge, queries, calls, [responses for _ in queries])
    (result,) = battle_boards(store, list(runs.values()))
    assert result.controls == {"shuffled_answer": "shuffled_answer"}
    (where,) = placed(result, "overall")
    beaten = winner.method == "shuffled_answer"
    assert (where.wrong, where.right) == ((("a",), ()) if beaten else ((), ("a",)))
