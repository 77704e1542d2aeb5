"""Dense retrieval against plain SentenceTransformer encoding and a sort."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query, passage_id
from methods.api import Services
from methods.models.encoder import Encoder
from methods.models.encoder_config import EncoderConfig
from methods.models.weights import locate, weights_hash
from methods.registry import Component
from methods.retrieval import dense as module
from tests.support.errors import raises


@pytest.fixture(scope="module")
def dense() -> Any:
    return Component.of("dense").build(Services(device="cpu"))


@pytest.mark.slow
def test_ranking_equals_plain_encoding_and_sorting(dense: Any, ground: Any) -> None:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(locate("minilm"), device="cpu")
    passages = model.encode(list(ground.corpus.full_texts()))
    queries = [Query(q.query_id, q.text) for q in ground.questions]
    scores = model.encode([query.text for query in queries]) @ passages.T
    for ranking, expected in zip(dense.index(ground.corpus).retrieve(queries, 10), scores, strict=True):
        order = np.argsort(-expected)[:10]
        assert ranking.scores == pytest.approx(expected[order].tolist(), abs=1e-5)
        # Passages of one template differ little: only gaps beyond float noise decide an order.
        for position, identifier in enumerate(ranking.ids):
            assert expected[ground.corpus.row(identifier)] == pytest.approx(expected[order[position]], abs=1e-5)


@pytest.mark.slow
def test_candidates_keep_their_scores_and_order(dense: Any, ground: Any) -> None:
    index = dense.index(ground.corpus)
    text, chosen = ground.questions[0].text, ground.corpus.ids[::4]
    everywhere = index.retrieve([Query("q", text)], len(ground.corpus))[0]
    within = index.retrieve([Query("q", text, candidates=chosen)], len(ground.corpus))[0]
    assert within.ids == tuple(identifier for identifier in everywhere.ids if identifier in chosen)
    scores = dict(zip(everywhere.ids, everywhere.scores, strict=True))
    assert within.scores == tuple(scores[identifier] for identifier in within.ids)


@pytest.mark.slow
def test_rankings_are_bit_identical_in_any_batch_of_queries(dense: Any, ground: Any) -> None:
    queries = [Query(question.query_id, question.text) for question in ground.questions[:6]]
    index, other = dense.index(ground.corpus), dense.index(ground.corpus)
    index.build_for(queries)
    other.build_for(queries)
    together = index.retrieve([*queries, queries[0]], 10)
    assert together == [other.retrieve([query], 10)[0] for query in [*queries, queries[0]]]
    alone = np.concatenate([dense.encoder.queries([query.text]) for query in queries])
    assert np.abs(alone - dense.encoder.queries([query.text for query in queries])).max() < 1e-6


@pytest.mark.slow
def test_passage_vectors_depend_on_their_batch_by_less_than_a_millionth(ground: Any) -> None:
    texts = [*ground.corpus.full_texts(), "word " * 150, "x"]
    small, large = (Encoder(EncoderConfig(batch_size=size), "cpu").passages(texts) for size in (1, 16))
    assert np.abs(small - large).max() < 1e-6


def test_equal_passages_rank_in_corpus_order(dense: Any) -> None:
    """There are more equal passages than a batch takes, and longer ones after them; float noise must not decide."""
    texts = ["same text"] * 40 + ["a river and a tin lamp " * 9]
    corpus = Corpus.of(Passage(passage_id("", text, str(i)), "", text, (), str(i)) for i, text in enumerate(texts))
    (ranking,) = dense.index(corpus).retrieve([Query("q", "same text")], 40)
    assert ranking.ids == corpus.ids[:40]
    assert len(set(ranking.scores)) == 1


@pytest.mark.slow
def test_stored_index_is_memory_mapped_and_not_encoded_again(
    dense: Any, ground: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = [question.query() for question in ground.questions]
    first = dense.index(ground.corpus, tmp_path / "i").retrieve(queries, 20)
    assert first == dense.index(ground.corpus).retrieve(queries, 20)
    monkeypatch.setattr(dense, "_encode", lambda *_: pytest.fail("encoded a second time"))
    index = dense.index(ground.corpus, tmp_path / "i")
    assert index.retrieve(queries, 20) == first
    assert isinstance(index._vectors, np.memmap)


@pytest.mark.slow
def test_interrupted_build_resumes_with_the_same_vectors(dense: Any, ground: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 16)
    whole = np.array(dense.index(ground.corpus, tmp_path / "whole")._vectors)
    encode, starts = dense._encode, []

    def cut(corpus: Corpus, start: int) -> Any:
        if start == 32 and not starts.count("cut"):
            starts.append("cut")
            raise KeyboardInterrupt
        starts.append(start)
        return encode(corpus, start)

    monkeypatch.setattr(dense, "_encode", cut)
    with pytest.raises(KeyboardInterrupt):
        dense.index(ground.corpus, tmp_path / "cut")
    assert np.array_equal(dense.index(ground.corpus, tmp_path / "cut")._vectors, whole)
    assert starts == [0, 16, "cut", 32]
    assert {path.name for path in (tmp_path / "cut").iterdir()} == {"vectors.npy", "complete.json", "truncated.json"}


def test_corpus_without_passages_gives_no_results(dense: Any, tmp_path: Any) -> None:
    assert dense.index(Corpus.of([]), tmp_path / "none").retrieve([Query("q", "x")], 3)[0].ids == ()


@pytest.mark.slow
def test_prompts_precede_the_text() -> None:
    plain, prompted = Encoder(EncoderConfig(), "cpu"), Encoder(EncoderConfig(query_prompt="query: "), "cpu")
    assert prompted.queries(["moss"]) == pytest.approx(plain.queries(["query: moss"]), abs=1e-6)
    assert prompted.passages(["moss"]) == pytest.approx(plain.passages(["moss"]), abs=1e-6)


def test_missing_model_is_named(tmp_path: Any) -> None:
    with raises("no-model-folder"):
        Component.of("dense", {"model": str(tmp_path / "nowhere")}).preflight()
    (tmp_path / "empty").mkdir()
    with raises("load-failed"):
        Component.of("dense", {"model": str(tmp_path / "empty")}).build(Services(device="cpu"))


def test_changed_weights_change_the_fingerprint(tmp_path: Any) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"one")
    before = weights_hash(str(tmp_path))
    assert before == weights_hash(str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"other")
    assert weights_hash(str(tmp_path)) != before
