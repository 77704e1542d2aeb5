"""BM25 over triples against Lucene's formula as a loop, and against bm25s; triples in natural words."""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.corpus import Corpus
from benchmarks.graphs import TripleCorpus
from benchmarks.registry import load
from benchmarks.schema import Passage, Query, Triple, passage_id, triple_id
from methods.api import Services
from methods.baselines.bm25 import lucene_scores
from methods.baselines.graph.bm25 import NameWords, relation_words, verbalized
from methods.registry import Component
from tests.support.errors import raises

NAMES = st.sampled_from(["Moss River", "tin_lamp", "m.0abc", "crow crow", "", "Salt", "river 9"])
RELATIONS = st.sampled_from(["place.river.mouth_of", "salt", "crow.tin", "a..b__c", "lamp_lamp"])
TRIPLES = st.lists(st.tuples(NAMES, RELATIONS, NAMES), min_size=1, max_size=12, unique=True)
QUESTIONS = st.lists(st.sampled_from(["moss", "River", "tin", "crow?", "lamp,", "9", "unknown", "of", "salt_mouth"]), max_size=6).map(
    " ".join
)


def words(text: str) -> list[str]:
    return [word for word in re.split(r"[\W_]+", text.lower()) if word]


def lucene(query: str, texts: list[str], k1: float = 1.5, b: float = 0.75) -> list[float]:
    documents = [words(text) for text in texts]
    mean = sum(map(len, documents)) / len(documents)
    scores = []
    for document in documents:
        counts, score = Counter(document), 0.0
        for term in words(query):
            if counts[term]:
                holders = sum(term in other for other in documents)
                idf = math.log(1 + (len(documents) - holders + 0.5) / (holders + 0.5))
                score += idf * counts[term] / (counts[term] + k1 * (1 - b + b * len(document) / mean))
        scores.append(score)
    return scores


def index_of(triples: list[Triple], folder: Path | None = None, **config: Any) -> Any:
    return Component.of("bm25_triples", config).build(Services()).index(TripleCorpus.of_triples(triples), folder)


def ids(triples: list[Triple]) -> tuple[str, ...]:
    return tuple(triple_id(triple) for triple in triples)


def verbalize(triple: Triple) -> str:
    """A triple as text, converted alone."""
    return f"{triple[0]} {relation_words(triple[1])} {triple[2]}"


def test_relation_names_are_split_into_words() -> None:
    assert relation_words("people.person.place_of_birth") == "people person place of birth"
    assert relation_words("born_in") == "born in"
    assert relation_words("..a__b. c") == "a b c"


@pytest.mark.slow
@given(TRIPLES, st.randoms())
def test_triples_verbalized_in_a_batch_equal_those_verbalized_one_by_one(triples: list[Triple], rng: Any) -> None:
    corpus = TripleCorpus.of_triples(triples)
    assert verbalized(corpus.triples) == [verbalize(triple) for triple in triples]
    rows = rng.sample(range(len(triples)), rng.randint(0, len(triples)))
    assert verbalized(corpus.triples, np.array(rows, int)) == [verbalize(triples[row]) for row in rows]


@pytest.mark.slow
@given(TRIPLES, TRIPLES, QUESTIONS, st.sampled_from([(1.5, 0.75), (0.9, 0.4), (0.0, 1.0)]))
def test_scores_equal_lucenes_formula_over_the_graph_of_the_query(
    graph: list[Triple], others: list[Triple], question: str, parameters: tuple[float, float]
) -> None:
    k1, b = parameters
    index = index_of([*others, *graph], k1=k1, b=b)
    (ranking,) = index.retrieve([Query("q", question, candidates=ids(graph))], len(graph))
    expected = lucene(question, [verbalize(triple) for triple in graph], k1, b)
    of = dict(zip(ids(graph), expected, strict=True))
    position = {identifier: number for number, identifier in enumerate(of)}
    ranked = [(-score, position[identifier]) for identifier, score in zip(ranking.ids, ranking.scores, strict=True)]
    assert ranked == sorted(ranked)
    assert set(ranking.ids) == set(of)
    assert ranking.scores == pytest.approx([of[identifier] for identifier in ranking.ids], abs=1e-9)
    assert sorted(ranking.scores, reverse=True) == list(ranking.scores)
    assert ranking.scores == pytest.approx(sorted(expected, reverse=True), abs=1e-9)


