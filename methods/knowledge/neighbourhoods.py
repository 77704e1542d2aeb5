"""What lies around the answer of a question in its document's graph: seeds, scores, and the two cuts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from benchmarks.schema import Question
from methods.knowledge.graph import KnowledgeGraph, Node
from methods.knowledge.pagerank import Floats, PageRankConfig, scores_from_seeds
from methods.knowledge.seeds import GraphNamer, Namer, SeedConfig, Seeds, seeds_of
from methods.knowledge.similarity import TextEncoder
from methods.knowledge.subgraph import LARGE, SMALL, Cut, CutConfig, cut, ranked

SIZES = ("large", "small")
SHOWN = 60
"""Entities that a neighbourhood lists at least, those behind the cuts included, where there are as many."""


class NeighbourhoodConfig(BaseModel):
    """Options from seeds to cuts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seeds: SeedConfig = SeedConfig.model_validate({})
    ppr: PageRankConfig = PageRankConfig.model_validate({})
    large: CutConfig = LARGE
    small: CutConfig = SMALL
    force_seeds: bool = Field(False, description="put seeds that a cut left out in front of it")


PRESETS = {
    "paper": {"ppr": {"teleport": 0.85, "dangling": "drop"}, "large": {"min_k": 1, "max_k": 200}, "small": {"min_k": 1, "max_k": 10}},
    "released": {
        "ppr": {"teleport": 0.15, "released_exact": True},
        "large": {"min_k": 20, "max_k": 50, "inclusive_k": True, "apply_eps": False},
        "small": {"min_k": 3, "max_k": 10, "inclusive_k": True, "apply_eps": False},
    },
}
"""Where paper and released code depart from the defaults; the paper leaves the sizes of the small cut open."""


@dataclass(frozen=True, slots=True)
class Subgraph:
    """A neighbourhood cut to one size.

    Attributes:
        entities: Names, best first (seeds that were forced in come before all others).
        cut: How many of the ranking were kept.
        considered: Entities that entered the cut (|V'|).
        fall: The relative drop at the cut, as a difference of logarithms; None where there was no place to cut.
    """

    entities: tuple[str, ...]
    cut: int
    considered: int
    fall: float | None

    def nodes(self, graph: KnowledgeGraph) -> list[Node]:
        """Its nodes, in order."""
        return [graph.nodes[graph.places[name]] for name in self.entities]


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """What lies around the answer of a question.

    Attributes:
        question_id: The question.
        seeds: Where the search began, and how these were found; without names the question is left out.
        entities: Best first, `SHOWN` of them or as many as the large cut looked at.
        scores: One per entity.
        large, small: The two cuts; the small one is contained in the large.
    """

    question_id: str
    seeds: Seeds
    entities: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()
    large: Subgraph = Subgraph((), 0, 0, None)
    small: Subgraph = Subgraph((), 0, 0, None)

    @property
    def skipped(self) -> bool:
        """Whether there is nothing to go on with."""
        return not self.small.entities

    def size(self, name: str) -> Subgraph:
        """`large` or `small`."""
        return {"large": self.large, "small": self.small}[name]


def neighbourhoods(
    graph: KnowledgeGraph,
    questions: Sequence[Question],
    config: NeighbourhoodConfig,
    namer: Namer | None = None,
    encoder: TextEncoder | None = None,
) -> list[Neighbourhood]:
    """The neighbourhoods of questions about one document, all scored together.

    Args:
        graph: The document's graph.
        questions: With their gold.
        config: Options.
        namer: Finds names in answers and questions; None looks for the graph's nodes in them.
        encoder: For the fallback `embedding`.

    Returns:
        One per question, in order; those without a seed are `skipped`.
    """
    seeds = seeds_of(graph, questions, config.seeds, namer or GraphNamer(), encoder)
    started = [number for number, one in enumerate(seeds) if one.names]
    found = [Neighbourhood(question.id, one) for question, one in zip(questions, seeds, strict=True)]
    if started:
        scores = scores_from_seeds(graph, [seeds[number].names for number in started], config.ppr)
        for column, number in enumerate(started):
            found[number] = _neighbourhood(questions[number].id, graph, seeds[number], scores[:, column], config)
    return found


def _neighbourhood(question_id: str, graph: KnowledgeGraph, seeds: Seeds, scores: Floats, config: NeighbourhoodConfig) -> Neighbourhood:
    order, values = ranked(scores, [node.name for node in graph.nodes])
    names = tuple(graph.nodes[place].name for place in order)
    large, small = (_subgraph(names, cut(values, rule, config.ppr.eps), seeds, config.force_seeds) for rule in (config.large, config.small))
    # Both are beginnings of one ranking; only a small cut that falls behind the large one's could break this.
    if large.cut < small.cut:
        small = _subgraph(names, Cut(large.cut, small.considered, large.fall), seeds, config.force_seeds)
    assert set(small.entities) <= set(large.entities)
    shown = max(SHOWN, config.large.max_k + 1, len(large.entities))
    return Neighbourhood(question_id, seeds, names[:shown], tuple(values[:shown].tolist()), large, small)


def _subgraph(names: Sequence[str], found: Cut, seeds: Seeds, force: bool) -> Subgraph:
    kept = tuple(names[: found.size])
    missing = tuple(name for name in seeds.names if name not in kept) if force else ()
    return Subgraph(missing + kept, found.size, found.considered, found.fall)
