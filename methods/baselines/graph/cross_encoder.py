"""Rerank triples that BM25 and two towers retrieve with a cross-encoder (coarse to fine).

It is the only baseline of GPR's that brings supervision of its own: the published cross-encoder was trained on the
questions and passages of MS MARCO. Where no hub is at hand, `ragmeter train graph_cross_encoder` trains one on worlds;
a row of a table with that one is called `hybrid[worlds-ce]`.

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
from methods.models.cross_encoder import CrossEncoderConfig, CrossEncoderModel
from methods.models.weights import check_models, locate, weights_hash
from methods.pipeline import RetrieverChoice, RetrieverPart, index_folder
from methods.registry import Component, ModelMethodConfig, register
from methods.retrieval.triples import triple_corpus
from methods.training.stages import card_of
from methods.work import Lengths, Needs, Work, all_needs, encode, needs_of


def require_card(config: CrossEncoderConfig, published: bool, where: str) -> None:
    """Check, without loading anything, that a folder says what trained it.

    Args:
        config: Names the model; an id of the hub is taken as published.
        published: Whether somebody else trained what the folder holds.
        where: The option that names it.

    Raises:
        UserError: It is a folder without a card of ours and not said to be published.
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
"""Added to every rank when rankings are merged by reciprocal ranks."""
BACKFILLED_FROM = "backfilled_from"
"""Key in the `notes` of a ranking longer than what was read: from this place (from 0) on, BM25's order stands."""
WHERE = "graph_hybrid, option model"


class GraphHybridConfig(CrossEncoderConfig, ModelMethodConfig):
    """Options of the cross-encoder, and of what it is given to read."""

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
    """Return the work: both retrievers, and every triple that one of them found read with its question."""
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
    """Retriever in two steps.

    Args:
        config: Options.
        services: Handed to both retrievers, whose indexes are shared with runs of each alone.

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
            UserError: The corpus is not one of triples.
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


class GraphHybridIndex:
    """Two indexes of a corpus of triples, and what reads their finds.

    Args:
        config: Options.
        corpus: The triples.
        model: Scores a question and a triple.
        sparse, dense: The two indexes.
    """

    def __init__(self, config: GraphHybridConfig, corpus: TripleCorpus, model: CrossEncoderModel, sparse: Index, dense: Index) -> None:
        self._config, self._corpus, self._model, self.device = config, corpus, model, model.device
        self._sparse, self._dense = sparse, dense

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """Find, merge, and rank by the cross-encoder's score; equal scores by BM25's order."""
        dense = self._dense.retrieve(queries, self._config.dense_depth)
        return [self._rank(query, self._ordered(query, k), near, k) for query, near in zip(queries, dense, strict=True)]

    def _ordered(self, query: Query, k: int) -> Ranking:
        """Return BM25's order: of all triples of a query's own graph, of the whole corpus as far as it is needed."""
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
        # What was not read stands below what was; only the order of scores means anything.
        floor = float(scores.min()) if len(ids) else 0.0
        ranked = (*(ids[position] for position in order), *rest)
        values = (*(float(scores[position]) for position in order), *(floor - position for position in range(1, len(rest) + 1)))
        return Ranking(query.id, ranked, values, ordered.usage + near.usage, {BACKFILLED_FROM: len(order)} if rest else {})

    def _ranks(self, query: Query, ordered: Ranking) -> dict[str, int]:
        """Return places in BM25's order, as far as they do not depend on how long a ranking is asked for."""
        ids = ordered.ids if query.candidates is not None else ordered.ids[: self._config.sparse_depth]
        return {identifier: position for position, identifier in enumerate(ids)}

    def _merged(self, query: Query, sparse: Ranking, dense: Ranking) -> tuple[str, ...]:
        """Return the triples that are read, each once."""
        if self._config.merge == "union":
            return tuple(dict.fromkeys((*sparse.ids, *dense.ids)))
        return fuse(query, (sparse, dense), self._config.rrf_depth, self._corpus, RRF_DAMPING).ids
