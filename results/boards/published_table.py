"""Show the comparison with published figures as a table: CSV, Markdown, LaTeX, or cells for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from results.boards import markup, tables
from results.boards.board import Board
from results.boards.published import Comparison, on_board

HEADS = ("method", "metric", "ours", "published", "gap", "status", "what differs", "source")
CSV_COLUMNS = (
    "dataset", "setting", "method", "run_metric", "value", "low", "high", "n", "published", "gap", "status", "differs",
    "paper", "table", "published_method", "published_setting", "printed", "unit", "note",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Compared:
    """Row of the comparison table: one cell of a board with one published figure."""

    board: Board
    method: str
    metric: str
    comparison: Comparison

    @property
    def cells(self) -> list[str]:
        """Return the row's table cells, in the order of `HEADS`; numbers have as many digits as the printed one."""
        result, figure, ours = self.comparison, self.comparison.figure, self.comparison.ours
        printed = figure.value if figure.unit == "percent" or figure.fraction is None else f"{100 * figure.fraction:.1f}"
        return [
            self.method,
            self.metric,
            tables.plus_minus(ours.value, ours.low, ours.high) if ours and ours.n else "–",
            printed,
            "–" if result.gap is None else tables.minus(f"{100 * result.gap:+.1f}"),
            result.status,
            "; ".join(map(str, result.differs)),
            f"{figure.source}: {figure.method}",
        ]

    def tidy(self) -> list[Any]:
        """Return the row as CSV values, in the order of `CSV_COLUMNS`; scores are fractions."""
        result, figure, ours = self.comparison, self.comparison.figure, self.comparison.ours
        return [
            self.board.dataset, self.board.setting, self.method, self.metric,
            *((ours.value, ours.low, ours.high, ours.n) if ours else (None,) * 4),
            figure.fraction, result.gap, result.status, "; ".join(map(str, result.differs)), figure.paper, figure.table,
            figure.method, figure.setting, figure.value, figure.unit, figure.note,
        ]  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with values as fractions."""
        ours = self.comparison.ours
        return {
            "dataset": self.board.dataset,
            "our_setting": self.board.setting,
            "our_method": self.method,
            "metric": self.metric,
            "ours": markup.plain({name: getattr(ours, name) for name in ("value", "low", "high", "n")}) if ours else None,
        } | self.comparison.to_json()


def compare_boards(boards: Iterable[Board]) -> list[Compared]:
    """List every board cell with every published figure of the same method, dataset and metric; the closest setting comes
    first.
    """
    return [
        Compared(board, names[run], metric, comparison)
        for board in boards
        for names in [{row.run.run: row.run.method for row in board.rows}]
        for (run, metric), comparisons in on_board(board).items()
        for comparison in comparisons
    ]


def closest(rows: Iterable[Compared]) -> list[Compared]:
    """Keep, for each board cell and paper, only the figure with the closest setting."""
    first: dict[tuple[Any, ...], Compared] = {}
    for row in rows:
        board = row.board
        key = (board.dataset_fingerprint, board.setting, board.seed, row.method, row.metric, row.comparison.figure.paper)
        first.setdefault(key, row)
    return list(first.values())


def render(rows: Sequence[Compared], form: str) -> str:
    """Render the comparison as one text.

    Args:
        rows: The result of `compare_boards`. LaTeX and Markdown tables show only the closest figure and the keys that differ.
        form: One of `offered.TABLES`.
    """
    if form == "csv":
        return markup.to_csv(CSV_COLUMNS, (row.tidy() for row in rows))
    heads = ("dataset", *HEADS)
    lines = [
        [row.board.dataset, *row.cells[:6], ", ".join(differ.key for differ in row.comparison.differs), row.cells[7]]
        for row in closest(rows)
    ]
    if form == "markdown":
        return markup.to_markdown(heads, [[markup.markdown_text(cell) for cell in line] for line in lines], left=3)
    return markup.to_latex(
        [markup.latex_text(head) for head in heads],
        [[markup.latex_text(cell) for cell in line] for line in lines],
        caption="Comparison with published results",
        notes=[r"Values $\times$ 100 $\pm$ half their 95\,\% interval"],
        left=3,
    )
