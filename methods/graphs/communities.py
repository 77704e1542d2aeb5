"""Detect hierarchical communities of a graph with Leiden, as in GraphRAG."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from benchmarks.core.errors import MissingPackage
from methods.graphs.knowledge_graph import KnowledgeGraph

MAX_SIZE = 10
"""Community size above which it is split further."""
SEED = 0xDEADBEEF
"""GraphRAG's random seed."""


@dataclass(frozen=True, slots=True)
class Community:
    """Group of entities that are densely related.

    Attributes:
        id: Consecutive id, in order of detection.
        level: Level in the hierarchy: 0 at the top; parts of a community have the next level.
        parent: Id of the enclosing community; None at level 0.
        entities: Indices of its nodes in the graph, ascending.
    """

    id: int
    level: int
    parent: int | None
    entities: tuple[int, ...]


def communities(graph: KnowledgeGraph, *, max_size: int = MAX_SIZE, seed: int = SEED) -> list[Community]:
    """Detect the communities of a graph's largest connected component; none if the graph has no edges.

    GraphRAG's settings: modularity, resolution 1, randomness 0.001, one iteration. The result depends on the order of edges,
    which are sorted by their ends.

    Args:
        graph: The graph.
        max_size: Community size above which it is split.
        seed: Random seed.

    Returns:
        Communities sorted by level and id.

    Raises:
        MissingPackage: graspologic-native is not installed.
    """
    kept = _largest(graph)
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
    """Return the nodes of the largest connected component; ties go to the one with the first name."""
    from scipy.sparse.csgraph import connected_components

    if not graph.nodes:
        return frozenset()
    _, labels = connected_components(graph.adjacency(), directed=False)
    sizes: dict[int, int] = defaultdict(int)
    for label in labels.tolist():
        sizes[label] += 1
    chosen = max(sizes, key=lambda label: sizes[label])  # the first label is that of the first node
    return frozenset(node.name for node, label in zip(graph.nodes, labels.tolist(), strict=True) if label == chosen)
