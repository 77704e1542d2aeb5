"""Untrained towers, DPR's and SKP's over triples: texts, vectors and the order of triples."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from benchmarks import registry
from benchmarks.corpus import Corpus
from benchmarks.graphs import TripleCorpus
from benchmarks.schema import Query, Triple, triple_id
from methods.api import Services
from methods.baselines.graph.two_towers import DprTriples
from methods.graphs.triples import linearize
from methods.registry import Component
from tests.support.errors import raises

torch = pytest.importorskip("torch")
NAMES = ["old bridge", "moss", "painter", "river", "town", "stone cabin", "year", "m.0abc"]
RELATIONS = ["place.bridge.built_by", "grows_on", "person.born_in", "sibling"]
TRIPLES: list[Triple] = [(head, RELATIONS[(3 * a + b) % 4], tail) for a, head in enumerate(NAMES) for b, tail in enumerate(NAMES) if a != b]
QUESTION = "where was the painter born ?"


@pytest.fixture(scope="module")
def corpus() -> TripleCorpus:
    return TripleCorpus.of_triples(TRIPLES)


@pytest.fixture(scope="module")
def bert(tiny_models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> str:
    import transformers

    torch.manual_seed(0)
    model = transformers.BertModel(tiny_models.config("Bert", len(tiny_models.tokenizer("bert"))))
    return str(tiny_models.save(tmp_path_factory.mktemp("bert"), "bert", tiny_models.scaled(model)))


def vectors(folder: str, texts: list[str], pooling: str) -> Any:
    """Encode text by text with a plain forward pass."""
    from transformers import AutoModel, AutoTokenizer

    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    results = []
    for text in texts:
        with torch.inference_mode():
            states = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        results.append((states[0] if pooling == "first" else states.mean(0)).numpy())
    return np.array(results, dtype=np.float64)


def best(question: Any, triples: Any, similarity: str) -> list[int]:
    if similarity == "cosine":
        question, triples = question / np.linalg.norm(question), triples / np.linalg.norm(triples, axis=1)[:, None]
    return np.argsort(-(triples @ question), kind="stable").tolist()


def build(identifier: str, folder: Path | None = None, **config: Any) -> Any:
    return Component.of(identifier, config).build(Services(artifacts=folder, device="cpu"))


def of(rows: list[int]) -> tuple[str, ...]:
    return tuple(triple_id(TRIPLES[row]) for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize(("pooling", "similarity"), [("first", "cosine"), ("mean", "dot")])
def test_triples_are_ordered_by_similarity(corpus: TripleCorpus, bert: str, pooling: str, similarity: str, tmp_path: Path) -> None:
    order = best(vectors(bert, [QUESTION], pooling)[0], vectors(bert, [linearize(triple) for triple in TRIPLES], pooling), similarity)
    index = build("two_tower", tmp_path, model=bert, pooling=pooling, similarity=similarity).index(corpus)
    graph = random.Random(3).sample(range(len(TRIPLES)), 20)
    candidates = tuple(triple_id(TRIPLES[row]) for row in graph)
    whole, own = index.retrieve([Query("a", QUESTION), Query("b", QUESTION, candidates=candidates)], 12)
    assert whole.ids == of(order[:12])
    assert own.ids == of([row for row in order if row in graph][:12])


@pytest.mark.slow
def test_means_distinguish_triples_better_than_first_tokens(corpus: TripleCorpus) -> None:
    """MiniLM was trained with mean pooling, so real weights show which pooling is used."""
    query = Query("q", "Where was the painter born?")
    results = {}
    for pooling in ("first", "mean"):
        index = build("two_tower", model="minilm", pooling=pooling).index(corpus)
        results[pooling] = index.retrieve([query], len(TRIPLES))[0]
    top = TRIPLES[[triple_id(triple) for triple in TRIPLES].index(results["mean"].ids[0])]
    assert "painter" in top
    spread = {name: np.ptp(ranking.scores) for name, ranking in results.items()}
    assert spread["first"] != spread["mean"]


@pytest.mark.slow
def test_linearize_option_sets_the_text_of_relations(corpus: TripleCorpus, bert: str) -> None:
    full = build("two_tower", model=bert, linearize={"rel": "full", "underscores": "space"}).index(corpus)
    texts = [linearize(triple, "full", "space") for triple in TRIPLES]
    order = best(vectors(bert, [QUESTION], "first")[0], vectors(bert, texts, "first"), "cosine")
    assert full.retrieve([Query("q", QUESTION)], 10)[0].ids == of(order[:10])


def test_graph_without_triples_gives_an_empty_ranking(corpus: TripleCorpus, bert: str) -> None:
    index = build("two_tower", model=bert).index(corpus)
    assert index.retrieve([Query("q", QUESTION, candidates=())], 5)[0].ids == ()


def test_corpus_of_passages_is_refused(bert: str) -> None:
    with raises("triples-over-passages"):
        build("two_tower", model=bert).index(Corpus.of([]))


@pytest.fixture(scope="module")
def towers(tiny_models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    import transformers

    results = {}
    for name, kind in (("model", "DPRContextEncoder"), ("query_model", "DPRQuestionEncoder")):
        torch.manual_seed(len(results))
        options = tiny_models.config("DPR", len(tiny_models.tokenizer("bert")))
        model = tiny_models.scaled(getattr(transformers, kind)(options))
        results[name] = str(tiny_models.save(tmp_path_factory.mktemp(name), "bert", model))
    return results


def dpr_vectors(folder: str, kind: str, texts: Sequence[str | tuple[str, str]]) -> Any:
    import transformers

    model = getattr(transformers, kind).from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        inputs = [(text,) if isinstance(text, str) else text for text in texts]
        rows = [model(**tokenizer(*item, return_tensors="pt")).pooler_output[0].numpy() for item in inputs]
    return np.array(rows, dtype=np.float64)


@pytest.mark.slow
def test_dpr_scores_by_dot_products_of_its_two_towers(corpus: TripleCorpus, towers: dict[str, str]) -> None:
    query = dpr_vectors(towers["query_model"], "DPRQuestionEncoder", [QUESTION])[0]
    triples = dpr_vectors(towers["model"], "DPRContextEncoder", [linearize(triple) for triple in TRIPLES])
    ranking = build("dpr_nq", **towers).index(corpus).retrieve([Query("q", QUESTION)], 10)[0]
    assert ranking.ids == of(best(query, triples, "dot")[:10])
    assert ranking.scores == pytest.approx(sorted((triples @ query).tolist(), reverse=True)[:10], rel=1e-4)


@pytest.mark.slow
def test_dpr_may_read_the_head_of_a_triple_as_its_title(corpus: TripleCorpus, towers: dict[str, str]) -> None:
    query = dpr_vectors(towers["query_model"], "DPRQuestionEncoder", [QUESTION])[0]
    pairs = [(head, linearize((head, relation, tail))) for head, relation, tail in TRIPLES]
    triples = dpr_vectors(towers["model"], "DPRContextEncoder", pairs)
    ranking = build("dpr_nq", **towers, title="head").index(corpus).retrieve([Query("q", QUESTION)], 10)[0]
    assert ranking.ids == of(best(query, triples, "dot")[:10])
    assert ranking.scores == pytest.approx(sorted((triples @ query).tolist(), reverse=True)[:10], rel=1e-4)
    untitled = build("dpr_nq", **towers).index(corpus).retrieve([Query("q", QUESTION)], 10)[0]
    assert untitled.scores != pytest.approx(ranking.scores, rel=1e-3)


def test_dpr_prepares_texts_as_its_authors_did(towers: dict[str, str]) -> None:
    encoder = build("dpr_nq", **towers).encoder
    assert np.array_equal(encoder.queries(["who’s old ?"]), encoder.queries(["who's old ?"]))
    dirty, clean = encoder.passages(['"old\nbridge"', "old bridge"])
    assert dirty == pytest.approx(clean, abs=1e-5)
    assert not np.allclose(encoder.passages(['"'])[0], clean)


def test_dprs_published_encoders_are_the_default() -> None:
    config = Component.of("dpr_nq").config
    assert (config.model, config.query_model) == ("facebook/dpr-ctx_encoder-single-nq-base", "facebook/dpr-question_encoder-single-nq-base")
    assert config.encoder.normalize is False
    assert config.encoder.max_length == 256
    assert DprTriples.__mro__[1].__name__ == "TripleRetriever"


def test_skp_without_a_pretrained_checkpoint_is_refused(bert: str) -> None:
    with raises("not-checkpoint"):
        Component.of("skp", {"model": bert}).preflight()


@pytest.mark.slow
def test_skp_uses_one_encoder_for_both_sides_and_the_triple_format_of_pretraining(
    corpus: TripleCorpus, bert: str, tiny_models: ModuleType, tmp_path: Path
) -> None:
    import shutil

    folder = tmp_path / "skp"
    shutil.copytree(bert, folder)
    tiny_models.layout(folder, 64, [tiny_models.pooling("cls")], {"query": "", "document": ""})
    written = {"linearize": {"rel": "full", "underscores": "space"}}
    (folder / "ragmeter.json").write_text(json.dumps({"method": "skp", "config": written, "sha256": "0"}))
    Component.of("skp", {"model": str(folder)}).preflight()
    for config, pooling in (({}, "first"), ({"pooling": "mean"}, "mean")):
        index = build("skp", model=str(folder), **config).index(corpus)
        texts = [linearize(triple, "full", "space") for triple in TRIPLES]
        order = best(vectors(bert, [QUESTION], pooling)[0], vectors(bert, texts, pooling), "cosine")
        assert index.retrieve([Query("q", QUESTION)], 10)[0].ids == of(order[:10])


@pytest.mark.slow
def test_real_questions_find_triples_of_their_own_graphs(data_folder: Path, tmp_path: Path) -> None:
    benchmark = registry.load("webqsp:test", {"path": str(data_folder / "webqsp" / "rog_style_webqsp.jsonl")})
    index = build("two_tower", tmp_path, model="minilm", pooling="mean").index(benchmark.corpus)
    questions = list(benchmark.questions[:12])
    rankings = index.retrieve([question.query() for question in questions], 5)
    for question, ranking in zip(questions, rankings, strict=True):
        assert len(ranking.ids) == min(5, len(question.candidates or ()))
        assert set(ranking.ids) <= set(question.candidates or ())
    # MiniLM brings a triple with an answer to the top far more often than five triples drawn by chance would.
    results = [
        any(
            set(question.answers) & set(triple)
            for triple in benchmark.corpus.triples.take(
                np.array([benchmark.corpus.row(identifier) for identifier in ranking.ids], dtype=np.int64)
            )
        )
        for question, ranking in zip(questions, rankings, strict=True)
    ]
    assert np.mean(results) >= 0.5
