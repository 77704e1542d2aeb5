"""The submit page: get questions, send predictions, read what the check found, store them; every submission with its status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import streamlit as st

from leaderboard import intake, read
from leaderboard.drawing import explain, show, tell
from leaderboard.elements import formats
from leaderboard.elements.formats import ALL_RUNS, MAIN, board_key, higher_is_better, scale_of
from leaderboard.elements.marks import control_badge, doubt_marks, row_marks, status_badge
from leaderboard.elements.nodes import Node, aside, badge, el, line_of_facts, message, named, note, prose, section
from leaderboard.elements.tables import Cell, Column, Definitions, NumberColumn, WideColumn, metric_columns, table
from leaderboard.intake import UPLOAD_MIB, Draft, Verdict
from leaderboard.matrix.rows import ranked_families
from leaderboard.pages import page
from leaderboard.read import Source, store_of
from leaderboard.widgets import as_page
from results.boards.board import Board, Row, board
from results.boards.systems import CONTAMINATED, IMPLAUSIBLE
from results.errors import UserError
from results.offered import LIMITS
from results.store.queries import OURS
from results.submission.from_store import known_boards, template_of
from results.submission.plausible import SIGNS
from results.submission.review import Submitted
from results.submission.storing import board_runs, to_json

_CHECKED, _CHANGED, _STORED = "submission-checked", "submission-changed", "submission-stored"
# Style of a finding, by its severity.
_TONES = {"error": "failed", "warning": "reference", "note": ""}
# Maximum number of listed submissions.
_MOST = 100
# Style of a submission's status.
_STATUS = {"accepted": "verified", "implausible": "running", "held": "running", "rejected": "failed", "withdrawn": ""}
# Result of `results.submission.storing` per metric id.
Worth = Mapping[str, Mapping[str, Any]]
# A line of the preview: name, ranking value (None without a rank), and results.
_Entry = tuple[Node, float | None, Worth]


@dataclass(frozen=True, slots=True)
class _Checked:
    """Uploads that were checked and not stored: the files with what the check found, or why they were refused."""

    uploads: tuple[str, ...]
    draft: Draft | None
    verdict: Verdict | UserError


@as_page("submit", "Submit")
def render(at: Source) -> None:
    """Draw the page `submit`: send a submission, see its checks, and the status of all submissions."""
    if intake.submit_command() is None:
        tell(
            "This server is read-only",
            "The owner of this board can let submissions in, or take the files by hand.",
            ("ragmeter leaderboard --allow-submissions", "ragmeter submit PREDICTIONS.jsonl --card card.yaml"),
        )
    elif (stored := st.session_state.get(_STORED)) is not None:
        _thanks(at, *stored)
    else:
        _send(at)
    sent = read.submissions(at)
    if sent:
        show(section("Submissions", submissions_table(sent)), "sent")


def _send(at: Source) -> None:
    """Draw the sender's view: the questions, the upload boxes, and the findings of the check."""
    show(how(held=intake.waits_for_approval()), "how")
    _template(at)
    left, right = st.columns(2)
    predictions = left.file_uploader("Predictions (.jsonl) or bundle (.zip)", key="upload-predictions")
    title = f"Card (.yaml), at most {LIMITS.card_bytes // 1024} KiB; a bundle contains its own"
    uploads = predictions, right.file_uploader(title, key="upload-card", max_upload_size=1)
    checked = st.session_state.get(_CHECKED)
    if checked is not None and checked.uploads != _ids(uploads):
        _forget()
        # Another file in a box draws the page twice: without the old one, then with the new one.
        st.session_state[_CHANGED] = True
    if st.button("Check and preview", key="check", type="primary", disabled=uploads[0] is None):
        _check(at, *uploads)
    checked = st.session_state.get(_CHECKED)
    if checked is not None and isinstance(checked.verdict, UserError):
        explain(checked.verdict, "It cannot be read as a submission")
    elif checked is not None:
        _result(at, checked, checked.draft, checked.verdict)
    elif _CHANGED in st.session_state and uploads[0] is not None:
        show(note("The files have changed since the check: check them again."), "changed")


_boards = read.kept(known_boards, 4)


def _template(at: Source) -> None:
    """Offer the questions of a board with a card template."""
    boards = _boards(at)
    if not boards:
        return
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    number = left.selectbox(
        "Benchmark · setting · seed",
        range(len(boards)),
        format_func=lambda number: f"{boards[number][0].name} · {boards[number][1]} · {boards[number][2]}",
        key="template-board",
    )
    board, setting, seed = boards[number if number < len(boards) else 0]
    right.download_button(
        "Questions and card",
        lambda: template_of(store_of(at), board, setting, seed),
        "ragmeter-template.zip",
        "application/zip",
        key="template",
        icon=":material/download:",
        on_click="ignore",
        width="stretch",
    )


