"""Ranked triples drawn: entities in circles around those of the best triple, their relations as arrows."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.schema import Triple
from methods.explaining import shortened
from methods.knowledge.linearise import relation_text
from methods.knowledge.picture import LABEL, MOST, SIZE, escaped, layout

RADIUS = 11.0
LOOP = 16.0
"""Size of the bow of a triple that leads from an entity to itself."""

_STYLE = (
    "text{font:11px sans-serif;fill:#222}.relation{font-size:9px;fill:#666}"
    ".edge{fill:none;stroke:#bbb;stroke-dasharray:4 3}"
    ".edge.first{stroke:#2171b5;stroke-width:1.6;stroke-dasharray:none}"
    ".node{fill:#fff;stroke:#555;stroke-width:1.2}.answer{fill:#a1d99b}.topic{stroke:#d94801;stroke-width:3}"
    ".note{font-size:12px}"
)
_LEGEND = (
    "solid: among GPR's first triples; dashed: among those of the untrained towers alone",
    "green: answers; ringed: entities that the question is about",
)
Places = Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class Drawing:
    """What is drawn.

    Attributes:
        first: The triples ranked first by the method that is explained, best first.
        others: Those of the method beside it.
        answers: Names that are answers.
        topics: Names that the question is about.
    """

    first: Sequence[Triple]
    others: Sequence[Triple]
    answers: Collection[str] = ()
    topics: Collection[str] = ()

    @property
    def triples(self) -> list[Triple]:
        """All triples, each once."""
        return list(dict.fromkeys([*self.first, *self.others]))

    @property
    def names(self) -> list[str]:
        """All entities in the order in which the triples name them."""
        return list(dict.fromkeys(name for head, _, tail in self.triples for name in (head, tail)))


def svg(drawing: Drawing, most: int = MOST) -> str | None:
    """Draw triples; the same ones always look the same.

    Args:
        drawing: What.
        most: Entities drawn at most.

    Returns:
        An SVG that stands alone, names in it escaped; None where there is no triple.
    """
    names = drawing.names[:most]
    if not names:
        return None
    places = dict(zip(names, layout(len(names)), strict=True))
    left_out = len(drawing.names) - len(names)
    legend = [*_LEGEND, f"{left_out} further entities not drawn"] if left_out else _LEGEND
    lines = [f'<text class="note" x="12" y="{SIZE + 16 + 18 * number}">{line}</text>' for number, line in enumerate(legend)]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE} {SIZE + 62}" role="img">',
        "<title>The first triples</title>",
        f"<style>{_STYLE}</style>",
        '<defs><marker id="end" markerWidth="7" markerHeight="6" refX="6" refY="3" orient="auto">'
        '<path d="M0,0 L7,3 L0,6 z" fill="#777"/></marker></defs>',
        *_edges(drawing, places),
        *(_node(name, places[name], drawing) for name in names),
        *lines,
        "</svg>",
    ]
    return "\n".join(parts)


def _edges(drawing: Drawing, places: Places) -> list[str]:
    """An arrow per triple; those between the same two entities lie beside each other."""
    first = set(drawing.first)
    drawn: dict[frozenset[str], int] = {}
    lines = []
    for triple in drawing.triples:
        head, relation, tail = triple
        if head in places and tail in places:
            pair = frozenset((head, tail))
            path, (x, y) = _path(places[head], places[tail], drawn.get(pair, 0), turned=head > tail)
            drawn[pair] = drawn.get(pair, 0) + 1
            kind = "edge first" if triple in first else "edge"
            label = escaped(shortened(relation_text(relation), LABEL))
            title = escaped(" – ".join(triple))
            lines.append(
                f'<g><path class="{kind}" d="{path}" marker-end="url(#end)"><title>{title}</title></path>'
                f'<text class="relation" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{label}</text></g>'
            )
    return lines


def _path(start: tuple[float, float], end: tuple[float, float], earlier: int, *, turned: bool) -> tuple[str, tuple[float, float]]:
    """The path of an arrow, and where its label goes.

    Args:
        start, end: The entities' places.
        earlier: Arrows between the two that are drawn already.
        turned: Whether it leads against the order of the names, which decides to which side it bends.
    """
    (x1, y1), (x2, y2) = start, end
    if start == end:
        size = LOOP * (1 + earlier / 2)
        path = f"M{x1:.1f},{y1 - RADIUS:.1f} c{-2 * size:.1f},{-2 * size:.1f} {2 * size:.1f},{-2 * size:.1f} 0,0"
        return path, (x1, y1 - RADIUS - 1.6 * size)
    length = math.hypot(x2 - x1, y2 - y1)
    dx, dy = (x2 - x1) / length, (y2 - y1) / length
    # Straight, then to one side, to the other, further to the one …
    away = 28.0 * ((earlier + 1) // 2) * (1 if earlier % 2 else -1)
    bend = -away if turned else away
    middle = ((x1 + x2) / 2 - dy * bend, (y1 + y2) / 2 + dx * bend)
    begin, stop = (x1 + dx * RADIUS, y1 + dy * RADIUS), (x2 - dx * (RADIUS + 2), y2 - dy * (RADIUS + 2))
    path = f"M{begin[0]:.1f},{begin[1]:.1f} Q{middle[0]:.1f},{middle[1]:.1f} {stop[0]:.1f},{stop[1]:.1f}"
    return path, (middle[0], middle[1] - 3)


def _node(name: str, place: tuple[float, float], drawing: Drawing) -> str:
    x, y = place
    kind = "node" + (" answer" if name in drawing.answers else "") + (" topic" if name in drawing.topics else "")
    return (
        f'<g><circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS:.0f}"><title>{escaped(name)}</title></circle>'
        f'<text x="{x:.1f}" y="{y + RADIUS + 12:.1f}" text-anchor="middle">{escaped(shortened(name, LABEL))}</text></g>'
    )
