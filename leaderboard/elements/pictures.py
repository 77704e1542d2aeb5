"""Pictures as SVG: one tree serves the page, the report and the file to save.

Values with intervals are in lines (`forest`) or against a quantity (`plot`). As in `leaderboard.elements.nodes`, text
is only ever a leaf, and elements and attributes come from short lists, which the browser checks once more
(`assets/view.js`). Colors are from the Okabe–Ito palette, and no difference is shown by color alone. Each picture is
drawn twice, because on a phone the text of a wide one would be too small to read. The browser writes the files to save.
"""

from __future__ import annotations

import math
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from typing import Any

from leaderboard.elements.formats import Scale
from results.boards.markup import to_csv
from results.boards.tables import minus
from results.statistics.core import Difference, Estimate

Drawing = list[Any]
"""`[tag, attributes, children]`; a child is a drawing or a text."""
TAGS = frozenset({"svg", "g", "line", "path", "text", "title"})
ATTRIBUTES = frozenset({"viewBox", "x", "y", "x1", "x2", "y1", "y2", "d", "class", "text-anchor", "role", "aria-label"})
WIDTH, NARROW = 860, 380
"""Pixels of a picture, and of the one for phones."""
_AXIS, _EDGE = 60, 20
"""Pixels for the numbers at the y axis, and right of the x axis."""
_ROW, _LEAST_ROW, _ABOVE = 30, 16, 16
"""Pixels of a line of a `forest`, of one of several points in a line, and of a name above its line."""
_BOTTOM = 330.0
_LONGEST, _SHORT = 340.0, 172.0
"""Maximum pixels of a name left of its line, and of a name that has no room in full."""
_LETTER, _UPPER, _WIDE, _LETTERS_HIGH = 6.6, 8.6, 12.0, 14.0
"""Estimated pixels of a letter, a capital and a wide letter of a name, and of a line's height."""
_WIDE_LETTERS = "mwMW@%—"
_MARKED = 24
"""Approximate number of marked points on a long curve."""
_GLYPHS = (
    "m -5 0 a 5 5 0 1 0 10 0 a 5 5 0 1 0 -10 0 Z",
    "m 0 -6 l 6 6 l -6 6 l -6 -6 Z",
    "m -5 -5 h 10 v 10 h -10 Z",
    "m 0 -6 l 6 11 h -12 Z",
    "m -2 -6 h 4 v 4 h 4 v 4 h -4 v 4 h -4 v -4 h -4 v -4 h 4 Z",
    "m 0 6 l 6 -11 h -12 Z",
    "m 6 0 l -11 6 v -12 Z",
)
"""Circle, diamond, square, triangle up, cross, triangle down, triangle right."""
Look = tuple[str, str]
"""Style class and shape of a mark."""
_At = tuple[float, float]
METHOD, CONTROL, PARTIAL, APART = "method", "control", "unfinished", "not comparable"
ON, POSSIBLE, BEATEN = "on the front", "perhaps on the front", "certainly beaten"
KINDS: dict[str, Look] = {
    METHOD: ("of-0", _GLYPHS[0]),
    CONTROL: ("of-1", _GLYPHS[1]),
    PARTIAL: ("of-6", _GLYPHS[2]),
    APART: ("of-4", _GLYPHS[4]),
    ON: ("of-2", _GLYPHS[3]),
    POSSIBLE: ("of-3", _GLYPHS[1]),
    BEATEN: ("of-0", _GLYPHS[0]),
}
"""Look of runs by kind."""


@dataclass(frozen=True, slots=True)
class Point:
    """Data point of a chart, in displayed units.

    Attributes:
        series: Name of its series in the legend.
        x, value: Coordinates; points of a `forest` have no x.
        low, high: Ends of the value's interval; NaN without one.
        name: Name in its hover text.
        shown: Value and interval as text.
        x_low, x_high: Ends of the interval of x; NaN without one.
    """

    series: str
    x: float
    value: float
    low: float
    high: float
    name: str
    shown: str
    x_low: float = math.nan
    x_high: float = math.nan


