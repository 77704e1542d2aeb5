"""A checkpoint in use: loaded once for all parts of a pipeline, and what decides the memory that it makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal
from weakref import WeakValueDictionary

from pydantic import Field

from benchmarks.errors import UserError
from benchmarks.fingerprint import file_sha256, fingerprint
from methods.clara.checkpoint import ROWS, read_config, require_checkpoint
from methods.clara.config import Adapter
from methods.models.weights import device_of, weights_hash
from methods.registry import MethodConfig

VERSION = 2
"""Of how documents are read; bump it when their memory may change."""
PAPER = "He et al. 2025, CLaRa: Bridging Retrieval and Generation with Continuous Latent Reasoning (arXiv 2511.18659)"
DType = Literal["float32", "bfloat16", "float16", "auto"]


class CheckpointOptions(MethodConfig):
    """Which checkpoint, and in what precision."""

    model: str = Field(description="folder of a checkpoint that `ragmeter train clara` made, or `clara-pocket`, which ships")
    dtype: DType | None = Field(None, description="of the base's weights; null: as the checkpoint says")

    def preflight(self) -> None:
        """Check that the model is a checkpoint of CLaRa, and its base the one that it was trained on."""
        read_config(require_checkpoint(self.model, where="clara, option model"))


class Loaded:
    """A checkpoint in memory.

    Args:
        folder: The checkpoint.
        dtype: Of the base's weights.
        device: Where it computes.

    Attributes:
        clara: The model.
        compressor: Hash of what decides a document's memory; equal for checkpoints that share their compressor.
    """

    def __init__(self, folder: Path, dtype: str | None, device: str) -> None:
        from methods.clara.model import Clara

        self.clara = Clara.load(folder, device, dtype)
        config = self.clara.config
        parts = folder / ROWS, folder / "compressor" / "adapter_model.safetensors"
        # What only the generator, the selector and training read is left out.
        reads = config.model_dump(mode="json", exclude={"base", "revision", "dtype", "max_prompt", "tau", "mask", "k"})
        self.compressor = fingerprint(
            VERSION, weights_hash(config.base, config.revision), str(self.clara.base.dtype), reads, [file_sha256(part) for part in parts]
        )

    def require(self, adapter: Adapter) -> None:
        """Check that the checkpoint has an adapter.

        Raises:
            UserError: It has not.
        """
        if adapter not in self.clara.adapters.names:
            raise UserError(
                f"this checkpoint has no {adapter}: it has {', '.join(self.clara.adapters.names)}",
                where="clara, option model",
                try_this="a checkpoint of a later stage, or query_adapter: compressor",
            )


_LOADED: WeakValueDictionary[tuple[Any, ...], Loaded] = WeakValueDictionary()


def loaded(options: CheckpointOptions, device: str | None) -> Loaded:
    """The model of a checkpoint; parts of a pipeline that name the same one share it as long as one of them lives."""
    folder = require_checkpoint(options.model, where="clara, option model")
    key = (weights_hash(str(folder)), options.dtype, device_of(device))
    found = _LOADED.get(key)
    if found is None:
        found = _LOADED[key] = Loaded(folder, options.dtype, key[2])
    return found
