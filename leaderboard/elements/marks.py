"""Mark rows and values: significance against the reference, small plots of intervals, where results come from, what the gate decided."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from leaderboard.elements import formats
from leaderboard.elements.nodes import Node, badge, el
from results.boards.matrix import Matrix
from results.boards.systems import CONTAMINATED, IMPLAUSIBLE, POSITIVE_CONTROL, POSITIVE_CONTROL_TIP, accepted, implausible
from results.statistics.places import Band, Standing
from results.store.doubts import NOT_RESCORED, not_rescored
from results.store.queries import OURS, RunRow

ALPHA = 0.05
SIGNS: Final[dict[bool | None, str]] = {True: "▲ ", False: "▼ ", None: ""}
"""Prefix of a value that is significantly better or worse than the reference."""
SOURCES = {
    "run": ("measured", "ours", "Run here: answers, scores and costs were measured by this harness"),
    "submitted": ("submitted", "", "Predictions that were sent in; scored here, not run here"),
    "verified": ("verified", "", "Sent in, and confirmed by a run made here"),
}
STATES = {"running": "running", "failed": "failed", "incomplete": "failed"}
"""Style of a run's status."""
OUTCOMES = {"regressed": "failed", "inconclusive": "", "pass": "verified"}
"""Style of each outcome, worst first."""


def is_better(difference: float, p: float | None, *, higher_is_better: bool) -> bool | None:
    """Return True if a difference is a significant gain, False if it is a significant loss, None if it is neither."""
    if p is None or formats.missing(p) or p >= ALPHA or difference == 0:
        return None
    return (difference > 0) == higher_is_better


def significance(better: bool | None) -> Node | None:
    """Make the mark ▲ (better) or ▼ (worse) with its words for screen readers; None if the test decided neither (`is_better`)."""
    if better is None:
        return None
    word = "better" if better else "worse"
    return el("span", SIGNS[better].strip(), cls=f"mark-{word}", role="img", label=f"significantly {word}")


def value_line(text: str, half: str, better: bool | None, band: Band | None = None) -> list[Node | str | None]:
    """Make the first line of a matrix cell: ▲ or ▼, a value, half its interval, and ● or ○.

    A matrix has hundreds of cells, so signs are text and have no elements; the cell's hover text says them in words.

    Args:
        better: The decision (`is_better`), which is also the cell's class (`decided`).
    """
    standing = None if band is None else band.standing
    best = el("span", Standing.BEST.sign, cls="best", role="img", label=str(standing)) if standing is Standing.BEST else None
    small = " ".join(filter(None, (half, "" if standing is None or best else standing.sign)))
    return [f"{SIGNS[better]}{text}", el("span", small, cls="half") if small else None, best]


def decided(better: bool | None) -> str:
    """Return the style class of a cell with a significant difference, with a space before it; empty for other cells."""
    return "" if better is None else " better" if better else " worse"


def untested(why: str) -> Node:
    """Make the mark "?" of a difference with insufficient data, with the reason for screen readers."""
    return el("span", Standing.UNTESTED.sign, cls="doubt", role="img", label=f"insufficient data: {why}")


def row_marks(runs: Collection[RunRow], *, reference: bool, metrics: Sequence[str] | None = None) -> list[Node]:
    """Make the labels of a row: the reference, the gate's outcome, a positive control, and results that were not computed here."""
    marks = [badge("reference", "reference", "All differences are from this method")] if reference else []
    marks += gate_marks(runs)
    if any(run.positive_control for run in runs):
        marks.append(badge(POSITIVE_CONTROL, "control", POSITIVE_CONTROL_TIP))
    origins = list(dict.fromkeys(run.origin for run in runs))
    for name, whose, tip in (SOURCES[origin] for origin in (origins if origins != [OURS] else [])):
        marks += [badge(name, name, tip), *([badge(whose, "", tip)] if whose else [])]
    reasons = dict.fromkeys(not_rescored(run, metrics) for run in runs)
    return [*marks, *(badge(NOT_RESCORED, "failed", why) for why in reasons if why)]


