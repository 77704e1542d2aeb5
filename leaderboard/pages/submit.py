"""The submit page: get questions, send predictions, read what the check found, store them; every submission with its status."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import streamlit as st

from leaderboard import intake, read
from leaderboard.drawing import explain, show, tell
from leaderboard.elements.formats import ALL_RUNS, MAIN, board_key
from leaderboard.elements.nodes import el, message, note, prose, section
from leaderboard.intake import Draft, Verdict
from leaderboard.matrix.rows import ranked_families
from leaderboard.pages import draw_page
from leaderboard.read import Source, store_of
from leaderboard.views import submission
from leaderboard.widgets import as_page
from results.boards.board import board
from results.errors import UserError
from results.offered import LIMITS
from results.store.queries import OURS
from results.submission.from_store import Known, known_boards, template_of
from results.submission.storing import board_runs

BOARD_PAGE = "board.py"
_CHECKED, _CHANGED, _STORED = "submission-checked", "submission-changed", "submission-stored"


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
        show(section("Submissions", submission.submissions_table(sent)), "sent")


def _send(at: Source) -> None:
    """Draw the sender's view: the questions, the upload boxes, and the findings of the check."""
    show(submission.how(held=intake.waits_for_approval()), "how")
    _template(at)
    uploads = _uploads()
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


@st.cache_data(show_spinner=False, max_entries=4)
def _boards(at: Source) -> list[tuple[Known, str, int]]:
    return known_boards(store_of(at))


def _template(at: Source) -> None:
    """Offer the questions of a board with a card template."""
    boards = _boards(at)
    if not boards:
        return
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    with left:
        number = st.selectbox(
            "Benchmark · setting · seed",
            range(len(boards)),
            format_func=lambda number: f"{boards[number][0].name} · {boards[number][1]} · {boards[number][2]}",
            key="template-board",
        )
    board, setting, seed = boards[number if number < len(boards) else 0]
    with right:
        st.download_button(
            "Questions and card",
            lambda: template_of(store_of(at), board, setting, seed),
            "ragmeter-template.zip",
            "application/zip",
            key="template",
            icon=":material/download:",
            on_click="ignore",
            width="stretch",
        )


def _uploads() -> tuple[Any, Any]:
    """Draw the upload boxes; return the uploads, None if there are none."""
    left, right = st.columns(2)
    with left:
        predictions = st.file_uploader("Predictions (.jsonl) or bundle (.zip)", key="upload-predictions")
    with right:
        title = f"Card (.yaml), at most {LIMITS.card_bytes // 1024} KiB; a bundle contains its own"
        card = st.file_uploader(title, key="upload-card", max_upload_size=1)
    return predictions, card


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
    show(submission.verdict(report), "verdict")
    result = submission.findings(report)
    if result is not None:
        show(result, "findings")
    if verdict.notes:
        show(el("ul", *(el("li", *prose(note)) for note in verdict.notes), cls="note"), "notes")
    if not verdict.ok:
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
    table = submission.preview(report, verdict.preview, there, metrics, definitions)
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
        st.page_link(BOARD_PAGE, label="Open the board", icon=":material/leaderboard:", query_params=position)
    else:
        reason = f" ({item.reason})" if item.reason else ""
        show(message(f"{run.method} is {item.status}{reason}", f"{what}. The table below shows its status.", ()), "stored")
    if st.button("Send another one", key="another"):
        del st.session_state[_STORED]
        st.rerun()


if __name__ == "__main__":
    draw_page("submit")
