"""The table of the board as one tree of elements: methods against benchmarks, or against the metrics of one benchmark."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from leaderboard.elements import formats
from leaderboard.elements.formats import Scale, board_key, explanation, scale_of
from leaderboard.elements.marks import MEAN, SOURCES, Axis, axes, decided, doubt_marks, is_better, row_marks, status_badge, value_line
from leaderboard.elements.nodes import CONTROLS, Node, badge, button, divider, el, grid, note
from leaderboard.elements.tables import Definitions, metric_head
from leaderboard.matrix.rows import Order, VisibleRows, best_first, cost_of
from results.boards.board import Board, Row
from results.boards.health import health_text
from results.boards.matrix import Cell, Column, Matrix
from results.boards.published import Comparison
from results.boards.systems import WHOLE, System
from results.boards.tables import could_have_shown, family_of_marks, geometric_notes, insufficient_data_notes
from results.statistics.places import SIGNS, Standing
from results.store.cost_queries import AS_STATED, NOT_STATED, Cost
from results.store.queries import OURS

_COST_SCALES = {
    "tokens": Scale(1.0, 1, "tokens / question", "tokens"),
    "seconds": Scale(1000.0, 1, "ms / question", "ms"),
    "dollars": Scale(1000.0, 2, "US$ / 1,000 questions", "US$"),
}


@dataclass(frozen=True, slots=True)
class Benchmark:
    """The benchmark of a table whose columns are its metrics.

    Attributes:
        focus: Id of the metric that is shown first.
        rows: Rows of the board by run id.
    """

    board: Board
    focus: str
    rows: Mapping[str, Row]


@dataclass(frozen=True, slots=True)
class Shown:
    """Table of the board with everything that is needed to draw it.

    Attributes:
        names: Title and subtitle of each column, by column key.
        published: Published figure with the closest setting, by (column key, run id).
        of: The benchmark, if the columns are its metrics; None if each column is a benchmark.
        drawn: Rows and the summary that were drawn; most changes of a page leave them as they are.
    """

    board: Matrix
    names: Mapping[str, tuple[str, str]]
    definitions: Definitions
    published: Mapping[tuple[str, str], Comparison]
    of: Benchmark | None = None
    drawn: dict[Hashable, Node] = field(default_factory=dict, init=False, repr=False, compare=False)

    def scale(self, column: Column) -> Scale:
        """Return the number format of a column's values."""
        metric = column.metric or ""
        return _COST_SCALES.get(metric) or scale_of(metric, self.definitions)

    def metric(self, column: Column) -> str:
        """Return the name of a column's metric; with parameters if another column has other parameters."""
        name, details = formats.metric_name(column.metric or "")
        every = {formats.metric_name(other.metric or "") for other in self.board.columns}
        alone = sum(item == name for item, _ in every) == 1
        return name if alone or not details else f"{name} ({details})"

    def comparison(self, column: Column, cell: Cell) -> Comparison | None:
        """Return the published figure for a cell; None if there is none."""
        return self.published.get((column.key, cell.run.run))


def value(shown: Shown, column: Column, cell: Cell) -> str:
    """Format a cell's value as `63.4 ± 2.1`, followed by `[61.7, 65.0]` if verdicts are missing."""
    scale = shown.scale(column)
    if formats.missing(cell.value):
        return formats.NOTHING
    around = scale.around(cell.value, cell.low, cell.high).replace("±", "± ")
    return " ".join(filter(None, (scale.value(cell.value), around, open_to(shown, column, cell))))


def open_to(shown: Shown, column: Column, cell: Cell) -> str:
    """Format a cell's bounds `[61.7, 65.0]`: the value with missing verdicts counted as wrong, and as right; empty if none is missing."""
    if cell.bounds is None or formats.missing(cell.bounds.low):
        return ""
    scale = shown.scale(column)
    return f"[{scale.value(cell.bounds.low)}, {scale.value(cell.bounds.high)}]"


def rank(cell: Cell) -> str:
    """Format a cell's rank as `rank 3 (1–5)`: the rank, and the range of ranks that the tests leave open."""
    if cell.band is None:
        return ""
    low, high = cell.band.low, cell.band.high
    return f"rank {cell.band.rank}" + ("" if low == high == cell.band.rank else f" ({low}–{high})")


