"""Shared code of graph RAG systems: options, indexing of the corpus, restriction to a question's passages, and contexts.

With scope `document`, a graph is built from the passages that a question may use: its candidates, else its document, else
the corpus. It therefore does not depend on passages of other questions. With scope `corpus`, it is built from all passages,
and rankings are restricted to the question's.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from benchmarks.core.fingerprint import fingerprint
from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query
from methods import registry
from methods.api import SCRIPTED, UNREAD_PASSAGES, Context, Ranking, Services, Usage
from methods.baselines.graph_rag.asked_once import AskedOnce
from methods.flow import IN_FLIGHT, in_worker, stream
from methods.graphs.extraction import PROMPTS as EXTRACTING
from methods.graphs.extraction import LLMExtractor, WorldsExtractor
from methods.graphs.index import ChunkRead, GraphIndex, read_chunks, read_locally
from methods.graphs.noun_phrases import NounPhrases
from methods.models.chat import ChatModel
from methods.models.embeddings import exact_scores
from methods.models.encoder import Encoder
from methods.models.encoder_config import EncoderConfig
from methods.models.llm import LLM, check_llm, defaults, llm_hash, llm_name, open_llm, reach_llm
from methods.models.remote_code import check_models
from methods.models.scripts import ScriptedConfig
from methods.prompts import OURS, PUBLISHED, Prompt, published, published_hash, shipped
from methods.registry import MethodConfig
from methods.retrieval.ranking import Rows, Scope, best_rows, built_once
from methods.work import CHARACTERS, FLOAT, Lengths, Work, ask, encode, index, needs_of, tokens

EXTRACTION, SHORT, LONG = 4096, 256, 1024
"""Maximum reply tokens for extraction; for keywords and names; and for reports and points."""
PROMPT = 700
"""Assumed tokens of the extraction instructions."""
RECORDS = 3
"""Assumed tokens of records per passage token, for estimates; a follow-up call also reads the first reply."""
OPEN = 32
"""Maximum number of graphs in memory; others are reloaded from disk."""
COST, WRITTEN = "cost.json", "written.jsonl"
DESCRIBED = 500
"""Maximum tokens of an entity's or relation's description, as in GraphRAG."""
PROMPTS = shipped(
    "methods.baselines.graph_rag",
    "facts",
    "keywords",
    "report",
    "map",
    "reduce",
    "drift_hypothesis",
    "drift_primer",
    "drift_local",
    "drift_reduce",
    "clues",
    "surrogates",
    "draft",
    "gist",
    "summary",
)

TEMPLATES = {**PROMPTS, **EXTRACTING}
"""All templates that a system may use."""
READING = ("extraction", "extraction_keywords", "triples")
"""Templates that the option `prompt` may replace."""

LARGE = Annotated[LLM, defaults(max_tokens=EXTRACTION)]


class SystemConfig(MethodConfig):
    """Options of graph RAG systems, which may call a model for the index and for each question."""

    needs_llm: ClassVar[bool] = False
    published: ClassVar[Mapping[str, str]] = {}
    """Published prompt per template name; `loop` has no shipped template."""

    llm: LARGE | None = Field(None, description="model that reads the corpus and answers the system's prompts")
    encoder: EncoderConfig = Field(
        EncoderConfig.model_validate({}), description="encoder of entities, relations and passages (encoder presets)"
    )
    scope: Literal["document", "corpus"] = Field(
        "document", description="texts in one index: document, the passages that a question may use, or corpus (as HippoRAG does)"
    )
    context: Literal["passages", "native"] = Field(
        "passages", description="context for the reader: passages, the ranked passages, or native, the system's own context"
    )

    prompts: str | None = Field(
        None,
        description="`ours`; `published`: the authors' templates; or a folder with your own templates, named like the shipped "
        "ones. Missing templates are taken from ours. null: ours",
        exclude_if=lambda value: value is None,
    )

    @model_validator(mode="before")
    @classmethod
    def _one_choice(cls, value: Any) -> Any:
        """Convert `prompt: ours` and `prompt: published` to `prompts`; `ours` is the default, so both have the same
        fingerprint.
        """
        if not isinstance(value, dict):
            return value
        if value.get("prompt") in (OURS, PUBLISHED) and "prompt" in cls.model_fields:
            value = {**value, "prompts": value["prompt"], "prompt": None}
        return {**value, "prompts": None} if value.get("prompts") == OURS else value

    @model_validator(mode="after")
    def _has_a_model(self) -> Any:
        if self.llm is None and self.reads_with_llm:
            raise ValueError("extractor llm needs llm: {model: …}; extractor: noun_phrases needs no model")
        if self.llm is None and self.asks_llm:
            raise ValueError("this system asks a model: llm: {model: …}")
        if self.prompts == PUBLISHED and not self.published:
            raise ValueError("prompts: published has no effect: ragmeter has no published prompts of this system")
        if self.prompts == PUBLISHED and self.llm is None:
            raise ValueError("prompts: published has no effect without llm: {model: …}")
        if self.prompts == PUBLISHED and isinstance(self.llm, ScriptedConfig):
            raise ValueError("prompts: published does not work with llm: {scripted: …}, which only knows the prompts of ragmeter")
        return self

    def preflight(self) -> None:
        """Check the model, the encoder and the templates."""
        check_models(self.encoder)
        self.templates()
        if self.llm is not None:
            check_llm(self.llm)

    def reach(self, cache: Path | None) -> None:
        """Check that the endpoint responds, with one short call."""
        if self.llm is not None:
            reach_llm(self.llm, cache)

    @property
    def asks_llm(self) -> bool:
        """Return whether `llm` is required, regardless of the extractor."""
        return self.needs_llm

    @property
    def own_models(self) -> tuple[Any, ...]:
        """Return the options of other local models."""
        return ()

    @property
    def reads_with_llm(self) -> bool:
        """Return whether a language model extracts records from each passage."""
        return False

    @property
    def written_tokens(self) -> int:
        """Return the maximum tokens that the model generates per index for reports or summaries; 0 for none."""
        return 0

    def templates(self) -> list[Prompt]:
        """Return all templates that may be used."""
        return []

    def template(self, name: str) -> Prompt:
        """Return the shipped template or the user's replacement.

        Raises:
            UserError: The user's template is invalid.
        """
        file = self.own_file(name)
        if file is None and self.prompts == PUBLISHED and name in self.published:
            return published(self.published[name])
        return TEMPLATES[name].load_from(None if self.prompts == PUBLISHED else self.prompts, file)

    def own_file(self, name: str) -> str | None:
        """Return the user's file for a template, or None."""
        return None

    def made_of(self) -> str:
        """Return a hash of the weights and prompts in the options, without downloading prompts."""
        weights = self.encoder.checkpoint_hash(), llm_hash(self.llm) if self.llm is not None else ""
        if self.prompts != PUBLISHED:
            return fingerprint(*weights, [prompt.hash for prompt in self.templates()])
        theirs = [published_hash(name) for name in sorted(set(self.published.values()))]
        own = [TEMPLATES[name].hash(file) for name in sorted(TEMPLATES) if (file := self.own_file(name)) or name not in self.published]
        return fingerprint(*weights, theirs, own)


