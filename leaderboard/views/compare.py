"""Tables of the comparison page: values, paired differences, values by question kind, losses by stage."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from leaderboard.elements import formats
from leaderboard.elements.formats import Scale
from leaderboard.elements.marks import is_better, significance
from leaderboard.elements.nodes import Cell, Head, Line, Node, badge, el, plain_table
from leaderboard.elements.pictures import DOWN, ROUND, UP, Look, Mark, Picture, bubbles
from results.boards.compare import Comparison, Slice
from results.statistics.core import Difference, Estimate
from results.store.provenance import Attribution

_STAGES = {
    "retrieval": "Gained by adding the evidence that retrieval missed to the candidates",
    "reranking": "Gained further by removing everything except the evidence: the cost of distractors and low ranks",
    "compression": "Gained further by reading the evidence in full instead of compressed",
    "reading": "What is missing even if the reader gets only the evidence",
}


def names(result: Comparison) -> list[str]:
    """Return a name per run; a fingerprint is added to runs of the same name."""
    methods = [run.method for run in result.runs]
    return [f"{run.method} ({run.short})" if methods.count(run.method) > 1 else run.method for run in result.runs]


def values(result: Comparison, shown: Scale) -> Node:
    """Build the table of each run's value with its interval."""
    lines = []
    for run, name, item in zip(result.runs, names(result), result.estimates, strict=True):
        state = (
            None
            if run.status == "finished"
            else badge(
                f"{run.status} {run.done:,}/{run.questions:,}", run.status if run.status in ("running", "failed", "incomplete") else ""
            )
        )
        notes = f"{item.unscorable:,} unscorable" if item.unscorable else ""
        lines.append(Line(el("span", el("span", name, cls="method"), state), [value_cell(item, shown), Cell(f"{item.n:,}", notes)]))
    heads = [Head("Run"), Head("Value", f"{shown.unit}, 95 % interval", number=True), Head("Questions", "scored", number=True)]
    return plain_table("Values of the runs compared", heads, lines, "values-scroll")


def pairs(result: Comparison, shown: Scale, *, higher_is_better: bool) -> Node:
    """Build the table of all pairs: difference, interval, corrected p-value, and questions won, tied and lost."""
    called = names(result)
    lines = []
    for pair in result.pairs:
        item = pair.difference
        won, lost = (item.wins, item.losses) if higher_is_better else (item.losses, item.wins)
        name = el("span", el("span", called[pair.first], cls="method"), el("span", f"against {called[pair.second]}", cls="aside"))
        cells: list[Cell | Node | str] = [
            difference_cell(item, shown, pair.p_holm, higher_is_better=higher_is_better),
            Cell(formats.p_value(pair.p_holm), f"{formats.p_value(item.p)} alone"),
            *(Cell(f"{count:,}", f"{count / item.n:.0%}") for count in (won, item.ties, lost)),
        ]
        lines.append(Line(name, cells))
    heads = [
        Head("Pair"),
        Head(
            "Difference",
            shown.difference_unit,
            number=True,
            tip="First minus second on the questions that both have a value on, with its 95 % interval",
        ),
        Head("p", "Holm-corrected", number=True, tip="Sign-flip permutation test, corrected over all pairs shown"),
        Head("Better", "questions", number=True, tip="The first scores better"),
        Head("Equal", "questions", number=True),
        Head("Worse", "questions", number=True, tip="The first scores worse"),
    ]
    return plain_table("Paired differences", heads, lines, "pairs-scroll")


def slices(result: Comparison, parts: Sequence[Slice], what: str, shown: Scale, *, zeros: bool) -> Node:
    """Build the table of values by kind of question, one column per run.

    Args:
        result: The comparison.
        parts: Its slices by the chosen property.
        what: Name of the property.
        shown: The metric's scale.
        zeros: Whether to show how many questions have a score of zero.
    """
    lines = []
    for part in parts:
        cells = [
            value_cell(item, shown, f"{zero:,} of {part.questions:,} at zero" if zeros else "")
            for item, zero in zip(part.estimates, part.zeros, strict=True)
        ]
        name = part.name or "no type given"
        lines.append(Line(el("span", name, cls="method"), [f"{part.questions:,}", *cells]))
    heads = [Head(what), Head("Questions", number=True), *(Head(name, shown.unit, number=True) for name in names(result))]
    return plain_table(f"Values by {what.lower()}", heads, lines, f"by-{what.lower().replace(' ', '-')}-scroll")


