"""RQ-RAG: the shape of the tree, selection without gold, malformed queries; and the variant by prompts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query
from methods.api import Ranking, Services
from methods.baselines.rq_rag import (
    ANSWER_TOKEN,
    END_TOKEN,
    MOST,
    NOTE,
    PROMPTS,
    QUERY_TOKENS,
    Leaf,
    Node,
    RqRagConfig,
    RqRagIndex,
    Tree,
    queries_of,
)
from methods.flow import each, ordered
from methods.models.causal import CausalConfig, CausalModel, Generation
from methods.registry import Component
from tests.support.errors import raises
from tests.support.server import ChatRequest, OpenAIServer, Written

TREES = ("alder", "birch", "cedar", "elm", "fir", "larch", "oak", "pine")
CORPUS = Corpus.of([Passage(name, name.upper(), f"{name} says something") for name in TREES])
QUERY = Query("q", "Who wrote it?")


class Tokenizer:
    chat_template: str | None = "a template that must go"
    eos_token = "</s>"


class Scripted:
    """Replacement for the local model: generates from a script, and gives each answer a log-probability."""

    device = "cpu"

    def __init__(self, write: Callable[[str], Generation], weigh: Callable[[str], float], room: int = 10**6) -> None:
        self.tokenizer, self.text_encoder, self.room = Tokenizer(), self, room
        self._write, self._weigh = write, weigh
        self.requested: list[tuple[str, bool]] = []
        self.ends: list[str] = []

    def end_at(self, token: str) -> None:
        self.ends.append(token)

    def encode(self, text: str) -> list[int]:
        return [ord(character) for character in text]

    target = encode

    def generate(self, prompts: Sequence[str], sampling: Any = None) -> list[Generation]:
        self.requested += [(prompt, sampling is not None) for prompt in prompts]
        return [self._write(prompt) for prompt in prompts]

    def logprobs(self, items: Sequence[Any], config: Any) -> list[list[float]]:
        texts = ["".join(map(chr, [*prompt, *target])) for prompt, target in items]
        return [[self._weigh(text)] * len(target) for text, (_, target) in zip(texts, items, strict=True)]


class Searching:
    """Index that returns three passages depending on the query's words, and records queries."""

    def __init__(self) -> None:
        self.requested: list[str] = []

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        self.requested += [query.text for query in queries]
        start = [sum(map(ord, query.text)) % len(CORPUS) for query in queries]
        ids = [tuple(CORPUS.ids[(first + n) % len(CORPUS)] for n in range(k)) for first in start]
        return [Ranking(query.id, result, tuple(1 / (1 + n) for n in range(k))) for query, result in zip(queries, ids, strict=True)]


def says(prompt: str) -> Generation:
    token = prompt[prompt.rindex("[") :]
    return Generation(f" {token.strip('[]')[2:6]}{prompt.count(END_TOKEN)}", 10, 2, 0.0)


def tree(write: Callable[[str], Generation] = says, weigh: Any = None, room: int = 10**6, **config: Any) -> Any:
    model = Scripted(write, weigh or (lambda text: -1.0), room)
    index = Searching()
    grown = Tree(RqRagConfig(**config), model, index, CORPUS, 0)  # type: ignore[arg-type]
    return grown, model, index


@pytest.mark.parametrize(("depth", "answers", "searches"), [(0, 1, 0), (1, 4, 3), (2, 13, 12), (3, 40, 39)])
def test_each_node_has_three_search_branches_and_one_answer(depth: int, answers: int, searches: int) -> None:
    grown, model, index = tree(depth=depth)
    ((leaves, usage),) = ordered(grown.grow, [QUERY], 4)
    assert len(leaves) == answers
    assert len(index.requested) == searches
    assert usage.model_calls == answers + searches
    by_depth = Counter(len(leaf.node.queries) for leaf in leaves)
    assert by_depth == {level: 3**level for level in range(depth + 1)}
    drawn = [prompt.endswith(QUERY_TOKENS) for prompt, sampled in model.requested if sampled]
    greedy = [prompt.endswith(ANSWER_TOKEN) for prompt, sampled in model.requested if not sampled]
    assert all(drawn)
    assert len(drawn) == searches
    assert all(greedy)
    assert len(greedy) == answers


def test_path_text_has_the_format_of_training() -> None:
    grown, model, _ = tree(depth=1, system="Be short.")
    ordered(grown.grow, [QUERY], 4)
    beginning = "<|system|>\nBe short.</s>\n<|user|>\nWho wrote it?</s>\n<|assistant|>\n"
    assert model.requested[0] == (f"{beginning}[A_Response]", False)
    last = model.requested[-1][0]
    assert last.startswith(f"{beginning}[S_Disambiguated_Query] Disa0[EOS][R_Evidences]Title: ")
    assert "\nText: " in last
    assert last.endswith("says something\n[/R_Evidences][A_Response]")
    assert model.tokenizer.chat_template is None
    assert model.ends == [END_TOKEN]


