"""Memory of documents: out of a store that holds a whole corpus, or made when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from benchmarks.corpus import Corpus
from methods.api import Services
from methods.clara.store import HalfType, Identity, MemoryStore
from methods.clara.store_writer import Compressed, Told, in_memory, write
from methods.clara.use import CheckpointOptions, Loaded

STORES = "clara"
"""Folder of stores below the artefacts."""


class DocumentOptions(CheckpointOptions):
    """A checkpoint, and when documents are compressed."""

    offline: bool = Field(
        False,
        description="compress the whole corpus before the first question, and keep it; false: a question's documents, "
        "each time it is asked",
    )
    memory_dtype: HalfType | None = Field(
        None, description="in which memory is kept; null: bfloat16 where the base computes in it, else float16"
    )


class Documents:
    """Memory of the documents of corpora.

    Numbers are rounded to the type of stores wherever they come from, so that an answer is the same with a store.

    Args:
        loaded: The model.
        options: When documents are compressed, and how they are kept.
        services: Lends the folder of stores.
    """

    def __init__(self, loaded: Loaded, options: DocumentOptions, services: Services) -> None:
        self._loaded, self._options, self._services = loaded, options, services
        self._open: tuple[str, MemoryStore] | None = None

    @property
    def dtype(self) -> HalfType:
        """In which type memory is kept."""
        computes = str(self._loaded.clara.base.dtype).rpartition(".")[2]
        return self._options.memory_dtype or ("bfloat16" if computes == "bfloat16" else "float16")

    def identity(self, corpus: Corpus) -> Identity:
        """What a store of this corpus is."""
        clara = self._loaded.clara
        return Identity(self._loaded.compressor, corpus.fingerprint, len(corpus), clara.memory_tokens, clara.hidden_size, self.dtype)

    def folder(self, corpus: Corpus) -> Path | None:
        """Where the store of a corpus lies; None where nothing is kept."""
        return self._services.folder(STORES, self.identity(corpus).fingerprint)

    def store(self, corpus: Corpus, folder: Path | None = None, told: Told | None = None) -> MemoryStore:
        """The store of a whole corpus: opened, or finished, or made.

        Args:
            corpus: Whose documents.
            folder: Where to keep it in place of the usual folder.
            told: Hears of progress.
        """
        if self._open is None or self._open[0] != corpus.fingerprint:
            folder = folder or self.folder(corpus)
            identity = self.identity(corpus)
            found = (
                in_memory(corpus, identity, self._compress, told)
                if folder is None
                else write(folder, corpus, identity, self._compress, told)
            )
            self._open = corpus.fingerprint, found
        return self._open[1]

    def of(self, corpus: Corpus, ids: Sequence[str]) -> Any:
        """Memory of some documents: a float32 tensor [n, M, h] on the CPU.

        What is not in a store is compressed together, so it depends on these documents alone.
        """
        if self._options.offline:
            store = self.store(corpus)
            return store.memory(store.rows(ids))
        import torch

        made = self._compress([passage.full_text for passage in corpus.get(ids)]).memory
        return made.cpu().to(getattr(torch, self.dtype)).float()

    def _compress(self, texts: Sequence[str]) -> Compressed:
        import torch

        clara = self._loaded.clara
        with torch.inference_mode():
            memory = clara.encode(texts).memory
        return Compressed(memory, sum(map(len, clara.compressor.ids(texts))))