def gaps(cell: Cell) -> str:
    """Format the share of a cell's questions that the judge gave no value, e.g. `2 % unscored`; empty if there is none."""
    return formats.unscored(cell.unscored, cell.n + cell.unscorable + cell.unscored)


def better(column: Column, cell: Cell) -> bool | None:
    """Return True if a cell is significantly better than the reference, False if significantly worse, None if neither."""
    paired = cell.paired
    return None if paired is None else is_better(paired.value, paired.corrected, higher_is_better=column.higher_is_better)


def explained(shown: Shown, column: Column, cell: Cell) -> str:
    """Describe everything about a cell in sentences, as hover text."""
    scale = shown.scale(column)
    counts = [f"{cell.n:,} of {shown.board.questions[column.key]:,} questions"]
    if cell.unscorable:
        counts.append(f"{cell.unscorable:,} unscorable")
    if cell.unscored:
        counts.append(f"{cell.unscored:,} without a value from the judge")
    if cell.run.failed:
        counts.append(f"{cell.run.failed:,} failed and count as wrong")
    sentences = [f"{value(shown, column, cell)} ({', '.join(counts)})."]
    if bounds := open_to(shown, column, cell):
        sentences.append(f"With missing verdicts counted as wrong or right it is in {bounds}.")
    if cell.apart:
        sentences.append(f"Not ranked: {cell.apart}.")
    if cell.band is not None:
        band = f"between {cell.band.low} and {cell.band.high}" if cell.band.low < cell.band.high else "certain"
        sentences.append(f"Rank {cell.band.rank}, {band}; {cell.band.standing}.")
    if cell.paired is not None:
        item, verdict = cell.paired, {True: "Significantly better: ", False: "Significantly worse: ", None: ""}[better(column, cell)]
        sentences.append(
            f"{verdict}{scale.difference(item.value)} {scale.differences(item.low, item.high)} to {shown.board.reference} on "
            f"{item.n:,} common questions, {formats.p_value(item.corrected)} corrected, "
            f"{formats.p_value(item.p)} before; holds for {item.generalizes}."
        )
    known = shown.comparison(column, cell)
    if known is not None:
        sentences.append(formats.published_tip(known))
    if cell.paired is not None and cell.paired.insufficient_data:
        sentences.append(f"Not tested: {cell.paired.insufficient_data}.")
    if cell.insufficient_data:
        sentences.append(f"Insufficient data: {cell.insufficient_data}.")
    if shown.of is not None:
        sentences += _of_questions(shown.of.rows[cell.run.run], column, scale)
    return " ".join(sentences)


def _of_questions(row: Row, column: Column, scale: Scale) -> list[str]:
    """Describe what a board of one benchmark knows about the questions of a cell."""
    cell, sentences = row.cells[column.key], []
    if (paired := cell.difference) is not None:
        sentences.append(f"Better on {paired.wins:,}, equal on {paired.ties:,}, worse on {paired.losses:,} questions.")
    if cell.over_all is not None:
        sentences.append(f"With unscorable questions counted as 0, as the official script does: {scale.value(cell.over_all)}.")
    return sentences


def aside(row: System) -> str:
    """Return the line below a row's name: method id and reader, unless the name contains them."""
    method = row.any_run.method_id
    parts = [] if method in (row.name, f"submitted:{row.name.rpartition('@')[0]}") else [method]
    readers = (reader for reader in row.readers if reader not in row.name and not (row.control and reader == WHOLE))
    return " · ".join([*parts, *(reader if reader == WHOLE else f"reader {reader}" for reader in readers)])


_COSTS = (
    ("tokens", "Tokens", "per question", "Mean of prompt, completion and memory tokens, over the benchmarks shown"),
    ("seconds", "Time", "", "Mean wall time over all stages, over the benchmarks shown"),
    ("cost", "Cost", "US$ total", "Price of all calls on the benchmarks shown; local models cost nothing"),
    (
        "parameters",
        "Parameters",
        "all models",
        "Total over all models: counted if they ran here, taken from the card for submissions; unknown for models behind an endpoint",
    ),
)


