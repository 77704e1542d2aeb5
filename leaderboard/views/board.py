"""Boards: one line a run, one column a metric, controls below and never ranked; as SVG, and next to papers' figures."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from leaderboard.elements import formats
from leaderboard.elements.formats import Scale, higher_is_better, scale_of
from leaderboard.elements.marks import ALPHA, control_badge, doubt_marks, is_better, row_marks, significance, status_badge
from leaderboard.elements.nodes import CONTROLS, Node, Order, aside, divider, el, grid, note, sorter, spent_cell, standing_sign
from leaderboard.elements.pictures import APART, CONTROL, KINDS, METHOD, PARTIAL, Picture, forest, point_of
from leaderboard.elements.tables import Definitions, metric_head
from results.boards.board import Board, Cell, Row
from results.boards.health import health_text
from results.boards.published import Comparison, on_board
from results.boards.tables import bracketed, could_have_shown, family_of_marks, insufficient_data_notes
from results.statistics.core import Difference
from results.statistics.places import SIGNS, Band
from results.store.cost_queries import AS_STATED
from results.store.queries import OURS

PLACES = (
    f"Below a rank: the ranks that tests of all pairs leave open (Holm-corrected, 5 %). {SIGNS}. No significant difference "
    "is not the same as equal."
)
_PLAIN = {
    "questions": (
        "Questions",
        "scored",
        "Questions in the mean of the focus metric; unscorable ones have no usable gold, failed ones have no answer and count as zero",
    ),
    "seconds": ("Time", "", "Mean wall time over all stages except waiting; below it p50 to p95"),
    "tokens": ("Tokens", "per question", "Mean of prompt, completion and memory tokens"),
    "cost": ("Cost", "US$ total", "Price of all calls; local models cost nothing"),
    "indexing": ("Indexing", "tokens", "Tokens of models called to build the index: a one-time cost, whatever the number of questions"),
}
"""Name, unit and help of the columns that are not metrics; the unit of time depends on the values."""


def sort_columns(board: Board) -> list[str]:
    """List the columns that a board can be sorted by."""
    return ["rank", "method", *board.metrics, "difference", *(name for name in _PLAIN if name != "indexing" or indexes(board))]


def ranks(board: Board, focus: str, definitions: Definitions) -> dict[str, int]:
    """Return the rank of each run by the focus metric, by run id; equal values share a rank, and incomparable runs have none."""
    values = {row.run.run: row.cells[focus].estimate.value for row in _ranked(board, focus)}
    sign = 1 if higher_is_better(focus, definitions) else -1
    scored = {run: -sign * value for run, value in values.items() if not math.isnan(value)}
    order = sorted(scored.values())
    return {run: 1 + bisect_left(order, value) for run, value in scored.items()}


def _ranked(board: Board, focus: str) -> list[Row]:
    return [row for row in board.rows if row.run.may_win and focus in row.cells and not row.cells[focus].apart]


def ordered(board: Board, focus: str, order: Order, definitions: Definitions) -> list[Row]:
    """Sort the rows: methods before controls; rows without a value last in both directions."""
    positions = ranks(board, focus, definitions)
    keys: dict[str, Callable[[Row], Any]] = {
        "rank": lambda row: positions.get(row.run.run),
        "method": lambda row: row.run.method.casefold(),
        "difference": lambda row: (results := _difference(row, focus)) and results.value,
        "questions": lambda row: row.run.done,
        "seconds": lambda row: row.cost and row.cost.seconds,
        "tokens": lambda row: row.cost and row.cost.tokens,
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


def draw_board(
    board: Board,
    focus: str,
    order: Order,
    definitions: Definitions,
    bands: Mapping[str, Band] | None = None,
    *,
    opens: bool = False,
    papers: bool = False,
) -> Node:
    """Draw the results table of one board.

    Args:
        focus: Id of the metric that ranks the rows and whose differences are shown in full.
        bands: Rank ranges by the focus metric (`results.boards.board.positions`).
        opens: Whether names and cells link to pages, which needs a server.
        papers: Whether cells show the closest published figure.
    """
    table = _Table(
        board,
        focus,
        definitions,
        {run: (rank, (bands or {}).get(run)) for run, rank in ranks(board, focus, definitions).items()},
        {key: items[0] for key, items in on_board(board).items()} if papers else {},
        opens,
    )
    rows = ordered(board, focus, order, definitions)
    heads = table.heads(order)
    body = [table.line(row) for row in rows]
    if controls := sum(row.control for row in rows):
        body.insert(len(body) - controls, divider(CONTROLS, len(heads)))
    caption = f"Results on {board.dataset}, {board.setting}, seed {board.seed}, ranked by {formats.metric_label(focus, board.metrics)}"
    return grid(caption, heads, body, "board-scroll", label="Results table")


def _is_quick(board: Board) -> bool:
    """Return whether all times are so short that seconds would be mostly zeros."""
    return max((row.cost.seconds for row in board.rows if row.cost and not math.isnan(row.cost.seconds)), default=1.0) < 1


def flag_notes(board: Board) -> list[str]:
    """Explain values in parentheses and the metrics that are marked as unreliable, if this board has any."""
    notes = [
        f"⚑ {formats.metric_label(metric, board.metrics)} {'; '.join(wrong)}: it does not measure whether answers are correct."
        for metric, wrong in board.flags.items()
    ]
    apart = any(cell.apart for row in board.rows if not row.control for cell in row.cells.values())
    return (
        [*notes, "(In parentheses): not comparable, and neither ranked nor tested; point at the value for the reason."] if apart else notes
    )


def legend(board: Board, *, ranked: bool) -> Node:
    """Build the notes below a board; `ranked`: whether ranks have the range that tests leave open."""
    text = f"{board.sampled.in_words(board.questions)}. Brackets: 95 % interval over {board.sampled.kind}s. A column's head sorts by it."
    names = {metric: formats.metric_label(metric, board.metrics) for metric in board.metrics}
    notes = (*family_of_marks(board, names), *insufficient_data_notes(board), *could_have_shown(board, names=names))
    text += "".join(f" {line[0].upper()}{line[1:]}." for line in notes)
    if board.reference is not None:
        text = f"▲ ▼ significantly better or worse than {board.reference} (Holm-corrected, 5 %). {text}"
    return el("div", *map(note, (*([PLACES] if ranked else []), text, *flag_notes(board), *health_text(board.health))))


def indexes(board: Board) -> bool:
    """Return whether indexing made model calls for any of the board's runs."""
    return any(row.indexing is not None and row.indexing.tokens for row in board.rows)


