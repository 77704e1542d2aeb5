"""The matrix as files: tidy CSV, Markdown, LaTeX, and a picture. All text is untrusted and is escaped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leaderboard.elements import formats
from leaderboard.elements.formats import MAIN
from leaderboard.elements.pictures import KINDS, METHOD, PARTIAL, Drawing, shape, shorten_name
from leaderboard.elements.whiskers import MEAN, Axis, axes
from leaderboard.matrix import overall
from leaderboard.matrix.rows import (
    ALL_SETTINGS,
    OWN,
    Printed,
    columns_of,
    cost_of,
    default_order,
    drawn,
    labels,
    metrics_of,
    papers_of,
    wanted_of,
)
from leaderboard.matrix.table import CORRECTED, SOURCES, Shown, better, gaps, not_compared, rank, value, why_apart
from results.boards import systems as column_figures
from results.boards.board import folded_costs, folded_runs, groups, series_of
from results.boards.matrix import Cell, Column, matrix, ranked_cells
from results.boards.names import is_called
from results.boards.primary import primary_of
from results.boards.published import Comparison, beside
from results.boards.systems import COSTS, POSITIVE_CONTROL, Figures, System, systems
from results.boards.tables import BRACKETS, latex_text, markdown_text, source_of, to_csv, to_latex, to_markdown
from results.statistics.core import Estimate
from results.statistics.places import SIGNS, Standing
from results.store import checkpoints, invariants, provenance, queries
from results.store.doubts import NOT_RESCORED
from results.store.queries import RunRow
from results.store.store import Store

CSV_COLUMNS = (
    "dataset", "dataset_fingerprint", "setting", "seed", "questions", "method", "method_id", "kind", "source",
    "status", "run", "metric", "unit", "value", "low", "high", "n", "unscorable", "unscored",
    "low_if_wrong", "high_if_right", "rank", "rank_low",
    "rank_high", "standing", "not_comparable", "contaminated", "reference", "difference",
    "difference_low", "difference_high", "difference_n", "p", "p_corrected", "correction", "published",
    "published_in", "gap", "published_status", "tokens_per_question", "seconds_per_question", "cost_usd", "parameters",
    "open_weights",
)  # fmt: skip
"""Columns of a matrix as CSV; values as they are stored, shares as fractions. Costs are of the run."""
_COSTS = ("tokens", "seconds", "cost")
HEADS = (("tokens", "per question"), ("time", "per question"), ("cost", "US$"), ("parameters", ""), ("source", ""))
"""What stands after the values, with units."""


@dataclass(frozen=True, slots=True)
class Export:
    """What is written.

    Attributes:
        shown: The matrix.
        rows: In the order shown.
        papers: Lines of papers, below.
        title: What it is of.
    """

    shown: Shown
    rows: Sequence[System]
    papers: Sequence[Printed]
    title: str


def csv(export: Export) -> str:
    """One line a cell."""
    return to_csv(CSV_COLUMNS, tidy(export))


def tidy(export: Export) -> Iterator[list[Any]]:
    """One line a cell, in the order of `CSV_COLUMNS`; None is no value."""
    board = export.shown.board
    for row in export.rows:
        for column in board.columns:
            cell = board.cells.get((row.key, column.key))
            if cell is not None:
                yield _line(export.shown, row, column, cell)
    for paper in export.papers:
        for column in board.columns:
            figure = paper.figures.get(column.key)
            if figure is not None:
                first = column.first
                run = {name: getattr(first, name) for name in ("dataset", "dataset_fingerprint", "setting", "seed")}
                printed = {"published": figure.fraction, "published_in": f"{figure.source}: {figure.setting}"}
                why = {"source": "published", "not_comparable": "printed in a paper"}
                known = {**run, "method": paper.method, "metric": column.metric, **printed, **why}
                yield [known.get(name) for name in CSV_COLUMNS]


def _line(shown: Shown, row: System, column: Column, cell: Cell) -> list[Any]:
    run, band, paired, cost = cell.run, cell.band, cell.paired, shown.board.costs.get(cell.run.run)
    compared: list[Any] = [None] * 8
    if paired is not None:
        tested = (paired.value, paired.low, paired.high, paired.n, paired.p, paired.corrected)
        compared = [shown.board.reference, *tested, shown.board.correction]
    known = shown.comparison(column, cell)
    beside: list[Any] = [None] * 4
    if known is not None:
        beside = [known.figure.fraction, f"{known.figure.source}: {known.figure.setting}", known.gap, known.status]
    spent = [None] * 3 if cost is None else [cost.tokens, cost.seconds, cost.cost_usd]
    return [
        run.dataset, run.dataset_fingerprint, run.setting, run.seed, shown.board.questions[column.key], row.name,
        run.method_id, run.kind, _source(run, column.metric),
        run.status, run.run, column.metric,
        "number" if shown.scale(column).factor != formats.PERCENT.factor else "fraction", cell.value,
        cell.low, cell.high, cell.n, cell.unscorable, cell.unscored,
        *([None] * 2 if cell.bounds is None else [cell.bounds.if_wrong, cell.bounds.if_right]),
        *([band.rank, band.low, band.high, str(band.standing)] if band else [None] * 4), cell.apart or None,
        cell.contaminated, *compared, *beside, *spent, row.parameters, row.open_weights,
    ]  # fmt: skip


def markdown(export: Export) -> str:
    """The table as it is shown, for GitHub."""
    rows = [
        [markdown_text(item) for item in (_name_row(export, row), *_values(export.shown, row), *facts(export.shown, row))]
        for row in export.rows
    ]
    rows += [[markdown_text(item) for item in _paper(export.shown, each)] for each in export.papers]
    title = f"**{markdown_text(export.title)}**\n\n"
    table = to_markdown([markdown_text(head) for head in _heads(export.shown)], rows)
    below = "".join(f"- {markdown_text(note)}\n" for note in notes(export.shown))
    return title + table + "\n" + below + _overall(export.shown)


def _overall(shown: Shown) -> str:
    """Return what methods come to over all benchmarks, as Markdown; empty if there is nothing to show."""
    if not (names := overall.heads(shown)):
        return ""
    table = to_markdown([markdown_text(name) for name in names], [[markdown_text(cell) for cell in row] for row in overall.rows(shown)])
    return "\n" + table + "\n" + "".join(f"- {markdown_text(note)}\n" for note in overall.notes(shown))


def latex(export: Export) -> str:
    """The table as it is shown, with `booktabs`; ● is a bullet, ▲ ▼ are arrows."""
    rows = [
        [
            latex_text(_name_row(export, row)),
            *(_latex_cell(item) for item in _values(export.shown, row, incomplete="")),
            *(latex_text(fact) for fact in facts(export.shown, row)),
        ]
        for row in export.rows
    ]
    rows += [[_latex_cell(item) for item in _paper(export.shown, each)] for each in export.papers]
    return to_latex(
        [latex_text(head) for head in _heads(export.shown)],
        rows,
        caption=latex_text(export.title),
        notes=[_latex_cell(note) for note in notes(export.shown)],
    )


_MARKS = {"●": r"$\bullet$", "○": r"$\circ$", "▲": r"$\uparrow$", "▼": r"$\downarrow$"}


def _latex_cell(text: str) -> str:
    escaped = latex_text(text)
    for sign, macro in _MARKS.items():
        escaped = escaped.replace(sign, macro)
    return escaped


def notes(shown: Shown, apart: str = "in brackets") -> list[str]:
    """Return the notes that explain numbers and marks.

    Args:
        shown: The matrix.
        apart: How values that are not comparable are marked.
    """
    board = shown.board
    results = [
        "value ± half its 95 % interval, or [low, high] if its sides differ ("
        + "; ".join(f"{shown.names[key][0]}: {sampled.in_words(board.questions[key])}" for key, sampled in board.sampled.items())
        + ")",
        "rank, and in brackets the ranks that pairwise tests leave open",
        f"{SIGNS}; {apart}: not comparable, and not ranked",
    ]
    if why := sorted({cell.insufficient_data for cell in board.cells.values() if cell.insufficient_data}):
        results.append(f"insufficient data: {'; '.join(why[:3])}")
    if left_out := [cell for cell in board.cells.values() if cell.unscored]:
        most = max(left_out, key=lambda cell: cell.unscored / (cell.n + cell.unscorable + cell.unscored))
        share = gaps(most).removesuffix(" unscored")
        results.append(f"unscored: questions that a judge gave no value, left out; up to {share} of a cell's; {BRACKETS}")
    if board.reference is not None:
        results.append(f"▲ ▼ significantly better or worse than {board.reference} ({CORRECTED[board.correction]})")
        results += [line.removesuffix(".") for line in not_compared(shown)]
    return results


def _name_row(export: Export, row: System) -> str:
    if row.control:
        return f"{row.name} (control)"
    badge = POSITIVE_CONTROL if row.positive_control else "reference" if row.name == export.shown.board.reference else ""
    return row.name + (f" ({badge})" if badge else "")


def _heads(shown: Shown) -> list[str]:
    names = []
    for column in shown.board.columns:
        name, below = shown.names[column.key]
        names.append(", ".join(filter(None, (name, below, shown.metric(column)))))
    return ["method", *names, *(["mean"] if len(names) > 1 else []), *(f"{name} ({unit})" if unit else name for name, unit in HEADS)]


def _values(shown: Shown, row: System, *, incomplete: str | None = None) -> list[str]:
    """A row's cells; `incomplete` stands for a value that lacks too many verdicts, None for what the table shows then."""
    board = shown.board
    cells = []
    for column, cell in zip(board.columns, board.line(row), strict=True):
        if cell is None:
            cells.append(formats.NOTHING)
            continue
        if incomplete is not None and cell.bounds is not None and cell.bounds.incomplete:
            cells.append(incomplete)
            continue
        shown_value, won = value(shown, column, cell), better(column, cell)
        if cell.apart and not row.control:
            cells.append(f"({', '.join(filter(None, (shown_value, gaps(cell), why_apart(cell))))})")
            continue
        mark = "" if won is None else " ▲" if won else " ▼"
        best = f" {cell.band.standing.sign}".rstrip() if cell.band is not None else ""
        cells.append(", ".join(filter(None, (shown_value + mark + best, gaps(cell), rank(cell)))))
    if len(board.columns) > 1:
        mean = board.mean(row)
        scale = shown.scale(board.columns[0])
        cells.append(formats.NOTHING if mean is None else f"{scale.value(mean.value)} ± {scale.value(mean.half)}")
    return cells