class Picture(list[Any]):
    """Chart (an SVG tree) with its data points, which readers can save.

    Args:
        title: Names its files.

    Attributes:
        narrow: The same chart for phones.
    """

    def __init__(self, draw: Callable[[int], Drawing], title: str, points: Iterable[Point]) -> None:
        super().__init__(draw(WIDTH))
        self.narrow, self.title, self.points = draw(NARROW), title, tuple(points)

    def to_json(self) -> list[Any]:
        """Serialize the chart like `Node.to_json`; `view.js` draws one of its two widths."""
        return ["div", "chart", [self, self.narrow], {"title": self.title, "csv": self.csv()}]

    def csv(self) -> str:
        """Render the data as CSV; missing values are empty."""
        rows = ([p.series, p.name, p.x, p.x_low, p.x_high, p.value, p.low, p.high] for p in self.points)
        return to_csv(("series", "name", "x", "x_low", "x_high", "value", "low", "high"), rows)


def point_of(series: str, x: float, item: Estimate | Difference, scale: Scale, name: str, shown: str = "") -> Point:
    """Make a data point from an estimate or difference; `shown` replaces its text."""
    value, low, high = (number * scale.factor for number in (item.value, item.low, item.high))
    return Point(series, x, value, low, high, name, shown or f"{scale.value(item.value)} {scale.interval(item.low, item.high)}")


def shape(tag: str, *children: Drawing | str, **attributes: str | float) -> Drawing:
    """Make an SVG element; `cls` is its class, and underscores in attribute names become hyphens.

    Raises:
        ValueError: The tag or attribute is not among those that charts use.
    """
    options = {"class" if name == "cls" else name.replace("_", "-"): value for name, value in attributes.items()}
    if tag not in TAGS or not options.keys() <= ATTRIBUTES:
        raise ValueError(f"drawings have no <{tag}> with {sorted(options)}")
    return [tag, {name: value if isinstance(value, str) else f"{value:.1f}" for name, value in options.items()}, list(children)]


def ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Choose round axis ticks from low to high, with a step of 1, 2 or 5 times a power of ten."""
    width = (high - low) or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(width / most))
    step = next(power * by for by in (1, 2, 5, 10, 20) if width / (power * by) <= most - 1)
    first = math.ceil(low / step - 1e-9)
    return [(first + number) * step for number in range(int(math.floor(high / step + 1e-9) - first) + 1)]


@dataclass(frozen=True, slots=True)
class _Line:
    """Linear or logarithmic mapping from values to positions; `whole`: only integers are marked."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    whole: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = (math.log10(v) if self.log else v for v in (self.low, self.high, max(value, self.low)))
        share = (min(max(at, low), high) - low) / ((high - low) or 1.0)
        return self.start + share * (self.end - self.start)

    def marks(self, most: int = 7) -> list[float]:
        """Return the values of grid lines, about as many as wanted."""
        if not self.log:
            inside = [tick for tick in ticks(self.low, self.high, most) if self.low <= tick <= self.high + 1e-9]
            return [tick for tick in inside if not self.whole or abs(tick - round(tick)) < 1e-9]
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        steps = (1, 2, 5) if len(powers) < most - 2 else (1,)
        return [at for power in powers for step in steps if self.low <= (at := step * 10.0**power) <= self.high]


def _range(values: Iterable[float]) -> tuple[float, float]:
    known = [value for value in values if math.isfinite(value)]
    low, high = min(known), max(known)
    room = 0.04 * ((high - low) or abs(high) or 1.0)
    return low - room, high + room


def _bounds(points: Iterable[Point]) -> Iterable[float]:
    return (bound for point in points for bound in (point.value, point.low, point.high))


