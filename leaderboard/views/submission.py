"""Build the submit page: what to send, what the check found, and the board with the submission on it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leaderboard.elements import formats
from leaderboard.elements.formats import higher_is_better, scale_of
from leaderboard.elements.marks import control_badge, doubt_marks, row_marks, status_badge
from leaderboard.elements.nodes import (
    Node,
    aside,
    badge,
    el,
    facts,
    flat,
    fold_facts,
    is_web_address,
    line_of_facts,
    link,
    named,
    note,
    prose,
    section,
    show_value,
)
from leaderboard.elements.tables import Cell, Column, Definitions, NumberColumn, WideColumn, metric_columns, table
from leaderboard.intake import UPLOAD_MIB
from leaderboard.views.method import paper
from results.boards.board import Board, Row
from results.boards.systems import CONTAMINATED, IMPLAUSIBLE
from results.offered import LIMITS
from results.store.queries import RunRow
from results.submission.plausible import SIGNS
from results.submission.review import Submitted
from results.submission.storing import to_json

_TONES = {"error": "failed", "warning": "reference", "note": ""}
"""Style of a finding, by its severity."""
_NOT_STATED = "not stated"


def cards(method: str, runs: Sequence[RunRow]) -> Node:
    """Build the cards submitted with a method's runs, newest first; equal cards are merged.

    Args:
        runs: Runs of the method; runs without a card are left out.
    """
    groups: dict[str, list[RunRow]] = {}
    for run in sorted(runs, key=lambda run: run.updated_at, reverse=True):
        if run.card:
            same = (_part(run, "method"), run.card.get("contact"), run.card.get("training_data"))
            groups.setdefault(json.dumps(same, sort_keys=True), []).append(run)
    return el("div", *(_card(method, same) for same in groups.values()), cls="stack")


def _card(method: str, runs: Sequence[RunRow]) -> Node:
    about, sent = _part(runs[0], "method"), runs[0].card or {}
    name, version, url = (str(about.get(key) or "") for key in ("name", "version", "url"))
    paragraphs = [part for part in str(about.get("description") or "").split("\n\n") if part.strip()]
    trained = [str(item.get("reference") or item.get("name") or _NOT_STATED) for item in _mappings(sent, "training_data")]
    findings = dict.fromkeys(str(item.get("what") or "") for run in runs for item in _mappings(_part(run, "submission"), "findings"))
    rows: list[tuple[str, Node | str]] = [
        ("Name", f"{name or method}, version {version}" if version else name or method),
        ("Sent in by", ", ".join(map(str, about.get("authors") or ())) or _NOT_STATED),
        ("Contact", str(sent.get("contact") or "")),
        ("URL", link(url, url) if is_web_address(url) else url),
        ("Paper", paper(str(about.get("paper") or "")) or "none given"),
        ("Parameters", _size(about)),
        ("License", str(about.get("license") or "")),
        ("Trained on", ", ".join(trained) or "none declared"),
        ("Found by the check", "; ".join(findings) or "nothing"),
    ]
    return el(
        "section",
        note("Submitted; its description is the submitter's and was not verified."),
        *(el("p", *prose(part)) for part in paragraphs),
        facts(rows),
        *(_everything(run) for run in runs),
        cls="stack",
    )


def _part(run: RunRow, key: str) -> Mapping[str, Any]:
    part = (run.card or {}).get(key)
    return part if isinstance(part, Mapping) else {}


def _mappings(part: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    return [item for item in part.get(key) or () if isinstance(item, Mapping)]


def _size(responses: Mapping[str, Any]) -> str:
    number = responses.get("parameters")
    size = formats.parameters(number) if number is not None else _NOT_STATED
    return ", ".join(filter(None, (size, formats.weights(responses.get("open_weights"), number))))


def _everything(run: RunRow) -> Node:
    rows: list[tuple[str, Node | str]] = [(key, show_value(value)) for key, value in flat(run.card)]
    return fold_facts(f"The whole card and its findings, for {run.dataset} · {run.setting}", rows, f"sent-{run.run}")


Worth = Mapping[str, Mapping[str, Any]]
"""Result of `results.submission.storing` per metric id."""


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
    listed = el("ul", *(el("li", el("span", command, cls="command")) for command in commands))
    return el("section", *map(note, steps), listed, cls="message")


_MOST = 100
"""Maximum number of listed submissions."""
_STATUS = {"accepted": "verified", "implausible": "running", "held": "running", "rejected": "failed", "withdrawn": ""}
"""Style of a status."""


def submissions_table(items: Sequence[Submitted]) -> Node:
    """Build the list of submissions with status and reason, newest first."""
    columns: list[Column[Submitted]] = [
        Column("Method", lambda item: el("span", item.run.method, cls="method", title=item.run.method)),
        WideColumn("Benchmark", lambda item: Cell(item.run.dataset, f"{item.run.setting} · {item.run.seed}"), "setting · seed"),
        Column("Status", lambda item: badge(item.status, _STATUS.get(item.status, ""))),
        WideColumn("Reason", lambda item: item.reason or None),
        Column("Since", lambda item: item.decided_at, "UTC"),
    ]
    listed = table("Submissions to this board", "sent-scroll", items[:_MOST], columns)
    left = len(items) - _MOST
    return el("div", listed, note(f"and {left:,} older ones") if left > 0 else None, cls="stack")


def verdict(report: Mapping[str, Any]) -> Node:
    """Build the result of checking a submission, and whether it may be stored."""
    kinds = [finding["severity"] for finding in report["findings"]]
    counts = [f"{kinds.count(kind):,} {kind}{'s' * (kinds.count(kind) != 1)}" for kind in _TONES]
    facts = (
        f"{report['method']}@{report['version']}",
        f"{report['dataset']}, {report['setting']}",
        f"{report['rows']:,} rows for {report['questions']:,} questions",
        ", ".join(counts),
    )
    verdict = "No errors" if report["ok"] else "It cannot be stored: fix the errors and send it again"
    return section(verdict, line_of_facts(facts))


def findings(report: Mapping[str, Any]) -> Node | None:
    """Build the list of findings with their places in the file; None if there are none."""
    if not report["findings"]:
        return None
    columns: list[Column[Mapping[str, Any]]] = [
        Column("Kind", lambda item: badge(item["severity"], _TONES[item["severity"]])),
        WideColumn("What", lambda item: el("span", item["what"], aside(item["code"]))),
        WideColumn("Where", lambda item: _positions(item, report["file"]), "file:line"),
        NumberColumn("Times", lambda item: int(item["count"])),
        WideColumn("What to do", lambda item: item["try"] or None),
    ]
    return table("What the check found", "findings-scroll", report["findings"], columns)


def _positions(finding: Mapping[str, Any], file: str) -> Node | None:
    if not finding["places"]:
        return None
    rows = []
    for position in finding["places"]:
        at = f"{file}:{position['line']}" if position["line"] is not None else ""
        rows.append(el("li", ": ".join(filter(None, (at, position["detail"])))))
    left = finding["count"] - len(finding["places"])
    return el("ul", *rows, el("li", f"… and {left:,} more", cls="aside") if left > 0 else None)


def preview(report: Mapping[str, Any], worth: Worth, board: Board, metrics: Sequence[str], definitions: Definitions) -> Node:
    """Build the board as it would look with the submission, sorted by the first metric; controls last.

    Args:
        worth: The submission's results by metric id: value, low, high, n, insufficient_data.
        metrics: Metric ids of the columns, at least one; the first one ranks.
    """
    first = metrics[0]
    sign = -1 if higher_is_better(first, definitions) else 1
    entries = [_mine(report, worth, first), *(_theirs(row, first, metrics) for row in board.rows)]
    keys = sorted(sign * entry.key for entry in entries if entry.key is not None)

    def rank(entry: _Entry) -> int | None:
        return None if entry.key is None else 1 + keys.index(sign * entry.key)

    def value(metric: str, entry: _Entry) -> Cell | None:
        item, scale = entry.worth.get(metric), scale_of(metric, definitions)
        if item is None or item["value"] is None:
            return None
        return Cell(scale.value(item["value"]), scale.interval(item["low"], item["high"]), item["insufficient_data"])

    tip = f"Rank by {formats.metric_label(first, metrics)}: only finished runs, no controls"
    columns: list[Column[_Entry]] = [
        Column("Method", lambda entry: entry.name),
        NumberColumn("#", rank, tip=tip),
        *metric_columns(metrics, definitions, value, metrics),
    ]
    rows = sorted(entries, key=lambda entry: rank(entry) or len(entries) + 1)
    return table("Preview of the board with the submission", "preview-scroll", rows, columns)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A line of the preview; `key` is the ranking value, None without a rank."""

    name: Node
    key: float | None
    worth: Worth


def _mine(report: Mapping[str, Any], worth: Worth, first: str) -> _Entry:
    leaked = "Its training data cover these questions" if report["contamination"] else ""
    signs = "; ".join(item["what"] for item in report["findings"] if item["code"] in SIGNS)
    doubts = [badge(mark, "failed", f"Not ranked: {why}") for mark, why in ((CONTAMINATED, leaked), (IMPLAUSIBLE, signs)) if why]
    name = named(f"{report['method']}@{report['version']}", badge("preview", "running", "Not stored yet"), *doubts)
    return _Entry(name, None if doubts else worth.get(first, {}).get("value"), worth)


def _theirs(row: Row, first: str, metrics: Sequence[str]) -> _Entry:
    doubts = doubt_marks(row.run, row.contaminated, row.violations)
    marks = (control_badge(row.control), *row_marks([row.run], reference=False, metrics=metrics), *doubts, status_badge(row.run))
    worth = to_json({metric: cell.estimate for metric, cell in row.cells.items()})
    ranked = row.run.may_win and first in row.cells and not row.cells[first].apart
    return _Entry(named(row.run.method, *marks), worth[first]["value"] if ranked else None, worth)
