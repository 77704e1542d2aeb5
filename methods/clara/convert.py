"""Convert checkpoints that CLaRa's authors published to ragmeter's format (`ragmeter train checkpoints convert`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.core.errors import UserError
from methods.clara.config import ADAPTERS, Adapter, ClaraConfig
from methods.clara.model import Clara
from methods.clara.prompts import READING
from methods.training.released import ADAPTERS as PUBLISHED
from methods.training.released import ENDS, Released, adapter_names, keep_prompts, new_rows, pickled

_THEIRS: tuple[tuple[str, Adapter], ...] = (
    ("encoder_adapter", "compressor"),
    ("decoder_adapter", "generator"),
    ("query_reasoner_adapter", "reasoner"),
)


def convert(source: Released, folder: Path, base: str | None, options: Mapping[str, Any], device: str | None = None) -> ClaraConfig:
    """Convert a published CLaRa checkpoint. Without a reasoner, the compressor is used for ranking.

    Args:
        source: The published checkpoint.
        folder: Output folder, which must not exist.
        base: Base model, replacing the path of the authors that the checkpoint names.
        options: Model options that override the checkpoint's.
        device: Device of the base model.

    Raises:
        UserError: The checkpoint has another layout, or does not fit its base model.
    """
    rank = source.number("lora_r", 16)
    settings = {"base": base or source.option("decoder_model_name"), "lora": {"r": rank, "alpha": 2.0 * rank}, "joined": True}
    sizes = {"max_length": source.number("doc_max_length"), "rate": source.number("compr_rate")}
    config = ClaraConfig.model_validate({**settings, **sizes, **options})
    adapters, ends = pickled(source.folder / PUBLISHED), pickled(source.folder / ENDS)
    clara = Clara.open(config, device=device)
    own = {name: item for adapter in ADAPTERS for name, item in clara.adapters.of(adapter).items()}
    there: dict[str, Any] = {}
    for theirs, ours in _THEIRS:
        name = "encoder_adapter" if ours == "reasoner" and theirs not in adapters else theirs
        there |= adapter_names(adapters.get(name, {}), ours)
    if {name: item.shape for name, item in there.items()} != {name: item.shape for name, item in own.items()}:
        raise UserError(
            "its adapters are not those of the base",
            code="adapter-list-mismatch",
            where=source.source,
            try_this="--base: the model that it was trained on",
        )
    # Memory tokens (one in all places, or each its own), one that asks for the text, one before a document, one behind its memory.
    count = clara.memory_tokens if source.config.get("different_mem_tokens", True) else 1
    rows = new_rows(ends, clara.base, clara.tokens.first, count + 3, source.source)
    with torch.no_grad():
        for name, item in own.items():
            item.copy_(there[name])
        clara.module.rows.memory.copy_(rows[:count].expand(clara.memory_tokens, -1) if count == 1 else rows[:count])
        clara.module.rows.marks.copy_(rows[count + 1 :])
    clara.save(folder)
    keep_prompts(source, folder, *(template.published for template in READING.values()))
    return config