MOST_DRAWN = 8
"""Maximum number of benchmarks for drawing intervals in the cells: with 20, a change took the browser twice the time."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """Columns of a table besides its benchmarks; those with the same value in every row are omitted.

    Attributes:
        milliseconds: Whether times are all so short that seconds would be mostly zeros.
        costs: Names of `_COSTS`.
        sources: Whether the origin of results is shown next to names.
        live: Whether rows can be hidden, and cells opened.
        papers: Whether the closest published figure is in its cell.
        axes: On which a column's intervals are drawn, by its key; of the means by `MEAN`.
    """

    milliseconds: bool
    costs: Collection[str]
    sources: bool
    live: bool
    papers: bool
    axes: Mapping[str, Axis]


def _layout(shown: Shown, *, live: bool, papers: bool) -> _Layout:
    board = shown.board
    spent = {name: [cost_of(board, row, name) for row in board.rows] for name in ("tokens", "seconds", "cost")}
    times = [value for value in spent["seconds"] if value is not None]
    left_out = [name for name in ("tokens", "cost") if not any(spent[name])]
    left_out += ["parameters"] if all(row.parameters is None for row in board.rows) else []
    return _Layout(
        bool(times) and max(times) < 1,
        {name for name, *_ in _COSTS if name not in left_out},
        any(tuple(row.origins) != (OURS,) or any(run.not_rescored for run in row.runs.values()) for row in board.rows),
        live,
        papers,
        axes(board) if len(board.columns) <= MOST_DRAWN else {},
    )


def draw_matrix(shown: Shown, rows: Sequence[System], order: Order, *, live: bool = True, papers: bool = False) -> Node:
    """Draw the table of these rows, of which controls are the last.

    Args:
        live: Whether the table is interactive (rows can be hidden, cells opened), which needs a server.
        papers: Whether cells show the closest published figure.
    """
    layout = _layout(shown, live=live, papers=papers)
    heads = _heads(shown, order, layout)
    body = [_line(shown, row, layout) for row in rows]
    if controls := sum(row.control for row in rows):
        body.insert(len(rows) - controls, divider(CONTROLS, len(heads)))
    caption = "Methods against benchmarks: value, 95 % interval, and rank"
    if shown.of is not None:
        of = shown.of.board
        caption = f"Results on {of.dataset}, {of.setting}, seed {of.seed}: value, 95 % interval, and rank"
    return grid(caption, heads, body, "matrix-scroll", "board matrix", "Results table")


def compared_with(board: Matrix) -> str:
    """Name the reference of the differences, or explain why there are no differences."""
    if board.reference is None:
        return "no reference chosen"
    missing = board.without_reference()
    if len(missing) == len(board.columns) and missing:
        return f"no differences: {board.reference} cannot be compared ({next(iter(missing.values()))})"
    noun = "benchmarks" if board.averaged else "metrics"
    some = f", but not on {len(missing)} of {len(board.columns)} {noun}" if missing else ""
    return f"differences from {board.reference}{some}"


def legend(shown: Shown) -> Node:
    """Build the legend of numbers and symbols, up to three lines; for one benchmark also what is unusual about its metrics and runs."""
    board = shown.board
    interval = "Value ± half its 95 % interval, or [low, high] if its sides differ"
    lines = [f"{interval}; rank (rank interval from tests of all pairs); {SIGNS}."]
    titles = {column.key: ", ".join(filter(None, shown.names[column.key])) for column in board.columns}
    if board.reference is not None:
        reasons: dict[str, list[str]] = {}
        for key, why in board.without_reference().items():
            reasons.setdefault(why, []).append(titles[key])
        column = "benchmark" if shown.of is None else "metric"
        parts = [f"▲ ▼ significantly better or worse than {board.reference} (Holm-corrected within the {column}, 5 %)"]
        parts += [f"no method is compared with {board.reference} on {' or on '.join(where)}: {why}" for why, where in reasons.items()]
        lines.append(f"{'; '.join(parts)}.")
    # Two columns may share a title, such as two versions of a dataset.
    counted = {titles[key]: sampled.in_words(board.questions[key]) for key, sampled in board.sampled.items()}
    few = dict.fromkeys(counted.values())
    counts = next(iter(few)) if len(few) == 1 else "; ".join(f"{name}: {count}" for name, count in counted.items())
    lines.append(f"(in parentheses): not comparable, and neither ranked nor tested; {counts}.")
    return el("div", *map(note, lines if shown.of is None else [*lines, *_notes(shown.of)]))


def _notes(of: Benchmark) -> list[str]:
    board = of.board
    names = {metric: formats.metric_label(metric, board.metrics) for metric in board.metrics}
    tests = (
        *geometric_notes(board, names),
        *family_of_marks(board, names),
        *insufficient_data_notes(board),
        *could_have_shown(board, of.focus, names),
    )
    flags = (
        f"⚑ {names[metric]} {'; '.join(wrong)}: it does not measure whether answers are correct." for metric, wrong in board.flags.items()
    )
    return [*filter(None, [" ".join(f"{line[0].upper()}{line[1:]}." for line in tests)]), *flags, *health_text(board.health)]


def _heads(shown: Shown, order: Order, layout: _Layout) -> list[Node]:
    board = shown.board
    heads = [_head(board, "method", "Method", "", "The name in the experiment", order, "stick")]
    draw = _benchmark if shown.of is None else partial(_metric, of=shown.of)
    heads += [draw(shown, column, order, layout) for column in board.columns]
    if board.averaged:
        tip = (
            "Mean over the benchmarks shown, weighted equally; only if a method has a comparable value on all of them and they "
            "share a metric. The interval treats errors on the same questions as correlated"
        )
        heads.append(_head(board, MEAN, "Mean", "of benchmarks", tip, order, "number"))
    time = "ms / question" if layout.milliseconds else "s / question"
    heads += [
        _head(board, column, name, unit or time, tip, order, "number") for column, name, unit, tip in _COSTS if column in layout.costs
    ]
    return heads


def _benchmark(shown: Shown, column: Column, order: Order, layout: _Layout) -> Node:
    """Draw a benchmark's header: one button sorts by it, another opens its own board."""
    name, below = shown.names[column.key]
    if column.metric is None:
        title = el("span", name, cls="name", tip="No metric of this family was scored here")
        return el("th", title, el("span", below, cls="unit") if below else None, scope="col", cls="number")
    unit = f"{shown.metric(column)} · {shown.scale(column).unit}" + ("" if column.higher_is_better else " · lower is better")
    opened = {"view": "benchmark", "board": board_key(column.first), "metric": column.metric, "sort": None, "order": None}
    more = [el("span", below, cls="unit")] if below else []
    if layout.live:
        more.append(button("open board", f"open-{column.key}", opened, label=f"Open the board of {name}"))
    tip = explanation(column.metric, shown.definitions)
    options = "" if name == column.first.dataset else f"{column.first.dataset}. "
    return _head(shown.board, column.key, name, unit, f"{options}{tip}", order, "number", more)


