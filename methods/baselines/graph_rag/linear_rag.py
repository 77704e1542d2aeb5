"""LinearRAG: PageRank over entities and passages, with sentences as bridges between entities, and no language model.

Each name in the question activates the most similar entity. In each round, an active entity selects its sentences most similar
to the question, and passes its score times that similarity to the other entities in them. The restart weights are these scores
for entities, and for passages

    0.05 · (ratio · dense + ln(1 + Σ score · ln(1 + occurrences) / round))

Source: LinearRAG (arXiv:2510.10114) and its released code. Ours: names by rules (or a spaCy pipeline), counted by sentences;
consecutive passages of a document are neighbors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.schema import Query
from methods.api import Ranking
from methods.baselines.graph_rag.common import GraphConfig, Group, SystemIndex, minmax, reading_work, register
from methods.graphs.extraction import ChunkRead
from methods.graphs.noun_phrases import NounPhrases
from methods.graphs.pagerank import iterate, walk_over
from methods.retrieval.ranking import best_rows

PASSAGE_WEIGHT = 0.05
"""Weight of passages in the restart distribution."""
TELEPORT = 0.5
EPS = 1e-6


class LinearConfig(GraphConfig):
    """Options of LinearRAG. Defaults are those of its config; run.py uses 0.4, 3 and 2."""

    extractor: Literal["noun_phrases", "worlds"] = Field(
        "noun_phrases", description="names by rules or by spaCy; worlds: the sentences of worlds"
    )
    threshold: float = Field(0.5, ge=0, description="minimum score at which an entity is active")
    sentences: int = Field(1, ge=1, description="sentences per active entity and round")
    rounds: int = Field(3, ge=1, description="rounds of activation, including the first")
    ratio: float = Field(1.5, ge=0, description="weight of a passage's dense score, scaled to [0, 1]")


@dataclass(frozen=True)
class Bridges:
    """Names, sentences and passages as matrices.

    Attributes:
        names: Distinct names.
        sentences: Distinct sentences that contain a name.
        holds: Incidence of names in sentences, sparse 0/1, shape (names, sentences).
        counts: Number of sentences with each name per passage, sparse, shape (names, passages).
        graph: Symmetric adjacency of names and passages, CSR.
    """

    names: list[str]
    sentences: list[str]
    holds: Any
    counts: Any
    graph: Any

    @classmethod
    def of(cls, reads: Sequence[ChunkRead], documents: Sequence[str | None]) -> Bridges:
        """Build the matrices from the chunks' entities and the sentences that mention them."""
        from scipy.sparse import block_array, coo_array, csr_array, diags_array

        listed = [(entity.name, entity.description, number) for number, read in enumerate(reads) for entity in read.entities]
        names = sorted({name for name, _, _ in listed})
        sentences = sorted({sentence for _, sentence, _ in listed})
        name_at, sentence_at = ({item: n for n, item in enumerate(items)} for items in (names, sentences))
        rows = np.array([name_at[name] for name, _, _ in listed], np.int64)
        columns = np.array([sentence_at[sentence] for _, sentence, _ in listed], np.int64)
        passages = np.array([number for _, _, number in listed], np.int64)
        ones = np.ones(len(listed))
        holds = coo_array((ones, (rows, columns)), shape=(len(names), len(sentences))).tocsr()
        holds.data[:] = 1.0
        counts = coo_array((ones, (rows, passages)), shape=(len(names), len(reads))).tocsr()
        totals = np.asarray(counts.sum(axis=0))
        edges = csr_array(counts @ diags_array(1 / np.maximum(totals, 1)))
        first = np.array([n for n in range(len(reads) - 1) if documents[n] is not None and documents[n] == documents[n + 1]], np.int64)
        ends = (np.concatenate([first, first + 1]), np.concatenate([first + 1, first]))
        neighbors = coo_array((np.ones(2 * len(first)), ends), shape=(len(reads), len(reads)))
        return cls(names, sentences, holds, counts, csr_array(block_array([[None, edges], [edges.T, neighbors]])))


