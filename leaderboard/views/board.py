"""Boards: one line a run, one column a metric, controls below and never ranked; as SVG, and next to papers' figures."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from leaderboard.elements import formats
from leaderboard.elements.formats import higher_is_better, scale_of
from leaderboard.elements.marks import ALPHA, is_better, row_marks, significance
from leaderboard.elements.nodes import CONTROLS, Node, Order, badge, divider, el, grid, metric_head, sorter, spent_cell, standing_sign
from leaderboard.elements.pictures import APART, CONTROL, KINDS, METHOD, PARTIAL, Picture, forest, point_of, shorten_name
from results.boards.board import Board, Cell, Row
from results.boards.published import Comparison, on_board
from results.boards.systems import CONTAMINATED, IMPLAUSIBLE, implausible
from results.boards.tables import bracketed
from results.statistics.core import Difference
from results.statistics.places import SIGNS, Band
from results.store.queries import AS_STATED, OURS

FINISHED = "finished"
PLACES = (
    f"Below a rank: the ranks that tests of all pairs leave open (Holm-corrected, 5 %). {SIGNS}. No significant difference "
    "is not the same as equal."
)
Place = tuple[int, Band | None]
"""A rank, and the range of ranks that the tests leave open, if it was requested."""
_PLAIN = {
    "questions": (
        "Questions",
        "scored",
        "Questions in the mean of the focus metric; unscorable ones have no usable gold, failed ones have no answer and count as zero",
    ),
    "seconds": ("Time", "", "Mean wall time over all stages except waiting for a slot; below it p50 to p95"),
    "tokens": ("Tokens", "per question", "Mean of prompt, completion and memory tokens"),
    "cost": ("Cost", "US$ total", "Price of all calls; local models cost nothing"),
    "indexing": ("Indexing", "tokens", "Tokens of models called to build the index: a one-time cost, whatever the number of questions"),
}
"""Name, unit and help of the columns that are not metrics; the unit of time depends on the values."""


def sort_columns(board: Board) -> list[str]:
    """List the columns that a board can be sorted by."""
    return ["rank", "method", *board.metrics, "difference", *(name for name in _PLAIN if name != "indexing" or indexes(board))]


def ranks(board: Board, focus: str, definitions: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Return the rank of each run by the focus metric, by run id; equal values share a rank, and incomparable runs have none."""
    values = {row.run.run: row.cells[focus].estimate.value for row in _ranked(board, focus)}
    sign = 1 if higher_is_better(focus, definitions) else -1
    scored = {run: -sign * value for run, value in values.items() if not math.isnan(value)}
    order = sorted(scored.values())
    return {run: 1 + bisect_left(order, value) for run, value in scored.items()}


def _ranked(board: Board, focus: str) -> list[Row]:
    return [row for row in board.rows if row.run.may_win and focus in row.cells and not row.cells[focus].apart]


def tokens(row: Row) -> float | None:
    """Return a row's mean tokens per question (prompt, completion and memory); None if unknown."""
    cost = row.cost
    return None if cost is None else cost.tokens


