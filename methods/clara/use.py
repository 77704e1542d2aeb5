"""Load a checkpoint once for all parts of a pipeline, and compute or look up the memory of documents."""

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
from methods.models.pretrained import device_of
from methods.models.weights import weights_hash
from methods.registry import ModelMethodConfig
from methods.retrieval.ranking import truncation_notes

if TYPE_CHECKING:
    from torch import Tensor


VERSION = 2
"""Version of encoding documents; increase it if memory vectors can change."""
DType = Literal["float32", "bfloat16", "float16", "auto"]


class CheckpointOptions(ModelMethodConfig):
    """Options with a CLaRa checkpoint and precision."""

    model: str = Field(description="folder of a checkpoint that `ragmeter train clara` made, or `clara-pocket`, which ships")
    dtype: DType | None = Field(None, description="dtype of the base's weights; null: the checkpoint's own")

    def preflight(self) -> None:
        """Check that the model is a CLaRa checkpoint and its base model the one it was trained on."""
        read_config(require_checkpoint(self.model, where="clara, option model"))


class Loaded:
    """A loaded CLaRa checkpoint.

    Args:
        folder: Checkpoint folder.
        dtype: Data type of the base's weights.
        device: Device.

    Attributes:
        clara: The model.
        compressor: Hash of everything that determines a document's memory; equal for checkpoints with the same compressor.
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
            UserError: The adapter is missing.
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
    """Load a checkpoint; pipeline parts that use the same one share it while any of them exists."""
    folder = require_checkpoint(options.model, where="clara, option model")
    key = (weights_hash(str(folder)), options.dtype, device_of(device))
    result = _LOADED.get(key)
    if result is None:
        result = _LOADED[key] = Loaded(folder, options.dtype, key[2])
    return result


STORES = "clara"
"""Subfolder of the artifacts folder for memory stores."""


class DocumentOptions(CheckpointOptions):
    """Options of roles that compress documents: checkpoint, and when to compress."""

    offline: bool = Field(
        False,
        description="compress the whole corpus before the first question and keep the result; false: compress a question's "
        "documents each time it is asked",
    )
    memory_dtype: HalfType | None = Field(
        None, description="dtype in which memory is kept; null: bfloat16 if the base computes in it, else float16"
    )


class Documents:
    """Provider of documents' memory, from a store or computed on demand.

    Memory is always rounded to the store's data type, so that answers are the same with and without a store.

    Args:
        loaded: The model.
        options: Options for compression and storage.
        services: Services; the folder of memory stores is used.
    """

    def __init__(self, loaded: Loaded, options: DocumentOptions, services: Services) -> None:
        self._loaded, self._options, self._services = loaded, options, services
        self._open: tuple[str, MemoryStore] | None = None

    @property
    def dtype(self) -> HalfType:
        """Return the data type in which memory is stored."""
        computes = str(self._loaded.clara.base.dtype).rpartition(".")[2]
        return self._options.memory_dtype or ("bfloat16" if computes == "bfloat16" else "float16")

    def identity(self, corpus: Corpus) -> Identity:
        """Return the identity of this corpus's store."""
        clara = self._loaded.clara
        return Identity(self._loaded.compressor, corpus.fingerprint, len(corpus), clara.memory_tokens, clara.hidden_size, self.dtype)

    def folder(self, corpus: Corpus) -> Path | None:
        """Return the folder of a corpus's store; None if stores are not saved."""
        return self._services.folder(STORES, self.identity(corpus).fingerprint)

    def store(self, corpus: Corpus, folder: Path | None = None, progress: Progress | None = None) -> MemoryStore:
        """Return the store of a whole corpus; opens, resumes or builds it.

        Args:
            corpus: The corpus.
            folder: Folder that replaces the default one.
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
        """Return the memory of documents by id: float32 tensor [n, M, h] on the CPU.

        Documents that are not in a store are compressed as one batch.
        """
        if self._options.offline:
            store = self.store(corpus)
            return store.memory(store.find_rows(ids))
        import torch

        made = self._compress([passage.full_text for passage in corpus.get(ids)]).memory
        return made.cpu().to(getattr(torch, self.dtype)).float()

    def truncation(self, corpus: Corpus) -> dict[str, Any]:
        """Measure how much of a corpus's passages is not compressed, for `Indexed.notes`."""
        return truncation_notes(self.folder(corpus) if self._options.offline else None, corpus, self._loaded.clara.compressor.truncation)

    def _compress(self, texts: Sequence[str]) -> Compressed:
        import torch

        clara = self._loaded.clara
        with torch.inference_mode():
            memory = clara.encode(texts).memory
        return Compressed(memory, sum(map(len, clara.compressor.ids(texts))))
