"""Data and models for tests of SARK."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def toy(module_at: Callable[[Path], ModuleType]) -> ModuleType:
    return module_at(Path(__file__).with_name("sark_toy.py"))


@pytest.fixture(scope="session")
def base(toy: ModuleType, tiny_models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Save the encoder that tests train; it is read-only."""
    return str(toy.save_base("bert", tiny_models, tmp_path_factory.mktemp("base")))