@dataclass(frozen=True)
class _Table:
    """Table of one board while it is drawn.

    Attributes:
        positions: Rank by the focus metric and the range of ranks that the tests leave open (None if unknown), by run.
        printed: Closest published figure, by run and metric.
    """

    board: Board
    focus: str
    definitions: Definitions
    positions: Mapping[str, tuple[int, Band | None]]
    printed: Mapping[tuple[str, str], Comparison]
    opens: bool

    def scale(self, metric: str) -> Scale:
        return scale_of(metric, self.definitions)

    def heads(self, order: Order) -> list[Node]:
        head = partial(sorter, order=order)
        label = formats.metric_label(self.focus, self.board.metrics)
        tip = (
            f"Rank by {label}, and below it the ranks that tests of all pairs leave open (Holm-corrected, 5 %). "
            "Controls and unfinished, contaminated or inconsistent runs have no rank"
        )
        heads = [
            head("rank", "#", "", tip, cls="narrow", descending=False),
            head("method", "Method", "", "The name in the experiment", cls="stick", descending=False),
        ]
        for metric in self.board.metrics:
            heads += self.metric_heads(metric, head)
        time = "ms / question" if _is_quick(self.board) else "s / question"
        for name in sort_columns(self.board):
            if name in _PLAIN:
                title, unit, tip = _PLAIN[name]
                heads.append(head(name, title, unit or time, tip, cls="number", descending=name == "questions"))
        return heads

    def metric_heads(self, metric: str, head: Callable[..., Node]) -> list[Node]:
        """Build the head of a metric and, next to the focus metric, that of the differences."""
        name, unit, tip = metric_head(metric, self.definitions, self.board.metrics)
        flagged = metric in self.board.flags
        flags = f" ⚑ It {'; '.join(self.board.flags[metric])}." if flagged else ""
        best = higher_is_better(metric, self.definitions)
        name += " ⚑" * flagged
        tip = f"{tip} Shown {self.scale(metric).unit}: mean over scorable questions, 95 % interval.{flags}"
        heads = [head(metric, name, unit, tip, cls="number focus" if metric == self.focus else "number", descending=best)]
        if metric == self.focus and self.board.reference is not None:
            tip = (
                f"Paired difference from {self.board.reference} on the same questions, 95 % interval, and the p-value of a "
                f"paired test, Holm-corrected within the column. ▲ better, ▼ worse at {ALPHA:.0%}."
            )
            heads.append(head("difference", f"Δ {name}", self.scale(metric).difference_unit, tip, cls="number", descending=best))
        return heads

    def line(self, row: Row) -> Node:
        rank, band = self.positions.get(row.run.run, (None, None))
        cells = [_rank_cell(rank, band), self.name(row)]
        for metric in self.board.metrics:
            cells.append(self.value_cell(row, metric, band if metric == self.focus else None))
            if metric == self.focus and self.board.reference is not None:
                cells.append(self.difference_cell(row, metric))
        cells += [_question_cell(row, self.focus, self.board.questions), *_cost_cells(row, milliseconds=_is_quick(self.board))]
        if indexes(self.board):
            built, source = row.indexing, "" if row.run.origin == OURS else AS_STATED
            cells.append(spent_cell(formats.count(built.tokens if built else None), source, built.in_words() if built else ""))
        return el("tr", *cells, cls="control" if row.control else "")

    def name(self, row: Row) -> Node:
        run, board = row.run, self.board
        name = el("span", run.method, cls="method", title=run.method)
        if self.opens:
            name = el("button", run.method, cls="method", title=run.method, key=f"method-{run.run}", action={"method": run.method_id})
        return el(
            "th",
            name,
            control_badge(row.control),
            *row_marks([run], reference=run.method == board.reference and not row.control, metrics=board.metrics),
            *doubt_marks(run, row.contaminated, row.violations),
            status_badge(run, progress=True),
            aside(run.method_id) if run.method_id != run.method else None,
            scope="row",
            cls="stick",
        )

    def value_cell(self, row: Row, metric: str, band: Band | None) -> Node:
        cell = row.cells.get(metric)
        apart = cell is not None and bool(cell.apart) and not row.control
        cls = f"number{' focus' * (metric == self.focus)}{' apart' * apart}"
        # Of the focus metric the cell of its questions says it, in numbers.
        gap = _unscored(cell) if cell is not None and cell.unscored and metric != self.focus else None
        if cell is None or formats.missing(cell.estimate.value):
            tip = cell.incomplete if cell is not None else ""
            return el("td", formats.NOTHING, gap, cls=cls, tip=tip)
        shown, result, printed = self.scale(metric), cell.estimate, self.printed.get((row.run.run, metric))
        # The focus metric's mark is next to its spelled-out difference.
        mark = None if metric == self.focus else self.mark(cell, metric)
        whisker = None
        if shown is formats.PERCENT and not formats.missing(result.low):
            whisker = el("span", cls="whisker", numbers={"low": result.low, "high": result.high, "value": result.value})
        value = shown.value(result.value)
        tips = ["" if row.control else cell.apart, result.insufficient_data, formats.published_tip(printed) if printed else ""]
        return el(
            "td",
            mark,
            f"({value})" if apart else value,
            standing_sign(band),
            el("span", shown.interval(result.low, result.high), cls="interval"),
            whisker,
            gap,
            el("span", formats.published(printed, shown), cls="interval printed") if printed else None,
            cls=f"{cls} opens" if self.opens else cls,
            tip=" ".join(filter(None, tips)),
            action={"runs": row.run.run, "metric": metric} if self.opens else None,
        )

    def difference_cell(self, row: Row, metric: str) -> Node:
        result = _difference(row, metric)
        if result is None or formats.missing(result.value):
            return el("td", formats.NOTHING, cls="number")
        cell, shown = row.cells[metric], self.scale(metric)
        corrected, plain = formats.p_value(cell.p_holm), formats.p_value(result.p)
        tip = (
            f"On {result.n:,} common questions: better on {result.wins:,}, equal on {result.ties:,}, worse on "
            f"{result.losses:,}. {corrected} after Holm's correction, {plain} before"
        )
        return el(
            "td",
            self.mark(cell, metric),
            shown.difference(result.value),
            el("span", shown.differences(result.low, result.high), cls="interval"),
            el("span", corrected, cls="interval"),
            cls="number",
            tip=tip,
        )

    def mark(self, cell: Cell, metric: str) -> Node | None:
        """Draw ▲ or ▼ if the corrected test rejects, with words for screen readers."""
        if cell.difference is None:
            return None
        better = is_better(cell.difference.value, cell.p_holm, higher_is_better=higher_is_better(metric, self.definitions))
        return significance(better, f" than {self.board.reference}, {formats.p_value(cell.p_holm)}")


