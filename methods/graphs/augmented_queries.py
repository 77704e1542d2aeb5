"""Augmented queries (ARK): questions that are easily confused with a given one, generated from its answer's neighborhood.

They are not training data themselves: passages that they retrieve, apart from the evidence, become hard negatives.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import cycle, islice, zip_longest
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from benchmarks.core.errors import Broke, UserError
from benchmarks.core.fingerprint import content_hash, fingerprint
from benchmarks.schema import Question
from methods.api import Services
from methods.flow import Batcher, in_worker, one, together
from methods.graphs.chunking import Chunk
from methods.graphs.extraction import FAILED, PROMPTS, strings_in
from methods.graphs.knowledge_graph import KnowledgeGraph, Node, SimilarityConfig, TextEncoder, clean_name, read_json, with_similarity_edges
from methods.graphs.neighborhood import SIZES, GraphNamer, Named, Namer, Neighborhood, NeighborhoodConfig, neighborhoods, texts_of
from methods.models.chat import ChatModel, Reply
from methods.models.llm import LLM, MayAskConfig, defaults, open_llm
from methods.training.stages import write_json

MOST = 10
"""Maximum number of queries per question and size."""
UNREADABLE = "the reply holds no list of queries"


class QueriesConfig(MayAskConfig):
    """Options for generating augmented queries: language model or templates, and number."""

    choice: ClassVar[str] = "generator"

    generator: Literal["template", "llm", "recorded"] = Field(
        "template",
        description="llm: ask a language model; template: fill sentence patterns, without a model; recorded: read queries that a "
        "language model wrote earlier from `path`, without a graph",
    )
    path: str | None = Field(
        None,
        description="file of generator recorded, JSON Lines: id of the question, size (large, small), queries",
        exclude_if=lambda value: value is None,
    )
    most: int = Field(MOST, ge=1, le=50, description="queries per question and size")
    llm: Annotated[LLM, defaults(max_tokens=2048, temperature=0.7)] | None = Field(
        None, description="the model of generator llm; paper: Gemini-2.5-Pro"
    )
    prompt: str | None = Field(None, description="your own template file; null: the shipped one")

    @model_validator(mode="after")
    def _has_a_file(self) -> Self:
        if self.generator == "recorded" and self.path is None:
            raise ValueError("generator recorded needs path: a file of queries")
        return self


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """Input for generating queries for one question and size.

    Attributes:
        question: The question with gold; the queries must share its first answer.
        entities: Entities of the neighborhood after the cut, best first.
        seeds: Names of the entities that the answer mentions.
    """

    question: Question
    entities: tuple[Node, ...]
    seeds: tuple[str, ...] = ()

    @property
    def answer(self) -> str:
        """Return the question's first answer."""
        return self.question.answers[0] if self.question.answers else ""


@dataclass(frozen=True, slots=True)
class AugmentedQueries:
    """Augmented queries of one question and size, or the reason why there are none.

    Attributes:
        queries: Distinct queries, at most as many as requested.
        model: Name of the model that wrote them.
        prompt: Hash of the prompt's template, "" without a prompt.
        failed: Reason why there are no queries.
        lasting: Whether retrying is pointless: true if replies were unusable, false if the call failed.
    """

    queries: tuple[str, ...]
    model: str
    prompt: str = ""
    failed: str | None = None
    lasting: bool = True


class QueryGenerator(Protocol):
    """Protocol of query generators, with a method `generate(requests)` or the asynchronous `generate_one(request)`."""

    @property
    def fingerprint(self) -> str:
        """Return a hash of everything that determines the generated queries."""
        ...


