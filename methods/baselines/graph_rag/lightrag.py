"""LightRAG: low-level keywords of a question retrieve entities, high-level ones retrieve relations, and both lead to passages.

Modes: `local` (low-level keywords → entities → passages that name them, and their relations), `global` (high-level keywords →
relations → their entities and passages), `hybrid` (both, alternating), `mix` (hybrid plus dense retrieval), `naive` (only dense
retrieval).

Source: Guo et al. 2024 (arXiv:2410.05779) and version 1.1.7 of its code: top 60, cosine above 0.2, 4,000 tokens each of
entities and relations; a passage that several entities share has the place of the last of them (the code of 2024: the
first); hybrid puts what relations found before what entities found; the native context may be CSV tables, which later
versions write as JSON. Ours: in mix, the passages most like the question alternate with the others; the native context's
sources are the passages that the pipeline hands on (`k`); its entities and relations are passages unless `tables` is `csv`.
Without a model the question itself is both kinds of keywords, which is also the fallback.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, model_validator

from benchmarks.schema import Passage, Query
from methods.api import Context, Ranking, Usage
from methods.baselines.graph_rag.common import (
    SHORT,
    GraphConfig,
    Group,
    SystemIndex,
    alternating,
    entity_passages,
    joined_descriptions,
    nearest,
    reading_work,
    register,
    relation_passages,
    within,
)
from methods.graphs.extraction import LLMExtractor
from methods.models.chat import ChatModel
from methods.models.structured import parse as parse_json
from methods.prompts import Prompt
from methods.retrieval.ranking import best_rows
from methods.work import Lengths, Work, ask

LOCAL, GLOBAL = ("local", "hybrid", "mix"), ("global", "hybrid", "mix")
ENTITY_TOKENS = 4000
"""Token budget of entities in the native context."""
RELATION_TOKENS = 4000
"""Token budget of relations in the native context."""
INSTRUCTIONS = 250
"""Assumed tokens of the keyword prompt, without the question."""


class LightConfig(GraphConfig):
    """Options of LightRAG."""

    published: ClassVar[Mapping[str, str]] = {
        "extraction_keywords": "lightrag_extraction",
        "gleaning": "lightrag_gleaning",
        "loop": "lightrag_loop",
        "keywords": "lightrag_keywords",
    }

    mode: Literal["local", "global", "hybrid", "mix", "naive"] = Field("hybrid", description="search mode; released script: hybrid")
    gleanings: int = Field(1, ge=0, description="number of times that the model is asked again for missed entities and relations")
    top_k: int = Field(60, ge=1, description="entities and relations to retrieve")
    threshold: float = Field(0.2, ge=-1, le=1, description="entities and relations are retrieved if their cosine is above this")
    tables: Literal["passages", "csv"] = Field(
        "passages",
        description="native context. passages: one per entity, relation and source; csv: three tables in one text, like version 1.1.7",
        exclude_if=lambda value: value == "passages",
    )

    @property
    def context_tokens(self) -> int:
        return ENTITY_TOKENS + RELATION_TOKENS if self.context == "native" else 0

    def reading_by(self, model: ChatModel) -> LLMExtractor:
        """Build the extractor of records with keywords and follow-up requests."""
        return LLMExtractor(model, gleanings=self.gleanings, prompts=self.record_prompts("extraction_keywords"))

    def templates(self) -> list[Prompt]:
        return [*self.record_prompts("extraction_keywords").values(), self.template("keywords")]


class Keywords(BaseModel):
    """High-level and low-level keywords of a question."""

    high_level_keywords: list[str]
    low_level_keywords: list[str]

    @model_validator(mode="before")
    @classmethod
    def _as_lists(cls, value: Any) -> Any:
        """Accept keywords in one text with commas, and one of the lists alone."""
        stated = {name: value[name] for name in cls.model_fields if value.get(name) is not None} if isinstance(value, dict) else {}
        if not stated:
            return value
        lists = {name: re.split(r"\s*[,;，、]\s*", words) if isinstance(words, str) else words for name, words in stated.items()}
        return {**value, **{name: lists.get(name, []) for name in cls.model_fields}}


def _work(config: LightConfig, lengths: Lengths) -> Work:
    per_question = Work() if config.mode == "naive" else ask(config.llm, 2 * lengths.questions, INSTRUCTIONS + lengths.question, SHORT)
    return reading_work(config, lengths, calls=1 + config.gleanings) + per_question


@register(
    "lightrag",
    version=3,
    summary="LightRAG: keywords of the question find entities and relations of a graph, which lead to passages",
    config=LightConfig,
    paper="Guo et al. 2024, LightRAG (arXiv:2410.05779)",
    work=_work,
)
class LightIndex(SystemIndex):
    """Index with a graph that is searched by keywords."""

    async def keywords(self, query: Query) -> tuple[str, str, dict[str, Any], Usage]:
        """Extract a question's low-level and high-level keywords; returns both, notes for the prediction, and the cost."""
        if self.model is None or self.config.mode == "naive":
            return query.text, query.text, {}, Usage()
        usage, why = Usage(), ""
        for repetition in range(2):
            messages = self.config.template("keywords").messages(question=query.text)
            reply = await self.model.ask(messages, shape=Keywords, repetition=repetition, step="keywords")
            usage += reply.usage
            read = parse_json(reply.text, Keywords)
            low, high = (
                (", ".join(words) for words in (read.value.low_level_keywords, read.value.high_level_keywords)) if read.value else ("", "")
            )
            if low or high:
                return low or query.text, high or query.text, {"low": low, "high": high}, usage
            why = reply.failed or read.failed or "no keywords"
        return query.text, query.text, {"fallback": f"the question as keywords: {why}"}, usage

    async def retrieve_one(self, query: Query, k: int) -> Ranking:
        """Rank passages by the configured mode; if nothing is found, by dense score."""
        low, high, note, usage = await self.keywords(query)
        return await self.compute(lambda: self._ranked(query, low, high, k, note, usage))

    def _ranked(self, query: Query, low: str, high: str, k: int, note: dict[str, Any], usage: Usage) -> Ranking:
        group, mode = self.group(query), self.config.mode
        orders: list[list[int]] = []
        entities: list[int] = []
        relations: list[int] = []
        if mode in LOCAL:
            entities, related, chunks = self.local(group, self.query_vector(low))
            orders.append(chunks)
            relations = related
        if mode in GLOBAL:
            related, ends, chunks = self.overall(group, self.query_vector(high))
            orders = [list(dict.fromkeys([*chunks, *(orders[0] if orders else ())]))]
            entities, relations = list(dict.fromkeys([*ends, *entities])), list(dict.fromkeys([*related, *relations]))
        if mode in ("mix", "naive") or not any(orders):
            scores = self.dense(group, self.query_vector(query.text))
            orders.append(best_rows(scores, len(scores)).tolist())
            if mode not in ("mix", "naive"):
                note.setdefault("fallback", "dense")
        shown = {"entities": entities[: self.config.top_k], "relations": relations[: self.config.top_k]}
        return self.ranking(query, group, alternating(*orders), k, {**note, **shown}, usage)

    def local(self, group: Group, vector: NDArray[np.float32]) -> tuple[list[int], list[int], list[int]]:
        """Return entities similar to the keywords, their relations, and their passages (those shared with more neighbors
        first).
        """
        index = group.index
        if not index.graph.nodes:
            return [], [], []
        nearby = nearest(index.entities, vector, self.config.top_k, above=self.config.threshold)
        rank = np.full(len(index.graph.nodes), len(nearby))
        rank[nearby] = np.arange(len(nearby))
        incident = np.flatnonzero((rank[index.ends] < len(nearby)).any(axis=1))
        chunks: dict[int, tuple[int, float]] = {}
        adjacent = index.once("adjacency", index.graph.adjacency)
        for place, node in enumerate(nearby.tolist()):
            neighbors = adjacent.indices[adjacent.indptr[node] : adjacent.indptr[node + 1]]
            shared = index.node_chunks[neighbors].sum(axis=0) if len(neighbors) else np.zeros(len(index.texts))
            for chunk in index.graph.nodes[node].chunks:
                chunks[chunk] = place, -float(shared[chunk])
        return nearby.tolist(), self.by_degree(group, incident), sorted(chunks, key=chunks.__getitem__)

    def overall(self, group: Group, vector: NDArray[np.float32]) -> tuple[list[int], list[int], list[int]]:
        """Return relations similar to the keywords (by degree), their entities, and the passages that state them."""
        index = group.index
        if not index.graph.edges:
            return [], [], []
        nearby = nearest(index.relations, vector, self.config.top_k, above=self.config.threshold)
        ordered = self.by_degree(group, nearby)
        ends = list(dict.fromkeys(index.ends[ordered].ravel().tolist()))
        return ordered, ends, list(dict.fromkeys(chunk for edge in ordered for chunk in index.graph.edges[edge].chunks))

    def by_degree(self, group: Group, edges: NDArray[np.int64]) -> list[int]:
        """Sort relations by the sum of their ends' degrees, then by weight."""
        index = group.index
        degrees = index.degrees[index.ends[edges]].sum(axis=1)
        return edges[np.lexsort((edges, -index.weights[edges], -degrees))].tolist()

    def native(self, group: Group, query: Query, ranking: Ranking) -> list[Passage]:
        """Return entities, then relations, each within its token budget."""
        note = ranking.notes.get(self.note, {})
        entities = within(entity_passages(group, note.get("entities", ())), ENTITY_TOKENS)
        return [*entities, *within(relation_passages(group, note.get("relations", ())), RELATION_TOKENS)]

    async def contexts_one(self, query: Query, ranking: Ranking) -> Context:
        if self.config.context != "native" or self.config.tables != "csv" or not ranking.ids:
            return await super().contexts_one(query, ranking)
        text = await self.compute(lambda: self.written(self.group(query), ranking))
        return Context(query.id, (Passage("tables", "", text),))

    def written(self, group: Group, ranking: Ranking) -> str:
        """Format entities, relations and passages as tables, as in version 1.1.7."""
        note, index = ranking.notes.get(self.note, {}), group.index
        nodes = [(place, index.graph.nodes[place]) for place in note.get("entities", ())]
        edges = [(place, index.graph.edges[place]) for place in note.get("relations", ())]
        entities = [[node.name, node.type, joined_descriptions(node.descriptions), index.degrees[place]] for place, node in nodes]
        degrees = index.degrees[index.ends].sum(axis=1)
        relations = [
            [
                edge.source,
                edge.target,
                joined_descriptions(edge.descriptions),
                ", ".join(edge.keywords),
                index.weights[place],
                degrees[place],
                "UNKNOWN",
            ]
            for place, edge in edges
        ]
        tables = {
            "Entities": (("entity", "type", "description", "rank"), entities, ENTITY_TOKENS),
            "Relationships": (("source", "target", "description", "keywords", "weight", "rank", "created_at"), relations, RELATION_TOKENS),
            "Sources": (("content",), [[passage.full_text] for passage in self.corpus.get(ranking.ids)], math.inf),
        }
        combined = self.config.mode not in ("local", "global")
        shown = (f"-----{name}-----\n    ```csv\n    {csv_table(*table, combined=combined)}\n    ```" for name, table in tables.items())
        return "\n    ".join(shown)


def csv_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], budget: float, *, combined: bool) -> str:
    """Format a table as in version 1.1.7.

    Args:
        columns: Column names, without the number column.
        rows: Cells.
        budget: Token budget of the rows; the first row that does not fit ends the table. (Released: counts only descriptions.)
        combined: Format of combined tables from both searches: numbered from 1, unquoted. Otherwise numbered from 0, quoted.
    """
    lines = [f"{n},\t{','.join(map(str, row))}\n" if combined else quoted([n, *row]) for n, row in enumerate(rows, int(combined))]
    head = ("id", *columns)
    kept = within([Passage("", "", line) for line in lines], budget)
    text = "".join([",\t".join(head) + "\n" if combined else quoted(head), *(row.text for row in kept)])
    return text.removesuffix("\n") if combined else text


def quoted(row: Sequence[Any]) -> str:
    """Format a row with each cell in quotes."""
    output = io.StringIO()
    csv.writer(output, quoting=csv.QUOTE_ALL, escapechar="\\", lineterminator="\n").writerow(row)
    return output.getvalue()
