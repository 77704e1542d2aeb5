"""The contract of test_every_method for retrievers of triples, over the graphs of a world."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks import registry
from benchmarks.graphs import TripleCorpus
from benchmarks.registry import Benchmark
from benchmarks.schema import Query
from methods.api import Method, Ranking, Retriever, Services
from methods.flow import each
from methods.registry import METHODS, Component
from ragmeter.conformance import check_method
from tests.support.errors import raises

torch = pytest.importorskip("torch")
RETRIEVERS = ["gpr", "two_tower", "dpr_nq", "skp", "graph_hybrid", "bm25_triples", "g_retriever", "grag"]
CHOOSY = {"g_retriever", "grag"}
"""Retrievers that choose how many triples of a graph they return."""


@pytest.fixture(scope="module")
def graphs() -> Benchmark:
    """Return questions of a world over only the triples of their own graphs."""
    world = registry.load("worlds/graph:validation", {"questions": 4, "triples": 60})
    triples = [triple for question in world.questions for triple in world.extra["graphs"][question.id]]
    return dataclasses.replace(world, corpus=TripleCorpus.of_triples(triples))


@pytest.fixture(scope="module")
def options(tiny_models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Return the options of each retriever: models with random weights."""
    import transformers
    from sentence_transformers import CrossEncoder

    size = len(tiny_models.tokenizer("bert"))
    home = tmp_path_factory.mktemp("models")
    made = {}
    for name, kind, shape in (
        ("encoder", "BertModel", "Bert"),
        ("passages", "DPRContextEncoder", "DPR"),
        ("questions", "DPRQuestionEncoder", "DPR"),
        ("ranker", "BertForSequenceClassification", "Bert"),
    ):
        torch.manual_seed(len(made))
        value = {"num_labels": 1} if name == "ranker" else {}
        model = getattr(transformers, kind)(tiny_models.config(shape, size, **value))
        made[name] = tiny_models.save(home / name, "bert", tiny_models.scaled(model))
    skp = home / "skp"
    shutil.copytree(made["encoder"], skp)
    tiny_models.layout(skp, 64, [tiny_models.pooling("cls")], {"query": "", "document": ""})
    (skp / "ragmeter.json").write_text(json.dumps({"method": "skp", "config": {"linearize": {}}, "sha256": "0"}))
    CrossEncoder(str(made["ranker"]), device="cpu").save_pretrained(str(home / "saved"))
    for name in ("question", "triple"):
        shutil.copytree(made["encoder"], home / "gpr" / name)
        tiny_models.layout(home / "gpr" / name, 64, [tiny_models.pooling("mean")], {"query": "", "document": ""})
    (home / "gpr" / "ragmeter.json").write_text(json.dumps({"method": "gpr", "config": {"linearize": {}}}))
    return {
        "gpr": {"model": str(home / "gpr")},
        "two_tower": {"model": str(made["encoder"]), "pooling": "mean"},
        "bm25_triples": {},
        "g_retriever": {"model": str(made["encoder"])},
        "grag": {"model": str(made["encoder"])},
        "dpr_nq": {"model": str(made["passages"]), "query_model": str(made["questions"])},
        "skp": {"model": str(skp)},
        "graph_hybrid": {
            "model": str(home / "saved"),
            "published": True,
            "sparse_depth": 8,
            "dense_depth": 8,
            "dense": {"id": "two_tower", "config": {"model": str(made["encoder"])}},
        },
    }


@pytest.fixture(params=RETRIEVERS)
def component(request: pytest.FixtureRequest, options: dict[str, dict[str, Any]]) -> Component:
    return Component.of(request.param, options[request.param])


def queries(graphs: Benchmark) -> list[Query]:
    """Return queries of which half have their own graph and half the whole corpus."""
    requests = [question.query() for question in graphs.questions]
    return [query if position % 2 else dataclasses.replace(query, candidates=None) for position, query in enumerate(requests)]


@pytest.mark.slow
def test_every_triple_retriever_fulfills_the_contract(component: Component, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragmeter.conformance.QUESTIONS", 5)
    monkeypatch.setattr("ragmeter.conformance.ALONE", 2)
    assert [check for check in check_method(component) if not check.passed] == []


@pytest.mark.slow
def test_rankings_have_at_most_k_triples_of_the_querys_graph(component: Component, graphs: Benchmark, tmp_path: Path) -> None:
    assert {entry.id for entry in METHODS if entry.over_triples} == set(RETRIEVERS)
    assert component.entry.kind == "retriever"
    retriever = component.build(Services(artifacts=tmp_path, device="cpu"))
    assert isinstance(retriever, Retriever)
    assert not isinstance(retriever, Method)
    index = retriever.index(graphs.corpus)
    requests = queries(graphs)

    def shown(rankings: Sequence[Ranking], k: int) -> list[tuple[Any, ...]]:
        return [(ranking.ids[:k], ranking.scores[:k]) for ranking in rankings]

    long = each(index, "retrieve", requests, 50)
    for k in (0, 3, 40):
        assert shown(each(index, "retrieve", requests, k), k) == shown(long, k)
    for query, ranking in zip(requests, long, strict=True):
        assert len(set(ranking.ids)) == len(ranking.ids)
        assert 0 < len(ranking.ids) <= 50 if component.id in CHOOSY else len(ranking.ids) == 50
        assert set(ranking.ids) <= set(graphs.corpus.ids if query.candidates is None else query.candidates)
        assert list(ranking.scores) == sorted(ranking.scores, reverse=True)
    # A graph smaller than k is returned whole.
    few = dataclasses.replace(requests[0], candidates=tuple(graphs.corpus.ids[4:9]))
    whole, empty = each(index, "retrieve", [few, dataclasses.replace(few, candidates=())], 20)
    if component.id in CHOOSY:
        assert set(whole.ids) <= set(few.candidates or ())
    else:
        assert set(whole.ids) == set(few.candidates or ())
    assert empty.ids == ()
    with raises("candidate-not-corpus"):
        each(index, "retrieve", [Query("q", "who?", candidates=("t0000000000000000",))], 5)
