"""Chain roles into a method: retriever → rerankers → compressor → reader, one coroutine per question.

The input of each stage depends only on one query, and so does each role's output. A prediction therefore does not
depend on other questions in flight, on the order of the questions, or on answers of an earlier execution.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, field_serializer

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from benchmarks.core.models import FrozenModel
from benchmarks.corpus import Corpus
from benchmarks.schema import Query, Question, without_gold
from methods.accelerator import peak_memory, reset_peak_memory
from methods.api import (
    CAUSE,
    CODE,
    ENDPOINTS,
    FAILED,
    KEPT_CALLS,
    MARKER,
    SCRIPTED,
    SPENDING,
    SUPPORT,
    WAIT,
    Answer,
    Compressor,
    Context,
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
    outside_of,
    raised,
)
from methods.composed import merged
from methods.flow import IN_FLIGHT, ContractError, form_of, in_flight, is_cancelled, one, stream, trace
from methods.registry import METHODS, Component

PASSAGES = 5
"""Default number of passages for the reader."""
DEPTH = 100
"""Default length of the ranking that is stored as evidence and scored: enough for recall@100."""
DEFAULT_READER = "extractive"
_STATED = ("asked", "model", "system_fingerprint", "version")


class RetrieverChoice(FrozenModel):
    """Option value that names a retriever and its options."""

    id: str = Field(description="a registered retriever")
    config: dict[str, Any] = Field(default_factory=dict, description="options of the retriever")

    @property
    def component(self) -> Component:
        """Look up the retriever in the registry and validate its options."""
        return Component.of(self.id, self.config)

    @field_serializer("config")
    def _described(self, config: dict[str, Any]) -> dict[str, Any]:
        """Leave out what descriptions and fingerprints leave out elsewhere: options of speed, cost and keys."""
        described: dict[str, Any] = _without_excluded(config, self.component.config)
        return described


def _without_excluded(stated: Any, options: Any) -> Any:
    """Return options as stated, without those whose field is excluded from dumps; `options`: the same, validated."""
    if isinstance(stated, Mapping) and isinstance(options, RetrieverChoice):
        return {**stated, "config": _without_excluded(stated.get("config", {}), options.component.config)}
    if isinstance(stated, Mapping) and isinstance(options, BaseModel):
        fields = type(options).model_fields
        kept = {name: value for name, value in stated.items() if name not in fields or not fields[name].exclude}
        return {name: _without_excluded(value, getattr(options, name, None)) for name, value in kept.items()}
    if isinstance(stated, list | tuple) and isinstance(options, list | tuple) and len(stated) == len(options):
        return [_without_excluded(*item) for item in zip(stated, options, strict=True)]
    return stated


def _check_kind(choice: RetrieverChoice) -> RetrieverChoice:
    if (kind := choice.component.entry.kind) != "retriever":
        raise ValueError(f"{choice.id!r} is a {kind}, not a retriever")
    return choice


RetrieverPart = Annotated[
    RetrieverChoice, BeforeValidator(lambda value: {"id": value} if isinstance(value, str) else value), AfterValidator(_check_kind)
]
"""Type of an option that names a retriever; a name without options is short for `{id: …}`."""


def index_folder(retriever: Component, corpus: Corpus, services: Services) -> Path | None:
    """Return the folder where this retriever's index of the corpus is stored; None if indexes are not kept on disk."""
    return services.folder("indexes", f"{retriever.fingerprint}-{corpus.fingerprint}")


def indexed(retriever: Retriever, corpus: Corpus, folder: Path | None) -> tuple[Index | None, Indexed]:
    """Build or reopen a retriever's index over a corpus, and return it with the cost; an empty corpus needs no index."""
    reused = folder is not None and any(folder.rglob(MARKER))
    started = time.perf_counter()
    index = retriever.index(corpus, folder) if len(corpus) else None
    spent = time.perf_counter() - started
    # An index records its cost, even if another run paid for it.
    usage = getattr(index, "usage", None) or Usage()
    # A retriever that stores nothing leaves no folder.
    kept = folder.name if folder is not None and any(folder.rglob(MARKER)) else ""
    return index, Indexed(kept, reused, replace(usage, seconds={"index": spent}), {**part_notes(retriever), **part_notes(index)})


