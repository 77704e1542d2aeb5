"""Why a gate tested nothing, or less than its numbers suggest: the same run, an old candidate, replies from the cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from benchmarks.core.errors import counted
from results.queries import RunRow
from results.store import Store

UNKNOWN = "unknown"
"""The revision of a deployment that nothing identifies."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """Replies of a run that came from the reply cache.

    Attributes:
        replies: How many there are.
        oldest: When the oldest was received (UTC); None if there is none, or its date is not known.
        whole: Whether all replies came from the cache.
        unknown: Models whose revision is unknown, as "model at URL".
    """

    replies: int
    oldest: datetime | None
    whole: bool
    unknown: tuple[str, ...]


def reuse_of(store: Store, run: RunRow) -> Reuse:
    """Count the cached replies of a run."""
    with store.database.reading() as connection:
        (row,) = connection.execute(
            """SELECT coalesce(sum(p.cached_replies), 0)::BIGINT, min(p.oldest_reply),
               coalesce(sum(p.cached_replies) > 0 AND sum(p.cached_replies) >= sum(coalesce(u.model_calls, 0)), FALSE)
               FROM predictions p LEFT JOIN usage u USING (run, question) WHERE p.run = ?""",
            [run.run],
        ).fetchall()
    replies, oldest, whole = row
    return Reuse(replies, oldest, whole, tuple(unknown_revisions(run)))


def unknown_revisions(run: RunRow) -> list[str]:
    """List the models that a run asked and whose revision is unknown."""
    revisions = run.provenance.get("revisions") or {}
    results = [str(model) for model, revision in revisions.items() if revision == UNKNOWN]
    return results or ([run.method] if run.description.get("revision") == UNKNOWN else [])


def why_untested(baseline: RunRow, candidate: RunRow, reuse: Reuse) -> str | None:
    """Return why a comparison of two runs would test nothing; None if it tests something.

    Args:
        baseline, candidate: The runs.
        reuse: Cached replies of the candidate.
    """
    if baseline.run == candidate.run:
        return f"baseline and candidate are the same run ({candidate.short})"
    if baseline.description == candidate.description and reuse.whole and reuse.unknown:
        return (
            f"the two runs have the same description, and the candidate took all {counted(reuse.replies, 'reply', 'replies')} from the "
            f"cache although the revision of {', '.join(reuse.unknown)} is unknown"
        )
    return None


def warnings_of(store: Store, baseline: RunRow, candidate: RunRow, reused: Reuse) -> list[str]:
    """List what makes a comparison of two different runs doubtful, one sentence each.

    Args:
        store: Where to read.
        baseline, candidate: The runs.
        reused: Cached replies of the candidate.
    """
    lines = []
    if candidate.started_at < baseline.started_at:
        lines.append(f"the candidate is older than the baseline: it started at {_at(candidate)}, the baseline at {_at(baseline)}")
    for role, reuse in (("candidate", reused), ("baseline", reuse_of(store, baseline))):
        if reuse.replies and reuse.unknown:
            oldest = f", the oldest from {reuse.oldest:%Y-%m-%d}" if reuse.oldest else ""
            lines.append(
                f"the {role} reused {counted(reuse.replies, 'reply', 'replies')} from the cache{oldest}, and the revision of "
                f"{', '.join(reuse.unknown)} is unknown: they may come from an earlier deployment"
            )
    if equal := _equal_answers(store, [baseline.run, candidate.run]):
        lines.append(f"all {counted(equal, 'answer')} and rankings are equal: what changed had no effect on these questions")
    return lines


def _at(run: RunRow) -> str:
    return f"{run.started_at:%Y-%m-%d %H:%M:%S} UTC"


def _equal_answers(store: Store, runs: Sequence[str]) -> int:
    """Count the questions that both runs answered if all their texts and rankings are equal; else return 0."""
    with store.database.reading() as connection:
        ((both, equal),) = connection.execute(
            """SELECT count(*), count(*) FILTER (WHERE a.answer = b.answer AND (a.failed IS NULL) = (b.failed IS NULL))
               FROM predictions a JOIN predictions b USING (question) WHERE a.run = ? AND b.run = ?""",
            list(runs),
        ).fetchall()
        if equal < both:
            return 0
        # Rankings take longer to compare, and most runs differ before.
        ((differing,),) = connection.execute(
            """SELECT count(*) FROM (SELECT question, rank, id FROM evidence WHERE list_contains(?, run)
               GROUP BY ALL HAVING count(*) < 2)""",
            [list(runs)],
        ).fetchall()
    return 0 if differing else int(both)
