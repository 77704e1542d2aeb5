"""A judge as page elements: its card, its habits, whom it agrees with, and how it places the controls."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from leaderboard.elements import formats
from leaderboard.elements.columns import scale_of
from leaderboard.elements.formats import PERCENT, Scale
from leaderboard.elements.nodes import Node, badge, el, message, prose
from leaderboard.elements.plain_table import Cell, Head, Line, facts, plain_table
from results.board import Board, Row
from results.flags import checked
from results.judge_cards import Corrected, JudgeCard
from results.statistics import Agreement, Estimate

KAPPA = Scale(1.0, 2, "", "")


def interval(estimate: Estimate, scale: Scale = PERCENT, *, tip: str = "") -> Cell:
    """A value with its 95 % interval beneath; † where the interval may not cover as often as it says."""
    if math.isnan(estimate.value):
        return Cell(formats.NOTHING, tip=tip)
    doubt = "†" if estimate.doubt else ""
    said = "; ".join(part for part in (tip, f"† {estimate.doubt}" if doubt else "") if part)
    return Cell(scale.value(estimate.value) + doubt, scale.interval(estimate.low, estimate.high), said)


def card(found: JudgeCard) -> Node:
    """Who the judge is, what it was asked, and what that took."""
    said, work = found.card, found.work
    rows: list[tuple[str, Node | str]] = [
        ("Kind", "compares two answers" if said["kind"] == "pair" else "judges one answer"),
        ("Model", "rules, no model" if said["rule"] else str(said["model"])),
        ("Answered as", ", ".join(f"{name} ({count:,} calls)" for name, count in work.models.items() if name)),
        ("Options", ", ".join(f"{name} = {value}" for name, value in {**said["config"], **said["also"]}.items())),
        ("Criteria", ", ".join(said["criteria"]) or ", ".join(one["name"] for one in said["measures"])),
        ("Source", str(said.get("source", ""))),
        ("Calls", f"{work.calls:,}" if work.calls else "none: nothing was asked of a model"),
    ]
    if work.calls:
        unusable = sum(work.unscored.values())
        reasons = el("ul", *(el("li", f"{number:,} × {reason}") for reason, number in work.unscored.items()))
        rows += [
            ("Unusable replies", el("div", f"{unusable:,} ({100 * work.failure_rate:.1f} %)", reasons if work.unscored else None)),
            (
                "Per call",
                f"{formats.duration(work.seconds)}, {work.prompt_tokens:,.0f} prompt + {work.completion_tokens:,.0f} completion tokens",
            ),
            ("Price of all calls", f"US$ {formats.dollars(work.cost_usd)}" if work.cost_usd else "no price configured"),
        ]
    return el("section", el("h2", str(said["id"])), el("p", *prose(str(said["definition"]))), facts(rows), cls="stack")


def habits(found: JudgeCard) -> Node | None:
    """How far its verdicts depend on chance, place and length; None where nothing was asked twice."""
    lines = list(_habits(found))
    if not lines:
        return None
    heads = [
        Head("By"),
        Head("Habit", wide=True),
        Head("Share", "× 100 [95 %]", "Intervals resample questions, never single verdicts", number=True),
        Head("Without it", "× 100", "What a judge without the habit would show", number=True),
        Head("Verdicts", "counted", number=True),
    ]
    return plain_table("Habits of the judge", heads, lines, "habits-scroll")


def _habits(found: JudgeCard) -> Iterator[Line]:
    for by, one in found.repetitions.items():
        if one.pairs:
            yield Line(by, ["differs when it is asked the same again", interval(one.differing), "0", f"{one.pairs:,}"])
    for by, flips in found.flips.items():
        if flips.n:
            yield Line(by, ["names another winner when the order is swapped", interval(flips), "0", f"{flips.n:,}"])
    for by, first in found.first_shown.items():
        if first.n:
            yield Line(by, ["the answer shown first wins", interval(first), "50", f"{first.n:,}"])
    for by, longer in found.longer.items():
        if longer.decided:
            slope = longer.per_doubling.value
            tip = (
                ""
                if math.isnan(slope)
                else (
                    f"An answer twice as long gains {formats.PLAIN.difference(slope)} log-odds once the strengths of the "
                    "methods are taken out; the share alone does not, a longer answer may well be the better one"
                )
            )
            yield Line(by, ["the longer answer wins", interval(longer.longer_wins, tip=tip), formats.NOTHING, f"{longer.decided:,}"])


def agreement(found: JudgeCard) -> Node:
    """Whom it agrees with."""
    lines = [
        *(_agreement(by, name, "judge", one) for by, all_ in found.with_judges.items() for name, one in all_.items()),
        *(_agreement(by, name, "person", one) for by, all_ in found.with_people.items() for name, one in all_.items()),
        *(_agreement(by, "people among themselves", "", one) for by, one in found.between_people.items()),
    ]
    if not lines:
        return message(
            "Nobody else has judged the same answers",
            "Agreement needs labels by people, or a second judge on the same runs. Draw items to label at random, "
            "have them labelled, and take the labels in.",
            ("ragmeter annotate export items.csv --criterion NAME", "ragmeter annotate import items.csv --annotator NAME"),
        )
    heads = [
        Head("By"),
        Head("Agreement with"),
        Head("Equal", "× 100 [95 %]", "Share of items that both judge alike", number=True),
        Head(
            "Kappa",
            "[95 %]",
            "Agreement beyond chance: 1 is perfect, 0 chance. Cohen's κ with a judge or a person, Krippendorff's α among people",
            number=True,
        ),
        Head("Items", "judged by both", number=True),
    ]
    return plain_table("Agreement", heads, lines, "agreement-scroll")


def _agreement(by: str, name: str, kind: str, one: Agreement) -> Line:
    who = el("span", el("span", name, cls="method"), badge(kind) if kind else None)
    return Line(by, [who, interval(one.raw), interval(one.corrected, KAPPA), f"{one.raw.n:,}"])


def corrected(rows: Sequence[Corrected], names: Mapping[str, str]) -> Node | None:
    """Means of runs in the eyes of people; None without labels.

    Args:
        rows: As the card has them.
        names: What to call runs.
    """
    if not rows:
        return None
    heads = [
        Head("Run"),
        Head("Measure"),
        Head("As judged", "× 100", "Mean of the judge's values over all items", number=True),
        Head(
            "Corrected by people",
            "× 100 [95 %]",
            "Prediction-powered mean: right only where the labelled items were drawn at random, as `annotate export` draws them",
            number=True,
        ),
        Head("People alone", "× 100 [95 %]", number=True),
        Head("Labels", number=True),
        Head("Worth", "labels", "As many labels as it would take to be as sure without the judge", number=True),
    ]
    lines = [
        Line(
            names.get(one.run, one.run[:8]),
            [
                one.measure,
                PERCENT.value(one.mean.judged),
                interval(one.mean.corrected),
                interval(one.mean.labelled),
                f"{one.mean.corrected.n:,}",
                formats.NOTHING if math.isinf(one.mean.worth) else f"{one.mean.worth:,.0f}",
            ],
        )
        for one in rows
    ]
    return plain_table("Means corrected by people", heads, lines, "corrected-scroll")


def controls(board: Board, definitions: Mapping[str, Mapping[str, Any]], measures: Mapping[str, str]) -> Node | None:
    """How the judge places the controls of a board, and its best method; None where no control was judged.

    Args:
        board: With the judge's measures as columns.
        definitions: Metric definitions by id.
        measures: What to call each column.
    """
    judged = [row for row in board.rows if row.control and row.cells]
    if not judged:
        return None
    best = _best(board, definitions)
    heads = [Head("Control")] + [
        Head(
            measures.get(metric, metric) + (" ⚑" if metric in board.flags else ""),
            f"{scale_of(metric, definitions).unit} [95 %]",
            "; ".join(board.flags.get(metric, ())),
            number=True,
        )
        for metric in board.metrics
    ]
    lines = [Line(_named(row, "control"), _cells(row, board, definitions), "control") for row in judged]
    if best is not None:
        lines.append(Line(_named(best, "best method"), _cells(best, board, definitions)))
    return el(
        "div",
        plain_table(f"Controls on {board.dataset}", heads, lines, f"controls-{board.dataset_fingerprint}"),
        *(el("p", f"⚑ {measures.get(metric, metric)} {'; '.join(wrong)}.", cls="note") for metric, wrong in board.flags.items()),
        None if board.flags else el("p", checked({row.run.method_id for row in judged}), cls="note"),
        cls="stack",
    )


def _best(board: Board, definitions: Mapping[str, Mapping[str, Any]]) -> Row | None:
    first = board.metrics[0]
    sign = 1 if definitions.get(first, {}).get("higher_is_better", True) else -1
    scored = [row for row in board.rows if not row.control and first in row.cells and not math.isnan(row.cells[first].estimate.value)]
    return max(scored, key=lambda row: sign * row.cells[first].estimate.value, default=None)


def _named(row: Row, mark: str) -> Node:
    return el("span", el("span", row.run.method, cls="method"), badge(mark, "control" if row.control else "reference"))


def _cells(row: Row, board: Board, definitions: Mapping[str, Mapping[str, Any]]) -> list[Cell | Node | str]:
    return [
        interval(row.cells[metric].estimate, scale_of(metric, definitions)) if metric in row.cells else formats.NOTHING
        for metric in board.metrics
    ]
