"""Roles chained into a method: retriever → rerankers → compressor → reader, batch first and streaming.

What each stage is handed depends on one query alone, and every role promises the same of what it returns, so a
prediction does not depend on the batch it was made in, on the order of the questions, or on what an earlier
execution had already answered.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from benchmarks.corpus import Corpus
from benchmarks.schema import GoldQuery, Query, Question
from methods.api import (
    MARKER,
    Answer,
    Compressor,
    Context,
    ContextWriter,
    Control,
    Evidence,
    Index,
    Indexed,
    Method,
    Prediction,
    Ranking,
    Reader,
    Reading,
    Reranker,
    Retriever,
    Services,
    Usage,
)
from methods.registry import Component

PASSAGES = 5
"""Passages handed to the reader unless an experiment says otherwise."""
DEPTH = 100
"""Length of the ranking that is kept as evidence and scored: enough for recall@100."""
BATCH = 32
"""Queries per batch where the reader does not say (`batch_size`); bounds what a kill can lose."""
DEFAULT_READER = "extractive"


def index_folder(retriever: Component, corpus: Corpus, services: Services) -> Path | None:
    """Where the index of this retriever over this corpus lives; None where nothing is kept."""
    return services.folder("indexes", f"{retriever.fingerprint}-{corpus.fingerprint}")


@dataclass(frozen=True)
class Composition:
    """What a method is made of; can be described and fingerprinted without loading anything.

    Attributes:
        method: A retriever, which the other parts complete, or a whole method or control.
        reader: None completes a retriever by the default reader.
        rerankers: Applied one after another.
        compressor: Turns the passages for the reader into something shorter.
        k: Passages handed to the compressor and reader; None is 5, or all for retrievers that say so.
        depth: Length of the ranking that is retrieved, reranked and kept; None is 100. Never less than k.
        budget: Tokens that the compressor may deliver; None is the compressor's own.
    """

    method: Component
    reader: Component | None = None
    rerankers: tuple[Component, ...] = ()
    compressor: Component | None = None
    k: int | None = None
    depth: int | None = None
    budget: int | None = None

    def __post_init__(self) -> None:
        wanted = [("reader", self.reader), ("compressor", self.compressor)]
        for kind, part in [*wanted, *(("reranker", reranker) for reranker in self.rerankers)]:
            if part is not None and part.entry.kind != kind:
                raise UserError(f"{part.id!r} is a {part.entry.kind}, not a {kind}", where=f"method {self.method.id}")
        if self.method.entry.kind not in {"retriever", "method", "control"}:
            raise UserError(
                f"{self.method.id!r} is a {self.method.entry.kind} and cannot answer alone",
                try_this="name a retriever as the method and this as its part",
            )
        for name, value in (("k", self.k), ("depth", self.depth), ("budget", self.budget)):
            if value is not None and value < 1:
                raise UserError(f"{name} must be at least 1, not {value}", where=f"method {self.method.id}")
        if self.method.entry.whole:
            self._refuse_parts()
        if self.budget is not None and self.compressor is None:
            raise UserError(
                "budget is what a compressor may deliver, and there is no compressor",
                where=f"method {self.method.id}",
                try_this="add `compressor`, or remove `budget`",
            )

    def _refuse_parts(self) -> None:
        """A whole system takes no parts."""
        options = {
            "reader": self.reader,
            "rerankers": self.rerankers,
            "compressor": self.compressor,
            "k": self.k,
            "depth": self.depth,
            "budget": self.budget,
        }
        for name, value in options.items():
            if value:
                raise UserError(f"{self.method.id!r} answers by itself and takes no {name}", try_this=f"remove `{name}`")

    @property
    def answering(self) -> Component | None:
        """The reader in effect: the one given, or the default one; None for a whole method."""
        if self.reader is None and not self.method.entry.whole:
            return Component.of(DEFAULT_READER)
        return self.reader

    @property
    def handed_on(self) -> int | None:
        """Passages handed to compressor and reader; None for all, and for a whole method."""
        entry = self.method.entry
        return self.k or (None if entry.whole or entry.reads_all else PASSAGES)

    @property
    def kept(self) -> int | None:
        """Length of the ranking that is retrieved and kept; None for all, and for a whole method."""
        entry = self.method.entry
        depth = self.depth or (None if entry.whole or entry.reads_all else DEPTH)
        return None if depth is None or self.handed_on is None else max(depth, self.handed_on)

    @property
    def follows_benchmark(self) -> bool:
        """Whether any part follows the reading instructions of the benchmark."""
        parts = (self.method, *self.rerankers, self.compressor, self.answering)
        return any(part is not None and part.config.follows_benchmark for part in parts)

    def describe(self, reading: Reading | None = None) -> dict[str, Any]:
        """Every part with its version, options and weights: what the fingerprint is a hash of.

        Args:
            reading: The benchmark's instructions; described where a part follows them.
        """
        reader = self.answering
        followed = {"reading": asdict(reading)} if reading is not None and self.follows_benchmark else {}
        return {
            "method": self.method.describe(),
            "rerankers": [part.describe() for part in self.rerankers],
            "compressor": self.compressor.describe() if self.compressor else None,
            "reader": reader.describe() if reader else None,
            "k": self.handed_on,
            "depth": self.kept,
            "budget": self.budget,
            **followed,
        }

    @property
    def fingerprint(self) -> str:
        """Equal for methods that are made of equal parts."""
        return fingerprint(self.describe())

    def build(self, services: Services) -> Method:
        """Make the method: models are loaded, nothing is indexed yet.

        Raises:
            UserError: Parts were given to a control that answers by itself, or a part cannot be built.
        """
        built = self.method.build(services)
        if isinstance(built, Method):
            self._refuse_parts()
            return built
        reader = self.answering or Component.of(DEFAULT_READER)
        kind = ControlPipeline if self.method.entry.kind == "control" else Pipeline
        return kind(
            built,
            reader.build(services),
            rerankers=[part.build(services) for part in self.rerankers],
            compressor=self.compressor.build(services) if self.compressor else None,
            k=self.handed_on,
            depth=self.kept,
            budget=self.budget,
            locate=lambda corpus: index_folder(self.method, corpus, services),
        )


def assemble(
    method: Component,
    services: Services,
    *,
    reader: Component | None = None,
    rerankers: Sequence[Component] = (),
    compressor: Component | None = None,
    k: int | None = None,
    depth: int | None = None,
    budget: int | None = None,
) -> Method:
    """Make a method of its parts; the arguments are those of `Composition`.

    Raises:
        UserError: The parts do not fit, or one cannot be built.
    """
    return Composition(method, reader, tuple(rerankers), compressor, k, depth, budget).build(services)


class Pipeline:
    """A method made of roles.

    Args:
        retriever: Ranks passages.
        reader: Answers; its attribute `batch_size`, where it has one, is how many queries go through at once.
        rerankers: Order the retrieved passages anew, one after another.
        compressor: Shortens the first k passages for the reader.
        k: Passages handed on to compressor and reader; None for all that were ranked.
        depth: Passages ranked per query; None for all.
        budget: Tokens that the compressor may deliver.
        locate: From a corpus to the folder of its index; None keeps indexes in memory.
    """

    def __init__(
        self,
        retriever: Retriever,
        reader: Reader,
        *,
        rerankers: Sequence[Reranker] = (),
        compressor: Compressor | None = None,
        k: int | None = PASSAGES,
        depth: int | None = DEPTH,
        budget: int | None = None,
        locate: Any = None,
    ) -> None:
        self.retriever = retriever
        self.reader = reader
        self.rerankers = tuple(rerankers)
        self.compressor = compressor
        self.k = k
        self.depth = None if depth is None or k is None else max(depth, k)
        self.budget = budget
        self.batch_size = int(getattr(reader, "batch_size", BATCH))
        self._locate = locate
        self._corpus: Corpus | None = None
        self._index: Index | None = None

    def index(self, corpus: Corpus) -> Indexed:
        """Build the retriever's index over a corpus, or reopen it; an empty corpus needs none."""
        self._corpus = corpus
        folder = self._locate(corpus) if self._locate else None
        reused = folder is not None and any(folder.rglob(MARKER))
        started = time.perf_counter()
        self._index = self.retriever.index(corpus, folder) if len(corpus) else None
        spent = time.perf_counter() - started
        usage = Usage() if reused else getattr(self._index, "usage", None) or Usage()
        # A retriever that keeps nothing leaves no folder.
        kept = folder.name if folder is not None and any(folder.rglob(MARKER)) else ""
        return Indexed(kept, reused, replace(usage, seconds={"index": spent}))

    def answer(self, queries: Iterable[Query]) -> Iterator[Prediction]:
        """Yield one prediction per query, batch by batch.

        Raises:
            RuntimeError: `index` was not called.
        """
        if self._corpus is None:
            raise RuntimeError("call index(corpus) before answer(queries)")
        remaining = iter(queries)
        while batch := list(islice(remaining, self.batch_size)):
            yield from self._answer(batch, self._corpus)

    def _answer(self, options: Sequence[Query], corpus: Corpus) -> list[Prediction]:
        clock = _Clock(len(options))
        accelerator = _accelerator()
        if accelerator is not None:
            accelerator.reset_peak_memory_stats()
        with clock("retrieve"):
            results = rankings = self._retrieve(options, corpus)
        # Only the retriever of a control may see gold; what follows reads like any other method's reader.
        queries = [_without_gold(query) for query in options]
        for reranker in self.rerankers:
            with clock("rerank"):
                rankings = _matched(reranker.rerank(queries, rankings, corpus), queries, reranker)
        handed_on = [ranking if self.k is None else ranking.top(self.k) for ranking in rankings]
        if self.compressor is not None:
            with clock("compress"):
                contexts = self.compressor.compress(queries, handed_on, corpus, self.budget)
                contexts = _matched(contexts, queries, self.compressor)
        elif isinstance(self._index, ContextWriter):
            contexts = _matched(self._index.contexts(queries, handed_on), queries, self.retriever)
        else:
            contexts = _plain(handed_on, corpus)
        with clock("read"):
            answers = list(self.reader.read(queries, contexts))
        if len(answers) != len(queries):
            raise RuntimeError(f"{type(self.reader).__name__} gave {len(answers)} answers to {len(queries)} queries")
        peak = accelerator.max_memory_allocated() if accelerator is not None else 0
        return [
            _prediction(first, ranking, context, answer, clock.seconds, peak)
            for first, ranking, context, answer in zip(results, rankings, contexts, answers, strict=True)
        ]

    def _retrieve(self, queries: Sequence[Query], corpus: Corpus) -> list[Ranking]:
        """Rank; a query that may use no passage never reaches the index."""
        rankings = [Ranking(query.id, (), ()) for query in queries]
        searching = [position for position, query in enumerate(queries) if query.candidates != ()]
        if searching and self._index is not None:
            requests = [queries[position] for position in searching]
            depth = len(corpus) if self.depth is None else self.depth
            results = _matched(self._index.retrieve(requests, depth), requests, self.retriever)
            for position, ranking in zip(searching, results, strict=True):
                rankings[position] = ranking
        return rankings