def _looks(points: Sequence[Point], known: Mapping[str, Look] | None) -> dict[str, Look]:
    """Return color and shape of each series; after seven series the colors repeat with other shapes."""
    names = list(dict.fromkeys(point.series for point in points))
    if known is not None:
        return {name: look for name, look in known.items() if name in names}
    number = len(_GLYPHS)
    return {name: (f"of-{at % number}", _GLYPHS[(at + at // number) % number]) for at, name in enumerate(names)}


def forest(
    lines: Sequence[tuple[str, Sequence[Point]]],
    title: str,
    label: str,
    *,
    reference: float | None = None,
    looks: Mapping[str, Look] | None = None,
) -> Picture | None:
    """Draw a forest plot: one line per name, with a dot and its interval for each point; None if nothing has a value.

    `reference` is the position of a dashed line; `looks` the style of each series, None numbers them.
    """
    lines = [(name, drawn) for name, points in lines if (drawn := [point for point in points if math.isfinite(point.value)])]
    if not lines:
        return None
    every = [point for _, points in lines for point in points]
    known, ends = _looks(every, looks), _range([*_bounds(every), *([] if reference is None else [reference])])
    widest = min(max(_width(name) for name, _ in lines), _LONGEST)

    def draw(width: int) -> Drawing:
        above = width == NARROW
        x, y, parts = _Line(*ends, 8.0 if above else widest + 18, width - _EDGE), 4.0, []
        for name, points in lines:
            height = max(_LEAST_ROW if above else _ROW, _LEAST_ROW * len(points))
            if above:
                parts.append(shape("text", _shorten(name, width), cls="name", x=0.0, y=y + 16))
                y += _ABOVE + 4
            else:
                parts.append(shape("text", _shorten(name, widest), cls="name", x=widest + 6, y=y + height / 2 + 4, text_anchor="end"))
            for number, point in enumerate(points):
                at = y + height * (number + 0.5) / len(points)
                parts.append(_mark(point, known[point.series], (x(point.value), at), (x(point.low), at), (x(point.high), at)))
            y += height
        line = [] if reference is None else [shape("line", cls="reference", x1=x(reference), x2=x(reference), y1=4.0, y2=y)]
        return _picture([_grid(x, 4, y, title, width), *line, *parts], y, known, label, width)

    return Picture(draw, title, every)


def plot(
    points: Sequence[Point],
    x_title: str,
    y_title: str,
    label: str,
    *,
    logarithmic: bool = False,
    lines: bool = True,
    named: bool = False,
    front: Sequence[Point] = (),
    looks: Mapping[str, Look] | None = None,
) -> Picture | None:
    """Draw a scatter or line chart of points with intervals; None if no point has both coordinates.

    Args:
        logarithmic: Whether the x axis is logarithmic; points at 0 are then left out.
        lines: Whether to connect the points of a series, in the order given.
        named: Whether to label points on the Pareto front, as far as there is room.
        front: Points of the Pareto front, drawn as a step line.
        looks: Style of each series; None numbers the series.
    """
    drawn = [point for point in points if math.isfinite(point.value) and math.isfinite(point.x) and not (logarithmic and point.x <= 0)]
    if not drawn:
        return None
    known = _looks(drawn, looks)
    xs = [bound for point in drawn for bound in (point.x, point.x_low, point.x_high) if math.isfinite(bound)]
    positive = [bound for bound in xs if bound > 0]
    low, high = (min(positive) / 1.3, max(positive) * 1.3) if logarithmic else _range(xs)
    y, whole = _Line(*_range(_bounds(drawn)), _BOTTOM, 26.0), all(value == round(value) for value in xs)

    def draw(width: int) -> Drawing:
        x = _Line(low, high, _AXIS, width - (120 if named and width == WIDTH else _EDGE), logarithmic, whole)
        parts = [_grid(x, 26, _BOTTOM, x_title, width), shape("text", _shorten(y_title, width), cls="tick", x=0.0, y=12.0)]
        for tick in y.marks():
            parts.append(shape("line", cls="grid", x1=x.start, x2=x.end, y1=y(tick), y2=y(tick)))
            parts.append(shape("text", _write_tick(tick), cls="tick", x=_AXIS - 8.0, y=y(tick) + 4, text_anchor="end"))
        steps = [(x(point.x), y(point.value)) for point in sorted(front, key=lambda point: point.x)]
        if len(steps) > 1:
            path = "".join(f" H {across:.1f} V {up:.1f}" for across, up in steps[1:])
            parts.append(shape("path", cls="front", d=f"M {steps[0][0]:.1f} {steps[0][1]:.1f}{path}"))
        for name, look in known.items():
            own = [point for point in drawn if point.series == name]
            if lines and len(own) > 1:
                path = " L ".join(f"{x(point.x):.1f} {y(point.value):.1f}" for point in own)
                parts.append(shape("path", cls=f"curve {look[0]}", d=f"M {path}"))
            for point in own[:: -(-len(own) // _MARKED)]:
                at, up = x(point.x), y(point.value)
                across = [] if math.isnan(point.x_low) else [((x(point.x_low), up), (x(point.x_high), up))]
                parts.append(_mark(point, look, (at, up), (at, y(point.low)), (at, y(point.high)), across))
        if named:
            parts += _names([(point.name, x(point.x), y(point.value)) for point in front if point in drawn], width)
        return _picture(parts, _BOTTOM, known, label, width)

    return Picture(draw, f"{y_title} {x_title}", drawn)


def _mark(point: Point, look: Look, at: _At, low: _At, high: _At, across: Sequence[tuple[_At, _At]] = ()) -> Drawing:
    """Draw a dot, its interval and its hover text; runs other than plain methods have another shape than a circle."""
    ends = [*([] if math.isnan(point.low) else [(low, high)]), *across]
    interval = [shape("line", x1=first[0], x2=last[0], y1=first[1], y2=last[1]) for first, last in ends]
    series = "" if point.series in (point.name, METHOD) else f" ({point.series})"
    title = shape("title", f"{point.name}: {point.shown}{series}")
    return shape("g", title, *interval, _dot(look, *at), cls=f"mark {look[0]}")


def _dot(look: Look, x: float, y: float) -> Drawing:
    return shape("path", cls="dot", d=f"M {x:.1f} {y:.1f} {look[1]}")


def _names(points: Sequence[tuple[str, float, float]], width: int) -> list[Drawing]:
    """Draw names next to points (name, x, y), the highest first; names without room are shortened, or omitted.

    Every point has its name in its hover text and in the table.
    """
    taken: list[tuple[float, float, float]] = []
    drawn = []
    for name, x, y in sorted(points, key=lambda point: point[2]):
        for text, anchor in product(dict.fromkeys((name, _shorten(name, _SHORT))), ("start", "end")):
            room = _width(text)
            left = x + 9 if anchor == "start" else x - 9 - room
            crossed = any(abs(y - other) < _LETTERS_HIGH and left < end and start < left + room for other, start, end in taken)
            if left >= 0 and left + room <= width and not crossed:
                taken.append((y, left, left + room))
                at = left if anchor == "start" else left + room
                drawn.append(shape("text", text, cls="name", x=at, y=y - 6, text_anchor=anchor))
                break
    return drawn


def _grid(x: _Line, top: float, bottom: float, title: str, width: int) -> Drawing:
    lines: list[Drawing] = []
    for tick in x.marks(6 if width == NARROW else 7):
        lines.append(shape("line", cls="grid", x1=x(tick), x2=x(tick), y1=float(top), y2=float(bottom)))
        lines.append(shape("text", _write_tick(tick), cls="tick", x=x(tick), y=bottom + 16, text_anchor="middle"))
    middle = (x.start + x.end) / 2
    text = _shorten(title, 2 * min(middle, width - middle))
    return shape("g", *lines, shape("text", text, cls="tick", x=middle, y=bottom + 36, text_anchor="middle"))


def _write_tick(tick: float) -> str:
    return minus(f"{tick:,.10g}")


def _shorten(text: str, room: float) -> str:
    """Truncate a text that is wider than the given pixels."""
    ends = list(accumulate(map(_letter_width, text)))
    if not ends or ends[-1] <= room:
        return text
    return text[: bisect_right(ends, room - _LETTER)] + "…"


def _width(text: str) -> float:
    """Return a generous estimate of a text's width in pixels, because fonts differ."""
    return sum(map(_letter_width, text))


def _letter_width(letter: str) -> float:
    if letter in _WIDE_LETTERS or unicodedata.east_asian_width(letter) in "WF":
        return _WIDE
    return 0.0 if unicodedata.combining(letter) else _UPPER if letter.isupper() else _LETTER


def _picture(parts: list[Drawing], bottom: float, looks: Mapping[str, Look], label: str, width: int) -> Drawing:
    """Combine all parts, with a legend below if there are several kinds of marks."""
    height, x = bottom + 46, 20.0
    y = height + 14
    for name, look in looks.items() if len(looks) > 1 else ():
        text = _shorten(name, width - 32)
        if x > 20 and x + 12 + _width(text) > width:
            x, y = 20.0, y + 18
        parts += [shape("g", _dot(look, x, y - 4), cls=f"key {look[0]}"), shape("text", text, cls="name", x=x + 12, y=y)]
        x, height = x + 36 + _width(text), y + 4
    return shape("svg", *parts, viewBox=f"0 0 {width} {height:.0f}", role="img", aria_label=label)
