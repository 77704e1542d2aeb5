"""`submit --verify`: a stored submission against a run made here."""

from __future__ import annotations

import re
from pathlib import Path

from rich.text import Text

from benchmarks.errors import UserError
from ragmeter.console import emit, err, listing, out
from results import blessed, store_folder
from results.queries import RunRow
from results.store import Store
from results.submission.verifying import Verification, card_of, compare, find_ours, promote


def verify(run: str, against: str | None, tolerance: str, predictions: str | None, folder: Path | None, as_json: bool) -> int:
    """Compare a submission with a run made here, and promote it where they agree; returns the exit code."""
    if predictions is not None:
        raise UserError(
            "--verify takes a stored submission and no predictions",
            where=predictions,
            try_this="ragmeter submit FILE …, then ragmeter submit --verify RUN",
        )
    store = Store(store_folder(folder))
    submitted = blessed.find_run(store, run)
    card_of(submitted)
    ours = blessed.find_run(store, against) if against else find_ours(store, submitted)
    found = compare(store, submitted, ours, _fraction(tolerance))
    origin = promote(store, submitted, found)
    emit(found.to_json() | {"origin": origin}, as_json, lambda: _show_verification(found, submitted, ours, origin))
    return 0 if found.agrees else 1


def _fraction(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+)\s*(pp)?", text.strip())
    value = float(match[1]) / (100 if match[2] else 1) if match else -1.0
    if not 0 <= value <= 1:
        raise UserError(f"{text!r} is no tolerance", where="--tolerance", try_this="0.5pp or 0.005")
    return value


def _show_verification(found: Verification, submitted: RunRow, ours: RunRow, origin: str) -> None:
    out.print(Text(f"{submitted.path} ({submitted.run[:8]}) against {ours.path} ({ours.run[:8]})"), soft_wrap=True)
    out.print(f"same answer to {found.same_answers} of {found.questions} questions, same ranking for {found.same_evidence}")
    listing(
        ("metric", "submitted", "ours", "difference", "questions that differ", ""),
        [
            (
                one.metric,
                _hundred(one.submitted),
                _hundred(one.ours),
                _hundred(one.difference, "+"),
                f"{one.differing} of {found.questions}",
                "" if one.agrees else "beyond the tolerance",
            )
            for one in found.metrics
        ],
        empty="no metric in common",
    )
    for one in found.metrics:
        if not one.agrees:
            for question, theirs, mine in one.first:
                values = f"submitted {_hundred(theirs)}, ours {_hundred(mine)}"
                out.print(Text(f"  {one.metric} of question {question!r}: {values}"), soft_wrap=True)
    if found.not_compared:
        err.print(Text("not compared, ours was not scored on them: " + ", ".join(found.not_compared)), soft_wrap=True)
    allowed = f"tolerance {100 * found.tolerance:g} points on every mean"
    verdict = "verified" if found.agrees else f"not confirmed, stays {origin}"
    out.print(Text(f"{verdict} ({allowed})", style="green" if found.agrees else "red"))


def _hundred(value: float | None, sign: str = "") -> str:
    return "unscorable" if value is None else f"{100 * value:{sign}.2f}"
