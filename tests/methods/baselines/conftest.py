"""Compressors with random weights: those into vectors over the tiny Llama, and checkpoints in published layouts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from methods.baselines.compress.model import SoftModel
from methods.baselines.compress.soft import SYSTEMS, system_of
from tools.tiny_checkpoints import make, published

LIGHT = "cocom light"


@pytest.fixture(scope="session")
def makes(tiny_llama: str, tiny_encoder: str, tiny_gpt2: str) -> Callable[..., SoftModel]:
    """Make a model of a system in which every learned parameter is random, so that none has its initial value."""

    def make(name: str, **more: Any) -> SoftModel:
        options: dict[str, Any] = {"base": tiny_llama, "max_length": 48, "max_prompt": 1000, **more}
        options |= {
            "cocom": {"rate": 16},
            "pisco": {"rate": 12},
            "oscar": {"rate": 12, "layers": 1},
            LIGHT: {"encoder": tiny_encoder, "max_length": 24, "rate": 5},
        }.get(name, {})
        options |= {
            "xrag": {"retriever": tiny_encoder},
            "pcc": {"encoder": tiny_gpt2, "rate": 12},
            "autocompressor": {"memory_tokens": 3},
        }.get(name, {})
        import torch

        model = SoftModel(system_of(name.split()[0], options), "cpu", seed=3)
        draw = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for tensor in model._kept().values():
                tensor.copy_(0.2 * torch.randn(tensor.shape, generator=draw))
        return model

    return make


@pytest.fixture(scope="session")
def models(makes: Callable[..., SoftModel]) -> dict[str, SoftModel]:
    return {name: makes(name) for name in (*SYSTEMS, LIGHT)}


@pytest.fixture(scope="session")
def folders(models: dict[str, SoftModel], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    results = {}
    for name, model in models.items():
        folder = tmp_path_factory.mktemp(name.replace(" ", "-"))
        model.save(folder)
        results[name] = str(folder)
    return results


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make random checkpoints of every published layout, by name."""
    folder = tmp_path_factory.mktemp("published")
    published(folder)
    make(folder, ["flan-t5"])
    return folder
