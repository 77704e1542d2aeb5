"""SPLADE and ColBERT over a corpus: against the model's own logits and a plain loop, in chunks and with FAISS."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query, passage_id
from methods.api import Services
from methods.models.late_interaction import LateInteraction, LateInteractionConfig, max_sim
from methods.registry import Component
from methods.retrieval import colbert as colbert_module
from methods.retrieval import splade as splade_module
from tests.support.errors import raises

torch = pytest.importorskip("torch")
WORDS = ("old", "stone", "bridge", "painter", "lived", "born", "river", "moss", ",", ".")


def corpus_of(n: int) -> Corpus:
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, 1 + number % 9)) for number in range(n)]
    return Corpus.of(Passage(passage_id("", text, str(number)), "", text, (), str(number)) for number, text in enumerate(texts))


def retriever(identifier: str, folder: str | Path, **config: Any) -> Any:
    return Component.of(identifier, {"model": str(folder), **config}).build(Services(device="cpu"))


QUERIES = [Query("q", "where was the old painter born ?"), Query("r", "stone , moss"), Query("s", "")]


@pytest.mark.slow
def test_splade_weights_follow_the_logits_and_rank_like_a_dense_product(
    tiny_splade: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(tiny_splade), AutoModelForMaskedLM.from_pretrained(tiny_splade).eval()
    corpus, made = corpus_of(23), retriever("splade", tiny_splade, batch_size=4)

    def weights(text: str) -> np.ndarray:
        with torch.no_grad():
            logits = model(**tokenizer(text, return_tensors="pt")).logits[0]
        return np.log1p(np.maximum(logits.double().numpy(), 0)).max(axis=0)

    monkeypatch.setattr(splade_module, "CHUNK", 5)
    whole, kept = made.index(corpus), made.index(corpus, tmp_path / "index")
    dense = np.stack([weights(passage.full_text) for passage in corpus])
    texts = [tokenizer.convert_ids_to_tokens(np.flatnonzero(row).tolist()) for row in dense]
    assert any(term not in passage.full_text.split() for terms, passage in zip(texts, corpus, strict=True) for term in terms)
    for ranking, again, query in zip(whole.retrieve(QUERIES, 7), kept.retrieve(QUERIES, 7), QUERIES, strict=True):
        expected = dense @ weights(query.text)
        assert again == ranking
        assert list(ranking.scores) == pytest.approx(sorted(expected, reverse=True)[:7], rel=1e-4)
        assert [expected[corpus.row(item)] for item in ranking.ids] == pytest.approx(list(ranking.scores), rel=1e-4)
    within = kept.retrieve([Query("q", QUERIES[0].text, candidates=corpus.ids[3:6])], 9)[0]
    assert sorted(within.ids) == sorted(corpus.ids[3:6])
    made.encoder.passages = None  # what is kept is not encoded again
    assert made.index(corpus, tmp_path / "index").retrieve(QUERIES, 7) == whole.retrieve(QUERIES, 7)


def test_model_without_a_masked_language_head_is_refused_by_splade(tiny_encoder: str, tiny_models: ModuleType, tmp_path: Path) -> None:
    from transformers import BertModel

    tiny_models.save(tmp_path, "bert", BertModel(tiny_models.config("Bert", 200)))
    with raises("not-sparse-encoder"):
        retriever("splade", tmp_path)


@pytest.mark.slow
def test_colbert_ranking_equals_a_sort_of_all_scores(tiny_colbert: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, made = corpus_of(40), retriever("colbert", tiny_colbert)
    monkeypatch.setattr(colbert_module, "CHUNK", 7)
    monkeypatch.setattr(colbert_module, "BLOCK", 50)
    whole, kept = made.index(corpus), made.index(corpus, tmp_path / "index")
    model = LateInteraction(LateInteractionConfig(model=tiny_colbert), "cpu")
    passages = model.passages([passage.full_text for passage in corpus])
    for ranking, again, query in zip(whole.retrieve(QUERIES, 6), kept.retrieve(QUERIES, 6), QUERIES, strict=True):
        expected = max_sim(model.queries([query.text])[0], passages)
        assert list(again.scores) == pytest.approx(list(ranking.scores), abs=1e-5)
        assert list(ranking.scores) == pytest.approx(sorted(expected, reverse=True)[:6], abs=1e-4)
        assert [expected[corpus.row(item)] for item in ranking.ids] == pytest.approx(list(ranking.scores), abs=1e-4)
    with raises("index-without-folder"):
        retriever("colbert", tiny_colbert, exact_up_to=10).index(corpus)


@pytest.mark.slow
def test_colbert_searches_large_corpora_with_faiss_and_scores_candidates_exactly(tiny_colbert: str, tmp_path: Path) -> None:
    corpus = corpus_of(300)
    exact = retriever("colbert", tiny_colbert).index(corpus, tmp_path / "exact").retrieve(QUERIES, 10)
    near = retriever("colbert", tiny_colbert, exact_up_to=10, near=64).index(corpus, tmp_path / "near").retrieve(QUERIES, 10)
    scores = {(ranking.query_id, item): score for ranking in exact for item, score in zip(ranking.ids, ranking.scores, strict=True)}
    common = [(r.query_id, item, score) for r in near for item, score in zip(r.ids, r.scores, strict=True) if (r.query_id, item) in scores]
    assert len(common) >= 20, "most of the 30 best are found"
    assert all(score == pytest.approx(scores[query, item], abs=1e-5) for query, item, score in common)
