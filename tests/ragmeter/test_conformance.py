from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.corpus import Corpus
from benchmarks.registry import DATASETS
from benchmarks.schema import Query
from methods.api import Evidence, Prediction, Services, Usage
from methods.registry import METHODS, Component, MethodConfig, MethodEntry
from ragmeter.conformance import check_dataset, check_method

SUBSETS = DATASETS.get("worlds").subsets
WORLDS = [
    *(f"worlds/{subset}:test" for subset in SUBSETS),
    *(pytest.param(f"worlds/{subset}:train", marks=pytest.mark.slow) for subset in SUBSETS),
]


def failed(checks: Iterable) -> dict[str, str]:
    return {check.name: check.detail for check in checks if not check.passed}


@pytest.mark.slow
@pytest.mark.parametrize("reference", WORLDS)
def test_worlds_satisfy_the_dataset_contract(reference: str) -> None:
    # A graph has 1,200 triples for each question.
    assert failed(check_dataset(reference, {"questions": 50} if "graph" in reference else None)) == {}


@pytest.mark.parametrize(
    ("reference", "file"),
    [
        ("hotpotqa:train", "hotpotqa/hotpot_distractor_train50.json"),
        ("2wikimultihopqa:dev", "2wikimultihopqa/2wiki_dev40.json"),
        ("musique:train", "musique/musique_ans_v1.0_train50.jsonl"),
        ("nq:test", "nq/nq-open-oracle.200.jsonl.gz"),
        ("longbench/qasper:test", "longbench/qasper.jsonl"),
        ("ultradomain/mix:all", "ultradomain/mix.jsonl"),
        ("webqsp:test", "webqsp/rog_style_webqsp.jsonl"),
        ("webqsp:test", "webqsp/WebQSP.test.json"),
        ("cwq:test", "cwq/rog_style_cwq.jsonl"),
        ("cwq_tog:test", "cwq/tog_cwq.json"),
    ],
)
def test_real_records_satisfy_the_dataset_contract(reference: str, file: str, data_folder: Path) -> None:
    assert failed(check_dataset(reference, {"path": str(data_folder / file)})) == {}


class Honest:
    """Method without a fault; each test below violates one rule of the contract."""

    def index(self, corpus: Corpus) -> None:
        self.corpus = corpus

    def answer(self, queries: Iterable[Query]) -> Iterator[Prediction]:
        for query in queries:
            yield self.one(query)

    def one(self, query: Query) -> Prediction:
        ids = (query.candidates if query.candidates is not None else self.corpus.ids)[:3]
        evidence = tuple(Evidence(identifier, -float(rank)) for rank, identifier in enumerate(ids))
        return Prediction(query.id, query.text[:5], evidence, Usage(seconds={"read": 0.0}))


class Forgetful(Honest):
    def answer(self, queries: Iterable[Query]) -> Iterator[Prediction]:
        yield from list(super().answer(queries))[1:]


class Repeating(Honest):
    def one(self, query: Query) -> Prediction:
        response = super().one(query)
        return replace(response, evidence=response.evidence + response.evidence[:1])


class Inventing(Honest):
    def one(self, query: Query) -> Prediction:
        return replace(super().one(query), evidence=(Evidence("p-invented", 1.0),))


class Free(Honest):
    def one(self, query: Query) -> Prediction:
        return replace(super().one(query), usage=Usage())


class Counting(Honest):
    """Method whose answer depends on how many queries came before."""

    def answer(self, queries: Iterable[Query]) -> Iterator[Prediction]:
        for number, query in enumerate(queries):
            yield replace(self.one(query), answer=str(number))


class Pooling(Honest):
    """Method whose answer depends on passages of other questions."""

    def one(self, query: Query) -> Prediction:
        return replace(super().one(query), answer=str(len(self.corpus)))


class Straying(Honest):
    """Method that ignores the candidates."""

    def one(self, query: Query) -> Prediction:
        return replace(super().one(query), evidence=(Evidence(self.corpus.ids[0], 1.0),))


class TwoForms(Honest):
    """Method that answers a question in both forms."""

    async def answer_one(self, query: Query) -> Prediction:
        return self.one(query)


class Peeking(Honest):
    def prepare(self, questions: object) -> None: ...


@pytest.mark.parametrize(
    ("method", "broken"),
    [
        (Honest, set()),
        (Forgetful, {"answers every query once"}),
        (Repeating, {"evidence is unique"}),
        (Inventing, {"evidence ids are of the corpus", "evidence keeps to the candidates", "closed book leaves no evidence"}),
        (Free, {"usage is filled"}),
        (Counting, {"invariant to the batch", "invariant to the order"}),
        (Pooling, {"invariant to the other questions"}),
        (Straying, {"evidence keeps to the candidates", "closed book leaves no evidence"}),
        (TwoForms, {"results are one per query, from a role of one form"}),
        (Peeking, {"gold reaches declared controls only"}),
    ],
)
def test_contract_violation_is_detected(method: type[Honest], broken: set[str]) -> None:
    def factory(config: MethodConfig, services: Services) -> Honest:
        return method()

    entry = MethodEntry("test", "method", 1, "s", factory, MethodConfig, None, {}, (), None, None)
    result = failed(check_method(Component(entry, MethodConfig())))
    assert broken <= set(result)
    assert bool(result) == bool(broken)


@pytest.mark.parametrize("name", ["bm25_triples", "g_retriever", "grag", "gpr", "two_tower", "skp", "graph_hybrid"])
def test_retrievers_of_triples_are_checked_over_graphs(name: str) -> None:
    assert METHODS.get(name).over_triples
    assert not METHODS.get("bm25").over_triples


@pytest.mark.parametrize("name", ["bm25_triples", "bm25"])
def test_statistics_over_other_questions_are_detected(name: str) -> None:
    assert failed(check_method(Component.of(name))) == {}
    assert set(failed(check_method(Component.of(name, {"statistics": "corpus"})))) == {"invariant to the other questions"}
