"""The regression gate: decide whether a candidate may replace a baseline.

`ask` checks that two runs may be compared, pairs their scores question by question, and lets
`results.statistics.gate` decide. Questions without a pair are counted in the remarks. If only the baseline has a score,
the candidate must still pass with the metric's worst value in its place. If both sides are the same run, nothing was
tested, and the outcome says that. If the baseline has an anchor, the candidate regresses too if it lost more than the
margin since the anchor (`results.gate.memory`).
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.clusters import Sampled
from benchmarks.core.errors import UserError, counted, unknown_name
from methods.api import UNKNOWN_REVISION
from results.boards.compare import Setting, settings_of
from results.boards.sides import sides
from results.boards.unread import range_of_metric
from results.gate.contaminated import contamination, held_back_by
from results.gate.margins import margin_of
from results.gate.memory import Memory, anchor_of, has_anchor, remembered
from results.gate.warnings import warnings_of, why_untested
from results.statistics import spending
from results.statistics.difference import Side
from results.statistics.gate import GateDecision, GateReport, decide_all
from results.store import queries
from results.store.checkpoints import known_checkpoints
from results.store.doubts import not_rescored
from results.store.drift import drift, refuse_drift, within
from results.store.queries import RunRow
from results.store.store import FINISHED, INCOMPLETE, Store

Outcome = Literal["pass", "regressed", "inconclusive", "not tested"]
EXIT_CODES: Mapping[Outcome, int] = {"pass": 0, "regressed": 100, "inconclusive": 101, "not tested": 2}
"""Exit code of the command for each outcome."""


def outcome_of(outcomes: Iterable[Outcome], must_hold: Iterable[Outcome]) -> Outcome:
    """Return the outcome of several decisions together.

    `regressed` comes before `not tested`, which comes before `inconclusive` and `pass`.

    Args:
        outcomes: All of them.
        must_hold: Those that must be a pass if the whole is one.
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
        run: The anchor.
        set_at: When it was pinned (UTC).
        number: Which decision about this anchor this is, from 1.
        outcome: The same as of a gate against the anchor, whose two bounds have the level that is left for it.
        decision: The same with its numbers.
    """

    run: RunRow
    set_at: datetime
    number: int
    outcome: Literal["pass", "regressed", "inconclusive"]
    decision: GateDecision


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision on one metric.

    Attributes:
        metric: The id.
        decision: As `results.statistics.gate` gives it, with the sign changed if less is better.
        outcome: The decision's; "inconclusive" if a pass depends on scores that the candidate lacks; "not tested" if
            both sides are the same run; "regressed" if the loss since the anchor is significant.
        baseline, candidate: Mean values over the paired questions.
        higher_is_better: The metric's direction.
        unpaired: Questions of the dataset that are not paired, by reason; empty if all are.
        lacking: Those that the candidate answered without getting a value, although the baseline has one.
        held_back: Why the outcome is "inconclusive" although the interval would allow a claim; empty otherwise.
        clusters_needed: Clusters needed to decide; None if it is decided, or if no number would.
        memory: Which attempt of the candidate this is, and which decision about the anchor.
        since: The loss since the anchor; None without one.
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
    since: Since | None = None

    @property
    def change(self) -> tuple[float, float, float]:
        """Return candidate minus baseline as the metric counts, with its interval: (value, low, high)."""
        return self._as_counted(self.decision)

    @property
    def change_since(self) -> tuple[float, float, float]:
        """Return candidate minus anchor in the same form; NaN without an anchor."""
        return (math.nan, math.nan, math.nan) if self.since is None else self._as_counted(self.since.decision)

    @property
    def pass_level(self) -> float:
        """Return the confidence of the one bound that must lie above minus the margin."""
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
    """A decision about two runs on one benchmark.

    Attributes:
        outcome: As `outcome_of` gives it over the metrics; all must pass.
        baseline, candidate: The runs.
        verdicts: One a metric, in the order asked for.
        strict: Whether any significant loss counts, even one within the margin.
        partial: Whether unfinished runs were allowed.
        questions: Of the dataset.
        sampled: The sampling clusters of the questions.
        changed: Differences between the two descriptions.
        remarks: What a reader must know besides the outcome; warnings come first.
        anchor: Id of the run that the loss since then was measured from; None without one.
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

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.outcome]

    @property
    def gates(self) -> tuple[Gate, ...]:
        """Return this gate, so that one gate and many are reported alike."""
        return (self,)

    @property
    def place(self) -> str:
        """Return the benchmark as a gate file names it."""
        return f"{self.baseline.dataset}/{self.baseline.setting}/{self.baseline.seed}"

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; values are fractions, None stands for "no value"."""
        return {
            "outcome": self.outcome,
            "exit_code": self.exit_code,
            "baseline": {"run": self.baseline.run, "path": self.baseline.path},
            "candidate": {"run": self.candidate.run, "path": self.candidate.path},
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


def ask(
    store: Store,
    baseline: RunRow,
    candidate: RunRow,
    *,
    metrics: Sequence[str],
    margin: float | None = None,
    margins: Mapping[str, float] | None = None,
    strict: bool = False,
    allow_partial: bool = False,
    allow_same: bool = False,
    anchored: str | None = None,
    cells: int = 1,
) -> Gate:
    """Decide whether a candidate regressed against a baseline.

    Args:
        store: Where to read.
        baseline, candidate: The runs.
        metrics: Ids, or their beginnings if each means one metric.
        margin: The tolerated loss, a fraction, on every metric not named in `margins`.
        margins: The same by metric, as named in `metrics`.
        strict: Count any significant loss as a regression, even one within the margin; refuse runs whose endpoint changed.
        allow_partial: Compare unfinished runs over the questions that both have answered.
        allow_same: Decide even if nothing is tested, because both are the same run.
        anchored: What the user calls the baseline, whose anchor counts; None leaves anchors aside.
        cells: How many decisions about an anchor are made together; they share the error probability of one.

    Raises:
        UserError: The runs must not be compared, were not scored alike, a margin is missing, or the anchor is gone.
    """
    _check_comparable(baseline, candidate, allow_partial=allow_partial)
    same = baseline.run == candidate.run
    drifted = [] if same else [*drift(store, baseline, candidate), *within(store, baseline), *within(store, candidate)]
    if strict:
        refuse_drift(drifted)
    tolerated = margins_of(store, baseline, candidate, metrics, margin, margins)
    ids = list(tolerated)
    definitions = queries.definitions(store)
    ranges = {m: range_of_metric(definitions.get(m, {})) for m in ids}
    up = {m: bool(definitions.get(m, {}).get("higher_is_better", True)) for m in ids}

    pinned = None if anchored is None else anchor_of(store, anchored, candidate)
    anchor = None if pinned is None else _anchor_run(store, pinned.run, anchored)
    with store.database.reading() as connection:
        known = remembered(connection, baseline, candidate, tolerated, None if anchor is None else anchor.run)
    runs = list({run.run: run for run in (baseline, candidate, anchor or baseline)}.values())
    columns = queries.score_columns(store, baseline.dataset_fingerprint, [run.run for run in runs], ids, {run.experiment for run in runs})
    answered = {run.run: _answered(store, run, columns.questions) for run in runs}
    trained = known_checkpoints(store)
    every = sides(store, columns, {run.run: [run] for run in runs}, ids, definitions, trained)
    ours = {m: columns.values[candidate.run, m] for m in ids}
    theirs = {m: columns.values[baseline.run, m] for m in ids}
    lacking = {m: answered[candidate.run] & np.isnan(ours[m]) & ~np.isnan(theirs[m]) for m in ids}
    how: dict[str, Any] = {"strict": strict, "clusters": columns.sampled.labels, "ranges": ranges}
    how["lower_is_better"] = {m for m in ids if not up[m]}

    def against(run: RunRow, chosen: Sequence[str], **levels: Any) -> tuple[dict[str, Side], dict[str, Side], GateReport]:
        before = {m: every[run.run, m] for m in chosen}
        gone = {m: answered[candidate.run] & np.isnan(ours[m]) & ~np.isnan(columns.values[run.run, m]) for m in chosen}
        after = {m: _with_open(every[candidate.run, m], gone[m]) for m in chosen}
        return after, before, decide_all(after, before, margins={m: tolerated[m] for m in chosen}, **how, **levels)

    lower = {m: 1 - 2 * spending.of_attempt(known[m].attempt) for m in ids}
    after, before, report = against(baseline, ids, lower=lower)
    closed = ({m: replace(side, open=None) for m, side in of.items()} for of in (after, before))
    plain = decide_all(*closed, margins=tolerated, lower=lower, **how)
    read = [contamination(store, role, run, trained, columns.questions) for role, run in (("candidate", candidate), ("baseline", baseline))]
    first = {m: report.decisions[m].outcome for m in ids}
    again = partial(decide_all, margins=tolerated, lower=lower, **how)
    by_content = held_back_by(first, (read[0], after), (read[1], before), again)
    since: dict[str, Since] = {}
    if pinned is not None and anchor is not None and anchor.run != candidate.run:
        for number in {known[m].number for m in ids}:
            chosen = [m for m in ids if known[m].number == number and (anchor.run, m) in every]
            if chosen:
                # Holm's correction within the report is over the metrics; cells that are decided apart share it too.
                level = 1 - 2 * spending.of_decision(number) * len(chosen) / max(cells, len(ids))
                decisions = against(anchor, chosen, level=level)[2].decisions
                since |= {m: Since(anchor, pinned.set_at, number, decisions[m].outcome, decisions[m]) for m in chosen}
    untested = why_untested(store, baseline, candidate)
    verdicts = []
    for metric in ids:
        decision = report.decisions[metric]
        pairs = ~np.isnan(ours[metric]) & ~np.isnan(theirs[metric])
        held_back = [decision.insufficient_data] if decision.insufficient_data else []
        without = plain.decisions[metric].outcome
        if decision.outcome == "inconclusive" and without != "inconclusive":
            held_back = [_open_text(after[metric], before[metric], int(lacking[metric].sum()), without)]
        held_back += [by_content[metric]] if metric in by_content else []
        lost = metric in since and since[metric].outcome == "regressed"
        verdicts.append(
            Verdict(
                metric,
                decision,
                "regressed" if lost else "inconclusive" if held_back else decision.outcome,
                _mean(theirs[metric][pairs]),
                _mean(ours[metric][pairs]),
                up[metric],
                _unpaired(ours[metric], theirs[metric], answered[candidate.run], answered[baseline.run]),
                int(lacking[metric].sum()),
                () if lost else tuple(held_back),
                decision.clusters_needed,
                known[metric],
                since.get(metric),
            )
        )
    if untested and not allow_same:
        verdicts = [_not_tested(verdict) for verdict in verdicts]
    outcomes = [verdict.outcome for verdict in verdicts]
    whole = outcome_of(outcomes, outcomes)
    changed = tuple(item for item in settings_of(baseline, candidate) if item.key.startswith("description"))
    gate = Gate(
        whole, baseline, candidate, tuple(verdicts), strict, allow_partial, len(columns.questions), columns.sampled, changed, (),
        None if anchor is None else anchor.run,
    )  # fmt: skip
    if untested:
        why = f"this is not a test of a change: {untested}" if allow_same else f"nothing was tested: {untested}"
        warnings = [why] if allow_same else [why, TEST_IT]
    else:
        warnings = warnings_of(store, baseline, candidate)
    if anchored is not None and not (untested and not allow_same):
        warnings += _forgotten(store, gate, anchored)
    return replace(gate, remarks=(*warnings, *drifted, *(line for side in read for line in side.remarks), *_remarks(gate)))


def _anchor_run(store: Store, run: str, name: str | None) -> RunRow:
    """Return the run that an anchor names.

    Raises:
        UserError: It is not in this store.
    """
    row = next((row for row in queries.runs(store) if row.run == run), None)
    if row is None:
        raise UserError(
            f"the run of the anchor of {name} is not in this store: {run}",
            code="anchor-gone",
            where=str(store.folder),
            try_this="ragmeter store import FOLDER of a store that holds it, or ragmeter gate --set-anchor",
        )
    return row


def _forgotten(store: Store, gate: Gate, name: str) -> list[str]:
    """Return what the memory lacks for this decision: an anchor, its scores, or any earlier decision."""
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


TEST_IT = "to test: run what changed, ask again with `ragmeter run --fresh`, or give the endpoint a `revision`; --allow-same decides anyway"
"""The remark on what to do if nothing was tested."""


def _not_tested(verdict: Verdict) -> Verdict:
    """Remove the difference from a verdict about two sides that are the same."""
    nothing = math.nan
    difference = replace(verdict.decision.difference, value=nothing, low=nothing, high=nothing, p=nothing, insufficient_data="")
    decision = replace(
        verdict.decision,
        outcome="inconclusive",
        difference=difference,
        p=nothing,
        p_pass=nothing,
        p_holm=nothing,
        minimum_detectable=nothing,
        clusters_needed=None,
        insufficient_data="",
    )
    return replace(verdict, decision=decision, outcome="not tested", held_back=(), clusters_needed=None, since=None)


def margins_of(
    store: Store,
    baseline: RunRow,
    candidate: RunRow,
    metrics: Sequence[str],
    margin: float | None = None,
    margins: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Return the margin of each metric to decide on, by the metric's id; arguments as in `ask`.

    Raises:
        UserError: A metric is unknown to one of the runs, or a margin is missing, too wide or for an unknown metric.
    """
    if not metrics:
        raise UserError("no metric to decide on", code="no-metric-decide", try_this="--metric f1")
    chosen = {name: _common_metric(store, baseline, candidate, name) for name in metrics}
    named = dict(margins or {})
    for name in named:
        if name not in chosen and all(name not in (m, m.partition("#")[0]) for m in chosen.values()):
            raise unknown_name("metric with a margin", name, chosen, where="--margin")
    known = queries.definitions(store)
    widths = {m: _width(known.get(m, {}).get("low"), known.get(m, {}).get("high")) for m in chosen.values()}
    return {m: margin_of(m, name, margin, named, widths[m]) for name, m in chosen.items()}