def part_notes(part: Any) -> Mapping[str, Any]:
    """Return what a part reports about itself for `Indexed.notes`; if it has no notes, those of its encoder."""
    every = getattr(part, "notes", None), getattr(getattr(part, "encoder", None), "notes", None)
    return next((notes for notes in every if isinstance(notes, Mapping)), {})


@dataclass(frozen=True)
class Composition:
    """Specification of a method: its parts and their sizes. Describing and fingerprinting it loads no model.

    Attributes:
        method: A retriever, which the other parts complete, a whole method, or a control.
        reader: The reader; None adds the default reader to a retriever.
        rerankers: Rerankers, applied one after another.
        compressor: Compressor that shortens the passages for the reader.
        k: Number of passages for the compressor and reader; None is 5, or all for retrievers that declare it.
        depth: Length of the ranking that is retrieved, reranked and stored; None is 100. Never less than k.
        budget: Maximum tokens of the compressor's output; None is the compressor's own.
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
                raise UserError(f"{part.id!r} is a {part.entry.kind}, not a {kind}", code="wrong-kind", where=f"method {self.method.id}")
        if self.method.entry.kind not in {"retriever", "method", "control"}:
            raise UserError(
                f"{self.method.id!r} is a {self.method.entry.kind} and cannot answer alone",
                code="part-without-answers",
                try_this="name a retriever as the method and this as its part",
            )
        self._refuse_memory()
        for name, value in (("k", self.k), ("depth", self.depth), ("budget", self.budget)):
            if value is not None and value < 1:
                raise UserError(f"{name} must be at least 1, not {value}", code="number-too-small", where=f"method {self.method.id}")
        if self.method.entry.whole:
            self._refuse_parts()
        if self.budget is not None and self.compressor is None:
            raise UserError(
                "option budget needs a compressor",
                code="budget-without-compressor",
                where=f"method {self.method.id}",
                try_this="add `compressor`, or remove `budget`",
            )

    def _refuse_memory(self) -> None:
        """Raise an error if the reader cannot read the compressor's output."""
        memory, reader = self.compressor.entry.memory if self.compressor else None, self.answering
        if memory is None or reader is None:
            return
        if memory in reader.entry.reads_memory:
            self._refuse_other_models(reader)
            return
        fitting = ", ".join(entry.id for entry in METHODS if memory in entry.reads_memory)
        raise UserError(
            f"{reader.id!r} reads passages, and {self.compressor.id!r} delivers memory of {memory}",  # type: ignore[union-attr]
            code="reader-without-memory",
            where=f"method {self.method.id}",
            try_this=f"reader: {fitting}" if fitting else "a compressor that delivers passages",
        )

    def _refuse_other_models(self, reader: Component) -> None:
        """Raise an error if a reader that only reads its own memory (`same_model`) has another checkpoint than the compressor."""
        theirs, own = getattr(self.compressor.config, "model", None), getattr(reader.config, "model", None)  # type: ignore[union-attr]
        if getattr(reader.entry.factory, "same_model", False) and theirs != own:
            raise UserError(
                f"{reader.id!r} is to read memory by {theirs!r} with the model {own!r}",
                code="reader-model-mismatch",
                where=f"method {self.method.id}",
                try_this="the same model for compressor and reader",
            )

    def _refuse_parts(self) -> None:
        """Raise an error if other parts are given to a complete system."""
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
                raise UserError(
                    f"{self.method.id!r} answers by itself and takes no {name}", code="parts-of-whole-method", try_this=f"remove `{name}`"
                )

    @property
    def answering(self) -> Component | None:
        """Return the reader that will be used: the given or the default one; None for a whole method."""
        if self.reader is None and not self.method.entry.whole:
            return Component.of(DEFAULT_READER)
        return self.reader

    @property
    def handed_on(self) -> int | None:
        """Return how many passages compressor and reader receive; None for all of them, or if the method is a whole one."""
        entry = self.method.entry
        return self.k or (None if entry.whole or entry.reads_all else PASSAGES)

    @property
    def context_tokens(self) -> int:
        """Return the maximum tokens of context that the index writes for the reader besides passages; 0 with a compressor."""
        return 0 if self.compressor is not None else self.method.config.context_tokens

    @property
    def kept(self) -> int | None:
        """Return the length of the ranking that is retrieved and stored; None for all passages, or if the method is a whole
        one.
        """
        entry = self.method.entry
        depth = self.depth or (None if entry.whole or entry.reads_all else DEPTH)
        return None if depth is None or self.handed_on is None else max(depth, self.handed_on)

    @property
    def follows_benchmark(self) -> bool:
        """Return whether any part follows the reading instructions of the benchmark."""
        parts = (self.method, *self.rerankers, self.compressor, self.answering)
        return any(part is not None and part.config.follows_benchmark for part in parts)

    def describe(self, reading: Reading | None = None) -> dict[str, Any]:
        """Return every part with its version, options and weights; the fingerprint is a hash of this.

        Args:
            reading: The benchmark's instructions; included if a part follows them.
        """
        reader = self.answering
        followed = {"reading": reading.describe()} if reading is not None and self.follows_benchmark else {}
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
        """Return a hash of `describe()`; equal parts, versions, options and weights give equal hashes."""
        return fingerprint(self.describe())

    def build(self, services: Services) -> Method:
        """Build the method and load its models, without indexing a corpus.

        Raises:
            UserError: Parts were given to a control that answers by itself, or a part cannot be built.
        """
        built = self.method.build(services)
        if form := form_of(built, "answer"):
            self._refuse_parts()
            return Whole(built) if form == "single" else built
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
    """Build a method from its parts; the arguments are those of `Composition`.

    Raises:
        UserError: The parts do not fit, or one cannot be built.
    """
    return Composition(method, reader, tuple(rerankers), compressor, k, depth, budget).build(services)


