"""Parts that search with other indexes: the cost of these is theirs, and the batches of a run are the same in any order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import registry as datasets
from benchmarks.corpus import Corpus
from benchmarks.schema import GoldQuery, Passage, Query
from benchmarks.settings import Setting, apply
from methods.api import RERANKER_TRUNCATED, TRUNCATED, Ranking, Services
from methods.composed import Composed
from methods.flow import each, run
from methods.models.encoder import QUERIES
from methods.models.question_vectors import QuestionVectors
from methods.pipeline import assemble
from methods.registry import Component

WORLD, OPTIONS = "worlds/long:validation", {"questions": 4, "worlds": 1}
LLM = {"scripted": WORLD, "options": OPTIONS}


def test_notes_of_a_search_are_kept_by_what_searches() -> None:
    class Noting:
        def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
            return [Ranking(query.id, ("a",), (1.0,), notes={"inner": {"fallback": "dense"}}) for query in queries]

        def index(self, corpus: Corpus, folder: Path | None = None) -> Any:
            return self

    question = datasets.load(WORLD, OPTIONS).questions[0]
    corpus = Corpus.of([Passage("a", "", "a text")])
    for name, config in {"self_ask": {"llm": LLM}, "rq_rag_prompted": {"llm": LLM}, "has_answer_order": {}, "hybrid": {}}.items():
        made: Any = Component.of(name, config).build(Services(device="cpu"))
        made._retriever = Noting()
        made._retrievers = [Noting(), Noting()]
        index = made.index(corpus)
        query = GoldQuery("q", question.text, question=question)
        notes = run(made.answer_one(query)).notes if name == "self_ask" else each(index, "retrieve", [query], 1)[0].notes
        assert (name, notes.get("inner")) == (name, {"fallback": "dense"})


@pytest.mark.slow
def test_the_cost_of_building_an_index_is_also_that_of_what_searches_it(tiny_encoder: str, tmp_path: Path) -> None:
    world = apply(Setting.parse("document"), datasets.load(WORLD, OPTIONS), 0)
    document = world.questions[0].document_id
    questions = [question for question in world.questions if question.document_id == document]
    corpus = Corpus.of([passage for passage in world.corpus if passage.document_id == document])
    own = {"llm": LLM, "encoder": {"model": tiny_encoder}, "reduction": "svd"}

    def cost(name: str, config: Any) -> Any:
        method: Any = assemble(Component.of(name, config), Services(cache=tmp_path / "cache.sqlite", device="cpu"))
        if hasattr(method, "prepare"):
            method.prepare(questions)
        indexed = method.index(corpus)
        return replace(method.build_for([question.query() for question in questions]) or indexed.usage, seconds={})

    alone, raptor = cost("raptor", own), {"id": "raptor", "config": own}
    assert alone.model_calls > 0
    assert cost("hybrid", {"retrievers": ["bm25", raptor]}) == alone
    assert cost("has_answer_order", {"retriever": raptor}) == alone
    assert cost("rq_rag_prompted", {"retriever": raptor, "llm": LLM}) == alone
    assert cost("self_ask", {"retriever": raptor, "llm": LLM}) == alone


def test_of_two_truncations_the_larger_share_is_reported() -> None:
    def index(key: str, share: float, **more: Any) -> Any:
        return SimpleNamespace(notes={key: {"limit": 256, "share": share}, **more})

    for key in (TRUNCATED, RERANKER_TRUNCATED):
        parts = index(key, 0.6, preset=1), index(key, 0.0), SimpleNamespace()
        assert Composed(*parts).notes == {key: {"limit": 256, "share": 0.6}, "preset": 1}


def test_options_of_speed_and_cost_within_a_composed_retriever_change_no_fingerprint() -> None:
    def described(llm: dict[str, Any], hosted: dict[str, Any]) -> tuple[str, Any]:
        writing = {"id": "hyde", "config": {"llm": {"model": "m", **llm}}}
        vectors = {"id": "hosted_dense", "config": {"model": "v", "base_url": "http://127.0.0.1:9/v1", **hosted}}
        fused = {"id": "hybrid", "config": {"retrievers": ["bm25", writing, vectors]}}
        component = Component.of("self_ask", {"llm": LLM, "retriever": fused})
        return component.fingerprint, component.describe()["config"]["retriever"]

    plain, config = described({}, {})
    speed = {"concurrency": 2, "attempts": 3, "timeout_s": 9.0}
    changed, other = described({**speed, "headers": {"x-team": "a"}, "key_variable": "MY_KEY"}, {**speed, "key_variable": "MY_KEY"})
    assert (changed, other) == (plain, config)
    assert described({"temperature": 0.2}, {})[0] != plain != described({}, {"parameters": {"dimensions": 8}})[0]


class ByBatch:
    """Encoder whose vectors show their batch, as those of a processor do in their last bits."""

    dimension = 2

    def __init__(self) -> None:
        self.batches: list[int] = []

    def queries(self, texts: Sequence[str]) -> Any:
        self.batches.append(len(texts))
        return np.array([[len(text), len(texts)] for text in texts], np.float32)


def test_vectors_of_a_run_depend_neither_on_order_nor_on_company() -> None:
    texts = [f"question {number}" for number in range(QUERIES + 8)]
    queries = [Query(str(number), text) for number, text in enumerate(texts)]

    def vectors(batches: Sequence[Sequence[str]]) -> dict[str, list[float]]:
        made = QuestionVectors(ByBatch())  # type: ignore[arg-type]
        made.build_for(queries)
        return {text: row.tolist() for batch in batches for text, row in zip(batch, made.of(batch), strict=True)}

    rewritten = ["a rewrite", "another"]
    expected = vectors([texts, *([text] for text in rewritten)])
    assert expected == vectors([[text] for text in reversed([*texts, *rewritten])]) == vectors([rewritten + texts[5:], texts[:5]])
    assert {row[1] for row in expected.values()} == {QUERIES, 8, 1}


def test_without_a_run_all_texts_are_one_batch() -> None:
    encoder = ByBatch()
    assert QuestionVectors(encoder).of([]).shape == (0, 2)  # type: ignore[arg-type]
    assert QuestionVectors(encoder).of(["a", "b"]).tolist() == [[1, 2], [1, 2]]  # type: ignore[arg-type]
    assert encoder.batches == [2]
