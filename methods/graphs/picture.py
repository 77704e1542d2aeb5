"""Draw a neighborhood as SVG: entities in rings by rank, relations, seeds, and the cuts."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from html import escape

from methods.graphs.knowledge_graph import KnowledgeGraph
from methods.graphs.neighborhood import Neighborhood
from methods.registry import shortened

SIZE = 760
MOST = 40
"""Maximum number of entities drawn."""
RINGS = (1, 7, 14, 28)
"""Number of entities per ring, from the center outwards; the last ring takes the rest."""
LABEL = 22

_NO_XML = re.compile(r"[\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]")

_STYLE = (
    "text{font:11px sans-serif;fill:#222}"
    ".edge{stroke:#999;stroke-width:1}.similarity{stroke-dasharray:4 3;stroke:#bbb}"
    ".node{fill:#fff;stroke:#555;stroke-width:1.2}.small{fill:#9ecae1}.large{fill:#deebf7}"
    ".seed{stroke:#d94801;stroke-width:3}.outside{fill:#f7f7f7;stroke:#bbb}.note{font-size:12px}"
)


def svg(graph: KnowledgeGraph, around: Neighborhood, most: int = MOST) -> str:
    """Draw a neighborhood as SVG.

    The best entity is at the center, lower ranks further out; the layout is deterministic.

    Args:
        graph: The document's graph.
        around: The neighborhood.
        most: Maximum number of entities drawn.

    Returns:
        A standalone SVG with escaped names.
    """
    names = list(around.entities[:most])
    positions = dict(zip(names, layout(len(names)), strict=True))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE} {SIZE + 44}" role="img">',
        "<title>Entities around the answer</title>",
        f"<style>{_STYLE}</style>",
        *_edges(graph, positions),
        *(_node(name, positions[name], around, rank) for rank, name in enumerate(names)),
        *_legend(around, len(names)),
        "</svg>",
    ]
    return "\n".join(parts)


def layout(count: int) -> list[tuple[float, float]]:
    """Return the coordinates of `count` entities in rings, best first."""
    positions: list[tuple[float, float]] = []
    ring = 0
    while len(positions) < count:
        left = count - len(positions)
        last = ring == len(RINGS) - 1
        here = left if last else min(left, RINGS[ring])
        radius = ring * (SIZE / 2 - 50) / (len(RINGS) - 1)
        for number in range(here):
            angle = 2 * math.pi * (number / here) + 0.4 * ring - math.pi / 2
            positions.append((SIZE / 2 + radius * math.cos(angle), SIZE / 2 + radius * math.sin(angle)))
        ring += 1
    return positions


def _edges(graph: KnowledgeGraph, positions: dict[str, tuple[float, float]]) -> list[str]:
    lines = []
    for edge in graph.edges:
        if edge.source in positions and edge.target in positions:
            (x1, y1), (x2, y2) = positions[edge.source], positions[edge.target]
            kind = "edge" if "extracted" in edge.kinds else "edge similarity"
            label = "; ".join(edge.descriptions) or f"similar: {edge.similarity or 0:.2f}"
            lines.append(
                f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"><title>{escaped(label)}</title></line>'
            )
    return lines


def _node(name: str, position: tuple[float, float], around: Neighborhood, rank: int) -> str:
    x, y = position
    inside = "small" if name in around.small.entities else "large" if name in around.large.entities else "outside"
    kind = f"node {inside}" + (" seed" if name in around.seeds.names else "")
    radius = 14 - min(rank, 30) * 0.25
    title = f"{rank + 1}. {name}, score {around.scores[rank]:.4g}"
    label = escaped(shortened(name, LABEL))
    return (
        f'<g><circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"><title>{escaped(title)}</title>'
        f'</circle><text x="{x:.1f}" y="{y + radius + 12:.1f}" text-anchor="middle">{label}</text></g>'
    )


def _legend(around: Neighborhood, drawn: int) -> Sequence[str]:
    falls = [
        f"{size}: cut behind rank {item.cut}" + (f" (score falls to {math.exp(-item.fall):.0%})" if item.fall else "")
        for size, item in (("small, dark", around.small), ("large, light", around.large))
    ]
    more = f"; {len(around.entities) - drawn} more not drawn" if len(around.entities) > drawn else ""
    lines = ["; ".join(falls), f"ringed: seeds; white: beyond the cuts; dashed: similarity alone{more}"]
    return [f'<text class="note" x="12" y="{SIZE + 16 + 18 * number}">{escaped(line)}</text>' for number, line in enumerate(lines)]


def escaped(text: str) -> str:
    """Escape a text for XML; characters that XML does not allow are removed."""
    return escape(_NO_XML.sub("", text))
