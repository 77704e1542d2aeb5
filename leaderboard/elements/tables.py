"""Tables of page elements: each column says how it shows a row, and cells with intervals look the same on every page."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Generic, TypeVar

from leaderboard.elements import formats
from leaderboard.elements.formats import Scale
from leaderboard.elements.marks import is_better, significance, untested
from leaderboard.elements.nodes import Node, Part, el, grid
from results.statistics.core import Difference, Estimate

Row = TypeVar("Row", contravariant=True)
Definitions = Mapping[str, Mapping[str, Any]]
"""Definitions of metrics by id."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Table cell: a text after a `mark`, with `below` and `note` as lines of small text beneath it."""

    text: str
    below: str = ""
    tip: str = ""
    cls: str = ""
    note: str = ""
    mark: Node | None = None


Value = Node | Cell | str | int | datetime | None
"""Content of a cell: numbers get thousands separators, times are shown to the minute, None is shown as "–"."""


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """Column of a table."""

    name: str
    of: Callable[[Row], Value]
    unit: str = ""
    tip: str = ""
    cls: str = ""

    def head(self) -> Node:
        """Build the column's head."""
        unit = el("span", self.unit, cls="unit") if self.unit else None
        return el("th", el("span", self.name, cls="name", tip=self.tip), unit, scope="col", cls=self.cls)

    def cell(self, row: Row) -> Node:
        """Build a row's cell."""
        value = self.of(row)
        if isinstance(value, Node) and value.tag == "td":
            return value
        if not isinstance(value, Cell):
            return el("td", value if isinstance(value, Node) else text_of(value), cls=self.cls)
        small = (el("span", line, cls="interval") for line in (value.below, value.note) if line)
        cls = f"{self.cls} {value.cls}".strip()
        return el("td", value.mark, value.text, *small, cls=cls, tip=value.tip)


@dataclass(frozen=True, slots=True)
class NumberColumn(Column[Row]):
    """Column of numbers, which are right-aligned."""

    cls: str = "number"


@dataclass(frozen=True, slots=True)
class WideColumn(Column[Row]):
    """Column of sentences."""

    cls: str = "wide"


def text_of(value: str | int | datetime | None) -> str:
    """Format a plain value of a cell."""
    if value is None:
        return formats.NOTHING
    return value if isinstance(value, str) else f"{value:%Y-%m-%d %H:%M}" if isinstance(value, datetime) else f"{value:,}"


def table(
    caption: str, key: str, rows: Iterable[Row], columns: Sequence[Column[Row]], cls: Callable[[Row], str] = lambda row: "", label: str = ""
) -> Node:
    """Build a table whose first column names the rows; `caption` is read, not drawn, and `key` preserves the scroll position."""
    first, *others = columns
    body = [el("tr", _name(first.of(row)), *(column.cell(row) for column in others), cls=cls(row)) for row in rows]
    return grid(caption, [column.head() for column in columns], body, key, "board answers", label)


def _name(value: Value) -> Node:
    if isinstance(value, Cell):
        raise TypeError("the cell that names a row is a text or a node")
    parts: tuple[Part | str, ...] = (value,) if isinstance(value, Node) else (text_of(value),)
    if isinstance(value, Node) and value.tag == "span" and not value.classes:
        parts = value.children  # of `named`
    return el("th", *parts, scope="row", cls="stick")


def metric_columns(metrics: Sequence[str], definitions: Definitions, of: Callable[[str, Row], Value]) -> list[Column[Row]]:
    """Make a column per metric, with names that distinguish them."""
    heads = [metric_head(metric, definitions, metrics) for metric in metrics]
    return [Column(name, partial(of, metric), unit, tip, "number") for metric, (name, unit, tip) in zip(metrics, heads, strict=True)]


def metric_head(metric: str, definitions: Definitions, among: Collection[str] = ()) -> tuple[str, str, str]:
    """Return name, unit and explanation of a metric's column; `among`: ids that names must distinguish; empty: versions are named."""
    name, details = formats.metric_name(metric, among)
    direction = "" if formats.higher_is_better(metric, definitions) else "lower is better"
    unit = " · ".join(filter(None, (details, formats.scale_of(metric, definitions).unit, direction)))
    return name, unit, formats.explanation(metric, definitions)


def value_cell(item: Estimate | None, scale: Scale, *, note: str = "", tip: str = "") -> Cell:
    """Make a cell with a value and its interval beneath, or a dash; the reason for a missing interval follows `tip` on hover."""
    if item is None or formats.missing(item.value):
        return Cell(formats.NOTHING, tip=tip)
    tips = "; ".join(filter(None, (tip, item.insufficient_data)))
    return Cell(scale.value(item.value), scale.interval(item.low, item.high), tips, note=note)


def difference_cell(item: Difference | Estimate | None, scale: Scale, *, mark: Node | None = None, note: str = "", tip: str = "") -> Cell:
    """Make a cell with a signed value and its interval beneath; `mark` is its significance, the rest is as for `value_cell`."""
    if item is None or formats.missing(item.value):
        return Cell(formats.NOTHING, tip=tip)
    tips = "; ".join(filter(None, (tip, item.insufficient_data)))
    return Cell(scale.difference(item.value), scale.differences(item.low, item.high), tips, note=note, mark=mark)


def tested_cell(item: Difference, p: float | None, scale: Scale, *, higher_is_better: bool) -> Cell:
    """Make the cell of a paired difference with the mark of its test: ▲, ▼, or ? with the reason why it decides nothing."""
    doubt = item.doubt(p)
    mark = untested(doubt) if doubt else significance(is_better(item.value, p, higher_is_better=higher_is_better))
    return difference_cell(item, scale, mark=mark, note=doubt)
