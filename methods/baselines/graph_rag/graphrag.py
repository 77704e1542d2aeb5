"""GraphRAG: local search (entities similar to the question lead to passages, relations and community reports) and global search
(all reports are rated for relevant points, from which the answer is written).

The model writes reports when the index is built, one per community of a group, the deepest level first, so that reports on
parts can describe a large community. Local search only needs reports in the native context.

Source: Edge et al. 2024 (arXiv:2404.16130) and microsoft/graphrag 3.1: the 20 nearest entities (10, doubled), 12,000 tokens, 15
% reports (of levels 0 to 2), 35 % entities and relations. Ours: descriptions are not summarized; entities have any type
(released: four); tokens are characters / 4; the native context's sources are the first `k` passages; answers are short.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from benchmarks.core.random import Draws
from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query
from methods.api import FAILED, Context, Evidence, Indexed, Prediction, Ranking, Services, Usage
from methods.baselines.graph_rag.common import (
    EXTRACTION,
    LONG,
    SHORT,
    GraphConfig,
    Group,
    System,
    SystemIndex,
    entity_passages,
    indexed_passages,
    nearest,
    reading_work,
    register,
    relation_passages,
    within,
)
from methods.baselines.graph_rag.tables import (
    analyst_points,
    community_tables,
    occurrence_weights,
    report_table,
    reports_in,
    without_references,
)
from methods.flow import together
from methods.graphs.communities import Community, communities
from methods.graphs.extraction import LLMExtractor
from methods.graphs.index import GraphIndex
from methods.models.chat import ChatModel
from methods.models.structured import parse as parse_json
from methods.pipeline import index_folder
from methods.prompts import PUBLISHED, Prompt
from methods.readers.extract import short_answer
from methods.registry import Component, require_extra
from methods.work import Lengths, Work, ask, index, tokens

REPORTS_SHARE = 0.15
"""Fraction of the native context's tokens for reports."""
GRAPH_SHARE = 0.35
"""Fraction of the native context's tokens for entities and relations."""
BATCH_TOKENS = 12_000
"""Tokens of reports per map call, and of points for the final answer."""
INSTRUCTIONS = 350
PARAGRAPHS = "multiple paragraphs"
"""Form of a long answer in the published prompts."""
FORMS = {"short": "a short phrase: a name, a number, yes or no; no sentence", "paragraphs": "several paragraphs"}
"""Description of each answer form in a prompt."""
PER_COMMUNITY = 6
"""Assumed entities per community, for estimates."""


class GraphRagConfig(GraphConfig):
    """Options shared by all GraphRAG searches."""

    published: ClassVar[Mapping[str, str]] = {
        "extraction": "graphrag_extraction",
        "gleaning": "graphrag_gleaning",
        "loop": "graphrag_loop",
        "report": "graphrag_report",
    }

    gleanings: int = Field(1, ge=0, description="times that the model is asked again for entities and relations that it left out")
    max_community: int = Field(10, ge=2, description="largest community in entities; larger ones are divided")
    report_tokens: int = Field(8000, ge=100, description="maximum tokens of entities and relations in the prompt for a community report")
    seed: int = Field(0xDEADBEEF, description="of the communities; released: the same")

    def preflight(self) -> None:
        super().preflight()
        if self.written_tokens:
            require_extra("graphs", "reports about communities")

    @property
    def written_tokens(self) -> int:
        return self.long if self.llm is not None and self.context == "native" else 0

    @property
    def long(self) -> int:
        """Return the maximum tokens of reports, points and answers; published prompts ask for up to 2,000 words."""
        return EXTRACTION if self.prompts == PUBLISHED else LONG

    def reading_by(self, model: ChatModel) -> LLMExtractor:
        """Build the extractor of records with follow-up requests."""
        return LLMExtractor(model, gleanings=self.gleanings, prompts=self.record_prompts())

    def reading_templates(self) -> list[Prompt]:
        """Return all prompts for extracting records from a passage."""
        return list(self.record_prompts().values())

    def templates(self) -> list[Prompt]:
        return [*self.reading_templates(), *(self.template(name) for name in ("report", "map", "reduce"))]


