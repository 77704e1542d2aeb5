"""Hold the gate's decision: the outcome, the verdict on each metric and the loss since the anchor, as values and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from benchmarks.clusters import Sampled
from results.boards.diff import Setting
from results.gate.memory import Memory
from results.statistics import spending
from results.statistics.gate import GateDecision
from results.store.queries import RunRow

Outcome = Literal["pass", "regressed", "inconclusive", "not tested"]
EXIT_CODES: Mapping[Outcome, int] = {"pass": 0, "regressed": 100, "inconclusive": 101, "not tested": 2}
"""Exit code of the command for each outcome."""


def outcome_of(outcomes: Iterable[Outcome], must_hold: Iterable[Outcome]) -> Outcome:
    """Combine the outcomes of several decisions into one.

    The worst outcome wins: `regressed`, then `not tested`, then `inconclusive`, then `pass`.

    Args:
        outcomes: All outcomes.
        must_hold: The outcomes that must be `pass` for the combined outcome to be `pass`.
    """
    every = set(outcomes)
    if "regressed" in every:
        return "regressed"
    if "not tested" in every:
        return "not tested"
    return "pass" if set(must_hold) == {"pass"} else "inconclusive"


@dataclass(frozen=True, slots=True)
class Since:
    """The loss of a candidate since the anchor of its baseline, on one metric.

    Attributes:
        run: Id of the anchor's run.
        set_at: When it was pinned (UTC).
        number: Number of the decision about this anchor, from 1.
        outcome: Outcome of a gate of the candidate against the anchor, at the error probability that earlier decisions left.
        decision: The numbers behind this outcome.
    """

    run: RunRow
    set_at: datetime
    number: int
    outcome: Literal["pass", "regressed", "inconclusive"]
    decision: GateDecision


@dataclass(frozen=True, slots=True)
class Verdict:
    """Gate decision on one metric, with the numbers behind it.

    Attributes:
        metric: Id of the metric.
        decision: Result of `results.statistics.gate`, with the sign changed if lower is better.
        outcome: The final outcome. It differs from the decision's if a pass depends on scores that the candidate lacks
            ("inconclusive"), if both sides are the same run ("not tested"), or if the loss since the anchor is significant
            ("regressed").
        baseline, candidate: Mean values over the paired questions.
        higher_is_better: False if lower is better.
        unpaired: Number of questions that are not paired, by reason; empty if all are paired.
        lacking: Number of questions that only the baseline has a score for, although the candidate answered them.
        held_back: Why the outcome is "inconclusive" although the interval would allow a claim; empty otherwise.
        clusters_needed: Clusters needed to decide; None if it is decided, or if no number would.
        memory: Numbers of the candidate's attempt and of the decision about the anchor.
        generalizes: What the decision generalizes to: new questions, new trainings or this checkpoint only, this judge only.
        since: The loss since the anchor; None without one.
        scale: Factor that numbers are shown with: 100, or 1 for counts and similar values.
    """

    metric: str
    decision: GateDecision
    outcome: Outcome
    baseline: float
    candidate: float
    higher_is_better: bool
    unpaired: dict[str, int]
    lacking: int
    held_back: tuple[str, ...]
    clusters_needed: int | None
    memory: Memory
    generalizes: str = "new questions"
    since: Since | None = None
    scale: float = 100.0

    @property
    def change(self) -> tuple[float, float, float]:
        """Return candidate minus baseline with its interval, (value, low, high), in the metric's own direction."""
        return self._as_counted(self.decision)

    @property
    def change_since(self) -> tuple[float, float, float]:
        """Return candidate minus anchor with its interval, (value, low, high), in the metric's own direction; NaN without an anchor."""
        return (math.nan, math.nan, math.nan) if self.since is None else self._as_counted(self.since.decision)

    @property
    def pass_level(self) -> float:
        """Return the confidence level of the one-sided bound that must lie above minus the margin for a pass."""
        return 1 - spending.of_attempt(self.memory.attempt)

    def _as_counted(self, decision: GateDecision) -> tuple[float, float, float]:
        result = decision.difference
        if self.higher_is_better:
            return result.value, result.low, result.high
        return -result.value, -result.high, -result.low

    @property
    def detectable(self) -> float:
        """Return the minimum detectable loss (80 % power); NaN if nothing varies."""
        return self.decision.minimum_detectable or math.nan


