"""Tables of the comparison page: values, paired differences, values by question kind, losses by stage."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import partial

from leaderboard.elements import formats
from leaderboard.elements.formats import Scale
from leaderboard.elements.marks import is_better, significance, status_badge, untested
from leaderboard.elements.nodes import Node, aside, button, el, named, note
from leaderboard.elements.pictures import DOWN, ROUND, UP, Look, Mark, Picture, bubbles
from leaderboard.elements.tables import Cell, Column, NumberColumn, WideColumn, difference_cell, table, value_cell
from results.boards.compare import Comparison, Pair, Slice
from results.errors import counted
from results.statistics.core import Estimate
from results.statistics.stages import StageLosses
from results.store.provenance import Attribution
from results.store.queries import RunRow

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
    columns: list[Column[tuple[RunRow, str, Estimate]]] = [
        Column("Run", lambda row: named(row[1], status_badge(row[0], progress=True))),
        NumberColumn("Value", lambda row: value_cell(row[2], shown), f"{shown.unit}, 95 % interval"),
        NumberColumn(
            "Questions", lambda row: Cell(f"{row[2].n:,}", f"{row[2].unscorable:,} unscorable" if row[2].unscorable else ""), "scored"
        ),
    ]
    return table("Values of the runs compared", "values-scroll", zip(result.runs, names(result), result.estimates, strict=True), columns)


def pairs(result: Comparison, shown: Scale, *, higher_is_better: bool) -> Node:
    """Build the table of all pairs: difference, interval, corrected p-value, and questions won, tied and lost."""
    called = names(result)

    def difference(pair: Pair) -> Cell:
        mark = significance(is_better(pair.difference.value, pair.p_holm, higher_is_better=higher_is_better))
        doubt = pair.difference.doubt(pair.p_holm)
        mark = untested(doubt) if doubt else mark
        return difference_cell(pair.difference, shown, mark=mark, note=doubt)

    def count(outcome: str, pair: Pair) -> Cell:
        number = _outcomes(pair, higher_is_better=higher_is_better)[outcome]
        return Cell(f"{number:,}", f"{number / pair.difference.n:.0%}")

    what = "First minus second on the questions that both have a value on, with its 95 % interval"
    test = "Sign-flip permutation test, corrected over all pairs shown"
    columns: list[Column[Pair]] = [
        Column("Pair", lambda pair: named(called[pair.first], aside(f"against {called[pair.second]}"))),
        NumberColumn("Difference", difference, shown.difference_unit, what),
        NumberColumn(
            "p", lambda pair: Cell(formats.p_value(pair.p_holm), f"{formats.p_value(pair.difference.p)} alone"), "Holm-corrected", test
        ),
        NumberColumn("Better", partial(count, "won"), "questions", "The first scores better"),
        NumberColumn("Equal", partial(count, "tied"), "questions"),
        NumberColumn("Worse", partial(count, "lost"), "questions", "The first scores worse"),
    ]
    return table("Paired differences", "pairs-scroll", result.pairs, columns)


def slices(result: Comparison, parts: Sequence[Slice], what: str, shown: Scale, *, zeros: bool) -> Node:
    """Build the table of values by kind of question, one column per run; `zeros`: also show how many have a score of zero."""

    def value(run: int, part: Slice) -> Cell:
        small = f"{part.zeros[run]:,} of {part.questions:,} at zero" if zeros else ""
        return value_cell(part.estimates[run], shown, note=small)

    columns: list[Column[Slice]] = [
        Column(what, lambda part: named(part.name or "no type given")),
        NumberColumn("Questions", lambda part: part.questions),
        *(NumberColumn(name, partial(value, run), shown.unit) for run, name in enumerate(names(result))),
    ]
    return table(f"Values by {what.lower()}", f"by-{what.lower().replace(' ', '-')}-scroll", parts, columns)


def draw_differences(result: Comparison, positions: Sequence[int], shown: Scale) -> Node:
    """Build the list of questions with each run's score; a click opens the question's page."""

    def question(position: int) -> Node:
        row = result.questions[position]
        gold = " · ".join(dict.fromkeys(row.answers)) or "none"
        return el("span", button(row.text, f"open-{position}", {"open": row.question}), aside(f"gold: {gold}"))

    def value(run: int, position: int) -> str:
        return shown.value(float(result.values[run, position]))

    columns: list[Column[int]] = [
        WideColumn("Question", question, "opens its page"),
        *(NumberColumn(name, partial(value, run), shown.unit) for run, name in enumerate(names(result))),
    ]
    return table("Questions on which the runs differ", "apart-scroll", positions, columns)


def stages(results: Sequence[Attribution], called: Sequence[str], shown: Scale) -> Node | None:
    """Build the table of losses by pipeline stage, one line per run; None if no run has all needed runs."""
    known = [(name, item.questions, item.losses) for name, item in zip(called, results, strict=True) if item.losses is not None]
    if not known:
        return None

    def lost(stage: str, row: tuple[str, int, StageLosses]) -> Cell:
        share = row[2].shares.get(stage)
        small = "" if formats.missing(share) else f"{share:.0%} of the loss"
        return difference_cell(getattr(row[2], stage), shown, note=small)

    unit = shown.difference_unit
    columns: list[Column[tuple[str, int, StageLosses]]] = [
        Column("Run", lambda row: named(row[0])),
        NumberColumn("As it is", lambda row: value_cell(row[2].normal, shown), shown.unit),
        *(
            NumberColumn(f"Lost in {stage}", partial(lost, stage), unit, tip)
            for stage, tip in _STAGES.items()
            if stage != "compression" or any(losses.compression for _, _, losses in known)
        ),
        NumberColumn(
            "Gained by evidence", lambda row: difference_cell(row[2].evidence_gain, shown), unit, "The run as it is minus closed book"
        ),
        NumberColumn("Questions", lambda row: row[1], tip="Scored in all of the settings"),
    ]
    return table("Losses by stage", "stages-scroll", known, columns)


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
    return el("section", el("ul", *lines), note(text) if any(item.missing for item in results) else None, cls="note")


def _outcomes(pair: Pair, *, higher_is_better: bool) -> dict[str, int]:
    """Return on how many questions the first run is better, equal and worse."""
    item = pair.difference
    won, lost = (item.wins, item.losses) if higher_is_better else (item.losses, item.wins)
    return {"won": won, "tied": item.ties, "lost": lost}


SIDES: dict[str, Look] = {"above": ("of-1", UP), "on": ("of-6", ROUND), "below": ("of-0", DOWN)}
"""Color and shape of marks by their side of the diagonal."""
_EXAMPLE = 200
"""Maximum characters of a question in a mark's hover text."""


