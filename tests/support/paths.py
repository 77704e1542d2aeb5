"""Triples on shortest paths, by networkx, as SubgraphRAG's own code finds them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import networkx as nx

from benchmarks.schema import Question, Triple


def paths(graph: Sequence[Triple], question: Question) -> list[Triple]:
    """Return the paths between a topic entity and an answer in either direction, as long as the shorter direction."""
    directed = nx.DiGraph((head, tail) for head, _, tail in graph)
    steps = set()
    for topic in question.topic_entities:
        for answer in question.answers:
            both = [path for ends in ((topic, answer), (answer, topic)) if topic != answer for path in _paths(directed, *ends)]
            steps |= {step for path in both if len(path) == min(map(len, both)) for step in pairwise(path)}
    return [triple for triple in graph if (triple[0], triple[2]) in steps]


def hops(graph: Sequence[Triple], question: Question) -> int:
    """Return the length of the shortest path between a topic entity and an answer in one direction; 0 if there is none."""
    directed = nx.DiGraph((head, tail) for head, _, tail in graph)
    pairs = [(topic, answer) for topic in question.topic_entities for answer in question.answers if topic != answer]
    lengths = [len(path) - 1 for one, other in pairs for ends in ((one, other), (other, one)) for path in _paths(directed, *ends)]
    return min(lengths, default=0)


def _paths(graph: nx.DiGraph, start: str, end: str) -> list[list[str]]:
    try:
        return list(nx.all_shortest_paths(graph, start, end))
    except (nx.NetworkXNoPath, nx.NodeNotFound):
        return []
