"""The knowledge graph of a document: entities, their relations, and the chunks that mention them."""

from __future__ import annotations

import html
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from benchmarks.core.errors import UserError, described
from methods.models.encoder_config import EncoderConfig
from methods.training.stages import write_json

# ("entity"<|>NAME<|>TYPE<|>DESCRIPTION)##
# ("relationship"<|>SOURCE<|>TARGET<|>DESCRIPTION<|>STRENGTH)##
# <|COMPLETE|>
#
# Before its strength a relation may have a field of keywords, with commas between them.
#
# Source:
# The grammar is GraphRAG's, which ARK took over; the keywords are LightRAG's.


FIELD = "<|>"
RECORD = "##"
END = "<|COMPLETE|>"
UNKNOWN = "UNKNOWN"
"""Type of an entity that occurs only as an end of a relation."""
DEFAULT_STRENGTH = 1.0
STRONGEST = 10.0

_FIELDS = {"entity": (4, 4), "relationship": (5, 6)}
CONTENT = "content_keywords"
"""Record type that LightRAG's prompt requests and its code ignores."""
_START = re.compile(r"\(\s*[\"'“”*_]{0,3}(entity|relationship|content_keywords)[\"'“”*_]{0,3}\s*<\|>", re.IGNORECASE)
_STRENGTH = re.compile(r"(?:(?:relationship )?strength\s?[:=]?\s?)?(-?\d+(?:\.\d+)?)(?:\s?/\s?10)?", re.IGNORECASE)
_QUOTES = "\"'“”‘’„«»`"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_LEFTOVER = re.compile(r"[\s#`]*(?:json|text)?[\s`]*", re.IGNORECASE)


class EntityRecord(NamedTuple):
    """An entity as mentioned in one chunk; name and type are upper-case."""

    name: str
    type: str
    description: str


class RelationRecord(NamedTuple):
    """A relation as stated in one chunk, between two different names."""

    source: str
    target: str
    description: str
    strength: float
    keywords: str = ""
    triple: tuple[str, str, str] | None = None
    """The triple (subject, predicate, object) as the model wrote it; None for other extractors."""


class ClaimRecord(NamedTuple):
    """A claim as stated in one chunk: the upper-case subject, and a text with status and dates (`methods/graphs/claims.py`)."""

    subject: str
    text: str


@dataclass(frozen=True, slots=True)
class Records:
    """Records parsed from a reply.

    Attributes:
        entities, relations: In the reply's order.
        malformed: Number of lost or possibly lost records, by reason.
        repaired: Number of records that were parsed despite errors, by reason.
        claims: Claims about entities, in the reply's order.
    """

    entities: tuple[EntityRecord, ...] = ()
    relations: tuple[RelationRecord, ...] = ()
    malformed: Counter[str] = field(default_factory=Counter)
    repaired: Counter[str] = field(default_factory=Counter)
    claims: tuple[ClaimRecord, ...] = ()


def inside_records(reply: str, start: re.Pattern[str], malformed: Counter[str]) -> Iterator[tuple[re.Match[str], str]]:
    """Yield the records of a reply, each as the match of its opening mark and the text up to its last closing bracket.

    Args:
        reply: The model's reply.
        start: Pattern of a record's opening mark.
        malformed: Counter of lost or possibly lost records, by reason.
    """
    body, end, _ = reply.partition(END)
    starts = list(start.finditer(body))
    if not body.strip() and not end:
        malformed["empty reply"] += 1
    elif not starts and _LEFTOVER.fullmatch(body) is None:
        malformed["no record in the reply"] += 1
    if not end and starts:
        malformed["no end marker"] += 1
    for number, mark in enumerate(starts):
        stop = starts[number + 1].start() if number + 1 < len(starts) else len(body)
        inside, bracket, rest = body[mark.end() : stop].rpartition(")")
        if not bracket:
            malformed["record not closed"] += 1
            continue
        # Behind the last record a model may say good-bye; between two, there is nothing to say.
        if number + 1 < len(starts) and _LEFTOVER.fullmatch(rest) is None:
            malformed["text between records"] += 1
        yield mark, inside


