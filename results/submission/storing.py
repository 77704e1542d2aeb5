"""Keeping what passed: a submission becomes a run of origin `submitted`, with our scores and its card."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.corpus import Corpus
from benchmarks.errors import UserError
from benchmarks.fingerprint import fingerprint
from benchmarks.schema import SENTENCE_MARK, Passage
from judges.api import Metric
from methods.api import Prediction
from results import queries
from results.queries import RunRow
from results.store import FINISHED, Run, Store
from results.submission.card import Card
from results.submission.checks import Target
from results.submission.findings import Report
from results.submission.limits import MIB

SUBMITTED, VERIFIED = "submitted", "verified"
RECORD = "submission"
"""Key of the stored card under which stands what was found here: digests, contamination, warnings, verification."""
_BATCH_ROWS = 500
_BATCH_CHARS = 16 * MIB


@dataclass(frozen=True, slots=True)
class Stored:
    """Where a submission is kept.

    Attributes:
        run: Its fingerprint.
        outcome: `stored` now, or `known`: the same was submitted before and nothing was written.
    """

    run: str
    outcome: Literal["stored", "known"]


def run_of(card: Card, dataset_fingerprint: str) -> str:
    """The fingerprint of a submission's run: method, version, data, setting and seed, whatever it answered."""
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
) -> Stored:
    """Write a validated submission.

    Args:
        store: Where to.
        report: Of `validate`, without errors.
        target: What it was checked against.
        metrics: Those that were scored; their definitions are kept.
        environment: Of this machine, which scored it.
        provenance: What else is known of how it came here.

    Raises:
        UserError: The report has errors, or another submission of this method and version is there already.
    """
    report.require_ok()
    card = report.card
    run = run_of(card, report.dataset_fingerprint)
    known = stored(store, run)
    if known is not None and known.status == FINISHED:
        kept = (known.card or {}).get(RECORD, {})
        if kept.get("predictions_digest") == report.digest and kept.get("card_digest") == card.digest:
            return Stored(run, "known")
        changed = "card" if kept.get("predictions_digest") == report.digest else "predictions"
        raise UserError(
            f"{card.method.label} was submitted before with other {changed}",
            where=f"run {run[:8]} ({known.path})",
            try_this="give the changed one a new `version` in its card; what was submitted stays as it was",
        )
    if known is not None:
        # An earlier attempt was cut off; what it left may be of other predictions.
        store.forget(run)
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
            dict(environment),
            SUBMITTED,
            card.to_json() | {RECORD: _record(report)},
        )
    )
    for start, end in _batches(report.predictions):
        batch = report.predictions[start:end]
        scores = {name: values[start:end] for name, values in report.scores.items()}
        store.append(run, batch, scores, _passages(batch, target.loaded.corpus))
    store.end(run, FINISHED)
    return Stored(run, "stored")


def _description(card: Card) -> dict[str, Any]:
    said = card.to_json()
    return {"submission": card.method.label, "models": said["models"], "settings": said["settings"]}


def stored(store: Store, run: str) -> RunRow | None:
    """The stored run with this fingerprint."""
    if not store.database.exists:
        return None
    return next((row for row in queries.runs(store) if row.run == run), None)


def _record(report: Report) -> dict[str, Any]:
    return {
        "card_digest": report.card.digest,
        "predictions_digest": report.digest,
        "contamination": list(report.contamination),
        "findings": [finding.to_json() for finding in report.findings],
        "verification": None,
    }


def _batches(predictions: Sequence[Prediction]) -> list[tuple[int, int]]:
    """Ranges of rows that are written in one transaction each, bounded in rows and in text."""
    ranges, start, held = [], 0, 0
    for row, prediction in enumerate(predictions):
        held += len(prediction.answer) + sum(len(one["content"]) for one in prediction.notes.get("prompt", ()))
        if row + 1 - start >= _BATCH_ROWS or held > _BATCH_CHARS:
            ranges.append((start, row + 1))
            start, held = row + 1, 0
    return [*ranges, (start, len(predictions))] if start < len(predictions) else ranges


def _passages(predictions: Iterable[Prediction], corpus: Corpus) -> list[Passage]:
    named = (item.id.partition(SENTENCE_MARK)[0] for prediction in predictions for item in prediction.evidence)
    return corpus.get(dict.fromkeys(named))
