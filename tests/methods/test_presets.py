"""Files of presets: options that override others."""

from __future__ import annotations

from pathlib import Path

from methods.presets import laid_over, read_presets

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
