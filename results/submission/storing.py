"""Keeping what passed: a submission becomes a run of origin `submitted`, with our scores and its card."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from benchmarks.registry import DataReference
from judges.metric import Metric
from methods.api import Prediction
from results.boards.added import added_columns
from results.boards.markup import plain
from results.boards.systems import IMPLAUSIBLE
from results.contexts import named
from results.offered import MIB
from results.statistics.core import Estimate
from results.statistics.intervals import estimates
from results.store import queries, score_queries
from results.store.queries import RunRow
from results.store.store import FINISHED, Run, Store
from results.submission import Report
from results.submission.card import Card
from results.submission.plausible import SIGNS, LoadRuns, StoredRun
from results.submission.review import HELD, RECORD, STATUS, SUBMITTED, VERIFIED, WAITING, WITHDRAWN, decision
from results.submission.validate import Target


def board_runs(rows: Iterable[RunRow], dataset_fingerprint: str, setting: str, seed: int) -> list[RunRow]:
    """List the stored runs that a submission would be compared with: same data, setting and seed; each once.

    Args:
        rows: All stored runs.
        dataset_fingerprint, setting, seed: The data that the submission was checked against.
    """
    matching = (row for row in rows if (row.dataset_fingerprint, row.setting, row.seed) == (dataset_fingerprint, setting, seed))
    return list({row.run: row for row in matching}.values())


def board_metrics(store: Store, card: Card, dataset_fingerprint: str) -> list[str]:
    """List the metrics shown on the boards that a submission joins, including columns that users added."""
    if not store.database.exists:
        return []
    runs = [row.run for row in board_runs(queries.runs(store), dataset_fingerprint, str(card.setting), card.seed)]
    shown = store.database.rows("SELECT DISTINCT unnest(metrics) FROM experiment_runs WHERE list_contains(?, run) ORDER BY 1", [runs])
    return list(dict.fromkeys([*(name for (name,) in shown), *(column.metric for column in added_columns(store, runs))]))


def other_runs(store: Store, card: Card, dataset_fingerprint: str) -> LoadRuns:
    """Return a function that loads the finished runs over the same questions, in any setting, to detect copied answers.

    Controls are left out, and so are runs of a method with the same name, which legitimately give nearly the same answers.
    Held and rejected submissions count, or their answers could be sent again under another name. Withdrawn ones do not: their
    senders may do that.
    """
    same = {card.method.name.casefold(), card.method.label.casefold()}

    def load() -> Iterator[StoredRun]:
        known = queries.runs(store, hidden=True) if store.database.exists else []
        for row in {row.run: row for row in known if row.origin != WITHDRAWN}.values():
            names = {row.method.casefold(), row.method_id.casefold(), row.method.partition("@")[0].casefold()}
            if row.dataset_fingerprint == dataset_fingerprint and row.status == FINISHED and row.kind != "control" and not names & same:
                yield StoredRun(f"{row.method} (run {row.run[:8]})", answers(store, row.run))

    return load


def answers(store: Store, run: str) -> dict[str, str]:
    """Read the answers of a stored run by question id, without failed questions."""
    rows = store.database.rows("SELECT question, answer FROM predictions WHERE run = ? AND failed IS NULL", [run])
    return dict(rows)


def preview(report: Report, target: Target) -> dict[str, Estimate]:
    """Compute each metric's mean and interval for a submission that is not stored yet, as tables would show them.

    Args:
        report: Result of `validate`.
        target: The benchmark that it was checked against.

    Returns:
        By metric id; empty if the report has errors.
    """
    if not report.scores:
        return {}
    results = estimates(np.stack(list(report.scores.values())), clusters=target.sampled.labels)
    return dict(zip(report.scores, results, strict=True))


def to_json(results: dict[str, Estimate]) -> dict[str, Any]:
    """Return a preview as a JSON object; None means "no value"."""
    names = ("value", "low", "high", "n", "unscorable", "insufficient_data")
    return {metric: {name: plain(getattr(item, name)) for name in names} for metric, item in results.items()}


_BATCH_ROWS = 500
_BATCH_CHARS = 16 * MIB


@dataclass(frozen=True, slots=True)
class Stored:
    """Result of storing a submission.

    Attributes:
        run: Fingerprint of its run.
        outcome: "stored", or "known" if the same submission exists already and nothing was written.
    """

    run: str
    outcome: Literal["stored", "known"]


def run_of(card: Card, dataset_fingerprint: str) -> str:
    """Compute the fingerprint of a submission's run from method, version, data, setting and seed, independent of its answers."""
    name, version = card.method.name, card.method.version
    return fingerprint("submission", dataset_fingerprint, str(card.setting), name, version, card.seed)


