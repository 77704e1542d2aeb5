"""How the passages of a run's benchmark were told: read off the name under which `styled` benchmarks are stored."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.styles.mix import STYLED
from benchmarks.styles.rewriter import FORMAL
from benchmarks.styles.survival import Survival, survival
from results.queries import RunRow
from results.store import Store

_NAME = re.compile(rf"{STYLED}:(?P<split>[^(]+)\((?P<variant>.*)\)")
_DRAWN = ("by", "seed", "draw")
"""Keys of a variant that are no styles."""


@dataclass(frozen=True, slots=True)
class Told:
    """How candidates are told.

    Attributes:
        base: The dataset whose questions are asked, `name[/subset]:split`.
        shares: Share of each style; what is missing to 1 is formal.
        drawn: Who wrote the texts, and how it was drawn which candidates are told otherwise, as the name says it.
    """

    base: str
    shares: tuple[tuple[str, float], ...] = ()
    drawn: str = ""

    @property
    def formal(self) -> float:
        """Share of formal candidates."""
        return round(1.0 - sum(share for _, share in self.shares), 6)

    @property
    def name(self) -> str:
        """The mix in words: `formal`, `informal`, `50 % informal`."""
        told = [style if share == 1 else f"{100 * share:g} % {style}" for style, share in self.shares]
        return " + ".join(told) or FORMAL

    @property
    def style(self) -> str | None:
        """The one style beside formal; None where there is none or several."""
        return self.shares[0][0] if len(self.shares) == 1 else None


def told(dataset: str) -> Told:
    """How the candidates of a dataset of this name are told; one that is no mix is formal.

    Source: `benchmarks.styles.mix`, which names its benchmarks `styled:SPLIT(BASE,STYLE=SHARE,…,by=…,seed=…)`.
    """
    found = _NAME.fullmatch(dataset)
    if found is None:
        return Told(dataset)
    base, *parts = found["variant"].split(",")
    keys = [part.partition("=") for part in parts]
    shares = tuple((key, float(value)) for key, _, value in keys if key not in (*_DRAWN, FORMAL))
    drawn = ",".join(f"{key}={value}" for key, _, value in keys if key in _DRAWN and shares)
    return Told(f"{base}:{found['split']}", shares, drawn)


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
        how = told(members[0].dataset)
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