def facts(shown: Shown, row: System) -> list[str]:
    """Return the cells under `HEADS`: costs, parameters and the source of the figures."""
    tokens, seconds, dollars = (cost_of(shown.board, row, name) for name in _COSTS)
    time = formats.NOTHING if formats.missing(seconds) else formats.duration(seconds)  # type: ignore[arg-type]
    return [
        formats.count(tokens),
        time,
        formats.dollars(dollars),
        formats.parameters(row.parameters),
        ", ".join([SOURCES[origin][0] for origin in row.origins] + [NOT_RESCORED] * any(run.not_rescored for run in row.runs.values())),
    ]


def _source(run: RunRow, metric: str | None) -> str:
    theirs = run.origin if metric is None else source_of(run, metric)
    return theirs if theirs == NOT_RESCORED or (theirs in SOURCES and theirs != "run") else "measured"


def _paper(shown: Shown, item: Printed) -> list[str]:
    board = shown.board
    figures = [item.figures.get(column.key) for column in board.columns]
    cells = [
        f"({shown.scale(column).value(figure.fraction)})" if figure else formats.NOTHING
        for column, figure in zip(board.columns, figures, strict=True)
    ]
    empty = [formats.NOTHING] * (len(HEADS) - 1 + (len(board.columns) > 1))
    return [f"{item.method} ({item.setting})", *cells, *empty, "published"]


