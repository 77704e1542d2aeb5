"""Files of presets: options that override others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from methods.presets import PARTS, laid_over, read_presets
from methods.sark.config import SarkTrainingConfig
from methods.training import TRAININGS

TEXT = """
_steps: {epochs: 3, batch_size: 8}
long: {model: {length: 96}, train: {over: _steps, epochs: 1}}
longer: {over: long, model: {length: 320}, judge: {over: shared, n: 2}}
"""


def test_presets_resolve_inheritance_at_every_level_and_hide_underscored_entries(tmp_path: Path) -> None:
    path = tmp_path / "presets.yaml"
    path.write_text(TEXT, encoding="utf-8")
    presets = read_presets(path, shared={"n": 1, "by": "rules"})
    train = {"epochs": 1, "batch_size": 8}
    assert presets == {
        "long": {"model": {"length": 96}, "train": train},
        "longer": {"model": {"length": 320}, "train": train, "judge": {"n": 2, "by": "rules"}},
    }


def test_llm_of_another_kind_replaces_the_presets_but_keeps_sampling() -> None:
    below = {"llm": {"model": "a", "base_url": "http://x", "temperature": 0.5}}
    assert laid_over(below, {"llm": {"local": "pocket"}}) == {"llm": {"temperature": 0.5, "local": "pocket"}}
    assert laid_over(below, {"llm": {"temperature": 0.0}})["llm"]["base_url"] == "http://x"


def test_options_of_a_preset_go_with_the_part_that_they_are_for() -> None:
    below = {"retriever": "dense", "options": {"preset": "dpr-nq"}, "judge": "match", "judge_options": {"n": 1}, "depth": 8}
    assert laid_over(below, {"retriever": "bm25", "judge": None}) == {"retriever": "bm25", "judge": None, "depth": 8}
    assert laid_over(below, {"retriever": "bm25", "options": {"k1": 2}})["options"] == {"k1": 2}
    assert laid_over(below, {"retriever": "dense", "options": {"batch_size": 2}})["options"] == {"preset": "dpr-nq", "batch_size": 2}


def _blocks(options: Any) -> list[Mapping[str, Any]]:
    parts = list(options.values()) if isinstance(options, Mapping) else options if isinstance(options, list) else []
    return [*([options] if isinstance(options, Mapping) else []), *(block for part in parts for block in _blocks(part))]


def test_trainings_presets_name_the_part_that_their_options_are_for() -> None:
    presets = [options for entry in TRAININGS for options in entry.presets.values()]
    blocks = [block for options in presets for block in _blocks(options)]
    for key in PARTS:
        assert all(key in block for block in blocks if f"{key}_options" in block)
    assert all("retriever" in block for block in blocks if "preset" in block.get("options", {}))


@pytest.mark.parametrize("preset", ["paper", "released", "tiny"])
def test_sark_preset_accepts_other_retrievers_and_judges(preset: str) -> None:
    options = {
        "preset": preset,
        "data": ["worlds/multihop:train"],
        "candidates": {"retriever": "bm25"},
        "labels": {"judge": "rule_match", "extra": {"retriever": "dense"}},
    }
    config = TRAININGS.get("sark").validate(options)
    assert isinstance(config, SarkTrainingConfig)
    assert config.candidates.component.id == "bm25"
    assert config.labels.judge_options == {}
    assert config.labels.extra is not None
    assert config.labels.extra.options == {}
