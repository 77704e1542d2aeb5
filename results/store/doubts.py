"""Code of a run that is not known, so that an equal description need not mean equal code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from results.store.queries import RunRow


def unknown_code(provenance: Mapping[str, Any]) -> list[str]:
    """Say of which plug-ins of a run the code is not known.

    Args:
        provenance: Of the run.
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
    """Say that a run was made by a checkout of ragmeter with uncommitted changes.

    Args:
        environment: Of the run.
    """
    git = environment.get("git") or {}
    return [f"ragmeter had uncommitted changes (commit {str(git.get('commit'))[:12]})"] if git.get("dirty") else []


def doubts(first: RunRow, second: RunRow) -> list[str]:
    """Say of two runs what is not known of their code."""
    sides = ("first", first), ("second", second)
    return [f"{side}: {line}" for side, run in sides for line in (*uncommitted(run.environment), *unknown_code(run.provenance))]