_NAME, _CELL, _FACT, _LINE, _HEAD, _TOP = 230.0, 148.0, 96.0, 44.0, 52.0, 73.0
_NAMED, _HEADED, _BELOW = 34, 18, 22
"""Letters that fit."""
_LINES = 3
"""Of a benchmark's name."""
_SPAN, _DOT = 120.0, 3.5
"""How wide a column's axis is, and how large the dots on it, in pixels."""


def picture(export: Export) -> Drawing:
    """The rows and columns shown, with values, intervals, ranks and marks."""
    shown = export.shown
    columns = shown.board.columns
    mean = len(columns) > 1
    width = _NAME + _CELL * (len(columns) + mean) + _FACT * len(HEADS) + 16
    parts = [shape("text", export.title, cls="title", x=12.0, y=26.0)]
    for number, column in enumerate(columns):
        name, below = shown.names[column.key]
        unit = ", ".join(filter(None, (shown.metric(column), below)))
        parts += _head(number, name, unit)
    if mean:
        parts += _head(len(columns), "Mean", "of benchmarks")
    start = _at(len(columns) + mean - 1)
    for position, (name, unit) in enumerate(HEADS):
        at = start + _FACT * (position + 1)
        parts += [_text("head", at, _TOP + 18, name), _text("small", at, _TOP + 34, unit)]
    y, known = _TOP + _HEAD, axes(shown.board)
    for row in export.rows:
        parts.append(_rule(y, width))
        parts += _row(shown, row, y, known)
        parts += [_text("value", start + _FACT * (position + 1), y + 16, fact) for position, fact in enumerate(facts(shown, row))]
        y += _LINE
    for paper in export.papers:
        parts.append(_rule(y, width))
        parts += [
            _text("apart", 12.0, y + 16, shorten_name(paper.method, _NAMED), "start"),
            _text("small", 12.0, y + 29, shorten_name(paper.setting, _NAMED + 10), "start"),
        ]
        for number, column in enumerate(columns):
            figure = paper.figures.get(column.key)
            if figure is not None:
                parts += [
                    _text("apart", _at(number), y + 16, shown.scale(column).value(figure.fraction)),
                    _text("small", _at(number), y + 29, "published"),
                ]
        y += _LINE
    parts.append(_rule(y, width))
    drawn = "dot on a line: the same, each column from its lowest method to its highest"
    first, *others = notes(shown, apart="gray")
    for note in (first, *([drawn] if known else []), *others):
        y += 16
        parts.append(_text("small", 12.0, y, note, "start"))
    return shape("svg", *parts, viewBox=f"0 0 {max(width, 560.0):.0f} {y + 14:.0f}", role="img", aria_label=export.title)