@register(
    "linear_rag",
    summary="LinearRAG: PageRank over names and passages with sentences as bridges; needs no language model",
    config=LinearConfig,
    paper="LinearRAG (arXiv:2510.10114)",
    work=reading_work,
)
class LinearIndex(SystemIndex):
    """Index with entities, sentences and passages."""

    async def retrieve_one(self, query: Query, k: int) -> Ranking:
        """Rank passages by PageRank; if the question has no known name, by dense score."""
        return await self.compute(lambda: self._ranked(query, k))

    def bridges(self, group: Group) -> Bridges:
        """Return a group's matrices, computed once."""
        documents = [self.corpus.get([self.corpus.ids[row]])[0].document_id for row in group.rows.tolist()]
        return group.index.once("bridges", lambda: Bridges.of(group.index.reads, documents))

    def _ranked(self, query: Query, k: int) -> Ranking:
        group = self.group(query)
        vector = self.query_vector(query.text)
        dense = self.dense(group, vector)
        names = NounPhrases(pipeline=self.config.pipeline).names(query.text)
        bridges = self.bridges(group)
        scores, rounds = self.activated(group, bridges, names, vector)
        note: dict[str, Any] = {"names": list(names), "active": int((scores > 0).sum())}
        if not scores.any():
            return self.by_score(query, group, dense, k, {**note, "fallback": "dense"})
        restart = np.concatenate([scores, self.passage_weights(bridges, scores, rounds, dense)])
        make = lambda: walk_over(bridges.graph, 1 - TELEPORT, weighted=True, dtype=np.float64)  # noqa: E731
        walked = iterate(group.index.once("walk", make), restart[:, None], tolerance=EPS)
        return self.by_score(query, group, np.asarray(walked.scores[len(scores) :, 0], np.float64), k, note)

    def activated(
        self, group: Group, bridges: Bridges, names: Sequence[str], vector: NDArray[np.float32]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Compute entity scores, and the round in which each was first reached: both of shape (names,)."""
        scores, rounds = np.zeros(len(bridges.names)), np.ones(len(bridges.names), np.int64)
        if not names or not bridges.names:
            return scores, rounds
        vectors = group.index.once("names", lambda: group.index.vectors([name.lower() for name in bridges.names]))
        for name in names:
            cosines = vectors @ self.query_vector(name.lower())
            nearest = int(np.argmax(cosines))
            scores[nearest] = max(scores[nearest], float(cosines[nearest]))
        similarity = group.index.once("sentences", lambda: group.index.vectors(bridges.sentences)) @ vector
        used: set[int] = set()
        active = {place: scores[place] for place in np.flatnonzero(scores > 0).tolist()}
        for number in range(2, self.config.rounds + 1):
            reached: dict[int, float] = {}
            for place, score in active.items():
                if score < self.config.threshold:
                    continue
                free = np.array([s for s in bridges.holds[[place]].indices.tolist() if s not in used], np.int64)
                for sentence in free[best_rows(similarity[free].astype(np.float64), self.config.sentences)].tolist():
                    used.add(sentence)
                    handed = score * float(similarity[sentence])
                    if handed >= self.config.threshold:
                        for other in bridges.holds[:, [sentence]].tocoo().row.tolist():
                            reached[other] = max(reached.get(other, 0.0), handed)
            active = {place: score for place, score in reached.items() if score > scores[place]}
            for place, score in active.items():
                rounds[place] = number if scores[place] == 0 else rounds[place]
                scores[place] = score
        return scores, rounds

    def passage_weights(
        self, bridges: Bridges, scores: NDArray[np.float64], rounds: NDArray[np.int64], dense: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Compute the restart weights of passages: shape (passages,)."""
        occurrences = bridges.counts.copy()
        occurrences.data = np.log1p(occurrences.data)
        bonus = np.log1p(occurrences.T @ (scores / rounds))
        return PASSAGE_WEIGHT * (self.config.ratio * minmax(dense) + np.asarray(bonus))