class LocalConfig(GraphRagConfig):
    """Options of local search."""

    entities: int = Field(20, ge=1, description="entities most similar to the question; released: top_k_mapped_entities 10, doubled")
    relations: int = Field(10, ge=0, description="relations to other entities in the native context, per entity")
    level: int | None = Field(2, ge=0, description="use reports about communities up to this level; null: all levels")
    tokens: int = Field(12_000, ge=1, description="tokens of the native context; the shares below divide them")

    @property
    def context_tokens(self) -> int:
        return round(self.tokens * (REPORTS_SHARE + GRAPH_SHARE)) if self.context == "native" else 0


class ReportsConfig(GraphRagConfig):
    """Options of GraphRAG methods that write the answer themselves."""

    needs_llm = True

    level: int | None = Field(2, ge=0, description="use reports about communities up to this level; null: all levels")
    answer: Literal["short", "paragraphs"] = Field("short", description="paragraphs: the released default, with which token F1 is very low")
    context: Literal["native"] = Field("native", description="always: answers come from reports")


class GlobalConfig(ReportsConfig):
    """Options of global search."""

    published: ClassVar[Mapping[str, str]] = {**GraphRagConfig.published, "map": "graphrag_map", "reduce": "graphrag_reduce"}


class _Finding(BaseModel):
    summary: str
    explanation: str = ""


