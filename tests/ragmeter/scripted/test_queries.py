"""With an LLM that knows the world, generated queries retrieve more than the question; it also labels, orders and asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import registry as datasets
from benchmarks.registry import Benchmark
from benchmarks.schema import Question
from methods.api import Ranking, Services
from methods.flow import each
from methods.gpr.masked import MASK, SIDES, MaskedTriple
from methods.gpr.questions import QuestionsConfig, generator_of, questions_of
from methods.gpr.wordings import WorldsQuestions
from methods.graphs.triples import load_graph
from methods.registry import Component
from methods.sark.config import SarkDataConfig
from methods.sark.data import data_of
from tests.support.scripted import WorldTruth

REFERENCE, OPTIONS = "worlds/long:test", {"questions": 24, "worlds": 1, "entities": 60}


@pytest.fixture(scope="module")
def vector_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which vectors are cached between tests."""
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="module")
def benchmark() -> Benchmark:
    return datasets.load(REFERENCE, OPTIONS)


def retrieved(truth: WorldTruth, benchmark: Benchmark, method: str, folder: Path, **config: Any) -> list[Ranking]:
    with truth.server().running() as url:
        llm = {"model": "any", "base_url": url, "key_variable": None, "backoff_s": 0.01}
        options = {"llm": llm, **config} if method != "bm25" else config
        index = Component.of(method, options).build(Services(device="cpu", artifacts=folder)).index(benchmark.corpus)
        return list(each(index, "retrieve", [question.query() for question in benchmark.questions], 20))


def recall(questions: Any, rankings: list[Ranking], k: int = 5) -> float:
    def share(question: Question, ranking: Ranking) -> float:
        return len(set(question.evidence) & set(ranking.ids[:k])) / len(question.evidence)

    return sum(map(share, questions, rankings)) / len(rankings)


@pytest.mark.slow
def test_scripted_sub_questions_retrieve_more_than_the_question(benchmark: Benchmark, tmp_path: Path) -> None:
    truth = WorldTruth([benchmark], config=OPTIONS)
    plain = retrieved(truth, benchmark, "bm25", tmp_path)
    refined = retrieved(truth, benchmark, "rq_rag_prompted", tmp_path, retriever="bm25", per_query=10)
    assert truth.unrecognized == 0
    assert recall(benchmark.questions, refined, 10) > recall(benchmark.questions, plain, 10) + 0.05
    assert all(ranking.usage.model_calls == 3 for ranking in refined)


@pytest.mark.slow
def test_scripted_answer_passages_retrieve_more_than_the_question(benchmark: Benchmark, vector_cache: Path) -> None:
    truth = WorldTruth([benchmark], config=OPTIONS)
    plain = retrieved(truth, benchmark, "hyde", vector_cache, samples=0)
    written = retrieved(truth, benchmark, "hyde", vector_cache, samples=1)
    assert truth.unrecognized == 0
    assert recall(benchmark.questions, written) > recall(benchmark.questions, plain) + 0.05


@pytest.mark.slow
def test_every_question_gets_a_ranking_with_a_fifth_of_replies_corrupted(benchmark: Benchmark, vector_cache: Path) -> None:
    truth = WorldTruth([benchmark], config=OPTIONS, corruption=0.2)
    for method, config in (("rq_rag_prompted", {"retriever": "bm25"}), ("hyde", {"samples": 1})):
        rankings = retrieved(truth, benchmark, method, vector_cache, **config)
        assert len(rankings) == len(benchmark.questions)
        assert all(ranking.ids for ranking in rankings)
    assert sum(truth.corrupted.values()) > 10


def test_sark_labels_and_orders_need_no_server(tmp_path: Path) -> None:
    options = {"questions": 20, "mix": {"single": 1.0}}
    llm = {"scripted": "worlds/multihop:train", "options": options}
    part = {"by": "llm", "llm": llm}
    config = SarkDataConfig.model_validate({"labels": {**part, "passages": "list"}, "lists": {**part, "keep_evidence": True}})
    world = datasets.load("worlds/multihop:train", options)
    services = Services(cache=tmp_path / "replies.sqlite", device="cpu")
    made = data_of(config, [world], services, tmp_path / "work")
    # A model that a passage helps does not know the answer; one that it misleads does, unless the passage is evidence.
    assert {row.label for row in made.rows} == {0, 1}
    evidence = {question.id: set(question.evidence) for question in world.questions}
    assert all(row.passage_id in evidence[row.question_id] for row in made.rows if row.label == 1)
    assert made.counts["lists"] == len({row.question_id for row in made.rows if row.list})
    assert all(row.list_ids[0] in evidence[row.question_id] for row in made.rows if row.list)


def test_questions_about_triples_need_no_server(tmp_path: Path) -> None:
    options = {"entities": 60, "community": 60, "triples": 60}
    graph = load_graph(("worlds/graph:train",), {"worlds": options})
    llm = {"scripted": "worlds/graph:train", "options": options}
    config = QuestionsConfig.model_validate({"generator": "llm", "llm": llm, "triples": 40})
    made = questions_of(graph, config, generator_of(config, Services(cache=tmp_path / "replies.sqlite", device="cpu")))
    # It does not see the hidden entity, but uses the words of the relation.
    rows = zip(made.triples.tolist(), made.sides.tolist(), strict=True)
    shown = [
        ((MASK, relation, tail) if side == 0 else (head, relation, MASK), SIDES[side])
        for (head, relation, tail), side in ((graph.triples[row], side) for row, side in rows)
    ]
    assert made.texts == WorldsQuestions().generate([MaskedTriple(*item) for item in shown])
    plain = QuestionsConfig.model_validate({"triples": 40})
    assert len(made) == len(questions_of(graph, plain, generator_of(plain, Services())))
