"""Bases for the tests of CLaRa's parts."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def _beside(name: str) -> ModuleType:
    """Load a file of this folder by its path, because tests are not a package."""
    spec = importlib.util.spec_from_file_location(f"clara_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BASES = _beside("bases")


@pytest.fixture(scope="session")
def bases() -> ModuleType:
    return BASES


@pytest.fixture(scope="session")
def base_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Save a base of each class; Phi-3 and Qwen3 have embedding rows without a token."""
    rows = {"Phi3": 64, "Qwen3": 128}
    return {kind: BASES.save(tmp_path_factory.mktemp(kind), kind, padded_vocabulary=rows.get(kind, 0)) for kind in BASES.KINDS}


@pytest.fixture(scope="session")
def toy() -> ModuleType:
    return _beside("toy_clara")


@pytest.fixture(scope="module")
def base(toy: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Save the base that tests train."""
    return str(toy.save_base(tmp_path_factory.mktemp("base")))


@pytest.fixture
def config(toy: ModuleType, base: str) -> Callable[..., Any]:
    """Make options of a training of four steps per stage, with a test's changes."""

    def of(**more: Any) -> Any:
        from methods.training import TRAININGS

        train = {"batch_size": 4, "micro_batch": 2, "learning_rate": 1e-2, "steps": 4, "epochs": 9}
        stages = ("scp", "instruction", "supervised", "joint")
        model = toy.model_config(base, **more.pop("model", {})).model_dump()
        parts = {stage: {**more.pop(stage, {})} for stage in stages}
        for part in parts.values():
            part["train"] = {**train, **part.get("train", {})}
        data = {"scp": ["worlds:train"], "instruction": ["worlds:train"], "joint": ["worlds:train"]}
        options = {"model": model, "data": data, "seed": 3, "save_every": 2, **parts, **more}
        return TRAININGS.get("clara").validate(options)

    return of


@pytest.fixture(params=["Mistral", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("Phi3", "Qwen3"))])
def kind(request: pytest.FixtureRequest) -> str:
    """Name the class of a base; the default of `make_clara` is Llama."""
    return str(request.param)


@pytest.fixture
def make_clara(base_folders: dict[str, str]) -> Callable[..., Any]:
    """Make a model on a base of a class; `drawn` randomizes its adapters, as after training."""

    def make(kind: str = "Llama", drawn: bool = True, seed: int = 0, **options: Any) -> Any:
        import torch

        from methods.clara.config import ClaraConfig
        from methods.clara.model import Clara

        base = base_folders.get(kind, kind)
        settings = {"base": base, "max_length": 16, "rate": 4, "memory_init": "spread", **options}
        clara = Clara.open(ClaraConfig.model_validate(settings), device="cpu", seed=seed)
        if drawn:
            draw = torch.Generator().manual_seed(seed)
            with torch.no_grad():
                for name in clara.adapters.names:
                    for parameter in clara.adapters.of(name).values():
                        parameter.copy_(0.2 * torch.randn(parameter.shape, generator=draw))
        return clara

    return make