def store_report(
    store: Store,
    report: Report,
    target: Target,
    metrics: Iterable[Metric],
    *,
    environment: Mapping[str, Any],
    provenance: Mapping[str, Any] | None = None,
    hold: bool = False,
) -> Stored:
    """Store a validated submission.

    Args:
        store: The store to write.
        report: Result of `validate`, without errors.
        target: The benchmark that it was checked against.
        metrics: The scored metrics, whose definitions are stored.
        environment: Description of this machine, which computed the scores.
        provenance: Further facts about its origin.
        hold: Whether it needs approval before boards show it.

    Raises:
        UserError: The report has errors, or another submission of this method and version exists already.
    """
    report.require_ok()
    card = report.card
    run = run_of(card, report.dataset_fingerprint)
    known, changed = earlier(store, report)
    if changed is not None:
        raise changed
    if known is not None and known.status == FINISHED:
        return Stored(run, "known")
    if known is not None:
        # An earlier attempt was cut off; what it left may be of other predictions.
        store.forget(run)
    if target.stored is None:
        store.put_benchmark(target.loaded, report.dataset_fingerprint)
    store.put_cards([], [metric for metric in metrics if str(metric) in report.scores])
    store.start(
        Run(
            run,
            card.method.label,
            f"{SUBMITTED}:{card.method.name}",
            "method",
            _description(card),
            report.dataset,
            report.dataset_fingerprint,
            str(card.setting),
            card.seed,
            report.questions,
            dict(provenance or {}),
            environment,
            HELD if hold else SUBMITTED,
            card.to_json() | {RECORD: _record(report) | ({"review": [decision(HELD, WAITING, "board")]} if hold else {})},
        )
    )
    for start, end in _batches(report.predictions):
        batch = report.predictions[start:end]
        scores = {name: values[start:end] for name, values in report.scores.items()}
        store.append(run, batch, scores, named(target.loaded.corpus, batch))
    store.end(run, FINISHED)
    _, changed = earlier(store, report)  # another process may have stored the same method and version meanwhile
    if changed is not None:
        raise changed
    return Stored(run, "stored")


def earlier(store: Store, report: Report) -> tuple[RunRow | None, UserError | None]:
    """Find the stored submission with a report's method and version; the error says what differs from it, None if nothing does."""
    card = report.card
    known = stored(store, run_of(card, report.dataset_fingerprint))
    kept = {} if known is None else (known.card or {}).get(RECORD, {})
    parts = {"predictions": report.digest, "card": card.digest}
    changed = next((part for part, digest in parts.items() if kept.get(f"{part}_digest") != digest), None)
    if known is None or known.status != FINISHED or changed is None:
        return known, None
    return known, UserError(
        f"{card.method.label} was submitted before with other {changed}",
        code="resubmission-differs",
        where=f"run {known.short} ({known.path})",
        try_this="give the changed one a new `version` in its card; the earlier submission stays unchanged",
    )


def _description(card: Card) -> dict[str, Any]:
    fields = card.to_json()
    return {"submission": card.method.label, "models": fields["models"], "settings": fields["settings"]}


def stored(store: Store, run: str) -> RunRow | None:
    """Find the stored run with this fingerprint; None if there is none."""
    if not store.database.exists:
        return None
    return next((row for row in queries.runs(store, hidden=True) if row.run == run), None)


def _record(report: Report) -> dict[str, Any]:
    return {
        "card_digest": report.card.digest,
        "predictions_digest": report.digest,
        "contamination": list(report.contamination),
        IMPLAUSIBLE: [finding.what for finding in report.findings if finding.code in SIGNS],
        "findings": [finding.to_json() for finding in report.findings],
        "verification": None,
    }