def _unscored(cell: Cell) -> Node:
    share = formats.unscored(cell.unscored, cell.estimate.n + cell.estimate.unscorable + cell.unscored)
    return el("span", " ".join(filter(None, (share, bracketed(cell)))), cls="interval")


def _rank_cell(rank: int | None, band: Band | None) -> Node:
    """Draw a rank, and below it the ranks that the tests leave open."""
    if rank is None or band is None or band.low == band.high == rank:
        return el("td", formats.NOTHING if rank is None else str(rank), cls="narrow")
    tip = f"Between {band.low} and {band.high}: according to tests of all pairs; {band.standing}"
    return el("td", str(rank), el("span", f"{band.low}–{band.high}", cls="interval"), cls="narrow", tip=tip)


def _cost_cells(row: Row, *, milliseconds: bool) -> list[Node]:
    """Draw the cells of time, tokens and money."""
    cost, source = row.cost, "" if row.run.origin == OURS else AS_STATED
    if cost is None:
        return [spent_cell(formats.NOTHING, source)] * 3
    calls = formats.NOTHING if math.isnan(cost.model_calls) else f"{cost.model_calls:,.1f}"
    parts = (
        f"prompt {cost.prompt_tokens:,.1f} ({cost.cached_tokens:,.1f} cached), completion {cost.completion_tokens:,.1f}, memory "
        f"{cost.memory_tokens:,.1f} tokens and {calls} model calls per question"
    )
    time = partial(formats.seconds, milliseconds=milliseconds)
    return [
        spent_cell(time(cost.seconds), source, below=formats.percentiles(cost, time)),
        spent_cell(formats.count(cost.tokens), source, parts if cost.tokens > 0 else ""),
        spent_cell(formats.dollars(cost.cost_usd), source),
    ]


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
    count = f"{cell.estimate.n if cell is not None else 0:,} of {questions:,}"
    return el("td", count, *(el("span", note, cls="interval") for note in notes), cls="number")


