"""BM25 as a reranker: candidates by the words that they share with the query."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from methods.api import Services
from methods.baselines.bm25 import BM25, BM25Config, BM25Index, tokenise
from methods.baselines.pointwise import PointwiseConfig, PointwiseReranker
from methods.pipeline import index_folder
from methods.registry import Component, register


class BM25RerankerConfig(BM25Config, PointwiseConfig):
    """Options of BM25, what its statistics are of, and how far down it reranks."""

    statistics: Literal["corpus", "candidates"] = Field(
        "corpus", description="what the rarity of words and the mean length are counted in: the whole corpus, or the query's own candidates"
    )


@register(
    "bm25_reranker",
    kind="reranker",
    summary="BM25 over the candidates, its statistics from the corpus or from the candidates alone",
    config=BM25RerankerConfig,
    paper="Robertson and Zaragoza 2009; Lù 2024, BM25S (arXiv:2407.03618)",
    presets={"pyserini": {"k1": 0.9, "b": 0.4}},
    extra="retrieval",
)
class BM25Reranker(PointwiseReranker):
    """Reranker that scores by term statistics; candidates without any word of the query keep their order, last.

    Args:
        config: Options.
        services: Lends the folder of indexes, which BM25 as a retriever shares.
    """

    def __init__(self, config: BM25RerankerConfig, services: Services) -> None:
        super().__init__(config.depth)
        self.config = config
        self._services = services
        options = config.model_dump(include=set(BM25Config.model_fields))
        self._retriever = Component.of("bm25", options)
        self._bm25 = BM25(BM25Config(**options), services)
        self._indexed: tuple[Corpus, BM25Index] | None = None

    def scores(self, query: Query, ids: Sequence[str], corpus: Corpus) -> NDArray[np.floating]:
        """BM25 of each candidate, 0 where it shares no word with the query."""
        if not ids:
            return np.zeros(0)
        words = tokenise([query.text], self.config, ids=False)[0]
        if self.config.statistics == "candidates":
            counted = Corpus.of(corpus.get(sorted(ids)))
            index = self._index(counted, None)
        else:
            counted, index = corpus, self._whole(corpus)
        return index.scores(words, np.array([counted.row(one) for one in ids], dtype=np.int64))

    def _whole(self, corpus: Corpus) -> BM25Index:
        """The index of the whole corpus, opened once."""
        if self._indexed is None or self._indexed[0] is not corpus:
            folder = index_folder(self._retriever, corpus, self._services)
            self._indexed = corpus, self._index(corpus, folder)
        return self._indexed[1]

    def _index(self, corpus: Corpus, folder: Path | None) -> BM25Index:
        return cast(BM25Index, self._bm25.index(corpus, folder))