def _batches(predictions: Sequence[Prediction]) -> list[tuple[int, int]]:
    """Return ranges of rows per transaction, bounded in rows and text."""
    ranges, start, characters = [], 0, 0
    for row, prediction in enumerate(predictions):
        characters += len(prediction.answer) + sum(len(item["content"]) for item in prediction.notes.get("prompt", ()))
        characters += sum(len(item.text) for item in prediction.contexts or ())
        if row + 1 - start >= _BATCH_ROWS or characters > _BATCH_CHARS:
            ranges.append((start, row + 1))
            start, characters = row + 1, 0
    return [*ranges, (start, len(predictions))] if start < len(predictions) else ranges


TOLERANCE = 0.005
"""Maximum difference of a metric's mean that counts as agreement: half a point."""
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Agreement:
    """Comparison of a submission with our rerun on one metric.

    Attributes:
        metric: Id of the metric.
        submitted, ours: Mean of each run over the questions that both were scored on.
        difference: submitted - ours.
        n: Number of these questions.
        differing: Number of questions whose values differ, or that only one run has a value for.
        largest: Largest difference on one question.
        first: The first differing questions with both values, None if unscorable.
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
    """Comparison of a submission with a rerun of its method made here.

    Attributes:
        submitted, ours: Fingerprints of the two runs.
        tolerance: Allowed difference of means, as a fraction.
        questions: Number of questions in the benchmark.
        same_answers, same_evidence: Number of questions with equal answers, and with equal rankings.
        metrics: Comparison on every metric that both were scored on.
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
        """Return whether all metrics agree."""
        return all(metric.agrees for metric in self.metrics)

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as a JSON object."""
        return asdict(self) | {"agrees": self.agrees}


def find_ours(store: Store, submitted: RunRow) -> RunRow:
    """Find the finished run made here with the submission's method, on the same data in the same setting.

    Raises:
        UserError: There is no such run, or more than one.
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
    listed = ", ".join(f"{row.short} ({row.method})" for row in (named or list(rows.values()))[:8]) or "none"
    what = f"{len(named)} runs" if named else "no run"
    raise UserError(
        f"{what} of {card.method.name!r} made here is on the same data and setting",
        code="run-made-here-exists",
        where=f"{submitted.dataset}, setting {submitted.setting}",
        try_this=f"run it here (ragmeter run), or name one with --against; there are: {listed}",
    )


def compare(store: Store, submitted: RunRow, ours: RunRow, tolerance: float = TOLERANCE) -> Verification:
    """Compare a submission with a run made here, question by question.

    Raises:
        UserError: `submitted` is not a submission, `ours` was not made here, data or setting differ, or no metric is common to
            both.
    """
    if submitted.origin not in STATUS:
        raise UserError(
            f"{submitted.path} is not a submission", code="not-submission", try_this="ragmeter list runs --json shows each run's origin"
        )
    if ours.origin != "run" or ours.kind == "control" or ours.status != FINISHED:
        raise UserError(
            f"{ours.path} cannot confirm a submission: name a finished run that was made here and is not a control",
            code="unsuitable-confirming-run",
            try_this="ragmeter run FILE, then name its run with --against",
        )
    for name in ("dataset_fingerprint", "setting"):
        if getattr(submitted, name) != getattr(ours, name):
            raise UserError(
                f"the runs differ in {name}: {getattr(submitted, name)} and {getattr(ours, name)}",
                code="runs-differ",
                where=f"{submitted.path} and {ours.path}",
                try_this="run the method here on the data and in the setting of the card",
            )
    runs = [submitted.run, ours.run]
    columns = score_queries.score_columns(store, submitted.dataset_fingerprint, runs)
    theirs = [metric for run, metric in columns.values if run == submitted.run]
    common = [metric for metric in theirs if (ours.run, metric) in columns.values]
    if not common:
        raise UserError("the two runs have no metric in common", code="no-common-metric", try_this="score ours on " + ", ".join(theirs[:4]))
    responses = {run: {prediction.question_id: prediction for prediction in store.predictions(run)} for run in runs}
    pairs = [(responses[submitted.run].get(q), responses[ours.run].get(q)) for q in columns.questions]
    both = [(a, b) for a, b in pairs if a is not None and b is not None]
    return Verification(
        submitted.run,
        ours.run,
        tolerance,
        len(columns.questions),
        sum(a.answer == b.answer for a, b in both),
        sum([item.id for item in a.evidence] == [item.id for item in b.evidence] for a, b in both),
        tuple(
            _agreement(metric, columns.questions, columns.values[submitted.run, metric], columns.values[ours.run, metric], tolerance)
            for metric in common
        ),
        tuple(metric for metric in theirs if metric not in common),
    )