def _difference(row: Row, metric: str) -> Difference | None:
    cell = row.cells.get(metric)
    return cell.difference if cell is not None else None


def _value(row: Row, metric: str) -> float | None:
    cell = row.cells.get(metric)
    return cell.estimate.value if cell is not None else None


def _or_inf(value: float | None, sign: int) -> float:
    return math.inf if formats.missing(value) else sign * value  # type: ignore[operator]


def intervals(board: Board, rows: Sequence[Row], metric: str, definitions: Definitions) -> Picture | None:
    """Draw a forest plot of one metric: a dot with its 95 % interval per run, a dashed line at the reference; None without values."""
    scale, baseline, drawn = scale_of(metric, definitions), None, []
    for row in rows:
        cell = row.cells.get(metric)
        if cell is None or formats.missing(cell.estimate.value):
            continue
        kind = CONTROL if row.control else PARTIAL if row.run.status != "finished" else APART if cell.apart else METHOD
        point = point_of(kind, math.nan, cell.estimate, scale, row.run.method)
        why = f"; {cell.apart}" if kind == APART else ""
        drawn.append((row.run.method, [replace(point, shown=f"{point.shown}, n = {cell.estimate.n:,}{why}")]))
        if row.run.method == board.reference and not row.control:
            baseline = point.value
    title = f"{formats.metric_name(metric)[0]}, {scale.unit}" + ("" if baseline is None else f"  ┆ {board.reference}")
    label = f"{formats.metric_label(metric, board.metrics)} of each run with its 95 % interval; the numbers are in the table"
    return forest(drawn, title, label, reference=baseline, looks=KINDS)
