"""The matrix as files: tidy CSV, and the table as Markdown and LaTeX. All text is untrusted and is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from leaderboard.elements import formats
from leaderboard.elements.formats import MAIN
from leaderboard.elements.marks import SOURCES
from leaderboard.elements.nodes import Node, Order, text_rows
from leaderboard.matrix import overall
from leaderboard.matrix.rows import ALL_SETTINGS, OWN, VisibleRows, columns_of, default_order, labels, visible_rows
from leaderboard.matrix.table import Shown, draw_matrix, gaps, legend_lines
from results.boards import systems as column_figures
from results.boards.board import groups
from results.boards.folded import Folded
from results.boards.markup import latex_text, markdown_text, to_csv, to_latex, to_markdown
from results.boards.matrix import Cell, Column, matrix, ranked_cells, wanted_of
from results.boards.names import is_called
from results.boards.primary import primary_of
from results.boards.published import closest
from results.boards.systems import COSTS, System, systems
from results.boards.tables import BRACKETS, source_of
from results.store import checkpoints, cost_queries, invariants, provenance, queries, score_queries
from results.store.doubts import NOT_RESCORED
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
"""Columns of a matrix as CSV; values as stored, shares as fractions. Costs are those of the run."""


@dataclass(frozen=True, slots=True)
class Export:
    """Table of the board, prepared for a report or a file; `visible` has all rows, in display order."""

    shown: Shown
    visible: VisibleRows
    order: Order
    title: str
    papers: bool = True

    @property
    def rows(self) -> tuple[System, ...]:
        """Return the rows in display order."""
        return (*self.visible.pinned, *self.visible.rows, *self.visible.controls)

    @property
    def tree(self) -> Node:
        """Return the table without interactive elements."""
        return draw_matrix(self.shown, self.visible, self.order, live=False, papers=self.papers)


def csv(export: Export) -> str:
    """Render the matrix as CSV, one line per cell."""
    return to_csv(CSV_COLUMNS, tidy(export))


def tidy(export: Export) -> Iterator[list[Any]]:
    """Yield one CSV line per cell, in the order of `CSV_COLUMNS`; None means no value."""
    board = export.shown.board
    for row in export.rows:
        for column in board.columns:
            cell = board.cells.get((row.key, column.key))
            if cell is not None:
                yield _line(export.shown, row, column, cell)


def _line(shown: Shown, row: System, column: Column, cell: Cell) -> list[Any]:
    run, band, paired, cost = cell.run, cell.band, cell.paired, shown.board.costs.get(cell.run.run)
    theirs = run.origin if column.metric is None else source_of(run, column.metric)
    compared: list[Any] = [None] * 8
    if paired is not None:
        tested = (paired.value, paired.low, paired.high, paired.n, paired.p, paired.corrected)
        compared = [shown.board.reference, *tested, "column"]
    known = shown.comparison(column, cell)
    published: list[Any] = [None] * 4
    if known is not None:
        published = [known.figure.fraction, f"{known.figure.source}: {known.figure.setting}", known.gap, known.status]
    spent = [None] * 3 if cost is None else [cost.tokens, cost.seconds, cost.cost_usd]
    return [
        run.dataset, run.dataset_fingerprint, run.setting, run.seed, shown.board.questions[column.key], row.name,
        run.method_id, run.kind, theirs if theirs == NOT_RESCORED or (theirs in SOURCES and theirs != "run") else "measured",
        run.status, run.run, column.metric,
        "number" if shown.scale(column).factor != formats.PERCENT.factor else "fraction", cell.value,
        cell.low, cell.high, cell.n, cell.unscorable, cell.unscored,
        *([None] * 2 if cell.bounds is None else [cell.bounds.if_wrong, cell.bounds.if_right]),
        *([band.rank, band.low, band.high, str(band.standing)] if band else [None] * 4), cell.apart or None,
        cell.contaminated, *compared, *published, *spent, row.parameters, row.open_weights,
    ]  # fmt: skip


def markdown(export: Export) -> str:
    """Render the table as GitHub Markdown, as displayed."""
    heads, *rows = [[markdown_text(cell) for cell in row] for row in _rows(export)]
    title = f"**{markdown_text(export.title)}**\n\n"
    text = title + to_markdown(heads, rows) + "\n" + _listed(notes(export.shown))
    if not (names := overall.heads(export.shown)):
        return text
    means = [[markdown_text(cell) for cell in row] for row in overall.rows(export.shown)]
    return f"{text}\n{to_markdown([markdown_text(name) for name in names], means)}\n{_listed(overall.notes(export.shown))}"


def _listed(lines: Iterable[str]) -> str:
    return "".join(f"- {markdown_text(line)}\n" for line in lines)


def latex(export: Export) -> str:
    """Render the table as LaTeX with `booktabs`, as displayed."""
    heads, *rows = [[_latex_cell(cell) for cell in row] for row in _rows(export)]
    return to_latex(heads, rows, caption=latex_text(export.title), notes=[_latex_cell(note) for note in notes(export.shown)])


def _rows(export: Export) -> list[list[str]]:
    """Return the texts of the table's tree, header first; names of controls are followed by "control"."""
    results = []
    for row, (name, *cells) in text_rows(export.tree):
        control = " (control)" if "control" in row.classes.split() else ""
        results.append([name + control, *cells])
    return results


