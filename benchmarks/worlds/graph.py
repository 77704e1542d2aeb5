"""A knowledge graph for every question: the neighbourhood of what it names, its proof included."""

from __future__ import annotations

from benchmarks.draws import Draws
from benchmarks.errors import UserError
from benchmarks.schema import Triple
from benchmarks.worlds.questions import Asked
from benchmarks.worlds.world import World


def question_graph(world: World, asked: Asked, size: int, draws: Draws) -> tuple[Triple, ...]:
    """The graph of one question, by names, in random order.

    It grows breadth first from the entities that the question names, so that it is connected as far as the world
    is, and is topped up with facts from elsewhere.

    Args:
        world: The world.
        asked: The question; all of its facts are in the graph.
        size: Number of triples.
        draws: The source of chance.

    Raises:
        UserError: The world has fewer facts than that.
    """
    if len(world.facts) < size:
        raise UserError(
            f"a graph of {size} triples needs a larger world than one of {len(world.facts)} facts",
            where="triples",
            try_this="raise entities or density, or ask for smaller graphs",
        )
    kept = dict.fromkeys(fact.row for fact in asked.facts)
    reached = {entity.index for entity in asked.topics}
    frontier = list(reached)
    while frontier and len(kept) < size:
        following: list[int] = []
        draws.shuffle(frontier)
        for index in frontier:
            for fact in (*world.by_head.get(index, ()), *world.by_tail.get(index, ())):
                if len(kept) >= size:
                    break
                kept[fact.row] = None
                for entity in (fact.head, fact.tail):
                    if entity is not None and entity.index not in reached:
                        reached.add(entity.index)
                        following.append(entity.index)
        frontier = following
    while len(kept) < size:
        kept[draws.below(len(world.facts))] = None
    everything = world.triples
    return tuple(everything[index] for index in draws.sample(list(kept), size))
