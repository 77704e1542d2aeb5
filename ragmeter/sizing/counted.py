"""What a method's models come to: how many parameters, and whether their weights are here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.errors import UserError
from methods.clara.checkpoint import read_config, require_checkpoint
from methods.registry import Component
from ragmeter.sizing.named import models_in
from ragmeter.sizing.sizes import ModelSize, size_of

TOWERS = ("question", "triple")
"""Folders of a checkpoint that is two encoders."""


def models_of(components: Iterable[Component]) -> dict[str, Any]:
    """The models of a method as JSON.

    Args:
        components: The method and all its parts.

    Returns:
        `parameters`: of all models together, each counted once (a checkpoint of adapters as its base); None where one
        of them is unknown, asked through an endpoint, or may be inside a plug-in. `weights_here`: True where no part
        asks an endpoint; None where a plug-in may. `counted`: name, parameters and how they are known, of each.
    """
    parts = list(components)
    sizes = list(dict.fromkeys(size for model, revision in models_in(parts) for size in _sizes(model, revision)))
    away = any(_asks(part.config.model_dump(mode="json")) for part in parts)
    clear = not any(_may_hide(part) for part in parts)
    counts = [size.parameters for size in sizes]
    whole = None if away or not clear or None in counts else round(sum(filter(None, counts)))
    return {
        "parameters": whole,
        "weights_here": False if away else True if clear else None,
        "counted": [
            {"name": _name(size.model), "known": size.source, "parameters": None if size.parameters is None else round(size.parameters)}
            for size in sizes
        ],
    }


def _sizes(model: str, revision: str | None) -> Iterator[ModelSize]:
    path = Path(model).expanduser()
    home = path.parent if path.name in TOWERS else path
    folders = [home / tower for tower in TOWERS]
    if all(folder.is_dir() for folder in folders):
        yield from (size_of(str(folder)) for folder in folders)
        return
    try:
        adapters, _ = read_config(require_checkpoint(model, where="model"))
    except UserError:
        yield size_of(model, revision)
    else:
        yield size_of(adapters.base, adapters.revision)


def _asks(options: Any) -> bool:
    """Whether options describe an endpoint, at any depth."""
    if isinstance(options, Mapping):
        return "base_url" in options or any(map(_asks, options.values()))
    return isinstance(options, list) and any(map(_asks, options))


def _may_hide(part: Component) -> bool:
    """Whether a part comes from elsewhere and names no model: it may have one that is not seen."""
    return not type(part.config).__module__.startswith("methods.") and not any(models_in([part]))


def _name(model: str) -> str:
    """A model's name without the folders that it lies in."""
    return Path(model).name if model.startswith(("/", ".", "~")) else model
