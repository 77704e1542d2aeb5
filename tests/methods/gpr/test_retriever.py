"""Triples ranked by two towers: against plain sorting, in any order of questions, each triple encoded once."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.core.fingerprint import CHECKPOINT_CARD
from benchmarks.graphs import TripleCorpus
from benchmarks.schema import Query, Triple, triple_id
from methods.api import Ranking, Services
from methods.graphs.triples import LinearizeConfig, linearize
from methods.models.encoder import Encoder
from methods.models.encoder_config import EncoderConfig
from methods.registry import Component
from methods.retrieval import triples as vectors_module
from methods.retrieval.triples import TripleRetriever, nearest
from tests.support.errors import raises

torch = pytest.importorskip("torch")

PLACES = ["old town", "the river", "stone bridge", "cold cabin", "north side", "a painter"]
RELATIONS = ["place.town.built_by", "people.person.lived_on", "people.person.born"]
TRIPLES: list[Triple] = [(head, relation, tail) for head in PLACES for relation in RELATIONS for tail in PLACES if head < tail]
IDS = [triple_id(triple) for triple in TRIPLES]
QUESTIONS = ["who built the stone bridge ?", "where is the town ?", "who lived on the north side ?", "old moss"]


@pytest.fixture(scope="module")
def checkpoint(tiny_models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save two towers with random weights, like a training does."""
    import transformers

    folder = tmp_path_factory.mktemp("gpr")
    for seed, name in enumerate(("question", "triple")):
        torch.manual_seed(seed)
        size = len(tiny_models.tokenizer("bert"))
        tower = folder / name
        tiny_models.save(tower, "bert", tiny_models.scaled(transformers.BertModel(tiny_models.config("Bert", size))))
        tiny_models.layout(tower, 64, [tiny_models.pooling("cls")], {})
    card = {"method": "gpr", "config": {"linearize": {"rel": "last", "underscores": "space"}}}
    (folder / CHECKPOINT_CARD).write_text(json.dumps(card))
    return folder


@pytest.fixture
def encoder(checkpoint: Path, tmp_path: Path) -> Encoder:
    config = EncoderConfig(model=str(checkpoint / "triple"), query_model=str(checkpoint / "question"))
    return Encoder(config, "cpu", tmp_path / "embeddings")


@pytest.fixture(scope="module")
def corpus() -> TripleCorpus:
    return TripleCorpus.of_triples(TRIPLES)


def query(number: int, candidates: Sequence[str] | None) -> Query:
    return Query(f"q{number}", QUESTIONS[number], candidates=None if candidates is None else tuple(candidates))


def ask(encoder: Encoder, corpus: TripleCorpus, candidates: Sequence[str] | None, k: int = 5, number: int = 0, **more: Any) -> Ranking:
    (ranking,) = TripleRetriever(encoder, **more).index(corpus).retrieve([query(number, candidates)], k)
    return ranking


def plain(checkpoint: Path, text: str, triples: Sequence[Triple], underscores: Any = "keep") -> Any:
    """Compute cosine similarities with plain sentence-transformers."""
    from sentence_transformers import SentenceTransformer

    question = SentenceTransformer(str(checkpoint / "question"), device="cpu")
    triple = SentenceTransformer(str(checkpoint / "triple"), device="cpu")
    encoded = triple.encode([linearize(triple, underscores=underscores) for triple in triples])
    return question.similarity(question.encode([text]), encoded)[0].numpy()


@pytest.mark.slow
def test_ranking_equals_two_sentence_transformers_and_a_sort(checkpoint: Path, corpus: TripleCorpus) -> None:
    retriever = Component.of("gpr", {"model": str(checkpoint)}).build(Services(device="cpu"))
    index = retriever.index(corpus)
    for number, text in enumerate(QUESTIONS):
        expected = plain(checkpoint, text, TRIPLES, "space")
        (ranking,) = index.retrieve([query(number, IDS)], 10)
        assert ranking.scores == pytest.approx(np.sort(expected)[::-1][:10].tolist(), abs=1e-5)
        for identifier, score in zip(ranking.ids, ranking.scores, strict=True):
            assert score == pytest.approx(expected[IDS.index(identifier)], abs=1e-5)


