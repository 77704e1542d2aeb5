"""Communities of a graph by hierarchical Leiden, as GraphRAG finds them: large ones hold smaller ones."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from benchmarks.core.errors import MissingPackage
from methods.graphs.knowledge_graph import KnowledgeGraph

MAX_SIZE = 10
"""Entities beyond which a community is divided again."""
SEED = 0xDEADBEEF
"""GraphRAG's."""


@dataclass(frozen=True, slots=True)
class Community:
    """Entities that are related with each other more than with others.

    Attributes:
        id: Of the community, in the order in which they were found.
        level: 0 for the largest; those it is divided into have the next.
        parent: Id of the community that it is a part of; None at level 0.
        entities: Positions of its nodes in the graph, ascending.
    """

    id: int
    level: int
    parent: int | None
    entities: tuple[int, ...]


def communities(graph: KnowledgeGraph, *, largest_component: bool = True, max_size: int = MAX_SIZE, seed: int = SEED) -> list[Community]:
    """Return the communities of a graph; none where nothing is related.

    Edges are handed over in the order of their ends, on which the result depends. Modularity, resolution 1, randomness
    .001 and one iteration, as GraphRAG has it.

    Args:
        graph: The graph.
        largest_component: Only of its largest connected part.
        max_size: Entities beyond which a community is divided.
        seed: Decides between equals.

    Returns:
        By level and id.

    Raises:
        MissingPackage: graspologic-native is not installed.
    """
    kept = _largest(graph) if largest_component else frozenset(node.name for node in graph.nodes)
    edges = sorted((edge.source, edge.target, edge.weight) for edge in graph.edges if edge.source in kept and edge.weight > 0)
    if not edges:
        return []
    try:
        import graspologic_native
    except ImportError as error:
        raise MissingPackage("graspologic-native", "graphs", "communities of a graph") from error
    members: dict[int, list[int]] = defaultdict(list)
    levels: dict[int, tuple[int, int | None]] = {}
    for item in graspologic_native.hierarchical_leiden(
        edges, resolution=1.0, randomness=0.001, iterations=1, use_modularity=True, max_cluster_size=max_size, seed=seed
    ):
        members[item.cluster].append(graph.positions[item.node])
        levels[item.cluster] = (item.level, item.parent_cluster)
    result = [Community(id_, *levels[id_], tuple(sorted(nodes))) for id_, nodes in members.items()]
    return sorted(result, key=lambda community: (community.level, community.id))


def _largest(graph: KnowledgeGraph) -> frozenset[str]:
    """Return names of the largest connected part; of equals the one with the first name."""
    from scipy.sparse.csgraph import connected_components

    if not graph.nodes:
        return frozenset()
    _, labels = connected_components(graph.adjacency(), directed=False)
    sizes: dict[int, int] = defaultdict(int)
    for label in labels.tolist():
        sizes[label] += 1
    chosen = max(sizes, key=lambda label: sizes[label])  # the first label is that of the first node
    return frozenset(node.name for node, label in zip(graph.nodes, labels.tolist(), strict=True) if label == chosen)