def test_unfinished_or_empty_query_is_replaced_by_the_question() -> None:
    def write(prompt: str) -> Generation:
        if prompt.endswith(QUERY_TOKENS[0]):
            return Generation(" and so on and on", 10, 100, 0.0, ended=False)
        return Generation("  ", 10, 1, 0.0) if prompt.endswith(QUERY_TOKENS[1]) else says(prompt)

    grown, _, index = tree(write, depth=1)
    ordered(grown.grow, [QUERY], 4)
    assert index.requested == [QUERY.text, QUERY.text, "Disa0"]


def test_selection_by_confidence_or_by_perplexity_of_the_path() -> None:
    def leaf(searches: int, confidence: float, perplexity: float) -> Leaf:
        return Leaf(Node("", ("q",) * searches), "", confidence, perplexity)

    leaves = [leaf(0, 0.99, 1.0), leaf(1, 0.5, 2.0), leaf(1, 0.9, 4.0), leaf(2, 0.9, 2.0)]
    assert tree(select="confidence")[0].chosen(leaves) is leaves[2], "the first of equals, behind a search"
    assert tree(select="perplexity")[0].chosen(leaves) is leaves[1]
    assert tree(select="confidence", searches=0)[0].chosen(leaves) is leaves[0]
    assert tree(searches=3)[0].chosen(leaves) is leaves[0], "none searched that often: all count"
    assert tree()[0].chosen([]) is None


@pytest.mark.slow
def test_confidence_and_perplexity_equal_a_forward_pass(tiny_rq_rag: str) -> None:
    import torch

    config = RqRagConfig(model=tiny_rq_rag, depth=1, max_new_tokens=8, evidence_words=3, retriever="bm25")
    model = CausalModel(config, "cpu")
    grown = Tree(config, model, Searching(), CORPUS, 0)
    ((leaves, _),) = ordered(grown.grow, [QUERY], 4)
    assert len(leaves) == 4
    for leaf in leaves:
        prompt = leaf.node.text + ANSWER_TOKEN
        raw = model.generate([prompt])[0].text
        before, answer = model.encode(prompt), model.text_encoder.target(raw) if raw else []
        ids = torch.tensor([[*before, *answer]])
        with torch.no_grad():
            logprobs = model.model(ids).logits.log_softmax(-1)[0, :-1].gather(1, ids[0, 1:, None])[:, 0]
        assert leaf.perplexity == pytest.approx(math.exp(-logprobs.mean().item()), rel=1e-4)
        if answer:
            assert leaf.confidence == pytest.approx(logprobs[-len(answer) :].exp().mean().item(), rel=1e-4)


def test_passages_of_the_chosen_path_are_deduplicated_in_retrieval_order() -> None:
    # The likeliest path: the one whose last query is decomposed twice.
    grown, _, _ = tree(weigh=lambda text: -1.0 / (1 + text.count(QUERY_TOKENS[1])), select="perplexity", per_query=3)
    (ranking,) = each(RqRagIndex(grown), "retrieve", [QUERY], 4)
    first, second = (result.ids for result in each(Searching(), "retrieve", [Query("", "Deco0"), Query("", "Deco1")], 3))
    assert ranking.notes[NOTE]["queries"] == ["Deco0", "Deco1"]
    assert ranking.ids == tuple(dict.fromkeys((*first, *second)))[:4]
    assert list(ranking.scores) == sorted(ranking.scores, reverse=True)
    assert ranking.notes[NOTE]["answer"] == "Resp2"


def test_path_beyond_the_context_limit_is_not_expanded() -> None:
    beginning = len(tree()[1].encode(tree()[0]._beginning(QUERY.text)))
    grown, _, index = tree(depth=3, room=beginning + 40)
    ((leaves, _),) = ordered(grown.grow, [QUERY], 4)
    assert [len(leaf.node.queries) for leaf in leaves] == [0], "evidence is longer than 40 characters"
    assert len(index.requested) == 3
    grown, _, _ = tree(room=10)
    (ranking,) = each(RqRagIndex(grown), "retrieve", [QUERY], 5)
    assert ranking.ids == ()
    assert "longer than" in ranking.notes[NOTE]["failed"][0]


def test_trees_grown_in_a_batch_equal_those_grown_one_by_one() -> None:
    queries = [Query(str(n), f"Question {n}?") for n in range(3)]
    together = ordered(tree()[0].grow, queries, 4)
    assert together == [ordered(tree()[0].grow, [query], 4)[0] for query in queries]


def test_model_without_the_control_tokens_is_refused(tiny_llama: str) -> None:
    model = CausalModel(CausalConfig(model=tiny_llama), "cpu")
    with raises("vocabulary-token-missing"):
        Tree(RqRagConfig(), model, Searching(), CORPUS, 0)


@pytest.mark.slow
def test_native_answer_is_that_of_the_chosen_leaf(ground: Any, offline_options: dict[str, dict[str, Any]]) -> None:
    services = Services(device="cpu")
    native = Component.of("rq_rag_native", offline_options["rq_rag_native"]).build(services)
    native.index(ground.corpus)
    query = ground.questions[0].query()
    (prediction,) = ordered(native.answer_one, [query], 1)
    index = Component.of("rq_rag", offline_options["rq_rag"]).build(services).index(ground.corpus)
    (ranking,) = each(index, "retrieve", [query], 100)
    assert prediction.answer == ranking.notes[NOTE]["answer"]
    assert tuple(item.id for item in prediction.evidence) == ranking.ids
    assert prediction.usage == ranking.usage


