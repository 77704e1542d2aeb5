"""Models that stay in memory between tasks."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn

from methods.models import loaded
from methods.models.causal import CausalConfig, CausalModel
from methods.models.loaded import Kept
from methods.models.pretrained import load_pretrained


def layer(bytes_: int) -> nn.Module:
    return nn.Linear(bytes_ // 4, 1, bias=False)


@pytest.fixture
def hundred(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every device 4,000 bytes, of which idle models may use 1,000."""
    monkeypatch.setattr(loaded, "memory_of", lambda device: (4000, 4000))


@pytest.mark.usefixtures("hundred")
def test_most_recently_used_models_are_kept_within_the_memory_share() -> None:
    models, loads = Kept(), []

    def get(name: str, size: int = 400) -> int:
        return id(models.get(name, "cpu", lambda: loads.append(name) or layer(size)))  # type: ignore[func-returns-value]

    get("a"), get("b"), get("a"), get("c"), get("a"), get("b")
    assert loads == ["a", "b", "c", "b"]
    get("large", 2000), get("large", 2000)
    assert loads[4:] == ["large", "large"]


@pytest.mark.usefixtures("hundred")
def test_model_in_use_is_shared_regardless_of_size() -> None:
    models = Kept()
    first = models.get("large", "cpu", lambda: layer(2000))
    assert models.get("large", "cpu", lambda: layer(2000)) is first


def test_modified_model_is_reloaded_for_the_next_task() -> None:
    models = Kept()
    first = models.get("shared", "cpu", lambda: layer(400))
    assert models.get("shared", "cpu", lambda: layer(400)) is first
    with torch.no_grad():
        first.weight.fill_(float("inf"))
    second = models.get("shared", "cpu", lambda: layer(400))
    assert second is not first
    assert second.weight.isfinite().all()
    assert models.get("shared", "cpu", lambda: layer(400)) is second


@pytest.mark.parametrize("error", [MemoryError, torch.OutOfMemoryError])
@pytest.mark.usefixtures("hundred")
def test_idle_models_are_unloaded_if_another_does_not_fit(error: type[Exception]) -> None:
    models = Kept()
    idle = weakref.ref(models.get("idle", "cpu", lambda: layer(400)))

    def load() -> nn.Module:
        gc.collect()
        if idle() is not None:
            raise error
        return layer(400)

    assert models.get("new", "cpu", load) is not None
    assert idle() is None


def test_equal_weights_are_loaded_once_and_changed_files_reloaded(tiny_llama: str, tmp_path: Path) -> None:
    import shutil

    folder = Path(shutil.copytree(tiny_llama, tmp_path / "model"))
    first, second = (CausalModel(CausalConfig(model=str(folder), max_new_tokens=room), "cpu") for room in (3, 5))
    assert first.model is second.model
    assert first.tokenizer is not second.tokenizer
    own = load_pretrained("model", "AutoModelForCausalLM", str(folder), None, None, "cpu", own=True)[1]
    assert own is not first.model
    with torch.no_grad():
        own.get_input_embeddings().weight += 1
    own.save_pretrained(folder)
    third = CausalModel(CausalConfig(model=str(folder)), "cpu").model
    assert torch.equal(third.get_input_embeddings().weight, own.get_input_embeddings().weight)
