"""CLaRa in pipelines: the same documents and answers for every combination of its parts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query
from methods.api import FAILED, RERANKER_TRUNCATED, TRUNCATED, Context, Prediction, Ranking, Services
from methods.clara.methods import DocumentMemory
from methods.clara.model import Clara
from methods.clara.store import MemoryStore
from methods.clara.use import CheckpointOptions, loaded
from methods.pipeline import assemble
from methods.registry import Component
from tests.support.errors import raises

K, M = 3, 4


def queries(ground: Any) -> list[Query]:
    return [question.query() for question in ground.questions]


def answers(method: Any, ground: Any, requests: list[Query]) -> list[Prediction]:
    method.index(ground.corpus)
    return list(method.answer(requests))


def content(predictions: list[Prediction]) -> list[Any]:
    return [(prediction.question_id, prediction.answer, prediction.evidence, prediction.usage.memory_tokens) for prediction in predictions]


def parts(model: str, services: Services, *, retriever: str = "clara_retriever", k: int = K, **more: Any) -> Any:
    return assemble(
        Component.of(retriever, {"model": model, **more} if retriever == "clara_retriever" else {}),
        services,
        compressor=Component.of("clara_compressor", {"model": model, **more}),
        reader=Component.of("clara_reader", {"model": model, "max_new_tokens": 6}),
        k=k,
    )


def whole(model: str, services: Services, **more: Any) -> Any:
    return assemble(Component.of("clara", {"model": model, "max_new_tokens": 6, **more}), services)


@pytest.fixture
def services(tmp_path: Path) -> Services:
    return Services(artifacts=tmp_path / "artifacts", device="cpu")


@pytest.mark.slow
def test_pipeline_of_parts_gives_the_answers_of_the_whole_method(tiny_clara: str, ground: Any, services: Services) -> None:
    together = answers(whole(tiny_clara, services), ground, queries(ground))
    apart = answers(parts(tiny_clara, services, offline=True), ground, queries(ground))
    assert content(together) == content(apart)
    assert len({item.answer for item in together}) > 1
    candidates = [query for query in queries(ground) if query.candidates is not None]
    behind = assemble(
        Component.of("full_context"),
        services,
        rerankers=[Component.of("clara_reranker", {"model": tiny_clara, "offline": True})],
        compressor=Component.of("clara_compressor", {"model": tiny_clara, "offline": True}),
        reader=Component.of("clara_reader", {"model": tiny_clara, "max_new_tokens": 6}),
        k=K,
    )
    requests = {query.id for query in candidates}
    assert content(answers(behind, ground, candidates)) == [item for item in content(together) if item[0] in requests]


@pytest.mark.slow
def test_documents_compressed_on_demand_give_the_answers_of_the_store(tiny_clara: str, ground: Any, services: Services) -> None:
    requests = [query for query in queries(ground) if query.candidates is not None]
    kept = answers(whole(tiny_clara, services), ground, requests)
    made = answers(whole(tiny_clara, services, offline=False), ground, requests)
    assert [item.answer for item in kept] == [item.answer for item in made]
    for entry, other in zip(kept, made, strict=True):
        assert [item.id for item in entry.evidence] == [item.id for item in other.evidence]
        scores = [np.array([item.score for item in prediction.evidence]) for prediction in (entry, other)]
        np.testing.assert_allclose(scores[0], scores[1], atol=1e-5)


@pytest.mark.parametrize("k", [1, pytest.param(9, marks=pytest.mark.slow)])
def test_memory_tokens_are_k_times_those_per_document_and_not_prompt_tokens(
    k: int, tiny_clara: str, ground: Any, services: Services
) -> None:
    few, many = (answers(whole(tiny_clara, services, k=n), ground, queries(ground)[:3]) for n in (k, k + 1))
    clara = Clara.load(Path(tiny_clara), "cpu")
    for item, other in zip(few, many, strict=True):
        assert item.usage.memory_tokens == k * M
        # A further document costs its separator alone, besides its memory.
        between = len(clara.tokenizer("<|clara_separator|>", add_special_tokens=False)["input_ids"])
        assert other.usage.prompt_tokens - item.usage.prompt_tokens == between
        assert item.usage.model_calls == 1


def test_k_defaults_to_that_of_the_checkpoint(tiny_clara: str, ground: Any, services: Services) -> None:
    (item,) = answers(whole(tiny_clara, services), ground, queries(ground)[:1])
    assert item.usage.memory_tokens == K * M


@pytest.mark.slow
def test_scores_equal_the_models_similarity(tiny_clara: str, ground: Any, services: Services) -> None:
    clara = Clara.load(Path(tiny_clara), "cpu")
    query = next(query for query in queries(ground) if query.candidates is not None)
    ids = tuple(query.candidates or ())
    with torch.inference_mode():
        texts = [passage.full_text for passage in ground.corpus.get(ids)]
        expected = clara.similarity(clara.encode([query.text], "reasoner").memory, clara.encode(texts).memory)[0]
    reranker = Component.of("clara_reranker", {"model": tiny_clara}).build(services)
    value = Ranking(query.id, ids, tuple(float(n) for n in range(len(ids), 0, -1)))
    (result,) = reranker.rerank([query], [value], ground.corpus)
    assert set(result.ids) == set(ids)
    assert all(-1 <= score <= 1 for score in result.scores)
    by_id = dict(zip(ids, expected.tolist(), strict=True))
    # Documents are kept in half precision.
    np.testing.assert_allclose(result.scores, [by_id[identifier] for identifier in result.ids], atol=2e-3)
    assert list(result.scores) == sorted(result.scores, reverse=True)


@pytest.mark.slow
def test_question_equal_to_a_document_retrieves_it_with_cosine_1(tiny_clara: str, ground: Any, services: Services) -> None:
    retriever = Component.of("clara_retriever", {"model": tiny_clara, "query_adapter": "compressor"}).build(services)
    index = retriever.index(ground.corpus)
    requests = [Query(passage.id, passage.full_text) for passage in ground.corpus]
    for query, ranking in zip(requests, index.retrieve(requests, 5), strict=True):
        assert ranking.ids[0] == query.id
        assert ranking.scores[0] == pytest.approx(1, abs=1e-5)


@pytest.mark.slow
def test_corpus_is_compressed_once_and_reused_by_later_runs(
    tiny_clara: str, ground: Any, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = answers(whole(tiny_clara, services), ground, queries(ground))
    (card,) = (services.artifacts or Path()).rglob("store.json")
    assert len(MemoryStore.open(card.parent)) == len(ground.corpus)
    encode = Clara.encode

    def questions_only(self: Clara, texts: Any, adapter: Any = "compressor", budget: Any = None) -> Any:
        assert adapter == "reasoner"
        return encode(self, texts, adapter, budget)

    monkeypatch.setattr(Clara, "encode", questions_only)
    assert content(answers(whole(tiny_clara, services), ground, queries(ground))) == content(first)


def test_question_without_candidates_requires_a_compressed_corpus(tiny_clara: str, ground: Any, services: Services) -> None:
    method = whole(tiny_clara, services, offline=False)
    with raises("question-without-candidates"):
        answers(method, ground, [Query("q", "In which town?")])


@pytest.mark.slow
def test_parts_of_one_pipeline_share_one_model(tiny_clara: str) -> None:
    first = loaded(CheckpointOptions.model_validate({"model": tiny_clara}), "cpu")
    assert loaded(CheckpointOptions.model_validate({"model": tiny_clara}), "cpu") is first
    assert loaded(CheckpointOptions.model_validate({"model": tiny_clara, "dtype": "bfloat16"}), "cpu") is not first


def test_memory_of_another_compressor_is_refused(tiny_clara: str, ground: Any, services: Services) -> None:
    reader = Component.of("clara_reader", {"model": tiny_clara}).build(services)
    other = DocumentMemory(torch.zeros(1, M, 32), "another")
    with raises("memory-compressor-mismatch"):
        reader.read(queries(ground)[:1], [Context("q", memory=other)])
    with raises("memory-not-of-clara"):
        reader.read(queries(ground)[:1], [Context("q", memory=torch.zeros(1, M, 32))])


@pytest.mark.slow
def test_checkpoints_that_share_a_compressor_share_their_store(tiny_clara: str, ground: Any, services: Services, tmp_path: Path) -> None:
    other = Clara.load(Path(tiny_clara), "cpu")
    with torch.no_grad():
        for parameter in other.adapters.of("reasoner").values():
            parameter.mul_(1.5)
    other.save(tmp_path / "other")
    for model in (tiny_clara, str(tmp_path / "other")):
        answers(whole(model, services), ground, queries(ground)[:1])
    assert len(list((services.artifacts or Path()).rglob("store.json"))) == 1
    with torch.no_grad():
        other.module.rows.memory.add_(0.1)
    other.save(tmp_path / "moved")
    answers(whole(str(tmp_path / "moved"), services), ground, queries(ground)[:1])
    assert len(list((services.artifacts or Path()).rglob("store.json"))) == 2


def test_budget_drops_the_last_documents_and_is_noted(tiny_clara: str, ground: Any, services: Services) -> None:
    compressor = Component.of("clara_compressor", {"model": tiny_clara}).build(services)
    query = queries(ground)[:1]
    ranking = Ranking(query[0].id, tuple(ground.corpus.ids[:5]), (5.0, 4.0, 3.0, 2.0, 1.0))
    (cut,) = compressor.compress(query, [ranking], ground.corpus, 2 * M + 1)
    (full,) = compressor.compress(query, [ranking], ground.corpus, None)
    assert cut.memory.tokens == 2 * M
    assert full.memory.tokens == 5 * M
    assert cut.notes[TRUNCATED] == {"unit": "tokens", "kept": 2 * M, "of": 5 * M}
    assert full.notes == {}
    (nothing,) = compressor.compress(query, [ranking], ground.corpus, M - 1)
    assert nothing.memory is None


def test_passages_that_are_not_compressed_whole_are_noted(tiny_clara: str, services: Services) -> None:
    clara = loaded(CheckpointOptions(model=tiny_clara), "cpu").clara
    limit = clara.config.max_length
    texts = ["moss " * count for count in (1, limit // 8, 2 * limit)]
    corpus = Corpus.of([Passage(f"p{number}", "", text) for number, text in enumerate(texts)])
    lengths = [len(ids) for ids in clara.compressor.ids(texts)]
    assert lengths[0] < lengths[1] < lengths[2]
    pipeline = assemble(
        Component.of("clara_retriever", {"model": tiny_clara, "offline": False}),
        services,
        compressor=Component.of("clara_compressor", {"model": tiny_clara}),
        reader=Component.of("clara_reader", {"model": tiny_clara}),
    )
    noted = pipeline.index(corpus).notes[TRUNCATED]
    assert (noted["limit"], noted["passages"], noted["truncated"]) == (limit, 3, 1)
    assert 0.4 < noted["share"] < 1
    reranker = Component.of("clara_reranker", {"model": tiny_clara}).build(services)
    assert reranker.corpus_notes(corpus) == {RERANKER_TRUNCATED: noted}


@pytest.mark.slow
def test_reader_compresses_documents_given_as_text(tiny_clara: str, ground: Any, services: Services) -> None:
    passages = tuple(ground.corpus[:4])
    query = queries(ground)[:1]
    (by_part,) = (
        Component.of("clara_compressor", {"model": tiny_clara})
        .build(services)
        .compress(query, [Ranking(query[0].id, tuple(p.id for p in passages), (4.0, 3.0, 2.0, 1.0))], ground.corpus, None)
    )
    reader = Component.of("clara_reader", {"model": tiny_clara, "max_new_tokens": 6}).build(services)
    from_memory, from_text = reader.read([*query, *query], [by_part, Context(query[0].id, passages)])
    assert from_memory == from_text


def test_question_that_does_not_fit_fails_without_others(tiny_clara: str, ground: Any, services: Services) -> None:
    reader = Component.of("clara_reader", {"model": tiny_clara, "max_new_tokens": 6}).build(services)
    long = Query("long", "why " * 2000)
    passages = tuple(ground.corpus[:2])
    failed, answered = reader.read([long, queries(ground)[0]], [Context("long", passages), Context("q", passages)])
    assert "longer" in failed.notes[FAILED]
    assert FAILED not in answered.notes
    assert answered.usage.memory_tokens == 2 * M


def test_paraphrase_task_depends_only_on_documents_and_is_empty_without_any(tiny_clara: str, ground: Any, services: Services) -> None:
    config = {"model": tiny_clara, "max_new_tokens": 6}
    reader = Component.of("clara_reader", {**config, "task": "paraphrase"}).build(services)
    passages = tuple(ground.corpus[:1])
    item, other, nothing = reader.read(
        [Query("a", "What?"), Query("b", "Where is it?"), Query("c", "Who?")],
        [Context("a", passages), Context("b", passages), Context("c")],
    )
    # What is asked does not count, the document does.
    assert item == other
    assert nothing.text == ""
    assert FAILED not in nothing.notes


def test_clara_text_prompt_has_text_instead_of_memory(tiny_llama: str, ground: Any, services: Services) -> None:
    reader = Component.of("clara_text", {"model": tiny_llama, "max_new_tokens": 6}).build(services)
    query = queries(ground)[:1]
    short, passages = ground.corpus[:1], ground.corpus[:2]
    without, item, two = reader.read([*query] * 3, [Context("q"), Context("q", tuple(short)), Context("q", tuple(passages))])
    assert without.usage.prompt_tokens < item.usage.prompt_tokens < two.usage.prompt_tokens
    added = two.usage.prompt_tokens - item.usage.prompt_tokens
    # Byte-level: a document costs its bytes and the empty line before it.
    assert added == len(f"\n\n{passages[1].full_text}".encode())
    assert two.usage.memory_tokens == 0
    assert "Background" not in query[0].text


def test_text_beyond_the_limit_loses_its_last_passages(tiny_llama: str, services: Services) -> None:
    reader = Component.of("clara_text", {"model": tiny_llama, "max_new_tokens": 6, "max_length": 400}).build(services)
    passages = tuple(Passage(f"p{n}", "", "x" * 300) for n in range(5))
    (result,) = reader.read([Query("q", "What?")], [Context("q", passages)])
    kept = result.notes[TRUNCATED]["kept"]
    assert 0 < kept < 5
    (fewer,) = reader.read([Query("q", "What?")], [Context("q", passages[:kept])])
    assert (fewer.text, fewer.usage) == (result.text, result.usage)
    assert fewer.notes == {}


def test_checkpoint_names_its_base_for_clara_text(tiny_clara: str, tiny_llama: str) -> None:
    of_checkpoint = Component.of("clara_text", {"model": tiny_clara})
    of_base = Component.of("clara_text", {"model": tiny_llama, "max_length": 64})
    weights = [item.describe()["weights"] for item in (of_checkpoint, of_base)]
    assert weights[0] == weights[1]
    assert Component.of("clara_text", {"model": tiny_llama}).describe()["weights"] != weights[0]


@pytest.mark.slow
def test_checkpoint_without_a_reasoner_is_refused_unless_the_compressor_ranks(tiny_clara: str, tmp_path: Path, ground: Any) -> None:
    folder = tmp_path / "instruction"
    clara = Clara.load(Path(tiny_clara), "cpu")
    kept = Clara.open(clara.config, ("compressor", "generator"), "cpu")
    kept.save(folder)
    with raises("checkpoint-part-missing"):
        Component.of("clara", {"model": str(folder)}).build(Services(device="cpu"))
    method = assemble(
        Component.of("clara", {"model": str(folder), "query_adapter": "compressor", "max_new_tokens": 2}), Services(device="cpu")
    )
    assert len(answers(method, ground, queries(ground)[:2])) == 2


def test_folder_without_a_checkpoint_is_refused_before_loading(tmp_path: Path, tiny_llama: str) -> None:
    for name in ("clara", "clara_retriever", "clara_reranker", "clara_compressor", "clara_reader"):
        with raises("not-checkpoint-clara"):
            Component.of(name, {"model": tiny_llama}).preflight()


def test_empty_rankings_and_corpora_give_answers_without_documents(tiny_clara: str, ground: Any, services: Services) -> None:
    query = replace(queries(ground)[0], candidates=())
    (item,) = answers(whole(tiny_clara, services), ground, [query])
    assert item.evidence == ()
    assert item.usage.memory_tokens == 0
    method = whole(tiny_clara, services)
    method.index(Corpus.of([]))
    (other,) = method.answer([Query("q", query.text)])
    assert other.answer == item.answer
