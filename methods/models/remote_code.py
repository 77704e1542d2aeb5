"""Code that comes with a model: never run unless an option says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.errors import UserError
from methods.models.encoder_presets import REMOTE_CODE
from methods.models.weights import locate


def check_remote_code(model: str, trusted: bool) -> None:
    """Refuse a model that brings its own code, unless it is trusted.

    The modules of a folder say whether they are its own; of the hub's models those that presets name are known. Code
    for the transformer itself may be there without being needed: the library decides (`remote_code_refused`).

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
        if "trust_remote_code" not in f"{error.what}\n{error.__cause__}":
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
    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        kinds = [module["type"] for module in modules]
    except (OSError, ValueError, KeyError, TypeError):
        # Missing: no modules of its own. Damaged: loading the model will say so.
        return False
    return any(not str(kind).startswith(("sentence_transformers.", "torch.")) for kind in kinds)
