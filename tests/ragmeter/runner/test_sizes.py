"""Sizes of a method's models, compared with the tensors."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from methods.models.weights import locate
from methods.registry import Component
from ragmeter.runner.sizes import models_of


def counted(model: str) -> int:
    """Return the number of parameters in a model's weights."""
    with safe_open(Path(locate(model)) / "model.safetensors", "pt") as file:
        return sum(file.get_tensor(name).numel() for name in file.keys())  # noqa: SIM118  # a file is no mapping


def test_models_are_counted_once_and_components_without_models_add_nothing() -> None:
    dense, pocket = Component.of("dense"), Component.of("pocket")
    both = models_of([dense, Component.of("bi_encoder"), pocket])
    assert both["parameters"] == counted("minilm") + counted("pocket")
    assert [(item["name"], item["known"]) for item in both["counted"]] == [("minilm", "header"), ("pocket", "header")]
    assert both["weights_here"] is True
    nothing = models_of([Component.of("bm25"), Component.of("extractive")])
    assert nothing == {"parameters": 0, "weights_here": True, "counted": []}


def test_size_of_an_endpoint_model_is_unknown() -> None:
    query = models_of([Component.of("dense"), Component.of("chat", {"llm": {"model": "gpt-4o-mini"}})])
    assert (query["parameters"], query["weights_here"]) == (None, False)
    within = models_of([Component.of("hyde", {"llm": {"model": "gpt-4o-mini"}})])
    assert (within["parameters"], within["weights_here"]) == (None, False)


@pytest.mark.parametrize(
    ("identifier", "options"),
    [
        ("hosted_dense", lambda away: away),
        ("hosted_reranker", lambda away: {**away, "dialect": "jina"}),
        ("hybrid", lambda away: {"retrievers": ["bm25", {"id": "hosted_dense", "config": away}]}),
        ("self_ask", lambda away: {"llm": {"scripted": "worlds/multihop:test"}, "retriever": {"id": "hosted_dense", "config": away}}),
        ("http", lambda away: {"url": "http://127.0.0.1:9/ask"}),
    ],
)
def test_size_of_a_hosted_model_or_app_is_unknown_at_any_depth(identifier: str, options: Any) -> None:
    result = models_of([Component.of(identifier, options({"model": "m", "base_url": "http://127.0.0.1:9/v1", "key_variable": None}))])
    assert (result["parameters"], result["weights_here"]) == (None, False)


def test_model_of_unknown_size_makes_the_sum_unknown() -> None:
    result = models_of([Component.of("dense", {"model": "who/knows"}), Component.of("pocket")])
    assert (result["parameters"], result["weights_here"]) == (None, True)
    assert {item["name"]: item["known"] for item in result["counted"]} == {"who/knows": "unknown", "pocket": "header"}


def test_two_towers_count_as_two_models_and_not_as_their_folder(tmp_path: Path) -> None:
    for tower in ("question", "triple"):
        shutil.copytree(locate("minilm"), tmp_path / "mine" / tower)
    result = models_of([Component.of("gpr", {"model": str(tmp_path / "mine")})])
    assert result["parameters"] == 2 * counted("minilm")
    assert [item["name"] for item in result["counted"]] == ["question", "triple"]


def test_plugin_without_a_declaration_has_unknown_size() -> None:
    known = Component.of("bm25")
    silent = Component(replace(known.entry, work=None, needs=None), known.config)
    result = models_of([silent, Component.of("pocket")])
    assert (result["parameters"], result["weights_here"]) == (None, None)


@pytest.mark.parametrize("whole", ["bm25", "dense"])
def test_checkpoint_size_is_known_once_it_exists(tmp_path: Path, whole: str) -> None:
    part = Component.of("dense", {"model": str(tmp_path / "later")}) if whole == "dense" else Component.of("bm25")
    before = models_of([part])["parameters"]
    shutil.copytree(locate("minilm"), tmp_path / "later")
    after = models_of([part])["parameters"]
    assert (before, after) == ((None, counted("minilm")) if whole == "dense" else (0, 0))