def _ids(uploads: tuple[Any, Any]) -> tuple[str, ...]:
    return tuple(upload.file_id for upload in uploads if upload is not None)


def _check(at: Source, predictions: Any, card: Any) -> None:
    _forget()
    st.session_state.pop(_CHANGED, None)
    ids, draft = _ids((predictions, card)), None
    try:
        draft = Draft(predictions.getvalue(), None if card is None else card.getvalue())
        with st.spinner("Checking and scoring …"):
            verdict = intake.hand_over(draft, Path(at.folder), keep=False)
    except UserError as error:
        if draft is not None:
            draft.discard()
        st.session_state[_CHECKED] = _Checked(ids, None, error.with_traceback(None))
        return
    st.session_state[_CHECKED] = _Checked(ids, draft, verdict)


def _forget() -> None:
    """Discard the checked submission."""
    checked = st.session_state.pop(_CHECKED, None)
    if checked is not None and checked.draft is not None:
        checked.draft.discard()


def _result(at: Source, checked: _Checked, draft: Draft, verdict: Verdict) -> None:
    report = verdict.report
    show(verdict_of(report), "verdict")
    result = findings(report)
    if result is not None:
        show(result, "findings")
    if verdict.notes:
        show(el("ul", *(el("li", *prose(note)) for note in verdict.notes), cls="note"), "notes")
    if not report["ok"]:
        return
    metric = _preview(at, verdict)
    waits = intake.waits_for_approval()
    shown = "shown to everybody after the owner has accepted it" if waits else "shown to everybody, marked as submitted"
    unchanged = "It cannot be changed: for other predictions, use a new version in the card."
    show(note(f"The submission is {shown}, with its card. {unchanged}"), "store-note")
    if st.button("Send it for approval" if waits else "Store it on the board", key="store"):
        _store(at, checked.uploads, draft, metric)


def _preview(at: Source, verdict: Verdict) -> str | None:
    """Draw the board with the submission on it; return the metric of its rank, None if none was scored."""
    if not verdict.preview:
        show(note("ragmeter cannot compute a metric from this submission, so there is no rank to preview."), "preview-note")
        return None
    report = verdict.report
    place = report["dataset_fingerprint"], report["setting"], report["seed"]
    boards = ((name, board_runs(chain(*read.run_groups(at, name)), *place)) for name in (*read.ordered_experiments(at), None))
    experiment, rows = next((item for item in boards if item[1]), (None, []))
    card = read.datasets(at).get(report["dataset_fingerprint"], {}).get("card", {})
    definitions, scored = read.definitions(at), read.metric_ids(at, tuple(run.run for run in rows))
    # Metrics that the others were not scored on cannot be compared, and must not rank.
    shared = [metric for metric in verdict.preview if metric in scored]
    metrics = ranked_families(rows, shared or list(verdict.preview), definitions, card, read.primary(at, experiment))[MAIN]
    # A submission that the store has already is its own preview.
    others = [row for row in rows if row.origin == OURS or row.method != f"{report['method']}@{report['version']}"]
    there = board(store_of(at), others, metrics=[metric for metric in metrics if metric in scored])
    table = preview(report, verdict.preview, there, metrics, definitions)
    text = (
        f"{report['dataset']} · {report['setting']} · seed {report['seed']}. Brackets: 95 % interval; without one, point at the cell for "
        "the reason. # orders by value: the board tests the differences."
    )
    show(section("Preview of the board", table, note(text)), "preview")
    return metrics[0]


def _store(at: Source, uploads: tuple[str, ...], draft: Draft, metric: str | None) -> None:
    try:
        with st.spinner("Checking once more, and storing …"):
            kept = intake.hand_over(draft, Path(at.folder), keep=True)
            read.look_again(at)
    except UserError as error:
        explain(error, "It was not stored")
        return
    if kept.run is None:
        # Between the two checks the data or the board have changed.
        st.session_state[_CHECKED] = _Checked(uploads, draft, kept)
    else:
        _forget()
        st.session_state[_STORED] = (kept.run, metric)
    st.rerun()


