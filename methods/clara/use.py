"""A checkpoint in use: loaded once for all parts of a pipeline, and the memory that it makes of documents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakValueDictionary

from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import file_sha256, fingerprint
from benchmarks.corpus import Corpus
from methods.api import Services
from methods.clara.checkpoint import ROWS, read_config, require_checkpoint
from methods.clara.config import Adapter
from methods.clara.store import Compressed, HalfType, Identity, MemoryStore, Progress, in_memory, write
from methods.models.weights import device_of, weights_hash
from methods.registry import ModelMethodConfig

if TYPE_CHECKING:
    from torch import Tensor


VERSION = 2
"""Version of reading documents; increase it if their memory may change."""
DType = Literal["float32", "bfloat16", "float16", "auto"]


class CheckpointOptions(ModelMethodConfig):
    """Checkpoint and precision."""

    model: str = Field(description="folder of a checkpoint that `ragmeter train clara` made, or `clara-pocket`, which ships")
    dtype: DType | None = Field(None, description="dtype of the base's weights; null: the checkpoint's own")

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
        self.require("compressor")
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
                code="checkpoint-part-missing",
                where="clara, option model",
                try_this="a checkpoint that reads memory; for one trained with `reads: text`, use the reader clara_text",
            )


_LOADED: WeakValueDictionary[tuple[Any, ...], Loaded] = WeakValueDictionary()


def loaded(options: CheckpointOptions, device: str | None) -> Loaded:
    """Return the model of a checkpoint; parts of a pipeline that name the same one share it as long as one of them lives."""
    folder = require_checkpoint(options.model, where="clara, option model")
    key = (weights_hash(str(folder)), options.dtype, device_of(device))
    result = _LOADED.get(key)
    if result is None:
        result = _LOADED[key] = Loaded(folder, options.dtype, key[2])
    return result


STORES = "clara"
"""Folder of stores below the artifacts."""


class DocumentOptions(CheckpointOptions):
    """A checkpoint, and when documents are compressed."""

    offline: bool = Field(
        False,
        description="compress the whole corpus before the first question and keep the result; false: compress a question's "
        "documents each time it is asked",
    )
    memory_dtype: HalfType | None = Field(
        None, description="dtype in which memory is kept; null: bfloat16 if the base computes in it, else float16"
    )


class Documents:
    """Memory of the documents of corpora.

    Numbers are rounded to the type of stores wherever they come from, so that an answer is the same with a store.

    Args:
        loaded: The model.
        options: When documents are compressed, and how they are kept.
        services: Provides the folder of stores.
    """

    def __init__(self, loaded: Loaded, options: DocumentOptions, services: Services) -> None:
        self._loaded, self._options, self._services = loaded, options, services
        self._open: tuple[str, MemoryStore] | None = None

    @property
    def dtype(self) -> HalfType:
        """Return in which type memory is kept."""
        computes = str(self._loaded.clara.base.dtype).rpartition(".")[2]
        return self._options.memory_dtype or ("bfloat16" if computes == "bfloat16" else "float16")

    def identity(self, corpus: Corpus) -> Identity:
        """Return the identity of this corpus's store."""
        clara = self._loaded.clara
        return Identity(self._loaded.compressor, corpus.fingerprint, len(corpus), clara.memory_tokens, clara.hidden_size, self.dtype)

    def folder(self, corpus: Corpus) -> Path | None:
        """Return the folder of a corpus's store; None if stores are not kept."""
        return self._services.folder(STORES, self.identity(corpus).fingerprint)

    def store(self, corpus: Corpus, folder: Path | None = None, progress: Progress | None = None) -> MemoryStore:
        """Return the store of a whole corpus: opened, or finished, or made.

        Args:
            corpus: Whose documents.
            folder: Where to keep it in place of the usual folder.
            progress: Called after every chunk.
        """
        if self._open is None or self._open[0] != corpus.fingerprint:
            folder = folder or self.folder(corpus)
            identity = self.identity(corpus)
            result = (
                in_memory(corpus, identity, self._compress, progress)
                if folder is None
                else write(folder, corpus, identity, self._compress, progress)
            )
            self._open = corpus.fingerprint, result
        return self._open[1]

    def of(self, corpus: Corpus, ids: Sequence[str]) -> Tensor:
        """Return memory of some documents: a float32 tensor [n, M, h] on the CPU.

        What is not in a store is compressed together, so it depends on these documents alone.
        """
        if self._options.offline:
            store = self.store(corpus)
            return store.memory(store.find_rows(ids))
        import torch

        made = self._compress([passage.full_text for passage in corpus.get(ids)]).memory
        return made.cpu().to(getattr(torch, self.dtype)).float()

    def _compress(self, texts: Sequence[str]) -> Compressed:
        import torch

        clara = self._loaded.clara
        with torch.inference_mode():
            memory = clara.encode(texts).memory
        return Compressed(memory, sum(map(len, clara.compressor.ids(texts))))