class ControlPipeline(Pipeline):
    """A pipeline whose retriever is a control: it gets the whole question set before it answers."""

    def prepare(self, questions: Sequence[Question]) -> None:
        """Hand the questions on to the control."""
        if isinstance(self.retriever, Control):
            self.retriever.prepare(questions)


class _Clock:
    """Wall time per stage, shared equally over the queries of a batch."""

    def __init__(self, queries: int) -> None:
        self._queries = queries
        self._stage = ""
        self._start = 0.0
        self.seconds: dict[str, float] = {}

    def __call__(self, stage: str) -> _Clock:
        self._stage = stage
        return self

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *exception: object) -> None:
        spent = (time.perf_counter() - self._start) / self._queries
        self.seconds[self._stage] = self.seconds.get(self._stage, 0.0) + spent


def _without_gold(query: Query) -> Query:
    if not isinstance(query, GoldQuery):
        return query
    return Query(query.id, query.text, query.document_id, query.candidates, query.topic_entities)


def _matched(results: Sequence[Any], queries: Sequence[Query], role: Any) -> list[Any]:
    """Results of a role, checked to be one per query and in order: a shifted list would score silently wrong."""
    ids = [result.query_id for result in results]
    if ids != [query.id for query in queries]:
        raise RuntimeError(f"{type(role).__name__} must return one result per query, in order: got {ids[:3]}…")
    return list(results)