def scatter(result: Comparison, first: int, second: int, shown: Scale) -> tuple[Picture | None, Counter[str]]:
    """Draw a scatter plot of two runs' scores per question, and count the questions by side of the diagonal.

    A mark's area is the number of questions with its pair of scores; infinite values are not drawn.

    Args:
        result: The comparison.
        first, second: Positions of the runs on the x and the y axis.
        shown: The metric's scale.
    """
    x_name, y_name = (names(result)[at] for at in (first, second))
    scored = [
        (float(x) * shown.factor, float(y) * shown.factor, row.text)
        for x, y, row in zip(result.values[first], result.values[second], result.questions, strict=True)
        if not formats.missing(x) and not formats.missing(y)
    ]
    examples = {(x, y): text for x, y, text in reversed(scored)}
    sides: Counter[str] = Counter()
    marks, rows = [], []
    # Those of few questions last: they would vanish behind the others.
    for (x, y), count in Counter((x, y) for x, y, _ in scored).most_common():
        side, example = "above" if y > x else "below" if y < x else "on", examples[x, y]
        sides[side] += count
        rows.append((x, y, count, example))
        if math.isfinite(x) and math.isfinite(y):
            short = example if len(example) <= _EXAMPLE else f"{example[:_EXAMPLE]}…"
            tip = f"{counted(count, 'question')}: {x_name} {x:.1f}, {y_name} {y:.1f}. For example: {short}"
            marks.append(Mark(x, y, count, SIDES[side], tip))
    label = "Scores of one run against the other's, one mark for each pair of scores that occurs"
    table = (x_name, y_name, "questions", "example"), rows
    return bubbles(marks, f"{x_name}, {shown.unit}", f"{y_name}, {shown.unit}", label, table), sides