class Pipeline:
    """A method composed of a retriever, rerankers, a compressor and a reader.

    Args:
        retriever: Retriever that ranks passages.
        reader: Reader that answers. `batch_size` of a role in batch form is the number of queries per batch;
            `in_flight` of a role in single form is the maximum number of concurrent questions.
        rerankers: Rerankers of the retrieved passages, applied one after another.
        compressor: Compressor that shortens the first k passages for the reader.
        k: Number of passages for compressor and reader; None for all that were ranked.
        depth: Number of passages ranked per query; None for all.
        budget: Maximum tokens of the compressor's output.
        locate: Function that returns the folder of a corpus's index; None keeps indexes in memory.
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
        self._locate = locate
        self._corpus: Corpus | None = None
        self._index: Index | None = None

    def index(self, corpus: Corpus) -> Indexed:
        """Build the retriever's index over a corpus, or reopen it; an empty corpus needs none."""
        self._corpus = corpus
        self._index, cost = indexed(self.retriever, corpus, self._locate(corpus) if self._locate else None)
        own: Any = self._index
        if hasattr(own, "keeps_outside"):
            own.keeps_outside = True
        others = [part_notes(part) for part in (*self.rerankers, self.compressor, self.reader)]
        several: list[Any] = [*self.rerankers, self.compressor]
        others += [part.corpus_notes(corpus) for part in several if hasattr(part, "corpus_notes")]
        return replace(cost, notes=merged(*others, cost.notes))

    def build_for(self, queries: Sequence[Query]) -> Usage | None:
        """Build what the index needs for the candidate passages of these questions, and return the cost; None if nothing is
        needed (see `Index`).
        """
        return _built_for(self._index, queries)

    def answer(self, queries: Iterable[Query]) -> Iterator[Prediction]:
        """Yield one prediction per query as they finish; no question waits for another.

        If a role raises, the question has the reason under `notes["failed"]`.

        Raises:
            RuntimeError: `index` was not called, or a role breaks its contract.
            UserError: No further question could be answered.
        """
        if self._corpus is None:
            raise RuntimeError("call index(corpus) before answer(queries)")
        reset_peak_memory()
        self._connect()
        corpus = self._corpus
        return predictions(lambda query: self._answered(query, corpus), queries, self.in_flight)

    @property
    def waits(self) -> bool:
        """Return whether the remaining questions only wait for an endpoint, so that the next task may start."""
        return bool(getattr(self.reader, "waits", False))

    @property
    def batches(self) -> bool:
        """Return whether local batches limit the speed, so that other tasks should share them."""
        return bool(getattr(self.reader, "batches", False))

    @property
    def in_flight(self) -> int:
        """Return how many questions are processed concurrently."""
        roles: list[tuple[Any, str]] = [(self.reader, "read"), *((reranker, "rerank") for reranker in self.rerankers)]
        if self.compressor is not None:
            roles.append((self.compressor, "compress"))
        if self._index is not None:
            roles.append((self._index, "retrieve"))
        return in_flight(roles)

    def _connect(self) -> None:
        """Wrap every role as an `async` function of one query."""
        self._retrieve = one(self._index, "retrieve") if self._index is not None else None
        self._rerank = [one(reranker, "rerank") for reranker in self.rerankers]
        self._compress = one(self.compressor, "compress") if self.compressor is not None else None
        self._contexts = one(self._index, "contexts") if form_of(self._index, "contexts") else None
        self._read = one(self.reader, "read")

    async def _answered(self, query: Query, corpus: Corpus) -> Prediction:
        clock = _Clock()
        ranking = Ranking(query.id, (), ())
        # Don't search for a query that may use no passage.
        if self._retrieve is not None and query.candidates != ():
            with clock("retrieve"):
                ranking = _scored(await self._retrieve(query, self.depth or len(corpus)), self._index)
        if others := outside_of(ranking.notes):
            # The other parts look texts up by their ids, whether the corpus has them or not.
            corpus = Corpus.of([*corpus.get(name for name in ranking.ids if name in corpus), *others])
        # Only the retriever of a control may see gold; the parts after it work as in any other method.
        query = without_gold(query)
        usage, notes = ranking.usage, dict(ranking.notes)
        for reranker, rerank in zip(self.rerankers, self._rerank, strict=True):
            with clock("rerank"):
                reranked: Ranking = _scored(await rerank(query, ranking, corpus), reranker)
            # Usage that a reranker passes on unchanged is not its own cost.
            if reranked.usage is not ranking.usage:
                usage += reranked.usage
            notes.update(reranked.notes)
            # A later reranker orders what an earlier one selected.
            ranking = reranked if reranked.selected is not None else replace(reranked, selected=ranking.selected)
        handed_on = ranking.handed_on(self.k)
        if self._compress is not None:
            with clock("compress"):
                context: Context = await self._compress(query, handed_on, corpus, self.budget)
            if context.memory is not None and getattr(self.compressor, "memory", "") not in getattr(self.reader, "reads_memory", ()):
                raise ContractError(f"{type(self.reader).__name__} does not read the memory of {type(self.compressor).__name__}")
        elif self._contexts is not None:
            context = await self._contexts(query, handed_on)
        else:
            context = Context(query.id, tuple(corpus.get(handed_on.ids)))
        with clock("read"):
            answer: Answer = await self._read(query, context)
        usage += context.usage + answer.usage
        # Only the pipeline's clock measures its own stages; a role may add other stages.
        seconds = {**usage.seconds, **clock.seconds}
        usage = replace(usage, seconds=seconds, peak_memory_bytes=max(usage.peak_memory_bytes, peak_memory()))
        evidence = tuple(map(Evidence, ranking.ids, ranking.scores))
        notes = {**notes, **context.notes}
        # Support that a retriever or compressor claims takes precedence over citations in the answer's text.
        notes.update({name: note for name, note in answer.notes.items() if name != SUPPORT or name not in notes})
        return Prediction(query.id, answer.text, evidence, usage, notes, answer.calls, answer.raw)


