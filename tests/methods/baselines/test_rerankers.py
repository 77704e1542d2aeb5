"""Rerankers without a language model, and the contract of every reranker: any input gives a permutation."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query, Question, passage_id
from benchmarks.text import has_answer
from methods.api import Ranking, Services
from methods.pipeline import assemble
from methods.registry import METHODS, Component
from methods.retrieval.ranking import reordered

SIZES = (0, 1, 2, 19, 20, 21, 25, 50)
QUERY = Query("q", "where was the old painter born ?")
ODD = ["", " ", "¿", "the the the", "stone " * 200, "\u202eold", "painter\x00born", "ΩΩ", "[1] > [2]", "old old painter"]


def corpus_of(texts: list[str]) -> Corpus:
    """Return passages that differ by their documents, so that equal texts can occur twice."""
    return Corpus.of(Passage(passage_id("", text, str(n)), "", text, (), str(n)) for n, text in enumerate(texts))


def as_given(corpus: Corpus) -> Ranking:
    return Ranking(QUERY.id, tuple(corpus.ids), tuple(float(-rank) for rank in range(len(corpus))))


@pytest.fixture(scope="module")
def options(tiny_models: ModuleType, tiny_encoder: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Return the options of each reranker here; a reranker without an entry runs with its defaults."""
    import torch
    from transformers import BertForSequenceClassification

    torch.manual_seed(0)
    model = BertForSequenceClassification(tiny_models.config("Bert", 200, num_labels=1))
    folder = tiny_models.save(tmp_path_factory.mktemp("cross_encoder"), "bert", tiny_models.scaled(model, 8.0))
    return {
        "cross_encoder": {"model": str(folder)},
        "bi_encoder": {"model": tiny_encoder},
        "late_interaction": {"model": str(tiny_models.colbert(tmp_path_factory.mktemp("late_interaction")))},
        "bm25_reranker": {},
        "bm25_reranker, candidates": {"statistics": "candidates"},
    }


RERANKERS = ("cross_encoder", "bi_encoder", "late_interaction", "bm25_reranker", "bm25_reranker, candidates")


def built(name: str, options: dict[str, dict[str, Any]], **more: Any) -> Any:
    return Component.of(name.partition(",")[0], {**options[name], **more}).build(Services(device="cpu"))


@pytest.mark.parametrize("name", RERANKERS)
def test_output_is_a_permutation_of_the_input(name: str, options: dict[str, dict[str, Any]]) -> None:
    reranker = built(name, options)
    rng = random.Random(0)
    words = ["old", "stone", "bridge", "painter", "lived", "born", "river", "moss"]
    for size in SIZES:
        texts = [" ".join(rng.choices(words, k=rng.randint(1, 12))) for _ in range(size)]
        for text in (texts, (ODD * 5)[:size], ["old painter"] * size):
            corpus = corpus_of(text)
            first_ranking = as_given(corpus)
            result = reranker.rerank([QUERY], [first_ranking], corpus)[0]
            assert sorted(result.ids) == sorted(first_ranking.ids)
            assert len(result.scores) == size
            assert list(result.scores) == sorted(result.scores, reverse=True)


@pytest.mark.parametrize("name", RERANKERS)
def test_candidates_with_equal_text_keep_their_order(name: str, options: dict[str, dict[str, Any]]) -> None:
    corpus = corpus_of(["old painter"] * 9)
    listed = tuple(corpus.ids)
    for ids in (listed, listed[::-1]):
        first_ranking = Ranking("q", ids, tuple(range(9, 0, -1)))
        assert built(name, options).rerank([QUERY], [first_ranking], corpus)[0].ids == ids


