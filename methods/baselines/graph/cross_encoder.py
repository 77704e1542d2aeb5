"""Hybrid retriever of triples: BM25 and two encoders retrieve candidates, and a cross-encoder reranks them.

It is GPR's only baseline with external supervision: the published cross-encoder was trained on MS MARCO. Offline, `ragmeter
train graph_cross_encoder` trains one on worlds, which tables label `hybrid[worlds-ce]`.

Source: Li et al. 2023, Graph Reasoning for Question Answering with Triplet Retrieval (arXiv:2305.18742).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from benchmarks.corpus import Corpus
from benchmarks.graphs import TripleCorpus
from benchmarks.schema import Query
from methods.api import Index, Ranking, Services
from methods.baselines.graph.bm25 import verbalized
from methods.baselines.hybrid import fuse
from methods.composed import Composed
from methods.models.cross_encoder import CrossEncoderConfig, CrossEncoderModel
from methods.models.remote_code import check_models
from methods.models.weights import locate, weights_hash
from methods.pipeline import RetrieverChoice, RetrieverPart, index_folder
from methods.registry import Component, ModelMethodConfig, register
from methods.retrieval.triples import triple_corpus
from methods.training.stages import card_of
from methods.work import Lengths, Needs, Work, all_needs, encode, needs_of


def require_card(config: CrossEncoderConfig, published: bool, where: str) -> None:
    """Check that a local model has a card with its training data, unless it is declared as published.

    Args:
        config: Options with the model; a hub id counts as published.
        published: Whether a folder contains a published model.
        where: The option that names it.

    Raises:
        UserError: It is a folder without ragmeter's card, and is not declared as published.
    """
    folder = Path(locate(config.model))
    if folder.is_dir() and not published and card_of(config.model) is None:
        raise UserError(
            f"{config.model!r} has no record of its training",
            code="training-data-unstated",
            where=where,
            try_this="a checkpoint of `ragmeter train graph_cross_encoder`, or published: true for a copy of a published cross-encoder",
        )


RRF_DAMPING = 60
"""Constant added to ranks in reciprocal rank fusion."""
BACKFILLED_FROM = "backfilled_from"
"""Key in `notes` of a ranking: position (from 0) after which triples are in BM25's order, because the cross-encoder did not
score them.
"""
WHERE = "graph_hybrid, option model"


class GraphHybridConfig(CrossEncoderConfig, ModelMethodConfig):
    """Options of the cross-encoder and its candidates."""

    published: bool = Field(False, description="the folder is a copy of a published cross-encoder, so it needs no card of `ragmeter train`")
    sparse: RetrieverPart = Field(
        RetrieverChoice(id="bm25_triples"), description="lexical retriever, whose order also breaks ties; a bare name stands for {id: …}"
    )
    sparse_depth: int = Field(100, ge=1, description="triples taken from BM25")
    dense: RetrieverPart = Field(
        RetrieverChoice(id="two_tower"), description="dense retriever: also dpr_nq, gpr or skp; a bare name stands for {id: …}"
    )
    dense_depth: int = Field(100, ge=1, description="triples taken from the dense retriever")
    merge: Literal["union", "rrf"] = Field(
        "union", description="triples to read: union, all that either found; rrf, the best of both by reciprocal rank fusion"
    )
    rrf_depth: int = Field(100, ge=1, description="triples that the cross-encoder reads (merge: rrf)")

    def preflight(self) -> None:
        """Check the cross-encoder and both retrievers."""
        super().preflight()
        require_card(self, self.published, WHERE)
        for part in (self.sparse, self.dense):
            part.component.preflight()


def _weights(config: GraphHybridConfig) -> str:
    parts = (config.sparse.component.fingerprint, config.dense.component.fingerprint)
    return fingerprint(weights_hash(config.model, config.revision), parts)


def _work(config: GraphHybridConfig, lengths: Lengths) -> Work:
    """Estimate the work: both retrievers, and scoring every retrieved triple with its question."""
    pairs = min(config.sparse_depth + config.dense_depth if config.merge == "union" else config.rrf_depth, lengths.candidates)
    read = encode(
        CrossEncoderConfig.model_validate(config.model_dump(include=set(CrossEncoderConfig.model_fields))),
        lengths.questions * pairs,
        lengths.question + lengths.passage,
    )
    return config.sparse.component.work(lengths) + config.dense.component.work(lengths) + read


def _needs(config: GraphHybridConfig) -> Needs | None:
    return all_needs((needs_of(config), config.sparse.component.needs, config.dense.component.needs))


@register(
    "graph_hybrid",
    kind="retriever",
    summary="triples found by BM25 and two towers, ranked by a cross-encoder; the only supervised graph baseline",
    version=2,
    paper="Li et al. 2023, Graph Reasoning for Question Answering with Triplet Retrieval (arXiv:2305.18742)",
    checkpoint_hash=_weights,
    work=_work,
    needs=_needs,
)
class GraphHybrid:
    """Retriever role: hybrid candidates, reranked by a cross-encoder.

    Args:
        config: Options.
        services: Services for both retrievers, whose indexes are shared with runs of a single retriever.

    Raises:
        UserError: The cross-encoder's score was never trained.
    """

    over_triples = True

    def __init__(self, config: GraphHybridConfig, services: Services) -> None:
        self.config = config
        check_models(config)
        require_card(config, config.published, WHERE)
        self.model = CrossEncoderModel(config, services.device)
        self._services = services
        self._components = (config.sparse.component, config.dense.component)
        self._retrievers = [component.build(services) for component in self._components]

    def index(self, corpus: Corpus, folder: Path | None = None) -> Index:
        """Build or reopen the index of both retrievers.

        Raises:
            UserError: The corpus does not contain triples.
        """
        triples = triple_corpus(corpus, "graph_hybrid")
        sparse, dense = (
            retriever.index(triples, self._folder(component, triples, folder))
            for component, retriever in zip(self._components, self._retrievers, strict=True)
        )
        return GraphHybridIndex(self.config, triples, self.model, sparse, dense)

    def _folder(self, component: Component, corpus: Corpus, folder: Path | None) -> Path | None:
        own = index_folder(component, corpus, self._services)
        return folder / component.id if own is None and folder is not None else own


class GraphHybridIndex(Composed):
    """Indexes of both retrievers, with the cross-encoder.

    Args:
        config: Options.
        corpus: The triples.
        model: Cross-encoder.
        sparse, dense: The two indexes.
    """

    def __init__(self, config: GraphHybridConfig, corpus: TripleCorpus, model: CrossEncoderModel, sparse: Index, dense: Index) -> None:
        super().__init__(sparse, dense)
        self._config, self._corpus, self._model, self.device = config, corpus, model, model.device
        self._sparse, self._dense = sparse, dense

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """Retrieve, fuse, and rank by the cross-encoder's score; ties in BM25's order."""
        dense = self._dense.retrieve(queries, self._config.dense_depth)
        return [self._rank(query, self._ordered(query, k), near, k) for query, near in zip(queries, dense, strict=True)]

    def _ordered(self, query: Query, k: int) -> Ranking:
        """Return BM25's ranking: all triples of a query's graph, or as much of the whole corpus as needed."""
        needed = len(query.candidates) if query.candidates is not None else max(k, self._config.sparse_depth)
        return self._sparse.retrieve([query], needed)[0]

    def _rank(self, query: Query, ordered: Ranking, near: Ranking, k: int) -> Ranking:
        ids = self._merged(query, ordered.top(self._config.sparse_depth), near)
        rows = np.array([self._corpus.row(identifier) for identifier in ids], dtype=np.int64)
        scores = self._model.scores(query.text, verbalized(self._corpus.triples, rows))
        ranks = self._ranks(query, ordered)
        beyond = len(ranks)
        order = sorted(range(len(ids)), key=lambda position: (-scores[position], ranks.get(ids[position], beyond), rows[position]))[:k]
        read = set(ids)
        rest = [identifier for identifier in ordered.ids if identifier not in read][: k - len(order)]
        # Triples that were not scored follow those that were. Only the order of their scores has a meaning.
        floor = float(scores.min()) if len(ids) else 0.0
        ranked = (*(ids[position] for position in order), *rest)
        values = (*(float(scores[position]) for position in order), *(floor - position for position in range(1, len(rest) + 1)))
        return Ranking(query.id, ranked, values, ordered.usage + near.usage, {BACKFILLED_FROM: len(order)} if rest else {})

    def _ranks(self, query: Query, ordered: Ranking) -> dict[str, int]:
        """Return ranks in BM25's order, as far as they do not depend on the requested length."""
        ids = ordered.ids if query.candidates is not None else ordered.ids[: self._config.sparse_depth]
        return {identifier: position for position, identifier in enumerate(ids)}

    def _merged(self, query: Query, sparse: Ranking, dense: Ranking) -> tuple[str, ...]:
        """Return the distinct triples to score."""
        if self._config.merge == "union":
            return tuple(dict.fromkeys((*sparse.ids, *dense.ids)))
        return fuse(query, (sparse, dense), self._config.rrf_depth, self._corpus, RRF_DAMPING).ids