def _row(shown: Shown, row: System, y: float, known: Mapping[str, Axis]) -> list[Drawing]:
    marks = {"control": row.control, POSITIVE_CONTROL: row.positive_control, "reference": row.name == shown.board.reference}
    badge = next((name for name, holds in marks.items() if holds), "")
    parts = [_text("name", 12.0, y + 16, shorten_name(row.name, _NAMED), "start")]
    if badge:
        parts.append(_text("small", 12.0, y + 29, badge, "start"))
    for number, (column, cell) in enumerate(zip(shown.board.columns, shown.board.line(row), strict=True)):
        parts += _cell(shown, row, column, cell, number, y)
        if cell is not None and column.key in known and not (cell.apart or row.control):
            best = cell.band is not None and cell.band.standing is Standing.BEST
            parts += _whisker(known[column.key], (cell.value, cell.low, cell.high), number, y, best=best)
    if len(shown.board.columns) > 1 and (mean := shown.board.mean(row)) is not None:
        scale = shown.scale(shown.board.columns[0])
        text = f"{scale.value(mean.value)} ± {scale.value(mean.half)}"
        parts.append(_text("value", _at(len(shown.board.columns)), y + 16, text))
        if MEAN in known and not row.control:
            parts += _whisker(
                known[MEAN], (mean.value, mean.value - mean.half, mean.value + mean.half), len(shown.board.columns), y, best=False
            )
    return parts


def _whisker(axis: Axis, estimate: tuple[float, float, float], number: int, y: float, *, best: bool) -> list[Drawing]:
    """A dot at the value on a line as long as its interval, beneath the numbers."""
    if any(map(formats.missing, estimate)):
        return []
    middle, low, high = (_at(number) - _SPAN * (1 - axis.position(item)) for item in estimate)
    line = shape("line", x1=low, x2=high, y1=y + 24, y2=y + 24)
    return [shape("g", line, shape("circle", cls="dot", cx=middle, cy=y + 24, r=_DOT), cls=f"mark {KINDS[METHOD if best else PARTIAL][0]}")]


def _cell(shown: Shown, row: System, column: Column, cell: Cell | None, number: int, y: float) -> list[Drawing]:
    if cell is None:
        return [_text("small", _at(number), y + 16, formats.NOTHING)]
    if cell.apart and not row.control:
        return [
            _text("apart", _at(number), y + 16, value(shown, column, cell)),
            _text("small", _at(number), y + 29, shorten_name(cell.apart.partition(":")[0], _BELOW)),
        ]
    won = better(column, cell)
    standing = cell.band.standing if cell.band is not None else None
    sign = f" {standing.sign}".rstrip() if standing else ""
    parts = [_text("best" if standing is Standing.BEST else "value", _at(number), y + 16, value(shown, column, cell) + sign)]
    below = " ".join(filter(None, ("" if won is None else "▲" if won else "▼", rank(cell))))
    if below:
        parts.append(_text("small" if won is None else "small better" if won else "small worse", _at(number), y + 38, below))
    return parts


def _head(number: int, name: str, unit: str) -> list[Drawing]:
    lines = _broken(name, _HEADED)
    results = [
        shape("text", shape("title", name), line, cls="head", x=_at(number), y=_TOP + 18 - 15 * above, text_anchor="end")
        for above, line in enumerate(reversed(lines))
    ]
    return [*results, _text("small", _at(number), _TOP + 34, shorten_name(unit, _BELOW))]