@pytest.mark.parametrize("name", RERANKERS)
def test_scores_do_not_depend_on_order_or_other_candidates(name: str, options: dict[str, dict[str, Any]]) -> None:
    """Statistics over the candidates depend on the set of candidates, but not on their order or on other queries."""
    reranker = built(name, options)
    rng = random.Random(1)
    corpus = corpus_of([" ".join(rng.choices(["old", "stone", "bridge", "painter", "born", "river"], k=7)) for _ in range(25)])
    queries = [QUERY, Query("r", "stone bridge"), Query("s", "")]
    rankings = [Ranking(query.id, corpus.ids[n:], (0.0,) * (25 - n)) for n, query in enumerate(queries)]
    together = reranker.rerank(queries, rankings, corpus)
    alone = [reranker.rerank([q], [r], corpus)[0] for q, r in zip(queries, rankings, strict=True)]
    assert [ranking.ids for ranking in together] == [ranking.ids for ranking in alone]
    for ours, own in zip(together, alone, strict=True):
        assert ours.scores == pytest.approx(own.scores, rel=1e-5, abs=1e-5)
    shuffled = list(corpus.ids)
    rng.shuffle(shuffled)
    again = reranker.rerank([QUERY], [Ranking("q", tuple(shuffled), (0.0,) * 25)], corpus)[0]
    assert dict(zip(again.ids, again.scores, strict=True)) == pytest.approx(
        dict(zip(together[0].ids, together[0].scores, strict=True)), abs=1e-5
    )


@pytest.mark.parametrize("name", RERANKERS)
def test_order_below_the_depth_is_kept(name: str, options: dict[str, dict[str, Any]]) -> None:
    corpus = corpus_of(["river", "moss", "old painter", "the painter born old", "stone", "old painter born where"])
    first_ranking = as_given(corpus)
    result = built(name, options, depth=4).rerank([QUERY], [first_ranking], corpus)[0]
    assert set(result.ids[:4]) == set(first_ranking.ids[:4])
    assert result.ids[4:] == first_ranking.ids[4:]
    assert list(result.scores) == sorted(result.scores, reverse=True)


def test_every_offline_reranker_is_covered_by_these_tests() -> None:
    """Add a new reranker to the list above, or exclude it and name the tests that cover it."""
    elsewhere = {"sark"}
    registered = {entry.id for entry in METHODS if entry.kind == "reranker"}
    assert registered - elsewhere >= {name.partition(",")[0] for name in RERANKERS}


@given(st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0]), max_size=12), st.integers(0, 5))
def test_scored_candidates_are_sorted_stably_before_unscored_ones(scores: list[float], rest: int) -> None:
    ids = tuple(f"p{number}" for number in range(len(scores) + rest))
    result = reordered(QUERY, Ranking("other", ids, (0.0,) * len(ids)), np.array(scores))
    expected = sorted(range(len(scores)), key=lambda position: (-scores[position], position))
    assert result.query_id == "q"
    assert result.ids == (*(ids[position] for position in expected), *ids[len(scores) :])
    assert list(result.scores) == sorted(result.scores, reverse=True)
    assert len(set(result.scores[len(scores) :])) == rest


PLAIN = {"stemmer": None, "stopwords": None, "k1": 1.2, "b": 0.6}


def bm25(texts: list[str], query: str, **config: Any) -> list[float]:
    corpus = corpus_of(texts)
    reranker = Component.of("bm25_reranker", {**PLAIN, **config}).build(Services())
    return [float(score) for score in reranker.scores(Query("q", query), corpus.ids, corpus)]


def by_hand(texts: list[str], query: str, k1: float = 1.2, b: float = 0.6) -> list[float]:
    """Compute Lucene's formula word by word."""
    documents = [text.split() for text in texts]
    mean = sum(map(len, documents)) / len(documents)
    scores = []
    for words in documents:
        total = 0.0
        for term in query.split():
            holders = sum(term in other for other in documents)
            rarity = math.log(1 + (len(documents) - holders + 0.5) / (holders + 0.5))
            count = words.count(term)
            total += rarity * count / (count + k1 * (1 - b + b * len(words) / mean)) if count else 0.0
        scores.append(total)
    return scores


def test_bm25_equals_the_formula_on_three_documents() -> None:
    texts = ["stone bridge stone", "old bridge over the river", "moss"]
    for query in ("stone", "bridge river", "stone bridge bridge", "old moss river"):
        assert bm25(texts, query) == pytest.approx(by_hand(texts, query), rel=1e-5)
        assert bm25(texts, query, statistics="candidates") == pytest.approx(by_hand(texts, query), rel=1e-5)