def _metric(shown: Shown, column: Column, order: Order, layout: _Layout, of: Benchmark) -> Node:
    """Draw the header of a metric."""
    name, unit, tip = metric_head(column.key, shown.definitions, of.board.metrics)
    if wrong := of.board.flags.get(column.key):
        name, tip = f"{name} ⚑", f"{tip} ⚑ It {'; '.join(wrong)}."
    return _head(shown.board, column.key, name, unit, tip, order, "number focus" if column.key == of.focus else "number")


def _head(board: Matrix, column: str, name: str, unit: str, tip: str, order: Order, cls: str, more: Sequence[Node] = ()) -> Node:
    """Draw a column head with a button that sorts by the column, best first, or reverses the order if the table is sorted by it."""
    active = order.column == column
    arrow = el("span", "↓" if order.descending else "↑", cls="arrow") if active else None
    descending = (not order.descending) if active else best_first(board, column)
    action = {"sort": column, "order": "desc" if descending else "asc", "first": None}
    return el(
        "th",
        el("button", el("span", name, cls="name"), arrow, tip=tip, key=f"sort-{column}", action=action),
        el("span", unit, cls="unit") if unit else None,
        *more,
        scope="col",
        sort=("descending" if order.descending else "ascending") if active else "none",
        cls=cls,
    )


