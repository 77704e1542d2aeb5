"""Checkpoints behind an endpoint: the same scores as from local weights, and a refusal where log-probabilities are missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query, passage_id
from methods.api import Ranking, Services
from methods.flow import each
from methods.registry import Component
from tests.support.vllm import CompletionsServer
from tools.tiny_checkpoints import make

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
    given = {"model": model, "max_length": 256, "max_new_tokens": 12, "prompt": "ours", **options}
    return Component.of("rank1", given).build(services or Services(device="cpu"))


def endpoint(url: str, **options: Any) -> dict[str, Any]:
    return {"model": "judge", "base_url": url, "key_variable": None, "attempts": 1, **options}


@pytest.fixture(scope="module")
def server(judge: str) -> Iterator[tuple[CompletionsServer, str]]:
    served = CompletionsServer(judge)
    with served.running() as url:
        yield served, url


def test_rank1_scores_of_an_endpoint_equal_those_of_local_weights(
    judge: str, server: tuple[CompletionsServer, str], tmp_path: Path
) -> None:
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
