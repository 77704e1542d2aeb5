"""Shared code of retrievers of triples: bi-encoder towers, candidates of a query, and vector search."""

from __future__ import annotations

import tempfile
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus
from benchmarks.graphs import TripleCorpus, Triples
from benchmarks.schema import Query
from methods.api import Index, Ranking, Services
from methods.graphs.triples import LinearizeConfig, linearized
from methods.models.embeddings import EPSILON, ExactSearch, exact_scores
from methods.models.encoder import Encoder
from methods.models.encoder_config import EncoderConfig
from methods.models.question_vectors import QuestionVectors
from methods.models.remote_code import check_models
from methods.models.towers import Vectors
from methods.models.weights import weights_hash
from methods.registry import ModelMethodConfig
from methods.retrieval.ranking import Rows, Scope, best_rows
from methods.training.stages import card_of
from methods.work import Lengths, Work, encode, index, vectors


def require_checkpoint(model: str, method: str, *, where: str) -> None:
    """Check that a model is a checkpoint of a given training.

    Args:
        model: A folder.
        method: The training's id.
        where: The option that names it, for the message.

    Raises:
        UserError: It is not such a checkpoint.
    """
    card = card_of(model)
    if card is None or card.get("method") != method:
        raise UserError(
            f"{model!r} is not a checkpoint of {method}",
            code="not-checkpoint",
            where=where,
            try_this=f"a folder that `ragmeter train {method}` wrote; for other encoders: two_tower",
        )


def linearize_of(model: str) -> LinearizeConfig:
    """Return the text format of triples with which a checkpoint was trained.

    Raises:
        UserError: Its card does not state it.
    """
    card = card_of(model)
    try:
        assert card is not None
        return LinearizeConfig.model_validate(card["config"]["linearize"])
    except (AssertionError, KeyError, TypeError, ValueError):
        raise UserError(
            "the card of this checkpoint lacks the format of triples",
            code="checkpoint-card-incomplete",
            where=str(Path(model)),
            try_this="linearize: {rel: last, underscores: keep}, or the format used in pretraining",
        ) from None


def triple_corpus(corpus: Corpus, who: str) -> TripleCorpus:
    """Check that a corpus contains triples, and return it.

    Args:
        corpus: The corpus to search.
        who: The retriever's id, for the message.

    Raises:
        UserError: The corpus contains passages.
    """
    if isinstance(corpus, TripleCorpus):
        return corpus
    raise UserError(
        f"{who} ranks the triples of a graph, but this corpus contains passages",
        code="triples-over-passages",
        where=f"method {who}",
        try_this="a benchmark of graph question answering: webqsp, cwq or worlds/graph",
    )


class TripleScope:
    """Determines the triples that each query may use, and builds rankings of triple ids.

    A query's triples are in the order of its graph, which breaks ties.

    Args:
        corpus: The triples.
    """

    def __init__(self, corpus: TripleCorpus) -> None:
        self.corpus = corpus
        self._scope = Scope(corpus)

    def rows_for(self, query: Query) -> Rows:
        """Return the rows of a query's graph, in order; all rows if the query has no graph.

        Raises:
            UserError: A candidate is not in the corpus.
        """
        rows = self._scope.rows_for(query)
        return np.arange(len(self.corpus)) if rows is None else rows

    def ranking(self, query: Query, rows: Rows, scores: NDArray[Any] | None = None, notes: Mapping[str, Any] | None = None) -> Ranking:
        """Convert rows, best first, to a ranking of triple ids.

        Args:
            query: The query.
            rows: Rows of the corpus, shape (n,).
            scores: One per row; None if there is only an order: 0, −1, −2 …
            notes: Notes for the prediction.
        """
        values = -np.arange(len(rows)) if scores is None else scores
        return Ranking(query.id, tuple(self.corpus.triples.ids(rows)), tuple(map(float, values.tolist())), notes=notes or {})


# A question only needs the triples of its own graph, so a few questions about a large corpus need only a few blocks. Whole
# blocks are encoded, because a vector depends on its batch: then vectors do not depend on the order of questions.


BLOCK = 1024
"""Number of triples per encoded block."""
IN_MEMORY = 1 << 30
"""Maximum bytes of vectors in memory; larger arrays are in a temporary file, whose memory can be released."""