def _broken(name: str, most: int) -> list[str]:
    """A name in up to three lines, parted behind a sign that joins its parts where there is one; the end may be cut."""
    lines: list[str] = []
    while len(name) > most and len(lines) < _LINES - 1:
        joints = [position + 1 for position, sign in enumerate(name[:most]) if sign in "/:(,_- " and position > 2]
        at = joints[-1] if joints else most
        lines.append(name[:at])
        name = name[at:]
    return [*lines, shorten_name(name, most)]


def _at(number: int) -> float:
    """Return the right end of a column's text."""
    return _NAME + _CELL * (number + 1)


def _text(cls: str, x: float, y: float, text: str, anchor: str = "end") -> Drawing:
    return shape("text", text, cls=cls, x=x, y=y, text_anchor=anchor)


def _rule(y: float, width: float) -> Drawing:
    return shape("line", cls="grid", x1=8.0, x2=width - 8, y1=y, y2=y)


def still_matrix(store: Store, experiment: str, title: str) -> Export | None:
    """All methods against all benchmarks of an experiment, by its primary metric or each dataset by its own, seeds as one row.

    Only metrics that the experiment shows count: other experiments may have scored the same runs on more.

    Args:
        store: Where to read.
        experiment: Its name.
        title: Of the picture.

    Returns:
        What can be drawn or written; None where nothing is scored.
    """
    definitions, datasets = queries.definitions(store), queries.datasets(store)
    every = groups(queries.runs(store, experiment))
    ids = [run.run for runs in every for run in runs]
    named = {run.run: run.metrics for runs in every for run in runs}
    scored = {
        run: [metric for metric in named[run] or metrics if metric in metrics]
        for run, metrics in column_figures.scored_metrics(store, ids).items()
    }
    series = {first: tuple(run.run for run in members) for runs in every for first, members in series_of(runs).items() if len(members) > 1}
    costs, broken = queries.costs(store, ids), dict(invariants.violations(store, ids))
    for runs in every:
        costs |= folded_costs(costs, runs)
    for first, members in series.items():
        if what := list(dict.fromkeys(item for run in members for item in broken.get(run, ()))):
            broken[first] = what
    folded = [folded_runs(runs) for runs in every]
    stored = {row.name: row for row in queries.experiments(store)}.get(experiment)
    declared = primary_of(stored) if stored is not None else None
    chosen = {declared.of(tuple(metrics_of(runs, scored))) for runs in folded} if declared is not None else {None}
    columns = columns_of(folded, scored, definitions, datasets, MAIN, (chosen.pop() if len(chosen) == 1 else None) or OWN)
    columns = [column for column in columns if column.metric is not None]
    if not columns:
        return None
    cards, known = provenance.cards(store), checkpoints.known_checkpoints(store)
    rows = systems({column.key: column.runs for column in columns}, cards, known)
    wanted = wanted_of(columns, series)
    figures = column_figures.figures(store, list(wanted))
    query = stored.reference if stored is not None else None
    able = [row.name for row in rows if not row.control]
    board = matrix(
        columns,
        rows,
        figures,
        ranked_cells(columns, rows, figures, cards=cards, known=known, violations=broken),
        costs=costs,
        reference=next((name for name in able if query and is_called(name, query)), None),
        correction="column",
    )
    names = labels(folded, ALL_SETTINGS if len({runs[0].setting for runs in folded}) > 1 else "")
    shown = Shown(board, names, {**definitions, **COSTS}, closest_printed(columns, figures))
    whole = drawn(board, default_order(board), (), (), "", 0, page=len(rows) or 1)
    return Export(shown, (*whole.pinned, *whole.rows, *whole.controls), papers_of(columns), title)


def closest_printed(columns: list[Column], figures: Mapping[str, Figures]) -> dict[tuple[str, str], Comparison]:
    """The printed figure whose setting is the closest, by the column's key and the run."""
    results = {}
    for column in columns:
        if column.metric is None:
            continue
        kept = figures[column.key]
        for run in column.runs:
            position = kept.runs[run.run]
            value, low, high = (float(row[position]) for row in (kept.means.value, *kept.means.interval()))
            ours = Estimate(value, low, high, int(kept.means.n[position]), 0)
            known = beside(
                run.dataset, run.setting, column.metric, run.description, estimate=ours, stated={"questions": str(kept.questions)}
            )
            if known and ours.n:
                results[column.key, run.run] = known[0]
    return results


def lines(export: Export) -> list[dict[str, Any]]:
    """The matrix as JSON: one object a cell, named as the columns of its CSV; None stands for "no value"."""
    return [dict(zip(CSV_COLUMNS, row, strict=True)) for row in tidy(export)]
