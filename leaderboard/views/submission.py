"""Build the submit page: what to send, what the check found, and the board with the submission on it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leaderboard.elements import formats
from leaderboard.elements.formats import higher_is_better, scale_of
from leaderboard.elements.marks import row_marks
from leaderboard.elements.nodes import (
    Cell,
    Head,
    Line,
    Node,
    badge,
    el,
    facts,
    flat,
    fold,
    is_web_address,
    line_of_facts,
    link,
    metric_head,
    named,
    plain_table,
    prose,
    show_value,
)
from leaderboard.intake import UPLOAD_MIB
from leaderboard.views.board import FINISHED
from leaderboard.views.method import paper
from results.boards.board import Board, Row
from results.offered import LIMITS
from results.store.queries import RunRow
from results.submission.review import Submitted
from results.submission.storing import to_json

_METHOD = frozenset({"name", "version", "description", "authors", "url", "paper", "license", "parameters", "open_weights"})
"""Fields of a card's `method` that are shown in words."""
_SEVERITIES = {"error": "failed", "warning": "failed", "note": ""}
_NOT_STATED = "not stated"


def cards(method: str, runs: Sequence[RunRow]) -> Node:
    """Build the cards submitted with a method's runs, newest first; equal cards are merged.

    Args:
        method: Id of the method.
        runs: Runs of the method; runs without a card are left out.
    """
    groups: dict[str, list[RunRow]] = {}
    for run in sorted(runs, key=lambda run: run.updated_at, reverse=True):
        if run.card:
            same = (_part(run, "method"), run.card.get("contact"), run.card.get("training_data"))
            groups.setdefault(_key(same), []).append(run)
    return el("div", *(_card(method, same) for same in groups.values()), cls="stack")


def _card(method: str, runs: Sequence[RunRow]) -> Node:
    about, sent = _part(runs[0], "method"), runs[0].card or {}
    name, version = (str(about.get(key) or "") for key in ("name", "version"))
    paragraphs = [part for part in str(about.get("description") or "").split("\n\n") if part.strip()]
    trained = [_training(item) for item in sent.get("training_data") or () if isinstance(item, Mapping)]
    url = str(about.get("url") or "")
    return el(
        "section",
        el("p", "Submitted; its description is the submitter's and was not verified.", cls="note"),
        *(el("p", *prose(part)) for part in paragraphs),
        facts(
            [
                ("Name", f"{name or method}, version {version}" if version else name or method),
                ("Sent in by", ", ".join(map(str, about.get("authors") or ())) or _NOT_STATED),
                ("Contact", str(sent.get("contact") or "")),
                ("URL", link(url, url) if is_web_address(url) else url),
                ("Paper", paper(str(about.get("paper") or "")) or "none given"),
                ("Parameters", _size(about)),
                ("License", str(about.get("license") or "")),
                ("Trained on", el("ul", *trained) if trained else "none declared"),
                ("Found by the check", _findings(runs)),
            ]
        ),
        *(_rest(run, len(runs) > 1) for run in runs),
        cls="stack",
    )


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _part(run: RunRow, key: str) -> Mapping[str, Any]:
    part = (run.card or {}).get(key)
    return part if isinstance(part, Mapping) else {}


def _size(responses: Mapping[str, Any]) -> str:
    number = responses.get("parameters")
    size = formats.parameters(number) if number is not None else _NOT_STATED
    return ", ".join(filter(None, (size, formats.weights(responses.get("open_weights"), number))))


def _training(item: Mapping[str, Any]) -> Node:
    name, url = str(item.get("reference") or item.get("name") or _NOT_STATED), str(item.get("url") or "")
    query = len(item.get("question_ids") or ())
    more = [
        str(item["name"]) if item.get("reference") and item.get("name") else "",
        "" if is_web_address(url) else url,
        f"seeds {item['seeds']}" if item.get("seeds") else "",
        f"{query:,} question{'s' * (query != 1)} of it" if query else "",
        str(item.get("note") or ""),
    ]
    remarks = "; ".join(filter(None, more))
    return el("li", link(name, url) if is_web_address(url) else name, el("span", f" {remarks}", cls="aside") if remarks else None)


def _findings(runs: Sequence[RunRow]) -> Node | str:
    """Return the findings of the check as sentences, merged for runs that share them."""
    where: dict[str, tuple[Mapping[str, Any], list[str]]] = {}
    for run in runs:
        for item in _part(run, "submission").get("findings") or ():
            if isinstance(item, Mapping):
                where.setdefault(_key(item), (item, []))[1].append(f"{run.dataset} · {run.setting}")
    lines = [_finding(item, on if len(runs) > 1 else ()) for item, on in where.values()]
    return el("ul", *lines) if lines else "nothing"