class GraphConfig(SystemConfig):
    """Options of systems with an entity graph."""

    extractor: Literal["llm", "noun_phrases", "worlds"] = Field(
        "llm",
        description="llm: ask the model; without a model: noun_phrases (names by rules, related if they are close) or worlds "
        "(the sentences of worlds)",
    )
    prompt: str | None = Field(None, description="your own template file for the extraction; `ours` and `published` as in `prompts`")
    window: int = Field(20, ge=1, description="noun_phrases: maximum words between two names that are related")
    pipeline: str | None = Field(None, description="noun_phrases: a spaCy pipeline that finds the names; null: rules")

    @property
    def reads_with_llm(self) -> bool:
        return self.extractor == "llm"

    def own_file(self, name: str) -> str | None:
        return self.prompt if name in READING else None

    def reading_by(self, model: ChatModel) -> Any:
        """Build the extractor that calls the model for each passage."""
        return LLMExtractor(model, self.prompt)

    def record_prompts(self, extraction: str = "extraction") -> dict[str, Prompt]:
        """Return the prompts for an `LLMExtractor`."""
        loop = {"loop": published(self.published["loop"])} if self.prompts == PUBLISHED else {}
        return {"extraction": self.template(extraction), "gleaning": self.template("gleaning"), **loop}

    def made_of(self) -> str:
        # Another version of a pipeline may find other names.
        return fingerprint(super().made_of(), local_extractor(self).fingerprint) if self.pipeline else super().made_of()


