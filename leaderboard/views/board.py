"""Boards: one line a run, one column a metric, controls below and never ranked; as SVG, and beside papers' figures."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from leaderboard.elements import formats
from leaderboard.elements.formats import Scale, explanation, higher_is_better, scale_of
from leaderboard.elements.nodes import Node, badge, el, spent_cell, standing_sign
from leaderboard.views import budget
from leaderboard.views.budget import AXES, kind, logarithmic, written
from results.boards.board import Board, Cell, Row
from results.boards.budget import Axis, UsageCost
from results.boards.published import Comparison, on_board
from results.boards.systems import CONTAMINATED, IMPLAUSIBLE, implausible
from results.boards.tables import bracketed
from results.statistics.core import Difference
from results.statistics.places import SIGNS, Band
from results.store.queries import AS_STATED, OURS

ALPHA = 0.05
FINISHED = "finished"
PLACES = (
    f"Below a rank: the ranks that tests of all pairs leave open (Holm-corrected, 5 %). {SIGNS}. No significant difference "
    "is not the same as equal."
)
ORIGINS = {"submitted": "Predictions that were sent in; scored here, not run here", "verified": "Sent in, and confirmed by a run made here"}
Place = tuple[int, Band | None]
"""A rank, and what tests leave open of it, as far as that was asked for."""
_PLAIN_COLUMNS = ("questions", "seconds", "tokens", "cost")


@dataclass(frozen=True, slots=True)
class Order:
    """By which column the table is sorted: `rank`, `method`, a metric id, `difference` or a cost column."""

    column: str
    descending: bool


def sort_columns(board: Board) -> list[str]:
    """What a board can be sorted by."""
    return ["rank", "method", *board.metrics, "difference", *_PLAIN_COLUMNS, *(["indexing"] if indexes(board) else [])]


def ranks(board: Board, focus: str, definitions: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Place of each run by the focus metric; equals share it, and what must not be compared with others has none."""
    values = {row.run.run: row.cells[focus].estimate.value for row in board.rows if focus in row.cells and not row.cells[focus].apart}
    sign = 1 if higher_is_better(focus, definitions) else -1
    scored = {run: sign * value for run, value in values.items() if not math.isnan(value)}
    return {run: 1 + sum(other > value for other in scored.values()) for run, value in scored.items()}


INDEXING = "Tokens of models that were asked while the index was built: once, whatever the number of questions"


def tokens(row: Row) -> float | None:
    """Mean tokens per question: prompt, completion and memory."""
    cost = row.cost
    return None if cost is None else cost.tokens


