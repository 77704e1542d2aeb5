"""Endpoints that are not what they were: what they said of themselves while one run was made, against another's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from benchmarks.core.errors import UserError
from methods.api import ENDPOINTS
from results.queries import RunRow
from results.store import Store

Stated = Mapping[str, Sequence[str]]
"""By the model that was asked for: what served it, in words, each once."""


def stated(store: Store, run: str) -> Stated:
    """What endpoints said of themselves in the answers of a run and in what judges said of them; nothing where none was asked."""
    if not store.database.exists:
        return {}
    with store.database.reading() as connection:
        rows = connection.execute(
            f"""SELECT DISTINCT item FROM (SELECT CAST(unnest(CAST(json_extract(notes, '$.{ENDPOINTS}') AS JSON[])) AS VARCHAR) AS item
                FROM predictions WHERE run = ? AND json_extract(notes, '$.{ENDPOINTS}') IS NOT NULL) ORDER BY item""",
            [run],
        ).fetchall()
        judged = connection.execute(
            "SELECT DISTINCT judge, model FROM judge_calls WHERE run = ? AND call IS NOT NULL AND model <> '' ORDER BY ALL", [run]
        ).fetchall()
    results: dict[str, list[str]] = {}
    for (text,) in rows:
        item = json.loads(text)
        model = str(item.pop("asked", ""))
        results.setdefault(model, []).append(", ".join(f"{name} {value}" for name, value in item.items()))
    for judge, served in judged:
        results.setdefault(f"the judge {judge}", []).append(served)
    return results


def within(store: Store, run: RunRow) -> list[str]:
    """Describe, one sentence each, where an endpoint did not say the same of itself in all answers of one run."""
    models = [who.partition(" at ")[0] for who in run.provenance.get("revisions", {})]
    return [
        f"the endpoint changed for {model} within {run.path}: {' | '.join(texts)}"
        for model, texts in stated(store, run.run).items()
        # One name may stand for a model at each of several endpoints.
        if len(texts) > max(1, models.count(model))
    ]


def drift(store: Store, first: RunRow, second: RunRow) -> list[str]:
    """Where an endpoint that both runs asked for the same model did not say the same of itself, one sentence each."""
    if first.run == second.run:
        return []
    before, now = stated(store, first.run), stated(store, second.run)
    return [
        f"the endpoint was not the same for {model}: {' | '.join(before[model])} in {first.path}; {' | '.join(now[model])} in {second.path}"
        for model in before
        if model in now and list(before[model]) != list(now[model])
    ]


def refuse_drift(lines: Sequence[str]) -> None:
    """Refuse what was made by endpoints that are not the same.

    Raises:
        UserError: There are such lines, as of `drift`.
    """
    if lines:
        raise UserError(lines[0], where="--strict", try_this="run both in a new store, as replies are cached, or leave out --strict")