def _check_comparable(baseline: RunRow, candidate: RunRow, *, allow_partial: bool) -> None:
    for role, run in (("baseline", baseline), ("candidate", candidate)):
        if run.kind == "control":
            raise UserError(f"the {role} {run.method} is a control, and controls are not gated", code="control-gated", where=run.path)
    keys = ("dataset", "dataset_fingerprint", "questions", "setting", "seed")
    differ = [key for key in keys if getattr(baseline, key) != getattr(candidate, key)]
    if differ:
        differences = "; ".join(f"{key}: {getattr(baseline, key)} and {getattr(candidate, key)}" for key in differ)
        raise UserError(
            "these runs must not be compared: their questions or settings differ",
            code="runs-not-comparable",
            where=f"baseline and candidate differ in {differences}",
            try_this="run both on one benchmark, in one setting, with one limit and seed; `ragmeter results compare` shows more",
        )
    for role, run in (("baseline", baseline), ("candidate", candidate)):
        if run.status != FINISHED and not allow_partial:
            again = " --retry-failed" if run.status == INCOMPLETE else ""
            raise UserError(
                f"the {role} is {run.status}, {run.done - run.failed} of {run.questions} questions answered",
                code="run-partly-answered",
                where=run.path,
                try_this=f"ragmeter run --resume{again}, or --allow-partial to decide on the questions that both have answered",
            )


