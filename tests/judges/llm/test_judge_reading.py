"""What judges write, read: tolerant in form, never in substance."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.llm.ask import read_criteria, read_word
from judges.llm.match import VERDICTS
from judges.llm.pairwise import CRITERIA, OFFERED, PairwiseVerdict
from judges.llm.style import STYLE_VERDICTS as STYLES

GOOD = {"reasoning": "so", "faithfulness": "Answer 1", "conciseness": "Tie", "overall": "Answer 2"}
READ = {"overall": "Answer 2", "faithfulness": "Answer 1", "conciseness": "Tie"}


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("Match", "Match"),
        ("mismatch", "Mismatch"),
        ("Mismatch.", "Mismatch"),
        (" **Partial**\n", "Partial"),
        ("'MATCH'", "Match"),
        ("Mis-match", "Mismatch"),
        ("```\nMatch\n```", "Match"),
        ("```text\nMismatch\n```", "Mismatch"),
        ("Mismatch - the answer would match if it named Paris.", "Mismatch"),
        ("Match, since both name Paris.", "Match"),
        ("<think>It could be a Mismatch.</think>\n\nMatch", "Match"),
        ("It could be a Match.</think>Partial", "Partial"),
        ("<thinking>a</thinking><think>b</think> Mismatch", "Mismatch"),
        ("... Match", "Match"),
    ],
)
def test_the_first_word_is_the_verdict(reply: str, verdict: str) -> None:
    parsed = read_word(reply, VERDICTS)
    assert (parsed.value, parsed.unscored) == ({"verdict": verdict}, None)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("The answer is a match.", "no verdict of"),
        ("Verdict: Match", "no verdict of"),
        ("Matches", "no verdict of"),
        ("Correct", "no verdict of"),
        ("", "the reply is empty"),
        ("…", "no verdict of"),
        ("Match / Partial / Mismatch", "more than one verdict"),
        ("Match or Mismatch, hard to say", "more than one verdict"),
        ("Match/Mismatch", "more than one verdict"),
        ("Match\nMismatch", "more than one verdict"),
        ("I'm sorry, but I can't help with that.", "refusal"),
        ("I am very sorry, this is not for me to judge.", "refusal"),
        ("I can’t judge this.", "refusal"),
        ("As an AI language model I must not", "refusal"),
        ("<think>Match, I believe, but then", "still thinks"),
        ("<think>done</think>", "the reply is empty"),
        ('{"verdict": "Ma', "no verdict of"),
    ],
)
def test_every_other_reply_is_unscored_and_says_why(reply: str, reason: str) -> None:
    parsed = read_word(reply, VERDICTS)
    assert parsed.value is None
    assert reason in str(parsed.unscored)


def test_informal_is_not_formal() -> None:
    assert read_word("Informal.", STYLES).value == {"verdict": "Informal"}
    assert read_word("formal", STYLES).value == {"verdict": "Formal"}
    assert read_word("In formal terms", STYLES).value is None


@given(st.text())
def test_any_reply_is_either_read_or_unscored(reply: str) -> None:
    for parsed in (read_word(reply, VERDICTS), read_criteria(reply, CRITERIA, tuple(OFFERED))):
        assert (parsed.value is None) != (parsed.unscored is None)


# -- JSON --


def read(reply: str | dict[str, Any]) -> Any:
    return read_criteria(reply if isinstance(reply, str) else json.dumps(reply), CRITERIA, tuple(OFFERED))


@pytest.mark.parametrize(
    "reply",
    [
        json.dumps(GOOD),
        json.dumps(GOOD, indent=2),
        f"```json\n{json.dumps(GOOD)}\n```",
        f"Sure! Let me compare.\n\n```\n{json.dumps(GOOD)}\n```\nI hope this helps {{or not}}.",
        f"<think>{json.dumps({**GOOD, 'overall': 'Answer 1'})}</think>{json.dumps(GOOD)}",
        json.dumps({"evaluation": GOOD}),
        json.dumps(
            {
                "Faithfulness": {"Winner": "Answer 1", "Explanation": "x"},
                "Conciseness": {"Winner": "Tie", "Explanation": "y"},
                "Overall Winner": {"Winner": "Answer 2", "Explanation": "z"},
            }
        ),
        '{"faithfulness": "answer 1", "conciseness": "TIE.", "overall": "[Answer 2]",}',
        "{'faithfulness': 'Answer 1', 'conciseness': 'Tie', 'overall': '**Answer 2**'}",
    ],
)
def test_a_complete_object_is_read_whatever_is_around_it(reply: str) -> None:
    parsed = read(reply)
    assert (parsed.value, parsed.unscored) == (READ, None)


def test_the_last_complete_verdict_counts() -> None:
    first, last = json.dumps({**GOOD, "overall": "Tie"}), json.dumps(GOOD)
    assert read(f"{first}\nOn reflection:\n{last}").value["overall"] == "Answer 2"
    half = last[: len(last) // 2]
    assert read(f"{first}\nOn reflection:\n{half}").value["overall"] == "Tie"
    assert read(f'{first} {{"overall": "Answer 1"}}').value["overall"] == "Tie"


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8, 0.99])
def test_half_an_object_is_none(share: float) -> None:
    text = json.dumps(GOOD)
    parsed = read(text[: int(len(text) * share)])
    assert parsed.value is None
    assert "no complete JSON object" in parsed.unscored


@given(st.integers(0, len(json.dumps(GOOD)) - 1))
def test_no_beginning_of_a_verdict_is_one(length: int) -> None:
    assert read(json.dumps(GOOD)[:length]).value is None


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("Answer 1 is better in every respect.", "no complete JSON object"),
        ("Overall: Answer 1", "no complete JSON object"),
        ("I cannot compare these.", "refusal"),
        ("", "the reply is empty"),
        ("}{ ]] \\u0000 ```json\n<|im_end|> ÿþ {'answer': [[[", "no complete JSON object"),
        ('{"overall": "Answer 1"}', "no complete JSON object"),
        ("[" * 5000 + "{" * 5000, "no complete JSON object"),
        ('{"a":' * 5000 + "}" * 5000, "no complete JSON object"),
        ({**GOOD, **dict.fromkeys(CRITERIA, "Answer 3")}, "not an offered verdict: 'Answer 3'"),
    ],
)
def test_a_reply_without_verdicts_is_unscored_and_says_why(reply: str | dict[str, Any], reason: str) -> None:
    parsed = read(reply)
    assert parsed.value is None
    assert reason in parsed.unscored


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        ("Answer 3", "not an offered verdict"),
        ("Both", "not an offered verdict"),
        ("Answer 1 wins", "not an offered verdict"),
        ("", "not an offered verdict"),
        (None, "not an offered verdict"),
        (1, "not an offered verdict"),
        (True, "not an offered verdict"),
        ({"score": 1}, "not an offered verdict"),
        ("Answer 1 and Answer 2", "more than one verdict"),
        ("[Answer 1, Answer 2, Tie, or None]", "more than one verdict"),
        (["Answer 1", "Answer 2"], "more than one verdict"),
    ],
)
def test_what_was_not_offered_leaves_that_criterion_unscored_and_no_other(verdict: Any, reason: str) -> None:
    parsed = read({**GOOD, "overall": verdict})
    assert parsed.unscored is None
    assert {c: parsed.value[c] for c in CRITERIA} == {**READ, "overall": None}
    assert list(parsed.value["unscored"]) == ["overall"]
    assert reason in parsed.value["unscored"]["overall"]


@pytest.mark.parametrize("name", ["overall", "Overall Winner"])
def test_a_criterion_given_twice_and_differently_is_unscored(name: str) -> None:
    text = json.dumps(GOOD)[:-1]
    parsed = read(f'{text}, "{name}": "Answer 1"}}')
    assert parsed.value["overall"] is None
    assert "more than one verdict" in parsed.value["unscored"]["overall"]
    assert read(f'{text}, "{name}": "Answer 2"}}').value == READ


def test_what_is_asked_for_is_what_is_read() -> None:
    for verdict in OFFERED:
        query = PairwiseVerdict(reasoning="r", faithfulness=verdict, conciseness=verdict, overall=verdict)  # type: ignore[arg-type]
        assert read(query.model_dump_json()).value == dict.fromkeys(CRITERIA, verdict)
