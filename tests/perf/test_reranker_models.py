"""Time per query, sizes of random stand-in models, and (on an accelerator) relative speed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.core.errors import UserError
from benchmarks.registry import load
from methods.api import Ranking, Services
from methods.registry import Component
from perf import reranking
from perf.reranker_models import (
    ARCHITECTURES,
    StandIn,
    Timing,
    Workload,
    measure,
    measure_reranker,
    measure_stand_in,
    parameters,
    stand_in,
    windows,
)
from tests.support.errors import raises

TINY = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
SMALL = Workload(candidates=25, pair_tokens=12, passage_tokens=3, batch=8, answer_tokens=2)


class FakeClock:
    """Clock that only advances during work, and records events."""

    def __init__(self, seconds: list[float]) -> None:
        self.now, self.seconds, self.events = 0.0, seconds, list[str]()

    def __call__(self) -> float:
        self.events.append("clock")
        return self.now

    def work(self, number: int) -> None:
        self.events.append(f"work {number}")
        self.now += self.seconds[number]


@given(st.lists(st.floats(1e-4, 1e3), min_size=1, max_size=30))
def test_ms_per_query_times_queries_per_second_is_1000(seconds: list[float]) -> None:
    clock = FakeClock(seconds)
    result = measure(clock.work, len(seconds), warm_up=0, clock=clock)
    assert result.ms_per_query * result.queries_per_second == pytest.approx(1000)
    assert result.ms_per_query == pytest.approx(1000 * np.mean(seconds), rel=1e-3)
    assert result.percentile(50) == pytest.approx(1000 * np.median(seconds), rel=1e-3)
    assert result.percentile(50) <= result.percentile(95) <= 1000 * max(result.seconds) * (1 + 1e-9)


def test_percentiles_are_per_query_and_include_slow_queries() -> None:
    result = Timing((0.1,) * 98 + (5.0,) * 2)
    assert (result.percentile(50), result.percentile(95)) == pytest.approx((100, 100))
    assert result.percentile(99) == pytest.approx(5000)


def test_timing_synchronizes_the_device_and_excludes_warm_up() -> None:
    clock = FakeClock([1.0, 2.0])
    result = measure(clock.work, 2, warm_up=3, clock=clock, synchronize=lambda: clock.events.append("wait"))
    timed = [["wait", "clock", f"work {number}", "wait", "clock"] for number in (0, 1)]
    assert clock.events == ["work 0", "work 1", "work 0", *timed[0], *timed[1]]
    assert result.seconds == (1.0, 2.0)


@pytest.mark.slow
def test_random_stand_in_models_have_the_published_sizes() -> None:
    """Models are not allocated."""
    published = {
        "minilm-l6": 22.7e6,
        "minilm-l12": 33.4e6,
        "bge-base": 278e6,
        "bge-large": 560e6,
        "rankllama-7b": 6.61e9,
        "rankgpt-7b": 7.62e9,
    }
    for name, size in published.items():
        assert parameters(ARCHITECTURES[name]) == pytest.approx(size, rel=0.005), name
    base, sark = (parameters(ARCHITECTURES[name]) for name in ("bge-base", "sark-base"))
    # The original head is 768 × 768 and 768 × 1, SARK's 768 × 256 and 256 × 1, with their biases.
    assert base - sark == (768 * 768 + 768 + 768 + 1) - (768 * 256 + 256 + 256 + 1)


def tiny(name: str) -> StandIn:
    known = ARCHITECTURES[name]
    shared = {key: value for key, value in known.config.items() if key not in TINY}
    if "num_key_value_heads" in shared:
        shared["num_key_value_heads"] = 1
    return StandIn(replace(known, config={**shared, **TINY}), "float32", "cpu")


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_random_stand_in_model_ranks_all_candidates(name: str) -> None:
    model = tiny(name)
    for candidates in (1, 8, 9, 25):
        work = replace(SMALL, candidates=candidates)
        assert sorted(model.rerank(0, work)) == list(range(candidates))
        assert model.rerank(0, work) == tiny(name).rerank(0, work)
    timing = measure_stand_in(model, 2, SMALL)
    assert len(timing.seconds) == 2
    assert timing.ms_per_query > 0


def counted(model: StandIn, name: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []
    original = getattr(model.model, name)

    def call(*positional: Any, **inputs: Any) -> Any:
        calls.append(tuple(inputs["input_ids"].shape))
        return original(*positional, **inputs)

    monkeypatch.setattr(model.model, name, call)
    return calls


def test_pairs_are_batched_and_windows_are_separate_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = tiny("sark-base")
    shapes = counted(pairs, "forward", monkeypatch)
    pairs.rerank(0, SMALL)
    assert shapes == [(8, 12)] * 3 + [(1, 12)]
    lists = tiny("rankgpt-7b")
    shapes = counted(lists, "generate", monkeypatch)
    lists.rerank(0, replace(SMALL, candidates=50))
    assert shapes == [(1, 20 * 3)] * 4


def test_pair_longer_than_the_context_is_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("rankllama-7b")
    shapes = counted(model, "forward", monkeypatch)
    model.rerank(0, replace(SMALL, pair_tokens=300, candidates=2))
    assert shapes == [(2, 196)]


@given(st.integers(0, 200))
def test_windows_cover_the_whole_list_from_its_tail(candidates: int) -> None:
    results = windows(candidates)
    assert sorted({position for start, end in results for position in range(start, end)}) == list(range(candidates))
    assert all(end - start <= 20 for start, end in results)
    if candidates > 20:
        assert len(results) == math.ceil((candidates - 20) / 10) + 1
        assert (results[0][1], results[-1][0]) == (candidates, 0)
        # The passages that one window ranks first are in the next window again.
        assert all(later[1] > earlier[0] for earlier, later in pairwise(results))


def test_fifty_candidates_need_the_four_window_calls_of_the_paper() -> None:
    assert windows(50) == [(30, 50), (20, 40), (10, 30), (0, 20)]
    assert windows(25) == [(5, 25), (0, 15)]


def test_reranker_is_timed_as_called_by_a_pipeline() -> None:
    benchmark = load("worlds/multihop:test").limited(4)
    queries = [question.query() for question in benchmark.questions]
    rankings = [Ranking(q.id, tuple(q.candidates or ()), (0.0,) * len(q.candidates or ())) for q in queries]
    reranker = Component.of("bm25_reranker").build(Services())
    requests: list[int] = []
    rerank = reranker.rerank
    reranker.rerank = lambda *arguments: requests.append(len(arguments[0])) or rerank(*arguments)
    timing = measure_reranker(reranker, queries, rankings, benchmark.corpus, "cpu")
    # One query at a time, and one more to warm up.
    assert requests == [1] * 5
    assert len(timing.seconds) == 4


def rows_of(response: str) -> list[list[str]]:
    """Return the words of each row below the head of the figure."""
    lines = response.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("reranker"))
    return [line.split() for line in lines[start + 1 :]]


@pytest.fixture
def cross_encoder(module_at: Callable[[Path], ModuleType], tmp_path: Path) -> str:
    import torch
    import transformers

    tiny_models = module_at(Path(__file__).parents[1] / "methods" / "tiny_models.py")
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(tiny_models.config("Bert", 200, num_labels=1))
    return str(tiny_models.save(tmp_path / "hash" / "reranker", "bert", model))


@pytest.mark.slow
def test_figure_6_is_measured_on_real_rerankers_in_every_type_and_batch(
    cross_encoder: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[Any] = []
    shapes: list[tuple[int, int, int]] = []

    def measured(reranker: Any, queries: Any, rankings: Any, corpus: Any, device: str) -> Timing:
        if hasattr(reranker, "model"):
            built.append(reranker.config)
        shapes.append((len(queries), len(rankings), len(rankings[0].ids)))
        assert measure_reranker(reranker, queries, rankings, corpus, device).ms_per_query > 0
        return Timing((0.1, 0.1, 0.4))

    monkeypatch.setattr(reranking, "measure_reranker", measured)
    options = json.dumps({"model": cross_encoder, "max_length": 64})
    arguments = ["--reranker", f"cross_encoder={options}", "--reranker", "bm25_reranker", "--device", "cpu"]
    sizes = ["--queries", "3", "--candidates", "12", "--dtypes", "float32,bfloat16", "--batches", "4,8"]
    assert reranking.main([*arguments, *sizes]) == 0
    response = capsys.readouterr().out
    assert "3 queries of worlds/multihop:test, 12 candidates of " in response
    assert [(config.dtype, config.token_budget) for config in built] == [
        (dtype, batch * 64) for dtype in ("float32", "bfloat16") for batch in (4, 8)
    ]
    assert shapes == [(3, 3, 12)] * 5
    rows = rows_of(response)
    assert [row[:3] for row in rows] == [
        *(["cross_encoder[hash/reranker]", dtype, batch] for dtype in ("float32", "bfloat16") for batch in "48"),
        ["bm25_reranker", "–", "–"],
    ]
    # ms/query, queries/s, median, 95th percentile.
    assert {tuple(row[3:]) for row in rows} == {("200.00", "5.00", "100.00", "370.00")}


def test_explicitly_set_options_are_not_varied(cross_encoder: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = json.dumps({"model": cross_encoder, "dtype": "bfloat16", "token_budget": 640})
    setting = ["--setting", "corpus(retriever=bm25,n=3)", "--config", '{"candidates": 12}']
    few = ["--queries", "2", "--candidates", "3", "--device", "cpu"]
    arguments = ["--reranker", f"cross_encoder={options}", "--dtypes", "float32,float16", "--batches", "1,2"]
    assert reranking.main([*arguments, *few, *setting]) == 0
    (row,) = rows_of(capsys.readouterr().out)
    assert row[1:3] == ["bfloat16", "–"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bm25_rerankr"], "bm25_reranker"),
        (["bm25"], "is a retriever, not a reranker"),
        (["bm25_reranker={"], "not JSON"),
        (["bm25_reranker=[1]"], "no JSON object"),
        (['bm25_reranker={"k2": 1}'], "k2"),
        (["bm25_reranker", "--config", "questions=2"], "not JSON"),
        (["bm25_reranker", "--config", '{"candidates": 10}'], "10 candidates, not 50"),
    ],
)
def test_untimeable_reranker_is_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(UserError) as caught:
        reranking.main(["--reranker", *arguments, "--queries", "2", "--device", "cpu"])
    assert message in f"{caught.value.what} {caught.value.try_this}"


def test_unknown_architecture_is_reported() -> None:
    with raises("unknown-architecture") as caught:
        stand_in("sark-bass", "float32", "cpu")
    assert "sark-base" in str(caught.value.try_this)


@pytest.mark.gpu
def test_sark_is_ten_times_faster_than_a_llama_of_seven_billion_and_than_rankgpts_calls(capsys: pytest.CaptureFixture[str]) -> None:
    """Figure 6 on stand-ins: 50 passages of 100 words, one query at a time."""
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    work, result = Workload(), {}
    for name in ("minilm-l6", "sark-base", "bge-base", "bge-large", "rankllama-7b", "rankgpt-7b"):
        model = stand_in(name, "bfloat16", "cuda")
        result[name] = measure_stand_in(model, 3 if name == "rankgpt-7b" else 10, work)
        del model
        torch.cuda.empty_cache()
    with capsys.disabled():
        print(f"\n{torch.cuda.get_device_name()}, bfloat16, {work}")
        for name, timing in result.items():
            print(
                f"{name:<14}{timing.ms_per_query:9.2f} ms/query {timing.queries_per_second:8.2f} queries/s   "
                f"p50 {timing.percentile(50):.2f}, p95 {timing.percentile(95):.2f} ms"
            )
    ms = {name: timing.percentile(50) for name, timing in result.items()}
    assert ms["rankllama-7b"] >= 10 * ms["sark-base"]
    assert ms["rankgpt-7b"] >= 10 * ms["sark-base"]
    # The two-layer head costs as much as the original one.
    assert ms["sark-base"] == pytest.approx(ms["bge-base"], rel=0.2)
