"""Tables of the pages that compare few things: a head that explains itself on hover, and aligned numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leaderboard.elements import formats
from leaderboard.elements.nodes import Node, el
from results.stated_costs import NOT_STATED


@dataclass(frozen=True, slots=True)
class Head:
    """A column.

    Attributes:
        name: What is in it.
        unit: Of its values.
        tip: What it means.
        number: Whether its cells are numbers, and aligned as such.
        wide: Whether its cells are sentences.
    """

    name: str
    unit: str = ""
    tip: str = ""
    number: bool = False
    wide: bool = False

    @property
    def cls(self) -> str:
        """Style classes of its cells."""
        return "number" if self.number else "wide" if self.wide else ""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of more than a text: what is small beneath it, its help, and classes of its own."""

    text: str
    below: str = ""
    tip: str = ""
    cls: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A row: the node or text that names it, and its cells."""

    name: Node | str
    cells: Sequence[Cell | Node | str]
    cls: str = ""


def plain_table(caption: str, heads: Sequence[Head], lines: Sequence[Line], key: str) -> Node:
    """A table.

    Args:
        caption: What it shows; read aloud, not drawn.
        heads: The first is of the rows' names.
        lines: One cell less than there are heads.
        key: Unique within the page; keeps where it was scrolled to.

    Raises:
        ValueError: A row has too many or too few cells.
    """
    body = [_line(line, heads) for line in lines]
    return el(
        "div",
        el(
            "table",
            el("caption", caption, cls="unseen"),
            el("thead", el("tr", *map(_head, heads))),
            el("tbody", *body),
            cls="board answers",
        ),
        cls="scroll",
        key=key,
        role="region",
        label=caption,
    )


def _head(head: Head) -> Node:
    return el(
        "th",
        el("span", head.name, cls="name", tip=head.tip),
        el("span", head.unit, cls="unit") if head.unit else None,
        scope="col",
        cls=head.cls,
    )


def _line(line: Line, heads: Sequence[Head]) -> Node:
    if len(line.cells) != len(heads) - 1:
        raise ValueError(f"{len(line.cells)} cells under {len(heads) - 1} heads")
    cells = [_cell(cell, head) for cell, head in zip(line.cells, heads[1:], strict=True)]
    return el("tr", el("th", line.name, scope="row", cls="stick"), *cells, cls=line.cls)


def _cell(cell: Cell | Node | str, head: Head) -> Node:
    if not isinstance(cell, Cell):
        return el("td", cell, cls=head.cls)
    below = el("span", cell.below, cls="interval") if cell.below else None
    return el("td", el("span", cell.text, cls="top"), below, cls=f"{head.cls} {cell.cls}".strip(), tip=cell.tip)


def facts(rows: Sequence[tuple[str, Node | str]]) -> Node:
    """Names and what is so, as a table of two columns without a head; what is empty is left out."""
    lines = [el("tr", el("th", name, scope="row", cls="aside"), el("td", value, cls="wide")) for name, value in rows if value != ""]
    return el("div", el("table", el("tbody", *lines), cls="board answers"), cls="scroll", role="region", label="Facts")


def spent_cell(shown: str, source: str, parts: str = "") -> Node:
    """A cell with a cost.

    Args:
        shown: The cost, or `formats.NOTHING`.
        source: Whose word it is; empty where it was measured here.
        parts: What it consists of.
    """
    if shown == formats.NOTHING:
        return el("td", shown, cls="number", tip=NOT_STATED if source else "")
    return el("td", shown, cls="number", tip=", ".join(filter(None, (parts, source))))