def _common_metric(store: Store, baseline: RunRow, candidate: RunRow, name: str) -> str:
    """Return the one metric id that a name means for both runs."""
    results = []
    for role, run in (("baseline", baseline), ("candidate", candidate)):
        try:
            results.append(queries.named_metrics(store, [run.run], [name]))
        except UserError as error:
            scored = f"it was scored on: {', '.join(queries.metric_ids(store, [run.run])) or 'nothing yet'}"
            guess = error.try_this if error.try_this and error.try_this.startswith("did you mean") else ""
            raise queries.NotScored(
                f"the {role} was not scored on {name!r}", name, where=run.path, try_this=f"{guess} {scored}".strip()
            ) from None
    item, two = results
    both = [metric for metric in item if metric in two]
    if not both:
        raise UserError(
            f"baseline and candidate were scored on different definitions of {name!r}",
            code="metric-definitions-differ",
            where=f"baseline: {', '.join(item)}; candidate: {', '.join(two)}",
            try_this="run the older one again, so that both are scored by the same version",
        )
    if len(both) > 1:
        raise UserError(
            f"{name!r} means {len(both)} metrics", code="ambiguous-metric", where="--metric", try_this=f"name one: {', '.join(both)}"
        )
    return both[0]


def _with_open(side: Side, lacking: NDArray[np.bool_]) -> Side:
    """Return a side in which scores that are lacking are open too: a claim must hold whatever they are."""
    known = np.zeros(side.scores.shape, dtype=np.bool_) if side.open is None else side.open
    unknown = known | (lacking & np.isnan(side.scores))
    return replace(side, open=unknown) if unknown.any() else side


