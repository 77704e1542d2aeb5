"""Why a gate tested nothing, or less than its numbers suggest: the same run, an old candidate, replies from the cache."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.core.errors import counted
from results.boards.health import run_lines
from results.store.doubts import unknown_code
from results.store.queries import RunRow
from results.store.reuse import Reuse, reuse
from results.store.store import Store


def why_untested(store: Store, baseline: RunRow, candidate: RunRow) -> str | None:
    """Explain why comparing two runs would test nothing, for example if both are the same run; None if it tests something."""
    if baseline.run == candidate.run:
        return f"baseline and candidate are the same run ({candidate.short})"
    if baseline.description != candidate.description:
        return None
    reused = reuse(store, [candidate])[candidate.run]
    if not (reused.uncertain and reused.replies >= _model_calls(store, candidate)):
        return None
    return (
        f"the two runs have the same description, and the candidate took all {_replies(reused)} from the cache although the revision of "
        f"{', '.join(reused.unknown)} is unknown"
    )


def warnings_of(store: Store, baseline: RunRow, candidate: RunRow) -> list[str]:
    """List reasons to doubt a comparison of two different runs, one sentence each."""
    lines = []
    if candidate.started_at < baseline.started_at:
        lines.append(f"the candidate is older than the baseline: it started at {_at(candidate)}, the baseline at {_at(baseline)}")
    reused = reuse(store, [candidate, baseline])
    for role, item in (("candidate", reused[candidate.run]), ("baseline", reused[baseline.run])):
        if item.uncertain:
            oldest = f", the oldest from {item.oldest:%Y-%m-%d}" if item.oldest else ""
            lines.append(
                f"the {role} reused {_replies(item)} from the cache{oldest}, and the revision of {', '.join(item.unknown)} is unknown: "
                "they may come from an earlier deployment"
            )
    for role, run in (("candidate", candidate), ("baseline", baseline)):
        lines += [f"{role}: {line}" for line in unknown_code(run.provenance)]
    lines += run_lines(store, {"candidate": candidate, "baseline": baseline})
    if equal := _equal_answers(store, [baseline.run, candidate.run]):
        lines.append(f"all {counted(equal, 'answer')} and rankings are equal: the change had no effect on these questions")
    return lines


def _replies(item: Reuse) -> str:
    return counted(item.replies, "reply", "replies")


def _model_calls(store: Store, run: RunRow) -> int:
    ((calls,),) = store.database.rows("SELECT coalesce(sum(model_calls), 0)::BIGINT FROM usage WHERE run = ?", [run.run])
    return int(calls)


def _at(run: RunRow) -> str:
    return f"{run.started_at:%Y-%m-%d %H:%M:%S} UTC"


def _equal_answers(store: Store, runs: Sequence[str]) -> int:
    """Return the number of questions that both runs answered if all their texts and rankings are equal; else 0."""
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
