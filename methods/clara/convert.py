"""Checkpoints that CLaRa's authors published, made into ours: `ragmeter train checkpoints convert`."""

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
    """Write a checkpoint that CLaRa's authors published as one of ours; one that has no reasoner yet ranks by its compressor.

    Args:
        source: What was published.
        folder: Where to; must not exist.
        base: The base, in place of the one that it names by a path of its authors.
        options: Of the model, over what the checkpoint says.
        device: Where the base is put.

    Raises:
        UserError: It is of another layout, or does not belong to its base.
    """
    rank = source.number("lora_r", 16)
    stated = {"base": base or source.option("decoder_model_name"), "lora": {"r": rank, "alpha": 2.0 * rank}, "joined": True}
    sizes = {"max_length": source.number("doc_max_length"), "rate": source.number("compr_rate")}
    config = ClaraConfig.model_validate({**stated, **sizes, **options})
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
