"""Triples of a graph ranked by two towers: how near a triple's vector is to the question's.

`TripleRetriever` takes any pair of encoders: untrained ones (`two_tower`), DPR's, SKP's, GPR's.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.corpus import Corpus
from benchmarks.graphs import TripleCorpus
from benchmarks.schema import Query
from methods.api import Index, Ranking
from methods.baselines.graph.triples import TripleScope, triple_corpus
from methods.baselines.graph.vectors import TripleVectors
from methods.baselines.ranking import Rows, best_rows
from methods.knowledge.linearise import LineariseConfig
from methods.models.encoder import Encoder, Vectors
from methods.models.vector_search import EPSILON, ExactSearch, exact_scores
from methods.registry import MethodConfig

SearchScope = Literal["question", "global"]
Scored = tuple[Rows, NDArray[np.float64]]


class TripleSearchConfig(MethodConfig):
    """Options of every pair of towers over triples."""

    similarity: Literal["cosine", "dot"] = Field("cosine", description="of a question and a triple; paper: cosine")
    scope: SearchScope = Field(
        "question", description="which triples compete: those of the question's own graph (paper), or global: of all graphs"
    )
    batch_size: int = Field(64, ge=1, description="triples encoded at once")
    dtype: Literal["float32", "bfloat16", "float16"] = Field("float32", description="type of the weights")


class TripleRetriever:
    """Ranks triples by the similarity of their vectors to a question's.

    Args:
        encoder: Encodes questions as its queries and triples as its passages; it also says by what they are compared
            (`normalise`: cosine, else dot product), and keeps on disk what it has encoded.
        linearise: How triples are written.
        scope: Which triples compete.
        who: The method's id, for messages.
        titled: Whether the encoder is given each triple's head as the title of its text.
    """

    over_triples = True

    def __init__(
        self,
        encoder: Encoder,
        linearise: LineariseConfig | None = None,
        scope: SearchScope = "question",
        who: str = "gpr",
        *,
        titled: bool = False,
    ) -> None:
        self.encoder, self.linearise = encoder, linearise or LineariseConfig.model_validate({})
        self.scope, self.who, self.titled = scope, who, titled

    def index(self, corpus: Corpus, folder: Path | None = None) -> Index:
        """The corpus, whose triples are encoded as questions ask for them; vectors are kept in the encoder's cache.

        Raises:
            UserError: It is not one of triples.
        """
        triples = triple_corpus(corpus, self.who)
        return TripleTowersIndex(triples, self.encoder, self.linearise, self.scope, folder, titled=self.titled)


class TripleTowersIndex:
    """Triples with their vectors.

    Args:
        corpus: The triples.
        encoder, linearise, scope, titled: As of `TripleRetriever`.
        folder: Where a temporary file of vectors goes, if one is needed.
    """

    def __init__(
        self,
        corpus: TripleCorpus,
        encoder: Encoder,
        linearise: LineariseConfig,
        scope: SearchScope,
        folder: Path | None = None,
        *,
        titled: bool = False,
    ) -> None:
        self._encoder, self._global = encoder, scope == "global"
        self._scope = TripleScope(corpus)
        self.vectors = TripleVectors(corpus.triples, encoder, linearise, folder, titled=titled)

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """The k triples nearest to each query; equally near ones in the order of its graph."""
        asked = self._encoder.queries([query.text for query in queries])
        return [self._ranking(query, vector, k) for query, vector in zip(queries, asked, strict=True)]

    def _ranking(self, query: Query, asked: NDArray[np.float32], k: int) -> Ranking:
        # The graph is looked up in any scope: a query of another corpus is refused.
        rows = self._scope.rows(query)
        if self._global or query.candidates is None:
            (rows,) = self._search.near(asked[None], k)
            best, scores = nearest(self._search.vectors[rows], asked, k, self.vectors.longest)
        else:
            best, scores = nearest(self.vectors.of(rows), asked, k, self.vectors.longest)
        return self._scope.ranking(query, rows[best], scores)

    @cached_property
    def _search(self) -> ExactSearch:
        return ExactSearch(self.vectors.all(), self._encoder.device)


def nearest(vectors: Vectors, query: NDArray[np.float32], k: int, longest: float) -> Scored:
    """The k rows with the largest inner product, decided in float64: nothing else in a batch changes them.

    Args:
        vectors: Shape (n, dimension).
        query: Shape (dimension,).
        k: At most this many.
        longest: No row is longer.

    Returns:
        Rows, best first, equal ones in their order, and their products.
    """
    kept: Rows = np.arange(len(vectors))
    if 0 < k < len(vectors):
        # In float32 a product is off by at most d · ε · |q| · |v|; rows below the k-th by twice that are out.
        rough = vectors @ query
        slack = 2 * len(query) * EPSILON * float(np.linalg.norm(query)) * longest
        kept = np.flatnonzero(rough >= np.partition(rough, len(rough) - k)[len(rough) - k] - slack)
    scores = exact_scores(vectors, query, kept)
    order = best_rows(scores, k)
    return kept[order], scores[order]
