"""Code that comes with a model: never run unless an option says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.errors import UserError
from methods.models.encoder_presets import REMOTE_CODE
from methods.models.weights import locate


def check_remote_code(model: str, trusted: bool) -> None:
    """Refuse a model that brings its own code, unless it is trusted.

    A folder says itself whether it brings code; of the hub's models those that presets name are known.

    Raises:
        UserError: The model brings code and `trusted` is false.
    """
    if not trusted and (model in REMOTE_CODE or _brings_code(Path(locate(model)))):
        raise _refusal(model)


@contextmanager
def remote_code_refused(model: str) -> Iterator[None]:
    """Turn a library's refusal to run a model's code into ours, which names the option."""
    try:
        yield
    except UserError as error:
        if "trust_remote_code" not in error.what:
            raise
        raise _refusal(model) from error


def _refusal(model: str) -> UserError:
    return UserError(
        f"the model {model!r} brings its own code, which loading it would run",
        try_this="read that code, pin the revision you read, then set trust_remote_code: true",
    )


def _brings_code(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    config, modules = _json(folder / "config.json"), _json(folder / "modules.json")
    if isinstance(config, dict) and config.get("auto_map"):
        return True
    kinds = [str(module.get("type", "")) for module in modules if isinstance(module, dict)] if modules else []
    return any(not kind.startswith(("sentence_transformers.", "torch.")) for kind in kinds)


def _json(path: Path) -> Any:
    """What a JSON file holds; None where it is missing or damaged, which loading the model will report."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