def draw_differences(result: Comparison, positions: Sequence[int], shown: Scale) -> Node:
    """Build the list of questions with each run's score; a click opens the question's page.

    Args:
        result: The comparison.
        positions: Positions of the questions to list.
        shown: The metric's scale.
    """
    lines = []
    for position in positions:
        row = result.questions[position]
        opener = el("button", row.text, cls="turn", action={"open": row.question}, key=f"open-{position}")
        gold = " · ".join(dict.fromkeys(row.answers)) or "none"
        name = el("span", opener, el("span", f"gold: {gold}", cls="aside"))
        lines.append(Line(name, [shown.value(float(value)) for value in result.values[:, position]]))
    heads = [Head("Question", "opens its page", wide=True), *(Head(name, shown.unit, number=True) for name in names(result))]
    return plain_table("Questions on which the runs differ", heads, lines, "apart-scroll")


def stages(results: Sequence[Attribution], called: Sequence[str], shown: Scale) -> Node | None:
    """Build the table of losses by pipeline stage, one line per run; None if no run has all needed runs."""
    known = [(name, item, item.losses) for name, item in zip(called, results, strict=True) if item.losses is not None]
    if not known:
        return None
    compressed = any(losses.compression for _, _, losses in known)
    columns = [stage for stage in _STAGES if stage != "compression" or compressed]
    lines = []
    for name, item, losses in known:
        shares = losses.shares
        cells = [value_cell(losses.normal, shown)]
        for stage in columns:
            part = getattr(losses, stage)
            share = shares.get(stage)
            note = "" if formats.missing(share) else f"{share:.0%} of the loss"
            cells.append(loss_cell(part, shown, note))
        cells.append(loss_cell(losses.evidence_gain, shown, ""))
        lines.append(Line(el("span", name, cls="method"), [*cells, f"{item.questions:,}"]))
    heads = [
        Head("Run"),
        Head("As it is", shown.unit, number=True),
        *(Head(f"Lost in {stage}", shown.difference_unit, number=True, tip=_STAGES[stage]) for stage in columns),
        Head("Gained by evidence", shown.difference_unit, number=True, tip="The run as it is minus closed book"),
        Head("Questions", number=True, tip="Scored in all of the settings"),
    ]
    return plain_table("Losses by stage", heads, lines, "stages-scroll")


def unattributed(results: Sequence[Attribution], called: Sequence[str]) -> Node | None:
    """Explain which runs' losses cannot be split, and why; None if all can."""
    lines = []
    for name, item in zip(called, results, strict=True):
        if item.obstacle:
            lines.append(el("li", el("span", f"{name}: ", cls="method"), item.obstacle))
        elif item.missing:
            needed = [el("span", setting, cls="command") for setting in item.missing]
            lines.append(el("li", el("span", f"{name} ", cls="method"), "still needs a run of the same pipeline in ", *needed))
    if not lines:
        return None
    text = "Add these settings to those of the experiment and run it again; finished runs are not repeated."
    steps = el("p", text, cls="note") if any(item.missing for item in results) else None
    return el("section", el("ul", *lines), steps, cls="note")


def outcomes() -> Node:
    """Build the legend of the win/tie/loss bars."""
    kinds = (("method", "left: the first is better"), ("unfinished", "middle: equal"), ("control", "right: the first is worse"))
    parts = (el("span", el("span", "■", cls=f"key-{kind}"), f" {text}", cls="fact") for kind, text in kinds)
    return el("p", *parts, cls="facts note")


def value_cell(item: Estimate, shown: Scale, note: str = "") -> Node:
    """Make a cell with a value and its interval beneath."""
    if formats.missing(item.value):
        return el("td", formats.NOTHING, cls="number")
    bracket = el("span", shown.interval(item.low, item.high), cls="interval")
    return el(
        "td",
        el("span", shown.value(item.value), cls="value"),
        bracket,
        el("span", note, cls="interval") if note else None,
        cls="number",
        tip=item.insufficient_data,
    )


def loss_cell(item: Difference | Estimate | None, shown: Scale, note: str) -> Node:
    """Make a cell with a signed loss; negative if the oracle for the stage does worse."""
    if item is None or formats.missing(item.value):
        return el("td", formats.NOTHING, cls="number")
    return el(
        "td",
        el("span", shown.difference(item.value), cls="value"),
        el("span", shown.differences(item.low, item.high), cls="interval"),
        el("span", note, cls="interval") if note else None,
        cls="number",
        tip=item.insufficient_data,
    )