def parse(reply: str, quoted: bool = False) -> Records:
    """Parse the entity and relation records in a model's reply.

    Args:
        reply: The model's reply.
        quoted: Whether to remove quotes around descriptions and keywords.
    """
    entities: list[EntityRecord] = []
    relations: list[RelationRecord] = []
    malformed: Counter[str] = Counter()
    repaired: Counter[str] = Counter()
    for start, inside in inside_records(reply, _START, malformed):
        if start[1].lower() == CONTENT:
            continue
        fields = inside.split(FIELD)
        try:
            record = _record(start[1].lower(), [_unquoted(text) for text in fields] if quoted else fields, repaired)
        except _MalformedError as error:
            malformed[str(error)] += 1
            continue
        if isinstance(record, EntityRecord):
            entities.append(record)
        else:
            relations.append(record)
    return Records(tuple(entities), tuple(relations), malformed, repaired)


def _unquoted(text: str) -> str:
    inner = text.strip()
    return inner[1:-1] if len(inner) > 1 and inner[0] == inner[-1] == '"' else text


def render(entities: Iterable[EntityRecord], relations: Iterable[RelationRecord]) -> str:
    """Format records in the grammar that `parse` reads."""
    rows: list[tuple[str, ...]] = [("entity", *record) for record in entities]
    rows += [("relationship", *record[:3], *filter(None, (record.keywords,)), f"{record.strength:g}") for record in relations]
    lines = [f'("{tag}"{FIELD}{FIELD.join(fields)})' for tag, *fields in rows]
    return f"{RECORD}\n".join([*lines, END])


def clean_name(name: str) -> str:
    """Normalize an entity name: decode HTML entities, remove control characters and quotes, upper-case."""
    return clean(name).strip(_QUOTES + " ").upper()


def clean(text: str) -> str:
    """Normalize a text: one line, HTML entities decoded, no control characters."""
    return " ".join(_CONTROL.sub(" ", html.unescape(text)).split())


class _MalformedError(Exception):
    """Raised for a record that cannot be parsed."""


def _record(tag: str, fields: list[str], repaired: Counter[str]) -> EntityRecord | RelationRecord:
    fewest, most = _FIELDS[tag]
    if len(fields) + 1 < fewest:
        raise _MalformedError(f"{tag} with too few fields")
    if len(fields) + 1 > most:
        raise _MalformedError(f"{tag} with too many fields")
    name = clean_name(fields[0])
    if tag == "entity":
        if not name:
            raise _MalformedError("entity without a name")
        return EntityRecord(name, clean_name(fields[1]) or UNKNOWN, clean(fields[2]))
    target = clean_name(fields[1])
    if not name or not target:
        raise _MalformedError("relationship without an end")
    if name == target:
        raise _MalformedError("relationship of an entity to itself")
    keywords = clean(fields[3]) if len(fields) == most - 1 else ""
    return RelationRecord(name, target, clean(fields[2]), _strength(fields[-1], repaired), keywords)


