"""Abstentions: never disqualified if they equal a gold, and correct if the gold abstains, for every judge."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.schema import Question
from judges.judge import FIRST, NONE, SECOND, TIE, Item, Judge, Pair
from judges.llm.ask import gold_rule
from judges.llm.match import exact_match
from methods.api import FAILED, Prediction, Services
from methods.flow import each
from results.judging.judgments import ONE, OTHER, undone
from tests.support.server import ChatRequest, OpenAIServer, Written

PAPER = Question("1", "Which baseline do they use?", ("Unanswerable",))
TWICE = Question("2", "Which baseline do they use?", ("Unanswerable", "BM25"))
FILM = Question("3", "Which film has Liam Neeson lost his name in?", ("Unknown",))
BAND = Question("4", "Who sang Uncertain Smile?", ("The The",))
PARIS = Question("5", "What is the capital of France?", ("Paris",))
OPEN = Question("6", "Why?", ())
NOTHING = Question("7", "Who?", ("none",), answerable=False)


@pytest.fixture(scope="module")
def requests() -> list[ChatRequest]:
    return []


@pytest.fixture(scope="module")
def url(requests: list[ChatRequest]) -> Iterator[str]:
    def answer(request: ChatRequest) -> Written:
        requests.append(request)
        fields = ("overall", "faithfulness", "conciseness", "comprehensiveness", "diversity", "empowerment")
        return Written("Match" if "Match" in request.prompt else json.dumps(dict.fromkeys(fields, "Answer 1")))

    with OpenAIServer("m", answer).running() as result:
        yield result


def built(name: str, url: str, **options: Any) -> Any:
    llm = {"llm": {"model": "m", "base_url": url, "key_variable": None}} if not name.startswith("rule_") else {}
    return Judge.of(name, llm | options).build(Services())


PAIRS = [
    (PAPER, "Unanswerable", "BM25", ONE),
    (PAPER, "BM25", "unanswerable.", OTHER),
    (PAPER, "I don't know", "BM25", ONE),
    (PAPER, "Unanswerable", "No answer", TIE),
    (PAPER, "Unanswerable", "This is unanswerable from the paper.", TIE),
    (PAPER, "Unanswerable", "", ONE),
    (PAPER, "", " ", NONE),
    (TWICE, "Unanswerable", "BM25", TIE),
    (TWICE, "Unanswerable", "They use BM25.", TIE),
    (TWICE, "TF-IDF", "Unanswerable", OTHER),
    (FILM, "Unknown", "Taken", ONE),
    (FILM, "Unknown", "Unknown (2011)", TIE),
    (FILM, "unknown", "Unknown", TIE),
    (PARIS, "unknown", "Lyon", OTHER),
    (PARIS, "unknown", "I don't know", NONE),
    (NOTHING, "none", "Ann", ONE),
]


@pytest.mark.parametrize(("question", "one", "other", "verdict"), PAIRS)
@pytest.mark.parametrize("name", ["rule_pairwise", "pairwise", "open_pairwise"])
def test_abstention_is_judged_against_the_gold(
    name: str, question: Question, one: str, other: str, verdict: str, url: str, requests: list[ChatRequest]
) -> None:
    requests.clear()
    judge = built(name, url)
    (calls,) = each(judge, "ask", [Pair(question, Prediction("q", one), Prediction("q", other))])
    if question is NOTHING and name != "open_pairwise":
        assert calls == []  # no gold to judge by
        return
    assert not requests
    assert {undone(call.part, shown) for call in calls for shown in judge.verdicts(call).values()} == {verdict}


def test_gold_that_normalizes_to_nothing_is_not_disqualified(url: str, requests: list[ChatRequest]) -> None:
    requests.clear()
    (calls,) = each(built("pairwise", url, repetitions=1), "ask", [Pair(BAND, Prediction("q", "The The"), Prediction("q", "Abba"))])
    assert len(requests) == len(calls) == 2  # a model decides; a rule does not


def test_gold_answer_never_loses_to_a_method(url: str) -> None:
    judge = built("pairwise", url, repetitions=1, disqualify="judge")
    for question in (PAPER, FILM):
        for answer in ("Lyon", "unknown", "", question.golds[0]):
            (calls,) = each(judge, "ask", [Pair(question, Prediction("q", question.golds[0]), Prediction("q", answer))])
            assert all(undone(call.part, judge.verdicts(call)["overall"]) in (ONE, TIE) for call in calls)


def test_model_judge_accepts_paraphrased_abstentions(url: str, requests: list[ChatRequest]) -> None:
    requests.clear()
    pair = Pair(PAPER, Prediction("q", "The paper does not say."), Prediction("q", "BM25"))
    each(built("pairwise", url, repetitions=1), "ask", [pair])
    each(built("match", url), "ask", [Item(PAPER, pair.one)])
    assert len(requests) == 3
    assert all("an answer that says the same" in request.prompt for request in requests)
    requests.clear()
    each(built("pairwise", url, repetitions=1), "ask", [Pair(PARIS, pair.one, pair.other)])
    assert "an answer that says the same" not in "".join(request.prompt for request in requests)
    assert gold_rule(PARIS, "all") == "The gold is the right answer."


def test_rule_judge_accepts_paraphrased_abstentions() -> None:
    judge = built("rule_pairwise", "")
    pairs = [
        Pair(PAPER, Prediction("q", "The paper does not mention one."), Prediction("q", answer)) for answer in ("BM25", "Unanswerable")
    ]
    shown = [judge.verdicts(calls[0])["overall"] for calls in each(judge, "ask", pairs)]
    assert shown == [FIRST, TIE]
    title = Question("8", "Which film?", ("I Don't Know How She Does It",))
    pair = Pair(title, Prediction("q", "I Don't Know How She Does It"), Prediction("q", "Taken"))
    assert judge.verdicts(each(judge, "ask", [pair])[0][0])["overall"] == FIRST


@pytest.mark.parametrize(
    ("question", "answer", "failed", "verdict"),
    [
        (PAPER, "Unanswerable", False, "Match"),
        (PAPER, "I don't know", False, "Match"),
        (PAPER, "", False, "Mismatch"),
        (PAPER, "Unanswerable", True, "Mismatch"),
        (FILM, "Unknown", False, "Match"),
        (PARIS, "Unknown", False, "Mismatch"),
    ],
)
def test_match_judge_compares_abstentions_with_the_gold(
    question: Question, answer: str, failed: bool, verdict: str, url: str, requests: list[ChatRequest]
) -> None:
    requests.clear()
    item = Item(question, Prediction("q", answer, notes={FAILED: "timeout"} if failed else {}))
    (calls,) = each(built("rule_match", ""), "ask", [item])
    assert calls[0].parsed.value["verdict"] == verdict
    (calls,) = each(built("match", url), "ask", [item])
    assert calls[0].parsed.value["verdict"] == (verdict if not requests else "Match")
    assert bool(requests) == (question is PARIS)


def test_correct_abstention_agrees_with_the_reference() -> None:
    judge = built("rule_grounding", "")
    for question, answer, value in ((PAPER, "I don't know", 1.0), (PARIS, "I don't know", 0.0)):
        item = Item(question, Prediction("q", answer))
        (calls,) = each(judge, "ask", [item])
        assert judge.score(item, calls)["factual_correctness"].value == value


def test_swapped_order_gives_the_reversed_verdict() -> None:
    judge = built("rule_pairwise", "")
    (calls,) = each(judge, "ask", [Pair(PAPER, Prediction("q", "BM25"), Prediction("q", "Unanswerable"))])
    assert [judge.verdicts(call)["overall"] for call in calls] == [SECOND, FIRST]


def test_gold_that_normalizes_to_nothing_is_left_to_the_judge() -> None:
    assert [exact_match(Item(BAND, Prediction("4", answer)), "squad") for answer in ("A", "The The")] == [False, False]
    assert exact_match(Item(BAND, Prediction("4", "The The")), "strict")
