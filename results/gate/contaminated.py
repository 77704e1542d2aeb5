"""Keep a gate from deciding by questions that the training of a side read.

A pass must also hold without the questions that the candidate's training read, and a regression without those that the
baseline's read. Training data that cover the benchmark by name count as all of its questions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from results.boards.systems import CONTAMINATED, contaminated_by
from results.boards.untouched import hits, touched_by_all, without
from results.statistics.difference import Side
from results.statistics.gate import GateReport
from results.store import provenance
from results.store.queries import RunRow
from results.store.store import Store
from results.store.training_data import Checkpoints, read_unknown, touched_by


@dataclass(frozen=True, slots=True)
class Contamination:
    """Benchmark questions that occur in the training data of one side of a gate.

    Attributes:
        role: `baseline` or `candidate`.
        hit: Mask of these questions, shape (questions,).
        reasons: The questions and the checkpoints that were trained on them.
        unknown: Whether some of its weights lack a record of their training questions.
    """

    role: str
    hit: NDArray[np.bool_]
    reasons: tuple[str, ...]
    unknown: bool

    @property
    def remarks(self) -> list[str]:
        """Return remarks on the contamination for the report, one sentence each."""
        return [f"the {self.role} is {CONTAMINATED}: {reason}" for reason in self.reasons]


def remarks_of(sides: Sequence[Contamination]) -> list[str]:
    """Return remarks on the contamination of both sides for the report, one sentence each."""
    unknown = " and ".join(f"the {side.role}" for side in sides if side.unknown)
    lines = [line for side in sides for line in side.remarks]
    return lines + [f"unknown which questions the weights of {unknown} were trained on (no record)"] * bool(unknown)


def contamination(store: Store, role: str, runs: Sequence[RunRow], known: Checkpoints, questions: Sequence[str]) -> Contamination:
    """Find the benchmark questions that occur in the training data of one side.

    Args:
        store: The store to read.
        role: `baseline` or `candidate`.
        runs: The runs of the side (repeats and seeds).
        known: Registered checkpoints.
        questions: Ids of the benchmark's questions.
    """
    touched = touched_by_all(runs, known)
    own = [touched.in_words(runs[0].questions)] if touched.questions else []
    alone = {touched_by(run, known).in_words(run.questions) for run in runs}
    cards = provenance.cards(store)
    named = [reason for run in runs for reason in contaminated_by(run, cards, known) if reason not in alone]
    hit = np.ones(len(questions), np.bool_) if named else hits(touched, questions)
    return Contamination(role, hit, (*dict.fromkeys(named), *own), any(read_unknown(run, known) for run in runs))


def held_back_by(
    outcomes: Mapping[str, str],
    candidate: tuple[Contamination, Mapping[str, Side]],
    baseline: tuple[Contamination, Mapping[str, Side]],
    decide: Callable[[Mapping[str, Side], Mapping[str, Side]], GateReport],
) -> dict[str, str]:
    """Explain, by metric, why a decision does not hold: it changes if the contaminated questions are left out.

    Args:
        outcomes: Outcome by metric over all questions.
        candidate, baseline: Each side's contamination, and its scores by metric.
        decide: Function that makes the decisions from the scores of candidate and baseline.
    """
    results: dict[str, str] = {}
    for claim, (side, _) in (("pass", candidate), ("regressed", baseline)):
        metrics = [metric for metric, outcome in outcomes.items() if outcome == claim]
        if not metrics or not side.hit.any():
            continue
        count = f"{int(side.hit.sum()):,} questions that the training of the {side.role} read"
        if side.hit.all():
            results |= dict.fromkeys(metrics, f"{claim} only with the {count}: no other questions are left")
            continue
        left = ({metric: without(scores, side.hit) for metric, scores in of.items()} for _, of in (candidate, baseline))
        again = decide(*left).decisions
        results |= {metric: f"{claim} with, but not without the {count}" for metric in metrics if again[metric].outcome != claim}
    return results
