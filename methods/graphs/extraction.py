"""Extract knowledge graphs from chunks, with a language model or with rules, behind one interface.

A model is asked for records of entities and relations (GraphRAG; LightRAG also asks for keywords), or first for names and then
for triples with them (open information extraction, HippoRAG).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from benchmarks.core.fingerprint import fingerprint
from benchmarks.sources import data_path
from methods.api import Services, Usage
from methods.flow import together
from methods.graphs.chunking import Chunk, ChunkConfig
from methods.graphs.claims import PROMPT as CLAIMS
from methods.graphs.claims import ask_claims
from methods.graphs.knowledge_graph import (
    DEFAULT_STRENGTH,
    END,
    ClaimRecord,
    EntityRecord,
    GraphBuilder,
    KnowledgeGraph,
    Records,
    RelationRecord,
    SimilarityConfig,
    clean,
    clean_name,
    parse,
)
from methods.graphs.noun_phrases import NounPhrases
from methods.graphs.recorded import FileTriples
from methods.graphs.synthetic import WorldsExtractor
from methods.models.bounded import mended
from methods.models.chat import ChatModel, Reply
from methods.models.llm import LLM, MayAskConfig, defaults, open_llm
from methods.models.structured import parse as parse_json
from methods.prompts import Prompt, shipped

PROMPTS = shipped("methods.graphs", "extraction", "extraction_keywords", "gleaning", "names", "triples", "queries")


FAILED = "failed call"
"""Key of `KnowledgeGraph.counts`: number of chunks without a reply. A saved graph with failed calls is extracted again."""


class GraphConfig(MayAskConfig):
    """Options for extracting a document's graph."""

    choice: ClassVar[str] = "extractor"

    extractor: Literal["llm", "worlds", "noun_phrases", "file"] = Field(
        "worlds",
        description="llm: ask a language model; worlds: read worlds' sentences; noun_phrases: names by rules, related if "
        "they are close; file: read the triples of each passage from `file`",
    )
    file: str | None = Field(
        None,
        description="the file of extractor file, JSON Lines: title and text of a passage, triples",
        exclude_if=lambda value: value is None,
    )
    llm: Annotated[LLM, defaults(max_tokens=4096)] | None = Field(None, description="the model of extractor llm; paper: Gemini-2.5-Flash")
    prompt: str | None = Field(None, description="your own template file; null: the shipped one")
    claims: str | None = Field(
        None,
        description="prompt of extractor llm to also extract claims (covariates) about each chunk's entities: ours, published "
        "(GraphRAG's) or a template file; null: no claims; paper: yes",
        exclude_if=lambda value: value is None,
    )
    chunk: ChunkConfig = Field(ChunkConfig.model_validate({}), description="chunks that the extraction reads")
    similarity: SimilarityConfig = SimilarityConfig.model_validate({})

    @model_validator(mode="after")
    def _has_a_file(self) -> Self:
        if self.extractor == "file" and self.file is None:
            raise ValueError("extractor file needs file: passages with their triples")
        if self.claims is not None and self.extractor != "llm":
            raise ValueError(f"claims need a language model (extractor: llm), but the extractor is {self.extractor}")
        return self


class Extractor(Protocol):
    """Protocol of graph extractors, with `extract(document_id, chunks)`, or the asynchronous `extract_one` if it calls a model."""

    @property
    def fingerprint(self) -> str:
        """Return a hash of everything that determines the extracted records."""
        ...


