"""Accept, hold, reject and withdraw submissions; boards show only those that are accepted.

The state is the run's origin. The stored card keeps every decision with its reason, so nothing is lost when it changes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from benchmarks.core.errors import UserError, unknown_name
from results.boards.systems import IMPLAUSIBLE, accepted, implausible
from results.store import queries
from results.store.queries import RunRow
from results.store.schema import now
from results.store.store import Store, shortened

SUBMITTED, VERIFIED = "submitted", "verified"
HELD, REJECTED, WITHDRAWN = queries.HIDDEN
ACTIONS = {"accept": SUBMITTED, "hold": HELD, "reject": REJECTED, "withdraw": WITHDRAWN}
"""Actions of the owner, with the resulting origin of the run."""
STATUS = {SUBMITTED: "accepted", VERIFIED: "accepted", HELD: HELD, REJECTED: REJECTED, WITHDRAWN: WITHDRAWN}
"""Status text for visitors, by origin."""
UNRANKED = "not ranked until a maintainer accepts it"
"""Reason of a submission with signs of an implausible result that nobody has accepted."""
WAITING = "waits for approval"
"""Reason of a held submission if the board requires approval."""
RECORD = "submission"
"""Key of the results of the check in the stored card: digests, contamination, warnings, verification, review."""
_REVIEW = "review"
_REASON_CHARS = 500


@dataclass(frozen=True, slots=True)
class Submitted:
    """Submission with its review status, for lists.

    Attributes:
        run: The run.
        status: "accepted", "held", "rejected" or "withdrawn"; "implausible" if boards show it, but do not rank it before it is accepted.
        reason: Reason of the newest decision; empty if there was none.
        decided_at: Time of that decision; without one, the time when the submission was received.
    """

    run: RunRow
    status: str
    reason: str
    decided_at: datetime

    def to_json(self) -> dict[str, Any]:
        """Return the submission with its status as a JSON object."""
        names = ("run", "method", "dataset", "setting", "seed", "origin")
        times = {"updated_at": self.run.updated_at.isoformat(), "decided_at": self.decided_at.isoformat()}
        return {name: getattr(self.run, name) for name in names} | {"status": self.status, "reason": self.reason} | times


def submissions(store: Store) -> list[Submitted]:
    """List all submissions, newest first, including hidden ones."""
    if not store.database.exists:
        return []
    rows = {row.run: row for row in queries.runs(store, hidden=True) if row.origin != queries.OURS}
    return [_submitted(row) for row in sorted(rows.values(), key=lambda row: row.updated_at, reverse=True)]


def has_submissions(store: Store) -> bool:
    """Return whether the store contains a submission."""
    return bool(store.database.rows("SELECT 1 FROM runs WHERE origin <> ? LIMIT 1", [queries.OURS], lenient=True))


def _submitted(row: RunRow) -> Submitted:
    decisions = (row.card or {}).get(RECORD, {}).get(_REVIEW, ())
    last: Mapping[str, Any] = decisions[-1] if decisions else {}
    decided_at = datetime.fromisoformat(last["at"]) if last else row.updated_at
    if row.origin not in queries.HIDDEN and implausible(row) and not accepted(row):
        return Submitted(row, IMPLAUSIBLE, UNRANKED, decided_at)
    return Submitted(row, STATUS.get(row.origin, row.origin), str(last.get("reason", "")), decided_at)


def decision(origin: str, reason: str, by: str) -> dict[str, str]:
    """Make the entry that records a review decision in a submission's card."""
    return {"status": STATUS[origin], "reason": reason, "by": by, "at": now().isoformat(timespec="seconds")}


def decide(store: Store, row: RunRow, action: str, reason: str = "", *, by: str = "owner") -> Submitted:
    """Accept, hold, reject or withdraw a submission; accepting one whose verification agreed makes it "verified".

    Args:
        store: The store that holds the submission.
        row: The submission's run.
        action: One of `ACTIONS`.
        reason: Reason shown to visitors; required except for `accept`.
        by: Name of the person who decided.

    Raises:
        UserError: The run is not a submission, or the reason is missing, too long or not one line.
    """
    if action not in ACTIONS:
        raise unknown_name("action", action, list(ACTIONS))
    if row.card is None or row.origin == queries.OURS:
        raise UserError(
            f"{row.path} is not a submission: it was made here",
            code="not-submission",
            where=shortened(row.run),
            try_this="`ragmeter submit` lists submissions",
        )
    text = reason.strip()
    if not text and action != "accept":
        raise UserError(
            f"{action} needs a reason, which is shown to visitors", code="reason-needed", where="--reason", try_this='--reason "…"'
        )
    if len(text) > _REASON_CHARS or not text.isprintable():
        raise UserError(
            f"a reason is one line of at most {_REASON_CHARS} printable characters",
            code="bad-reason",
            where="--reason",
            try_this="shorten it, or leave out line breaks and invisible characters",
        )
    with store.database.writing() as connection:
        stored = connection.execute("SELECT card FROM runs WHERE run = ?", [row.run]).fetchone()
        card = json.loads(stored[0]) if stored else {}
        record = card.setdefault(RECORD, {})
        agreed = (record.get("verification") or {}).get("agrees")
        origin = VERIFIED if action == "accept" and agreed else ACTIONS[action]
        record[_REVIEW] = [*record.get(_REVIEW, ()), decision(origin, text, by)]
        connection.execute("UPDATE runs SET origin = ?, card = ? WHERE run = ?", [origin, json.dumps(card, ensure_ascii=False), row.run])
    return next(item for item in submissions(store) if item.run.run == row.run)
