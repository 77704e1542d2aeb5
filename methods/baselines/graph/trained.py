"""A cross-encoder whose score was learned: one with a head of random numbers ranks as well as dice does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.errors import UserError
from methods.checkpoints import card_of
from methods.models.cross_encoder import CrossEncoderConfig
from methods.models.weights import loading, locate


@contextmanager
def without_load_report() -> Iterator[None]:
    """Let libraries say nothing of weights that a model's files lack: who loads it here expects that, or checks it."""
    import logging

    from transformers.utils import logging as reports

    converting = logging.getLogger("sentence_transformers")
    levels = reports.get_verbosity(), converting.level
    reports.set_verbosity_error()
    converting.setLevel(logging.ERROR)
    try:
        yield
    finally:
        reports.set_verbosity(levels[0])
        converting.setLevel(levels[1])


def require_card(config: CrossEncoderConfig, published: bool, where: str) -> None:
    """Check, without loading anything, that a folder says what trained it.

    Args:
        config: Names the model; an id of the hub is taken as published.
        published: Whether somebody else trained what the folder holds.
        where: The option that names it.

    Raises:
        UserError: It is a folder without a card of ours and not said to be published.
    """
    folder = Path(locate(config.model))
    if folder.is_dir() and not published and card_of(config.model) is None:
        raise UserError(
            f"nothing in {config.model!r} says that it was trained",
            where=where,
            try_this="a checkpoint of `ragmeter train graph_cross_encoder`, or published: true for a copy of a published cross-encoder",
        )


def require_head(config: CrossEncoderConfig, where: str) -> None:
    """Check that a model's files hold every weight of its score.

    Raises:
        UserError: Some are missing, so that they would be random.
    """
    if _brings_modules(Path(locate(config.model))):
        # Its head is a module of its own, which is loaded from its file or not at all.
        return
    with loading("cross-encoder", config.model), without_load_report():
        from transformers import AutoModelForSequenceClassification

        source: dict[str, Any] = {"pretrained_model_name_or_path": locate(config.model)}
        source |= {"revision": config.revision} if config.revision else {}
        _, report = AutoModelForSequenceClassification.from_pretrained(
            **source, trust_remote_code=config.trust_remote_code, output_loading_info=True
        )
    missing = sorted(report["missing_keys"])
    if missing:
        raise UserError(
            f"{config.model!r} is no trained cross-encoder: its files lack {missing[0]}, which would be random",
            where=where,
            try_this="a published cross-encoder, or one of `ragmeter train graph_cross_encoder`",
        )


def _brings_modules(folder: Path) -> bool:
    """Whether a folder is a `CrossEncoder` whose score comes from a module behind the transformer.

    Of any other folder with modules, such as an encoder's, a cross-encoder takes the transformer alone.
    """
    settings, modules = (_json(folder / name) for name in ("config_sentence_transformers.json", "modules.json"))
    if not modules or not settings or settings.get("model_type") != "CrossEncoder":
        return False
    return any(one["type"].rpartition(".")[2] != "Transformer" for one in modules)


def _json(path: Path) -> Any:
    return json.loads(path.read_text("utf-8")) if path.is_file() else None