def local_extractor(config: GraphConfig) -> WorldsExtractor | NounPhrases:
    """Build the rule-based extractor."""
    return WorldsExtractor() if config.extractor == "worlds" else NounPhrases(config.window, config.pipeline)


@dataclass(frozen=True)
class Group:
    """Rows of a corpus with a common graph index.

    Attributes:
        rows: Rows of the corpus, in order.
        index: Their graph and vectors.
    """

    rows: Rows
    index: GraphIndex


Models = Callable[[str, int], ChatModel | None]
"""Function from a role and a maximum reply length to the model; None if there is no model."""


class SystemIndex(ABC):
    """Base class of a graph RAG system's index, with `retrieve_one`, and `contexts_one` for the plain and the native context.

    Args:
        config: Options.
        corpus: The passages.
        encoder: Encoder of all vectors.
        reads: Extracted records of each passage by row; None if nothing is extracted.
        usage: Cost of building the index.
        models: Function that opens models by role.
        folder: Folder of saved replies; None saves nothing.
    """

    note: ClassVar[str]
    """The system's id, the key of its notes in predictions."""
    longest: ClassVar[int] = SHORT
    """Maximum reply tokens for calls about a question."""

    def __init__(
        self,
        config: Any,
        corpus: Corpus,
        encoder: Encoder,
        reads: Sequence[ChunkRead] | None,
        usage: Usage,
        models: Models,
        folder: Path | None = None,
    ) -> None:
        self.config = config
        self.corpus = corpus
        self.encoder = encoder
        self.usage = usage
        self.model = models(self.note, self.longest)
        self.in_flight = self.model.in_flight if self.model is not None else IN_FLIGHT
        self.writer: AskedOnce | None = None
        if config.written_tokens and (writer := models(f"{self.note} index", config.written_tokens)) is not None:
            self.writer = AskedOnce(writer, folder / WRITTEN if folder is not None else None)
        self._folder = folder
        self._reads = reads
        self._scope = Scope(corpus)
        self._groups: OrderedDict[bytes, Group] = OrderedDict()
        self._prepared: dict[bytes, asyncio.Task[Any]] = {}

    @property
    def notes(self) -> Mapping[str, Any]:
        """Return the encoder's notes, and how many passages are missing from the graph because their records could not be had."""
        reads = self._reads or ()
        failed, unusable = sum(not read.lasting for read in reads), sum(read.unusable for read in reads)
        lost = {UNREAD_PASSAGES: {"failed": failed, "unusable": unusable, "of": len(reads)}} if failed or unusable else {}
        return {**self.encoder.notes, **lost}

    @abstractmethod
    async def retrieve_one(self, query: Query, k: int) -> Ranking:
        """Rank the passages that a question may use."""

    def native(self, group: Group, query: Query, ranking: Ranking) -> list[Passage]:
        """Return the graph part of the system's native context, which precedes the passages."""
        return []

    @property
    def prepares(self) -> bool:
        """Return whether the model processes each group (for reports or summaries) before the first question."""
        return self.writer is not None

    async def prepare(self, group: Group) -> tuple[Any, Usage]:
        """Generate question-independent content for a group, such as reports or summaries, and return it with its cost."""
        return None, Usage()

    async def prepared(self, group: Group) -> Any:
        """Return the content of `prepare` for a group, generated once; its cost counts for the index."""
        key = group.rows.tobytes()
        if key not in self._prepared:
            # In a separate context, so that the calls do not count for the question that needed them first.
            self._prepared[key] = asyncio.get_running_loop().create_task(self._prepare(group), context=contextvars.Context())
        task = self._prepared[key]
        try:
            return await asyncio.shield(task)
        finally:
            if task.done() and (task.cancelled() or task.exception() is not None):
                self._prepared.pop(key, None)

    async def _prepare(self, group: Group) -> Any:
        value, usage = await self.prepare(group)
        self.usage += usage
        return value

    def build_for(self, queries: Iterable[Query]) -> None:
        """Generate the content of `prepare` for all groups of these questions, before the first question."""
        rows = {rows.tobytes(): rows for query in queries if len(rows := self.rows_indexed(query))}

        async def program(some: Rows) -> None:
            await self.prepared(await self.compute(lambda: self.group_of(some)))

        if self.prepares:
            for _ in stream(program, rows.values(), self.in_flight):
                pass
            self.keep_cost()

    def keep_cost(self) -> None:
        """Save the cost of building next to the index."""
        if self._folder is not None:
            size = sum(path.stat().st_size for path in self._folder.iterdir() if path.is_file() and path.name != COST)
            (self._folder / COST).write_text(json.dumps({**self.usage.to_json(), "bytes": size}))

    async def contexts_one(self, query: Query, ranking: Ranking) -> Context:
        """Return the context for a reader: the passages, preceded by the graph part in the native context."""
        passages = self.corpus.get(ranking.ids)
        if self.config.context == "native" and ranking.ids:
            passages = [*await self.compute(lambda: self.native(self.group(query), query, ranking)), *passages]
        return Context(query.id, tuple(passages))

    async def compute(self, work: Any) -> Any:
        """Run a function in the worker thread of the encoder's device, and return its result."""
        return await in_worker(work, self.encoder.device)

    def rows_for(self, query: Query) -> Rows:
        """Return the rows that a question may use."""
        rows = self._scope.rows_for(query)
        return np.arange(len(self.corpus), dtype=np.int64) if rows is None else rows

    def rows_indexed(self, query: Query) -> Rows:
        """Return the rows that are indexed for a question: those that it may use, or all."""
        return np.arange(len(self.corpus), dtype=np.int64) if self.config.scope == "corpus" else self.rows_for(query)

    def group(self, query: Query) -> Group:
        """Return the group of a question's indexed rows."""
        return self.group_of(self.rows_indexed(query))

    def group_of(self, rows: Rows) -> Group:
        """Return the group of some rows, built once."""
        key = rows.tobytes()
        if key not in self._groups:
            self._groups[key] = self.made(rows)
            while len(self._groups) > OPEN:
                self._groups.popitem(last=False)
        self._groups.move_to_end(key)
        return self._groups[key]

    def made(self, rows: Rows) -> Group:
        """Build the group of some rows."""
        texts = [passage.full_text for passage in self.corpus.get([self.corpus.ids[row] for row in rows])]
        if self._reads is not None:
            reads = [self._reads[row] for row in rows.tolist()]
        elif isinstance(self.config, GraphConfig):
            reads = read_locally(local_extractor(self.config), texts)
        else:
            reads = [ChunkRead()] * len(texts)
        return Group(rows, GraphIndex(texts, reads, self.encoder, sentences=self._reads is None))

    def ranking(self, query: Query, group: Group, order: Sequence[int], k: int, note: Any, usage: Usage | None = None) -> Ranking:
        """Convert an order of a group's chunks to a ranking of the passages that the question may use.

        Args:
            query: The question.
            group: The chunks.
            order: Positions of chunks in the group, best first.
            k: Maximum number of passages; their scores are 1 / rank.
            note: Value of the system's key in the ranking's notes.
            usage: Cost of the ranking.
        """
        rows = group.rows[np.fromiter(dict.fromkeys(order), np.int64)] if len(order) else group.rows[:0]
        if self.config.scope == "corpus" and query.candidates is not None:
            rows = rows[np.isin(rows, self.rows_for(query))]
        ranking = self._scope.ranking(query, rows[:k], 1 / np.arange(1, len(rows[:k]) + 1))
        return replace(ranking, usage=usage or Usage(), notes={self.note: note, **self.label})

    def by_score(self, query: Query, group: Group, scores: NDArray[np.float64], k: int, note: Any, usage: Usage | None = None) -> Ranking:
        """Rank all chunks of a group by score; see `ranking`."""
        return self.ranking(query, group, best_rows(scores, len(scores)).tolist(), k, note, usage)

    @property
    def label(self) -> dict[str, str]:
        """Return the note that marks predictions if a script replaced the model, even if only for the index."""
        llm = self.config.llm
        return {SCRIPTED: llm_name(llm)} if isinstance(llm, ScriptedConfig) else {}

    def query_vector(self, text: str) -> NDArray[np.float32]:
        """Encode a question or keywords, shape (dimension,)."""
        return np.asarray(self.encoder.queries([text])[0])

    def dense(self, group: Group, vector: NDArray[np.float32]) -> NDArray[np.float64]:
        """Compute the inner products of the chunks with a vector: shape (chunks,)."""
        return exact_scores(group.index.chunks, vector, np.arange(len(group.rows)))


