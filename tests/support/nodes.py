"""Elements of pages: the table of a report, and trees read back from the JSON that browsers and reports get."""

from __future__ import annotations

import json
from typing import Any

from leaderboard.elements.nodes import Node, el
from leaderboard.matrix.rows import default_order, ordered
from leaderboard.matrix.table import Shown, draw_matrix


def still(shown: Shown) -> Node:
    """Draw the table of a report, with all rows in their usual order."""
    order = default_order(shown.board)
    return draw_matrix(shown, ordered(shown.board, order), order, live=False, papers=True)


def from_json(tree: str | bytes) -> Node:
    """Rebuild an element from its JSON (`Node.to_json`); what pages do not use is refused, as `el` does."""
    return _from_list(json.loads(tree))


def _from_list(row: list[Any]) -> Node:
    tag, classes, children, *rest = row
    if classes == "chart":
        return el(tag, cls=classes)
    more = rest[0] if rest else {}
    below = (child if isinstance(child, str) else _from_list(child) for child in children)
    attributes = more.pop("attributes", {})
    return el(tag, *below, cls=classes, **more, **attributes)
