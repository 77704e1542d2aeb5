"""Mine hard negatives: chunks of the document that augmented queries retrieve and that are not positives of the question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.core.errors import Broke
from benchmarks.core.random import Draws
from benchmarks.schema import Question
from benchmarks.sources import data_path
from methods.api import Services
from methods.ark.config import ArkTrainingConfig, MineConfig
from methods.ark.data import Document, Piece, TrainRow
from methods.flow import in_worker, together
from methods.graphs.augmented_queries import GRAPH_CALLS_FAILED, Neighborhoods, QueryGenerator, generator_of, graph_of, queries_of
from methods.graphs.chunking import Chunk, chunk
from methods.graphs.extraction import extractor_of
from methods.graphs.knowledge_graph import KnowledgeGraph
from methods.graphs.neighborhood import GraphNamer, LLMNamer, Namer
from methods.graphs.recorded import recorded_queries
from methods.models.encoder import Encoder
from methods.models.encoder_config import EncoderConfig
from methods.models.llm import open_llm
from methods.training.journal import HOPELESS


@dataclass(frozen=True, slots=True)
class Augmented:
    """Augmented queries of a question from its large and small neighborhood; empty without seeds."""

    question_id: str
    large: tuple[str, ...]
    small: tuple[str, ...]


class QuerySource(Protocol):
    """Protocol of sources of augmented queries, with saved results."""

    async def queries(self, document: Document, questions: Sequence[Question]) -> Mapping[str, Augmented]:
        """Return the augmented queries by question id, for questions about a document."""
        ...


class LazyEncoder:
    """Encoder that is loaded on first use.

    Args:
        config: Options.
        services: Services; device and cache are used.
    """

    def __init__(self, config: EncoderConfig, services: Services) -> None:
        self._config, self._services = config, services

    @cached_property
    def _encoder(self) -> Encoder:
        return Encoder(self._config, self._services.device, self._services.folder("embeddings"))

    def passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode texts."""
        return self._encoder.passages(texts)


class GraphQueries:
    """Source that builds a document's graph, neighborhoods and queries, and saves them in the working folder.

    Args:
        config: Options.
        work: Working folder.
        services: Services; device and caches are used.
    """

    def __init__(self, config: ArkTrainingConfig, work: Path, services: Services) -> None:
        self._config, self._work = config, work
        self._extractor = extractor_of(config.kg, services)
        self._services = services
        seeds = config.neighborhood.seeds
        self._namer: Namer = GraphNamer()
        if (llm := seeds.active_llm) is not None:
            model = open_llm(llm, services, role="seeds")
            self._namer = LLMNamer(model, seeds.prompt)
        self._encoder = LazyEncoder(config.kg.similarity.encoder, services)
        self._in_vain, self._any = 0, False

    @cached_property
    def _generator(self) -> QueryGenerator:
        return generator_of(self._config.queries, self._services)

    async def graph(self, document: Document) -> KnowledgeGraph:
        """Return a document's knowledge graph."""
        if self._config.kg.extractor == "file":
            chunks = [Chunk(index, passage.full_text, 0, 0) for index, passage in enumerate(document.passages)]
        else:
            chunks = await in_worker(partial(chunk, document.text, self._config.kg.chunk))
        return await graph_of(document.id, chunks, self._extractor, self._work, self._config.kg.similarity, self._encoder)

    def around(self, graph: KnowledgeGraph) -> Neighborhoods:
        """Return the provider of neighborhoods in a graph."""
        return Neighborhoods(graph, self._config.neighborhood, self._work, self._namer)

    async def queries(self, document: Document, questions: Sequence[Question]) -> Mapping[str, Augmented]:
        """Return the augmented queries by question id, for questions about a document; none if every call for its graph failed.

        Raises:
            Broke: So many passages in a row got no reply that the endpoint does not answer.
        """
        try:
            graph = await self.graph(document)
        except Broke as error:
            # One document may be refused, for example by a content filter.
            self._in_vain += len(document.pieces)
            if error.code != GRAPH_CALLS_FAILED or self._in_vain >= HOPELESS or not self._any:
                raise
            return {question.id: Augmented(question.id, (), ()) for question in questions}
        self._in_vain, self._any = 0, True
        around = self.around(graph)

        async def augmented(question: Question) -> Augmented:
            made = await queries_of(graph, question, await around(question), self._generator, self._work)
            return Augmented(question.id, *(made[size].queries if size in made else () for size in ("large", "small")))

        return {item.question_id: item for item in await together(*map(augmented, questions))}


class RecordedQueries:
    """Source of augmented queries recorded in a file; no graph is built.

    Args:
        path: The file.
        most: Maximum queries per question and size.
    """

    def __init__(self, path: Path, most: int) -> None:
        self._recorded, self._most = recorded_queries(path), most

    async def queries(self, document: Document, questions: Sequence[Question]) -> Mapping[str, Augmented]:
        """Return the recorded queries by question id; empty for questions missing from the file."""
        kept = {question.id: self._recorded.get(question.id, {}) for question in questions}
        return {name: Augmented(name, *(sizes.get(size, ())[: self._most] for size in ("large", "small"))) for name, sizes in kept.items()}


