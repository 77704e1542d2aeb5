"""The hash of a model: what changes it, and which recorded hashes stay valid; folders without an adapter."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from methods.models.adapters import check_adapter
from methods.models.weights import commit_of, has_hash, missing_weights, weights_hash
from methods.registry import Component
from methods.work import Checkpoint
from ragmeter.runner.sizes import models_of
from tests.support.errors import raises


def test_folder_hash_includes_the_chat_template_and_older_hashes_stay_valid(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    before = weights_hash(str(tmp_path))
    hashes = {before}
    for text in ("{{ messages }}", "{{ messages[0] }}"):
        (tmp_path / "chat_template.jinja").write_text(text)
        hashes.add(own := weights_hash(str(tmp_path)))
        assert has_hash(str(tmp_path), None, own)
        assert has_hash(str(tmp_path), None, before)
    assert len(hashes) == 3
    assert not has_hash(str(tmp_path), None, (hashes - {before, own}).pop())
    (tmp_path / "config.json").write_text("[]")
    assert not has_hash(str(tmp_path), None, before)
    assert weights_hash("pocket") == weights_hash("pocket", templates=False)  # it ships, and its rows keep their identity


@pytest.mark.parametrize("name", ["chat_template.jinja", "colbert_linear.pt", "modeling_mine.py"])
def test_changed_head_code_or_template_changes_the_hash(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    hashes = set()
    for content in (None, "1", "22"):
        if content is not None:
            (tmp_path / name).write_text(content)
        hashes.add(weights_hash(str(tmp_path)))
    assert len(hashes) == 3


def test_hash_of_an_encoder_that_is_an_adapter_includes_the_folder_of_its_base(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "config.json").write_text("{}")
    folder = Path(adapter(tmp_path / "adapter", base=str(base)))
    alone = weights_hash(str(folder))  # the base of such an adapter is another option
    (folder / "modules.json").write_text("[]")
    whole = weights_hash(str(folder))
    (base / "config.json").write_text("[]")
    assert len({alone, whole, weights_hash(str(folder))}) == 3
    (folder / "modules.json").unlink()
    assert weights_hash(str(folder)) == alone


def test_commit_of_a_hub_id_is_that_of_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert commit_of("owner/name", None) is None
    place = tmp_path / "models--owner--name"
    for commit in ("1" * 40, "2" * 40):
        (place / "snapshots" / commit / "inner").mkdir(parents=True)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("1" * 40)
    assert commit_of("owner/name", None) == "1" * 40
    assert commit_of("owner/name/inner", None) == "1" * 40
    assert commit_of("owner/name", "2" * 40) == "2" * 40
    assert commit_of(str(place), None) is None
    assert commit_of("./nowhere", None) is None
    result = models_of([Component.of("dense", {"model": "owner/name"}), Component.of("pocket")])
    assert [item.get("commit") for item in result["counted"]] == ["1" * 40, None]


def adapter(folder: Path, *, base: str = "meta-llama/Llama-2-7b-hf", weight: str = "base_model.model.score.weight") -> str:
    from safetensors.numpy import save_file

    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base}))
    save_file({weight: np.zeros(2, np.float32)}, folder / "adapter_model.safetensors")
    return str(folder)


def test_folder_without_an_adapter_for_its_base_is_refused_before_loading(tmp_path: Path) -> None:
    whole, base = tmp_path / "whole", "other/llama-2-7b-hf"
    whole.mkdir()
    (whole / "config.json").write_text("{}")
    check_adapter(adapter(tmp_path / "good"), base, where="x", head="score")
    check_adapter("owner/of-the-hub", base, where="x", head="score")
    with raises("not-an-adapter", where="x"):
        check_adapter(str(whole), base, where="x")
    (whole / "adapter_config.json").write_text("{}")
    with raises("not-an-adapter", where="x"):
        check_adapter(str(whole), base, where="x")
    with raises("adapter-base-mismatch", where="x"):
        check_adapter(adapter(tmp_path / "foreign", base="meta-llama/Llama-2-13b-hf"), base, where="x")
    headless = adapter(tmp_path / "headless", weight="base_model.model.lora_A.weight")
    check_adapter(headless, base, where="x")
    with raises("adapter-holds-no-weights", where="x"):
        check_adapter(headless, base, where="x", head="score")
    (tmp_path / "good" / "adapter_config.json").write_text("[")
    with raises("unreadable-adapter"):
        check_adapter(str(tmp_path / "good"), base, where="x")


@pytest.mark.parametrize("system", ["rankllama", "rank_r1"])
def test_full_model_instead_of_an_adapter_is_refused_before_the_run(tmp_path: Path, system: str) -> None:
    (tmp_path / "config.json").write_text("{}")
    named = (
        {"adapter": str(tmp_path), "base": "pocket"} if system == "rankllama" else {"llm": {"local": "pocket", "adapter": str(tmp_path)}}
    )
    with raises("not-an-adapter", where="adapter"):
        Component.of(system, {**named, **({"prompt": "ours"} if system == "rank_r1" else {})}).preflight()


@pytest.mark.parametrize(("model", "hinted"), [("e5-base-v2", True), ("intfloat/e5-base-v2", False)])
def test_absent_model_without_an_owner_may_be_a_preset(monkeypatch: pytest.MonkeyPatch, model: str, hinted: bool) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    error = missing_weights(Checkpoint(model))
    assert error is not None
    assert (f"preset: {model}" in str(error.try_this)) == hinted