def prompted(replies: dict[str, str], tmp_path: Path | None = None, **config: Any) -> tuple[Ranking, list[ChatRequest]]:
    """Rank once over CORPUS with BM25; the endpoint replies to each of the three prompts."""
    requests: list[ChatRequest] = []
    kinds = {prompt.load().user.split(".")[0]: kind for kind, prompt in PROMPTS.items()}

    def answer(request: ChatRequest) -> Written:
        requests.append(request)
        return Written(replies[kinds[request.prompt.split(".")[0]]], 20, 4)

    with OpenAIServer("m", answer, any_model=True).running() as url:
        llm = {"model": "m", "base_url": url, "key_variable": None, "attempts": 1}
        services = Services(device="cpu", cache=tmp_path / "replies.sqlite" if tmp_path else None)
        component = Component.of("rq_rag_prompted", {"llm": llm, "retriever": "bm25", **config})
        (ranking,) = each(component.build(services).index(CORPUS), "retrieve", [QUERY], 5)
        if tmp_path:
            assert each(component.build(services).index(CORPUS), "retrieve", [QUERY], 5) == [ranking]
    return ranking, requests


def test_rankings_of_all_rewritings_are_fused_by_reciprocal_rank(tmp_path: Path) -> None:
    replies = {"rewrite": "alder", "decompose": "1. birch\n2. alder", "disambiguate": "- cedar"}
    ranking, requests = prompted(replies, tmp_path, per_query=1)
    assert ranking.notes[NOTE] == {"queries": ["alder", "birch", "cedar"]}
    # Each wording finds its own passage first: equal sums, so the corpus decides.
    assert ranking.ids == ("alder", "birch", "cedar")
    assert ranking.scores == pytest.approx([1 / 61] * 3)
    assert len(requests) == 3, "the second time from the cache"
    assert (ranking.usage.model_calls, ranking.usage.prompt_tokens, ranking.usage.completion_tokens) == (3, 60, 12)


def test_reply_without_a_query_is_replaced_by_the_question() -> None:
    ranking, _ = prompted({"rewrite": "...", "decompose": "", "disambiguate": "b"})
    assert ranking.notes[NOTE]["queries"] == [QUERY.text, "b"]
    assert "empty" in ranking.notes[NOTE]["failed"][0]


def test_rewritings_that_differ_only_in_punctuation_are_searched_once() -> None:
    ranking, _ = prompted({"rewrite": "who wrote it", "decompose": QUERY.text, "disambiguate": "Who wrote it!"})
    assert ranking.notes[NOTE]["queries"] == ["who wrote it"]


def test_queries_are_parsed_without_bullets_quotes_and_prose() -> None:
    assert queries_of('1. Who is A?\n\n- "Where is B?"\n* C\n---\n' + "long " * 100) == ["Who is A?", "Where is B?", "C"]
    assert len(queries_of("\n".join(f"query {n}" for n in range(20)))) == MOST
    assert queries_of("…\n") == []


@pytest.mark.parametrize(
    "reply",
    [
        *(
            '["Who?", "When?"]',
            '```json\n["Who?", "When?"]\n```',
            '{"queries": ["Who?", "When?"]}',
            '[{"query": "Who?"}, {"query": "When?"}]',
        ),
        *(
            "['Who?', 'When?']",
            "Here are the queries:\n1. Who?\n2. When?",
            "### Queries\n- Who?\n- When?",
            "**Query 1:** Who?\n**Query 2:** When?",
        ),
        *(
            "Q1: Who?\nQ2: When?",
            "Sub-question 1: Who?\nSub-question 2: When?",
            "Step 1: Who?\nStep 2: When?",
            "a) Who?\nb) When?",
            "① Who?\n② When?",
        ),
        *(
            "1. **Who?**\n2. “When?”\n\nThese queries help.",
            "Sure! Here are two:\n\nWho?\nWhen?",
            "<query>Who?</query>\n<query>When?</query>",
        ),
        "Rewritten question: Who?\nWhen?\n\nExplanation: I split it.",
    ],
)
def test_queries_are_read_without_what_models_add(reply: str) -> None:
    assert queries_of(reply) == ["Who?", "When?"]


@pytest.mark.parametrize("reply", ["None", "N/A", "I'm sorry, but I can't help.", "The question is already clear.", "[]", "{}"])
def test_reply_without_a_query_has_none(reply: str) -> None:
    assert queries_of(reply) == []


@pytest.mark.parametrize(
    "query", ["Note on the works of Ann", "2024 mayors", "C. S. Lewis books", "who wrote [1984]?", "Step brothers cast"]
)
def test_query_is_not_taken_for_a_remark(query: str) -> None:
    assert queries_of(query) == [query]


def test_every_prompt_contains_the_question_once() -> None:
    for prompt in PROMPTS.values():
        assert prompt.load().pair(question="What is $5?")[1].count("What is $5?") == 1
