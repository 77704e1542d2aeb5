"""RQ-RAG with its own model: as a retriever, whose passages any reader reads, and whole, answering by itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import Field

from benchmarks.corpus import Corpus
from benchmarks.fingerprint import fingerprint
from benchmarks.schema import Query
from methods.api import FAILED, Evidence, Index, Prediction, Ranking, Services
from methods.baselines.hybrid import Part, RetrieverPart
from methods.baselines.rq_rag_prompted import NOTE
from methods.baselines.rq_rag_tree import Leaf, Tree, TreeConfig
from methods.models.causal import CausalModel
from methods.models.weights import locate, weights_hash
from methods.pipeline import DEPTH, index_folder
from methods.registry import MethodConfig, register

BATCH = 8
"""Questions whose trees are grown at once."""
TOO_LONG = "the question alone is longer than the model's context"
PAPER = "Chan et al. 2024, RQ-RAG: Learning to Refine Queries for Retrieval Augmented Generation (arXiv:2404.00610)"


class RqRagConfig(TreeConfig, MethodConfig):
    """Options of RQ-RAG: those of its tree, and what it searches with."""

    retriever: RetrieverPart = Field(
        Part(id="dense"), description="what to search with; a bare name stands for {id: …}; ARK's parity: Qwen3"
    )

    def preflight(self) -> None:
        """Check the model's folder and the retriever."""
        locate(self.model)
        self.retriever.component.preflight()


def _weights(config: RqRagConfig) -> str:
    return fingerprint(weights_hash(config.model, config.revision), config.retriever.component.fingerprint)


@register(
    "rq_rag",
    kind="retriever",
    summary="RQ-RAG's own model refines the question in a tree of searches; the passages of its best path",
    config=RqRagConfig,
    paper=PAPER,
    extra="models",
    checkpoint_hash=_weights,
)
class RqRag:
    """Retriever by RQ-RAG's tree.

    Args:
        config: Options.
        services: Lends device and seed; handed to the retriever underneath, whose index it shares.
    """

    def __init__(self, config: RqRagConfig, services: Services) -> None:
        self.config = config
        self._services = services
        self._retriever = config.retriever.component.build(services)
        self._model = CausalModel(config, services.device)

    def index(self, corpus: Corpus, folder: Path | None = None) -> RqRagIndex:
        """The index of the retriever underneath."""
        own = index_folder(self.config.retriever.component, corpus, self._services) or folder
        index = self._retriever.index(corpus, own)
        return RqRagIndex(Tree(self.config, self._model, index, corpus, self._services.seed))


class RqRagIndex:
    """An index that a tree searches.

    Args:
        tree: Grown for each query.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """The passages along the path that counts, in the order in which they were found.

        Its queries and its answer stand in the notes under `rq_rag`; where no prompt left room for an answer, there
        are no passages, and the notes say why.
        """
        grown = []
        for start in range(0, len(queries), BATCH):
            grown += self._tree.grow(queries[start : start + BATCH])
        return [self._ranking(query, self._tree.chosen(leaves), k, usage) for query, (leaves, usage) in zip(queries, grown, strict=True)]

    @staticmethod
    def _ranking(query: Query, leaf: Leaf | None, k: int, usage: Any) -> Ranking:
        if leaf is None:
            return Ranking(query.id, (), (), usage, {NOTE: {"failed": [TOO_LONG]}})
        ids = leaf.node.found[:k]
        note: dict[str, Any] = {NOTE: {"queries": list(leaf.node.queries), "answer": leaf.answer}}
        return Ranking(query.id, ids, tuple(1 / rank for rank in range(1, len(ids) + 1)), usage, note)


@register(
    "rq_rag_native",
    kind="method",
    summary="RQ-RAG answering by itself: the answer at the end of its best path",
    config=RqRagConfig,
    paper=PAPER,
    extra="models",
    checkpoint_hash=_weights,
)
class NativeRqRag:
    """RQ-RAG as a whole system.

    Args:
        config: Options.
        services: As of `RqRag`.
    """

    def __init__(self, config: RqRagConfig, services: Services) -> None:
        self._retriever = RqRag(config, services)
        self._index: Index | None = None

    def index(self, corpus: Corpus) -> None:
        """Build the index of the retriever underneath, or reopen it."""
        self._index = self._retriever.index(corpus) if len(corpus) else None

    def answer(self, queries: Iterable[Query]) -> Iterator[Prediction]:
        """Yield the answer at the end of each query's best path.

        Raises:
            RuntimeError: `index` was not called, or the corpus is empty.
        """
        if self._index is None:
            raise RuntimeError("call index(corpus) with a corpus before answer(queries)")
        remaining = iter(queries)
        while batch := list(islice(remaining, BATCH)):
            for ranking in self._index.retrieve(batch, DEPTH):
                yield _answered(ranking)


def _answered(ranking: Ranking) -> Prediction:
    said = ranking.notes[NOTE]
    evidence = tuple(map(Evidence, ranking.ids, ranking.scores))
    notes = {**ranking.notes, **({FAILED: said["failed"][0]} if "failed" in said else {})}
    return Prediction(ranking.query_id, said.get("answer", ""), evidence, ranking.usage, notes)