def _open_text(candidate: Side, baseline: Side, lacking: int, without: str) -> str:
    """Return why the outcome depends on values that are not known."""
    if lacking and without == "pass":
        return (
            f"the candidate lacks {counted(lacking, 'score')} that the baseline has, and would not pass with the metric's "
            "worst value in their place"
        )
    number = sum(int(side.open.sum()) for side in (candidate, baseline) if side.open is not None)
    verb = "pass" if without == "pass" else "regressed"
    return f"{verb} without {counted(number, 'answer')} that failed or have no score, but not if they are counted as wrong and as right"


def _answered(store: Store, run: RunRow, questions: Sequence[str]) -> NDArray[np.bool_]:
    done = store.finished_questions(run.run)
    return np.array([question in done for question in questions], dtype=bool)


def _unpaired(
    ours: NDArray[np.float64], theirs: NDArray[np.float64], candidate_answered: NDArray[np.bool_], baseline_answered: NDArray[np.bool_]
) -> dict[str, int]:
    """Count the questions that are not paired, each under the first reason that holds."""
    left = np.isnan(ours) | np.isnan(theirs)
    reasons = {
        "not answered by the candidate": ~candidate_answered,
        "not answered by the baseline": ~baseline_answered,
        "without a value for both": np.isnan(ours) & np.isnan(theirs),
        "without a value for the candidate alone": np.isnan(ours),
        "without a value for the baseline alone": np.isnan(theirs),
    }
    results = {}
    for reason, holds in reasons.items():
        results[reason] = int((left & holds).sum())
        left = left & ~holds
    return {reason: count for reason, count in results.items() if count}