@dataclass(frozen=True, slots=True)
class ChunkRead:
    """Records extracted from one chunk, with their cost.

    Attributes:
        entities, relations: The records.
        counts: Number of malformed and repaired records by reason, and of failed calls.
        model_calls, prompt_tokens, completion_tokens, cost_usd: Cost of the model calls.
        claims: Claims about entities.
    """

    entities: tuple[EntityRecord, ...] = ()
    relations: tuple[RelationRecord, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    model_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0
    claims: tuple[ClaimRecord, ...] = ()

    @classmethod
    def of(cls, records: Sequence[Records], replies: Sequence[Reply]) -> ChunkRead:
        """Combine the records and costs of several replies about one chunk."""
        counts = Counter({FAILED: sum(reply.failed is not None for reply in replies)})
        for item in records:
            counts.update({f"malformed: {reason}": number for reason, number in item.malformed.items()})
            counts.update({f"repaired: {reason}": number for reason, number in item.repaired.items()})
        usage = sum((reply.usage for reply in replies), Usage())
        return cls(
            tuple(dict.fromkeys(entity for item in records for entity in item.entities)),
            tuple(dict.fromkeys(relation for item in records for relation in item.relations)),
            {what: number for what, number in counts.items() if number},
            usage.model_calls,
            usage.prompt_tokens,
            usage.completion_tokens,
            usage.cost_usd,
            tuple(dict.fromkeys(claim for item in records for claim in item.claims)),
        )

    @property
    def came(self) -> bool:
        """Return whether any call for the chunk got a reply."""
        return self.lasting or bool(self.entities or self.relations)

    @property
    def lasting(self) -> bool:
        """Return whether no call failed, so that the result is final."""
        return FAILED not in self.counts

    @property
    def unusable(self) -> bool:
        """Return whether replies came, but no record could be read from them."""
        return self.lasting and not (self.entities or self.relations) and any(what.startswith("malformed") for what in self.counts)

    @property
    def usage(self) -> Usage:
        """Return the cost as a `Usage`."""
        return Usage(self.prompt_tokens, self.completion_tokens, model_calls=self.model_calls, cost_usd=self.cost_usd)


def merged(document_id: str, reads: Mapping[int, ChunkRead]) -> KnowledgeGraph:
    """Merge the records of all chunks (by chunk index) into one graph."""
    builder = GraphBuilder()
    for index, read in reads.items():
        builder.add(index, Records(read.entities, read.relations, claims=read.claims))
        for what, number in read.counts.items():
            builder.count(what, number)
    return builder.build(document_id)


class LLMExtractor:
    """Extractor that asks a language model for entity and relation records of every chunk.

    Args:
        model: The model.
        prompt: A user's template file.
        keywords: Whether to ask for keywords of relations (LightRAG).
        gleanings: Number of follow-up requests for missed records.
        prompts: Prompts `extraction` and `gleaning` that replace the templates. With `loop`, the model is first asked whether
            records are still missing before each further gleaning, and quotes around texts in records are removed.
        claims: Prompt for claims about the entities of a chunk; None extracts no claims.
    """

    def __init__(
        self,
        model: ChatModel,
        prompt: str | None = None,
        *,
        keywords: bool = False,
        gleanings: int = 0,
        prompts: Mapping[str, Prompt] | None = None,
        claims: Prompt | None = None,
    ) -> None:
        own = prompts or {}
        self._model, self._claims = model, claims
        self._prompt = own.get("extraction") or PROMPTS["extraction_keywords" if keywords else "extraction"].load(prompt)
        self._again = own.get("gleaning") or PROMPTS["gleaning"].load()
        self._loop = own.get("loop")
        self._gleanings = gleanings

    @property
    def fingerprint(self) -> str:
        gleaned: tuple[Any, ...] = (self._gleanings, self._again.hash) if self._gleanings else ()
        gleaned += (self._loop.hash,) if self._loop is not None else ()
        gleaned += ("claims", self._claims.hash) if self._claims is not None else ()
        return fingerprint("llm", self._model.config.identity(), self._prompt.hash, *gleaned)

    @property
    def in_flight(self) -> int:
        """Return the maximum number of chunks processed concurrently."""
        return self._model.in_flight

    async def extract_one(self, document_id: str, chunks: Sequence[Chunk]) -> KnowledgeGraph:
        """Extract a document's graph."""
        reads = await together(*(self.read_one(chunk.text) for chunk in chunks))
        return merged(document_id, {chunk.index: read for chunk, read in zip(chunks, reads, strict=True)})

    async def read_one(self, text: str) -> ChunkRead:
        """Extract the records of one chunk; records of follow-up requests come last."""
        messages = list(self._prompt.messages(text=text))
        replies: list[Reply] = []
        checks: list[Reply] = []
        for left in range(self._gleanings, -1, -1):
            replies.append(await self._model.ask(messages, step="glean" if replies else "extract"))
            if not left or replies[-1].failed is not None or not replies[-1].text.replace(END, "").strip():
                break
            messages.append({"role": "assistant", "content": replies[-1].text})
            if self._loop is not None and len(replies) > 1:
                checks.append(await self._model.ask([*messages, *self._loop.messages()], step="loop"))
                if not _YES.match(checks[-1].text):
                    break
            messages += self._again.messages()
        answered = [reply for reply in replies if reply.failed is None]
        # Nothing more to add is not a reply without a record.
        texts = [reply.text for number, reply in enumerate(answered) if not number or reply.text.replace(END, "").strip()]
        records = [parse(text, quoted=self._loop is not None) for text in texts]
        names = tuple(dict.fromkeys(entity.name for item in records for entity in item.entities))
        if self._claims is not None and names:
            claimed, reply = await ask_claims(self._model, self._claims, text, names)
            records.append(claimed)
            replies.append(reply)
        return ChunkRead.of(records, [*replies, *checks])


_YES = re.compile(r"\W*y(es)?\b", re.IGNORECASE)


class _Triples(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)

    triples: list[list[str]]


class _Given(BaseModel):
    triples: list[Any]


_PARTS = (("subject", "head", "source"), ("predicate", "relation", "relationship"), ("object", "tail", "target"))
"""Names of a triple's parts in replies that give it as an object."""


class OpenIE:
    """Extractor by open information extraction: asks a model for the names in a chunk, then for triples with these names
    (HippoRAG).

    Args:
        model: The model.
        prompt: A user's template file for the triples.
        prompts: Prompts `names` and `triples` that replace the templates.
    """

    def __init__(self, model: ChatModel, prompt: str | None = None, prompts: Mapping[str, Prompt] | None = None) -> None:
        own = prompts or {}
        self._model = model
        self._names = own.get("names") or PROMPTS["names"].load()
        self._triples = own.get("triples") or PROMPTS["triples"].load(prompt)

    @property
    def fingerprint(self) -> str:
        return fingerprint("openie, triples one by one", self._model.config.identity(), self._names.hash, self._triples.hash)

    @property
    def in_flight(self) -> int:
        """Return the maximum number of chunks processed concurrently."""
        return self._model.in_flight

    async def read_one(self, text: str) -> ChunkRead:
        """Extract a chunk's triples as relations; triples are requested even if no names were found."""
        named = await self._model.ask(self._names.messages(text=text), step="names")
        names = strings_in(named.text) if named.failed is None else None
        listed = {"names": json.dumps(names or [], ensure_ascii=False), "named_entities": json.dumps({"named_entities": names or []})}
        reply = await self._model.ask(self._triples.messages(text=text, **listed), shape=_Triples, step="triples")
        malformed: Counter[str] = Counter({"names that are not a list": 1} if names is None and named.failed is None else {})
        return ChunkRead.of([triple_records(reply.text, malformed) if reply.failed is None else Records()], [named, reply])


def triple_records(reply: str, malformed: Counter[str] | None = None) -> Records:
    """Parse the triples in a reply as relations, each described by the triple itself; a malformed triple loses no other."""
    lost: Counter[str] = malformed if malformed is not None else Counter()
    bare = _from_first_bracket(reply)
    listed = bare[: bare.rfind("]") + 1] if bare.startswith("[") and "triple" not in reply.lower() else ""
    read = parse_json(f'{{"triples": {listed}}}' if listed else reply, _Given)
    if read.value is None:
        lost["triples that are not JSON"] += 1
        return Records(malformed=lost)
    relations = []
    for item in read.value.triples:
        named = item if isinstance(item, dict) else {}
        parts = item if isinstance(item, list) else [next((named[name] for name in names if name in named), None) for names in _PARTS]
        triple = [str(part) for part in parts if isinstance(part, str | int | float)] if len(parts) == 3 else []
        ends = (clean_name(triple[0]), clean_name(triple[-1])) if len(triple) == 3 else ("", "")
        if not all(ends) or ends[0] == ends[1]:
            lost["triple without two ends"] += 1
        else:
            relations.append(RelationRecord(*ends, clean(" ".join(triple)), DEFAULT_STRENGTH, triple=(triple[0], triple[1], triple[2])))
    return Records((), tuple(relations), lost, Counter({"triples": 1}) if read.repaired else Counter())


def extractor_of(config: GraphConfig, services: Services) -> WorldsExtractor | NounPhrases | LLMExtractor | FileTriples:
    """Build the extractor that the options select."""
    if config.extractor == "file":
        return FileTriples(data_path(config.file or ""))
    if (llm := config.active_llm) is None:
        return NounPhrases() if config.extractor == "noun_phrases" else WorldsExtractor()
    model = open_llm(llm, services, role="knowledge graph")
    return LLMExtractor(model, config.prompt, claims=None if config.claims is None else CLAIMS.load(config.claims))


_FENCE = re.compile(r"```(?:\w+)?\s*(.*?)(?:```|\Z)", re.DOTALL)
_FENCES = 16
"""Maximum number of code blocks parsed per reply."""


def strings_in(reply: str) -> list[str] | None:
    """Parse the only list of strings in a reply; code fences, surrounding prose and an enclosing object are ignored.

    Returns:
        The strings (other items are dropped); None if there is no list.
    """
    for candidate in (reply, *_FENCE.findall(reply)[:_FENCES], _from_first_bracket(reply)):
        if candidate and (result := _strings(_loads(candidate))) is not None:
            return result
    return None


def _loads(text: str) -> Any:
    text = text.strip()
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    if not text.startswith(("{", "[")):
        return None
    try:
        return json.JSONDecoder().raw_decode(text)[0]
    except (ValueError, RecursionError):
        pass
    try:
        return mended(text, "reading a reply that is not plain JSON")
    except ValueError:
        return None


def _strings(value: Any) -> list[str] | None:
    """Return the strings of a list, or of the only list in an object."""
    if isinstance(value, dict):
        lists = [item for item in value.values() if isinstance(item, list)]
        value = lists[0] if len(lists) == 1 else None
    if not isinstance(value, list):
        return None
    strings = [item for item in value if isinstance(item, str)]
    return strings if strings or not value else None


def _from_first_bracket(text: str) -> str:
    result = re.search(r"[{\[]", text)
    return text[result.start() :] if result else ""
