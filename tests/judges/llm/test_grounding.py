"""The grounding judge ranks controls and equals ragas without rounding, from cached replies and under faults."""

from __future__ import annotations

import asyncio
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from benchmarks import registry
from benchmarks.registry import Benchmark
from benchmarks.schema import Question
from judges.judge import RULE, Item, Judge, Score
from judges.llm.grounding import ANSWER_CLAIMS, ANSWER_VERDICTS, STATEMENT_VERDICTS, STATEMENTS, Grounding, GroundingConfig, from_counts
from judges.llm.rule_grounding import RuleGroundingConfig, judge_by_rule
from methods.api import Prediction, Services
from methods.baselines.controls import deal, gold_text
from methods.flow import each
from methods.models.llm import open_llm
from methods.models.reply_cache import ResponseCache
from methods.models.structured import parse
from ragmeter.scripted import NAME
from tests.support.faults import Faults
from tests.support.scripted import WorldTruth

FAITHFUL, CORRECT = "faithfulness", "factual_correctness"
QUESTIONS = 25


@pytest.fixture(scope="module")
def world() -> Benchmark:
    return registry.load("worlds/multihop:test", {})


@pytest.fixture(scope="module")
def truth_url(world: Benchmark) -> Iterator[str]:
    with WorldTruth([world]).server().running() as url:
        yield url


def judge(url: str, cache: Path | None = None, llm: Mapping[str, Any] | None = None, **options: Any) -> Grounding:
    model = {"model": "m", "base_url": url, "key_variable": None, "backoff_s": 0.01, **(llm or {})}
    return Grounding(GroundingConfig.model_validate({"llm": model, **options}), Services(cache=cache))


def items(world: Benchmark, answer: Callable[[Question], str], most: int = QUESTIONS) -> list[Item]:
    return [
        Item(question, Prediction(question.query_id, answer(question)), tuple(world.corpus.get(question.evidence)))
        for question in world.questions[:most]
    ]


def values(made: Any, queries: Sequence[Item]) -> dict[str, list[float | None]]:
    """Return values by measure, from one call for both measures."""
    scores = [made.score(item, calls) for item, calls in zip(queries, each(made, "ask", queries), strict=True)]
    return {measure: [score[measure].value for score in scores] for measure in (FAITHFUL, CORRECT)}


def mean(results: Sequence[float | None]) -> float:
    known = [value for value in results if value is not None]
    return sum(known) / len(known)


def rule(**options: Any) -> Any:
    return judge_by_rule(RuleGroundingConfig(**options), Services())


@pytest.mark.slow
def test_model_judge_ranks_controls_of_a_world_correctly(world: Benchmark, truth_url: str) -> None:
    dealt = deal(world.questions, 0)
    made = judge(truth_url)
    gold = items(world, gold_text)
    right = values(made, gold)
    # Some evidence calls the answer by a shorter name.
    assert mean(right[FAITHFUL]) > 0.9
    assert right[CORRECT] == [1.0] * QUESTIONS
    shuffled = values(made, items(world, lambda question: dealt[question.query_id]))
    assert mean(shuffled[FAITHFUL]) < 0.05
    assert mean(shuffled[CORRECT]) < 0.05
    whole = values(made, items(world, lambda question: world.corpus.get(question.evidence[:1])[0].text, 10))
    assert whole[FAITHFUL] == [1.0] * 10
    assert mean(whole[CORRECT]) < 0.05


@pytest.mark.slow
def test_gold_answers_with_other_passages_are_not_faithful(world: Benchmark, truth_url: str) -> None:
    queries = items(world, gold_text)
    moved = [replace(item, passages=other.passages) for item, other in zip(queries, [*queries[7:], *queries[:7]], strict=True)]
    result = values(judge(truth_url), moved)
    assert mean(result[FAITHFUL]) < 0.1
    assert mean(result[CORRECT]) == 1.0


@pytest.mark.slow
def test_precision_does_not_use_the_reference(world: Benchmark, truth_url: str) -> None:
    query = items(world, gold_text, 2)
    parts = {call.part for mine in each(judge(truth_url, mode="precision"), "ask", query) for call in mine}
    assert parts == {STATEMENTS, STATEMENT_VERDICTS, ANSWER_CLAIMS, ANSWER_VERDICTS}