def test_bm25_prefers_repeated_and_rare_words_and_scores_zero_without_a_match() -> None:
    once, twice, none = bm25(["stone bridge river moss", "stone stone river moss", "old bridge river moss"], "stone")
    assert twice > once > none == 0
    rare, common = bm25(["stone moss", "bridge moss", "bridge river", "bridge old"], "stone bridge")[:2]
    assert rare > common > 0
    assert bm25(["", "stone", ""], "stone")[::2] == [0, 0]
    assert bm25(["", ""], "stone") == [0, 0]


def test_bm25_statistics_come_from_the_configured_corpus() -> None:
    """`stone` is rare in the corpus and common among the candidates, `bridge` the other way round."""
    texts = ["stone old", "bridge old", "stone old", *["bridge moss"] * 9]
    corpus = corpus_of(texts)
    first_ranking = Ranking("q", corpus.ids[:3], (0.0,) * 3)
    first = {}
    for statistics in ("corpus", "candidates", None):
        reranker = Component.of("bm25_reranker", {**PLAIN, "statistics": statistics}).build(Services())
        for candidates in (None, corpus.ids[:3]):
            query = Query("q", "stone bridge", candidates=candidates)
            result = reranker.rerank([query], [first_ranking], corpus)[0]
            first[statistics, candidates is None] = corpus.get(result.ids[:1])[0].text
    by_corpus = {key for key, text in first.items() if text == "stone old"}
    assert by_corpus == {("corpus", True), ("corpus", False), (None, True)}
    assert {first[key] for key in first.keys() - by_corpus} == {"bridge old"}


def test_bm25_reranker_scores_like_the_retriever_and_shares_its_index(ground: Any, tmp_path: Path) -> None:
    services = Services(artifacts=tmp_path)
    query = ground.questions[0].query()
    retrieved = assemble(Component.of("bm25"), services, reader=Component.of("retrieval_only"), k=5)
    retrieved.index(ground.corpus)
    expected = next(iter(retrieved.answer([query]))).evidence
    before = sorted(tmp_path.rglob("complete.json"))
    reranker = Component.of("bm25_reranker").build(services)
    ids = ground.corpus.ids
    result = reranker.rerank([query], [Ranking(query.id, ids, (0.0,) * len(ids))], ground.corpus)[0]
    assert [(item.id, item.score) for item in expected] == [pair for pair in zip(result.ids, result.scores, strict=True) if pair[1] > 0][
        : len(expected)
    ]
    assert sorted(tmp_path.rglob("complete.json")) == before != []


@pytest.mark.slow
def test_bi_encoder_ranks_like_dense_retrieval(ground: Any) -> None:
    query = ground.questions[0].query()
    dense = Component.of("dense").build(Services(device="cpu")).index(ground.corpus)
    expected = dense.retrieve([query], len(ground.corpus))[0]
    reranker = Component.of("bi_encoder").build(Services(device="cpu"))
    ids = ground.corpus.ids
    result = reranker.rerank([query], [Ranking(query.id, ids, (0.0,) * len(ids))], ground.corpus)[0]
    assert result.scores == pytest.approx(expected.scores, abs=1e-5)
    assert result.ids[:5] == expected.ids[:5]
    assert max(result.scores) <= 1 + 1e-6


def test_mgte_has_presets_as_reranker_and_as_embedding_model() -> None:
    reranker, embedding = (
        Component.of(*item).config for item in (("cross_encoder", {"preset": "mgte"}), ("bi_encoder", {"preset": "gte-multilingual-base"}))
    )
    assert reranker.model == "Alibaba-NLP/gte-multilingual-reranker-base"  # type: ignore[attr-defined]
    assert (embedding.model, embedding.pooling, embedding.normalize) == (  # type: ignore[attr-defined]
        "Alibaba-NLP/gte-multilingual-base",
        "cls",
        True,
    )