@pytest.mark.slow
@given(TRIPLES, TRIPLES, QUESTIONS)
def test_corpus_statistics_cover_all_triples(graph: list[Triple], others: list[Triple], question: str) -> None:
    everything = list(dict.fromkeys([*others, *graph]))
    scores = lucene(question, [verbalize(triple) for triple in everything])
    of = dict(zip(ids(everything), scores, strict=True))
    index = index_of(everything, statistics="corpus")
    (ranking,) = index.retrieve([Query("q", question, candidates=ids(graph))], len(graph))
    assert set(ranking.ids) == set(ids(graph))
    assert ranking.scores == pytest.approx([of[identifier] for identifier in ranking.ids], abs=1e-5)


@pytest.mark.slow
@given(TRIPLES, QUESTIONS)
def test_graph_and_corpus_statistics_and_bm25s_agree_over_the_whole_corpus(triples: list[Triple], question: str) -> None:
    named, unnamed = Query("q", question, candidates=ids(triples)), Query("q", question)
    by_graph = dict(zip(*_parts(index_of(triples), named), strict=True))
    by_bm25s = dict(zip(*_parts(index_of(triples), unnamed), strict=True))
    assert by_bm25s == pytest.approx(by_graph, abs=1e-5)


def _parts(index: Any, query: Query) -> tuple[tuple[str, ...], tuple[float, ...]]:
    (ranking,) = index.retrieve([query], 100)
    return ranking.ids, ranking.scores


def test_scores_equal_a_hand_computation() -> None:
    # Three triples of 3, 3 and 6 words, mean 4; "river" is in two of them, once and twice; "moss" in one.
    triples = [("moss", "near", "river"), ("tin", "near", "lamp"), ("river", "near.by", "salt river bank")]
    (ranking,) = index_of(triples).retrieve([Query("q", "moss river", candidates=ids(triples))], 3)
    common, rare = math.log(1 + 1.5 / 2.5), math.log(1 + 2.5 / 1.5)
    first = (common + rare) / (1 + 1.5 * (0.25 + 0.75 * 3 / 4))
    third = common * 2 / (2 + 1.5 * (0.25 + 0.75 * 6 / 4))
    assert ranking.ids == ids([triples[0], triples[2], triples[1]])
    assert ranking.scores == pytest.approx([first, third, 0])


def test_score_grows_with_term_frequency_rarity_and_query_repetition() -> None:
    frequencies, lengths = np.array([[1, 2, 3, 0], [0, 0, 0, 1]]), np.array([4, 4, 4, 4])
    scores = lucene_scores(frequencies, lengths, np.array([1, 1]), 1.5, 0.75)
    assert scores[0] < scores[1] < scores[2]
    assert scores[3] > scores[0]
    assert lucene_scores(frequencies, lengths, np.array([2, 1]), 1.5, 0.75)[:3] == pytest.approx(2 * scores[:3])
    assert lucene_scores(np.zeros((1, 2), int), np.zeros(2, int), np.array([1]), 1.5, 0.75).tolist() == [0, 0]
    # 12 / 13.2 = 1 / 2.2 + 1 / 2.2, which floats miss by the last digit.
    one, two = lucene_scores(np.array([[12, 0], [0, 1], [0, 1]]), np.array([12, 2]), np.array([1, 1, 1]), 1.2, 0)
    assert one == two