def difference_cell(item: Difference, shown: Scale, p_holm: float, *, higher_is_better: bool) -> Node:
    """Make a cell with a difference and its interval; ▲ or ▼ marks a significant one."""
    mark = significance(is_better(item.value, p_holm, higher_is_better=higher_is_better))
    return el(
        "td",
        el("span", mark, el("span", shown.difference(item.value), cls="value"), cls="top"),
        el("span", shown.differences(item.low, item.high), cls="interval"),
        cls="number",
        tip=item.insufficient_data,
    )


OUTCOMES = ("won", "tied", "lost")
_STATED = {"won": "first better", "tied": "equal", "lost": "second better"}
_ROOM = 0.04
"""Minimum share of a bar with room for its count."""
SIDES: dict[str, Look] = {"above": ("of-1", UP), "on": ("of-6", ROUND), "below": ("of-0", DOWN)}
"""Color and shape of marks by their side of the diagonal."""
_EXAMPLE = 200


@dataclass(frozen=True, slots=True)
class Point:
    """Point of the scatter plot: a pair of scores that occurs on one or more questions.

    Attributes:
        x, y: The scores of one run and of the other.
        questions: Number of questions with these scores.
        example: Id of one of these questions.
        side: Position relative to the diagonal: `above`, `on` or `below`.
    """

    x: float
    y: float
    questions: int
    example: str
    side: str


def shares(result: Comparison, *, higher_is_better: bool) -> Node:
    """Draw one bar per pair of runs: the shares of questions on which the first is better, equal, or worse."""
    called, lines = names(result), []
    for pair in result.pairs:
        item = pair.difference
        won, lost = (item.wins, item.losses) if higher_is_better else (item.losses, item.wins)
        parts = []
        for outcome, count in zip(OUTCOMES, (won, item.ties, lost), strict=True):
            share = count / item.n
            tip = f"{_STATED[outcome]}: {count:,} of {item.n:,} questions in common"
            parts.append(el("span", f"{count:,}" if share > _ROOM else None, cls=f"{outcome} hover", numbers={"share": share}, tip=tip))
        lines.append(
            el(
                "div",
                el("span", f"{called[pair.first]} / {called[pair.second]}", cls="bar-name"),
                el("span", *parts, cls="bar"),
                cls="bar-line",
            )
        )
    marks = [el("span", f"{percent}%", numbers={"at": percent / 100}) for percent in (0, 25, 50, 75, 100)]
    axis = el("div", el("span", "share of questions", cls="bar-name"), el("span", *marks, cls="bar-axis"), cls="bar-line")
    alt = "Shares of questions on which the first run of each pair is better, equal or worse; the numbers are in the table above"
    return el("div", *lines, axis, cls="bars", role="img", label=alt)


def scatter(drawn: Sequence[Point], first: str, second: str, shown: Scale) -> Picture | None:
    """Draw a scatter plot of two runs' scores per question; a mark's area is the number of questions. None without points.

    Args:
        drawn: The result of `points`; infinite values are not drawn.
        first: The run along the x axis, by name.
        second: The run along the y axis.
        shown: The metric's scale.
    """
    heads = (first, second, "questions", "example")
    marks = [
        Mark(point.x, point.y, point.questions, SIDES[point.side], _tip(point, first, second))
        # Those of few questions last: they would vanish behind the others.
        for point in sorted(drawn, key=lambda point: -point.questions)
        if math.isfinite(point.x) and math.isfinite(point.y)
    ]
    label = "Scores of one run against the other's, one mark for each pair of scores that occurs"
    table = heads, [(point.x, point.y, point.questions, point.example) for point in drawn]
    return bubbles(marks, f"{first}, {shown.unit}", f"{second}, {shown.unit}", label, table)


def _tip(point: Point, first: str, second: str) -> str:
    text = point.example if len(point.example) <= _EXAMPLE else f"{point.example[:_EXAMPLE]}…"
    questions = "1 question" if point.questions == 1 else f"{point.questions:,} questions"
    return f"{questions}: {first} {point.x:.1f}, {second} {point.y:.1f}. For example: {text}"


def points(result: Comparison, first: int, second: int, shown: Scale) -> list[Point]:
    """Count the pairs of scores that occur, each with an example question and its side of the diagonal."""
    scored = [
        (float(x), float(y), row.text)
        for x, y, row in zip(result.values[first], result.values[second], result.questions, strict=True)
        if not formats.missing(x) and not formats.missing(y)
    ]
    examples = {(x, y): text for x, y, text in reversed(scored)}
    return [
        Point(x * shown.factor, y * shown.factor, count, examples[x, y], "above" if y > x else "below" if y < x else "on")
        for (x, y), count in Counter((x, y) for x, y, _ in scored).items()
    ]
