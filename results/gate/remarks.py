"""Write the remarks below a gate's outcome, one sentence each."""

from __future__ import annotations

import shlex

from benchmarks.core.errors import counted
from methods.api import UNKNOWN_REVISION
from results.boards.systems import accepted, implausible
from results.gate.memory import has_anchor
from results.gate.verdicts import Gate
from results.store.doubts import not_rescored
from results.store.queries import HIDDEN, RunRow
from results.store.store import FINISHED, Store

TEST_IT = (
    "to test a change: run the changed version, repeat the requests with `ragmeter run --fresh`, or give the endpoint a "
    "`revision`; --allow-same decides anyway"
)
"""Remark with the remedy if nothing was tested."""


def forgotten(store: Store, gate: Gate, name: str) -> list[str]:
    """Warn if the history that a gate relies on is missing from this store: the anchor, its scores, or all earlier decisions."""
    lines = []
    if gate.anchor is None:
        elsewhere = " for these questions; it has one for others" if has_anchor(store, name) else ""
        lines.append(
            f"{name} has no anchor{elsewhere}: small losses over many pushes are not added up "
            f"(ragmeter gate --baseline {shlex.quote(name)} --set-anchor)"
        )
    elif gate.anchor != gate.candidate.run:
        lines += [f"{v.metric}: the anchor was not scored on it, so the loss since then is unknown" for v in gate.verdicts if not v.since]
    if not any(verdict.memory.earlier for verdict in gate.verdicts):
        lines.append("this store holds no earlier decision on these questions; attempts in other copies of it are not counted")
    return lines


def remarks(gate: Gate) -> list[str]:
    """List the remarks of a gate: first on the two sides, then on each metric."""
    lines = []
    if gate.baseline.run != gate.candidate.run and not gate.changed:
        known = UNKNOWN_REVISION not in gate.candidate.provenance.get("revisions", {}).values()
        doubt = ": method, options, code, weights and revision" if known else ", but the revision of a model is unknown"
        lines.append(f"baseline and candidate have the same description{doubt}")
    if gate.partial:
        for role, run in (("baseline", gate.baseline), ("candidate", gate.candidate)):
            if run.status != FINISHED:
                lines.append(f"the {role} is {run.status}: {run.done} of {run.questions} questions answered")
    for role, run in (("baseline", gate.baseline), ("candidate", gate.candidate)):
        if theirs := not_rescored(run, [verdict.metric for verdict in gate.verdicts]):
            lines.append(f"the {role} is {theirs}")
        if run.failed:
            lines.append(f"{counted(run.failed, 'question')} of the {role} failed and count as wrong")
        lines += _doubts(role, run)
    for verdict in gate.verdicts:
        result = verdict.decision.difference
        if verdict.unpaired:
            lost = ", ".join(f"{count} {reason}" for reason, count in verdict.unpaired.items())
            lines.append(f"{verdict.metric}: only {result.n} of {gate.questions} questions are paired ({lost})")
        lines += [f"{verdict.metric}: inconclusive: {reason}" for reason in verdict.held_back]
        if verdict.memory.attempt > 1:
            lines.append(
                f"{verdict.metric}: attempt {verdict.memory.attempt} of this candidate on these questions, so a pass requires a bound of "
                f"{100 * verdict.pass_level:.4g} % (98 % at first); if it did change, state its `revision`"
            )
        if verdict.since is not None and verdict.since.outcome == "regressed":
            since = verdict.since
            lines.append(f"{verdict.metric}: lost more than the margin since the anchor {since.run.path} of {since.set_at:%Y-%m-%d}")
        if result.insufficient_data and not verdict.held_back:
            lines.append(f"{verdict.metric}: no interval: {result.insufficient_data}")
    return lines


def _doubts(role: str, run: RunRow) -> list[str]:
    """Warn about a submission that no board shows, or that boards mark as implausible."""
    lines = []
    if run.origin in HIDDEN:
        decisions = ((run.card or {}).get("submission") or {}).get("review") or [{}]
        why = decisions[-1].get("reason")
        lines.append(f"the {role} is a submission that is {run.origin}, so no board shows it" + (f": {why}" if why else ""))
    if signs := implausible(run):
        state = "which a maintainer accepted" if accepted(run) else "which no maintainer has accepted, so boards do not rank it"
        lines.append(f"the {role} is a submission with signs of an implausible result, {state}: {'; '.join(signs)}")
    return lines