def _scored(ranking: Ranking, role: object) -> Ranking:
    """Return a ranking that has a score per id.

    Raises:
        ContractError: It has more or fewer, so ids would be lost.
    """
    if len(ranking.ids) != len(ranking.scores):
        raise ContractError(f"{type(role).__name__} gave {len(ranking.ids)} ids and {len(ranking.scores)} scores")
    return ranking


def predictions(program: Callable[[Query], Awaitable[Prediction]], queries: Iterable[Query], in_flight: int) -> Iterator[Prediction]:
    """Run one program per query, and yield its prediction with the recorded calls and waiting time as it finishes.

    If a program raises, its question has the reason under `notes["failed"]` and `code` under `notes["cause"]`.

    Raises:
        UserError: No further question could be answered.
        ContractError: A role breaks its contract.
    """

    async def answered(query: Query) -> Prediction:
        clock = _Clock()
        try:
            with clock("answer"):
                prediction = await program(query)
        except (UserError, ContractError):
            raise
        except BaseException as error:
            if is_cancelled():
                raise
            prediction = Prediction(query.id, "", notes={FAILED: raised(error), CAUSE: CODE})
        done = trace()
        # A program that does not report stages counts as one stage.
        usage = replace(prediction.usage, seconds={**(prediction.usage.seconds or clock.seconds), WAIT: done.waited_s})
        if done.scripted:
            prediction = replace(prediction, notes={**prediction.notes, SCRIPTED: done.scripted})
        if done.endpoints:
            endpoints = [{name: value for name, value in zip(_STATED, values, strict=True) if value} for values in sorted(done.endpoints)]
            prediction = replace(prediction, notes={**prediction.notes, ENDPOINTS: endpoints})
        if spending := {name: number for name in ("cached_tokens", "unpriced") if (number := getattr(done, name))}:
            prediction = replace(prediction, notes={**prediction.notes, SPENDING: spending})
        return replace(prediction, usage=usage, calls=(*done.calls, *prediction.calls)[:KEPT_CALLS])

    return stream(answered, queries, in_flight)


