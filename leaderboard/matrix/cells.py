"""What a cell of the matrix says, in words: shared by the table, its hover help and the exports."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from leaderboard.elements import formats
from leaderboard.elements.columns import scale_of
from leaderboard.elements.formats import Scale
from results.beside import Comparison
from results.contestants import WHOLE, Contestant
from results.matrix import Cell, Column, Correction, Matrix

ALPHA = 0.05
CORRECTIONS: dict[Correction, str] = {
    "column": "Holm, within a benchmark",
    "all": "Holm, over all cells",
    "fdr": "False discovery rate, all cells",
}
CORRECTED: dict[Correction, str] = {
    "column": "Holm-corrected within the benchmark, 5 %",
    "all": "Holm-corrected over all cells of the matrix, 5 %",
    "fdr": "false discovery rate of 5 % over all cells of the matrix, Benjamini–Hochberg",
}
SOURCES = {
    "run": ("measured", "ours", "Run here: answers, scores and costs were measured by this harness"),
    "submitted": ("submitted", "", "Predictions that were sent in; scored here, not run here"),
    "verified": ("verified", "", "Sent in, and confirmed by a run made here"),
}
_COST_SCALES = {
    "tokens": Scale(1.0, 1, "tokens / question", "tokens"),
    "seconds": Scale(1000.0, 1, "ms / question", "ms"),
    "dollars": Scale(1000.0, 2, "US$ / 1,000 questions", "US$"),
}


def not_compared(shown: Shown) -> list[str]:
    """Where nobody is compared with the reference that was chosen, and why; one sentence a reason."""
    reasons: dict[str, list[str]] = {}
    for key, why in shown.board.without_reference().items():
        reasons.setdefault(why, []).append(", ".join(filter(None, shown.names[key])))
    return [f"Nobody is compared with {shown.board.reference} on {' or on '.join(where)}: {why}." for why, where in reasons.items()]


@dataclass(frozen=True, slots=True)
class Shown:
    """A matrix with what its drawing needs to know.

    Attributes:
        board: The matrix.
        names: Name and small print of its columns by key.
        definitions: Of metrics by id, costs among them.
        published: The closest printed figure by the column's key and the run.
    """

    board: Matrix
    names: Mapping[str, tuple[str, str]]
    definitions: Mapping[str, Mapping[str, Any]]
    published: Mapping[tuple[str, str], Comparison]

    def scale(self, column: Column) -> Scale:
        """How a column's values are written."""
        metric = column.metric or ""
        return _COST_SCALES.get(metric) or scale_of(metric, self.definitions)

    def metric(self, column: Column) -> str:
        """A column's metric; with its parameters where another column has the same metric with others."""
        name, details = formats.metric_name(column.metric or "")
        every = {formats.metric_name(other.metric or "") for other in self.board.columns}
        alone = sum(one == name for one, _ in every) == 1
        return name if alone or not details else f"{name} ({details})"

    def doubt(self, column: Column) -> str:
        """Why every interval of a column may not cover as it says; empty where some are sound."""
        cells = [cell for (_, key), cell in self.board.cells.items() if key == column.key and not math.isnan(cell.half)]
        doubts = [cell.doubt for cell in cells]
        return max(doubts, key=doubts.count) if doubts and all(doubts) else ""

    def comparison(self, column: Column, cell: Cell) -> Comparison | None:
        """The printed figure beside a cell."""
        found = self.published.get((column.key, cell.run.run))
        return found.left_open() if found is not None and cell.apart else found


def value(shown: Shown, column: Column, cell: Cell) -> str:
    """`63.4 ± 2.1`."""
    scale = shown.scale(column)
    if formats.missing(cell.value):
        return formats.NOTHING
    half = "" if formats.missing(cell.half) else f" ± {scale.value(cell.half)}"
    return scale.value(cell.value) + half


def doubted(shown: Shown, column: Column, cell: Cell | None = None) -> str:
    """† where an interval may not cover as it says: at a head where that holds of its column, else at a cell."""
    whole = bool(shown.doubt(column))
    return "†" if (whole if cell is None else bool(cell.doubt) and not whole) else ""


def rank(cell: Cell) -> str:
    """`rank 3 (1–5)`: the place, and the places that the tests leave open."""
    if cell.band is None:
        return ""
    low, high = cell.band.low, cell.band.high
    return f"rank {cell.band.rank}" + ("" if low == high == cell.band.rank else f" ({low}–{high})")


def why_apart(cell: Cell) -> str:
    """The reason why a cell is not ranked, short."""
    return cell.apart.partition(":")[0]


def gaps(cell: Cell) -> str:
    """`2 % unscored`: the share of a cell's questions that the judge gave no value; empty where it gave each one."""
    return formats.unscored(cell.unscored, cell.n + cell.unscorable + cell.unscored)


def better(column: Column, cell: Cell) -> bool | None:
    """Whether a cell is significantly better (True) or worse (False) than the reference; None where neither."""
    if cell.paired is None or formats.missing(cell.paired.corrected) or cell.paired.corrected >= ALPHA:
        return None
    return (cell.paired.value > 0) == column.higher_is_better


def published(one: Comparison, scale: Scale) -> str:
    """`GPR 57.1, gap −2.0, other setting`."""
    gap = "" if one.gap is None else f", gap {scale.difference(one.gap)}"
    return f"{one.figure.paper.upper()} {one.figure.value}{gap}, {one.status}"


def explained(shown: Shown, column: Column, cell: Cell) -> str:
    """All that is known of a cell, in sentences."""
    scale = shown.scale(column)
    counts = [f"{cell.n:,} of {shown.board.questions[column.key]:,} questions"]
    if cell.unscorable:
        counts.append(f"{cell.unscorable:,} unscorable")
    if cell.unscored:
        counts.append(f"{cell.unscored:,} that the judge gave no value")
    if cell.run.failed:
        counts.append(f"{cell.run.failed:,} failed and count as wrong")
    said = [f"{value(shown, column, cell)} ({', '.join(counts)})."]
    if cell.apart:
        said.append(f"Not ranked: {cell.apart}.")
    if cell.band is not None:
        band = f"between {cell.band.low} and {cell.band.high}" if cell.band.low < cell.band.high else "for sure"
        said.append(f"Rank {cell.band.rank}, {band}{'; not separable from the best' if cell.band.best else ''}.")
    if cell.paired is not None:
        one = cell.paired
        low, high = one.value - one.half, one.value + one.half
        said.append(
            f"{scale.difference(one.value)} {scale.differences(low, high)} to {shown.board.reference} on "
            f"{one.n:,} common questions, {formats.p_value(one.corrected)} corrected, "
            f"{formats.p_value(one.p)} before."
        )
    known = shown.comparison(column, cell)
    if known is not None:
        differs = f" What differs: {'; '.join(map(str, known.differs))}." if known.differs else ""
        said.append(f"Published: {known.figure.source} prints {known.figure.value} {known.figure.unit}; {known.status}.{differs}")
    if cell.doubt:
        said.append(f"† {cell.doubt}.")
    return " ".join(said)


def aside(row: Contestant) -> str:
    """What stands beneath a row's name: its method's id and its reader where they say more."""
    method = row.any_run.method_id
    parts = [] if method in (row.name, f"submitted:{row.name.rpartition('@')[0]}") else [method]
    readers = (reader for reader in row.readers if reader not in row.name and not (row.control and reader == WHOLE))
    return " · ".join([*parts, *(reader if reader == WHOLE else f"reader {reader}" for reader in readers)])