def ordered(board: Board, focus: str, order: Order, definitions: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """Sort the rows: methods before controls; rows without a value last in both directions."""
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


def draw_board(
    board: Board,
    focus: str,
    order: Order,
    definitions: Mapping[str, Mapping[str, Any]],
    bands: Mapping[str, Band] | None = None,
    *,
    opens: bool = False,
    papers: bool = False,
) -> Node:
    """Draw the results table of one board.

    Args:
        board: The board.
        focus: Id of the metric that ranks the rows and whose differences are shown in full.
        order: The sort order.
        definitions: Metric definitions by id.
        bands: Rank ranges by the focus metric (`results.boards.board.positions`).
        opens: Whether names and cells link to pages, which needs a server.
        papers: Whether cells show the closest published figure.
    """
    printed = {key: items[0] for key, items in on_board(board).items()} if papers else {}
    rows = ordered(board, focus, order, definitions)
    positions = {run: (position, (bands or {}).get(run)) for run, position in ranks(board, focus, definitions).items()}
    milliseconds = _is_quick(board)
    heads = _heads(board, focus, order, definitions)
    body = [_line(row, board, focus, positions, definitions, milliseconds, opens, printed) for row in rows]
    if controls := sum(row.control for row in rows):
        body.insert(len(body) - controls, divider(CONTROLS, len(heads)))
    caption = f"Results on {board.dataset}, {board.setting}, seed {board.seed}, ranked by {formats.metric_label(focus, board.metrics)}"
    return grid(caption, heads, body, "board-scroll", label="Results table")


def heads_of(board: Board, focus: str, order: Order, definitions: Mapping[str, Mapping[str, Any]]) -> Node:
    """Build the head row of the table for another sort order."""
    return el("tr", *_heads(board, focus, order, definitions))


def _is_quick(board: Board) -> bool:
    """Return whether all times are so short that seconds would be mostly zeros."""
    return max((row.cost.seconds for row in board.rows if row.cost and not math.isnan(row.cost.seconds)), default=1.0) < 1


def _heads(board: Board, focus: str, order: Order, definitions: Mapping[str, Mapping[str, Any]]) -> list[Node]:
    best = {metric: higher_is_better(metric, definitions) for metric in board.metrics}
    tip = (
        f"Rank by {formats.metric_label(focus, board.metrics)}, and below it the ranks that tests of all pairs leave open "
        "(Holm-corrected, 5 %). "
        f"Controls and unfinished, contaminated or inconsistent runs have no rank"
    )
    heads = [
        _head("rank", "#", "", tip, order, False, "narrow"),
        _head("method", "Method", "", "The name in the experiment", order, False, "stick"),
    ]
    for metric in board.metrics:
        head = metric_head(metric, definitions, board.metrics)
        flags = f" ⚑ It {'; '.join(board.flags[metric])}." if metric in board.flags else ""
        tip = f"{head.tip} Shown {scale_of(metric, definitions).unit}: mean over scorable questions, 95 % interval.{flags}"
        name = head.name + (" ⚑" if flags else "")
        heads.append(_head(metric, name, head.unit, tip, order, best[metric], "number focus" if metric == focus else "number"))
        if metric == focus and board.reference is not None:
            tip = (
                f"Paired difference from {board.reference} on the same questions, 95 % interval, and the p-value of a "
                f"paired test, Holm-corrected within the column. ▲ better, ▼ worse at {ALPHA:.0%}."
            )
            unit = scale_of(metric, definitions).difference_unit
            heads.append(_head("difference", f"Δ {name}", unit, tip, order, best[metric], "number"))
    time = "ms / question" if _is_quick(board) else "s / question"
    shown = [name for name in _PLAIN if name != "indexing" or indexes(board)]
    return [
        *heads,
        *(
            _head(name, label, unit or time, tip, order, name == "questions", "number")
            for name in shown
            for label, unit, tip in [_PLAIN[name]]
        ),
    ]


def flag_notes(board: Board) -> list[str]:
    """Explain the metrics that are marked as unreliable on this board."""
    return [
        f"⚑ {formats.metric_label(metric, board.metrics)} {'; '.join(wrong)}: it does not measure whether answers are correct."
        for metric, wrong in board.flags.items()
    ]


def indexes(board: Board) -> bool:
    """Return whether indexing made model calls for any of the board's runs."""
    return any(row.indexing is not None and row.indexing.tokens for row in board.rows)


def _head(column: str, name: str, unit: str, tip: str, order: Order, descending: bool, cls: str) -> Node:
    return sorter(column, name, unit, tip, order, cls, descending=descending)


def _line(
    row: Row,
    board: Board,
    focus: str,
    positions: Mapping[str, Place],
    definitions: Mapping[str, Mapping[str, Any]],
    milliseconds: bool,
    opens: bool,
    printed: Mapping[tuple[str, str], Comparison],
) -> Node:
    position = positions.get(row.run.run)
    band = position[1] if position is not None else None
    cells = [_position(position), _name(row, board, opens=opens)]
    for metric in board.metrics:
        cells.append(
            _value_cell(
                row,
                metric,
                focus,
                board,
                definitions,
                band=band if metric == focus else None,
                printed=printed.get((row.run.run, metric)),
                opens=opens,
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
            f"prompt {cost.prompt_tokens:,.1f} ({cost.cached_tokens:,.1f} cached), completion {cost.completion_tokens:,.1f}, memory "
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
    """Draw a rank, and below it the ranks that the tests leave open."""
    if position is None:
        return el("td", formats.NOTHING, cls="narrow")
    rank, band = position
    if band is None or band.low == band.high == rank:
        return el("td", str(rank), cls="narrow")
    tip = f"Between {band.low} and {band.high}: according to tests of all pairs" + f"; {band.standing}"
    return el("td", str(rank), el("span", f"{band.low}–{band.high}", cls="interval"), cls="narrow", tip=tip)


def _name(row: Row, board: Board, *, opens: bool) -> Node:
    run = row.run
    marks = []
    if row.control:
        marks.append(badge("control", "control", "Sees the gold; shown for scale, never ranked"))
    marks += row_marks([run], reference=run.method == board.reference and not row.control, metrics=board.metrics)
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
    row: Row,
    metric: str,
    focus: str,
    board: Board,
    definitions: Mapping[str, Mapping[str, Any]],
    *,
    band: Band | None,
    printed: Comparison | None,
    opens: bool,
) -> Node:
    cell, control = row.cells.get(metric), row.control
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
    # The focus metric's mark is next to its spelled-out difference.
    mark = None if metric == focus else _mark(cell, board, metric, definitions)
    whisker = None
    if shown is formats.PERCENT and not formats.missing(result.low):
        whisker = el("span", cls="whisker", numbers={"low": result.low, "high": result.high, "value": result.value})
    value = shown.value(result.value)
    tips = [] if control else [cell.apart]
    tips += [result.insufficient_data, formats.published_tip(printed) if printed else ""]
    return el(
        "td",
        el("span", mark, el("span", f"({value})" if "apart" in cls else value, cls="value"), standing_sign(band), cls="top"),
        el("span", shown.interval(result.low, result.high), cls="interval"),
        whisker,
        gap,
        el("span", formats.published(printed, shown), cls="interval printed") if printed else None,
        cls=f"{cls} opens" if opens else cls,
        tip=" ".join(filter(None, tips)),
        action={"runs": row.run.run, "metric": metric} if opens else None,
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
    """Draw ▲ or ▼ if the corrected test rejects, with words for screen readers."""
    if cell.difference is None:
        return None
    better = is_better(cell.difference.value, cell.p_holm, higher_is_better=higher_is_better(metric, definitions))
    return significance(better, f" than {board.reference}, {formats.p_value(cell.p_holm)}")


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


def intervals(board: Board, rows: Sequence[Row], metric: str, definitions: Mapping[str, Mapping[str, Any]]) -> Picture | None:
    """Draw a forest plot of one metric: a dot with its 95 % interval per run, a dashed line at the reference; None without values.

    Args:
        board: The board, for its reference.
        rows: The rows, from top to bottom.
        metric: The metric to draw.
        definitions: Metric definitions by id.
    """
    scale, baseline, drawn = scale_of(metric, definitions), None, []
    for row in rows:
        cell = row.cells.get(metric)
        if cell is None or formats.missing(cell.estimate.value):
            continue
        kind = CONTROL if row.control else PARTIAL if row.run.status != FINISHED else APART if cell.apart else METHOD
        point = point_of(kind, math.nan, cell.estimate, scale, row.run.method)
        why = f"; {cell.apart}" if kind == APART else ""
        drawn.append((row.run.method, [replace(point, shown=f"{point.shown}, n = {cell.estimate.n:,}{why}")]))
        if row.run.method == board.reference and not row.control:
            baseline = point.value
    title = f"{formats.metric_name(metric)[0]}, {scale.unit}" + ("" if baseline is None else f"  ┆ {shorten_name(board.reference or '')}")
    label = f"{formats.metric_label(metric, board.metrics)} of each run with its 95 % interval; the numbers are in the table"
    return forest(drawn, title, label, reference=baseline, looks=KINDS)
