"""Runs of an experiment by how the passages of their benchmark were told, and what survived it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.styles.mix import STYLED
from benchmarks.styles.survival import Survival, survival
from results.asked import Told
from results.queries import RunRow
from results.store import Store


@dataclass(frozen=True, slots=True)
class Side:
    """Runs over one telling of a base: what they share with those over another one is their questions.

    Attributes:
        told: How it is told.
        setting, seed: Of the runs.
        fingerprint: Of the dataset.
        runs: In the experiment's order.
    """

    told: Told
    setting: str
    seed: int
    fingerprint: str
    runs: tuple[RunRow, ...]


def sides(runs: Sequence[RunRow]) -> dict[str, list[Side]]:
    """Runs by the base that they are over, controls too, and within it by how it is told."""
    found: dict[tuple[str, str, int], list[RunRow]] = {}
    for run in runs:
        found.setdefault((run.dataset_fingerprint, run.setting, run.seed), []).append(run)
    bases: dict[str, list[Side]] = {}
    for (fingerprint, setting, seed), members in found.items():
        how = members[0].told
        bases.setdefault(how.base, []).append(Side(how, setting, seed, fingerprint, tuple(members)))
    return bases


def survivals(store: Store, fingerprint: str) -> dict[str, Survival] | None:
    """By question id what retelling left of the answer; None where the store was not told."""
    with store.database.reading() as connection:
        rows = connection.execute(
            "SELECT question, record, evidence FROM questions WHERE dataset_fingerprint = ?", [fingerprint]
        ).fetchall()
    met = {question: survival(json.loads(record).get(STYLED) or {}, bool(evidence)) for question, record, evidence in rows if record}
    known = {question: one for question, one in met.items() if one is not None}
    return known if known and len(known) == len(met) else None


def aligned(ids: Sequence[str], values: NDArray[np.float64], wanted: Sequence[str]) -> NDArray[np.float64]:
    """Values of questions in another order; NaN for those that have none."""
    places = {identifier: place for place, identifier in enumerate(ids)}
    return np.array([values[places[one]] if one in places else np.nan for one in wanted], dtype=np.float64)