class System:
    """Retriever role of graph RAG systems: indexes a corpus with a model or by rules.

    Args:
        config: Options.
        services: Services; reply cache, embedding cache, device and seed are used.
        kind: Class of the index.
    """

    def __init__(self, config: Any, services: Services, kind: type[SystemIndex]) -> None:
        self.config = config
        self.encoder = Encoder(config.encoder, services.device, services.folder("embeddings"))
        self._services = services
        self._kind = kind

    def models(self, role: str, longest: int) -> ChatModel | None:
        """Open the model with a maximum reply length; None if there is no model."""
        if self.config.llm is None:
            return None
        own = self.config.llm.max_tokens
        llm = self.config.llm.model_copy(update={"max_tokens": own and min(longest, own)})
        return open_llm(llm, self._services, role=role)

    def opened(self, corpus: Corpus, reads: Sequence[ChunkRead] | None, usage: Usage, folder: Path | None) -> Any:
        """Create the index from extracted records."""
        return self._kind(self.config, corpus, self.encoder, reads, usage, self.models, folder)

    def index(self, corpus: Corpus, folder: Path | None = None) -> Any:
        """Index the corpus, or reopen an existing index; an interrupted build resumes.

        Raises:
            Broke: No passage could be processed.
        """
        made: list[Any] = []
        if folder is not None:
            built_once(folder, len(corpus), lambda target: made.append(self._built(corpus, target)))
        return made[0] if made else self._built(corpus, folder)

    def _built(self, corpus: Corpus, folder: Path | None) -> SystemIndex:
        reads, usage = None, Usage()
        if self.config.reads_with_llm:
            model = self.models("graph", EXTRACTION)
            assert model is not None
            texts = [passage.full_text for passage in corpus]
            reads = read_chunks(self.config.reading_by(model), texts, folder, model.in_flight)
            usage = sum((read.usage for read in {id(read): read for read in reads}.values()), usage)
        index: SystemIndex = self.opened(corpus, reads, usage, folder)
        index.keep_cost()
        return index