def promote(store: Store, submitted: RunRow, result: Verification) -> str:
    """Record the verification of a submission; if it agrees and boards show the submission, mark it as "verified".

    A disagreement does not undo an earlier successful verification.

    Returns:
        The submission's new origin.
    """
    with store.database.writing() as connection:
        # A maintainer may have decided on it during the comparison.
        present = connection.execute("SELECT origin, card FROM runs WHERE run = ?", [submitted.run]).fetchone()
        before, stored = present or (submitted.origin, None)
        if before == VERIFIED and not result.agrees:
            return VERIFIED
        card = json.loads(stored) if stored else {}
        card[RECORD] = {**card.get(RECORD, {}), "verification": result.to_json()}
        shown = before in (SUBMITTED, VERIFIED)
        origin = str(before) if not shown else VERIFIED if result.agrees else SUBMITTED
        connection.execute(
            "UPDATE runs SET origin = ?, card = ? WHERE run = ?", [origin, json.dumps(card, ensure_ascii=False), submitted.run]
        )
    return origin


def _card_part(row: RunRow) -> dict[str, Any]:
    return {key: value for key, value in (row.card or {}).items() if key != RECORD}


def card_of(row: RunRow) -> Card:
    """Return the card that a submission was stored with.

    Raises:
        UserError: The run has no card, because it was made here.
    """
    if row.card is None:
        raise UserError(
            f"{row.path} has no card: it was made here",
            code="no-submission-card",
            try_this="write one (`ragmeter submit template`) and give it with --card",
        )
    return Card.model_validate(_card_part(row))


NOT_STATED = "not stated"
"""Placeholder for unknown training data; an empty list would claim that nothing was trained."""


def card_of_run(row: RunRow) -> Card:
    """Make a card for a run made here, from its method, options, models, machine and the declared training data of its parts."""
    name = re.sub(r"[^A-Za-z0-9._+-]+", "-", row.method).strip("-._+")[:64] or row.method_id
    parts = row.provenance.get("parts", ())
    declared = list(dict.fromkeys(data for part in parts for data in part.get("training_data", ())))
    revision = row.description.get("revision")
    version = revision if isinstance(revision, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,31}", revision) else row.short
    return Card.model_validate(
        {
            "method": {"name": name, "version": version},
            "benchmark": str(DataReference.of_name(row.dataset)),
            "setting": row.setting,
            "limit": row.questions,
            "seed": row.seed,
            "dataset_fingerprint": row.dataset_fingerprint,
            "models": [{"role": role, "id": model} for role, model in dict.fromkeys(_models(row.description, "method"))][:100],
            "training_data": [{"name": data} for data in declared] or [{"name": NOT_STATED}],
            "settings": row.description,
            "hardware": ", ".join(str(row.environment[key]) for key in ("platform", "processor") if row.environment.get(key)),
        }
    )


def _models(value: Any, role: str) -> Iterator[tuple[str, str]]:
    """Yield the models named in options, with the part that uses each."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key in ("model", "local") and isinstance(item, str) and item:
                yield role, item[:500]
            yield from _models(item, role if key in ("config", "llm") else str(key))
    elif isinstance(value, list):
        for item in value:
            yield from _models(item, role)


def _agreement(metric: str, questions: list[str], theirs: np.ndarray, ours: np.ndarray, tolerance: float) -> Agreement:
    scorable = ~np.isnan(theirs) & ~np.isnan(ours)
    torn = np.isnan(theirs) != np.isnan(ours)
    gaps = np.where(scorable, np.abs(theirs - ours), 0.0)
    differing = np.flatnonzero((gaps > 1e-9) | torn)
    n = int(scorable.sum())
    submitted = float(theirs[scorable].mean()) if n else None
    result = float(ours[scorable].mean()) if n else None
    difference = submitted - result if submitted is not None and result is not None else None
    first = tuple((questions[row], _value(theirs[row]), _value(ours[row])) for row in differing[:SHOWN])
    agrees = not torn.any() and (difference is None or abs(difference) <= tolerance + 1e-12)
    return Agreement(metric, submitted, result, difference, n, len(differing), float(gaps.max(initial=0.0)), first, bool(agrees))


def _value(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