def _finding(item: Mapping[str, Any], on: Sequence[str]) -> Node:
    severity, count = str(item.get("severity") or ""), item.get("count") or 0
    details = [str(position.get("detail") or "") for position in item.get("places") or () if isinstance(position, Mapping)]
    remarks = [f"{count:,} times" if count > 1 else "", *details, f"on {', '.join(on)}" if on else ""]
    details_text = "; ".join(filter(None, remarks))
    return el(
        "li",
        el("span", str(item.get("what") or "")),
        badge(severity, _SEVERITIES.get(severity, "")) if severity else None,
        el("span", f" {details_text}", cls="aside") if details_text else None,
        tip=str(item.get("try") or ""),
    )


def _rest(run: RunRow, several: bool) -> Node | None:
    """Return a fold with the remaining fields of a submission; None if none remain."""
    card = run.card or {}
    left = {key: value for key, value in card.items() if key not in ("method", "contact", "training_data")}
    left["method"] = {key: value for key, value in _part(run, "method").items() if key not in _METHOD}
    left["submission"] = {key: value for key, value in _part(run, "submission").items() if key != "findings"}
    left["training_data"] = [
        {"question_ids": item.get("question_ids")} for item in card.get("training_data") or () if isinstance(item, Mapping)
    ]
    rows: list[tuple[str, Node | str]] = [(key, show_value(value)) for key, value in flat(left) if value != ""]
    if not rows:
        return None
    title = f"All else that was sent for {run.dataset} · {run.setting}" if several else "All else that was sent"
    return fold(title, rows, f"sent-{run.run}")


Definitions = Mapping[str, Mapping[str, Any]]
Worth = Mapping[str, Mapping[str, Any]]
"""Result of `results.submission.storing` per metric id."""
_FINDING_TONES = {"error": "failed", "warning": "reference", "note": ""}


def how(*, held: bool = False) -> Node:
    """Build the instructions for submitters: which files to send and how they are checked; `held`: submissions need approval."""
    waits = "The owner of this board then accepts or rejects it; you find status and reason below."
    steps = (
        "Predictions are a file of JSON lines, one question each, with a card in YAML; or a bundle, one zip of both.",
        f"At most {UPLOAD_MIB} MiB for predictions or bundle, {LIMITS.card_bytes // 1024} KiB for the card. Scores are always "
        f"computed here.",
        "The files are first checked and shown next to the existing runs. Nothing is stored until you confirm.",
        *([waits] if held else []),
    )
    commands = ("ragmeter submit check predictions.jsonl --card card.yaml", "ragmeter submit bundle RUN -o FILE.zip")
    return el(
        "section",
        *(el("p", step, cls="note") for step in steps),
        el("ul", *(el("li", el("span", command, cls="command")) for command in commands)),
        cls="message",
    )


_MOST = 100
"""Maximum number of listed submissions."""
_STATUS = {"accepted": "verified", "held": "running", "rejected": "failed", "withdrawn": ""}
"""Style of a status."""


def submissions_table(items: Sequence[Submitted]) -> Node:
    """Build the list of submissions with status and reason, newest first."""
    heads = [
        Head("Method"),
        Head("Benchmark", "setting · seed", wide=True),
        Head("Status"),
        Head("Reason", wide=True),
        Head("Since", "UTC"),
    ]
    lines = [
        Line(
            el("span", item.run.method, cls="method", title=item.run.method),
            [
                Cell(item.run.dataset, f"{item.run.setting} · {item.run.seed}"),
                badge(item.status, _STATUS.get(item.status, "")),
                item.reason or formats.NOTHING,
                f"{item.decided_at:%Y-%m-%d %H:%M}",
            ],
        )
        for item in items[:_MOST]
    ]
    table = plain_table("Submissions to this board", heads, lines, "sent-scroll")
    left = len(items) - len(lines)
    return el("div", table, el("p", f"and {left:,} older ones", cls="note") if left > 0 else None, cls="stack")


def verdict(report: Mapping[str, Any]) -> Node:
    """Build the result of checking a submission, and whether it may be stored."""
    kinds = [finding["severity"] for finding in report["findings"]]
    counts = [f"{kinds.count(kind):,} {kind}{'s' * (kinds.count(kind) != 1)}" for kind in _FINDING_TONES]
    facts = (
        f"{report['method']}@{report['version']}",
        f"{report['dataset']}, {report['setting']}",
        f"{report['rows']:,} rows for {report['questions']:,} questions",
        ", ".join(counts),
    )
    verdict = "No errors" if report["ok"] else "It cannot be stored: fix the errors and send it again"
    return el("section", el("h2", verdict, cls="section"), line_of_facts(facts), cls="stack")


