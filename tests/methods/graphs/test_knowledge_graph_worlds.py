"""Knowledge graphs of worlds with known facts: extracted without a model, and by the scripted LLM over HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import registry as datasets
from benchmarks.schema import Question
from benchmarks.worlds.text import Library, document, statements
from benchmarks.worlds.world import World, generate
from methods.flow import ordered, run
from methods.graphs import augmented_queries
from methods.graphs.augmented_queries import AugmentedQueries, LLMQueries, Neighborhoods, TemplateQueries
from methods.graphs.chunking import CHUNKS, Chunk, chunk
from methods.graphs.claims import PROMPT as CLAIMS
from methods.graphs.extraction import FAILED, LLMExtractor
from methods.graphs.knowledge_graph import KnowledgeGraph, clean_name
from methods.graphs.neighborhood import LLMNamer, Neighborhood, NeighborhoodConfig
from methods.graphs.synthetic import WorldsExtractor
from methods.models.chat import ChatModel, Reply
from methods.models.chat_config import ChatConfig
from tests.support.errors import raises
from tests.support.scripted import WorldTruth

CONFIG = {"entities": 60, "community": 60, "worlds": 1, "questions": 8}
WHOLE = CHUNKS["kg"]
AROUND = NeighborhoodConfig.model_validate({})


class StyledRun:
    """A document of a world: its chunks, facts and questions."""

    def __init__(self) -> None:
        benchmark = datasets.load("worlds/long:train", CONFIG)
        self.truth = WorldTruth([benchmark], config=CONFIG)
        self.world: World = next(iter(self.truth.worlds.values()))
        self.library: Library = document(self.world, 0, self.truth.rendering)
        self.text = "\n".join(text.passage.text for text in self.library.texts)
        self.chunks: list[Chunk] = chunk(self.text, WHOLE)
        self.facts = [self.world.facts[number] for number in self.library.where]
        self.questions: list[Question] = list(benchmark.questions)

    @property
    def triples(self) -> set[tuple[frozenset[str], str]]:
        """Return both ends of each fact, and the sentence with their relation."""
        return {(frozenset((clean_name(fact.head.name), clean_name(fact.text))), statements(fact)[0]) for fact in self.facts}


@pytest.fixture(scope="module")
def styled_run() -> StyledRun:
    return StyledRun()


@pytest.fixture
def endpoint(styled_run: StyledRun) -> Iterator[str]:
    with styled_run.truth.server().running() as url:
        yield url


def model(url: str) -> ChatModel:
    options = {"model": "m", "base_url": url, "key_variable": None, "attempts": 2, "max_tokens": 4096}
    return ChatModel(ChatConfig.model_validate(options))


def graph_of(*arguments: Any) -> KnowledgeGraph:
    return run(augmented_queries.graph_of(*arguments))


def around_of(
    graph: KnowledgeGraph, questions: Sequence[Question], config: NeighborhoodConfig, folder: Path, *more: Any
) -> list[Neighborhood]:
    return ordered(Neighborhoods(graph, config, folder, *more), questions, 8)


def queries_of(
    graph: KnowledgeGraph, questions: Sequence[Question], around: Sequence[Neighborhood], generator: Any, folder: Path
) -> list[dict[str, AugmentedQueries]]:
    return ordered(lambda pair: augmented_queries.queries_of(graph, *pair, generator, folder), zip(questions, around, strict=True), 8)


def triples(graph: KnowledgeGraph) -> set[tuple[frozenset[str], str]]:
    return {(frozenset((edge.source, edge.target)), text) for edge in graph.edges for text in edge.descriptions}


def test_perfect_model_extracts_exactly_the_facts_of_the_world(styled_run: StyledRun, endpoint: str) -> None:
    graph = run(LLMExtractor(model(endpoint)).extract_one("d", styled_run.chunks))
    results = triples(graph)
    assert results <= styled_run.triples
    # Only a sentence that no chunk holds whole can be missing.
    assert len(results) / len(styled_run.triples) >= 0.95
    assert graph.counts == {}


def test_claims_of_a_perfect_model_state_the_facts_of_their_subject(styled_run: StyledRun, endpoint: str) -> None:
    graph = run(LLMExtractor(model(endpoint), claims=CLAIMS.load()).extract_one("d", styled_run.chunks[:2]))
    facts = {(clean_name(fact.head.name), statements(fact)[0]) for fact in styled_run.facts}
    claims = {(node.name, text) for node in graph.nodes for text in node.claims}
    assert claims == {(name, text) for name, text in facts if any(text in edge.descriptions for edge in graph.edges)}
    assert claims
    assert graph.counts == {}


@pytest.mark.slow
def test_every_loss_is_counted_with_a_fifth_of_corrupt_replies(styled_run: StyledRun) -> None:
    truth = WorldTruth(styled_run.truth.benchmarks, config=CONFIG, corruption=0.2, seed=3)
    pieces = chunk(styled_run.text, WHOLE.model_copy(update={"size": 120}))
    with truth.server().running() as url:
        graph = run(LLMExtractor(model(url)).extract_one("d", pieces))
    assert sum(truth.corrupted.values()) > 5
    assert triples(graph) <= styled_run.triples
    harmful = sum(number for kind, number in truth.corrupted.items() if kind != "wrapped")
    counted = sum(graph.counts.values())
    assert counted >= harmful
    assert len(triples(graph)) / len(styled_run.triples) > 0.6


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 100_007])
def test_offline_extractor_finds_most_facts_of_a_world_from_text(seed: int) -> None:
    world = generate(seed)
    library = document(world, 0)
    text = " ".join(text.passage.text for text in library.texts)
    graph = WorldsExtractor().extract("d", chunk(text, WHOLE))
    facts = [world.facts[number] for number in library.where]
    gold = {frozenset((clean_name(fact.head.name), clean_name(fact.text))) for fact in facts}
    results = {frozenset((edge.source, edge.target)) for edge in graph.edges}
    assert len(gold & results) / len(gold) > 0.92
    assert len(gold & results) / len(results) > 0.95
    kinds = {clean_name(entity.name): entity.kind.upper() for entity in world.entities}
    known = [node for node in graph.nodes if node.name in kinds]
    assert sum(kinds[node.name] == node.type for node in known) / len(known) > 0.98


@pytest.mark.slow
def test_second_run_makes_no_call_and_gives_the_same_graph(styled_run: StyledRun, endpoint: str, tmp_path: Path) -> None:
    def run(url: str) -> tuple[object, ...]:
        models = [model(url) for _ in range(3)]
        graph = graph_of("some/doc: ument", styled_run.chunks, LLMExtractor(models[0]), tmp_path)
        around = around_of(graph, styled_run.questions, AROUND, tmp_path, LLMNamer(models[1]))
        queries = queries_of(graph, styled_run.questions, around, LLMQueries(models[2]), tmp_path)
        return graph, around, queries, [item.usage_by_role.total.calls for item in models]

    *first, calls = run(endpoint)
    *second, again = run(endpoint)
    assert all(calls)
    assert again == [0, 0, 0]
    assert second == first
    assert sum(1 for item in first[1] if not item.skipped) >= 5  # type: ignore[attr-defined]
    # Another question of the document is added to what is there.
    (tmp_path / "subgraphs").joinpath(sorted(p.name for p in (tmp_path / "subgraphs").iterdir())[0]).unlink()
    *third, few = run(endpoint)
    assert few == [0, 1, 0]
    assert third == first


@pytest.mark.slow
def test_changed_options_create_separate_artifacts(styled_run: StyledRun, tmp_path: Path) -> None:
    graph = graph_of("d", styled_run.chunks, WorldsExtractor(), tmp_path)
    shorter = graph_of("d", styled_run.chunks[:2], WorldsExtractor(), tmp_path)
    assert len(shorter.nodes) < len(graph.nodes)
    around = around_of(graph, styled_run.questions, AROUND, tmp_path)
    narrow = AROUND.model_copy(update={"small": AROUND.small.model_copy(update={"max_k": 3})})
    again = around_of(graph, styled_run.questions, narrow, tmp_path)
    assert all(len(item.small.entities) <= 3 for item in again)
    assert any(len(item.small.entities) > 3 for item in around)
    queries = queries_of(graph, styled_run.questions, around, TemplateQueries(), tmp_path)
    assert all(item["large"].queries for item, position in zip(queries, around, strict=True) if not position.skipped)
    fewer = queries_of(graph, styled_run.questions, around, TemplateQueries(2), tmp_path)
    assert all(len(item["large"].queries) == 2 for item in fewer if item)


@pytest.mark.slow
def test_unusable_reply_is_requested_once_more_and_then_recorded(styled_run: StyledRun, tmp_path: Path) -> None:
    graph = WorldsExtractor().extract("d", styled_run.chunks)
    around = around_of(graph, styled_run.questions[:2], AROUND, tmp_path)
    truth = WorldTruth(styled_run.truth.benchmarks, config=CONFIG, corruption=1.0, seed=1)
    truth.handlers.insert(0, lambda *_: "")
    with truth.server().running() as url:
        query = model(url)
        results = queries_of(graph, styled_run.questions[:2], around, LLMQueries(query), tmp_path)
    failed = [size for sizes in results for size in sizes.values() if size.failed]
    assert failed
    assert all(not item.queries for item in failed)


class Dead:
    """Model that stops answering after a number of calls."""

    config = ChatConfig.model_validate({"model": "m"})

    def __init__(self, dies_at: int) -> None:
        self.dies_at, self.calls = dies_at, 0

    async def ask(self, messages: object, step: str = "") -> Reply:
        self.calls += 1
        return Reply("<|COMPLETE|>", "gone" if self.calls > self.dies_at else None)


def test_graph_with_failed_chunks_is_rebuilt_and_one_with_only_failures_is_refused(styled_run: StyledRun, tmp_path: Path) -> None:
    partial = graph_of("d", styled_run.chunks, LLMExtractor(Dead(1)), tmp_path)  # type: ignore[arg-type]
    assert partial.counts[FAILED] == len(styled_run.chunks) - 1
    whole = graph_of("d", styled_run.chunks, LLMExtractor(Dead(10**6)), tmp_path)  # type: ignore[arg-type]
    assert FAILED not in whole.counts
    with raises("graph-calls-failed"):
        graph_of("e", styled_run.chunks, LLMExtractor(Dead(0)), tmp_path)  # type: ignore[arg-type]
