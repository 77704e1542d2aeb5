"""What retrievers of triples share: a corpus that must be one of triples, and which of them a query may use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.corpus import Corpus
from benchmarks.errors import UserError
from benchmarks.graphs import TripleCorpus
from benchmarks.schema import Query
from methods.api import Ranking
from methods.baselines.ranking import Rows, Scope


def triple_corpus(corpus: Corpus, who: str) -> TripleCorpus:
    """The corpus, known to be one of triples.

    Args:
        corpus: What a retriever is to search.
        who: The retriever's id, for the message.

    Raises:
        UserError: It holds passages.
    """
    if isinstance(corpus, TripleCorpus):
        return corpus
    raise UserError(
        f"{who} ranks the triples of a graph, and this corpus holds passages",
        where=f"method {who}",
        try_this="a benchmark of graph question answering: webqsp, cwq or worlds/graph",
    )


class TripleScope:
    """Which triples each query may use, and positions among them as rankings.

    A query's triples stand in the order of its graph, which decides ties.

    Args:
        corpus: The triples.
    """

    def __init__(self, corpus: TripleCorpus) -> None:
        self.corpus = corpus
        self._scope = Scope(corpus)

    def rows(self, query: Query) -> Rows:
        """The rows of a query's graph in its order; all rows where it names none.

        Raises:
            UserError: A candidate is not in the corpus.
        """
        rows = self._scope.rows(query)
        return np.arange(len(self.corpus)) if rows is None else rows

    def ranking(self, query: Query, rows: Rows, scores: NDArray[Any] | None = None, notes: Mapping[str, Any] | None = None) -> Ranking:
        """Rows, best first, as a ranking of triple ids.

        Args:
            query: Whose ranking.
            rows: Of the corpus, shape (n,).
            scores: One per row; None where there is nothing but an order: 0, −1, −2 …
            notes: Handed on to the prediction.
        """
        values = -np.arange(len(rows)) if scores is None else scores
        return Ranking(query.id, tuple(self.corpus.triples.ids(rows)), tuple(map(float, values.tolist())), notes=notes or {})
