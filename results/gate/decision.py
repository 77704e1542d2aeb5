"""The regression gate: decide whether a candidate may replace a baseline.

`ask` checks that two runs may be compared, pairs their scores question by question, and lets
`results.statistics.gate` decide. Questions without a pair are counted in the remarks. If only the baseline has a score,
the candidate must still pass with the metric's worst value in its place. If both sides are the same run, nothing was
tested, and the outcome says that. If the baseline has an anchor, the candidate regresses too if it lost more than the
margin since the anchor (`results.gate.memory`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.core.errors import UserError, counted
from results.boards.diff import settings_of
from results.boards.series import members_of, side_by_side
from results.boards.sides import sides
from results.boards.unread import range_of_metric
from results.gate.comparable import check_comparable, margins_of
from results.gate.contaminated import contamination, held_back_by, remarks_of
from results.gate.memory import anchor_of, remembered
from results.gate.remarks import TEST_IT, forgotten, remarks
from results.gate.verdicts import Gate, Since, Verdict, outcome_of
from results.gate.warnings import warnings_of, why_untested
from results.statistics import spending
from results.statistics.difference import Side, generalizes
from results.statistics.gate import GateReport, decide_all
from results.store import queries, score_queries
from results.store.checkpoints import known_checkpoints
from results.store.drift import drift, refuse_drift, within
from results.store.queries import RunRow
from results.store.store import Store


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
    over_seeds: bool = False,
) -> Gate:
    """Decide whether a candidate run regressed against a baseline run (paired non-inferiority test per metric).

    Args:
        store: The store to read.
        baseline, candidate: The two runs; other repeats of each in the same experiment are included.
        metrics: Metric ids, or unambiguous beginnings of ids.
        margin: Tolerated loss, as a fraction, on every metric not named in `margins`.
        margins: Tolerated losses by metric, as named in `metrics`.
        strict: Count any significant loss as a regression, even within the margin; refuse runs whose endpoint reported another
            model version.
        allow_partial: Compare unfinished runs over the questions that both answered.
        allow_same: Decide even if nothing is tested, because both are the same run; by default the outcome is then "not
            tested".
        anchored: The user's name of the baseline, to test the loss since its anchor (a pinned earlier run), too; None does not.
        cells: Number of decisions that share the anchor's error probability.
        over_seeds: Whether the other trainings of each method in its experiment count, too.

    Raises:
        UserError: The runs must not be compared, were scored on different metrics, a margin is missing, or the anchor was
            deleted.
    """
    check_comparable(baseline, candidate, allow_partial=allow_partial)
    same = baseline.run == candidate.run
    members = side_by_side(store, list({run.run: run for run in (baseline, candidate)}.values()), over_seeds)
    both = members[baseline.run], members[candidate.run]
    drifted = [] if same else [*drift(store, baseline, candidate), *(line for side in both for run in side for line in within(store, run))]
    if strict:
        refuse_drift(drifted)
    tolerated = margins_of(store, baseline, candidate, metrics, margin, margins)
    ids = list(tolerated)
    definitions = score_queries.definitions(store)
    ranges = {m: range_of_metric(definitions.get(m, {})) for m in ids}
    up = {m: bool(definitions.get(m, {}).get("higher_is_better", True)) for m in ids}

    pinned = None if anchored is None else anchor_of(store, anchored, candidate)
    anchor = None if pinned is None else _anchor_run(store, pinned.run, anchored, baseline.experiment)
    with store.database.reading() as connection:
        known = remembered(connection, *both, tolerated, None if anchor is None else anchor.run)
    if pinned is not None and anchor is not None:
        members.setdefault(anchor.run, members_of(store, anchor, over_seeds, until=pinned.set_at))
    runs = list({run.run: run for side in members.values() for run in side}.values())
    columns = score_queries.score_columns(
        store, baseline.dataset_fingerprint, [run.run for run in runs], ids, {run.experiment for run in runs}
    )
    # A repeat that was not scored on all metrics does not count.
    scored = {run for run, _ in columns.values if all((run, m) in columns.values for m in ids)}
    members = {run: [one for one in side if one.run in {run, *scored}] for run, side in members.items()}
    answered = {run: np.all([_answered(store, one, columns.questions) for one in side], axis=0) for run, side in members.items()}
    trained = known_checkpoints(store)
    every = sides(store, columns, members, ids, definitions, trained)
    ours = {m: every[candidate.run, m].mean for m in ids}
    theirs = {m: every[baseline.run, m].mean for m in ids}
    lacking = {m: answered[candidate.run] & np.isnan(ours[m]) & ~np.isnan(theirs[m]) for m in ids}
    how: dict[str, Any] = {"strict": strict, "clusters": columns.sampled.labels, "ranges": ranges}
    how["lower_is_better"] = {m for m in ids if not up[m]}

    def against(run: RunRow, chosen: Sequence[str], **levels: Any) -> tuple[dict[str, Side], dict[str, Side], GateReport]:
        before = {m: every[run.run, m] for m in chosen}
        gone = {m: answered[candidate.run] & np.isnan(ours[m]) & ~np.isnan(every[run.run, m].mean) for m in chosen}
        after = {m: _with_open(every[candidate.run, m], gone[m]) for m in chosen}
        return after, before, decide_all(after, before, margins={m: tolerated[m] for m in chosen}, **how, **levels)

    lower = {m: 1 - 2 * spending.of_attempt(known[m].attempt) for m in ids}
    after, before, report = against(baseline, ids, lower=lower)
    closed = ({m: replace(side, open=None) for m, side in of.items()} for of in (after, before))
    plain = decide_all(*closed, margins=tolerated, lower=lower, **how)
    roles = {"candidate": candidate, "baseline": baseline}
    read = [contamination(store, role, members[run.run], trained, columns.questions) for role, run in roles.items()]
    first = {m: report.decisions[m].outcome for m in ids}
    again = partial(decide_all, margins=tolerated, lower=lower, **how)
    by_content = held_back_by(first, (read[0], after), (read[1], before), again)
    since: dict[str, Since] = {}
    if pinned is not None and anchor is not None and anchor.run != candidate.run:
        for number in {known[m].number for m in ids}:
            chosen = [m for m in ids if known[m].number == number and (anchor.run, m) in every]
            if chosen:
                # Holm's correction within the report is over the metrics; cells that are decided separately share it too.
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
                generalizes(after[metric], before[metric], judged=definitions.get(metric, {}).get("judge") is not None),
                since.get(metric),
                score_queries.scale_of(metric, definitions),
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
        {role: tuple(members[run.run]) for role, run in (("baseline", baseline), ("candidate", candidate))},
    )  # fmt: skip
    if untested:
        why = f"this is not a test of a change: {untested}" if allow_same else f"nothing was tested: {untested}"
        warnings = [why] if allow_same else [why, TEST_IT]
    else:
        warnings = warnings_of(store, baseline, candidate)
    if anchored is not None and not (untested and not allow_same):
        warnings += forgotten(store, gate, anchored)
    return replace(gate, remarks=(*warnings, *drifted, *remarks_of(read), *remarks(gate)))


def _anchor_run(store: Store, run: str, name: str | None, experiment: str) -> RunRow:
    """Return the run of an anchor; if several experiments have it, the one in the baseline's experiment.

    Raises:
        UserError: It is not in this store.
    """
    row = min((row for row in queries.runs(store) if row.run == run), key=lambda row: row.experiment != experiment, default=None)
    if row is None:
        raise UserError(
            f"the run of the anchor of {name} is not in this store: {run}",
            code="anchor-gone",
            where=str(store.folder),
            try_this="ragmeter store import FOLDER of a store that holds it, or ragmeter gate --set-anchor",
        )
    return row


def _not_tested(verdict: Verdict) -> Verdict:
    """Remove the difference from a verdict about two identical sides."""
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


def _with_open(side: Side, lacking: NDArray[np.bool_]) -> Side:
    """Return a side with missing scores as unknown, so that a claim must hold for all their possible values."""
    known = np.zeros(side.scores.shape, dtype=np.bool_) if side.open is None else side.open
    unknown = known | (lacking & np.isnan(side.scores))
    return replace(side, open=unknown) if unknown.any() else side


def _open_text(candidate: Side, baseline: Side, lacking: int, without: str) -> str:
    """Describe why the outcome depends on unknown values."""
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
    """Count unpaired questions by the first applicable reason."""
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


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else math.nan
