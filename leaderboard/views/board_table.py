"""The board as a table: one line a run, one column a metric, controls below and never ranked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from leaderboard.elements import formats
from leaderboard.elements.columns import explanation, higher_is_better, scale_of
from leaderboard.elements.nodes import Node, badge, el
from leaderboard.elements.plain_table import spent_cell
from results.board import Board, Cell, Row
from results.contestants import CONTAMINATED
from results.stated_costs import AS_STATED, OURS
from results.statistics import Difference
from results.statistics.closed_form import Band

ALPHA = 0.05
FINISHED = "finished"
PLACES = (
    "Below a place: the places that tests of all pairs leave open (Holm-corrected, 5 %). ● not separable from the "
    "best: no test tells it apart, which is not the same as equal."
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
    return ["rank", "method", *board.metrics, "difference", *_PLAIN_COLUMNS]


def ranks(board: Board, focus: str, definitions: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Place of each run by the focus metric; equals share it, and what must not be compared with others has none."""
    values = {row.run.run: row.cells[focus].estimate.value for row in board.rows if focus in row.cells and not row.cells[focus].apart}
    sign = 1 if higher_is_better(focus, definitions) else -1
    scored = {run: sign * value for run, value in values.items() if not math.isnan(value)}
    return {run: 1 + sum(other > value for other in scored.values()) for run, value in scored.items()}


def tokens(row: Row) -> float | None:
    """Mean tokens per question: prompt, completion and memory."""
    cost = row.cost
    return None if cost is None else cost.tokens