def _remarks(gate: Gate) -> list[str]:
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
    for verdict in gate.verdicts:
        result = verdict.decision.difference
        if verdict.unpaired:
            lost = ", ".join(f"{count} {reason}" for reason, count in verdict.unpaired.items())
            lines.append(f"{verdict.metric}: only {result.n} of {gate.questions} questions are paired ({lost})")
        lines += [f"{verdict.metric}: inconclusive: {reason}" for reason in verdict.held_back]
        if verdict.memory.attempt > 1:
            lines.append(
                f"{verdict.metric}: attempt {verdict.memory.attempt} of this candidate on these questions, so a pass takes a bound of "
                f"{100 * verdict.pass_level:.4g} % (98 % at first); if it did change, state its `revision`"
            )
        if verdict.since is not None and verdict.since.outcome == "regressed":
            since = verdict.since
            lines.append(f"{verdict.metric}: it lost more than the margin since the anchor {since.run.path} of {since.set_at:%Y-%m-%d}")
        if result.insufficient_data and not verdict.held_back:
            lines.append(f"{verdict.metric}: no interval: {result.insufficient_data}")
    return lines


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    """Return one metric's part of the gate as a JSON object."""
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


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else math.nan


def _width(low: float | None, high: float | None) -> float | None:
    return None if low is None or high is None else high - low
