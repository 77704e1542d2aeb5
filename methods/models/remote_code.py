"""Refuse models whose loading would run code from their repository, unless the user trusts it."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.core.errors import UserError
from methods.models.weights import locate

REMOTE_CODE = frozenset(
    {
        "NovaSearch/stella_en_400M_v5",
        "NovaSearch/stella_en_1.5B_v5",
        "dunzhang/stella_en_400M_v5",
        "dunzhang/stella_en_1.5B_v5",
        "jinaai/jina-embeddings-v3",
        "Alibaba-NLP/gte-large-en-v1.5",
        "Alibaba-NLP/gte-multilingual-base",
        "Alibaba-NLP/gte-multilingual-reranker-base",
    }
)
"""Models whose repository contains code that loading them executes."""


def check_remote_code(model: str, trusted: bool) -> None:
    """Refuse a model that needs its own code, unless `trusted`.

    A folder's list of modules shows whether it contains code; of the hub's models, only those of presets are known. Code
    for the transformer itself may exist without being needed: the library decides (`remote_code_refused`).

    Raises:
        UserError: The model contains code and `trusted` is false.
    """
    if not trusted and (model in REMOTE_CODE or _brings_code(Path(locate(model)))):
        raise _refusal(model)


def check_models(options: Any) -> None:
    """Check, without loading anything, that the models of options (`model`, `query_model`) exist and may be loaded.

    Raises:
        UserError: A folder is missing, a model contains untrusted code, or a required package is not installed.
    """
    for model in filter(None, (options.model, getattr(options, "query_model", None))):
        locate(model)
        if hasattr(options, "trust_remote_code"):
            check_remote_code(model, options.trust_remote_code)
    if hasattr(options, "check_backend"):
        options.check_backend()


@contextmanager
def remote_code_refused(model: str) -> Iterator[None]:
    """Context manager that refuses a model if a library needs its code, or replaces its activation function because it is foreign code.

    Raises:
        UserError: The model contains untrusted code. `sentence-transformers` only logs that it computes with another activation
            function, and all values would be wrong.
    """
    replaced = _Replaced(logging.WARNING)
    library = logging.getLogger("sentence_transformers")
    library.addHandler(replaced)
    try:
        yield
    except UserError as error:
        if "trust_remote_code" not in f"{error.what}\n{error.__cause__}":
            raise
        raise _refusal(model) from error
    finally:
        library.removeHandler(replaced)
    if replaced.functions:
        raise _refusal(model, f" ({', '.join(replaced.functions)})")


class _Replaced(logging.Handler):
    """Collects the activation functions that `sentence-transformers` reports as replaced."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.functions: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        named = re.match(r"Activation function path '([^']*)' is not trusted", record.getMessage())
        if named is not None:
            self.functions.append(named[1])


def _refusal(model: str, code: str = "") -> UserError:
    return UserError(
        f"loading the model {model!r} would run code from its repository{code}",
        code="untrusted-model-code",
        try_this="read that code, pin the revision you read, then set trust_remote_code: true",
    )


MATCHES = ("methods.models.token_match.TokenMatch", "methods.models.token_match.EmbedderMatch")
"""Classes of this package that a cross-encoder's folder may reference."""
PYLATE = "pylate.models.Dense.Dense"
"""Class name of the projection in PyLate's checkpoints, which sentence-transformers replaces by its own layer."""


def _brings_code(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        kinds = [module["type"] for module in modules]
    except (OSError, ValueError, KeyError, TypeError):
        # If it is missing, there are no own modules. If it is damaged, loading the model raises the error.
        return False
    return any(not str(kind).startswith(("sentence_transformers.", "torch.")) for kind in kinds if kind not in (*MATCHES, PYLATE))
