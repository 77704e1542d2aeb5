"""Format and parse the inputs and outputs of GraphRAG's published prompts: CSV tables and references to their rows.

Source: microsoft/graphrag 3.1 (its modules sort_context, community_context and global search). Ours: tokens are characters / 4;
if a community is too large, reports on its parts come first, then relations as far as they fit (released: reports replace the
relations of their part).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from methods.baselines.graph_rag.common import Group, joined_descriptions
from methods.graphs.communities import Community
from methods.work import tokens

_REFERENCE = re.compile(r"\[Data:[^\]]*\]")
_REPORT_IDS = re.compile(r"Reports?\s*\(([^)]*)\)", re.IGNORECASE)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], separator: str = ",") -> str:
    """Format rows as CSV with a header, quoted where necessary."""
    output = io.StringIO()
    writer = csv.writer(output, delimiter=separator, lineterminator="\n")
    writer.writerows([columns, *rows])
    return output.getvalue()


def community_tables(group: Group, entities: Sequence[int], reports: Mapping[int, str], budget: float) -> str:
    """Format a community's entities and relations as tables, relations with the highest degrees first.

    Args:
        group: The graph.
        entities: Entities of the community.
        reports: Reports by id of sub-community; shown if the tables are too long.
        budget: Token budget; at least one relation is shown.
    """
    index = group.index
    degrees = index.degrees
    ends = index.ends if len(index.graph.edges) else np.empty((0, 2), np.int64)
    edges = np.flatnonzero(np.isin(ends, entities).all(axis=1))
    combined = degrees[ends[edges]].sum(axis=1)
    edges = edges[np.lexsort((edges, -combined))]
    text = _tables(group, edges, entities if not len(edges) else (), {})
    if tokens(text) <= budget:
        return text
    low, high = 1, max(1, len(edges))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if tokens(_tables(group, edges[:middle], (), reports)) <= budget else (low, middle - 1)
    return _tables(group, edges[:low], entities if not len(edges) else (), reports)


def _tables(group: Group, edges: Any, alone: Sequence[int], reports: Mapping[int, str]) -> str:
    index, graph = group.index, group.index.graph
    nodes = list(dict.fromkeys([*index.ends[edges].ravel().tolist(), *alone])) if len(edges) else list(alone)
    parts = [f"----Reports-----\n{table(('community', 'full_content'), reports.items())}"] if reports else []
    rows = [(node, graph.nodes[node].name, joined_descriptions(graph.nodes[node].descriptions), int(index.degrees[node])) for node in nodes]
    parts.append(f"-----Entities-----\n{table(('human_readable_id', 'title', 'description', 'degree'), rows)}")
    if len(edges):
        relations = [
            (edge, one.source, one.target, joined_descriptions(one.descriptions), int(index.degrees[index.ends[edge]].sum()))
            for edge, one in ((edge, graph.edges[edge]) for edge in edges.tolist())
        ]
        columns = ("human_readable_id", "source", "target", "description", "combined_degree")
        parts.append(f"-----Relationships-----\n{table(columns, relations)}")
    return "\n\n".join(parts)


def report_table(reports: Sequence[tuple[int, str, float, str, float]]) -> str:
    """Format reports (id, title, weight, content, rating) as a table, by descending weight and rating."""
    rows = sorted(reports, key=lambda row: (-row[2], -row[4]))
    return table(("id", "title", "occurrence weight", "content", "rank"), rows, "|")


def occurrence_weights(group: Group, communities: Iterable[Community]) -> dict[int, float]:
    """Return the number of chunks that mention an entity of each community, divided by the maximum."""
    nodes = group.index.graph.nodes
    counts = {c.id: len({chunk for entity in c.entities for chunk in nodes[entity].chunks}) for c in communities}
    most = max(counts.values(), default=0) or 1
    return {number: count / most for number, count in counts.items()}


def analyst_points(points: Sequence[tuple[int, float, str]]) -> str:
    """Format points (batch of reports, score, text) as analysts' reports, one per batch."""
    return "\n\n".join(f"----Analyst {batch + 1}----\nImportance Score: {score:g}\n{text}" for batch, score, text in points)


def reports_in(text: str) -> list[int]:
    """Parse the report ids that a text cites, as in `[Data: Reports (2, 7, +more)]`."""
    lists = [ids for reference in _REFERENCE.findall(text) for ids in _REPORT_IDS.findall(reference)]
    return list(dict.fromkeys(int(number) for ids in lists for number in re.findall(r"\d{1,9}", ids)))


def without_references(text: str) -> str:
    """Remove citations of table rows from a text."""
    return re.sub(rf"\s*{_REFERENCE.pattern}", "", text)
