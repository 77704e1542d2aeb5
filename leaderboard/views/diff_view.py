"""What differs between two runs, as page elements: how they were made, what they score, where they part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from leaderboard.elements import formats
from leaderboard.elements.columns import explanation, scale_of
from leaderboard.elements.flattening import shown
from leaderboard.elements.nodes import Node, el
from leaderboard.elements.plain_table import Cell, Head, Line, plain_table
from results.diff import Apart, Diff, Number, Setting
from results.question_queries import AnswerRow
from results.statistics import Estimate

Definitions = Mapping[str, Mapping[str, Any]]
ALPHA = 0.05
_ANSWER = 300


def settings(found: Sequence[Setting]) -> Node:
    """How the two were made, where that differs."""
    if not found:
        return el("p", "The two were made alike: same data, settings, versions and machine.", cls="note")
    lines = [Line(one.key, [_side(one.first, one.in_first), _side(one.second, one.in_second)]) for one in found]
    heads = [Head("Setting"), Head("First", wide=True), Head("Second", wide=True)]
    return plain_table("How the two were made", heads, lines, "settings-scroll")


def _side(value: Any, there: bool) -> Cell | str:
    return shown(value) if there else Cell(formats.NOTHING, tip="This run has no such entry")


def numbers(found: Diff, definitions: Definitions) -> Node:
    """Both runs on each metric, with the paired difference where they are about the same questions."""
    heads = [
        Head("Metric"),
        Head("First", "95 % interval", number=True),
        Head("Second", "95 % interval", number=True),
        Head(
            "Difference",
            "second minus first",
            "Paired, on the questions that both have a value on; 95 % bootstrap interval. ▲ better, ▼ worse at 5 %",
            True,
        ),
        Head("p", "Holm-corrected", "Sign-flip permutation test, corrected over the metrics shown", True),
        Head("Higher", "questions", number=True),
        Head("Equal", "questions", number=True),
        Head("Lower", "questions", number=True),
    ]
    lines = [_number(one, definitions) for one in found.numbers]
    return plain_table("Both runs on each metric", heads, lines, "numbers-scroll")


def _number(one: Number, definitions: Definitions) -> Line:
    scale = scale_of(one.metric, definitions)
    name = el("span", formats.metric_label(one.metric), el("span", scale.unit, cls="unit"), tip=explanation(one.metric, definitions))
    apart = one.difference
    if apart is None:
        rest: list[Cell | Node | str] = [formats.NOTHING] * 5
    else:
        sure = one.p_holm is not None and one.p_holm < ALPHA and apart.value != 0
        mark = ("▲ " if (apart.value > 0) == one.higher_is_better else "▼ ") if sure else ""
        doubt = "†" if apart.doubt else ""
        rest = [
            Cell(mark + scale.difference(apart.value), scale.differences(apart.low, apart.high) + doubt, apart.doubt),
            formats.p_value(one.p_holm),
            f"{apart.wins:,}",
            f"{apart.ties:,}",
            f"{apart.losses:,}",
        ]
    return Line(name, [_estimate(one.first, scale), _estimate(one.second, scale), *rest])


def _estimate(one: Estimate | None, scale: formats.Scale) -> Cell | str:
    if one is None or formats.missing(one.value):
        return formats.NOTHING
    return Cell(scale.value(one.value), scale.interval(one.low, one.high) + ("†" if one.doubt else ""), one.doubt)


def questions(found: Diff, definitions: Definitions) -> Node:
    """The questions on which the two are furthest apart, with what both said."""
    scale = scale_of(found.by or "", definitions)
    heads = [
        Head("Question"),
        Head("First", scale.unit, number=True),
        Head("said", wide=True),
        Head("Second", scale.unit, number=True),
        Head("said", wide=True),
    ]
    return plain_table("Where they differ most", heads, [_apart(one, scale) for one in found.questions], "apart-scroll")


def _apart(one: Apart, scale: formats.Scale) -> Line:
    gold = f"gold: {' · '.join(one.question.golds) or 'none'}"
    return Line(
        el("span", one.question.text, el("span", gold, cls="aside")),
        [scale.value(one.first_value), _said(one.first), scale.value(one.second_value), _said(one.second)],
    )


def _said(one: AnswerRow) -> str:
    text = f"failed: {one.failed}" if one.failed else one.answer or "(none)"
    return text if len(text) <= _ANSWER else f"{text[:_ANSWER]}…"