class LLMQueries:
    """Query generator that asks a language model, and once more if the reply cannot be parsed.

    Args:
        model: The model.
        most: Maximum queries per request.
        prompt: A user's template file.
    """

    def __init__(self, model: ChatModel, most: int = MOST, prompt: str | None = None) -> None:
        self._model = model
        self._most = most
        self._prompt = PROMPTS["queries"].load(prompt)

    @property
    def fingerprint(self) -> str:
        return fingerprint("llm", self._model.config.identity(), self._prompt.hash, self._most)

    async def generate_one(self, request: QueryRequest) -> AugmentedQueries:
        messages = self._prompt.messages(given=given(request), most=str(self._most))
        made = self._read(await self._model.ask(messages, step="queries"))
        return made if made.failed is None else self._read(await self._model.ask(messages, repetition=1, step="queries"))

    def _read(self, reply: Reply) -> AugmentedQueries:
        model = reply.model or self._model.config.model
        queries = read_queries(reply.text, self._most)
        if queries:
            return AugmentedQueries(queries, model, self._prompt.hash)
        failed = reply.failed or UNREADABLE
        return AugmentedQueries((), model, self._prompt.hash, failed, lasting=reply.failed is None)


class TemplateQueries:
    """Query generator without a model: appends statements about neighboring entities to the question, by sentence patterns of
    four kinds.

    The query keeps the original answer, and retrieves passages close to both. Statements that mention the question's entities
    or its answer are used last.

    Args:
        most: Maximum queries per request.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most

    @property
    def fingerprint(self) -> str:
        return fingerprint("template", PATTERNS, self._most)

    def generate(self, requests: Sequence[QueryRequest]) -> list[AugmentedQueries]:
        return [self._write_queries(request) for request in requests]

    def _write_queries(self, request: QueryRequest) -> AugmentedQueries:
        facts = _facts(request)
        if not facts:
            return AugmentedQueries((), "template", failed="no entity around the answer has a description")
        patterns = [pattern for kind in zip(*PATTERNS.values(), strict=True) for pattern in kind]
        # As many rounds as it takes for every fact to meet every pattern.
        turns = zip(cycle(patterns), islice(cycle(facts), len(patterns) * len(facts)), strict=False)
        question = request.question.text
        drafts = (
            pattern.format(question=question, name=name.title(), fact=text.rstrip("."), quote=text) for pattern, (name, text) in turns
        )
        return AugmentedQueries(distinct(drafts, self._most), "template")


PATTERNS = {
    "comparison": (
        "{question} This is not about {name}, of whom it is said that {fact}.",
        "Unlike {name}, of whom it is said that {fact}: {question}",
    ),
    "causal": ("{question} Did it follow from this: {fact}?", "Since {fact}: {question}"),
    "quotation": ("“{quote}” – of what else is told there: {question}", "{question} The answer stands near the words “{quote}”."),
    "perspective": ("Seen from {name}, given that {fact}: {question}", "{question} So asks somebody who knows of {name} that {fact}."),
}
"""Sentence patterns per kind; `name` is an entity near the answer, `fact` and `quote` are statements about it."""


def generator_of(config: QueriesConfig, services: Services) -> QueryGenerator:
    """Build the query generator that the options select."""
    if (llm := config.active_llm) is None:
        return TemplateQueries(config.most)
    model = open_llm(llm, services, role="augmented queries")
    return LLMQueries(model, config.most, config.prompt)


def given(request: QueryRequest) -> str:
    """Format a request as JSON for the model's prompt: question, answer, and entities with their descriptions and claims."""
    entities: list[dict[str, Any]] = []
    for node in request.entities:
        claims = {"claims": list(node.claims)} if node.claims else {}
        entities.append({"name": node.name, "type": node.type, "descriptions": list(node.descriptions), **claims})
    value = {"question": request.question.text, "answer": request.answer, "entities": entities}
    return json.dumps(value, ensure_ascii=False, indent=1)


def read_queries(reply: str, most: int = MOST) -> tuple[str, ...]:
    """Parse the queries in a model's reply: distinct, non-empty, at most `most`; () if it cannot be parsed."""
    return distinct(strings_in(reply) or (), most)