def _built_for(part: Any, queries: Sequence[Query]) -> Usage | None:
    """Call a part's `build_for` for these questions, and return the total cost; None if it reports none."""
    if not hasattr(part, "build_for"):
        return None
    part.build_for(queries)
    usage: Usage | None = getattr(part, "usage", None)
    return usage


class Whole:
    """Adapter from `answer_one`, a method in single form, to the `Method` interface."""

    def __init__(self, built: Any) -> None:
        self._built = built
        self.waits = bool(getattr(built, "waits", False))

    def index(self, corpus: Corpus) -> Indexed | None:
        """Call the method's `index`, if it has one."""
        indexed: Indexed | None = self._built.index(corpus)
        notes = part_notes(self._built)
        if not notes:
            return indexed
        indexed = indexed or Indexed()
        return replace(indexed, notes={**notes, **indexed.notes})

    def build_for(self, queries: Sequence[Query]) -> Usage | None:
        """Call the method's `build_for`, if it has one; see `Pipeline.build_for`."""
        return _built_for(self._built, queries)

    def answer(self, queries: Iterable[Query]) -> Iterator[Prediction]:
        """Yield one prediction per query, as they finish."""
        return predictions(self._built.answer_one, queries, int(getattr(self._built, "in_flight", IN_FLIGHT)))


class ControlPipeline(Pipeline):
    """Pipeline whose retriever is a control, for example gold evidence or a random ranking."""

    def prepare(self, questions: Sequence[Question]) -> None:
        """Pass the questions to the control."""
        if isinstance(self.retriever, Control):
            self.retriever.prepare(questions)


class _Clock:
    """A question's own seconds by stage, without waiting for a slot and without the time that a batch took for other questions."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        own = trace()
        started, others = time.perf_counter(), own.waited_s + own.company_s
        try:
            yield
        finally:
            seconds = time.perf_counter() - started - (own.waited_s + own.company_s - others)
            self.seconds[stage] = self.seconds.get(stage, 0.0) + max(0.0, seconds)