T = TypeVar("T", bound=type)
Item = TypeVar("Item")


def register(identifier: str, *, config: type[SystemConfig], **registration: Any) -> Callable[[T], T]:
    """Register a graph RAG index or method with the settings that all systems share; see `methods.registry.register`."""
    offline = issubclass(config, GraphConfig) and not config.needs_llm

    def decorate(kind: T) -> T:
        def build(options: Any, services: Services) -> System:
            return System(options, services, kind)

        build.__module__ = kind.__module__
        kind.note = identifier  # type: ignore[attr-defined]
        retriever = issubclass(kind, SystemIndex)
        registry.register(
            identifier,
            kind="retriever" if retriever else "method",
            config=config,
            presets=({"offline": {"extractor": "noun_phrases"}} if offline else {})
            | ({"released": {"prompts": PUBLISHED}} if config.published else {}),
            extra="models",
            checkpoint_hash=lambda options: options.made_of(),
            needs=lambda options: needs_of(options.encoder, options.llm, *options.own_models),
            **registration,
        )(build if retriever else kind)
        return kind

    return decorate


def reading_work(config: Any, lengths: Lengths, calls: int = 1) -> Work:
    """Estimate the work of extracting records from each passage and encoding passages, entities and relations."""
    work = encode(config, lengths.corpus, lengths.passage) + encode(config, lengths.questions, lengths.question)
    if isinstance(config, GraphConfig):
        # Assumes about one entity and one relation per twenty tokens.
        work += encode(config, lengths.corpus * lengths.passage / 10, 20)
    if config.reads_with_llm:
        before = lengths.passage * (1 + RECORDS * (calls - 1) / 2)
        work += ask(config.llm, lengths.corpus * calls, PROMPT + before, min(EXTRACTION, config.llm.longest))
        work += Work(bytes=lengths.corpus * lengths.passage * FLOAT)
    return index(work)


