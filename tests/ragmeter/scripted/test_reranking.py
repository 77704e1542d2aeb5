"""With an LLM that knows the world, each reranker ranks every positive first, and always returns a permutation."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import registry as datasets
from benchmarks.registry import Benchmark
from methods.api import Ranking, Services
from methods.flow import each
from methods.registry import Component
from ragmeter.scripted import WorldTruth
from tests.support.server import OpenAIServer, Written

REFERENCE, OPTIONS = "worlds/multihop:validation", {"questions": 10, "worlds": 2}
SYSTEMS = {
    "rankgpt": {"window": 4, "step": 2},
    "rankzephyr": {},
    "reasonrank": {},
    "setwise": {},
    "setwise, bubblesort": {"sort": "bubblesort", "children": 2},
    "rank_r1": {},
    "ddr_refiner": {},
    "dro": {},
    "rank_r1, direct, three votes": {"reasons": False, "children": 9, "votes": 3, "k": 4},
}
WRAPPED = "wrapped"
"""The only corruption after which a reply stays readable."""


@pytest.fixture(scope="module")
def benchmark() -> Benchmark:
    return datasets.load(REFERENCE, OPTIONS)


def reranked(benchmark: Benchmark, system: str, corruption: float) -> tuple[list[Ranking], WorldTruth]:
    truth = WorldTruth([benchmark], config=OPTIONS, corruption=corruption)

    def respond(request: Any) -> Written:
        result = truth.reply(request.messages)
        return Written(result.text, result.prompt_tokens, result.completion_tokens)

    queries = [question.query() for question in benchmark.questions]
    rankings = [Ranking(q.id, tuple(q.candidates or ()), tuple(-float(n) for n in range(len(q.candidates or ())))) for q in queries]
    with OpenAIServer("scripted", respond, any_model=True).running() as url:
        llm = {"model": "any", "base_url": url, "key_variable": None, "attempts": 1}
        reranker = Component.of(system.partition(",")[0], {"llm": llm, **SYSTEMS[system]}).build(Services(device="cpu"))
        results = list(each(reranker, "rerank", queries, rankings, benchmark.corpus))
    assert truth.unrecognized == 0
    for before, after in zip(rankings, results, strict=True):
        assert sorted(before.ids) == sorted(after.ids)
    return results, truth


@pytest.mark.parametrize("system", [name if name == "rankzephyr" else pytest.param(name, marks=pytest.mark.slow) for name in SYSTEMS])
def test_scripted_reranker_ranks_positives_first_and_counts_failures(benchmark: Benchmark, system: str) -> None:
    name = system.partition(",")[0]
    results, _ = reranked(benchmark, system, 0.0)
    for question, result in zip(benchmark.questions, results, strict=True):
        assert set(result.ids[: len(question.evidence)]) == set(question.evidence), question.text
        assert "fallbacks" not in result.notes[name]
        assert result.usage.model_calls == result.notes[name]["calls"] > 0
    for corruption in (0.2, 1.0):
        results, truth = reranked(benchmark, system, corruption)
        counted = sum(sum(result.notes[name].get("fallbacks", {}).values()) for result in results)
        # Each prompt has a separate reply, and corruption is sampled by prompt.
        assert counted == truth.corrupted.total() - truth.corrupted[WRAPPED] > 0
