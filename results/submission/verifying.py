"""A maintainer's re-run: does a submission's run agree with a run of the same method made here?"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.errors import UserError
from results import queries
from results.queries import RunRow
from results.store import FINISHED, Store
from results.submission.card import Card
from results.submission.storing import RECORD, SUBMITTED, VERIFIED

TOLERANCE = 0.005
"""Largest difference of a metric's mean that still counts as agreement: half a point."""
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Agreement:
    """One metric, question by question.

    Attributes:
        metric: Its id.
        submitted, ours: Means over the questions that both runs are scored on.
        difference: submitted - ours.
        n: Those questions.
        differing: Questions whose two values differ, or of which one alone is unscorable.
        largest: The largest difference of a question.
        first: The first differing questions with both values, None where unscorable.
        agrees: Whether the difference is within the tolerance and the same questions are scorable.
    """

    metric: str
    submitted: float | None
    ours: float | None
    difference: float | None
    n: int
    differing: int
    largest: float
    first: tuple[tuple[str, float | None, float | None], ...]
    agrees: bool


@dataclass(frozen=True, slots=True)
class Verification:
    """The comparison of a submitted run with one of ours.

    Attributes:
        submitted, ours: Their fingerprints.
        tolerance: That was allowed, as a fraction.
        questions: Questions of the benchmark.
        same_answers, same_evidence: Questions with the same answer, with the same ranked ids.
        metrics: Every metric that both were scored on.
        not_compared: Metrics of the submission that our run lacks.
    """

    submitted: str
    ours: str
    tolerance: float
    questions: int
    same_answers: int
    same_evidence: int
    metrics: tuple[Agreement, ...]
    not_compared: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        """Whether every metric does."""
        return all(one.agrees for one in self.metrics)

    def to_json(self) -> dict[str, Any]:
        """The comparison as a JSON object."""
        return asdict(self) | {"agrees": self.agrees}


def find_ours(store: Store, submitted: RunRow) -> RunRow:
    """The finished run of the submission's method that was made here on the same data in the same setting.

    Raises:
        UserError: There is none, or more than one.
    """
    card = Card.model_validate(_card_part(submitted))
    rows = {
        row.run: row
        for row in queries.runs(store)
        if row.origin == "run"
        and row.status == FINISHED
        and row.kind != "control"
        and (row.dataset_fingerprint, row.setting) == (submitted.dataset_fingerprint, submitted.setting)
    }
    named = [
        row
        for row in rows.values()
        if card.method.name in (row.method, row.method_id, card.method.label) and card.method.name in (row.method, row.method_id)
    ]
    if len(named) == 1:
        return named[0]
    listed = ", ".join(f"{row.run[:8]} ({row.method})" for row in (named or list(rows.values()))[:8]) or "none"
    what = f"{len(named)} runs" if named else "no run"
    raise UserError(
        f"{what} of {card.method.name!r} made here is on the same data and setting",
        where=f"{submitted.dataset}, setting {submitted.setting}",
        try_this=f"run it here (ragmeter run), or name one with --against; there are: {listed}",
    )


def compare(store: Store, submitted: RunRow, ours: RunRow, tolerance: float = TOLERANCE) -> Verification:
    """Compare two stored runs question by question.

    Raises:
        UserError: The first is no submission, the second was not made here, they are not about the same data in the
            same setting, or have no metric in common.
    """
    if submitted.origin not in (SUBMITTED, VERIFIED):
        raise UserError(f"{submitted.path} is no submission", try_this="ragmeter runs --json shows each run's origin")
    if ours.origin != "run" or ours.kind == "control" or ours.status != FINISHED:
        raise UserError(
            f"{ours.path} cannot confirm anything: it must be a finished run that was made here, and no control",
            try_this="ragmeter run FILE, then name its run with --against",
        )
    for name in ("dataset_fingerprint", "setting"):
        if getattr(submitted, name) != getattr(ours, name):
            raise UserError(
                f"the runs differ in {name}: {getattr(submitted, name)} and {getattr(ours, name)}",
                where=f"{submitted.path} and {ours.path}",
                try_this="make ours on the data and in the setting of the card",
            )
    runs = [submitted.run, ours.run]
    columns = queries.score_columns(store, submitted.dataset_fingerprint, runs)
    theirs = [metric for run, metric in columns.values if run == submitted.run]
    common = [metric for metric in theirs if (ours.run, metric) in columns.values]
    if not common:
        raise UserError("the two runs have no metric in common", try_this="score ours on " + ", ".join(theirs[:4]))
    said = {run: {one.question_id: one for one in store.predictions(run)} for run in runs}
    pairs = [(said[submitted.run].get(q), said[ours.run].get(q)) for q in columns.questions]
    both = [(a, b) for a, b in pairs if a is not None and b is not None]
    return Verification(
        submitted.run,
        ours.run,
        tolerance,
        len(columns.questions),
        sum(a.answer == b.answer for a, b in both),
        sum([one.id for one in a.evidence] == [one.id for one in b.evidence] for a, b in both),
        tuple(
            _agreement(metric, columns.questions, columns.values[submitted.run, metric], columns.values[ours.run, metric], tolerance)
            for metric in common
        ),
        tuple(metric for metric in theirs if metric not in common),
    )


def promote(store: Store, submitted: RunRow, found: Verification) -> str:
    """Record a comparison with a submission and make it `verified` where it agrees.

    One that disagrees takes nothing back from a submission that another run of ours has confirmed.

    Returns:
        The submission's origin from now on.
    """
    if submitted.origin == VERIFIED and not found.agrees:
        return VERIFIED
    card = dict(submitted.card or {})
    card[RECORD] = {**card.get(RECORD, {}), "verification": found.to_json()}
    origin = VERIFIED if found.agrees else SUBMITTED
    with store.database.writing() as connection:
        connection.execute(
            "UPDATE runs SET origin = ?, card = ? WHERE run = ?", [origin, json.dumps(card, ensure_ascii=False), submitted.run]
        )
    return origin


def _card_part(row: RunRow) -> dict[str, Any]:
    return {key: value for key, value in (row.card or {}).items() if key != RECORD}


def card_of(row: RunRow) -> Card:
    """The card that a submission was stored with.

    Raises:
        UserError: The run has none: it was made here.
    """
    if row.card is None:
        raise UserError(
            f"{row.path} has no card: it was made here", try_this="write one (`ragmeter submission template`) and give it with --card"
        )
    return Card.model_validate(_card_part(row))


def _agreement(metric: str, questions: list[str], theirs: np.ndarray, ours: np.ndarray, tolerance: float) -> Agreement:
    scorable = ~np.isnan(theirs) & ~np.isnan(ours)
    torn = np.isnan(theirs) != np.isnan(ours)
    gaps = np.where(scorable, np.abs(theirs - ours), 0.0)
    differing = np.flatnonzero((gaps > 1e-9) | torn)
    n = int(scorable.sum())
    said = float(theirs[scorable].mean()) if n else None
    found = float(ours[scorable].mean()) if n else None
    difference = said - found if said is not None and found is not None else None
    first = tuple((questions[row], _value(theirs[row]), _value(ours[row])) for row in differing[:SHOWN])
    agrees = not torn.any() and (difference is None or abs(difference) <= tolerance + 1e-12)
    return Agreement(metric, said, found, difference, n, len(differing), float(gaps.max(initial=0.0)), first, bool(agrees))


def _value(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
