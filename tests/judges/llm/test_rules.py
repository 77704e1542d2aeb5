"""Rule-based judges: hand-computed verdicts, and reproducibility."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import registry as datasets
from benchmarks.schema import Question
from judges.judge import AS_GIVEN, FIRST, NONE, RULE, SECOND, SWAPPED, TIE, Item, Judge, JudgeCall, Pair, Parsed
from judges.llm.match import MatchVerdicts, commonest
from judges.style import text_item
from methods.api import FAILED, Prediction, Services
from methods.flow import each
from results.judging.judgments import undone

PARIS = Question("1", "What is the capital of France?", ("Paris",), {"Paris": ("City of Light",)})
TOWN = Question("2", "Where was she born?", ("Upper Noumzath",))
YES = Question("3", "Is it so?", ("yes",))
SET = Question("4", "Who were the heirs?", ("Ann", "Bob"), answer_set=True)
NO_GOLD = Question("5", "Why?", ())
UNANSWERABLE = Question("6", "Who?", ("none",), answerable=False)
ARTICLE = Question("7", "Which letter?", ("A",))


def match(question: Question, answer: str, *, failed: bool = False, **config: Any) -> str | None:
    judge = Judge.of("rule_match", config).build(Services())
    notes = {FAILED: "timeout"} if failed else {}
    (calls,) = each(judge, "ask", [Item(question, Prediction(question.id, answer, notes=notes))])
    return calls[0].parsed.value["verdict"] if calls else None


@pytest.mark.parametrize(
    ("question", "answer", "verdict"),
    [
        (PARIS, "Paris", "Match"),
        (PARIS, "the city of light!", "Match"),
        (PARIS, "It is Paris, on the Seine.", "Match"),
        (PARIS, "Comparison", "Mismatch"),  # "paris" inside a word
        (PARIS, "Lyon", "Mismatch"),
        (PARIS, "", "Mismatch"),
        (PARIS, "word " * 40 + "Paris", "Partial"),
        (TOWN, "in Noumzath", "Partial"),
        (TOWN, "Upper Noumzath", "Match"),
        (YES, "Yes, it is.", "Match"),
        (YES, "No, there is no yes about it.", "Mismatch"),
        (YES, "", "Mismatch"),
        (SET, "Bob and Ann", "Match"),
        (SET, "Ann", "Partial"),
        (NO_GOLD, "Because", None),
        (UNANSWERABLE, "none", None),
        (ARTICLE, "A", None),
    ],
)
def test_rule_match_gives_hand_computed_verdicts(question: Question, answer: str, verdict: str | None) -> None:
    assert match(question, answer) == verdict


def test_failed_answer_is_always_a_mismatch() -> None:
    assert match(PARIS, "Paris", failed=True) == "Mismatch"


def test_rule_match_options_move_the_thresholds() -> None:
    assert match(PARIS, "It is Paris", longest_match=2) == "Partial"
    assert match(TOWN, "in Noumzath", partial_f1=0.6) == "Mismatch"


def compare(item: str, other: str, question: Question = PARIS) -> list[dict[str, str | None]]:
    judge = Judge.of("rule_pairwise").build(Services())
    (calls,) = each(judge, "ask", [Pair(question, Prediction("1", item), Prediction("1", other))])
    assert [call.part for call in calls] in ([AS_GIVEN, SWAPPED], [])
    assert all((call.model, call.key) == (RULE, None) for call in calls)
    return [dict(judge.verdicts(call)) for call in calls]


@pytest.mark.parametrize(
    ("item", "other", "overall", "faithfulness", "conciseness"),
    [
        ("Paris", "Lyon", FIRST, FIRST, TIE),
        ("It is Paris, indeed.", "Paris", SECOND, TIE, SECOND),
        ("It is Paris, indeed.", "Lyon", FIRST, FIRST, SECOND),
        ("Lyon", "Marseille it is", TIE, TIE, FIRST),
        ("Paris", "paris.", TIE, TIE, TIE),
        ("unknown", "Lyon", SECOND, SECOND, SECOND),
        ("", "Lyon", SECOND, SECOND, SECOND),
        ("The passages do not contain the answer, but Paris is likely.", "Lyon", SECOND, SECOND, SECOND),
        ("There is not enough information.", "I can't tell", NONE, NONE, NONE),
    ],
)
def test_rule_pairwise_gives_hand_computed_verdicts(item: str, other: str, overall: str, faithfulness: str, conciseness: str) -> None:
    as_given, _ = compare(item, other)
    assert as_given == {"overall": overall, "faithfulness": faithfulness, "conciseness": conciseness}


@given(st.sampled_from(["Paris", "Lyon", "unknown", "It is Paris", ""]), st.text(max_size=30))
def test_rule_pairwise_agrees_in_both_orders(item: str, other: str) -> None:
    as_given, swapped = compare(item, other)
    assert {c: undone(AS_GIVEN, v) for c, v in as_given.items()} == {c: undone(SWAPPED, v) for c, v in swapped.items()}


def test_pairs_without_gold_are_unscorable() -> None:
    assert compare("a", "b", NO_GOLD) == compare("a", "b", UNANSWERABLE) == compare("a", "b", ARTICLE) == []


@pytest.mark.slow
def test_rule_style_distinguishes_formal_and_informal_worlds() -> None:
    """The rules were not fitted phrase by phrase, so a few texts are missed."""
    for split in ("train", "test"):
        pairs = [pair for result in datasets.load(f"worlds/style:{split}").extra["styles"].values() for pair in result]
        pairs = [pair for pair in pairs if pair.style == "informal"][:500]
        judge = Judge.of("rule_style").build(Services())
        informal = [
            [calls[0].parsed.value["verdict"] == "Informal" for calls in each(judge, "ask", list(map(text_item, texts)))]
            for texts in ([pair.styled.text for pair in pairs], [pair.formal.text for pair in pairs])
        ]
        assert sum(informal[0]) / len(pairs) > 0.93
        assert sum(informal[1]) / len(pairs) < 0.05


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("The treaty was signed in 1648 and ended the war.", "Formal"),
        ("J. S. I. Bach's works were catalogd in 1950.", "Formal"),
        ("Omg you guys, this treaty was wild!!", "Informal"),
        ("It’s kinda funny, isn’t it?", "Informal"),
        (" ", None),
    ],
)
def test_rule_style_gives_hand_computed_verdicts(text: str, verdict: str | None) -> None:
    (calls,) = each(Judge.of("rule_style").build(Services()), "ask", [text_item(text)])
    assert (calls[0].parsed.value["verdict"] if calls else None) == verdict


def test_rule_judges_are_labeled_rule() -> None:
    for name in ("rule_match", "rule_pairwise", "rule_style"):
        judge = Judge.of(name)
        assert judge.rule
        assert "(model=rule," in str(judge)
        assert judge.describe()["model"] == RULE
        assert judge.build(Services()).parse("any", "Match").value is None


def test_rule_judge_provides_verdicts_for_training() -> None:
    judge = Judge.of("rule_match").build(Services())
    questions, answers = [PARIS, PARIS, TOWN, NO_GOLD], ["Paris", "Lyon", "in Noumzath", "Because"]
    questions, answers = questions * 400, answers * 400  # more than one batch
    verdicts = each(MatchVerdicts(judge), "verdicts", questions, answers)
    assert verdicts == ["Match", "Mismatch", "Partial", None] * 400


@pytest.mark.parametrize(
    ("responses", "verdict"),
    [
        (["Match", "Match", "Mismatch"], "Match"),
        (["Match", "Mismatch"], "Mismatch"),
        (["Match", "Partial", None], "Partial"),
        (["Match", "Partial"], "Partial"),
        ([None, None, "Match"], "Match"),
        ([None], None),
        ([], None),
    ],
)
def test_majority_of_repetitions_wins_and_ties_take_the_worse_verdict(responses: list[str | None], verdict: str | None) -> None:
    parsed = [Parsed(None, "dunno") if word is None else Parsed({"verdict": word}) for word in responses]
    assert commonest([JudgeCall("p", n, None, item) for n, item in enumerate(parsed)]) == verdict