def test_question_and_triple_towers_are_separate(checkpoint: Path, corpus: TripleCorpus, tmp_path: Path) -> None:
    """A triple has a bit-identical vector with any question encoder; only scores change."""
    folder = str(checkpoint / "triple")
    item = Encoder(EncoderConfig(model=folder, query_model=str(checkpoint / "question")), "cpu")
    other = Encoder(EncoderConfig(model=folder), "cpu")
    texts = [linearize(triple) for triple in TRIPLES]
    assert np.array_equal(item.passages(texts), other.passages(texts))
    assert ask(item, corpus, IDS).scores != ask(other, corpus, IDS).scores


def test_smaller_k_gives_a_prefix_of_the_ranking(encoder: Encoder, corpus: TripleCorpus) -> None:
    everything = ask(encoder, corpus, IDS, len(IDS))
    for k in (0, 1, 5, 17):
        assert ask(encoder, corpus, IDS, k) == everything.top(k)


def test_k_of_the_graphs_size_returns_all_triples(encoder: Encoder, corpus: TripleCorpus) -> None:
    assert sorted(ask(encoder, corpus, IDS[3:9], 100).ids) == sorted(IDS[3:9])


def test_scope_limits_ranking_to_the_questions_graph_or_the_corpus(encoder: Encoder, corpus: TripleCorpus) -> None:
    own = ask(encoder, corpus, IDS[::3], 4)
    everywhere = ask(encoder, corpus, IDS[::3], 4, scope="global")
    assert set(own.ids) <= set(IDS[::3])
    assert everywhere == ask(encoder, corpus, None, 4)
    within = [identifier for identifier in ask(encoder, corpus, None, len(IDS)).ids if identifier in IDS[::3]]
    assert list(own.ids) == within[:4]


def test_empty_graph_gives_an_empty_ranking(encoder: Encoder, corpus: TripleCorpus) -> None:
    assert ask(encoder, corpus, ()).ids == ()


def test_duplicate_candidate_is_ranked_once(encoder: Encoder, corpus: TripleCorpus) -> None:
    assert ask(encoder, corpus, IDS[:6] + IDS[2:6], 20) == ask(encoder, corpus, IDS[:6], 20)


def test_graph_order_only_breaks_ties(encoder: Encoder) -> None:
    """Two triples with equal text have equal scores, so graph order decides."""
    triples = [*TRIPLES[:5], ("moss", "a.b.born", "old"), ("moss", "c.d.born", "old")]
    corpus, ids = TripleCorpus.of_triples(triples), [triple_id(triple) for triple in triples]
    twins = ids[-2:]
    for seed in range(6):
        shuffled = random.Random(seed).sample(ids, len(ids))
        ranking = ask(encoder, corpus, shuffled, len(ids))
        assert [identifier for identifier in ranking.ids if identifier in twins] == [item for item in shuffled if item in twins]
        assert ranking.scores[ranking.ids.index(twins[0])] == ranking.scores[ranking.ids.index(twins[1])]
        others = [identifier for identifier in ranking.ids if identifier not in twins]
        assert others == [identifier for identifier in ask(encoder, corpus, ids, len(ids)).ids if identifier not in twins]


def test_dot_similarity_uses_unnormalized_vectors(checkpoint: Path, corpus: TripleCorpus) -> None:
    from sentence_transformers import SentenceTransformer

    question, triple = (SentenceTransformer(str(checkpoint / name), device="cpu") for name in ("question", "triple"))
    expected = triple.encode([linearize(triple, underscores="space") for triple in TRIPLES]) @ question.encode(QUESTIONS[0])
    options = {"model": str(checkpoint), "similarity": "dot"}
    (ranking,) = Component.of("gpr", options).build(Services(device="cpu")).index(corpus).retrieve([query(0, IDS)], 9)
    assert ranking.scores == pytest.approx(np.sort(expected)[::-1][:9].tolist(), rel=1e-4)
    assert abs(ranking.scores[0]) > 1.5