class Report(BaseModel):
    """A community report."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    title: str = Field(min_length=1)
    summary: str
    rating: float = 0.0
    rating_explanation: str = ""
    findings: list[_Finding] = []

    @property
    def text(self) -> str:
        """Return summary and findings as text."""
        return " ".join((self.summary, *(f"{item.summary} {item.explanation}".strip() for item in self.findings)))

    @property
    def full(self) -> str:
        """Return the whole report as Markdown."""
        sections = (f"## {item.summary}\n\n{item.explanation}" for item in self.findings)
        return "\n\n".join((f"# {self.title}", self.summary, *sections))


def report_in(reply: str) -> Report | None:
    """Parse a report from a reply; None if it has no title."""
    report = parse_json(reply, Report).value
    return report if report is not None and report.title.strip() else None


@dataclass(frozen=True)
class Reported:
    """Communities of a group with their reports.

    Attributes:
        communities: Communities sorted by level.
        reports: Reports by community id; failed ones are missing.
        counts: Number of missing reports by reason.
    """

    communities: tuple[Community, ...] = ()
    reports: dict[int, Report] | None = None
    counts: dict[str, int] | None = None

    def up_to(self, level: int | None) -> dict[int, Report]:
        """Return the reports of communities up to a level, in order of the communities; None for all levels."""
        reports = self.reports or {}
        return {c.id: reports[c.id] for c in self.communities if c.id in reports and (level is None or c.level <= level)}


def building(config: GraphRagConfig, lengths: Lengths) -> Work:
    """Estimate the work of extracting records and writing reports."""
    work = reading_work(config, lengths, calls=1 + config.gleanings)
    if config.llm is None or not config.written_tokens:
        return work
    written = indexed_passages(config, lengths) * lengths.passage / 20 / PER_COMMUNITY
    return work + index(ask(config.llm, written, INSTRUCTIONS + config.report_tokens / 10, min(config.long, config.llm.longest)))


@register(
    "graphrag",
    version=4,
    summary="GraphRAG's local search: entities near the question, with their passages, relations and community reports",
    config=LocalConfig,
    paper="Edge et al. 2024, From Local to Global (arXiv:2404.16130)",
    work=building,
)
class GraphRagIndex(SystemIndex):
    """Index with graph, communities and reports."""

    async def prepare(self, group: Group) -> tuple[Reported, Usage]:
        """Detect a group's communities, and generate their reports, the deepest level first; replies without a title are
        dropped.
        """
        if self.writer is None:
            return Reported(), Usage()
        hierarchy = communities(group.index.graph, max_size=self.config.max_community, seed=self.config.seed)
        reports: dict[int, Report] = {}
        counts: Counter[str] = Counter()
        usage, prompt = Usage(), self.config.template("report")
        for level in sorted({community.level for community in hierarchy}, reverse=True):
            here = [community for community in hierarchy if community.level == level]
            contents = [self.show_community(group, community, hierarchy, reports) for community in here]
            calls = (self.writer(prompt, "report", text, Report, lambda reply: report_in(reply) is not None) for text in contents)
            replies = await together(*calls)
            for community, (text, cost, why) in zip(here, replies, strict=True):
                usage += cost
                if (report := report_in(text)) is None:
                    counts[why] += 1
                else:
                    reports[community.id] = report
        return Reported(tuple(hierarchy), reports, dict(counts)), usage

    def show_community(self, group: Group, community: Community, hierarchy: Sequence[Community], reports: dict[int, Report]) -> str:
        """Build the input for a report: a community's entities and relations; if too long, reports on its parts replace them."""
        if self.config.prompts == PUBLISHED:
            full = {c.id: reports[c.id].full for c in hierarchy if c.parent == community.id and c.id in reports}
            return community_tables(group, community.entities, full, self.config.report_tokens)
        edges = np.flatnonzero(np.isin(group.index.ends, community.entities).all(axis=1))
        edges = edges[np.argsort(-group.index.weights[edges], kind="stable")]
        whole = [*entity_passages(group, community.entities), *relation_passages(group, edges.tolist())]
        budget = self.config.report_tokens
        parts = [Passage("", report.title, report.text) for c in hierarchy if c.parent == community.id and (report := reports.get(c.id))]
        too_much = sum(tokens(passage.full_text) for passage in whole) > budget
        return "\n".join(f"{p.title}: {p.text}" for p in within([*parts, *whole] if too_much else whole, budget))

    async def retrieve_one(self, query: Query, k: int) -> Ranking:
        """Rank passages by the entities most similar to the question that they mention; without entities, by dense score."""
        ranking: Ranking = await self.compute(lambda: self.ranked(query, k))
        if self.writer is not None and (reported := await self.prepared(await self.compute(lambda: self.group(query)))).counts:
            ranking.notes[self.note].setdefault("fallbacks", {}).update({f"report: {why}": n for why, n in reported.counts.items()})
        return ranking

    async def contexts_one(self, query: Query, ranking: Ranking) -> Context:
        """Return the native context (reports, entities, relations, sources), or only the passages."""
        context = await super().contexts_one(query, ranking)
        nearby = ranking.notes.get(self.note, {}).get("entities", [])
        if self.writer is None or not nearby:
            return context
        reported = await self.prepared(await self.compute(lambda: self.group(query)))
        reports = within(report_passages(reported, nearby, self.config.level), self.config.tokens * REPORTS_SHARE)
        return replace(context, passages=(*reports, *context.passages))

    def ranked(self, query: Query, k: int) -> Ranking:
        group = self.group(query)
        index, vector = group.index, self.query_vector(query.text)
        if not index.graph.nodes:
            scores = self.dense(group, vector)
            return self.by_score(query, group, scores, k, {"fallback": "dense"})
        nearby = nearest(index.entities, vector, self.config.entities).tolist()
        chunks: dict[int, tuple[int, float]] = {}
        for place, node in enumerate(nearby):
            mentions = np.asarray(index.edge_chunks[np.flatnonzero((index.ends == node).any(axis=1))].sum(axis=0))
            for chunk in index.graph.nodes[node].chunks:
                chunks.setdefault(chunk, (place, -float(mentions[chunk])))
        order = sorted(chunks, key=lambda chunk: (*chunks[chunk], chunk))
        return self.ranking(query, group, order, k, {"entities": nearby})

    def native(self, group: Group, query: Query, ranking: Ranking) -> list[Passage]:
        """Return entities, and the relations of the first of them, within their share of the tokens."""
        nearby = ranking.notes.get(self.note, {}).get("entities", [])
        if not nearby:
            return []
        budget = self.config.tokens * GRAPH_SHARE
        entities = within(entity_passages(group, nearby), budget)
        relations: list[Passage] = []
        for number in range(1, len(nearby) + 1):
            more = relation_passages(group, relations_of(group.index, nearby[:number], self.config.relations))
            if len(within([*entities, *more], budget)) < len(entities) + len(more):
                break
            relations = more
        return [*entities, *relations]


def relations_of(index: GraphIndex, nodes: Sequence[int], each: int) -> list[int]:
    """Rank the relations of entities as the released local search does.

    Args:
        index: The index.
        nodes: The entities, best first.
        each: Maximum relations to other entities per entity in `nodes`.

    Returns:
        Relations between `nodes`, by the sum of their ends' degrees. Then relations to other entities, at most `each` ×
        `len(nodes)`, by the number of `nodes` that the other entity is related to, then by degrees.
    """
    selected = np.isin(index.ends, nodes)
    ranks = index.degrees[index.ends].sum(axis=1)
    within_nodes, outward = np.flatnonzero(selected.all(axis=1)), np.flatnonzero(selected.sum(axis=1) == 1)
    others = np.where(selected[outward, 0], index.ends[outward, 1], index.ends[outward, 0])
    shared = np.bincount(others, minlength=len(index.graph.nodes))[others]
    first = within_nodes[np.argsort(-ranks[within_nodes], kind="stable")]
    then = outward[np.lexsort((-ranks[outward], -shared))]
    return [*first.tolist(), *then[: each * len(nodes)].tolist()]


