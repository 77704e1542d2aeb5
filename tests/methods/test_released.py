"""Released systems from raw text: token ids, vectors, scores and texts equal those of the authors' own code.

What the authors' code made of the same texts is data of its own (`golden/` in the folder of real samples), which is skipped
visibly if it is missing.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from methods.api import Services
from methods.baselines.rerank.log_odds import LogOddsReranker
from methods.registry import Component

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def golden(data_folder: Path) -> Path:
    """The folder of what the authors' code made."""
    folder = data_folder / "golden"
    if not folder.is_dir():
        pytest.skip(f"outputs of the authors' code not found at {folder}")
    return folder


@pytest.fixture(autouse=True)
def _prompts(monkeypatch: pytest.MonkeyPatch, data_folder: Path) -> None:
    monkeypatch.setenv("RAGMETER_DATA", str(data_folder))


def read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def build(identifier: str, **config: Any) -> Any:
    return Component.of(identifier, config).build(Services(device="cpu"))


def sigmoid(odds: float) -> float:
    return 1 / (1 + math.exp(-odds))


def tokenizer_of(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def encoder(identifier: str, tokenizer: Any, **config: Any) -> Any:
    """Make a log-odds reranker that encodes with one of the real tokenizers and has no weights."""
    component = Component.of(identifier, {"model": "none", **config})
    made = component.entry.factory.__new__(component.entry.factory)
    model = SimpleNamespace(config=SimpleNamespace(max_position_embeddings=32768))
    LogOddsReranker.__init__(made, component.config, Services(device="cpu"), (tokenizer, model))
    return made


LOG_ODDS = {
    "qwen3_reranker": ("qwen3_reranker", "qwen3-reranker"),
    "mxbai_reranker": ("mxbai_v2", "mxbai-rerank-v2"),
    "rank1": ("rank1", "rank1"),
}


@pytest.mark.parametrize("identifier", LOG_ODDS)
def test_log_odds_rerankers_read_the_published_ids(golden: Path, identifier: str) -> None:
    data = read(golden / "ids" / f"{LOG_ODDS[identifier][0]}.json")
    tokenizer = tokenizer_of(golden / "ids" / "tokenizers" / data["tokenizer"])
    unknown = []
    for case in data["cases"]:
        options = {key: case[key] for key in ("instruction", "max_length") if case.get(key) is not None}
        (ids,) = encoder(identifier, tokenizer, **options).encoded(case["query"], [case["passage"]])
        if None in tokenizer.convert_ids_to_tokens(case["ids"]):
            unknown.append(case["query"])  # the fixture's tokenizer is cut, and lacks a token of this case
            continue
        assert ids == case["ids"]
    assert len(unknown) == (4 if identifier == "mxbai_reranker" else 0)


@pytest.mark.parametrize("identifier", LOG_ODDS)
def test_log_odds_rerankers_score_as_published(golden: Path, identifier: str) -> None:
    folder = golden / "released" / LOG_ODDS[identifier][1]
    data = read(folder / "expected.json")
    made: dict[str | None, Any] = {}
    for case in data["cases"]:
        instruction = case.get("instruction")
        if instruction not in made:
            options = ({"instruction": instruction} if instruction else {}) | ({"max_new_tokens": 8} if identifier == "rank1" else {})
            made[instruction] = build(identifier, model=str(folder / "checkpoint"), dtype="float32", **options)
        (row,) = made[instruction].encoded(case["query"], [case["passage"]])
        assert row == case["ids"]
        if "score" in case:
            odds = made[instruction].scored([tuple(row)])[tuple(row)]
            assert (odds if identifier == "mxbai_reranker" else sigmoid(odds)) == pytest.approx(case["score"], abs=1e-5)
        if "greedy_ids" in case:
            (written,) = made[instruction]._writer.generate([row])
            assert list(written.tokens[: len(case["greedy_ids"])]) == case["greedy_ids"]