def _line(shown: Shown, row: System, layout: _Layout) -> Node:
    key = row.key, layout.live, layout.papers
    if key not in shown.drawn:
        shown.drawn[key] = _draw_line(shown, row, layout)
    return shown.drawn[key]


def _draw_line(shown: Shown, row: System, layout: _Layout) -> Node:
    board = shown.board
    details = None if shown.of is None else shown.of.rows[row.any_run.run]
    doubts = [] if details is None else _doubts(details)
    cells = [_cell(shown, column, board.cells.get((row.key, column.key)), layout, named=bool(doubts)) for column in board.columns]
    if board.averaged:
        cells.append(_mean(shown, row, layout))
    weights = formats.weights(row.open_weights, row.parameters)
    source = "" if tuple(row.origins) == (OURS,) else AS_STATED
    cost, time = board.cost(row), partial(formats.seconds, milliseconds=layout.milliseconds)
    built = details.indexing if details is not None and details.indexing is not None and details.indexing.tokens else None
    index = [] if built is None else [f"building the index, once: {built.in_words()}"]
    costs = {
        "tokens": _spent(
            formats.count(cost_of(board, row, "tokens")),
            source,
            "; ".join([*_parts(cost), *index]),
            "" if built is None else f"+ {built.tokens:,} for the index",
        ),
        "seconds": _spent(time(cost_of(board, row, "seconds")), source, "" if details is None else formats.percentiles(cost, time)),
        "cost": _spent(formats.dollars(cost_of(board, row, "cost")), source),
        "parameters": el("td", formats.parameters(row.parameters), el("span", weights, cls="interval") if weights else None, cls="number"),
    }
    cells += [cell for column, cell in costs.items() if column in layout.costs]
    labels = doubts if details is None else [*doubts, *_failures(details)]
    return el("tr", _name(board, row, layout, labels), *cells, cls="control" if row.control else "")


def _spent(shown: str, source: str, parts: str = "", below: str = "") -> Node:
    """Make the cell of a cost; `source`: who reported it; empty if it was measured here."""
    if shown == formats.NOTHING:
        return el("td", shown, cls="number", tip=NOT_STATED if source else "")
    small = el("span", below, cls="interval") if below else None
    return el("td", shown, small, cls="number", tip=", ".join(filter(None, (parts, source))))


def _doubts(row: Row) -> list[Node]:
    """Make the labels of a run on one benchmark that is not comparable: why its values may be wrong, and its progress."""
    progress = status_badge(row.run, progress=True)
    return [*doubt_marks(row.run, row.contaminated, row.violations), *([progress] if progress else [])]


def _failures(row: Row) -> list[Node]:
    """Make the label for the questions of a run that failed; empty if none did."""
    if not row.run.failed:
        return []
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in row.failures.items())
    return [badge(f"{row.run.failed:,} failed", "failed", f"Questions without an answer, which count as wrong: {kinds}")]


def _parts(cost: Cost | None) -> list[str]:
    """Say of which parts the tokens of a question consist; empty if there are none, or they are unknown."""
    if cost is None or not cost.tokens > 0:
        return []
    calls = formats.NOTHING if math.isnan(cost.model_calls) else f"{cost.model_calls:,.1f}"
    return [
        f"prompt {cost.prompt_tokens:,.1f} ({cost.cached_tokens:,.1f} cached), completion {cost.completion_tokens:,.1f}, memory "
        f"{cost.memory_tokens:,.1f} tokens and {calls} model calls per question"
    ]


def _name(board: Matrix, row: System, layout: _Layout, labels: Sequence[Node]) -> Node:
    named = row.name == board.reference and not row.control
    marks = row_marks(row.runs.values(), reference=named)
    small, ours = aside(row), tuple(row.origins) == (OURS,)
    return el(
        "th",
        el("span", _opener(row) if layout.live else el("span", row.name, cls="method", title=row.name), *marks, *labels, cls="top"),
        el("span", SOURCES[OURS][0], cls="aside", tip=SOURCES[OURS][2]) if layout.sources and ours else None,
        el("span", small, cls="aside") if small else None,
        el("span", button("hide", f"hide-{row.key}", {"hide": row.key}, label=f"Hide {row.name}"), cls="acts") if layout.live else None,
        scope="row",
        cls="stick",
    )