def report_passages(reported: Reported, nearby: Sequence[int], level: int | None = None) -> list[Passage]:
    """Return reports (up to a level) on communities of some entities as passages; those with the most of these entities first,
    then by rating.
    """
    reports = reported.up_to(level)
    matched = {c.id: len(set(c.entities) & set(nearby)) for c in reported.communities if c.id in reports}
    chosen = sorted((c for c, number in matched.items() if number), key=lambda c: (-matched[c], -reports[c].rating, c))
    return [Passage(f"report {c}", reports[c].title, reports[c].text) for c in chosen]


class GraphRagMethod:
    """Base class of whole methods that answer from the graph and reports of `GraphRagIndex`.

    Args:
        config: Options.
        services: As in `System`; the seed determines all random choices.
    """

    note: ClassVar[str]
    """The system's id, the key of its notes in predictions."""

    def __init__(self, config: Any, services: Services) -> None:
        self.config = config
        self._services = services
        self._builder = System(config, services, GraphRagIndex)
        model = self._builder.models(self.note, config.long)
        assert model is not None
        self._model = model
        self.in_flight = model.in_flight
        self._index: GraphRagIndex | None = None

    def index(self, corpus: Corpus) -> Indexed:
        """Index the corpus, or reopen an existing index."""
        folder = index_folder(Component.of(self.note, self.config.model_dump()), corpus, self._services)
        reused = folder is not None and (folder / "complete.json").exists()
        self._index = self._builder.index(corpus, folder) if len(corpus) else None
        return Indexed(folder.name if folder is not None else "", reused, self.usage)

    @property
    def usage(self) -> Usage:
        """Return the cost of building the index."""
        return Usage() if self._index is None else self._index.usage

    @property
    def notes(self) -> Mapping[str, Any]:
        """Return the notes of the index."""
        return {} if self._index is None else self._index.notes

    def build_for(self, queries: Iterable[Query]) -> None:
        """Generate the reports that these questions need."""
        if self._index is not None:
            self._index.build_for(queries)

    async def reported(self, query: Query) -> tuple[GraphRagIndex, Group, Reported] | None:
        """Return the index, a question's group and its reports; None if the question has no passages."""
        if self._index is None or query.candidates == ():
            return None
        index = self._index
        group = await index.compute(lambda: index.group(query))
        return index, group, await index.prepared(group)

    async def written(
        self, query: Query, template: str, shown: Mapping[str, str], evidence: tuple[Evidence, ...], usage: Usage, note: Mapping[str, Any]
    ) -> Prediction:
        """Generate the answer in the configured form, and return the prediction."""
        theirs, short = self.config.prompts == PUBLISHED, self.config.answer == "short"
        form = PARAGRAPHS if theirs and not short else FORMS[self.config.answer]
        reply = await self._model.ask(self.config.template(template).messages(question=query.text, form=form, **shown), step="reduce")
        failed = {FAILED: reply.failed} if reply.failed is not None else {}
        answer = short_answer(without_references(reply.text) if theirs else reply.text) if short else reply.text
        assert self._index is not None
        return Prediction(query.id, answer, evidence, usage + reply.usage, {self.note: dict(note), **self._index.label, **failed})


class _Point(BaseModel):
    description: str
    score: float
    reports: list[int] = []


class _Points(BaseModel):
    points: list[_Point]

    @field_validator("points", mode="before")
    @classmethod
    def _complete(cls, value: Any) -> Any:
        """Drop points without a description or a number as score, as the released code does, instead of all points of the reply."""
        return [point for point in value if _is_point(point)] if isinstance(value, list) else value


def _is_point(value: Any) -> bool:
    try:
        _Point.model_validate(value)
    except ValidationError:
        return False
    return True


class _ScoredPoint(BaseModel):
    description: str
    score: float


class _ScoredPoints(BaseModel):
    """Reply to the published map prompt, with reports cited in the description."""

    points: list[_ScoredPoint]