def distinct(texts: Iterable[str], most: int) -> tuple[str, ...]:
    """Return the first `most` texts that are distinct after ignoring case and white space."""
    kept: dict[str, str] = {}
    for text in texts:
        flat = " ".join(text.split())
        if flat:
            kept.setdefault(flat.casefold(), flat)
        if len(kept) == most:
            break
    return tuple(kept.values())


def _facts(request: QueryRequest) -> list[tuple[str, str]]:
    """Return entities' descriptions and claims, interleaved: the first of each, then the second …"""
    answer, question = clean_name(request.answer), clean_name(request.question.text)
    avoided = {*request.seeds, answer}
    columns = [[(node.name, text) for text in (*node.descriptions, *node.claims)] for node in request.entities]
    facts = [pair for turn in zip_longest(*columns) for pair in turn if pair is not None]
    free = [
        (name, text) for name, text in facts if name not in avoided and name not in question and not (answer and answer in clean_name(text))
    ]
    return list({text: (name, text) for name, text in reversed(free or facts)}.values())[::-1]


# kg/DOCUMENT.json            a graph
# subgraphs/QUESTION.json     seeds, scores and both cuts
# queries/QUESTION.json       the queries of both sizes
#
# Ids in file names are hashed, because they may contain any character. Every file records its inputs. If options, model or
# text differ from them, the file is built again and replaced.


def file_of(folder: Path, step: str, identifier: str, ending: str = "json") -> Path:
    """Return the path where a step's result for a document or question is saved."""
    return folder / step / f"{content_hash((identifier,))}.{ending}"


GRAPH_CALLS_FAILED = "graph-calls-failed"
"""Code of the error of a document without any reply."""


async def graph_of(
    document_id: str,
    chunks: Sequence[Chunk],
    extractor: Any,
    folder: Path,
    similarity: SimilarityConfig | None = None,
    encoder: TextEncoder | None = None,
) -> KnowledgeGraph:
    """Load a document's knowledge graph from the folder, or extract and save it.

    A graph that lacks chunks because of failed calls is saved, but extracted again the next time; cached replies make that
    cheap.

    Args:
        document_id: The document.
        chunks: Its chunks.
        extractor: Extractor of the graph.
        folder: Working folder.
        similarity: Options for adding edges between similar entities; None adds none.
        encoder: Text encoder, required if `similarity` is enabled.

    Raises:
        Broke: Every call failed, so that no chunk was processed.
        ValueError: `similarity` is enabled and there is no encoder.
    """
    joined = similarity if similarity is not None and similarity.enabled else None
    if joined is not None and encoder is None:
        raise ValueError("edges of similarity need an encoder")
    made_of = fingerprint(
        extractor.fingerprint,
        content_hash(chunk.text for chunk in chunks),
        {**joined.model_dump(mode="json"), "weights": joined.encoder.checkpoint_hash()} if joined else None,
    )
    path = file_of(folder, "kg", document_id)
    if path.exists():
        kept = await in_worker(partial(KnowledgeGraph.load, path))
        if kept.made_of == made_of and FAILED not in kept.counts:
            return kept
    if hasattr(extractor, "extract_one"):
        graph: KnowledgeGraph = await extractor.extract_one(document_id, chunks)
    else:
        graph = await in_worker(partial(extractor.extract, document_id, chunks))
    if chunks and not graph.nodes and graph.counts.get(FAILED, 0) == len(chunks):
        raise Broke(
            f"no graph for document {document_id!r}: all {len(chunks)} calls failed",
            code=GRAPH_CALLS_FAILED,
            where="kg.llm",
            try_this="try again when the endpoint answers; received replies are kept",
        )

    def finished() -> KnowledgeGraph:
        whole = graph if joined is None or encoder is None else with_similarity_edges(graph, joined, encoder)
        whole = replace(whole, made_of=made_of)
        whole.save(path)
        return whole

    return await in_worker(finished)