@pytest.mark.slow
def test_late_interaction_scores_every_candidate_by_its_tokens(options: dict[str, dict[str, Any]]) -> None:
    from methods.models.late_interaction import LateInteraction, LateInteractionConfig

    texts = ["old painter", "the stone bridge", "who was born where", "old painter", "moss"]
    corpus = corpus_of(texts)
    result = built("late_interaction", options).scores(QUERY, corpus.ids, corpus)
    model = LateInteraction(LateInteractionConfig(**options["late_interaction"]), "cpu")
    queries = model.queries([QUERY.text])[0]
    by_loop = [sum(max(float(q @ p) for p in model.passages([text])[0]) for q in queries) for text in texts]
    assert result.tolist() == pytest.approx(by_loop, abs=1e-3)
    assert result[0] == result[3]


def asked(candidates: list[Passage]) -> tuple[Question, Corpus]:
    corpus = Corpus.of(candidates)
    ids = tuple(passage.id for passage in candidates)
    return Question("n1", "who built the bridge ?", ("Ada Lorn",), candidates=ids), corpus


def passages_of(*texts: str) -> list[Passage]:
    return [Passage(passage_id("", text), "", text) for text in texts]


def test_candidate_order_equals_full_context_truncated_at_k() -> None:
    question, corpus = asked(passages_of("moss", "Ada Lorn built it", "a river", "the bridge"))
    method = assemble(Component.of("full_context"), Services(), reader=Component.of("retrieval_only"), k=2)
    method.index(corpus)
    evidence = next(iter(method.answer([question.query()]))).evidence
    assert tuple(item.id for item in evidence) == question.candidates


def test_has_answer_order_puts_passages_with_an_answer_first_in_stable_order() -> None:
    texts = ["moss", "ada LORN built it", "a river", "the bridge", "by Ada Lorn , 1850", "Ada of Lorn"]
    question, corpus = asked(passages_of(*texts))
    control: Any = assemble(Component.of("has_answer_order", {"retriever": "full_context"}), Services())
    control.prepare([question])
    control.index(corpus)
    evidence = next(iter(control.answer([question.gold_query()]))).evidence
    results = [corpus.get([item.id])[0].text for item in evidence]
    assert results == [texts[1], texts[4], texts[0], texts[2], texts[3], texts[5]]


def test_has_answer_order_has_the_earliest_answers_of_all_rankings(ground: Any) -> None:
    def first_answers(component: Component) -> list[float]:
        method: Any = assemble(component, Services(device="cpu"))
        if component.entry.kind == "control":
            method.prepare(ground.questions)
        method.index(ground.corpus)
        control = component.entry.kind == "control"
        ranks = []
        for question in ground.questions:
            query = question.gold_query() if control else question.query()
            passages = ground.corpus.get([item.id for item in next(iter(method.answer([query]))).evidence])
            holding = [has_answer(passage.text, question.golds) for passage in passages]
            ranks.append(holding.index(True) if any(holding) else math.inf)
        return ranks

    plain = first_answers(Component.of("random"))
    control = first_answers(Component.of("has_answer_order", {"retriever": "random"}))
    assert all(rank == 0 or (rank == other == math.inf) for rank, other in zip(control, plain, strict=True))
    assert plain != control


def test_retriever_behind_the_has_answer_control_receives_no_gold(monkeypatch: pytest.MonkeyPatch, ground: Any) -> None:
    from methods.baselines import bm25 as module

    seen: list[Query] = []
    retrieve = module.BM25Index.retrieve

    def watched(index: Any, queries: Sequence[Query], k: int) -> list[Ranking]:
        seen.extend(queries)
        return retrieve(index, queries, k)

    monkeypatch.setattr(module.BM25Index, "retrieve", watched)
    control: Any = assemble(Component.of("has_answer_order"), Services())
    control.prepare(ground.questions)
    control.index(ground.corpus)
    list(control.answer([question.gold_query() for question in ground.questions]))
    assert len(seen) == len(ground.questions)
    assert {type(query) for query in seen} == {Query}