@dataclass(frozen=True, slots=True)
class Gate:
    """Gate decision about two runs on one benchmark, over one or more metrics.

    Attributes:
        outcome: Combined outcome of all metrics (`outcome_of`); all must pass.
        baseline, candidate: The two runs; with several repeats or seeds, the first of each side.
        verdicts: Decisions on each metric, in the requested order.
        strict: Whether any significant loss counts, even one within the margin.
        partial: Whether unfinished runs were allowed.
        questions: Number of questions in the dataset.
        sampled: Kind of cluster of the questions.
        changed: Differences between the two descriptions.
        remarks: Warnings and notes, warnings first.
        anchor: Id of the anchor's run; None without an anchor.
        members: All runs of each side, by `baseline` and `candidate`: repeats, and seeds if requested.
    """

    outcome: Outcome
    baseline: RunRow
    candidate: RunRow
    verdicts: tuple[Verdict, ...]
    strict: bool
    partial: bool
    questions: int
    sampled: Sampled
    changed: tuple[Setting, ...]
    remarks: tuple[str, ...]
    anchor: str | None = None
    members: Mapping[str, tuple[RunRow, ...]] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.outcome]

    def several(self, role: str) -> str:
        """Return how many runs one side averages, for example `mean of 3 runs`; empty for a single run."""
        runs = self.members.get(role, ())
        return f"mean of {len(runs)} runs" if len(runs) > 1 else ""

    def _side_json(self, role: str, run: RunRow) -> dict[str, Any]:
        return {"run": run.run, "path": run.path, "runs": [member.run for member in self.members.get(role, (run,))]}

    @property
    def gates(self) -> tuple[Gate, ...]:
        """Return a tuple with this gate; `ManyGates` has the same property, so that reports handle both."""
        return (self,)

    @property
    def place(self) -> str:
        """Return the name of the benchmark as in a gate file."""
        return f"{self.baseline.dataset}/{self.baseline.setting}/{self.baseline.seed}"

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; values are fractions, None means "no value"."""
        return {
            "outcome": self.outcome,
            "exit_code": self.exit_code,
            "baseline": self._side_json("baseline", self.baseline),
            "candidate": self._side_json("candidate", self.candidate),
            "dataset": self.baseline.dataset,
            "dataset_fingerprint": self.baseline.dataset_fingerprint,
            "setting": self.baseline.setting,
            "seed": self.baseline.seed,
            "questions": self.questions,
            "cluster": self.sampled.kind,
            "clusters": self.sampled.count(self.questions),
            "strict": self.strict,
            "partial": self.partial,
            "changed": [item.key for item in self.changed],
            "remarks": list(self.remarks),
            "metrics": [verdict_json(verdict) for verdict in self.verdicts],
        }


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    """Return the decision on one metric as a JSON object."""
    decision = verdict.decision
    result = decision.difference
    value, low, high = verdict.change
    return {
        "metric": verdict.metric,
        "outcome": verdict.outcome,
        "higher_is_better": verdict.higher_is_better,
        "baseline": _number(verdict.baseline),
        "candidate": _number(verdict.candidate),
        "difference": {"value": _number(value), "low": _number(low), "high": _number(high)},
        "margin": decision.margin,
        "n": result.n,
        "wins": result.wins,
        "ties": result.ties,
        "losses": result.losses,
        "p": _number(decision.p),
        "p_holm": _number(decision.p_holm),
        "p_pass": _number(decision.p_pass),
        "minimum_detectable": _number(verdict.detectable),
        "clusters_needed": verdict.clusters_needed,
        "clusters": result.clusters,
        "insufficient_data": result.insufficient_data,
        "unpaired": verdict.unpaired,
        "lacking": verdict.lacking,
        "held_back": list(verdict.held_back),
        "generalizes": verdict.generalizes,
        "attempt": verdict.memory.attempt,
        "pass_level": verdict.pass_level,
        "anchor": None if (since := verdict.since) is None else _since_json(verdict, since),
    }


def _since_json(verdict: Verdict, since: Since) -> dict[str, Any]:
    value, low, high = verdict.change_since
    numbers = {"value": _number(value), "low": _number(low), "high": _number(high)}
    about = {"run": since.run.run, "path": since.run.path, "set_at": since.set_at.isoformat()}
    return about | {"decision": since.number, "outcome": since.outcome, "difference": numbers}


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