def _thanks(at: Source, stored: str, metric: str | None) -> None:
    item = next((item for item in read.submissions(at) if item.run.run == stored), None)
    if item is None:
        del st.session_state[_STORED]
        st.rerun()
        return
    run = item.run
    what = f"Run {run.short}: {run.done:,} questions of {run.dataset}"
    if item.status == "accepted":
        text = f"{what}, marked as {run.origin} until the method was also run here."
        show(message(f"{run.method} is on the board", text, (f"ragmeter submit verify {run.short}",)), "stored")
        position = {"experiment": ALL_RUNS, "board": board_key(run)} | ({} if metric is None else {"metric": metric})
        st.page_link(page("board"), label="Open the board", icon=":material/leaderboard:", query_params=position)
    else:
        reason = f" ({item.reason})" if item.reason else ""
        show(message(f"{run.method} is {item.status}{reason}", f"{what}. The table below shows its status.", ()), "stored")
    if st.button("Send another one", key="another"):
        del st.session_state[_STORED]
        st.rerun()


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


def verdict_of(report: Mapping[str, Any]) -> Node:
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

    def positions(finding: Mapping[str, Any]) -> Node | None:
        lines = [("" if at["line"] is None else f"{report['file']}:{at['line']}", at["detail"]) for at in finding["places"]]
        left = finding["count"] - len(lines)
        more = el("li", f"… and {left:,} more", cls="aside") if left > 0 else None
        return el("ul", *(el("li", ": ".join(filter(None, parts))) for parts in lines), more) if lines else None

    columns: list[Column[Mapping[str, Any]]] = [
        Column("Kind", lambda item: badge(item["severity"], _TONES[item["severity"]])),
        WideColumn("What", lambda item: el("span", item["what"], aside(item["code"]))),
        WideColumn("Where", positions, "file:line"),
        NumberColumn("Times", lambda item: int(item["count"])),
        WideColumn("What to do", lambda item: item["try"] or None),
    ]
    return table("What the check found", "findings-scroll", report["findings"], columns)


def preview(report: Mapping[str, Any], worth: Worth, board: Board, metrics: Sequence[str], definitions: Definitions) -> Node:
    """Build the board as it would look with the submission, sorted by the first metric; controls last.

    Args:
        worth: The submission's results by metric id: value, low, high, n, insufficient_data.
        metrics: Metric ids of the columns, at least one; the first one ranks.
    """
    first = metrics[0]
    sign = -1 if higher_is_better(first, definitions) else 1
    entries = [_mine(report, worth, first), *(_theirs(row, first, metrics) for row in board.rows)]
    keys = sorted(sign * key for _, key, _ in entries if key is not None)

    def rank(entry: _Entry) -> int | None:
        return None if entry[1] is None else 1 + keys.index(sign * entry[1])

    def value(metric: str, entry: _Entry) -> Cell | None:
        item, scale = entry[2].get(metric), scale_of(metric, definitions)
        if item is None or item["value"] is None:
            return None
        return Cell(scale.value(item["value"]), scale.interval(item["low"], item["high"]), item["insufficient_data"])

    tip = f"Rank by {formats.metric_label(first, metrics)}: only finished runs, no controls"
    columns: list[Column[_Entry]] = [
        Column("Method", lambda entry: entry[0]),
        NumberColumn("#", rank, tip=tip),
        *metric_columns(metrics, definitions, value),
    ]
    rows = sorted(entries, key=lambda entry: rank(entry) or len(entries) + 1)
    return table("Preview of the board with the submission", "preview-scroll", rows, columns)


def _mine(report: Mapping[str, Any], worth: Worth, first: str) -> _Entry:
    leaked = "Its training data cover these questions" if report["contamination"] else ""
    signs = "; ".join(item["what"] for item in report["findings"] if item["code"] in SIGNS)
    doubts = [badge(mark, "failed", f"Not ranked: {why}") for mark, why in ((CONTAMINATED, leaked), (IMPLAUSIBLE, signs)) if why]
    name = named(f"{report['method']}@{report['version']}", badge("preview", "running", "Not stored yet"), *doubts)
    return name, None if doubts else worth.get(first, {}).get("value"), worth


def _theirs(row: Row, first: str, metrics: Sequence[str]) -> _Entry:
    doubts = doubt_marks(row.run, row.contaminated, row.violations)
    marks = (control_badge(row.control), *row_marks([row.run], reference=False, metrics=metrics), *doubts, status_badge(row.run))
    worth = to_json({metric: cell.estimate for metric, cell in row.cells.items()})
    ranked = row.run.may_win and first in row.cells and not row.cells[first].apart
    return named(row.run.method, *marks), worth[first]["value"] if ranked else None, worth
