"""Report the age of answers: replies from the cache, and answers of unidentified deployments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from methods.api import UNKNOWN_REVISION
from results.store.store import Store

if TYPE_CHECKING:
    from results.store.queries import RunRow

_NAMED = 2
"""Maximum number of methods named; further ones are counted."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """Number and age of the cached model replies that a run reused.

    Attributes:
        replies: Number of replies from the cache.
        oldest: When the oldest of these was received, UTC; None without one.
        unknown: Models at endpoints of unidentified deployments: `MODEL at URL`.
        answered: When the run was first started, UTC: no answer is older, except by cached replies.
    """

    replies: int
    oldest: datetime | None
    unknown: tuple[str, ...]
    answered: datetime

    @property
    def since(self) -> datetime:
        """Return the time of the oldest reused reply, else of the run's start (UTC)."""
        return min(self.answered, self.oldest or self.answered)

    @property
    def uncertain(self) -> bool:
        """Return whether replies were reused although the model behind the endpoint may have changed since."""
        return self.replies > 0 and bool(self.unknown)

    def to_json(self) -> dict[str, Any]:
        """Return number and age of the reused replies as a JSON object."""
        return {
            "cached_replies": self.replies,
            "oldest_reply": self.oldest.isoformat() if self.oldest else None,
            "revision_unknown": list(self.unknown),
            "answered_since": self.answered.isoformat(),
            "reused_of_unknown_revision": self.uncertain,
        }


def reuse(store: Store, runs: Sequence[RunRow]) -> dict[str, Reuse]:
    """Read how many cached replies runs reused, by run id."""
    if not runs:
        return {}
    rows = store.database.rows(
        "SELECT run, sum(cached_replies), min(oldest_reply) FROM predictions WHERE list_contains(?, run) GROUP BY run",
        [[run.run for run in runs]],
    )
    cached = {run: (int(count or 0), oldest) for run, count, oldest in rows}
    results = {}
    for run in runs:
        count, oldest = cached.get(run.run, (0, None))
        unknown = tuple(who for who, revision in run.provenance.get("revisions", {}).items() if revision == UNKNOWN_REVISION)
        results[run.run] = Reuse(count, _moment(oldest), unknown, run.started_at)
    return results


def merged(several: Iterable[Reuse]) -> Reuse:
    """Merge the reuse of several runs that are shown as one row."""
    every = list(several)
    oldest = min((item.oldest for item in every if item.oldest), default=None)
    unknown = tuple(dict.fromkeys(who for item in every for who in item.unknown))
    return Reuse(sum(item.replies for item in every), oldest, unknown, min(item.answered for item in every))


def reuse_line(rows: Mapping[str, Reuse], began: datetime | None = None) -> str | None:
    """Describe the age of reused answers in one line; None if there are none.

    Args:
        rows: Reuse by the method's name.
        began: Start of the current command: answers made since then are not reported as reused. None reports all.
    """
    shown = {name: item for name, item in rows.items() if item.replies or (item.unknown and (began is None or item.answered < began))}
    if not shown:
        return None
    if len(shown) > _NAMED:
        oldest = min(item.since for item in shown.values())
        unknown = sum(bool(item.unknown) for item in shown.values())
        also = f"; the revision is unknown for {unknown}" if unknown else ""
        return f"{len(shown)} methods have reused answers, the oldest from {_day(oldest)}{also}"
    return "; ".join(_in_words(name, item) for name, item in shown.items())


def _in_words(name: str, item: Reuse) -> str:
    unknown = f" (revision unknown: {', '.join(item.unknown)})" if item.unknown else ""
    if not item.replies:
        return f"{name}: answers from {_day(item.answered)}{unknown}"
    replies = "1 reply" if item.replies == 1 else f"{item.replies:,} replies"
    oldest = f", the oldest from {_day(item.oldest)}" if item.oldest else ""
    return f"{name}: {replies} from the cache{oldest}{unknown}"


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _moment(value: Any) -> datetime | None:
    """Convert a time to the store's format: UTC without a zone, from that or from seconds since 1970."""
    if value is None or isinstance(value, datetime):
        return value
    return datetime.fromtimestamp(float(value), UTC).replace(tzinfo=None)
