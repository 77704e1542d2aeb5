"""The experiments that come with ragmeter."""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterator
from typing import Any

SUFFIX = ".yaml"


def shipped() -> dict[str, str]:
    """Return the YAML texts of the experiments that ship with ragmeter, by name (`demo`, `ark/worlds`, …)."""
    return {name: file.read_text("utf-8") for name, file in shipped_files()}


def descriptions() -> dict[str, str]:
    """Return the descriptions of the shipped experiments, by name, without validating them."""
    import yaml

    from benchmarks.core.yaml import LOADER

    return {name: yaml.load(text, LOADER).get("description", "") for name, text in shipped().items()}


def shipped_files() -> Iterator[tuple[str, Any]]:
    """Yield (name, file) of the shipped experiments without reading them."""

    def walk(folder: Any, prefix: str) -> Iterator[tuple[str, Any]]:
        for item in sorted(folder.iterdir(), key=lambda item: item.name):
            if item.is_dir():
                yield from walk(item, f"{prefix}{item.name}/")
            elif item.name.endswith(SUFFIX):
                yield prefix + item.name.removesuffix(SUFFIX), item

    yield from walk(importlib.resources.files("ragmeter.experiments"), "")