def status_badge(run: RunRow, *, progress: bool = False) -> Node | None:
    """Make the label for a run's status, if wanted with its progress; None if the run finished."""
    if run.status == "finished":
        return None
    text = f"{run.status} {run.done:,}/{run.questions:,}" if progress else run.status
    partial = "Values are over the questions answered so far; not ranked yet" if progress else ""
    return badge(text, STATES.get(run.status, ""), run.error or partial)


def control_badge(control: bool) -> Node | None:
    """Make the label for a control; None for other methods."""
    return badge("control", "control", "Sees the gold; shown for scale, never ranked") if control else None


def doubt_marks(run: RunRow, contaminated: Sequence[str], violations: Sequence[str] = ()) -> list[Node]:
    """Make the labels that say why a run's values may be wrong: covered test questions, implausible or inconsistent scores."""
    reasons = (
        (CONTAMINATED, "", contaminated),
        (IMPLAUSIBLE, "Accepted by a maintainer: " if accepted(run) else "Not ranked until a maintainer accepts it: ", implausible(run)),
        ("inconsistent", "These scores cannot be right: ", violations),
    )
    return [badge(name, "failed", tip + "; ".join(why)) for name, tip, why in reasons if why]


def run_marks(run: RunRow, contaminated: Sequence[str] = (), *, progress: bool = False) -> list[Node]:
    """Make all labels of a single run, with its status, if wanted with its progress."""
    status = status_badge(run, progress=progress)
    return [*row_marks([run], reference=False), *doubt_marks(run, contaminated), *([status] if status else [])]


def gate_marks(runs: Iterable[RunRow]) -> list[Node]:
    """Make the gate label of runs that were gate candidates: the worst of their newest outcomes; empty without a gate."""
    outcomes = {run.gate for run in runs if run.gate}
    worst = next((name for name in OUTCOMES if name in outcomes), None)
    if worst is None:
        return []
    return [badge(f"gate: {worst}", OUTCOMES[worst], "The newest gate about this method; its page shows the timeline")]


MEAN = "mean"
"""Key of the means among the axes of a matrix."""
_DIGITS = 3
"""Digits of a position on an axis from 0 to 1; a thousandth of a column's width is invisible."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Axis of the small interval plots in a table column, from the lowest to the highest end of any interval (not always from 0)."""

    low: float
    high: float

    def whisker(self, value: float, low: float, high: float, *, best: bool = False) -> Node | None:
        """Draw a small interval plot: a dot at the value on a line as long as its interval; None without an interval."""
        numbers = {"low": low, "high": high, "value": value}
        if any(map(formats.missing, numbers.values())):
            return None
        shares = {name: min(max((number - self.low) / (self.high - self.low), 0.0), 1.0) for name, number in numbers.items()}
        rounded = {name: round(share, _DIGITS) for name, share in shares.items()}
        return el("span", cls="whisker leading" if best else "whisker", numbers=rounded)


def axis(intervals: Iterable[tuple[float, float]]) -> Axis | None:
    """Make an axis that fits all (low, high) intervals of a column, NaN left out; None if all values are equal."""
    ends = [end for low, high in intervals if not (formats.missing(low) or formats.missing(high)) for end in (low, high)]
    return Axis(min(ends), max(ends)) if ends and min(ends) < max(ends) else None


def axes(board: Matrix) -> dict[str, Axis]:
    """Make the axes of all ranked columns, by key, and of the means (`MEAN`); without controls, which would compress the others."""
    rows = [row for row in board.rows if not row.control]
    results: dict[str, Axis | None] = {}
    for column in board.columns:
        cells = [cell for row in rows if (cell := board.cells.get((row.key, column.key))) and not cell.apart]
        results[column.key] = axis((cell.low, cell.high) for cell in cells) if column.ranked else None
    means = [mean for row in rows if (mean := board.mean(row)) is not None]
    results[MEAN] = axis((mean.low, mean.high) for mean in means)
    return {key: item for key, item in results.items() if item is not None}