def _strength(text: str, repaired: Counter[str]) -> float:
    text = text.strip().strip(f"{_QUOTES}*_ ")
    try:
        value = float(match[1] if (match := _STRENGTH.fullmatch(text)) else text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        repaired["strength is not a number"] += 1
        return DEFAULT_STRENGTH
    if not DEFAULT_STRENGTH <= value <= STRONGEST:
        repaired["strength outside 1 to 10"] += 1
    return min(max(value, DEFAULT_STRENGTH), STRONGEST)


FORMAT = 1
"""Version of the file format."""


@dataclass(frozen=True, slots=True)
class Node:
    """An entity of the graph.

    Attributes:
        name: Upper-case name, unique in the graph.
        type: Most frequent type among chunks; `UNKNOWN` if it occurs only as an end of relations.
        descriptions: Distinct descriptions, sorted.
        chunks: Indices of the chunks that mention it, ascending.
        claims: Distinct claims, sorted.
    """

    name: str
    type: str
    descriptions: tuple[str, ...] = ()
    chunks: tuple[int, ...] = ()
    claims: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return name and descriptions as one text, for encoding."""
        return " ".join((self.name, *self.descriptions))


@dataclass(frozen=True, slots=True)
class Edge:
    """Undirected edge between two entities: stated in chunks, similar by their vectors, or both.

    Attributes:
        source, target: Names of the ends in alphabetical order.
        strength: Sum of the strengths stated in chunks; 0 if the edge is only due to similarity.
        descriptions: Distinct descriptions, sorted.
        chunks: Indices of the chunks that state it, ascending.
        similarity: Cosine similarity; None if not above the threshold.
        keywords: Distinct keywords of the relation, sorted.
    """

    source: str
    target: str
    strength: float = 0.0
    descriptions: tuple[str, ...] = ()
    chunks: tuple[int, ...] = ()
    similarity: float | None = None
    keywords: tuple[str, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return `extracted`, `similarity` or both."""
        return ("extracted",) * (self.strength > 0) + ("similarity",) * (self.similarity is not None)

    @property
    def weight(self) -> float:
        """Return strength plus similarity, which are treated as parallel edges."""
        return self.strength + max(self.similarity or 0.0, 0.0)


@dataclass(frozen=True)
class KnowledgeGraph:
    """The knowledge graph of a document.

    Attributes:
        document_id: Id of the document.
        nodes: Nodes sorted by name.
        edges: Edges sorted by source and target.
        counts: Number of malformed and repaired records by reason, and of failed calls.
        made_of: Fingerprint of all inputs; "" if the graph is not saved.
    """

    document_id: str
    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    made_of: str = ""

    @cached_property
    def positions(self) -> dict[str, int]:
        """Return the index of each node by name."""
        return {node.name: position for position, node in enumerate(self.nodes)}

    def adjacency(self) -> Any:
        """Return the symmetric adjacency matrix.

        Returns:
            `scipy.sparse.csr_array` of shape (nodes, nodes), float64, with ones for edges, sorted indices and an empty diagonal.
        """
        from scipy.sparse import coo_array

        positions, size = self.positions, len(self.nodes)
        ends = np.array([(positions[e.source], positions[e.target]) for e in self.edges], np.int32).reshape(-1, 2)
        rows, columns = np.concatenate([ends, ends[:, ::-1]]).T
        matrix = coo_array((np.ones(len(rows)), (rows, columns)), shape=(size, size)).tocsr()
        matrix.sort_indices()
        return matrix

    def with_similarities(self, pairs: Iterable[tuple[int, int, float]]) -> KnowledgeGraph:
        """Return a copy with similarity edges added; extracted edges keep their data.

        Args:
            pairs: Indices of two different nodes, and their cosine similarity.
        """
        edges = {(edge.source, edge.target): edge for edge in self.edges}
        for item, other, similarity in pairs:
            key = _ends(self.nodes[item].name, self.nodes[other].name)
            edges[key] = replace(edges.get(key, Edge(*key)), similarity=float(similarity))
        return replace(self, edges=tuple(edges[key] for key in sorted(edges)))

    def save(self, path: Path) -> None:
        """Write the graph as JSON, atomically."""
        value = {
            "format": FORMAT,
            "document_id": self.document_id,
            "made_of": self.made_of,
            "counts": dict(self.counts),
            "nodes": [{name: getattr(node, name) for name in Node.__slots__} for node in self.nodes],
            "edges": [{**{name: getattr(edge, name) for name in Edge.__slots__}, "kinds": edge.kinds} for edge in self.edges],
        }
        write_json(path, value, nan=False)

    @classmethod
    def load(cls, path: Path) -> KnowledgeGraph:
        """Read a graph that `save` wrote, or a user's file in the same format.

        Raises:
            UserError: The file is not a valid graph; the message names the field.
        """
        read = read_json(path, _GraphFile, "a knowledge graph")
        graph = cls(
            read.document_id,
            tuple(Node(n.name, n.type, tuple(n.descriptions), tuple(n.chunks), tuple(n.claims)) for n in read.nodes),
            tuple(
                Edge(*_ends(e.source, e.target), e.strength, tuple(e.descriptions), tuple(e.chunks), e.similarity, tuple(e.keywords))
                for e in read.edges
            ),
            read.counts,
            read.made_of,
        )
        return graph._checked(str(path))

    def _checked(self, where: str) -> KnowledgeGraph:
        if len(self.positions) < len(self.nodes):
            name = Counter(node.name for node in self.nodes).most_common(1)[0][0]
            raise UserError(f"the node {name!r} occurs twice", code="duplicate-node", where=f"{where}: nodes", try_this=_ANEW)
        seen: set[tuple[str, str]] = set()
        for number, edge in enumerate(self.edges):
            here = f"{where}: edges.{number}"
            unknown = [name for name in (edge.source, edge.target) if name not in self.positions]
            if unknown:
                raise UserError(
                    f"the edge leads to {unknown[0]!r}, which is not a node", code="edge-without-node", where=here, try_this=_ANEW
                )
            if edge.source == edge.target or (edge.source, edge.target) in seen:
                what = "leads back to its node" if edge.source == edge.target else "occurs twice"
                raise UserError(f"the edge of {edge.source!r} and {edge.target!r} {what}", code="bad-edge", where=here, try_this=_ANEW)
            if not edge.kinds:
                raise UserError(
                    "the edge is neither an extracted relation nor a similarity", code="bad-edge-kind", where=here, try_this=_ANEW
                )
            seen.add((edge.source, edge.target))
        ordered = replace(
            self,
            nodes=tuple(sorted(self.nodes, key=lambda node: node.name)),
            edges=tuple(sorted(self.edges, key=lambda edge: (edge.source, edge.target))),
        )
        return self if ordered == self else ordered


class GraphBuilder:
    """Incremental builder that merges the records of chunks; the result does not depend on their order."""

    def __init__(self) -> None:
        self._types: dict[str, Counter[str]] = defaultdict(Counter)
        self._descriptions: dict[str, set[str]] = defaultdict(set)
        self._chunks: dict[str, set[int]] = defaultdict(set)
        self._relations: dict[tuple[str, str], list[tuple[float, str, int, str]]] = defaultdict(list)
        self._claims: dict[str, set[str]] = defaultdict(set)
        self._counts: Counter[str] = Counter()

    def add(self, chunk: int, records: Records) -> None:
        """Add the records of one chunk."""
        for name, kind, description in records.entities:
            self._types[name][kind] += 1
            self._descriptions[name].add(description)
            self._chunks[name].add(chunk)
        for source, target, description, strength, keywords, _ in records.relations:
            self._relations[_ends(source, target)].append((strength, description, chunk, keywords))
        for subject, text in records.claims:
            self._claims[subject].add(text)
        self._counts.update({f"malformed: {reason}": number for reason, number in records.malformed.items()})
        self._counts.update({f"repaired: {reason}": number for reason, number in records.repaired.items()})

    def count(self, what: str, number: int = 1) -> None:
        """Increase one of the graph's counts."""
        self._counts[what] += number

    def build(self, document_id: str) -> KnowledgeGraph:
        """Return the merged graph."""
        edges = [
            Edge(
                *ends,
                sum(sorted(strength for strength, *_ in records)),  # sorted: the last digit depends on the order
                _distinct(text for _, text, _, _ in records),
                tuple(sorted({chunk for _, _, chunk, _ in records})),
                keywords=_distinct(word.strip() for *_, keywords in records for word in keywords.split(",")),
            )
            for ends, records in sorted(self._relations.items())
        ]
        descriptions, chunks = defaultdict(set, self._descriptions), defaultdict(set, self._chunks)
        unknown = {name for ends in self._relations for name in ends if name not in self._types}
        for edge in edges:
            for name in unknown.intersection((edge.source, edge.target)):
                descriptions[name] = descriptions[name] | set(edge.descriptions)
                chunks[name] = chunks[name] | set(edge.chunks)
        nodes = tuple(
            Node(name, self._type(name), _distinct(descriptions[name]), tuple(sorted(chunks[name])), _distinct(self._claims.get(name, ())))
            for name in sorted({*self._types, *unknown})
        )
        lost = sum(len(texts) for name, texts in self._claims.items() if name not in self._types and name not in unknown)
        counts = self._counts + Counter({"claim about no entity of the graph": lost})
        return KnowledgeGraph(document_id, nodes, tuple(edges), dict(sorted(counts.items())))

    def _type(self, name: str) -> str:
        """Return an entity's most frequent type; ties go to the first in alphabetical order."""
        types = self._types.get(name)
        return min(types, key=lambda kind: (kind == UNKNOWN, -types[kind], kind)) if types else UNKNOWN


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _NodeRow(_Strict):
    name: str = Field(min_length=1)
    type: str
    descriptions: list[str] = []
    chunks: list[int] = []
    claims: list[str] = []


class _EdgeRow(_Strict):
    source: str
    target: str
    strength: float = Field(ge=0, allow_inf_nan=False)
    descriptions: list[str] = []
    chunks: list[int] = []
    similarity: float | None = Field(None, allow_inf_nan=False)
    keywords: list[str] = []
    kinds: list[str] = []


class _GraphFile(_Strict):
    format: int = Field(ge=FORMAT, le=FORMAT)
    document_id: str
    made_of: str = ""
    counts: dict[str, int] = {}
    nodes: list[_NodeRow]
    edges: list[_EdgeRow]


_ANEW = "repair the file, or remove it, so that it is rebuilt"


def read_json(path: Path, model: type[Any], what: str) -> Any:
    """Read a JSON file and validate it against a pydantic model.

    Raises:
        UserError: The file cannot be read or is invalid.
    """
    try:
        return model.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"the file cannot be read: {error}", code="unreadable-file", where=str(path)) from None
    except ValidationError as error:
        position, fault = described(error)
        raise UserError(
            f"this file is not {what}: {fault}",
            code="file-hash-mismatch",
            where=f"{path}: {position}" if position else str(path),
            try_this=_ANEW,
        ) from None


