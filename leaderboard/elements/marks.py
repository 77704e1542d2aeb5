"""Mark rows and values: significance against the reference, where results come from, what the gate decided."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from leaderboard.elements import formats
from leaderboard.elements.nodes import Node, badge, el
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


def gate_marks(runs: Iterable[RunRow]) -> list[Node]:
    """Make the gate label of runs that were gate candidates: the worst of their newest outcomes; empty without a gate."""
    outcomes = {run.gate for run in runs if run.gate}
    worst = next((name for name in OUTCOMES if name in outcomes), None)
    if worst is None:
        return []
    return [badge(f"gate: {worst}", OUTCOMES[worst], "The newest gate about this method; its page shows the timeline")]