def query_source(config: ArkTrainingConfig, work: Path, services: Services) -> QuerySource:
    """Build the source of augmented queries that the options select."""
    if config.queries.generator == "recorded":
        return RecordedQueries(data_path(config.queries.path or ""), config.queries.most)
    return GraphQueries(config, work, services)


class Embedder(Protocol):
    """Interface of the encoder for mining; `methods.models.encoder.Encoder` implements it."""

    def passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode chunks: shape (texts, dimension)."""
        ...

    def queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode queries: shape (texts, dimension)."""
        ...


@dataclass(frozen=True, slots=True)
class Mined:
    """Negatives mined for a question.

    Attributes:
        question_id: Id of the question.
        stage: The stage.
        model: Hash of the retrieving encoder.
        queries: The augmented queries.
        retrieved: Chunks retrieved by any query, sorted by best rank, then by position.
        negatives: Retrieved chunks that may be negatives.
    """

    question_id: str
    stage: str
    model: str
    queries: tuple[str, ...]
    retrieved: tuple[str, ...]
    negatives: tuple[str, ...]

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Mined:
        """Restore the result from its JSON object."""
        lists = {name: tuple(fields[name]) for name in ("queries", "retrieved", "negatives")}
        return cls(fields["question_id"], fields["stage"], fields["model"], **lists)


def union(scores: NDArray[np.float32], top_k: int) -> list[int]:
    """Return the chunks among the top_k of any query, sorted by best rank; `scores` has shape (queries, chunks)."""
    if not len(scores):
        return []
    order = np.argsort(-scores, axis=1, kind="stable")[:, :top_k]
    best: dict[int, int] = {}
    for row in order.tolist():
        for rank, position in enumerate(row):
            best[position] = min(rank, best.get(position, rank))
    return sorted(best, key=lambda position: (best[position], position))


def eligible(positions: Sequence[int], pieces: Sequence[Piece], kept_out: Sequence[str]) -> list[int]:
    """Remove excluded chunks, chunks with the text of an excluded one, and duplicates from positions."""
    taken = {piece.text for piece in pieces if piece.id in set(kept_out)}
    results = []
    for position in positions:
        piece = pieces[position]
        if piece.text in taken:
            continue
        taken.add(piece.text)
        results.append(position)
    return results


def mine(
    document: Document,
    queries: Mapping[str, Sequence[str]],
    kept_out: Mapping[str, Sequence[str]],
    encoder: Embedder,
    config: MineConfig,
    stage: str,
    model: str,
) -> list[Mined]:
    """Mine the negatives of a document's questions.

    Args:
        document: The document.
        queries: Augmented queries by question; a question without queries gets no negatives.
        kept_out: Excluded chunks by question, including its positives.
        encoder: Encoder for retrieval.
        config: Depth and filter.
        stage, model: As in `Mined`.
    """
    ids = [question.id for question in document.questions if queries.get(question.id)]
    chunks = encoder.passages([piece.text for piece in document.pieces])
    flat = [query for item in ids for query in queries[item]]
    vectors = encoder.queries(flat) if flat else np.empty((0, chunks.shape[1]), np.float32)
    result, start = [], 0
    for question in document.questions:
        own = tuple(queries.get(question.id, ()))
        scores = vectors[start : start + len(own)] @ chunks.T
        start += len(own)
        positions = union(scores, config.top_k)
        good = eligible(positions, document.pieces, kept_out[question.id])
        names = [tuple(document.pieces[position].id for position in some) for some in (positions, good)]
        result.append(Mined(question.id, stage, model, own, names[0], names[1]))
    return result


def random_pool(document: Document, kept_out: Sequence[str]) -> tuple[str, ...]:
    """Return all chunks of a document that may be negatives of a question."""
    positions = eligible(range(len(document.pieces)), document.pieces, kept_out)
    return tuple(document.pieces[position].id for position in positions)


def rows_of(
    document: Document, positives: Mapping[str, Sequence[str]], pools: Mapping[str, Sequence[str]], stage: str, sample: int, seed: int
) -> tuple[list[TrainRow], int]:
    """Build the training rows of a document's questions: one per positive, each with sampled negatives.

    Args:
        document: The document.
        positives: Positives by question.
        pools: Possible negatives by question.
        stage: The stage.
        sample: Negatives per row; 0 needs no pools.
        seed: Random seed.

    Returns:
        The rows, and the number of rows dropped for lack of negatives.
    """
    rows: list[TrainRow] = []
    skipped = 0
    for question in document.questions:
        pool = list(pools.get(question.id, ()))
        for positive in positives[question.id]:
            if sample and not pool:
                skipped += 1
                continue
            drawn = Draws("negatives", seed, stage, question.id, positive).sample(pool, sample)
            own = tuple(positives[question.id])
            rows.append(TrainRow(question.id, document.id, stage, question.text, positive, tuple(drawn), own))
    return rows, skipped
