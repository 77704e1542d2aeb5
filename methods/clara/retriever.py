"""CLaRa as a retriever: a question's memory against that of every document, or of its candidates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from benchmarks.corpus import Corpus
from benchmarks.errors import UserError
from benchmarks.schema import Query
from methods.api import Index, Ranking, Services
from methods.baselines.ranking import Rows, Scope, best_rows
from methods.clara.documents import DocumentOptions, Documents
from methods.clara.store import Scores, cosines
from methods.clara.use import PAPER, Loaded, loaded
from methods.models.weights import weights_hash
from methods.registry import register


class QueryOptions(DocumentOptions):
    """Which adapter reads questions."""

    query_adapter: Literal["reasoner", "compressor"] = Field(
        "reasoner", description="what makes a question's memory; compressor: what the reasoner begins as, for checkpoints without"
    )


class ClaraRetrieverConfig(QueryOptions):
    """Options of the retriever."""

    offline: bool = Field(
        True,
        description="compress the whole corpus before the first question, and keep it; false: a question's candidates "
        "alone, each time it is asked",
    )


class Questions:
    """Memory of questions, and how documents score for them.

    Args:
        loaded: The model.
        options: Which adapter reads them.

    Raises:
        UserError: The checkpoint has no such adapter.
    """

    def __init__(self, loaded: Loaded, options: QueryOptions) -> None:
        loaded.require(options.query_adapter)
        self._clara, self._adapter = loaded.clara, options.query_adapter

    def memory(self, queries: Sequence[Query]) -> list[Any]:
        """float32 [M, h] of each, on the CPU; one by one, so that none depends on the others."""
        import torch

        with torch.inference_mode():
            return [self._clara.encode([query.text], self._adapter).memory[0].cpu() for query in queries]


@register(
    "clara_retriever",
    kind="retriever",
    summary="passages by the cosine of compressed question and passage: a whole corpus, or candidates",
    config=ClaraRetrieverConfig,
    paper=PAPER,
    extra="models",
    checkpoint_hash=lambda config: weights_hash(config.model),
)
class ClaraRetriever:
    """Retriever over compressed documents.

    Args:
        config: The checkpoint.
        services: Lends the device, and the folder of stores.
    """

    def __init__(self, config: ClaraRetrieverConfig, services: Services) -> None:
        model = loaded(config, services.device)
        self.documents = Documents(model, config, services)
        self.questions = Questions(model, config)
        self._offline = config.offline
        self._device = str(model.clara.device)

    def index(self, corpus: Corpus, folder: Path | None = None) -> Index:
        """Compress the corpus, or go on with what lies there; without `offline` there is nothing to do."""
        if self._offline:
            # Stores are shared by checkpoints that share a compressor: `folder` is of one checkpoint alone.
            self.documents.store(corpus, None if self.documents.folder(corpus) else folder)
        return ClaraIndex(self, corpus, self._offline, self._device)


class ClaraIndex:
    """A corpus whose documents are compared in memory.

    Args:
        retriever: Makes and finds memory.
        corpus: The documents.
        offline: Whether all of them are compressed.
        device: Where all are compared.
    """

    def __init__(self, retriever: ClaraRetriever, corpus: Corpus, offline: bool, device: str) -> None:
        self._retriever, self._corpus, self._offline, self._device = retriever, corpus, offline, device
        self._scope = Scope(corpus)

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """Rank by cosine (eq 3.1).

        Raises:
            UserError: A question has no candidates, and the corpus is not compressed.
        """
        asked = self._retriever.questions.memory(queries)
        allowed = [self._scope.rows(query) for query in queries]
        everywhere = [place for place, rows in enumerate(allowed) if rows is None]
        if everywhere and not self._offline:
            raise UserError(
                "this question has no candidates, and the corpus is not compressed",
                where=f"query {queries[everywhere[0]].id}",
                try_this="offline: true",
            )
        found: dict[int, tuple[Rows, Scores]] = {}
        if everywhere:
            store = self._retriever.documents.store(self._corpus)
            nearest = store.nearest([asked[place] for place in everywhere], k, self._device)
            found.update(zip(everywhere, nearest, strict=True))
        for place, rows in enumerate(allowed):
            if rows is not None:
                found[place] = self._among(asked[place], rows, k)
        return [self._scope.ranking(query, *found[place]) for place, query in enumerate(queries)]

    def _among(self, question: Any, rows: Rows, k: int) -> tuple[Rows, Scores]:
        """The k best of some documents."""
        if not len(rows):
            return rows, np.empty(0)
        if self._offline:
            scores = self._retriever.documents.store(self._corpus).scores(question, rows)
        else:
            ids = [self._corpus.ids[int(row)] for row in rows]
            scores = cosines(question, self._retriever.documents.of(self._corpus, ids))
        best = best_rows(scores, k, rows)
        return rows[best], scores[best]