def _opener(row: System) -> Node:
    return el("button", row.name, cls="method", title=row.name, key=f"method-{row.key}", action={"method": row.any_run.method_id})


def _cell(shown: Shown, column: Column, cell: Cell | None, layout: _Layout, *, named: bool) -> Node:
    """Draw a value; `named`: whether labels next to the row's name give the reason why it is not comparable."""
    focus = " focus" if shown.of is not None and column.key == shown.of.focus else ""
    if cell is None:
        return el("td", formats.NOTHING, cls=f"number{focus}")
    scale, mark = shown.scale(column), better(column, cell)
    best = cell.band is not None and cell.band.standing is Standing.BEST
    known = shown.comparison(column, cell) if layout.papers else None
    # A control's whole line is marked: its cells need not repeat it.
    apart = bool(cell.apart) and cell.run.kind != "control"
    number, bracketed = scale.value(cell.value), apart and not formats.missing(cell.value)
    drawn = layout.axes.get(column.key) if not (cell.apart or cell.run.kind == "control") else None
    return el(
        "td",
        *value_line(f"({number})" if bracketed else number, scale.around(cell.value, cell.low, cell.high), mark, cell.band),
        drawn.whisker(cell.value, cell.low, cell.high, best=best) if drawn else None,
        el("span", rank(cell), cls="interval") if cell.band else None,
        _reason(cell) if apart and not named else None,
        el("span", " ".join(filter(None, (gaps(cell), open_to(shown, column, cell)))), cls="interval") if cell.unscored else None,
        el("span", formats.published(known, scale), cls="interval printed") if known else None,
        cls=f"number{focus}{' apart' if apart else ''}{' opens' if layout.live else ''}{decided(mark)}",
        tip=explained(shown, column, cell),
        action=({"runs": cell.run.run} if shown.of is None else {"runs": cell.run.run, "metric": column.key}) if layout.live else None,
    )


def _reason(cell: Cell) -> Node:
    """Return a short reason why a cell is gray; its hover text has all reasons."""
    if cell.contaminated and cell.apart.startswith("contaminated"):
        return el("span", badge("contaminated", "failed"), cls="interval")
    return el("span", cell.apart.partition(":")[0], cls="interval")


def _mean(shown: Shown, row: System, layout: _Layout) -> Node:
    result = shown.board.mean(row)
    if result is None:
        return el("td", formats.NOTHING, cls="number", tip=why_no_mean(shown.board, row))
    scale = shown.scale(shown.board.columns[0])
    drawn = None if row.control else layout.axes.get(MEAN)
    return el(
        "td",
        *value_line(scale.value(result.value), scale.around(result.value, result.low, result.high), None),
        drawn.whisker(result.value, result.low, result.high) if drawn else None,
        cls="number focus",
    )


def why_no_mean(board: Matrix, row: System) -> str:
    """Explain why a row has no mean: which columns lack a comparable value, or that metrics differ."""
    missing = [
        column.first.dataset
        for column, cell in zip(board.columns, board.line(row), strict=True)
        if cell is None or not cell.n or (cell.apart and not row.control)
    ]
    if missing:
        return f"No comparable value on {', '.join(missing)}"
    return "These benchmarks have different metrics"


def pager(rows: VisibleRows, page: int) -> Node | None:
    """Build the controls for paging; None if all rows are visible."""
    last = min(rows.first + page, rows.total)
    parts: list[Node] = []
    if rows.total > page:
        parts.append(el("span", f"Rows {rows.first + 1:,}–{last:,} of {rows.total:,}", cls="fact"))
        turns: Mapping[str, int | None] = {
            "previous": rows.first - page if rows.first else None,
            "next": last if last < rows.total else None,
        }
        parts += [button(name, f"rows-{name}", {"first": str(at) if at else None}) for name, at in turns.items() if at is not None]
    if rows.hidden:
        parts.append(el("span", f"{len(rows.hidden):,} hidden", cls="fact"))
        parts.append(button("show them", "unhide", {"hide": None}))
    return el("p", *parts, cls="facts") if parts else None
