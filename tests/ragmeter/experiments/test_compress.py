"""Experiments with the compressors that CLaRa is measured against: what they compare, and rows that run on random checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragmeter import experiment
from tools.tiny_checkpoints import converted, make, published

OTHERS = {"AutoCompressor", "xRAG 128x", "COCOM 16x", "PCC 16x", "LLMLingua-2 4x", "PISCO 16x"}
SYSTEMS = {"pisco", "cocom", "xrag", "pcc", "autocompressor"}


@pytest.mark.parametrize(("name", "cut"), [("compress/worlds", 30), ("compress/worlds-long", 24)])
def test_every_system_stands_beside_text_whole_cut_tuned_and_none(name: str, cut: int) -> None:
    loaded = experiment.load(name)
    assert {plan.entry.id for plan in loaded.trainings} >= SYSTEMS
    used = {plan.name for method in loaded.methods for plan in method.needs}
    assert used == {plan.name for plan in loaded.trainings}
    names = {method.name for method in loaded.methods}
    assert {"Full text", "Tuned text", "No text", f"Beginning of the text, {cut} tokens", "Beginning of the text, 1 token"} <= names
    for plan in loaded.trainings:
        if plan.entry.id in SYSTEMS:
            assert plan.config.system.config.base == "pocket"  # type: ignore[attr-defined]
    for method in loaded.methods:
        compressor, reader = method.composition.compressor, method.composition.reader
        if compressor is not None and compressor.entry.memory:
            assert compressor.config.model == reader.config.model  # type: ignore[attr-defined, union-attr]
    (benchmark,) = loaded.benchmarks
    assert benchmark.reference.split == "test"
    assert benchmark.config.worlds == 30  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["clara/table2", "clara/table6"])
def test_the_tables_have_the_other_compressors_as_rows_and_again_on_random_checkpoints(name: str) -> None:
    whole, tiny = experiment.load(name), experiment.load(name, profile="tiny")
    ids = {m.name: m.composition.compressor.id for m in whole.methods if m.name in OTHERS}  # type: ignore[union-attr]
    assert set(ids) == OTHERS == {method.name for method in tiny.methods}
    assert ids == {m.name: m.composition.compressor.id for m in tiny.methods}  # type: ignore[union-attr]


@pytest.mark.slow
def test_published_checkpoints_are_converted_planned_indexed_and_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[..., Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    make(Path("tiny"), ["llama"])
    published(Path("tiny/published"))
    converted(Path("tiny/published"), Path("tiny/converted"))
    store = ("--store", "store")
    done = call("run", "clara/table2", "--profile", "tiny", "--limit", "2", *store)
    assert done.code == 0, done
    assert all(row in done.out for row in OTHERS)
    convert = ("train", "checkpoints", "convert", "tiny/published/pisco", "--as", "pisco-tiny", *store)
    assert call(*convert).code == 0
    assert "pisco-tiny" in call("train", "checkpoints", "list", *store).out
    assert call("train", "checkpoints", "check", *store).code == 0
    assert call(*convert).code == 2  # it is there already
    index = ("method", "index", "pisco", "worlds/multihop:validation", "--set", "model=store/checkpoints/converted/pisco-tiny")
    index = (*index, "--set", "data.questions=4", "--set", "data.worlds=1", "--json", *store)
    first, again = (json.loads(call(*index).out) for _ in range(2))
    assert (first["indexed_now"], again["indexed_now"]) == (first["documents"], 0)
    assert first["bytes"] == 2 * first["vectors"] * first["width"] > 0