def _global_work(config: GlobalConfig, lengths: Lengths) -> Work:
    reports = lengths.document / 20 / PER_COMMUNITY * config.long
    batches = max(1.0, reports / BATCH_TOKENS)
    mapped = ask(config.llm, lengths.questions * batches, INSTRUCTIONS + min(reports, BATCH_TOKENS), config.long)
    return building(config, lengths) + mapped + ask(config.llm, lengths.questions, INSTRUCTIONS + config.long, SHORT)


@register(
    "graphrag_global",
    version=4,
    summary="GraphRAG's global search: points from every community's report, and an answer from the best of them",
    config=GlobalConfig,
    paper="Edge et al. 2024, From Local to Global (arXiv:2404.16130)",
    work=_global_work,
)
class GraphRagGlobal(GraphRagMethod):
    """Whole method: answers from all community reports (global search)."""

    async def answer_one(self, query: Query) -> Prediction:
        """Answer a question from the points that the model extracts from reports; the evidence consists of the passages of the
        cited communities.
        """
        if (read := await self.reported(query)) is None:
            return Prediction(query.id, "", notes={self.note: {"fallback": "nothing to read"}})
        index, group, reported = read
        batches = self.batches(query, reported)
        weights = occurrence_weights(group, (c for c in reported.communities if c.id in (reported.reports or {})))
        mapped = await together(*(self._mapped(query, batch, weights) for batch in batches))
        helpful = ((place, point) for place, (some, _, _) in enumerate(mapped) for point in some if point.score > 0)
        ordered = sorted(helpful, key=lambda pair: -pair[1].score)
        points = [point for _, point in ordered]
        usage = sum((cost for _, cost, _ in mapped), Usage())
        note: dict[str, Any] = {"reports": sum(map(len, batches)), "points": len(points)}
        if lost := sum(bool(why) for *_, why in mapped):
            note["fallbacks"] = {"batch without points": lost}
        kept = within([Passage(str(n), "", point.description) for n, point in enumerate(points)], BATCH_TOKENS)
        evidence = _evidence(index, query, group, reported, points[: len(kept)])
        if not kept:
            return Prediction(query.id, "", evidence, usage, {self.note: {**note, "fallback": "no point"}, **index.label})
        text = "\n".join(f"- {passage.text}" for passage in kept)
        if self.config.prompts == PUBLISHED:
            text = analyst_points([(place, point.score, point.description) for place, point in ordered[: len(kept)]])
        return await self.written(query, "reduce", {"points": text}, evidence, usage, note)

    def batches(self, query: Query, reported: Reported) -> list[list[tuple[int, Report]]]:
        """Shuffle the reports for a question and divide them into batches."""
        reports = reported.up_to(self.config.level)
        wanted = list(reports)
        Draws("graphrag_global", self._services.seed, query.id).shuffle(wanted)
        batches: list[list[tuple[int, Report]]] = []
        room = 0
        for number in wanted:
            report = reports[number]
            size = tokens(report.full if self.config.prompts == PUBLISHED else report.title + report.text)
            if not batches or room < size:
                batches.append([])
                room = BATCH_TOKENS
            batches[-1].append((number, reports[number]))
            room -= size
        return batches

    async def _mapped(
        self, query: Query, batch: Sequence[tuple[int, Report]], weights: Mapping[int, float]
    ) -> tuple[list[_Point], Usage, str]:
        text = "\n\n".join(f"[{number}] {report.title}\n{report.text}" for number, report in batch)
        theirs = self.config.prompts == PUBLISHED
        if theirs:
            text = report_table([(number, report.title, weights[number], report.full, report.rating) for number, report in batch])
        messages = self.config.template("map").messages(question=query.text, reports=text)
        reply = await self._model.ask(messages, shape=_ScoredPoints if theirs else _Points, step="map")
        read = parse_json(reply.text, _Points)
        points = read.value.points if read.value else []
        if theirs:
            points = [point.model_copy(update={"reports": reports_in(point.description)}) for point in points]
        return points, reply.usage, reply.failed or read.failed or ""


def _evidence(index: GraphRagIndex, query: Query, group: Group, reported: Reported, points: Sequence[_Point]) -> tuple[Evidence, ...]:
    members = {community.id: community.entities for community in reported.communities}
    nodes = [node for point in points for number in point.reports for node in members.get(number, ())]
    ranking = index.ranking(query, group, [chunk for node in nodes for chunk in group.index.graph.nodes[node].chunks], 100, {})
    return tuple(map(Evidence, ranking.ids, ranking.scores))