_SIGNS = str.maketrans(
    {"●": r"$\bullet$", "○": r"$\circ$", "▲": r"$\uparrow$", "▼": r"$\downarrow$", "↓": r"$\downarrow$", "↑": r"$\uparrow$"}
)


def _latex_cell(text: str) -> str:
    return latex_text(text).translate(_SIGNS)


def notes(shown: Shown) -> list[str]:
    """Return the notes below the table that explain numbers and symbols."""
    board = shown.board
    results = legend_lines(shown)
    if why := sorted({cell.insufficient_data for cell in board.cells.values() if cell.insufficient_data}):
        results.append(f"insufficient data: {'; '.join(why[:3])}")
    if left_out := [cell for cell in board.cells.values() if cell.unscored]:
        most = max(left_out, key=lambda cell: cell.unscored / (cell.n + cell.unscorable + cell.unscored))
        share = gaps(most).removesuffix(" unscored")
        results.append(f"unscored: questions without a value from the judge, left out; up to {share} of a cell's; {BRACKETS}")
    return results


def still_matrix(store: Store, experiment: str, title: str) -> Export | None:
    """Build the overview matrix of an experiment for a report or file: by the primary metric, else by each dataset's own; seeds
    are averaged.

    Only the experiment's metrics are used, although other experiments may have scored the same runs on more. None without scores.
    """
    definitions, datasets = score_queries.definitions(store), queries.datasets(store)
    every = groups(queries.runs(store, experiment))
    ids = [run.run for runs in every for run in runs]
    scored = column_figures.scored_metrics(store, ids)
    folded = Folded.of(every, cost_queries.costs(store, ids), invariants.violations(store, ids))
    stored = {row.name: row for row in queries.experiments(store)}.get(experiment)
    columns = columns_of(folded.groups, scored, definitions, datasets, MAIN, OWN, primary_of(stored) if stored is not None else None)
    columns = [column for column in columns if column.metric is not None]
    if not columns:
        return None
    cards, known = provenance.cards(store), checkpoints.known_checkpoints(store)
    rows = systems({column.key: column.runs for column in columns}, cards, known)
    wanted = wanted_of(columns, folded.series)
    figures = column_figures.figures(store, list(wanted))
    query = stored.reference if stored is not None else None
    able = [row.name for row in rows if not row.control]
    board = matrix(
        columns,
        rows,
        figures,
        ranked_cells(columns, rows, figures, cards=cards, known=known, violations=folded.violations),
        costs=folded.costs,
        reference=next((name for name in able if query and is_called(name, query)), None),
    )
    names = labels(folded.groups, ALL_SETTINGS if len({runs[0].setting for runs in folded.groups}) > 1 else "")
    shown = Shown(board, names, {**definitions, **COSTS}, closest(board))
    return whole_table(shown, title)


def whole_table(shown: Shown, title: str) -> Export:
    """Return a table with all of its rows in their usual order."""
    board = shown.board
    order = default_order(board)
    return Export(shown, visible_rows(board, order, (), (), "", 0, page=len(board.rows) or 1), order, title)
