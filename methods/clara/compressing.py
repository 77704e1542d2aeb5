"""CLaRa as a compressor: passages become a few vectors each, for its own reader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from methods.api import TRUNCATED, Context, Ranking, Services
from methods.clara.documents import DocumentOptions, Documents
from methods.clara.use import PAPER, loaded
from methods.models.weights import weights_hash
from methods.registry import register


@dataclass(frozen=True, slots=True)
class DocumentMemory:
    """What passes from the compressor to the reader.

    Attributes:
        vectors: float32 [k, M, h], in the order of the ranking.
        compressor: Hash of what made them (`use.Loaded.compressor`).
    """

    vectors: Any
    compressor: str

    @property
    def tokens(self) -> int:
        """Memory tokens in all: k·M."""
        return int(self.vectors.shape[0] * self.vectors.shape[1])


class ClaraCompressorConfig(DocumentOptions):
    """Options of the compressor."""


@register(
    "clara_compressor",
    kind="compressor",
    summary="each passage as a few memory tokens, which clara_reader answers from",
    config=ClaraCompressorConfig,
    paper=PAPER,
    extra="models",
    checkpoint_hash=lambda config: weights_hash(config.model),
)
class ClaraCompressor:
    """Compressor of a checkpoint.

    Args:
        config: The checkpoint.
        services: Lends the device, and the folder of stores.
    """

    def __init__(self, config: ClaraCompressorConfig, services: Services) -> None:
        self._loaded = loaded(config, services.device)
        self._documents = Documents(self._loaded, config, services)

    def compress(self, queries: Sequence[Query], rankings: Sequence[Ranking], corpus: Corpus, budget: int | None) -> list[Context]:
        """Memory of each ranking's documents, of as many of the first as the budget holds."""
        each = self._loaded.clara.memory_tokens
        fitting = None if budget is None else budget // each
        return [self._context(ranking, corpus, each, fitting) for ranking in rankings]

    def _context(self, ranking: Ranking, corpus: Corpus, each: int, fitting: int | None) -> Context:
        ids = ranking.ids[:fitting]
        cut = len(ids) < len(ranking.ids)
        notes = {TRUNCATED: {"unit": "tokens", "kept": len(ids) * each, "of": len(ranking.ids) * each}} if cut else {}
        if not ids:
            return Context(ranking.query_id, notes=notes)
        memory = DocumentMemory(self._documents.of(corpus, ids), self._loaded.compressor)
        return Context(ranking.query_id, memory=memory, notes=notes)