def _plain(rankings: Sequence[Ranking], corpus: Corpus) -> list[Context]:
    """Passages as they are, fetched once per batch."""
    wanted = list(dict.fromkeys(identifier for ranking in rankings for identifier in ranking.ids))
    passages = dict(zip(wanted, corpus.get(wanted), strict=True))
    return [Context(ranking.query_id, tuple(passages[i] for i in ranking.ids)) for ranking in rankings]


def _accelerator() -> Any:
    """What tells the memory of the accelerator in use, None where there is none.

    Memory of the process itself is not measured: what it peaked at says more about earlier tasks than about this one.
    """
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_initialized() else None


def _prediction(result: Ranking, ranking: Ranking, context: Context, answer: Answer, seconds: dict[str, float], peak: int) -> Prediction:
    """A prediction of what the retriever found, what became of it behind the rerankers, and what was read."""
    usage = result.usage + context.usage + answer.usage
    # The pipeline's clock is the one definition of a stage's seconds; a role may add stages of its own.
    usage = replace(usage, seconds={**usage.seconds, **seconds}, peak_memory_bytes=max(usage.peak_memory_bytes, peak))
    evidence = tuple(map(Evidence, ranking.ids, ranking.scores))
    notes = {**result.notes, **context.notes, **answer.notes}
    return Prediction(ranking.query_id, answer.text, evidence, usage, notes)
