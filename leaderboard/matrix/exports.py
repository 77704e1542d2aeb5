"""The matrix as files: tidy CSV, and Markdown and LaTeX as it is shown. All text is strangers' and is escaped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from leaderboard.elements import formats
from leaderboard.matrix.cells import CORRECTED, SOURCES, Shown, better, doubted, gaps, not_compared, rank, value, why_apart
from leaderboard.matrix.papers import Printed
from leaderboard.matrix.rows import cost_of
from results.contestants import Contestant
from results.matrix import Cell, Column
from results.tables import latex_text, markdown_text, to_csv, to_latex, to_markdown

CSV_COLUMNS = (
    "dataset", "dataset_fingerprint", "setting", "seed", "questions", "method", "method_id", "kind", "source",
    "status", "run", "metric", "unit", "value", "low", "high", "n", "unscorable", "unscored", "rank", "rank_low",
    "rank_high", "not_separable_from_best", "not_comparable", "contaminated", "reference", "difference",
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
    rows: Sequence[Contestant]
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
    for one in export.papers:
        for column in board.columns:
            figure = one.figures.get(column.key)
            if figure is not None:
                first = column.first
                known = {
                    "dataset": first.dataset,
                    "dataset_fingerprint": first.dataset_fingerprint,
                    "setting": first.setting,
                    "seed": first.seed,
                    "method": one.method,
                    "source": "published",
                    "metric": column.metric,
                    "published": figure.fraction,
                    "published_in": f"{figure.source}: {figure.setting}",
                    "not_comparable": "printed in a paper",
                }
                yield [known.get(name) for name in CSV_COLUMNS]


def _line(shown: Shown, row: Contestant, column: Column, cell: Cell) -> list[Any]:
    run, band, paired, cost = cell.run, cell.band, cell.paired, shown.board.costs.get(cell.run.run)
    compared: list[Any] = [None] * 8
    if paired is not None:
        compared = [
            shown.board.reference,
            paired.value,
            paired.value - paired.half,
            paired.value + paired.half,
            paired.n,
            paired.p,
            paired.corrected,
            shown.board.correction,
        ]
    known = shown.comparison(column, cell)
    beside: list[Any] = [None] * 4
    if known is not None:
        beside = [known.figure.fraction, f"{known.figure.source}: {known.figure.setting}", known.gap, known.status]
    spent = [None] * 3 if cost is None else [cost.tokens, cost.seconds, cost.cost_usd]
    return [
        run.dataset, run.dataset_fingerprint, run.setting, run.seed, shown.board.questions[column.key], row.name,
        run.method_id, run.kind, run.origin if run.origin in SOURCES and run.origin != "run" else "measured",
        run.status, run.run, column.metric,
        "number" if shown.scale(column).factor != formats.PERCENT.factor else "fraction", cell.value,
        cell.value - cell.half, cell.value + cell.half, cell.n, cell.unscorable, cell.unscored,
        *([band.rank, band.low, band.high, band.best] if band else [None] * 4), cell.apart or None,
        cell.contaminated, *compared, *beside, *spent, row.parameters, row.open_weights,
    ]  # fmt: skip


def markdown(export: Export) -> str:
    """The table as it is shown, for GitHub."""
    rows = [
        [markdown_text(one) for one in (_named(export, row), *_values(export.shown, row), *facts(export.shown, row))] for row in export.rows
    ]
    rows += [[markdown_text(one) for one in _paper(export.shown, each)] for each in export.papers]
    title = f"**{markdown_text(export.title)}**\n\n"
    table = to_markdown([markdown_text(head) for head in _heads(export.shown)], rows)
    return title + table + "\n" + "".join(f"- {markdown_text(note)}\n" for note in notes(export.shown))


def latex(export: Export) -> str:
    """The table as it is shown, with `booktabs`; ● is a bullet, ▲ ▼ are arrows."""
    rows = [
        [
            latex_text(_named(export, row)),
            *(_latex_cell(one) for one in _values(export.shown, row)),
            *(latex_text(one) for one in facts(export.shown, row)),
        ]
        for row in export.rows
    ]
    rows += [[_latex_cell(one) for one in _paper(export.shown, each)] for each in export.papers]
    return to_latex(
        [latex_text(head) for head in _heads(export.shown)],
        rows,
        caption=latex_text(export.title),
        notes=[_latex_cell(note) for note in notes(export.shown)],
    )


_MARKS = {"●": r"$\bullet$", "▲": r"$\uparrow$", "▼": r"$\downarrow$"}


def _latex_cell(text: str) -> str:
    escaped = latex_text(text)
    for sign, macro in _MARKS.items():
        escaped = escaped.replace(sign, macro)
    return escaped


def notes(shown: Shown, apart: str = "in brackets") -> list[str]:
    """What numbers and marks mean.

    Args:
        shown: The matrix.
        apart: How what is not comparable is told from the rest.
    """
    board = shown.board
    found = [
        "value ± half its 95 % interval (Student's t" + (", documents that questions share as units)" if board.clustered else ")"),
        "rank, and in brackets the ranks that pairwise tests leave open",
        f"● the best, or not separable from it; {apart}: not comparable, and not ranked",
    ]
    if any(cell.doubt for cell in board.cells.values()):
        found.append("† the interval may not cover as often as it says, at a head: none of the column")
    if left_out := [cell for cell in board.cells.values() if cell.unscored]:
        most = max(left_out, key=lambda cell: cell.unscored / (cell.n + cell.unscorable + cell.unscored))
        share = gaps(most).removesuffix(" unscored")
        found.append(f"unscored: questions that a judge gave no value, left out; up to {share} of a cell's")
    if board.reference is not None:
        found.append(f"▲ ▼ significantly better or worse than {board.reference} ({CORRECTED[board.correction]})")
        found += [line.removesuffix(".") for line in not_compared(shown)]
    return found


def _named(export: Export, row: Contestant) -> str:
    if row.control:
        return f"{row.name} (control)"
    reference = " (reference)" if row.name == export.shown.board.reference else ""
    return row.name + reference


def _heads(shown: Shown) -> list[str]:
    names = []
    for column in shown.board.columns:
        name, below = shown.names[column.key]
        names.append(", ".join(filter(None, (name, below, shown.metric(column)))) + doubted(shown, column))
    return ["method", *names, *(["mean"] if len(names) > 1 else []), *(f"{name} ({unit})" if unit else name for name, unit in HEADS)]


def _values(shown: Shown, row: Contestant) -> list[str]:
    board = shown.board
    cells = []
    for column, cell in zip(board.columns, board.line(row), strict=True):
        if cell is None:
            cells.append(formats.NOTHING)
            continue
        said, won = value(shown, column, cell) + doubted(shown, column, cell), better(column, cell)
        if cell.apart and not row.control:
            cells.append(f"({', '.join(filter(None, (said, gaps(cell), why_apart(cell))))})")
            continue
        mark = "" if won is None else " ▲" if won else " ▼"
        best = " ●" if cell.band is not None and cell.band.best else ""
        cells.append(", ".join(filter(None, (said + mark + best, gaps(cell), rank(cell)))))
    if len(board.columns) > 1:
        mean = board.mean(row)
        scale = shown.scale(board.columns[0])
        cells.append(formats.NOTHING if mean is None else f"{scale.value(mean.value)} ± {scale.value(mean.half)}")
    return cells


def facts(shown: Shown, row: Contestant) -> list[str]:
    """What stands under `HEADS`: costs, parameters, and where figures come from."""
    tokens, seconds, dollars = (cost_of(shown.board, row, name) for name in _COSTS)
    time = formats.NOTHING if formats.missing(seconds) else formats.duration(seconds)  # type: ignore[arg-type]
    return [
        formats.count(tokens),
        time,
        formats.dollars(dollars),
        formats.parameters(row.parameters),
        ", ".join(SOURCES[origin][0] for origin in row.origins),
    ]


def _paper(shown: Shown, one: Printed) -> list[str]:
    board = shown.board
    figures = [one.figures.get(column.key) for column in board.columns]
    cells = [
        f"({shown.scale(column).value(figure.fraction)})" if figure else formats.NOTHING
        for column, figure in zip(board.columns, figures, strict=True)
    ]
    empty = [formats.NOTHING] * (len(HEADS) - 1 + (len(board.columns) > 1))
    return [f"{one.method} ({one.said})", *cells, *empty, "published"]
