"""List the unknown facts about a run: its code, so that equal descriptions may hide different code, and the origin of imported
scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from results.store.queries import RunRow


def unknown_code(provenance: Mapping[str, Any]) -> list[str]:
    """List warnings about plug-ins of a run whose code version is unknown.

    Args:
        provenance: The run's provenance.
    """
    lines = []
    for name, code in provenance.get("code", {}).items():
        who = f"`{name.partition(' ')[2]}`"
        if code.get("unknown") and code["identity"] == "code":
            lines.append(f"the code of {who} is unknown ({code['unknown']}), so another process never reuses its answers")
        if code.get("edited"):
            lines.append(f"{who} was edited after this process had loaded it, so the old code answers: restart Python to use the new code")
    return lines


def uncommitted(environment: Mapping[str, Any]) -> list[str]:
    """Warn if a run was made by a ragmeter checkout with uncommitted changes; empty if not.

    Args:
        environment: The run's environment.
    """
    git = environment.get("git") or {}
    return [f"ragmeter had uncommitted changes (commit {str(git.get('commit'))[:12]})"] if git.get("dirty") else []


NOT_RESCORED = "imported, not rescored"
"""Marks a run whose scores came from another store and could not be recomputed here."""


def not_rescored(run: RunRow, metrics: Sequence[str] | None = None) -> str:
    """Return the remark `imported, not rescored: METRIC, …`; empty if no metric is concerned.

    Args:
        run: The run.
        metrics: Ids of the shown metrics; None: all.
    """
    theirs = [metric for metric in run.not_rescored if metrics is None or metric in metrics]
    return f"{NOT_RESCORED}: {', '.join(theirs)}" if theirs else ""


def doubts(first: RunRow, second: RunRow) -> list[str]:
    """List warnings about unknown code versions and unverified scores of two runs."""
    sides = ("first", first), ("second", second)
    known = ((side, [*uncommitted(run.environment), *unknown_code(run.provenance), not_rescored(run)]) for side, run in sides)
    return [f"{side}: {line}" for side, lines in known for line in lines if line]