def test_triples_without_a_query_word_keep_the_graph_order() -> None:
    triples = [("moss", "near", "river"), ("tin", "near", "lamp"), ("crow", "near", "salt")]
    for order in (triples, triples[::-1]):
        for question in ("", "unknown", "?"):
            query = Query("q", question, candidates=ids(order))
            for statistics in ("candidates", "corpus"):
                (ranking,) = index_of(triples, statistics=statistics).retrieve([query], 2)
                assert ranking.ids == ids(order[:2])
                assert ranking.scores == (0, 0)


def test_stemming_and_stopwords_are_off_by_default() -> None:
    triples = [("the moss", "near", "tin"), ("rivers", "near", "tin")]
    query = Query("q", "the river", candidates=ids(triples))
    (plain,), (english,) = (index_of(triples, **config).retrieve([query], 2) for config in ({}, {"preset": "lucene_english"}))
    assert (plain.ids, plain.scores[1]) == (ids(triples), 0)
    assert (english.ids, english.scores[1]) == (ids(triples[::-1]), 0)


def test_names_are_tokenized_once_and_a_reopened_index_ranks_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    triples = [("moss", "near.by", "river"), ("tin", "near", "moss moss"), ("crow", "near", "salt")]
    queries = [Query("q", "near moss", candidates=ids(triples[1:])), Query("r", "salt by the river")]
    in_memory = index_of(triples).retrieve(queries, 3)
    assert index_of(triples, tmp_path / "index").retrieve(queries, 3) == in_memory
    monkeypatch.setattr(NameWords, "of", lambda *_: pytest.fail("split a second time"))
    assert index_of(triples, tmp_path / "index").retrieve(queries, 3) == in_memory


def test_empty_graphs_names_without_words_and_an_empty_corpus_give_empty_rankings() -> None:
    triples = [("", "?", "!"), ("moss", "near", "")]
    index = index_of(triples)
    assert index.retrieve([Query("q", "moss", candidates=())], 5)[0].ids == ()
    assert index.retrieve([Query("q", "moss", candidates=ids(triples))], 5)[0].ids == ids(triples[::-1])
    assert index.retrieve([Query("q", "moss")], 5)[0].ids == ids(triples[::-1])
    assert index_of([]).retrieve([Query("q", "moss")], 5)[0].ids == ()
    assert index.retrieve([], 5) == []


def test_corpus_of_passages_is_refused() -> None:
    with raises("triples-over-passages"):
        Component.of("bm25_triples").build(Services()).index(Corpus.of([Passage(passage_id("", "x"), "", "x")]))


@pytest.mark.parametrize(
    ("dataset", "path"), [("webqsp:test", "webqsp/rog_style_webqsp.jsonl"), ("cwq:test", "cwq/rog_style_cwq_full_subgraph_4.jsonl")]
)
@pytest.mark.slow
def test_real_graphs_are_ranked_as_by_the_formula(dataset: str, path: str, data_folder: Path, tmp_path: Path) -> None:
    benchmark = load(dataset, {"path": str(data_folder / path)})
    index = Component.of("bm25_triples").build(Services()).index(benchmark.corpus, tmp_path / "index")
    for question in benchmark.questions[:2]:
        graph = benchmark.extra["graphs"][question.id]
        (ranking,) = index.retrieve([Query(question.query_id, question.text, candidates=graph.ids)], len(graph))
        expected = lucene(question.text, [verbalize(triple) for triple in graph])
        assert ranking.scores == pytest.approx(sorted(expected, reverse=True), abs=1e-9)
        # Neither the order in which scores are summed nor rounding decides a place: the graph's order does.
        position = {identifier: number for number, identifier in enumerate(graph.ids)}
        rounded = dict(zip(graph.ids, np.round(expected, 9), strict=True))
        assert list(ranking.ids) == sorted(graph.ids, key=lambda identifier: (-rounded[identifier], position[identifier]))
        reversed_words = Query("r", " ".join(words(question.text)[::-1]), candidates=graph.ids)
        assert index.retrieve([reversed_words], len(graph))[0].scores == ranking.scores
