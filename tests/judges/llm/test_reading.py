"""Replies of judges in forms that real models write: each is read, or unreadable with a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.judge import Parsed
from judges.llm.match import ALIASES, VERDICTS
from judges.llm.pairwise import CRITERIA, OFFERED, PairwiseVerdict
from judges.llm.reading import read_criteria, read_word
from judges.llm.style import CONTENT_VERDICTS
from judges.llm.style import STYLE_VERDICTS as STYLES

GOOD = {"reasoning": "so", "faithfulness": "Answer 1", "conciseness": "Tie", "overall": "Answer 2"}
READ = {"overall": "Answer 2", "faithfulness": "Answer 1", "conciseness": "Tie"}

MATCH = """
Match|MATCH|match.|Match!|**Match**|__Match__|'Match'|"Match"|„Match“|«Match»|「Match」|[Match]|(Match)|["Match"]|Ｍａｔｃｈ|... Match
1. Match|- Match|> Match|# Match|✅ Match|Match ✅|Match.</s>|```⏎Match⏎```|Exact match|Perfect match.|A match.|Match⏎Match
Verdict: Match|Verdict : Match|**Verdict:** Match|**Verdict**: **Match**.|Verdict - Match|Verdict = Match|Verdict -> Match|verdict=Match
## Verdict⏎Match|## Verdict⏎⏎**Match**|Final verdict: Match|My judgment is: Match.|The verdict is Match.|Verdict: 'Match'|Verdict: Match ✅
Result: Match.|判定：Match|Urteil: Match|結論: 「Match」|Verdict: Match (both name Lyon).|Verdict: Match, since both name Lyon.
<verdict>Match</verdict>|<answer>Match</answer>|\\boxed{Match}|$\\boxed{\\text{Match}}$|[[Match]]
{"verdict": "Match"}|```json⏎{"verdict": "Match"}⏎```|{"verdict": "Match", "confidence": 0.9}|{"result": {"verdict": "Match"}}
{'verdict': 'Match',}
{"verdict": "Match"} {"verdict": "Match"}|{"verdict": ["Match"]}|{"verdict": "Match - both name Lyon"}
Match. Both name Lyon.|Match - both name Lyon|Match — both name Lyon|Match: both say Lyon|Match (both say Lyon)|Match because both name Lyon
Match, since both name Paris.|Match⏎⏎The answer matches the gold.|Match. There is no Mismatch.|This is a Match.|It's a match!
The answer is a match.
Both name Lyon. Match.|Both name Lyon, therefore: Match|Reasoning: both name Lyon.⏎⏎Verdict: Match
My judgment is based on the gold.⏎Verdict: Match
Options: Match, Partial, Mismatch.⏎Verdict: Match|Gold: Lyon⏎Answer: Lyon⏎Verdict: Match
Sure! Let me think.⏎⏎```⏎Match⏎```⏎I hope this helps.
Verdict: The answer is a Match.|Verdict: Match⏎Confidence: 0.95|This is a Match, since both name Lyon.|Match。两者都是里昂。
Decision: MATCH ✔|Match (incorrect spelling)|The final verdict is: $\\boxed{\\text{Match}}$
{"verdict": "match", "reason": "Partial overlap in wording, but the same city"}|{"reasoning": "It is not a Mismatch", "verdict": "Match"}
<think>It could be a Mismatch.</think>⏎⏎Match|It could be a Mismatch.</think>Match|<thinking>a</thinking><think>b</think> Match
"""
OTHERS = [
    ("Partial match", "Partial"),
    ('{"reason": "both name Lyon", "verdict": "Partial match"}', "Partial"),
    ("So this is a Partial match.", "Partial"),
    ("Partial. The city is right, the year is missing.", "Partial"),
    ("Answer: Mismatch", "Mismatch"),
    ("Mis-match", "Mismatch"),
    ("Mismatch: the answer gives Paris, but the gold is Lyon.", "Mismatch"),
    ("Mismatch. The answer does not match the gold.", "Mismatch"),
    ("Mismatch - the answer would match if it named Paris.", "Mismatch"),
    ("Verdict: Mismatch\n\nThe answer states Paris, which does not match Lyon.", "Mismatch"),
    ("Answer: Match\nVerdict: Mismatch", "Mismatch"),
    ("Mismatch (incorrect)", "Mismatch"),
    ("I classify this as Mismatch.", "Mismatch"),
    ("Based on the gold, the answer is a Mismatch because it names Paris.", "Mismatch"),
    ("This would be a Match if it named Lyon. Mismatch.", "Mismatch"),
    ("❌ Mismatch", "Mismatch"),
    ("| Verdict | Match |", "Match"),
    ("<output>Match</output>", "Match"),
    ('{"Match": false, "Partial": true, "Mismatch": false}', "Partial"),
    *((text, "Mismatch") for text in ("Mismatch ❌", "**Mismatch** ❌\n\nThe answer names Paris.", "Verdict: Mismatch ❌")),
    *(
        (text, "Partial")
        for text in ("partial_match", '{"verdict": "PARTIAL_MATCH"}', "Partial\n\nIt is not a full Match, as a year lacks.")
    ),
    ("Verdict: Match, since both name Lyon. It is not a Mismatch.", "Match"),
]


@pytest.mark.parametrize(
    ("reply", "verdict"), [(form.replace("⏎", "\n"), "Match") for line in MATCH.split("\n") for form in line.split("|") if form] + OTHERS
)
def test_explicit_verdict_is_read(reply: str, verdict: str) -> None:
    assert read_word(reply, VERDICTS, ALIASES) == Parsed({"verdict": verdict})


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        *((text, "no verdict of") for text in ("Not a match", "No match", "Not Match", "Non-match", "Almost a match", "Mostly Match")),
        *((text, "no verdict of") for text in ("Matches", "Partially", "Correct", "…", "It might be a Match.")),
        *((text, "no verdict of") for text in ("It is not a Match.", "Is it a Match? Yes.")),
        *((text, "no verdict of") for text in ("The answer is partially correct.", "I would classify this as Mismatch.", "Verdict: N/A")),
        ("Sure! I compared both carefully and there is a lot to say.", "no verdict of"),
        *((text, "qualified") for text in ("Match: nein", "Match: none", "Match ❌", '{"verdict": "Match"}\nBut on reflection, Mismatch.')),
        *(
            (text, "qualified")
            for text in (
                "Match?",
                "Verdict: Mismatch 👍 Match",
                "Match: no",
                "Match Point",
                "Exact Match: yes",
                "Verdict: not Match",
                "The verdict is not Match.",
            )
        ),
        *((text, "qualified") for text in ("Match, but only partial", "Match (only partial)", "Match, however the year is wrong")),
        *((text, "qualified") for text in ("Match. However, the year is wrong.", "Match / Partial / Mismatch", "Match/Mismatch")),
        *((text, "") for text in ("Match or Mismatch, hard to say", "Match\nMismatch", "Match: 0.9\nPartial: 0.1")),
        ("Match. On a second look: Partial.", "qualified"),
        *(
            (text, "qualified")
            for text in ("❌ Match", "Verdict: ❌ Match", "👎 **Match**", '{"Match": true, "Partial": true}', '{"Match": false}')
        ),
        ("They differ.\n❌ Match", "no verdict of"),
        *((text, "qualified") for text in ("Match (incorrect)", "Match: wrong", "Match. The answer is not correct.", "Match (in spirit)")),
        *((text, "qualified") for text in ("Mismatch (correct)", '{"verdict": "Match (incorrect)"}', "Verdict: Match 👎")),
        ("Verdict: Mismatch\nWait, actually Match.", "qualified"),
        ("Verdict: Mismatch\nActually, both name Rome. Verdict: Match", "more than one verdict"),
        ("Match\n\nVerdict: Mismatch", "more than one verdict"),
        ("Verdict: Match\nVerdict: Mismatch", "more than one verdict"),
        *(
            (f"{first}\n\n{last}", "more than one verdict")
            for first in ("Verdict: Match", "**Verdict:** Match\nBoth name Rome.", '{"verdict": "Match"}')
            for last in ("Final: Mismatch", "**Final answer:** Mismatch", "So the final result is: Mismatch", "Conclusion: Mismatch.")
        ),
        ('{"verdict": "Match"}\nFinal verdict: Mismatch', "more than one verdict"),
        ('{"verdict": "Match"}\n{"verdict": "Mismatch"}', "more than one verdict"),
        *((text, "") for text in ("Verdict: Match or Partial", "Verdict: Match, but only partially", "Neither Match nor Mismatch")),
        *((text, "no verdict of") for text in ('{"verdict": null}', '{"verdict": "Ma', '{"verdict": "Match", "reason": "bo')),
        ('{"verdict": ["Match", "Partial"]}', ""),
        *((text, "qualified") for text in ("Match，但只是部分", "Match, aber nur halb", "Match, mais partiel")),
        *(
            (text, "")
            for text in ("The answer is not a Match but a Partial match.", "The answer is a match in the name, but not the date.")
        ),
        *((text, "refusal: ") for text in ("I'm sorry, but I can't help with that.", "I am very sorry, this is not for me to judge.")),
        *((text, "refusal: ") for text in ("Ich kann das leider nicht beurteilen.", "Je suis désolé.", "抱歉，我无法判断。")),
        *(
            (text, "refusal: ")
            for text in ("I can’t judge this.", "I cannot say whether they match.", "As an AI language model I must not")
        ),
        *((text, "the reply is empty") for text in ("", "<think>done</think>")),
        ("<think>Match, I believe, but then", "still thinks"),
    ],
)
def test_reply_without_a_clear_verdict_is_unreadable_with_a_reason(reply: str, reason: str) -> None:
    parsed = read_word(reply, VERDICTS, ALIASES)
    assert parsed.value is None
    assert reason in str(parsed.unscored)


@pytest.mark.parametrize(
    ("offered", "reply", "verdict"),
    [
        (STYLES, "Informal.", "Informal"),
        (STYLES, "formal", "Formal"),
        (STYLES, "The text is formal. It avoids slang.", "Formal"),
        (STYLES, "Style: Informal", "Informal"),
        (STYLES, "In formal terms", None),
        (STYLES, "Not formal", None),
        (STYLES, "Mostly formal", None),
        (STYLES, "Neither formal nor informal", None),
        (CONTENT_VERDICTS, "Kept: nothing is lost.", "Kept"),
        (CONTENT_VERDICTS, "All facts are kept.", "Kept"),
        (CONTENT_VERDICTS, "No fact is lost.", None),
        (CONTENT_VERDICTS, "Lost and Altered", None),
    ],
)
def test_verdict_words_of_other_judges_are_read(offered: tuple[str, ...], reply: str, verdict: str | None) -> None:
    assert read_word(reply, offered).value == (verdict and {"verdict": verdict})


@given(st.text() | st.lists(st.sampled_from(["Match", "Partial", "\n", ":", "{", '"verdict"', "not", " ", "}", ".", "is"])).map("".join))
def test_every_reply_is_either_read_or_unreadable(reply: str) -> None:
    for parsed in (read_word(reply, VERDICTS, ALIASES), read_criteria(reply, CRITERIA, tuple(OFFERED))):
        assert (parsed.value is None) != (parsed.unscored is None)


def read(reply: str | dict[str, Any]) -> Any:
    return read_criteria(reply if isinstance(reply, str) else json.dumps(reply), CRITERIA, tuple(OFFERED))


@pytest.mark.parametrize(
    "reply",
    [
        json.dumps(GOOD),
        f"```json\n{json.dumps(GOOD, indent=2)}\n```",
        f"Sure! Let me compare.\n\n```\n{json.dumps(GOOD)}\n```\nI hope this helps {{or not}}.",
        f"<think>{json.dumps({**GOOD, 'overall': 'Answer 1'})}</think>{json.dumps(GOOD)}",
        f"{json.dumps(GOOD)}\nAgain:\n{json.dumps(GOOD)}",
        json.dumps(dict.fromkeys(GOOD, "Answer 1|Answer 2|Tie|None")) + json.dumps(GOOD),
        json.dumps({"evaluation": GOOD}),
        json.dumps(
            {
                "Faithfulness": {"Winner": "Answer 1", "Explanation": "x"},
                "Conciseness": {"Winner": "Tie", "Explanation": "y"},
                "Overall Winner": {"Winner": "Answer 2", "Explanation": "z"},
            }
        ),
        json.dumps({"verdicts": [{"criterion": name, "winner": verdict} for name, verdict in READ.items()]}),
        "\n".join(json.dumps({name: verdict}) for name, verdict in READ.items()),
        '{"faithfulness": "answer 1", "conciseness": "TIE.", "overall": "[Answer 2]",}',
        "{'faithfulness': 'Answer 1', 'conciseness': 'Tie', 'overall': '**Answer 2**'}",
        '{"overall": 2, "faithfulness": "1", "conciseness": "tie"}',
        "overall: Answer 2\nfaithfulness: Answer 1\nconciseness: Tie",
        "**Overall:** 2\n**Faithfulness:** Answer 1 (it names Lyon)\n**Conciseness:** Tie",
        "1. Overall winner - Answer 2\n2. Faithfulness = Answer 1\n3. Conciseness → Tie",
        "| overall | Answer 2 |\n| faithfulness | Answer 1 |\n| conciseness | Tie |",
        "<overall>Answer 2</overall><faithfulness>Answer 1</faithfulness><conciseness>Tie</conciseness>",
    ],
)
def test_complete_verdicts_are_read_in_every_form(reply: str) -> None:
    assert read(reply) == Parsed(READ)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        *(
            (text, "Answer 1")
            for text in ("1", "answer_1", "Answer #1", "Answer one", "First", "the first answer", "Response 1", "Ａｎｓｗｅｒ　１")
        ),
        *((text, "Answer 1") for text in ("Answer 1 is better", "Answer 1 wins.", "Answer 1 is clearly better, as it names Lyon")),
        *((text, "Answer 1") for text in ("Answer 1: names Lyon", "Answer 1 (names Lyon)", "Answer 1 because it does", "Winner: Answer 1")),
        *(
            (text, "Tie")
            for text in ("tied", "Draw", "It's a tie", "Tie (both name Lyon)", "Both are equal", "both answers are equally good")
        ),
        *(
            (text, "Answer 1")
            for text in ("1st", "the first one", "Answer 1 (8/10)", "Answer 1 (score: 4 out of 5)", "Answer 1 (confidence: 90%)")
        ),
        *((text, "Answer 1") for text in ("Answer 1 is better than Answer 2", "Answer 1 > Answer 2", "Answer 1 beats answer 2.")),
        *((text, "Answer 1") for text in ("Antwort 1", "Réponse 1", "答案1", "回答 1", "Ответ 1", "Respuesta 1")),
        *((text, "Tie") for text in ("Unentschieden", "Égalité", "Empate", "平局", "引き分け", "Ничья")),
        ("none.", "None"),
        ({"winner": "Answer 1", "why": "x"}, "Answer 1"),
        (["Answer 1"], "Answer 1"),
    ],
)
def test_winner_is_read_from_alternative_wordings(text: Any, verdict: str) -> None:
    assert read({**GOOD, "overall": text}) == Parsed({**READ, "overall": verdict})


def test_verdict_that_is_taken_back_or_denied_is_unread() -> None:
    assert "qualified" in (read(f"```json\n{json.dumps(GOOD)}\n```\nWait, overall it is a tie.").unscored or "")
    assert read(f"Wait, Answer 2 is better.\n{json.dumps(GOOD)}").value == READ
    assert read({**GOOD, "overall": "Answer 1 (incorrect)"}).value["overall"] is None


LAST_WORDS = ("Final: overall: {}", "Final overall winner: {}", "The overall winner is {}.", "Overall, {} wins.", "**Winner:** {}")


@pytest.mark.parametrize("last", [*LAST_WORDS, "Final verdict (overall): {}", "Therefore, overall, {} is better."])
def test_last_word_on_the_whole_must_agree_with_the_verdicts(last: str) -> None:
    for reply in (json.dumps(GOOD), "\n".join(f"{criterion}: {verdict}" for criterion, verdict in GOOD.items())):
        assert read(f"{reply}\n\n{last.format(READ['overall'])}").value == READ
        for other in {"Answer 1", "Answer 2"} - {READ["overall"]}:
            assert "more than one verdict" in (read(f"{reply}\n\n{last.format(other)}").unscored or "")
    assert read(f"{json.dumps(GOOD)}\nOverall, Answer 1 explains less.\nFinal scores: Answer 1: 8, Answer 2: 7").value == READ


def test_contradictory_objects_make_the_reply_unreadable() -> None:
    first, last = json.dumps({**GOOD, "overall": "Tie"}), json.dumps(GOOD)
    for reply in (
        f"{first}\nOn reflection:\n{last}",
        f'{first} {{"overall": "Answer 1"}}',
        "overall: 1\noverall: 2\nfaithfulness: 1\nconciseness: 1",
    ):
        assert "more than one verdict" in read(reply).unscored
    assert read(f"{first}\n{last[: len(last) // 2]}").value["overall"] == "Tie"


@pytest.mark.parametrize("verdicts", [(1, 0, 2), ("1", "0", "2"), (3, 1, 2), (0, 0, 1), (-1, 1, 1), (1.5, 2, 1)])
def test_numbers_other_than_one_and_two_make_all_numbers_unreadable(verdicts: tuple[Any, ...]) -> None:
    assert read(dict(zip(CRITERIA, verdicts, strict=True))).value is None


@pytest.mark.parametrize("rating", ["1/5", "2 out of 5", "2 stars", "1 of 10"])
def test_numbers_beside_a_rating_are_ratings(rating: str) -> None:
    assert read(dict(zip(CRITERIA, (rating, 2, "1"), strict=True))).value is None


@given(st.integers(0, len(json.dumps(GOOD)) - 1))
def test_truncated_verdict_is_unreadable(length: int) -> None:
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
def test_reply_without_verdicts_is_unreadable_with_a_reason(reply: str | dict[str, Any], reason: str) -> None:
    parsed = read(reply)
    assert parsed.value is None
    assert reason in parsed.unscored


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        *((text, "not an offered verdict") for text in ("Answer 3", "Answer 12", "A", "Both", "Neither", "Answer 1?", "", None, True, 0)),
        *((text, "not an offered verdict") for text in ("Answer 1 is not better", "Answer 1 is worse", {"score": 1})),
        *((text, "not an offered verdict") for text in ("1: 6, 2: 8", "1, 2", "1:2", "Answer 1.5")),
        ("Answer 1 and Answer 2", "more than one verdict"),
        ("Answer 1, though Answer 2 is shorter", "more than one verdict"),
        ("Answer 1 or a tie", "more than one verdict"),
        ("[Answer 1, Answer 2, Tie, or None]", "more than one verdict"),
        (["Answer 1", "Answer 2"], "more than one verdict"),
    ],
)
def test_unknown_verdict_makes_only_its_criterion_unreadable(verdict: Any, reason: str) -> None:
    parsed = read({**GOOD, "overall": verdict})
    assert parsed.unscored is None
    assert {c: parsed.value[c] for c in CRITERIA} == {**READ, "overall": None}
    assert list(parsed.value["unscored"]) == ["overall"]
    assert reason in parsed.value["unscored"]["overall"]


RATED = {"overall": 2, "faithfulness": 2, "conciseness": 2}


@pytest.mark.parametrize(
    "reply",
    [
        json.dumps({"answer_1": RATED, "Answer 2": RATED}),
        *(
            json.dumps({name: RATED, name.replace("1", "2"): RATED})
            for name in ("answer_1_scores", "Answer 1 rating", "Scores of answer 1")
        ),
        *(json.dumps(value) for value in ([{"answer": 1, **RATED}, {"answer": 2, **RATED}], {"scores": [{"id": "Answer 1", **RATED}] * 2})),
        json.dumps({"scores": {"1": RATED, "2": RATED}}),
        "\n".join(f"Answer {side}:\n" + "\n".join(f"{name}: {value}" for name, value in RATED.items()) for side in (1, 2)),
    ],
)
def test_ratings_of_each_answer_are_no_verdicts(reply: str) -> None:
    assert read_criteria(reply, CRITERIA, OFFERED).value is None


@pytest.mark.parametrize("name", ["overall", "Overall Winner"])
def test_criterion_with_two_different_verdicts_is_unreadable(name: str) -> None:
    text = json.dumps(GOOD)[:-1]
    parsed = read(f'{text}, "{name}": "Answer 1"}}')
    assert parsed.value["overall"] is None
    assert "more than one verdict" in parsed.value["unscored"]["overall"]
    assert read(f'{text}, "{name}": "Answer 2"}}').value == READ


def test_requested_json_form_is_read() -> None:
    for verdict in OFFERED:
        query = PairwiseVerdict(reasoning="r", faithfulness=verdict, conciseness=verdict, overall=verdict)  # type: ignore[arg-type]
        assert read(query.model_dump_json()).value == dict.fromkeys(CRITERIA, verdict)