class Neighborhoods:
    """Provider of neighborhoods for questions about one document; loads them from a folder, or computes and saves them.

    A neighborhood whose seed names are missing because of a failed call is not saved. Waiting questions are scored as a batch.

    Args:
        graph: The document's graph.
        config: Options.
        folder: Working folder.
        namer: Finder of entity names in the answer; None searches for node names.
    """

    def __init__(self, graph: KnowledgeGraph, config: NeighborhoodConfig, folder: Path, namer: Namer | None = None) -> None:
        self._graph, self._config, self._folder = graph, config, folder
        namer = namer or GraphNamer()
        self._names = one(namer, "names")
        self._made_of = fingerprint(graph.made_of or _graph_hash(graph), config.model_dump(mode="json"), namer.fingerprint)
        self._score = Batcher(self._scored, GraphNamer.batch_size)

    async def __call__(self, question: Question) -> Neighborhood:
        """Return the neighborhood of a question."""
        key = fingerprint(self._made_of, question.id, question.text, list(question.answers[:1]))
        path = file_of(self._folder, "subgraphs", question.id)
        around: Neighborhood | None = _kept(path, key, Neighborhood)
        if around is None:
            texts = texts_of(question)
            around = await self._score((question, await together(*(self._names(text, self._graph) for text in texts))))
            if around.seeds.failed is None:
                _keep(path, key, around)
        return around

    def _scored(self, waiting: Sequence[tuple[Question, Named]]) -> list[Neighborhood]:
        questions, named = zip(*waiting, strict=True)
        return neighborhoods(self._graph, questions, self._config, named)


async def queries_of(
    graph: KnowledgeGraph, question: Question, around: Neighborhood, generator: QueryGenerator, folder: Path
) -> dict[str, AugmentedQueries]:
    """Load a question's augmented queries from the folder, or generate and save them.

    Args:
        graph: The document's graph.
        question: The question.
        around: Its neighborhood.
        generator: Query generator.
        folder: Working folder.

    Returns:
        Queries by size (`large`, `small`); empty for a skipped question.
    """
    if around.skipped:
        return {}
    requests = [QueryRequest(question, tuple(around.size(size).nodes(graph)), around.seeds.names) for size in SIZES]
    entities = [[asdict(node) for node in request.entities] for request in requests]
    key = fingerprint(generator.fingerprint, question.text, list(question.answers[:1]), entities)
    path = file_of(folder, "queries", question.id)
    kept: dict[str, AugmentedQueries] | None = _kept(path, key, dict[str, AugmentedQueries])
    if kept is not None:
        return kept
    made = dict(zip(SIZES, await together(*map(one(generator, "generate"), requests)), strict=True))
    if all(item.lasting for item in made.values()):
        _keep(path, key, made)
    return made


class _Kept(BaseModel):
    model_config = ConfigDict(extra="forbid")

    made_of: str
    value: Any


def _kept(path: Path, made_of: str, kind: Any) -> Any:
    """Return a saved file's content; None if it is missing or was made from other input."""
    if not path.exists():
        return None
    kept = read_json(path, _Kept, "an artifact of a training")
    if kept.made_of != made_of:
        return None
    try:
        return TypeAdapter(kind).validate_python(kept.value)
    except ValueError as error:
        raise UserError(
            f"this file does not match its folder: {error}",
            code="folder-content-mismatch",
            where=str(path),
            try_this="remove it, so that it is rebuilt",
        ) from None


def _keep(path: Path, made_of: str, value: Any) -> None:
    plain = {size: asdict(item) for size, item in value.items()} if isinstance(value, dict) else asdict(value)
    write_json(path, {"made_of": made_of, "value": plain}, nan=False)


def _graph_hash(graph: KnowledgeGraph) -> str:
    return fingerprint([asdict(node) for node in graph.nodes], [asdict(edge) for edge in graph.edges])
