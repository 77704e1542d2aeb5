"""What the submit page shows: what to send, what the check found, and the board with the submission on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leaderboard.elements import formats
from leaderboard.elements.columns import explanation, higher_is_better, scale_of
from leaderboard.elements.nodes import Node, badge, el
from leaderboard.elements.plain_table import Cell, Head, Line, plain_table
from leaderboard.submitting import UPLOAD_MIB
from leaderboard.views.board_table import FINISHED
from results.board import Board, Row
from results.submission.limits import LIMITS
from results.submission.preview import to_json

Definitions = Mapping[str, Mapping[str, Any]]
Worth = Mapping[str, Mapping[str, Any]]
"""By metric id what `results.submission.preview` says of it."""
_SEVERITIES = {"error": "failed", "warning": "reference", "note": ""}


def how() -> Node:
    """What to send, and what happens to it."""
    steps = (
        "Predictions are a file of JSON lines, one question each, with a card in YAML; or a bundle, one zip of both.",
        f"At most {UPLOAD_MIB} MiB for predictions or bundle, {LIMITS.card_bytes // 1024} KiB for the card. Scores are "
        "computed here, never taken over.",
        "First everything is checked and shown beside the runs that are here. Nothing is stored before you say so.",
    )
    commands = ("ragmeter submission template BENCHMARK --setting SETTING --out FOLDER", "ragmeter submission bundle RUN FILE.zip")
    return el(
        "section",
        *(el("p", step, cls="note") for step in steps),
        el("ul", *(el("li", el("span", one, cls="command")) for one in commands)),
        cls="message",
    )


def verdict(report: Mapping[str, Any]) -> Node:
    """What was checked, and whether it may be stored."""
    kinds = [finding["severity"] for finding in report["findings"]]
    counts = [f"{kinds.count(kind):,} {kind}{'s' * (kinds.count(kind) != 1)}" for kind in _SEVERITIES]
    facts = (
        f"{report['method']}@{report['version']}",
        f"{report['dataset']}, {report['setting']}",
        f"{report['rows']:,} rows for {report['questions']:,} questions",
        ", ".join(counts),
    )
    said = "Nothing keeps it out" if report["ok"] else "It cannot be stored: mend the errors and send it again"
    return el("section", el("h2", said, cls="section"), el("p", *(el("span", one, cls="fact") for one in facts), cls="facts"), cls="stack")


def findings(report: Mapping[str, Any]) -> Node | None:
    """Every problem with its places in the file; None where nothing was found."""
    if not report["findings"]:
        return None
    heads = [
        Head("Kind"),
        Head("What", wide=True),
        Head("Where", "file:line", wide=True),
        Head("Times", number=True),
        Head("What to do", wide=True),
    ]
    lines = []
    for one in report["findings"]:
        lines.append(
            Line(
                badge(one["severity"], _SEVERITIES[one["severity"]]),
                [
                    el("span", one["what"], el("span", one["code"], cls="aside")),
                    _places(one, report["file"]),
                    f"{one['count']:,}",
                    one["try"] or formats.NOTHING,
                ],
            )
        )
    return plain_table("What the check found", heads, lines, "findings-scroll")


def _places(finding: Mapping[str, Any], file: str) -> Node | str:
    if not finding["places"]:
        return formats.NOTHING
    rows = []
    for place in finding["places"]:
        at = f"{file}:{place['line']}" if place["line"] is not None else ""
        rows.append(el("li", ": ".join(filter(None, (at, place["detail"])))))
    left = finding["count"] - len(finding["places"])
    return el("ul", *rows, el("li", f"… and {left:,} more", cls="aside") if left > 0 else None)


def preview(name: str, worth: Worth, board: Board, metrics: Sequence[str], definitions: Definitions, *, contaminated: bool = False) -> Node:
    """The board as it would be: the submission among the runs, sorted by the first metric; controls last, unranked.

    Args:
        name: The submission's.
        worth: By metric id: value, low, high, n, doubt.
        board: The runs that are there.
        metrics: The columns, the one that ranks first; at least one.
        definitions: Metric definitions by id.
        contaminated: Whether its training data cover what is asked: then it has no place.
    """
    first = metrics[0]
    sign = -1 if higher_is_better(first, definitions) else 1
    rows = [_mine(name, worth, metrics, definitions, contaminated), *(_theirs(row, metrics, definitions) for row in board.rows)]
    ranked = sorted((row for row in rows if row.key is not None), key=lambda row: sign * (row.key or 0.0))
    lines = []
    for row in (*ranked, *(row for row in rows if row.key is None)):
        better = [other for other in ranked if row.key is not None and sign * (other.key or 0.0) < sign * row.key]
        place = formats.NOTHING if row.key is None else str(1 + len(better))
        lines.append(Line(row.name, [place, *row.cells]))
    heads = [
        Head("Method"),
        Head("#", tip=f"Place by {formats.metric_label(first)}: finished runs, controls never", number=True),
        *(_head(metric, definitions) for metric in metrics),
    ]
    return plain_table("The board with the submission on it", heads, lines, "preview-scroll")


@dataclass(frozen=True, slots=True)
class _Entry:
    """A line before it is placed; `key` is the value that ranks it, None for what has no place."""

    name: Node
    key: float | None
    cells: list[Cell | Node | str]


def _mine(name: str, worth: Worth, metrics: Sequence[str], definitions: Definitions, contaminated: bool) -> _Entry:
    marks = [badge("preview", "running", "Not stored yet")]
    if contaminated:
        marks.append(badge("contaminated", "failed", "Its training data cover what is asked here; not ranked"))
    title = el("span", el("span", name, cls="method"), *marks)
    cells = [_cell(worth.get(metric), scale_of(metric, definitions)) for metric in metrics]
    return _Entry(title, None if contaminated else worth.get(metrics[0], {}).get("value"), cells)


def _theirs(row: Row, metrics: Sequence[str], definitions: Definitions) -> _Entry:
    marks = [badge("control", "control")] if row.control else []
    if row.run.origin != "run":
        marks.append(badge(row.run.origin, row.run.origin))
    if row.run.status != FINISHED:
        marks.append(badge(row.run.status, "running" if row.run.status == "running" else "failed"))
    worth = to_json({metric: cell.estimate for metric, cell in row.cells.items()})
    cells = [_cell(worth.get(metric), scale_of(metric, definitions)) for metric in metrics]
    first = row.cells.get(metrics[0])
    key = worth[metrics[0]]["value"] if first is not None and not first.apart and not row.control else None
    return _Entry(el("span", el("span", row.run.method, cls="method"), *marks), key, cells)


def _cell(worth: Mapping[str, Any] | None, scale: formats.Scale) -> Cell | Node | str:
    if worth is None or worth["value"] is None:
        return formats.NOTHING
    doubt = "†" if worth["doubt"] else ""
    return Cell(scale.value(worth["value"]), scale.interval(worth["low"], worth["high"]) + doubt, worth["doubt"])


def _head(metric: str, definitions: Definitions) -> Head:
    name, details = formats.metric_name(metric)
    unit = scale_of(metric, definitions).unit
    return Head(name, f"{details + ' · ' if details else ''}{unit}", explanation(metric, definitions), True)
