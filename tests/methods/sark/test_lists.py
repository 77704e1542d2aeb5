"""Orders of lists: sampled ranks, conversations of many turns, and valid replies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import registry
from benchmarks.schema import Passage, Question, passage_id
from methods.api import Services
from methods.sark.config import ListsConfig
from methods.sark.lists import EvidenceOrderer, Lister, ListRequest, orderer_of, parse_order, sampled, sampled_ranks, worth
from tests.support.errors import raises
from tests.support.server import ChatRequest, OpenAIServer, Refused, Written


def passage(text: str, title: str = "") -> Passage:
    return Passage(passage_id(title, text), title, text)


def test_six_ranks_of_fifty_candidates_are_sampled() -> None:
    assert sampled_ranks(50) == (0, 9, 19, 29, 39, 49)
    assert sampled_ranks(1000) == (0, 9, 19, 29, 39, 49)


@given(st.integers(0, 200))
def test_six_ranks_are_evenly_spaced_from_first_to_last(candidates: int) -> None:
    ranks = sampled_ranks(candidates)
    among = min(candidates, 50)
    if candidates < 6:
        assert ranks == ()
        return
    assert len(set(ranks)) == 6
    assert list(ranks) == sorted(ranks)
    assert (ranks[0], ranks[-1]) == (0, among - 1)
    gaps = [later - earlier for earlier, later in pairwise(ranks[1:])]
    assert max(gaps) - min(gaps) <= 1


def test_keep_evidence_puts_evidence_into_the_list() -> None:
    names = [f"p{n}" for n in range(50)]
    query = Question("q", "?", ("a",), evidence=("p44", "p31"))
    assert sampled(query, names, keep_evidence=False) == ("p0", "p9", "p19", "p29", "p39", "p49")
    assert sampled(query, names, keep_evidence=True) == ("p0", "p9", "p19", "p29", "p31", "p44")
    there = Question("q", "?", ("a",), evidence=("p29", "p31"))
    assert sampled(there, names, keep_evidence=True) == ("p0", "p9", "p19", "p29", "p31", "p39")
    last = Question("q", "?", ("a",), evidence=("p49", "p31"))
    assert sampled(last, names, keep_evidence=True) == ("p0", "p9", "p19", "p29", "p31", "p49")
    many = Question("q", "?", ("a",), evidence=tuple(names[20:28]))
    assert sampled(many, names, keep_evidence=True) == tuple(names[20:26])
    beyond = Question("q", "?", ("a",), evidence=("p44",))
    assert "p44" not in sampled(beyond, names, keep_evidence=True, depth=20)
    assert sampled(query, names[:5], keep_evidence=True) == ()


@pytest.mark.parametrize(
    ("reply", "order"),
    [
        ("[2] > [1] > [4] > [3]", (1, 0, 3, 2)),
        ("[2]>[1]>[4]>[3]", (1, 0, 3, 2)),
        ("Sure! The order is:\n[2] > [1] > [4] > [3]\nI hope this helps.", (1, 0, 3, 2)),
        ("At first [1] > [2] > [3] > [4].\nOn reflection: [4] > [2] > [1] > [3]", (3, 1, 0, 2)),
        ("<think>[1] > [2] > [3] > [4]</think>\n[2] > [1] > [4] > [3]", (1, 0, 3, 2)),
        ("[2]\n[1]\n[4]\n[3]", (1, 0, 3, 2)),  # no line has two numbers, so the whole text counts
        ("[2] > [2] > [1] > [4] > [2] > [3]", (1, 0, 3, 2)),  # a number twice: its first place
        ("[2] > [9] > [1] > [0] > [4] > [3]", (1, 0, 3, 2)),  # numbers that no passage has
        ("[2] > [1] > [4]", (1, 0, 3, 2)),  # one is missing: it comes last
        ("[ 2 ] > [1 ] > [4] > [3]", (1, 0, 3, 2)),
        ("1. [2] > [1] > [4] > [3]", (1, 0, 3, 2)),
        ("[3] is about something else, so [2] > [1] > [4] > [3].", (1, 0, 3, 2)),
        ("[2] > [1] > [4] > [3] ([3] > [4] is a close call)", (1, 0, 3, 2)),
    ],
)
def test_order_is_parsed(reply: str, order: tuple[int, ...]) -> None:
    assert parse_order(reply, 4).order == order
    assert parse_order(reply, 4).rejected is None


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "no order"),
        ("2 > 1 > 4 > 3", "no order"),
        ("[B] > [A] > [D] > [C]", "no order"),
        ("[two] > [one]", "no order"),
        ("[7] > [8]", "no order"),
        ("[99999999999999999999] > [1]", "too few numbers"),
        ("[2] > [1]", "too few numbers"),
        ("[2] > [1] > [9] > [2]", "too few numbers"),
        ("[3] is best", "too few numbers"),
        ("I cannot rank these.", "no order"),
    ],
)
def test_incomplete_order_is_rejected(reply: str, reason: str) -> None:
    parsed = parse_order(reply, 4)
    assert parsed.order == ()
    assert parsed.rejected == reason


@given(st.text(alphabet="[]0123456789 >ab\n", max_size=60), st.integers(2, 6))
def test_parsed_order_is_a_permutation_or_none_for_any_text(reply: str, size: int) -> None:
    parsed = parse_order(reply, size)
    assert sorted(parsed.order) == (list(range(size)) if parsed.rejected is None else [])


@given(st.permutations(range(6)))
def test_every_written_order_can_be_parsed_back(order: list[int]) -> None:
    assert parse_order(" > ".join(f"[{position + 1}]" for position in order), 6).order == tuple(order)


SIX = tuple(passage(f"Passage {letter} has {n} points.", f"Title {letter}") for n, letter in enumerate("ABCDEF"))


class Ranker:
    """Model that orders by the points in the turns; for some questions it gives a fixed reply."""

    def __init__(self, says: Callable[[str], str | None] = lambda question: None) -> None:
        self._says = says
        self.conversations: list[tuple[dict[str, str], ...]] = []

    def __call__(self, request: ChatRequest) -> Written:
        self.conversations.append(request.messages)
        question = re.search(r"Question: (.*)", request.messages[0]["content"])
        assert question
        response = self._says(question[1])
        if response == "refuse":
            raise Refused(400, "no")
        if response is not None:
            return Written(response)
        shown = [(int(m[1]), int(m[2])) for message in request.messages if (m := re.match(r"\[(\d+)\].*has (\d+) p", message["content"]))]
        return Written(" > ".join(f"[{number}]" for number, _ in sorted(shown, key=lambda pair: -pair[1])))

    @contextmanager
    def running(self) -> Iterator[ListsConfig]:
        with OpenAIServer("scripted", self, any_model=True).running() as url:
            chat = {"model": "qwen", "base_url": url, "key_variable": None, "attempts": 1}
            yield ListsConfig.model_validate({"by": "llm", "llm": chat})


def lister(config: ListsConfig, folder: Path, name: str, cache: str = ".") -> Lister:
    return Lister(orderer_of(config, Services(cache=folder / cache / "replies.sqlite")), folder / f"{name}.jsonl")


def test_prompt_has_a_turn_per_passage_and_contains_the_gold(tmp_path: Path) -> None:
    ranker = Ranker()
    query = Question("q", "Which is best?", ("F", "the sixth"), evidence=(SIX[5].id,))
    with ranker.running() as chat:
        (order,) = lister(chat, tmp_path, "one").orders([ListRequest(query, SIX)])
    assert order.ids == tuple(item.id for item in reversed(SIX))
    (turns,) = ranker.conversations
    assert [turn["role"] for turn in turns] == ["user", "assistant"] * 7 + ["user"]
    assert "Which is best?" in turns[0]["content"]
    assert "F | the sixth" in turns[0]["content"]
    for number, item in enumerate(SIX, 1):
        assert turns[2 * number]["content"] == f'[{number}] "{item.title}" {item.text}'
        assert f"[{number}]" in turns[2 * number + 1]["content"]
    assert "[X] > [Y]" in turns[-1]["content"]


def test_rejected_lists_are_counted_and_no_call_is_repeated(tmp_path: Path) -> None:
    ranker = Ranker({"Bad?": "[1] > [2]", "Talk?": "I would not."}.get)
    requests = [ListRequest(Question(item, item, ("x",)), SIX) for item in ("Good?", "Bad?", "Talk?")]
    with ranker.running() as chat:
        first = lister(chat, tmp_path, "one")
        good, bad, talk = first.orders(requests)
        assert len(good.ids) == 6
        assert (bad.ids, bad.rejected) == ((), "too few numbers")
        assert (talk.ids, talk.rejected) == ((), "no order")
        expected = {"lists_asked": 3, "list rejected: too few numbers": 1, "list rejected: no order": 1}
        assert first.counts == expected
        for name, cache in (("one", "other"), ("two", ".")):
            (tmp_path / cache).mkdir(exist_ok=True)
            again = lister(chat, tmp_path, name, cache)
            assert again.orders(requests) == [good, bad, talk]
            assert again.counts == expected
        assert len(ranker.conversations) == 3


def test_list_without_a_reply_is_requested_again(tmp_path: Path) -> None:
    answers = {"Broken?": "refuse"}
    ranker = Ranker(answers.get)
    requests = [ListRequest(Question(item, item, ("x",)), SIX) for item in ("Good?", "Broken?")]
    with ranker.running() as chat:
        assert [order.rejected for order in lister(chat, tmp_path, "one").orders(requests)] == [None, "no reply"]
        answers.clear()
        assert [order.rejected for order in lister(chat, tmp_path, "one").orders(requests)] == [None, None]
        assert len(ranker.conversations) == 3


def test_run_stops_if_no_list_gets_a_reply(tmp_path: Path) -> None:
    with Ranker(lambda question: "refuse").running() as chat, raises("all-calls-failed"):
        lister(chat, tmp_path, "one").orders([ListRequest(Question("q", "?", ("x",)), SIX)])


def test_rule_order_is_evidence_facts_entities_words_spelling_then_original_order() -> None:
    facts = (("Ann Lee", "wrote", "The Pond"), ("The Pond", "set in", "Bresk"))
    idle, other = passage("It rained."), passage("It snowed.")
    spelled = passage("Otherwise.")
    words = passage("Someone wrote something else.")
    entity = passage("Bresk is a town.")
    two = passage("Ann Lee visited Bresk.")
    fact = passage("The Pond is set in Bresk.")
    gold = passage("It is known.")
    query = Question("q", "Who wrote what is set otherwhere?", ("Ann Lee",), evidence=(gold.id,), triples=facts)
    mixed = (idle, entity, words, other, spelled, two, fact, gold)
    (order,) = EvidenceOrderer().orders([ListRequest(query, mixed)])
    assert order.ids == tuple(item.id for item in (gold, fact, two, entity, words, spelled, idle, other))
    assert worth(query, gold)[0] == 1
    assert [worth(query, item)[1] for item in mixed] == [0, 0, 0, 0, 0, 0, 1, 0]


def test_name_inside_a_longer_word_is_not_a_mention() -> None:
    query = Question("q", "?", ("Ann",))
    assert worth(query, passage("Anna and Joann went."))[2] == 0
    assert worth(query, passage("Nobody but ANN went."))[2] == 1


def test_rule_order_of_worlds_puts_all_evidence_first() -> None:
    benchmark = registry.load("worlds/multihop:train", {"questions": 40})
    requests = [ListRequest(question, tuple(benchmark.corpus.get(question.candidates))) for question in benchmark.questions]
    for item, order in zip(requests, EvidenceOrderer().orders(requests), strict=True):
        evidence = set(item.question.evidence)
        assert sorted(order.ids) == sorted(p.id for p in item.passages)
        assert set(order.ids[: len(evidence)]) == evidence
        texts = {p.id: p for p in item.passages}
        values = [worth(item.question, texts[name]) for name in order.ids]
        assert values == sorted(values, reverse=True)