def ordered(board: Board, focus: str, order: Order, definitions: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """The rows, methods before controls, each part sorted; rows without a value come last either way."""
    positions = ranks(board, focus, definitions)
    keys: dict[str, Callable[[Row], Any]] = {
        "rank": lambda row: positions.get(row.run.run),
        "method": lambda row: row.run.method.casefold(),
        "difference": lambda row: (results := _difference(row, focus)) and results.value,
        "questions": lambda row: row.run.done,
        "seconds": lambda row: row.cost and row.cost.seconds,
        "tokens": tokens,
        "cost": lambda row: row.cost and row.cost.cost_usd,
        "indexing": lambda row: row.indexing and row.indexing.tokens,
    }
    if order.column == "rank" and not order.descending:
        # Those without a rank (still running, controls) follow by value.
        sign = -1 if higher_is_better(focus, definitions) else 1
        keys["rank"] = lambda row: (positions.get(row.run.run, math.inf), _or_inf(_value(row, focus), sign))
    key = keys.get(order.column, lambda row: _value(row, order.column))
    results = [(key(row), row) for row in board.rows]
    known = [(value, row) for value, row in results if value is not None and value == value]
    known.sort(key=lambda pair: pair[0], reverse=order.descending)
    rows = [row for _, row in known] + [row for value, row in results if value is None or value != value]
    return [row for row in rows if not row.control] + [row for row in rows if row.control]


def table(
    board: Board,
    focus: str,
    order: Order,
    definitions: Mapping[str, Mapping[str, Any]],
    bands: Mapping[str, Band] | None = None,
    *,
    opens: bool = False,
) -> Node:
    """The table.

    Args:
        board: Runs and metrics.
        focus: The metric that ranks, and whose differences are spelled out; one of the board's.
        order: The sorting.
        definitions: Metric definitions by id.
        bands: The ranks by the focus metric that tests leave open (`results.boards.board`).
        opens: Whether a method's name asks for what is known of it, where a page can follow.
    """
    rows = ordered(board, focus, order, definitions)
    positions = {run: (position, (bands or {}).get(run)) for run, position in ranks(board, focus, definitions).items()}
    spent = [row.cost.seconds for row in rows if row.cost and not math.isnan(row.cost.seconds)]
    milliseconds = bool(spent) and max(spent) < 1
    heads = _heads(board, focus, order, definitions, milliseconds)
    body: list[Node] = []
    methods = [row for row in rows if not row.control]
    controls = [row for row in rows if row.control]
    body += [_line(row, board, focus, positions, definitions, milliseconds, opens) for row in methods]
    if controls:
        note = "Controls: they see the gold answers or evidence, so they bound what is attainable and are not ranked"
        body.append(el("tr", el("th", el("span", note, cls="divider-text"), colspan=str(len(heads)), scope="colgroup"), cls="divider"))
        body += [_line(row, board, focus, positions, definitions, milliseconds, opens) for row in controls]
    return el(
        "div",
        el("table", el("caption", _caption(board, focus), cls="unseen"), el("thead", el("tr", *heads)), el("tbody", *body), cls="board"),
        cls="scroll",
        key="board-scroll",
        role="region",
        label="Results table",
    )


def _caption(board: Board, focus: str) -> str:
    return f"Results on {board.dataset}, {board.setting}, seed {board.seed}, ranked by {formats.metric_label(focus)}"


def _heads(board: Board, focus: str, order: Order, definitions: Mapping[str, Mapping[str, Any]], milliseconds: bool) -> list[Node]:
    best = {metric: higher_is_better(metric, definitions) for metric in board.metrics}
    heads = [
        _head(
            "rank",
            "#",
            "",
            f"Rank by {formats.metric_label(focus)}, and below it the ranks that tests of "
            "all pairs leave open (Holm-corrected, 5 %): not of controls, nor of runs that are unfinished, "
            "contaminated or inconsistent",
            order,
            False,
            "narrow",
        ),
        _head("method", "Method", "", "The name in the experiment", order, False, "stick"),
    ]
    for metric in board.metrics:
        name, details = formats.metric_name(metric)
        unit = scale_of(metric, definitions).unit
        flags = f" ⚑ It {'; '.join(board.flags[metric])}." if metric in board.flags else ""
        help_text = f"{explanation(metric, definitions)} Shown {unit}: mean over scorable questions, 95 % interval.{flags}"
        name += " ⚑" if flags else ""
        heads.append(
            _head(
                metric,
                name,
                f"{details + ' · ' if details else ''}{unit}",
                help_text,
                order,
                best[metric],
                "number focus" if metric == focus else "number",
            )
        )
        if metric == focus and board.reference is not None:
            heads.append(
                _head(
                    "difference",
                    f"Δ {name}",
                    scale_of(metric, definitions).difference_unit,
                    f"Paired difference to {board.reference} on the same questions, 95 % interval, and the p-value of a "
                    f"paired test, Holm-corrected within the column. ▲ better, ▼ worse at {ALPHA:.0%}.",
                    order,
                    best[metric],
                    "number",
                )
            )
    time = "ms / question" if milliseconds else "s / question"
    return [
        *heads,
        _head(
            "questions",
            "Questions",
            "scored",
            "Questions that the focus metric is a mean of; the unscorable have no usable gold, the failed had no answer and count as zero",
            order,
            True,
            "number",
        ),
        _head(
            "seconds", "Time", time, "Mean wall time over all stages but waiting for a slot; below it p50 to p95", order, False, "number"
        ),
        _head("tokens", "Tokens", "per question", "Mean of prompt, completion and memory tokens", order, False, "number"),
        _head("cost", "Cost", "US$ total", "Price of all calls; local models cost nothing", order, False, "number"),
        *([_head("indexing", "Indexing", "tokens", INDEXING, order, False, "number")] if indexes(board) else []),
    ]


def indexes(board: Board) -> bool:
    """Whether models were asked while an index was built."""
    return any(row.indexing is not None and row.indexing.tokens for row in board.rows)


def _head(column: str, name: str, unit: str, help_text: str, order: Order, descending_first: bool, cls: str) -> Node:
    """A column's head: a button that sorts by it, and the other way round when it already does."""
    active = order.column == column
    descending = not order.descending if active else descending_first
    state = ("descending" if order.descending else "ascending") if active else "none"
    arrow = ("↓" if order.descending else "↑") if active else ""
    return el(
        "th",
        el(
            "button",
            el("span", name, cls="name"),
            el("span", arrow, cls="arrow") if arrow else None,
            tip=help_text,
            key=f"sort-{column}",
            action={"sort": column, "order": "desc" if descending else "asc"},
        ),
        el("span", unit, cls="unit") if unit else None,
        scope="col",
        sort=state,
        cls=cls,
    )


def _line(
    row: Row,
    board: Board,
    focus: str,
    positions: Mapping[str, Place],
    definitions: Mapping[str, Mapping[str, Any]],
    milliseconds: bool,
    opens: bool,
) -> Node:
    position = positions.get(row.run.run)
    band = position[1] if position is not None else None
    cells = [_position(position), _name(row, board, opens=opens)]
    for metric in board.metrics:
        cells.append(
            _value_cell(
                row.cells.get(metric), metric, focus, board, definitions, control=row.control, band=band if metric == focus else None
            )
        )
        if metric == focus and board.reference is not None:
            cells.append(_difference_cell(row, board, metric, definitions))
    cost = row.cost
    source = "" if row.run.origin == OURS else AS_STATED
    parts = ""
    if cost and cost.tokens > 0:
        calls = formats.NOTHING if math.isnan(cost.model_calls) else f"{cost.model_calls:,.1f}"
        parts = (
            f"prompt {cost.prompt_tokens:,.1f}, completion {cost.completion_tokens:,.1f}, memory "
            f"{cost.memory_tokens:,.1f} tokens and {calls} model calls per question"
        )
    time = partial(formats.seconds, milliseconds=milliseconds)
    cells += [
        _question_cell(row, focus, board.questions),
        spent_cell(time(cost.seconds if cost else None), source, below=formats.percentiles(cost, time)),
        spent_cell(formats.count(tokens(row)), source, parts),
        spent_cell(formats.dollars(cost.cost_usd if cost else None), source),
    ]
    if indexes(board):
        built = row.indexing
        cells.append(spent_cell(formats.count(built.tokens if built else None), source, built.in_words() if built else ""))
    return el("tr", *cells, cls="control" if row.control else "")


def _position(position: Place | None) -> Node:
    """A rank, and below it the ranks that the tests leave open."""
    if position is None:
        return el("td", formats.NOTHING, cls="narrow")
    rank, band = position
    if band is None or band.low == band.high == rank:
        return el("td", str(rank), cls="narrow")
    tip = f"Between {band.low} and {band.high}: as far as tests of all pairs go" + f"; {band.standing}"
    return el("td", str(rank), el("span", f"{band.low}–{band.high}", cls="interval"), cls="narrow", tip=tip)


def _name(row: Row, board: Board, *, opens: bool) -> Node:
    run = row.run
    marks = []
    if row.control:
        marks.append(badge("control", "control", "Sees the gold; shown for scale, never ranked"))
    elif run.method == board.reference:
        marks.append(badge("reference", "reference", "Differences are taken to this method"))
    if run.origin in ORIGINS:
        marks.append(badge(run.origin, run.origin, ORIGINS[run.origin]))
    if row.contaminated:
        marks.append(badge(CONTAMINATED, "failed", "; ".join(row.contaminated)))
    if doubts := implausible(run):
        marks.append(badge(IMPLAUSIBLE, "failed", f"A maintainer decides: {'; '.join(doubts)}"))
    if row.violations:
        marks.append(badge("inconsistent", "failed", "These scores cannot be right: " + "; ".join(row.violations)))
    if run.status != FINISHED:
        text = f"{run.status} {run.done:,}/{run.questions:,}"
        marks.append(
            badge(
                text,
                run.status if run.status in ("running", "interrupted", "failed", "incomplete") else "",
                run.error or "Values are over the questions answered so far; not ranked yet",
            )
        )
    aside = run.method_id if run.method_id != run.method else None
    name = el("span", run.method, cls="method", title=run.method)
    if opens:
        name = el("button", run.method, cls="method", title=run.method, key=f"method-{run.run}", action={"method": run.method_id})
    return el("th", name, *marks, el("span", aside, cls="aside") if aside else None, scope="row", cls="stick")


def _value_cell(
    cell: Cell | None,
    metric: str,
    focus: str,
    board: Board,
    definitions: Mapping[str, Mapping[str, Any]],
    *,
    control: bool,
    band: Band | None = None,
) -> Node:
    cls = "number focus" if metric == focus else "number"
    if cell is not None and cell.apart and not control:
        cls += " apart"
    # Of the focus metric the cell of its questions says it, in numbers.
    gap = None
    if cell is not None and cell.unscored and metric != focus:
        result = cell.estimate
        share = formats.unscored(cell.unscored, result.n + result.unscorable + cell.unscored)
        gap = el("span", " ".join(filter(None, (share, bracketed(cell)))), cls="interval")
    if cell is None or formats.missing(cell.estimate.value):
        tip = cell.incomplete if cell is not None else ""
        return el("td", el("span", formats.NOTHING, cls="top") if gap else formats.NOTHING, gap, cls=cls, tip=tip)
    shown, result = scale_of(metric, definitions), cell.estimate
    # The focus metric's mark stands beside its spelled-out difference.
    mark = None if metric == focus else _mark(cell, board, metric, definitions)
    whisker = None
    if shown is formats.PERCENT and not formats.missing(result.low):
        whisker = el("span", cls="whisker", numbers={"low": result.low, "high": result.high, "value": result.value})
    return el(
        "td",
        el("span", mark, el("span", shown.value(result.value), cls="value"), standing_sign(band), cls="top"),
        el("span", shown.interval(result.low, result.high), cls="interval"),
        whisker,
        gap,
        cls=cls,
        tip=result.insufficient_data if control else " ".join(filter(None, (cell.apart, result.insufficient_data))),
    )


def _difference_cell(row: Row, board: Board, metric: str, definitions: Mapping[str, Mapping[str, Any]]) -> Node:
    result = _difference(row, metric)
    if result is None or formats.missing(result.value):
        return el("td", formats.NOTHING, cls="number")
    cell, shown = row.cells[metric], scale_of(metric, definitions)
    corrected, plain = formats.p_value(cell.p_holm), formats.p_value(result.p)
    tip = (
        f"On {result.n:,} common questions: better on {result.wins:,}, equal on {result.ties:,}, worse on "
        f"{result.losses:,}. {corrected} after Holm's correction, {plain} before"
    )
    mark = _mark(cell, board, metric, definitions)
    return el(
        "td",
        el("span", mark, el("span", shown.difference(result.value), cls="value"), cls="top"),
        el("span", shown.differences(result.low, result.high), cls="interval"),
        el("span", corrected, cls="interval"),
        cls="number",
        tip=tip,
    )


def _mark(cell: Cell, board: Board, metric: str, definitions: Mapping[str, Mapping[str, Any]]) -> Node | None:
    """▲ or ▼ where the corrected test rejects; its words go to screen readers."""
    if cell.difference is None or formats.missing(cell.p_holm) or cell.p_holm >= ALPHA:  # type: ignore[operator]
        return None
    better = (cell.difference.value > 0) == higher_is_better(metric, definitions)
    words = f"significantly {'better' if better else 'worse'} than {board.reference}, {formats.p_value(cell.p_holm)}"
    return el("span", "▲" if better else "▼", cls="mark-better" if better else "mark-worse", role="img", label=words)


def _question_cell(row: Row, focus: str, questions: int) -> Node:
    cell = row.cells.get(focus)
    notes = []
    if cell is not None and cell.estimate.unscorable:
        also = "" if cell.over_all is None else f" (as 0: {cell.scale * cell.over_all:.1f})"
        notes.append(f"{cell.estimate.unscorable:,} unscorable{also}")
    if cell is not None and cell.unscored:
        notes.append(" ".join(filter(None, (f"{cell.unscored:,} not scored by the judge", bracketed(cell)))))
        notes += [cell.incomplete.partition(":")[0]] if cell.incomplete else []
    if row.run.failed:
        notes.append(f"{row.run.failed:,} failed: {', '.join(row.failures)}")
    count = cell.estimate.n if cell is not None else 0
    return el(
        "td", el("span", f"{count:,} of {questions:,}", cls="top"), *(el("span", note, cls="interval") for note in notes), cls="number"
    )


def _difference(row: Row, metric: str) -> Difference | None:
    cell = row.cells.get(metric)
    return cell.difference if cell is not None else None


def _value(row: Row, metric: str) -> float | None:
    cell = row.cells.get(metric)
    return cell.estimate.value if cell is not None else None


def _or_inf(value: float | None, sign: int) -> float:
    return math.inf if formats.missing(value) else sign * value  # type: ignore[operator]


# Charts as plain SVG, for pages that have no chart library: trees of elements, drawn by `assets/report.js`.
# As in `leaderboard.elements.nodes` text is only ever a leaf, and elements and attributes come from short lists.


Drawing = list[Any]
"""`[tag, attributes, children]`; a child is a drawing or a text."""
TAGS = frozenset({"svg", "g", "line", "circle", "path", "text", "title"})
ATTRIBUTES = frozenset({"viewBox", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "d", "class", "text-anchor", "role", "aria-label"})
WIDTH = 860
_NAME = 190
_ROW = 30
_LONGEST = 26
_LETTER, _LETTERS_HIGH = 6.6, 14.0
"""Pixels of a letter of a name, generously, and of a line."""
METHOD, CONTROL, PARTIAL, APART, FRONT = "of-method", "of-control", "of-partial", "of-apart", "of-front"
_CLASSES = {budget.ON: FRONT, budget.BEATEN: METHOD, budget.CONTROL: CONTROL, budget.PARTIAL: PARTIAL}


def shape(tag: str, *children: Drawing | str, **attributes: str | float) -> Drawing:
    """An element; `cls` is its class, underscores in names stand for hyphens.

    Raises:
        ValueError: A tag or attribute that drawings do not use.
    """
    options = {"class" if name == "cls" else name.replace("_", "-"): value for name, value in attributes.items()}
    if tag not in TAGS or not options.keys() <= ATTRIBUTES:
        raise ValueError(f"drawings have no <{tag}> with {sorted(options)}")
    return [tag, {name: _number(value) for name, value in options.items()}, list(children)]


def _number(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.1f}"


def ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Round numbers from low to high, a step of 1, 2 or 5 times a power of ten apart.

    Args:
        low, high: The range; they may be equal.
        most: How many at most.
    """
    width = (high - low) or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(width / most))
    step = next(power * by for by in (1, 2, 5, 10, 20) if width / (power * by) <= most - 1)
    first = math.ceil(low / step - 1e-9)
    return [(first + number) * step for number in range(int(math.floor(high / step + 1e-9) - first) + 1)]


@dataclass(frozen=True, slots=True)
class _Line:
    """From values to places: linear, or logarithmic."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        share = (min(max(at, low), high) - low) / ((high - low) or 1.0)
        return self.start + share * (self.end - self.start)

    def marks(self) -> list[float]:
        """Where to put grid lines."""
        if not self.log:
            return [tick for tick in ticks(self.low, self.high) if self.low <= tick <= self.high + 1e-9]
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        return [10.0**power for power in powers if self.low <= 10.0**power <= self.high]


def _range(values: Sequence[float]) -> tuple[float, float]:
    known = [value for value in values if not math.isnan(value)]
    low, high = min(known), max(known)
    room = 0.04 * ((high - low) or abs(high) or 1.0)
    return low - room, high + room


def intervals(board: Board, rows: Sequence[Row], metric: str, definitions: Mapping[str, Mapping[str, Any]]) -> Drawing | None:
    """A dot with its 95 % interval per run; a dashed line at the reference; None where no run has a value.

    Args:
        board: For its reference.
        rows: In the order to draw, top first.
        metric: What is drawn.
        definitions: Metric definitions by id.
    """
    scale = scale_of(metric, definitions)
    drawn = [row for row in rows if metric in row.cells and not formats.missing(row.cells[metric].estimate.value)]
    if not drawn:
        return None
    results = [row.cells[metric].estimate for row in drawn]
    low, high = _range([scale.factor * bound for item in results for bound in (item.value, item.low, item.high)])
    x = _Line(low, high, _NAME, WIDTH - 20)
    bottom = len(drawn) * _ROW + 8
    parts = [_grid_x(x, 4, bottom), _drawing_caption(x, bottom, f"{formats.metric_name(metric)[0]}, {scale.unit}")]
    for row, item in zip(drawn, results, strict=True):
        if row.run.method == board.reference and not row.control:
            at = x(item.value * scale.factor)
            parts.append(shape("line", cls="reference", x1=at, x2=at, y1=4.0, y2=float(bottom)))
    for number, (row, item) in enumerate(zip(drawn, results, strict=True)):
        y = number * _ROW + _ROW / 2 + 4
        words = f"{row.run.method}: {scale.value(item.value)} {scale.interval(item.low, item.high)}, n = {item.n:,}"
        why = row.cells[metric].apart
        cls = CONTROL if row.control else PARTIAL if row.run.status != "finished" else APART if why else METHOD
        if cls == APART:
            words += f"; not comparable: {why}"
        mark = [shape("title", words), shape("text", _short(row.run.method), cls="name", x=float(_NAME - 12), y=y + 4, text_anchor="end")]
        if not math.isnan(item.low):
            mark.append(shape("line", x1=x(item.low * scale.factor), x2=x(item.high * scale.factor), y1=y, y2=y))
        mark.append(_drawn_mark(cls, x(item.value * scale.factor), y))
        parts.append(shape("g", *mark, cls=f"mark {cls}"))
    return _picture(parts, bottom + 46, f"{formats.metric_label(metric)} with 95 % intervals")


def pareto(rows: Sequence[UsageCost], axis: Axis, metric: str, scale: Scale) -> Drawing | None:
    """Runs by cost and quality, with the step line of the front; None where no run has both.

    Controls are left out: what the gold answer costs says nothing, and would stretch the axis.

    Args:
        rows: As `results.boards.budget.quality_budget` gives them.
        axis: What cost is.
        metric: What quality is.
        scale: How it is written.
    """
    drawn = [row for row in rows if not math.isnan(row.x) and not row.row.control]
    if not drawn:
        return None
    log = logarithmic([item.x for item in drawn])
    xs = [item.x for item in drawn]
    low, high = (min(xs) / 1.3, max(xs) * 1.3) if log else _range(xs)
    x = _Line(low, high, 60, WIDTH - 120, log)
    bottom = 320.0
    bounds = [scale.factor * bound for item in drawn for bound in (item.value.value, item.value.low, item.value.high)]
    y = _Line(*_range(bounds), bottom, 12.0)
    parts = [_grid_x(x, 12, bottom), _drawing_caption(x, bottom, AXES[axis])]
    for tick in y.marks():
        parts.append(shape("line", cls="grid", x1=60.0, x2=float(WIDTH - 120), y1=y(tick), y2=y(tick)))
        parts.append(shape("text", f"{tick:g}", cls="tick", x=52.0, y=y(tick) + 4, text_anchor="end"))
    at = [(x(item.x), y(item.value.value * scale.factor)) for item in drawn]
    front = [position for item, position in zip(drawn, at, strict=True) if item.front]
    if len(front) > 1:
        path = f"M {front[0][0]:.1f} {front[0][1]:.1f}" + "".join(f" H {a:.1f} V {b:.1f}" for a, b in front[1:])
        parts.append(shape("path", cls="front", d=path))
    parts += [_spent(item, position, y, axis, scale) for item, position in zip(drawn, at, strict=True)]
    parts += _names([(_short(item.row.run.method), item.front, *position) for item, position in zip(drawn, at, strict=True)])
    return _picture(parts, int(bottom) + 46, f"{formats.metric_name(metric)[0]} ({scale.unit}); {AXES[axis]}")


def _spent(item: UsageCost, at: tuple[float, float], y: _Line, axis: Axis, scale: Scale) -> Drawing:
    value = item.value
    cls = _CLASSES[kind(item)]
    shown = f"{scale.value(value.value)} {scale.interval(value.low, value.high)}"
    words = f"{item.row.run.method}: {shown} at {written(item.x, axis)} ({kind(item)})"
    parts = [shape("title", words)]
    if not math.isnan(value.low):
        ends = y(value.low * scale.factor), y(value.high * scale.factor)
        parts.append(shape("line", x1=at[0], x2=at[0], y1=ends[0], y2=ends[1]))
    return shape("g", *parts, _drawn_mark(cls, *at), cls=f"mark {cls}")


def _names(points: Sequence[tuple[str, bool, float, float]]) -> list[Drawing]:
    """Names beside points (name, whether on the front, x, y), the front's first; those without room are left out.

    Every point says its name on hover, and stands in the table.
    """
    taken: list[tuple[float, float]] = []
    spans: list[tuple[float, float]] = []
    drawn = []
    for name, _, x, y in sorted(points, key=lambda point: (not point[1], point[3])):
        width = _LETTER * len(name)
        for left, anchor in ((x + 9, "start"), (x - 9 - width, "end")):
            span = (left, left + width)
            crossed = any(
                abs(y - other) < _LETTERS_HIGH and span[0] < end and start < span[1]
                for (_, other), (start, end) in zip(taken, spans, strict=True)
            )
            if span[0] >= 0 and span[1] <= WIDTH and not crossed:
                taken.append((x, y))
                spans.append(span)
                position = x + 9 if anchor == "start" else x - 9
                drawn.append(shape("text", name, cls="name", x=position, y=y - 6, text_anchor=anchor))
                break
    return drawn


def _drawn_mark(cls: str, x: float, y: float) -> Drawing:
    """A circle, and for what is not a plain method another shape: color is never all."""
    if cls == CONTROL:
        return shape("path", cls="dot", d=f"M {x:.1f} {y - 6:.1f} l 6 6 l -6 6 l -6 -6 Z")
    if cls == PARTIAL:
        return shape("path", cls="dot", d=f"M {x - 5:.1f} {y - 5:.1f} h 10 v 10 h -10 Z")
    if cls == APART:
        cross = "h 4 v 4 h 4 v 4 h -4 v 4 h -4 v -4 h -4 v -4 h 4 Z"
        return shape("path", cls="dot", d=f"M {x - 2:.1f} {y - 6:.1f} {cross}")
    if cls == FRONT:
        return shape("path", cls="dot", d=f"M {x:.1f} {y - 6:.1f} l 6 11 h -12 Z")
    return shape("circle", cls="dot", cx=x, cy=y, r=5.0)


def _grid_x(x: _Line, top: float, bottom: float) -> Drawing:
    lines: list[Drawing] = []
    for tick in x.marks():
        lines.append(shape("line", cls="grid", x1=x(tick), x2=x(tick), y1=float(top), y2=float(bottom)))
        lines.append(shape("text", f"{tick:,.10g}", cls="tick", x=x(tick), y=bottom + 16, text_anchor="middle"))
    return shape("g", *lines)


def _drawing_caption(x: _Line, bottom: float, text: str) -> Drawing:
    return shape("text", text, cls="tick", x=(x.start + x.end) / 2, y=bottom + 36, text_anchor="middle")


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _picture(parts: list[Drawing], height: float, label: str) -> Drawing:
    return shape("svg", *parts, viewBox=f"0 0 {WIDTH} {height:.0f}", role="img", aria_label=label)


_TIPS = {
    "reproduced": "The published value lies within our 95 % interval, in the same setting",
    "not reproduced": "The same setting, and the published value lies outside our 95 % interval",
    "other setting": "The settings differ, so neither agreement nor disagreement says much",
    "undecided": "The same setting, but we have no interval yet",
}
_STYLES = {"reproduced": "verified", "not reproduced": "failed"}
_HEADS = ("method", "metric", "ours", "published", "gap", "status", "what differs", "source")


def published_table(board: Board) -> Node | None:
    """The table, or None where the papers print no figure of these methods on this dataset."""
    lines = [
        _published_line(names, run, metric, item)
        for names in [{row.run.run: row.run.method for row in board.rows}]
        for (run, metric), result in on_board(board).items()
        for item in _closest(result)
    ]
    if not lines:
        return None
    head = el("tr", *(el("th", text, scope="col") for text in _HEADS))
    return el("div", el("table", el("thead", head), el("tbody", *lines), cls="board"), cls="scroll")


def _closest(results: list[Comparison]) -> list[Comparison]:
    """The first of each paper: comparisons come closest first."""
    return list({item.figure.paper: item for item in reversed(results)}.values())[::-1]


def _published_line(names: dict[str, str], run: str, metric: str, item: Comparison) -> Node:
    ours, shown = formats.NOTHING, formats.PERCENT
    if item.ours is not None:
        ours = f"{shown.value(item.ours.value)} {shown.interval(item.ours.low, item.ours.high)}"
    note = f" ({item.figure.note})" if item.figure.note else ""
    # "8" is a table; "figure 5" and "text 4.2" say what they are.
    position = f"table {item.figure.table}" if item.figure.table.isdigit() else item.figure.table
    return el(
        "tr",
        el("th", names[run], scope="row"),
        el("td", formats.metric_label(metric)),
        el("td", ours, cls="number"),
        el("td", f"{item.figure.value} {item.figure.unit}", cls="number"),
        el("td", formats.NOTHING if item.gap is None else f"{100 * item.gap:+.1f}", cls="number"),
        el("td", badge(item.status, _STYLES.get(item.status, ""), _TIPS.get(item.status, ""))),
        el("td", "; ".join(map(str, item.differs)) or "nothing"),
        el("td", f"{item.figure.paper.upper()}, {position}{note}"),
    )


STYLE = """svg { background: #ffffff; font: 12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
.paper { fill: #ffffff; } .name { fill: #1a1f26; stroke: none; } .head { fill: #1a1f26; font-weight: 650; }
.tick, .small { fill: #5b6470; } .small { font-size: 10px; } .grid { stroke: #dfe4ea; }
.value { fill: #1a1f26; } .apart { fill: #6b7380; } .best { fill: #1d64a8; font-weight: 650; }
.better { fill: #00644d; } .worse { fill: #b04a00; } .title { fill: #1a1f26; font-size: 15px; font-weight: 650; }
.reference, .front { stroke: #8a8f98; stroke-dasharray: 5 4; stroke-width: 1.5; fill: none; }
.mark { stroke-width: 2.5; } .mark .dot { stroke: none; }
.of-method { stroke: #2a87c8; fill: #2a87c8; } .of-control { stroke: #d55e00; fill: #d55e00; }
.of-apart, .of-partial { stroke: #8a8f98; fill: #8a8f98; } .of-front { stroke: #009e73; fill: #009e73; }"""


def svg_file(drawing: Drawing) -> str:
    """A drawing as the text of an SVG file."""
    tag, attributes, children = drawing
    _, _, width, height = attributes["viewBox"].split()
    options = {"xmlns": "http://www.w3.org/2000/svg", "width": width, "height": height, **attributes}
    style = f"<style>{escape(STYLE)}</style>"
    paper = f'<rect class="paper" width={quoteattr(width)} height={quoteattr(height)}/>'
    return f"<{tag}{_written(options)}>{style}{paper}{''.join(map(_element, children))}</{tag}>\n"


def _element(part: Drawing | str) -> str:
    if isinstance(part, str):
        return escape(_allowed(part))
    tag, attributes, children = part
    return f"<{tag}{_written(attributes)}>{''.join(map(_element, children))}</{tag}>"


def _written(attributes: dict[str, str]) -> str:
    return "".join(f" {name}={quoteattr(_allowed(value))}" for name, value in attributes.items())


def _allowed(text: str) -> str:
    """Text without the characters that XML cannot hold."""
    return re.sub("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "", text)