class TripleVectors:
    """Vectors of triples by row, encoded on demand.

    Args:
        triples: The triples.
        encoder: Encoder of triples; triples in its cache are not encoded again.
        linearize: Format of triples.
        titled: Whether the encoder is given each triple's head as the title of its text.
        folder: Folder for a temporary file, if one is needed; None: the system's default.
    """

    def __init__(
        self, triples: Triples, encoder: Encoder, linearize: LinearizeConfig, folder: Path | None = None, *, titled: bool = False
    ) -> None:
        self._triples, self._encoder, self._linearize, self._titled = triples, encoder, linearize, titled
        self._known = np.zeros(-(-len(triples) // BLOCK), bool)
        self._vectors = _room(len(triples), encoder.dimension, folder)
        self.longest = 0.0
        """Length of the longest vector so far."""

    def __len__(self) -> int:
        return len(self._triples)

    def of(self, rows: NDArray[np.integer]) -> Vectors:
        """Return the vectors of some rows: shape (rows, dimension)."""
        self._make(np.unique(np.asarray(rows, np.int64) // BLOCK))
        return self._vectors[rows]

    def all(self) -> Vectors:
        """Return the vectors of all rows: shape (triples, dimension)."""
        self._make(np.arange(len(self._known)))
        return self._vectors

    def _make(self, blocks: NDArray[np.int64]) -> None:
        for block in blocks[~self._known[blocks]].tolist():
            rows = np.arange(block * BLOCK, min((block + 1) * BLOCK, len(self)))
            texts = linearized(self._triples, rows, self._linearize)
            titles = [head for head, _, _ in self._triples.take(rows)] if self._titled else None
            inputs = list(zip(titles or [""] * len(texts), texts, strict=True))
            # If only the last part of relations is written, two triples may have the same text.
            positions = {item: position for position, item in enumerate(dict.fromkeys(inputs))}
            vectors = self._encoder.passages([text for _, text in positions], [title for title, _ in positions] if self._titled else None)
            self._vectors[rows] = vectors[[positions[item] for item in inputs]]
            self.longest = max(self.longest, float(np.linalg.norm(vectors, axis=1).max()))
            self._known[block] = True


def _room(rows: int, dimension: int, folder: Path | None) -> Vectors:
    if rows * dimension * 4 <= IN_MEMORY:
        return np.empty((rows, dimension), np.float32)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        # The file was unlinked and exists as long as its map; parts that were not written take no disk space.
        return np.asarray(np.memmap(file, np.float32, "w+", shape=(rows, dimension)))


# `TripleRetriever` takes any pair of encoders: untrained ones (`two_tower`), DPR's, SKP's, GPR's.


SearchScope = Literal["question", "global"]
Scored = tuple[Rows, NDArray[np.float64]]


class TripleSearchConfig(ModelMethodConfig):
    """Options shared by all bi-encoder retrievers of triples."""

    similarity: Literal["cosine", "dot"] = Field("cosine", description="similarity of a question and a triple; paper: cosine")
    scope: SearchScope = Field(
        "question", description="triples to rank: those of the question's own graph (paper), or global: of all graphs"
    )
    batch_size: int = Field(64, ge=1, description="triples encoded at once")
    dtype: Literal["float32", "bfloat16", "float16"] = Field("float32", description="dtype of the weights")

    @property
    @abstractmethod
    def encoder(self) -> EncoderConfig:
        """Return both towers as one encoder, with questions as queries and triples as passages."""

    def towers(self, **named: Any) -> EncoderConfig:
        """Return encoder options for towers without prompts.

        Args:
            named: Models, and options that are not the encoder's own.
        """
        shared = {"query_prompt": "", "passage_prompt": "", "batch_size": self.batch_size, "dtype": self.dtype}
        return EncoderConfig.model_validate({**shared, "normalize": self.similarity == "cosine", **named})

    def checkpoint_hash(self) -> str:
        """Return a hash of both towers' weights."""
        return self.encoder.checkpoint_hash()

    def preflight(self) -> None:
        """Check the models of both towers."""
        check_models(self.encoder)


class PretrainedTowersConfig(TripleSearchConfig):
    """Options of towers pretrained on a graph by `ragmeter train`."""

    trained_by: ClassVar[str]
    """Id of the training."""

    model: str = Field(description="folder of a checkpoint")
    linearize: LinearizeConfig | None = Field(None, description="format of triples; null: as in pretraining")

    def checkpoint_hash(self) -> str:
        """Return the hash of the checkpoint."""
        return weights_hash(self.model)

    def preflight(self) -> None:
        """Check that the model is a checkpoint of the training."""
        require_checkpoint(self.model, self.trained_by, where=f"{self.trained_by}, option model")


def open_towers(config: Any, services: Services, kind: type[Encoder] = Encoder) -> tuple[Encoder, LinearizeConfig, SearchScope]:
    """Load both towers, and return them with the text format of triples and the search scope."""
    encoder = kind(config.encoder, services.device, services.folder("embeddings"))
    return encoder, config.linearize or linearize_of(config.model), config.scope


def triples_work(config: Any, lengths: Lengths) -> Work:
    """Estimate the work: encode every triple and question once; triple vectors are cached by text."""
    return index(encode(config, lengths.corpus, lengths.passage) + vectors(config, lengths, lengths.corpus)) + encode(
        config, lengths.questions, lengths.question
    )


class TripleRetriever:
    """Retriever role: ranks triples by vector similarity to the question.

    Args:
        encoder: Encodes questions as its queries and triples as its passages. Its option `normalize` sets the similarity
            (cosine, else dot product), and it caches vectors on disk.
        linearize: Format of triples.
        scope: Triples that compete.
        who: The method's id, for messages.
        titled: Whether the encoder is given each triple's head as the title of its text.
    """

    over_triples = True

    def __init__(
        self,
        encoder: Encoder,
        linearize: LinearizeConfig | None = None,
        scope: SearchScope = "question",
        who: str = "gpr",
        *,
        titled: bool = False,
    ) -> None:
        self.encoder, self.linearize = encoder, linearize or LinearizeConfig.model_validate({})
        self.scope, self.who, self.titled = scope, who, titled

    def index(self, corpus: Corpus, folder: Path | None = None) -> Index:
        """Create the index; triples are encoded on demand and cached by the encoder.

        Raises:
            UserError: The corpus does not contain triples.
        """
        triples = triple_corpus(corpus, self.who)
        return TripleTowersIndex(triples, self.encoder, self.linearize, self.scope, folder, titled=self.titled)


class TripleTowersIndex:
    """Index of triples with vectors.

    Args:
        corpus: The triples.
        encoder, linearize, scope, titled: As in `TripleRetriever`.
        folder: Folder for a temporary file of vectors, if one is needed.
    """

    def __init__(
        self,
        corpus: TripleCorpus,
        encoder: Encoder,
        linearize: LinearizeConfig,
        scope: SearchScope,
        folder: Path | None = None,
        *,
        titled: bool = False,
    ) -> None:
        self.device = encoder.device
        self._questions, self._global = QuestionVectors(encoder), scope == "global"
        self._scope = TripleScope(corpus)
        self.vectors = TripleVectors(corpus.triples, encoder, linearize, folder, titled=titled)

    def build_for(self, queries: Sequence[Query]) -> None:
        """Divide all queries of a run into fixed batches (`QuestionVectors`)."""
        self._questions.build_for(queries)

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """Return the k triples most similar to each query; ties in the order of its graph."""
        requests = self._questions.of([query.text for query in queries])
        return [self._ranking(query, vector, k) for query, vector in zip(queries, requests, strict=True)]

    def _ranking(self, query: Query, queries: NDArray[np.float32], k: int) -> Ranking:
        # The graph is looked up in any scope, so that a query of another corpus is refused.
        rows = self._scope.rows_for(query)
        if self._global or query.candidates is None:
            (rows,) = self._search.near(queries[None], k)
            best, scores = nearest(self._search.vectors[rows], queries, k, self.vectors.longest)
        else:
            best, scores = nearest(self.vectors.of(rows), queries, k, self.vectors.longest)
        return self._scope.ranking(query, rows[best], scores)

    @cached_property
    def _search(self) -> ExactSearch:
        return ExactSearch(self.vectors.all(), self.device)


def nearest(vectors: Vectors, query: NDArray[np.float32], k: int, longest: float) -> Scored:
    """Return the k rows with the largest inner product, computed in float64 so that results do not depend on the batch.

    Args:
        vectors: Shape (n, dimension).
        query: Shape (dimension,).
        k: Maximum number of rows.
        longest: Upper bound on the length of rows.

    Returns:
        Rows, best first, with equal ones in their order, and their products.
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