@pytest.mark.slow
def test_rule_judge_ranks_controls_of_a_world_correctly(world: Benchmark) -> None:
    dealt = deal(world.questions, 0)
    every, made = len(world.questions), rule()
    query = items(world, gold_text, every)
    gold = values(made, query)
    shuffled = values(made, items(world, lambda question: dealt[question.query_id], every))
    whole = values(made, items(world, lambda question: world.corpus.get(question.evidence[:1])[0].text, every))
    assert mean(gold[FAITHFUL]) > 0.9
    # A name such as "Ligleim and the Cradle" is two pieces to the rules.
    assert mean(gold[CORRECT]) > 0.98
    assert mean(shuffled[FAITHFUL]) < 0.1
    assert mean(shuffled[CORRECT]) < 0.1
    assert mean(whole[FAITHFUL]) == 1.0
    assert mean(whole[CORRECT]) < 0.2
    assert values(made, items(world, lambda _: "", 9))[FAITHFUL] == [0.0] * 9
    assert values(made, items(world, lambda _: "I don't know", 9))[CORRECT] == [0.0] * 9
    assert {call.model for mine in each(made, "ask", query[:3]) for call in mine} == {RULE}
    assert Judge.of("rule_grounding").rule
    assert set(Judge.of("rule_grounding").metrics) == {FAITHFUL, CORRECT}


def partly_right(world: Benchmark, most: int = 6) -> list[Item]:
    """Return partly right answers, in prose and as lists."""
    results = []
    sets = [question for question in world.questions if question.answer_set][:most]
    for number, question in enumerate([*world.questions[:most], *sets]):
        passages = tuple(world.corpus.get(question.evidence))
        elsewhere = world.corpus[11 * number + 3].text
        wrong = [question.answers[0], *world.questions[number + 1].answers]
        for answer in (f"{passages[0].text} {elsewhere}", ", ".join(wrong), gold_text(question), "I don't know"):
            results.append(Item(question, Prediction(question.query_id, answer), passages))
    return results


def ragas_values(url: str, cache: Path, queries: Sequence[Item], options: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Return the scores of ragas' own metric objects, through the same client and cache."""
    from ragas.llms.base import InstructorBaseRagasLLM
    from ragas.metrics.collections import FactualCorrectness, Faithfulness

    model = open_llm(judge(url).config.llm, Services(cache=cache), role="ragas")

    class InProcess(InstructorBaseRagasLLM):
        def generate(self, prompt: str, response_model: type[BaseModel]) -> Any:
            (reply,) = model.complete([[{"role": "user", "content": prompt}]], shape=response_model)
            return parse(reply.text, response_model).value

        async def agenerate(self, prompt: str, response_model: type[BaseModel]) -> Any:
            return self.generate(prompt, response_model)

    faithful, correct = Faithfulness(llm=InProcess()), FactualCorrectness(llm=InProcess(), **options)

    async def both(item: Item) -> tuple[float, float]:
        answer, contexts = item.prediction.answer, [passage.full_text for passage in item.passages]
        reference = ", ".join(item.question.answers) if item.question.answer_set else item.question.answers[0]
        entry = await faithful.ascore(user_input=item.question.text, response=answer, retrieved_contexts=contexts)
        other = await correct.ascore(response=answer, reference=reference)
        return float(entry.value), float(other.value)

    return [asyncio.run(both(item)) for item in queries]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "atomicity", "coverage", "most"), [("f1", "high", "low", 2), ("precision", "low", "low", 3), ("recall", "high", "high", 3)]
)
def test_scores_equal_ragas_on_the_same_replies(
    world: Benchmark, tmp_path: Path, mode: str, atomicity: str, coverage: str, most: int
) -> None:
    options = {"mode": mode, "atomicity": atomicity, "coverage": coverage}
    server = WorldTruth([world]).server()
    queries, cache = partly_right(world, most), tmp_path / "cache.sqlite"
    with server.running() as url:
        made = judge(url, cache, **options)
        ours = [made.score(item, calls) for item, calls in zip(queries, each(made, "ask", queries), strict=True)]
        sent = server.calls
        theirs = ragas_values(url, cache, queries, options)
        # The very same prompts and JSON shapes: every call that ragas makes is answered from our cache.
        assert server.calls == sent
    assert len({score[FAITHFUL].value for score in ours}) > 3
    assert len({score[CORRECT].value for score in ours}) > 3
    for score, (faithful, correct) in zip(ours, theirs, strict=True):
        assert score[CORRECT].value == pytest.approx(correct, abs=0.005)  # ragas rounds to two decimals
        if math.isnan(faithful):
            assert score[FAITHFUL] == Score(None, "no claim was found in the answer")
        else:
            assert score[FAITHFUL].value == faithful


