"""Compare what endpoints reported about their models while two runs were made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from benchmarks.core.errors import UserError
from methods.api import ENDPOINTS
from results.store.queries import RunRow
from results.store.store import Store

ReportedVersions = Mapping[str, Sequence[str]]
"""Versions that served each requested model, as distinct texts."""


def reported_versions(store: Store, run: str) -> ReportedVersions:
    """Read which model versions the endpoints reported for a run's answers and judgments; empty if no endpoint was called."""
    rows = store.database.rows(
        f"""SELECT DISTINCT item FROM (SELECT CAST(unnest(CAST(json_extract(notes, '$.{ENDPOINTS}') AS JSON[])) AS VARCHAR) AS item
            FROM predictions WHERE run = ? AND json_extract(notes, '$.{ENDPOINTS}') IS NOT NULL) ORDER BY item""",
        [run],
        lenient=True,
    )
    query = "SELECT DISTINCT judge, model FROM judge_calls WHERE run = ? AND call IS NOT NULL AND model <> '' ORDER BY ALL"
    judged = store.database.rows(query, [run], lenient=True)
    results: dict[str, list[str]] = {}
    for (text,) in rows:
        item = json.loads(text)
        model = str(item.pop("asked", ""))
        results.setdefault(model, []).append(", ".join(f"{name} {value}" for name, value in item.items()))
    for judge, served in judged:
        results.setdefault(f"the judge {judge}", []).append(served)
    return results


def within(store: Store, run: RunRow) -> list[str]:
    """List models for which the endpoint reported several versions within one run, one sentence each."""
    models = [who.partition(" at ")[0] for who in run.provenance.get("revisions", {})]
    return [
        f"the endpoint reported several versions of {model} within {run.path}: {' | '.join(versions)}"
        for model, versions in reported_versions(store, run.run).items()
        # One name may stand for a model at each of several endpoints.
        if len(versions) > max(1, models.count(model))
    ]


def drift(store: Store, first: RunRow, second: RunRow) -> list[str]:
    """List models for which the endpoint reported different versions in two runs, one sentence each."""
    if first.run == second.run:
        return []
    before, now = reported_versions(store, first.run), reported_versions(store, second.run)
    return [
        f"the endpoint reported other versions of {model}: {' | '.join(before[model])} in {first.path}; "
        f"{' | '.join(now[model])} in {second.path}"
        for model in before
        if model in now and list(before[model]) != list(now[model])
    ]


def refuse_drift(lines: Sequence[str]) -> None:
    """Raise an error if `drift` found models whose reported version differs between two runs.

    Raises:
        UserError: There are such lines.
    """
    if lines:
        raise UserError(
            lines[0], code="model-drift", where="--strict", try_this="run the older one again with --fresh, or leave out --strict"
        )