class Counting(Encoder):
    """Encoder that records its texts."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.texts: list[str] = []

    def _vectors(self, tower: Any, texts: Sequence[str], titles: Any, batch_size: int) -> Any:
        if tower is self._passages:
            self.texts += texts
        return super()._vectors(tower, texts, titles, batch_size)


@pytest.mark.slow
def test_every_triple_is_encoded_once_across_runs(
    checkpoint: Path, corpus: TripleCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors_module, "BLOCK", 7)
    config = EncoderConfig(model=str(checkpoint / "triple"), query_model=str(checkpoint / "question"))
    counting = Counting(config, "cpu", tmp_path)
    index = TripleRetriever(counting).index(corpus)
    index.retrieve([query(0, IDS[:3])], 5)
    assert counting.texts == [linearize(triple) for triple in TRIPLES[:7]]
    index.retrieve([query(0, IDS), query(1, IDS[::2]), query(2, None)], 5)
    assert sorted(counting.texts) == sorted(linearize(triple) for triple in TRIPLES)
    again = Counting(config, "cpu", tmp_path)
    TripleRetriever(again).index(corpus).retrieve([query(3, IDS)], 5)
    assert again.texts == []


@pytest.mark.slow
def test_rankings_do_not_depend_on_the_order_of_questions(checkpoint: Path, corpus: TripleCorpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors_module, "BLOCK", 8)
    config = EncoderConfig(model=str(checkpoint / "triple"), query_model=str(checkpoint / "question"), batch_size=3)
    queries = [query(number, IDS[number :: number + 2]) for number in range(4)]
    results = []
    for order in (queries, queries[::-1]):
        index = TripleRetriever(Encoder(config, "cpu")).index(corpus)
        rankings = {ranking.query_id: ranking for item in order for ranking in index.retrieve([item], 6)}
        results.append([rankings[item.id] for item in queries])
    assert results[0] == results[1]


def test_vectors_larger_than_memory_are_stored_in_a_file(
    encoder: Encoder, corpus: TripleCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = ask(encoder, corpus, IDS)
    monkeypatch.setattr(vectors_module, "IN_MEMORY", 100)
    index = TripleRetriever(encoder).index(corpus, tmp_path / "index")
    assert index.retrieve([query(0, IDS)], 5) == [expected]
    assert not list((tmp_path / "index").iterdir())


@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(0, 45), st.sampled_from([1.0, 0.0, 100.0]))
def test_nearest_neighbors_equal_a_stable_sort(seed: int, rows: int, k: int, spread: float) -> None:
    """Tested also with many ties (few distinct rows) and with large norms."""
    rng = np.random.default_rng(seed)
    distinct = rng.normal(size=(rng.integers(1, rows + 1), 6)).astype(np.float32) * max(spread, 1)
    vectors = distinct[rng.integers(0, len(distinct), rows)] if spread == 0 else distinct[rng.permutation(len(distinct))]
    query = rng.normal(size=6).astype(np.float32)
    exact = (vectors.astype(np.float64) * query.astype(np.float64)).sum(axis=1)
    expected = np.argsort(-exact, kind="stable")[:k]
    best, scores = nearest(vectors, query, k, float(np.linalg.norm(vectors, axis=1).max()))
    assert best.tolist() == expected.tolist()
    assert scores.tolist() == exact[expected].tolist()


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_vectors_do_not_depend_on_the_batch(checkpoint: Path, pooling: Any) -> None:
    """Padding does not contribute, in particular not to a mean."""
    texts = ["old", "the painter lived in a cold cabin by the river , built in the year of the long bridge", "a town"]
    item, many = (
        Encoder(EncoderConfig(model=str(checkpoint / "triple"), pooling=pooling, batch_size=size), "cpu").passages(texts) for size in (1, 3)
    )
    assert np.abs(item - many).max() < 1e-5


def test_checkpoint_records_the_triple_format(checkpoint: Path) -> None:
    build = Component.of("gpr", {"model": str(checkpoint)}).build(Services(device="cpu"))
    assert build.linearize == LinearizeConfig(rel="last", underscores="space")
    options = {"model": str(checkpoint), "linearize": {"rel": "full"}}
    assert Component.of("gpr", options).build(Services(device="cpu")).linearize.rel == "full"


def test_folder_without_a_gpr_checkpoint_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    for folder in (checkpoint / "triple", tmp_path):
        with raises("not-checkpoint"):
            Component.of("gpr", {"model": str(folder)}).config.preflight()
    (tmp_path / CHECKPOINT_CARD).write_text(json.dumps({"method": "ark", "config": {}}))
    with raises("not-checkpoint"):
        Component.of("gpr", {"model": str(tmp_path)}).config.preflight()
    Component.of("gpr", {"model": str(checkpoint)}).config.preflight()


def test_candidate_of_another_corpus_is_refused_in_any_scope(encoder: Encoder, corpus: TripleCorpus) -> None:
    for scope in ("question", "global"):
        with raises("candidate-not-corpus"):
            ask(encoder, corpus, ["tnowhere"], scope=scope)