def ordered(board: Board, focus: str, order: Order, definitions: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """The rows, methods before controls, each part sorted; rows without a value come last either way."""
    places = ranks(board, focus, definitions)
    keys: dict[str, Callable[[Row], Any]] = {
        "rank": lambda row: places.get(row.run.run),
        "method": lambda row: row.run.method.casefold(),
        "difference": lambda row: (found := _difference(row, focus)) and found.value,
        "questions": lambda row: row.run.done,
        "seconds": lambda row: row.cost and row.cost.seconds,
        "tokens": tokens,
        "cost": lambda row: row.cost and row.cost.cost_usd,
    }
    if order.column == "rank" and not order.descending:
        # Those without a place (still running, controls) follow by value.
        sign = -1 if higher_is_better(focus, definitions) else 1
        keys["rank"] = lambda row: (places.get(row.run.run, math.inf), _or_inf(_value(row, focus), sign))
    key = keys.get(order.column, lambda row: _value(row, order.column))
    found = [(key(row), row) for row in board.rows]
    known = [(value, row) for value, row in found if value is not None and value == value]
    known.sort(key=lambda pair: pair[0], reverse=order.descending)
    rows = [row for _, row in known] + [row for value, row in found if value is None or value != value]
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
        focus: The metric that ranks, and whose differences are spelt out; one of the board's.
        order: The sorting.
        definitions: Metric definitions by id.
        bands: What tests leave open of the places by the focus metric (`results.places`).
        opens: Whether a method's name asks for what is known of it, where a page can follow.
    """
    rows = ordered(board, focus, order, definitions)
    places = {run: (place, (bands or {}).get(run)) for run, place in ranks(board, focus, definitions).items()}
    spent = [row.cost.seconds for row in rows if row.cost and not math.isnan(row.cost.seconds)]
    milliseconds = bool(spent) and max(spent) < 1
    heads = _heads(board, focus, order, definitions, milliseconds)
    body: list[Node] = []
    methods = [row for row in rows if not row.control]
    controls = [row for row in rows if row.control]
    body += [_line(row, board, focus, places, definitions, milliseconds, opens) for row in methods]
    if controls:
        note = "Controls: they see the gold answers or evidence, so they bound what is attainable and are not ranked"
        body.append(el("tr", el("th", el("span", note, cls="divider-text"), colspan=str(len(heads)), scope="colgroup"), cls="divider"))
        body += [_line(row, board, focus, places, definitions, milliseconds, opens) for row in controls]
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
            f"Place by {formats.metric_label(focus)}, and below it the places that tests of "
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
                    f"sign-flip test, Holm-corrected within the column. ▲ better, ▼ worse at {ALPHA:.0%}.",
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
        _head("seconds", "Time", time, "Mean wall time over all stages", order, False, "number"),
        _head("tokens", "Tokens", "per question", "Mean of prompt, completion and memory tokens", order, False, "number"),
        _head("cost", "Cost", "US$ total", "Price of all calls; local models cost nothing", order, False, "number"),
    ]


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
    places: Mapping[str, Place],
    definitions: Mapping[str, Mapping[str, Any]],
    milliseconds: bool,
    opens: bool,
) -> Node:
    place = places.get(row.run.run)
    best = place is not None and place[1] is not None and place[1].best
    cells = [_place(place), _name(row, board, opens=opens)]
    for metric in board.metrics:
        cells.append(
            _value_cell(row.cells.get(metric), metric, focus, board, definitions, control=row.control, best=best and metric == focus)
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
    cells += [
        _question_cell(row, focus, board.questions),
        spent_cell(formats.seconds(cost.seconds if cost else None, milliseconds=milliseconds), source),
        spent_cell(formats.count(tokens(row)), source, parts),
        spent_cell(formats.dollars(cost.cost_usd if cost else None), source),
    ]
    return el("tr", *cells, cls="control" if row.control else "")


def _place(place: Place | None) -> Node:
    """A rank, and below it the ranks that the tests leave open."""
    if place is None:
        return el("td", formats.NOTHING, cls="narrow")
    rank, band = place
    if band is None or band.low == band.high == rank:
        return el("td", str(rank), cls="narrow")
    tip = f"Between {band.low} and {band.high}: as far as tests of all pairs go" + ("; not separable from the best" if band.best else "")
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
    if row.violations:
        marks.append(badge("inconsistent", "failed", "These scores cannot be right: " + "; ".join(row.violations)))
    if run.status != FINISHED:
        text = f"{run.status} {run.done:,}/{run.questions:,}"
        marks.append(
            badge(
                text,
                run.status if run.status in ("running", "interrupted", "failed") else "",
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
    best: bool = False,
) -> Node:
    cls = "number focus" if metric == focus else "number"
    if cell is not None and cell.apart and not control:
        cls += " apart"
    # Of the focus metric the cell of its questions says it, in numbers.
    gap = None
    if cell is not None and cell.unscored and metric != focus:
        found = cell.estimate
        gap = el("span", formats.unscored(cell.unscored, found.n + found.unscorable + cell.unscored), cls="interval")
    if cell is None or formats.missing(cell.estimate.value):
        return el("td", el("span", formats.NOTHING, cls="top") if gap else formats.NOTHING, gap, cls=cls)
    shown, found = scale_of(metric, definitions), cell.estimate
    # The focus metric's mark stands beside its spelt-out difference.
    mark = None if metric == focus else _mark(cell, board, metric, definitions)
    whisker = None
    if shown is formats.PERCENT and not formats.missing(found.low):
        whisker = el("span", cls="whisker", numbers={"low": found.low, "high": found.high, "value": found.value})
    return el(
        "td",
        el(
            "span",
            mark,
            el("span", shown.value(found.value), cls="value"),
            el("span", "●", cls="best", role="img", label="not separable from the best") if best else None,
            cls="top",
        ),
        el("span", shown.interval(found.low, found.high), "†" if found.doubt else None, cls="interval"),
        whisker,
        gap,
        cls=cls,
        tip=found.doubt if control else " ".join(filter(None, (cell.apart, found.doubt))),
    )


def _difference_cell(row: Row, board: Board, metric: str, definitions: Mapping[str, Mapping[str, Any]]) -> Node:
    found = _difference(row, metric)
    if found is None or formats.missing(found.value):
        return el("td", formats.NOTHING, cls="number")
    cell, shown = row.cells[metric], scale_of(metric, definitions)
    corrected, plain = formats.p_value(cell.p_holm), formats.p_value(found.p)
    tip = (
        f"On {found.n:,} common questions: better on {found.wins:,}, equal on {found.ties:,}, worse on "
        f"{found.losses:,}. {corrected} after Holm's correction, {plain} before"
    )
    mark = _mark(cell, board, metric, definitions)
    return el(
        "td",
        el("span", mark, el("span", shown.difference(found.value), cls="value"), cls="top"),
        el("span", shown.differences(found.low, found.high), cls="interval"),
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
        notes.append(f"{cell.estimate.unscorable:,} unscorable")
    if cell is not None and cell.unscored:
        notes.append(f"{cell.unscored:,} not scored by the judge")
    if row.run.failed:
        notes.append(f"{row.run.failed:,} failed")
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