def _ends(item: str, other: str) -> tuple[str, str]:
    return (item, other) if item <= other else (other, item)


def _distinct(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({text for text in texts if text}))


BLOCK = 1024
"""Block size for comparing vectors: 4 MiB of cosines, regardless of the graph's size."""


class SimilarityConfig(BaseModel):
    """Options for adding edges between similar entities."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    enabled: bool = Field(True, description="join similar entities")
    threshold: float = Field(0.8, ge=-1, le=1, description="minimum cosine at which two entities are joined (tau)")
    inclusive: bool = Field(False, description="also join entities whose cosine equals the threshold; paper: no, released: yes")
    encoder: EncoderConfig = Field(
        EncoderConfig.model_validate({}),
        description="encoder of names and descriptions; paper: BGE-M3, released: Qwen3-Embedding (see encoder presets)",
    )


class TextEncoder(Protocol):
    """The part of an encoder's interface that this module needs."""

    def passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode texts as vectors, shape (texts, dimension)."""
        ...


def with_similarity_edges(graph: KnowledgeGraph, config: SimilarityConfig, encoder: TextEncoder) -> KnowledgeGraph:
    """Return a copy of the graph with an edge between every two entities whose similarity meets the threshold."""
    if not config.enabled or len(graph.nodes) < 2:
        return graph
    vectors = encoder.passages([node.text for node in graph.nodes])
    return graph.with_similarities(similar_pairs(vectors, config.threshold, inclusive=config.inclusive))


def similar_pairs(
    vectors: NDArray[Any], threshold: float, *, inclusive: bool = False, block: int = BLOCK
) -> Iterator[tuple[int, int, float]]:
    """Yield all pairs of rows whose cosine similarity is above a threshold.

    Args:
        vectors: Shape (rows, dimension); zero rows match nothing.
        threshold: Minimum cosine similarity, in [-1, 1].
        inclusive: Whether similarity equal to the threshold counts.
        block: Number of rows compared at a time.

    Yields:
        Two indices, the smaller first, and their cosine; ordered by block.
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.divide(vectors, lengths, out=np.zeros_like(vectors, dtype=np.float32), where=lengths > 0)
    something = lengths[:, 0] > 0
    for top in range(0, len(unit), block):
        for left in range(top, len(unit), block):
            cosines = unit[top : top + block] @ unit[left : left + block].T
            close = cosines >= threshold if inclusive else cosines > threshold
            close &= something[top : top + block, None] & something[left : left + block]
            rows, columns = np.nonzero(np.triu(close, 1) if left == top else close)
            # Rounding may put a cosine a little beyond 1.
            result = np.clip(cosines[rows, columns], -1, 1)
            yield from zip((rows + top).tolist(), (columns + left).tolist(), result.tolist(), strict=True)
