"""Checkpoints behind an endpoint: the same scores as from local weights, and a refusal where log-probabilities are missing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query, passage_id
from methods.api import FAILED, Ranking, Services
from methods.baselines.end_to_end.flare import FlareConfig
from methods.baselines.rerank.rank1 import settled
from methods.flow import each, run
from methods.models.causal import CausalConfig, CausalModel
from methods.models.likelihood import ScoringConfig
from methods.models.reply import Completion, Logprobs
from methods.pipeline import assemble
from methods.registry import Component
from methods.served import ServedModel
from tests.support.errors import raises
from tests.support.vllm import VLLM, Weights
from tools.tiny_checkpoints import make

pytestmark = pytest.mark.slow

pytest.importorskip("torch")
INFINITE = float("inf")
QUERY = Query("q", "where was the old painter born ?")
TEXTS = [f"The {n} old bridge is of stone. " * (1 + n % 3) for n in range(4)]
CORPUS = Corpus.of(Passage(passage_id("", text, str(n)), "", text, (), str(n)) for n, text in enumerate(TEXTS))
RANKING = Ranking("q", tuple(CORPUS.ids), (4.0, 3.0, 2.0, 1.0))


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny Qwen2.5 that was taught to end some of its thoughts with a verdict."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = tmp_path_factory.mktemp("judge")
    make(folder, ["qwen2.5"])
    path = str(folder / "qwen2.5")
    tokenizer, model = AutoTokenizer.from_pretrained(path), AutoModelForCausalLM.from_pretrained(path)
    rows = rank1(path).encoded(QUERY.text, TEXTS)
    ends = ["Yes.</think> true", "No.</think> false", "It may be. Perhaps", "Yes.</think> true"]
    items = [(row, tokenizer(end, add_special_tokens=False)["input_ids"]) for row, end in zip(rows, ends, strict=True)]
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(40):
        loss = sum(model(torch.tensor([[*row, *end]]), labels=torch.tensor([[-100] * len(row) + end])).loss for row, end in items)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.save_pretrained(path)
    return path


def rank1(model: str, services: Services | None = None, **options: Any) -> Any:
    values = {"model": model, "max_length": 256, "max_new_tokens": 12, "prompt": "ours", **options}
    return Component.of("rank1", values).build(services or Services(device="cpu"))


@contextmanager
def serving(folder: str, **options: Any) -> Iterator[tuple[Weights, str]]:
    """Serve a checkpoint for the length of a block; gives it and the base URL."""
    weights = Weights(folder, **options)
    with VLLM("judge", weights=weights).running() as url:
        yield weights, url


def endpoint(url: str, **options: Any) -> dict[str, Any]:
    return {"model": "judge", "base_url": url, "key_variable": None, "attempts": 1, **options}


@pytest.fixture(scope="module")
def server(judge: str) -> Iterator[tuple[Weights, str]]:
    with serving(judge) as served:
        yield served


def test_rank1_scores_of_an_endpoint_equal_those_of_local_weights(judge: str, server: tuple[Weights, str], tmp_path: Path) -> None:
    served, url = server
    (local,) = each(rank1(judge), "rerank", [QUERY], [RANKING], CORPUS)
    services = Services(device="cpu", cache=tmp_path / "cache.sqlite")
    made = rank1(judge, services, endpoint=endpoint(url))
    before = len(served.requests)
    (result,) = each(made, "rerank", [QUERY], [RANKING], CORPUS)
    unfinished = local.notes["rank1"]["fallbacks"]["unfinished"]
    assert 0 < unfinished < len(TEXTS)
    assert len(served.requests) - before == len(TEXTS) + unfinished
    assert result.notes == {"rank1": {"calls": len(TEXTS) + unfinished, "fallbacks": {"unfinished": unfinished}}}
    assert result.ids == local.ids
    assert list(result.scores) == pytest.approx(list(local.scores), abs=1e-4)
    assert result.usage.prompt_tokens > local.usage.prompt_tokens > 0
    (again,) = each(rank1(judge, services, endpoint=endpoint(url)), "rerank", [QUERY], [RANKING], CORPUS)
    assert again.scores == result.scores
    assert len(served.requests) - before == len(TEXTS) + unfinished


def test_flare_writes_the_same_sentences_and_searches_by_an_endpoint(tiny_llama: str, tmp_path: Path) -> None:
    options = {"model": tiny_llama, "retriever": "bm25", "k": 1, "max_new_tokens": 6, "sentences": 2}
    with serving(tiny_llama) as (served, url):
        services = Services(device="cpu", cache=tmp_path / "cache.sqlite", artifacts=tmp_path / "artifacts")
        made = [assemble(Component.of("flare", options | more), services) for more in ({}, {"endpoint": endpoint(url)})]
        predictions = []
        for method in made:
            method.index(CORPUS)
            predictions.extend(method.answer([QUERY]))
    local, remote = predictions
    assert 0 < len(served.requests) < remote.usage.model_calls  # an equal prompt comes from the cache
    assert remote.usage.model_calls == local.usage.model_calls
    assert (remote.answer, remote.evidence, remote.notes["flare"]) == (local.answer, local.evidence, local.notes["flare"])
    assert remote.usage.prompt_tokens == local.usage.prompt_tokens
    assert [call.prompt for call in remote.calls] == [call.prompt for call in local.calls]


def test_log_probabilities_of_a_continuation_equal_those_of_local_weights(tiny_llama: str) -> None:
    local = CausalModel(CausalConfig(model=tiny_llama, max_new_tokens=8), "cpu")
    ids = local.encode("Where was the painter born?")
    (made,) = local.generate([ids])
    (values,) = local.logprobs([(ids, made.tokens)], ScoringConfig())
    with serving(tiny_llama) as (_, url):
        options = FlareConfig.model_validate({"model": tiny_llama, "max_new_tokens": 8, "endpoint": endpoint(url)})
        written = run(ServedModel(options, Services(), "test").write(ids))
    assert (written.generation.tokens, written.generation.text) == (made.tokens, made.text)
    assert list(written.logprobs) == pytest.approx(values, abs=1e-4)


def test_endpoint_without_log_probabilities_is_refused_before_the_first_question(tiny_llama: str, tmp_path: Path) -> None:
    with serving(tiny_llama, ids=False) as (_, url):
        config = FlareConfig.model_validate({"model": tiny_llama, "endpoint": endpoint(url)})
        with raises("no-token-logprobs", "judge"):
            config.reach(tmp_path / "cache.sqlite")


def test_rank1_fails_a_question_whose_order_the_returned_tokens_leave_open(judge: str) -> None:
    with serving(judge, most=1) as (_, url):
        (result,) = each(rank1(judge, endpoint=endpoint(url)), "rerank", [QUERY], [RANKING], CORPUS)
    assert result.notes[FAILED].startswith("rank1: ")
    assert result.ids == RANKING.ids


@pytest.mark.parametrize(
    ("bounds", "known"),
    [
        ([(1.0, 1.0), (0.0, 0.0)], True),
        ([(2.0, INFINITE), (1.0, 1.0), (-INFINITE, 0.0)], True),
        ([(2.0, INFINITE), (3.0, INFINITE)], False),
        ([(1.0, INFINITE), (2.0, 2.0)], False),
        ([(-INFINITE, INFINITE), (2.0, 2.0)], False),
        ([(-INFINITE, 0.5), (0.0, 0.0)], False),
        ([(0.0, INFINITE), (-INFINITE, 1.0)], False),
    ],
)
def test_bounds_settle_an_order_if_they_do_not_overlap(bounds: list[tuple[float, float]], known: bool) -> None:
    assert settled(bounds) is known


def test_cached_log_probabilities_are_read_as_they_were_written() -> None:
    completion = Completion("a", "stop", 1, 1, "m", logprobs=Logprobs(("token_id:1",), (-0.5,), {"token_id:1": -0.5}))
    assert Completion.from_json(json.loads(json.dumps(completion.to_json()))) == completion


def test_options_that_the_system_decides_are_refused_for_its_endpoint(tiny_llama: str) -> None:
    for option in ({"max_tokens": 5}, {"temperature": 0.5}, {"batch": True}):
        with pytest.raises(ValueError, match="endpoint"):
            FlareConfig.model_validate({"model": tiny_llama, "endpoint": endpoint("http://localhost:1/v1", **option)})


def test_local_options_keep_their_fingerprint(tiny_llama: str) -> None:
    assert "endpoint" not in Component.of("flare", {"model": tiny_llama, "retriever": "bm25"}).describe()["config"]
