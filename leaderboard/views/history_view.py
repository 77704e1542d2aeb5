"""A method over its checkpoints, oldest first: what each was worth on each board, and what the gate said of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leaderboard.elements import formats
from leaderboard.elements.columns import scale_of
from leaderboard.elements.curve_chart import Point
from leaderboard.elements.nodes import Node, badge, el
from leaderboard.elements.plain_table import Cell, Head, Line, plain_table
from results.checkpoints import Checkpoint
from results.gate_history import Decided
from results.queries import RunRow
from results.statistics import Estimate

Definitions = Mapping[str, Mapping[str, Any]]
OUTCOMES = {"pass": "verified", "regressed": "failed"}
"""How a decision looks."""


@dataclass(frozen=True, slots=True)
class Stand:
    """A run that was made with a checkpoint.

    Attributes:
        number: Of the checkpoint, from 1, as they were registered.
        checkpoint: The checkpoint.
        run: The run.
        value: Of the metric.
        decided: What the gate decided of it on this metric, newest first.
    """

    number: int
    checkpoint: Checkpoint
    run: RunRow
    value: Estimate
    decided: tuple[Decided, ...]

    @property
    def board(self) -> str:
        """What was asked, and of whom."""
        return f"{self.run.method} · {self.run.dataset} · {self.run.setting}"


def stands(
    own: Sequence[Checkpoint],
    used: Mapping[str, Sequence[RunRow]],
    values: Mapping[str, Mapping[str, Estimate]],
    metric: str,
    decisions: Sequence[Decided],
) -> list[Stand]:
    """Runs by the age of their checkpoint.

    Args:
        own: Checkpoints, newest first, as the store has them.
        used: By hash, the runs made with each.
        values: By run and metric.
        metric: Which is shown.
        decisions: Of the gate, newest first.
    """
    return [
        Stand(
            number,
            one,
            run,
            values[run.run][metric],
            tuple(each for each in decisions if each.candidate == run.run and each.metric == metric),
        )
        for number, one in enumerate(reversed(own), 1)
        for run in used.get(one.sha256, ())
        if metric in values.get(run.run, {})
    ]


def history(rows: Sequence[Stand], metric: str, definitions: Definitions) -> Node:
    """The table."""
    scale = scale_of(metric, definitions)
    lines = []
    for row in rows:
        one = row.checkpoint
        made = f"{one.added_at:%Y-%m-%d %H:%M}" if one.added_at else formats.NOTHING
        outcomes = [
            badge(each.outcome, OUTCOMES.get(each.outcome, ""), f"Decided {each.decided_at:%Y-%m-%d %H:%M} UTC") for each in row.decided
        ]
        lines.append(
            Line(
                el("span", f"{row.number}  {one.sha256[:8]}", cls="method"),
                [
                    Cell(one.stage, made),
                    Cell(row.run.method, f"{row.run.dataset} · {row.run.setting}"),
                    Cell(scale.value(row.value.value), scale.interval(row.value.low, row.value.high)),
                    el("span", *outcomes) if outcomes else formats.NOTHING,
                ],
            )
        )
    heads = [
        Head("Checkpoint", "oldest first"),
        Head("Stage", "registered, UTC", wide=True),
        Head("Run", wide=True),
        Head(formats.metric_name(metric)[0], f"{scale.unit} [95 %]", number=True),
        Head("Gate", tip="What the gate said of this run as candidate, on this metric"),
    ]
    return plain_table("The method over its checkpoints", heads, lines, "history")


def points(rows: Sequence[Stand], metric: str, definitions: Definitions) -> list[Point]:
    """Of the chart: a curve for each board, over the checkpoints' numbers."""
    scale = scale_of(metric, definitions)
    found = []
    for row in rows:
        value, low, high = (number * scale.factor for number in (row.value.value, row.value.low, row.value.high))
        told = f"; gate: {row.decided[0].outcome}" if row.decided else ""
        shown = f"{scale.value(row.value.value)} {scale.interval(row.value.low, row.value.high)}{told}"
        found.append(Point(row.board, float(row.number), value, low, high, row.checkpoint.sha256[:8], shown))
    return sorted(found, key=lambda point: (point.series, point.x))