counts = st.lists(st.integers(0, 1), max_size=12)


@pytest.mark.slow
@given(answer=counts, reference=counts)
def test_arithmetic_equals_ragas(answer: list[int], reference: list[int]) -> None:
    from ragas.metrics.utils import fbeta_score

    tp, fp, fn = sum(answer), len(answer) - sum(answer), len(reference) - sum(reference)
    assert from_counts(answer, reference, "f1") == pytest.approx(fbeta_score(tp, fp, fn), abs=1e-12)
    assert from_counts(answer, reference, "precision") == pytest.approx(tp / (tp + fp + 1e-8), abs=1e-7)
    assert from_counts(answer, reference, "recall") == pytest.approx(tp / (tp + fn + 1e-8), abs=1e-7)
    three = [from_counts(answer, reference, mode) for mode in ("precision", "f1", "recall")]
    assert all(0 <= value <= 1 for value in three)
    assert min(three[0], three[2]) - 1e-12 <= three[1] <= max(three[0], three[2]) + 1e-12


@pytest.mark.slow
def test_every_item_is_accounted_for_under_corruption_and_failed_calls(world: Benchmark, tmp_path: Path) -> None:
    queries = partly_right(world)
    with WorldTruth([world]).server().running() as url:
        clean = judge(url)
        expected = [clean.score(item, calls) for item, calls in zip(queries, each(clean, "ask", queries), strict=True)]
    faults = Faults(passing=0.2, seed=1)
    truth = WorldTruth([world], corruption=0.2, faults=faults, seed=2)
    with truth.server().running() as url:
        made = judge(url, tmp_path / "cache.sqlite", {"timeout_s": 1.0, "attempts": 8, "concurrency": 32})
        calls = each(made, "ask", queries)
    assert sum(truth.corrupted.values()) >= 10
    assert sum(faults.played.values()) >= 10
    unscored = 0
    for item, mine, known in zip(queries, calls, expected, strict=True):
        score = made.score(item, mine)
        for measure in (FAITHFUL, CORRECT):
            if score[measure].value is None:
                assert score[measure].unscored
                unscored += known[measure].value is not None
            else:
                assert score[measure] == known[measure]  # no corrupted reply is read as an opinion
    assert 0 < unscored < 2 * len(queries)
    for call in (call for mine in calls for call in mine):
        assert (call.parsed.value is None) == bool(call.parsed.unscored)


@pytest.mark.slow
def test_cached_replies_give_equal_scores_without_calls_key_or_ragas(
    world: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries, cache = partly_right(world), tmp_path / "cache.sqlite"
    server = WorldTruth([world], corruption=0.1).server()
    with server.running() as url:
        made = judge(url, cache)
        calls = each(made, "ask", queries)
        scores = [made.score(item, mine) for item, mine in zip(queries, calls, strict=True)]
        sent = server.calls
        assert [[(call.part, call.key, call.parsed) for call in mine] for mine in each(judge(url, cache), "ask", queries)] == [
            [(call.part, call.key, call.parsed) for call in mine] for mine in calls
        ]
        again = server.calls - sent
    failed = {call.key for mine in calls for call in mine if call.parsed.unscored}
    assert again <= len(failed)  # only an empty reply, which is not cached, is requested again
    assert all(call.model == NAME for mine in calls for call in mine if call.parsed.value)

    monkeypatch.setitem(sys.modules, "ragas", None)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    kept = {entry.key: json.loads(entry.reply)["text"] for entry in ResponseCache(cache).entries()}
    reader = Grounding(GroundingConfig.model_validate({"llm": {"model": "m"}}), Services())
    replayed = [
        [replace(call, parsed=reader.parse(call.part, kept[call.key])) if call.key in kept else call for call in mine] for mine in calls
    ]
    assert [reader.score(item, mine) for item, mine in zip(queries, replayed, strict=True)] == scores
    # Another policy on the same replies: the mode.
    strict = Grounding(GroundingConfig.model_validate({"llm": {"model": "m"}, "mode": "precision"}), Services())
    precision = [strict.score(item, mine)[CORRECT].value for item, mine in zip(queries, replayed, strict=True)]
    assert precision != [score[CORRECT].value for score in scores]
