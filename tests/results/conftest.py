"""A small store that several tests look into."""

from __future__ import annotations

from pathlib import Path

import pytest

from results.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")