def indexed_passages(config: SystemConfig, lengths: Lengths) -> float:
    """Return the number of indexed passages, counted once per group."""
    return lengths.corpus if config.scope == "corpus" else lengths.own


def minmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale scores to [0, 1]; all 1 if they are equal."""
    low, high = (float(scores.min()), float(scores.max())) if len(scores) else (0.0, 0.0)
    return (scores - low) / (high - low) if high > low else np.ones_like(scores)


def nearest(vectors: NDArray[np.float32], vector: NDArray[np.float32], k: int, above: float | None = None) -> NDArray[np.int64]:
    """Return the rows with the largest inner products, best first: shape (≤ k,)."""
    return best_rows((vectors @ vector).astype(np.float64), k, above=above)


def alternating(*orders: Sequence[Item]) -> list[Item]:
    """Interleave lists and drop duplicates."""
    longest = max(map(len, orders), default=0)
    return list(dict.fromkeys(order[place] for place in range(longest) for order in orders if place < len(order)))


def within(passages: Sequence[Passage], budget: float) -> list[Passage]:
    """Return the first passages that fit into a token budget (characters / 4)."""
    kept: list[Passage] = []
    for passage in passages:
        budget -= tokens(passage.full_text)
        if budget < 0:
            break
        kept.append(passage)
    return kept


def joined_descriptions(descriptions: Sequence[str]) -> str:
    """Join the descriptions of an entity or relation, cut at `DESCRIBED` tokens."""
    return " ".join(descriptions)[: DESCRIBED * CHARACTERS]


def entity_passages(group: Group, positions: Sequence[int]) -> list[Passage]:
    """Convert entities to passages, with the name as title and the description as text."""
    nodes = [group.index.graph.nodes[position] for position in positions]
    return [Passage(f"entity {node.name}", node.name, joined_descriptions(node.descriptions)) for node in nodes if any(node.descriptions)]


def relation_passages(group: Group, positions: Sequence[int]) -> list[Passage]:
    """Convert relations to passages, with both names as title."""
    edges = [group.index.graph.edges[position] for position in positions]
    titled = [(f"{edge.source} – {edge.target}", edge) for edge in edges]
    return [Passage(f"relation {title}", title, joined_descriptions(edge.descriptions)) for title, edge in titled]