def findings(report: Mapping[str, Any]) -> Node | None:
    """Build the list of findings with their places in the file; None if there are none."""
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
    for item in report["findings"]:
        lines.append(
            Line(
                badge(item["severity"], _FINDING_TONES[item["severity"]]),
                [
                    el("span", item["what"], el("span", item["code"], cls="aside")),
                    _positions(item, report["file"]),
                    f"{item['count']:,}",
                    item["try"] or formats.NOTHING,
                ],
            )
        )
    return plain_table("What the check found", heads, lines, "findings-scroll")


def _positions(finding: Mapping[str, Any], file: str) -> Node | str:
    if not finding["places"]:
        return formats.NOTHING
    rows = []
    for position in finding["places"]:
        at = f"{file}:{position['line']}" if position["line"] is not None else ""
        rows.append(el("li", ": ".join(filter(None, (at, position["detail"])))))
    left = finding["count"] - len(finding["places"])
    return el("ul", *rows, el("li", f"… and {left:,} more", cls="aside") if left > 0 else None)


def preview(name: str, worth: Worth, board: Board, metrics: Sequence[str], definitions: Definitions, *, contaminated: bool = False) -> Node:
    """Build the board as it would look with the submission, sorted by the first metric; controls last.

    Args:
        name: Name of the submission.
        worth: The submission's results by metric id: value, low, high, n, insufficient_data.
        board: The stored runs on the board.
        metrics: Metric ids of the columns, at least one; the first one ranks.
        definitions: Metric definitions by id.
        contaminated: Whether its training data cover the test questions; it is then not ranked.
    """
    first = metrics[0]
    sign = -1 if higher_is_better(first, definitions) else 1
    rows = [_mine(name, worth, metrics, definitions, contaminated), *(_theirs(row, metrics, definitions) for row in board.rows)]
    ranked = sorted((row for row in rows if row.key is not None), key=lambda row: sign * (row.key or 0.0))
    lines = []
    for row in (*ranked, *(row for row in rows if row.key is None)):
        better = [other for other in ranked if row.key is not None and sign * (other.key or 0.0) < sign * row.key]
        position = formats.NOTHING if row.key is None else str(1 + len(better))
        lines.append(Line(row.name, [position, *row.cells]))
    heads = [
        Head("Method"),
        Head("#", tip=f"Rank by {formats.metric_label(first, metrics)}: only finished runs, no controls", number=True),
        *(metric_head(metric, definitions, metrics) for metric in metrics),
    ]
    return plain_table("Preview of the board with the submission", heads, lines, "preview-scroll")


@dataclass(frozen=True, slots=True)
class _Entry:
    """A line before it is ranked; `key` is the ranking value, None without a rank."""

    name: Node
    key: float | None
    cells: list[Cell | Node | str]


def _mine(name: str, worth: Worth, metrics: Sequence[str], definitions: Definitions, contaminated: bool) -> _Entry:
    marks = [badge("preview", "running", "Not stored yet")]
    if contaminated:
        marks.append(badge("contaminated", "failed", "Its training data cover these questions; not ranked"))
    cells = [_cell(worth.get(metric), scale_of(metric, definitions)) for metric in metrics]
    return _Entry(named(name, *marks), None if contaminated else worth.get(metrics[0], {}).get("value"), cells)


def _theirs(row: Row, metrics: Sequence[str], definitions: Definitions) -> _Entry:
    marks = [badge("control", "control")] if row.control else []
    marks += row_marks([row.run], reference=False, metrics=metrics)
    if row.run.status != FINISHED:
        marks.append(badge(row.run.status, "running" if row.run.status == "running" else "failed"))
    worth = to_json({metric: cell.estimate for metric, cell in row.cells.items()})
    cells = [_cell(worth.get(metric), scale_of(metric, definitions)) for metric in metrics]
    first = row.cells.get(metrics[0])
    key = worth[metrics[0]]["value"] if first is not None and not first.apart and row.run.may_win else None
    return _Entry(named(row.run.method, *marks), key, cells)


def _cell(worth: Mapping[str, Any] | None, scale: formats.Scale) -> Cell | Node | str:
    if worth is None or worth["value"] is None:
        return formats.NOTHING
    return Cell(scale.value(worth["value"]), scale.interval(worth["low"], worth["high"]), worth["insufficient_data"])
