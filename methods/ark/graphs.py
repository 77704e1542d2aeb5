"""Augmented queries from knowledge graphs, as `methods.knowledge` makes and keeps them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.schema import Question
from methods.api import Services
from methods.ark.config import ArkTrainingConfig
from methods.ark.knowledge import Augmented
from methods.ark.material import Document
from methods.knowledge.augmented import generator_of
from methods.knowledge.chunking import chunk
from methods.knowledge.extraction import chat_model, extractor_of
from methods.knowledge.graph import KnowledgeGraph
from methods.knowledge.keeping import graph_of, neighbourhoods_of, queries_of
from methods.knowledge.neighbourhoods import Neighbourhood
from methods.knowledge.seeds import GraphNamer, LLMNamer, Namer
from methods.models.encoder import Encoder, EncoderConfig


class LazyEncoder:
    """An encoder that is loaded when it is asked for vectors.

    Args:
        config: Options.
        services: Lends device and cache.
    """

    def __init__(self, config: EncoderConfig, services: Services) -> None:
        self._config, self._services = config, services

    @cached_property
    def _encoder(self) -> Encoder:
        return Encoder(self._config, self._services.device, self._services.folder("embeddings"))

    def passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of texts."""
        return self._encoder.passages(texts)


class GraphQueries:
    """Makes graph, neighbourhoods and queries of a document, and keeps them in the folder of work.

    Args:
        config: Options.
        work: The folder.
        services: Lends device and caches.
    """

    def __init__(self, config: ArkTrainingConfig, work: Path, services: Services) -> None:
        self._config, self._work = config, work
        self._extractor = extractor_of(config.kg, services)
        self._generator = generator_of(config.queries, services)
        seeds = config.neighbourhood.seeds
        asks = seeds.namer == "llm" and seeds.chat is not None
        self._namer: Namer = GraphNamer()
        if asks and seeds.chat is not None:
            self._namer = LLMNamer(chat_model(seeds.chat, "seeds", services.cache), seeds.prompt)
        self._encoder = LazyEncoder(config.kg.similarity.encoder, services)

    def graph(self, document: Document) -> KnowledgeGraph:
        """The graph of a document."""
        chunks = chunk(document.text, self._config.kg.chunk)
        return graph_of(document.id, chunks, self._extractor, self._work, self._config.kg.similarity, self._encoder)

    def around(self, graph: KnowledgeGraph, questions: Sequence[Question]) -> list[Neighbourhood]:
        """The neighbourhoods of questions."""
        return neighbourhoods_of(graph, questions, self._config.neighbourhood, self._work, self._namer, self._encoder)

    def queries(self, document: Document, questions: Sequence[Question]) -> Mapping[str, Augmented]:
        """The queries of questions about a document, by question id."""
        graph = self.graph(document)
        made = queries_of(graph, questions, self.around(graph, questions), self._generator, self._work)
        return {
            question.id: Augmented(question.id, *(one[size].queries if size in one else () for size in ("large", "small")))
            for question, one in zip(questions, made, strict=True)
        }
