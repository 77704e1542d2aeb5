"""Submissions: predictions made elsewhere that are checked, scored here and stored next to local runs.

`validate` is a pure function from a card (`card.py`), a stream of rows (`rows.py`) and a benchmark to a `Report`;
`leakage.py` looks for gold in prompts and in training data. `store_report` (`storing.py`) stores valid submissions and
compares them with a run made here; `bundle.py` reads what is sent, with templates. Everything in a submission is untrusted
text: nothing of it is executed, unpickled, rendered or used as a path.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml

from benchmarks.core.errors import UserError, counted
from judges.metric import Scores
from methods.api import Prediction
from results.offered import LIMITS
from results.submission.card import Card

Severity = Literal["error", "warning", "note"]
SHOWN_CHARS = 80
NOT_IN_FILE = "the file has no row for this question"
"""Failure reason of a question that is missing in a file, if the official script scores such files."""
NO_ANSWER = "the file has no answer to this question"
"""Failure reason of a question that has only other parts in a file."""


@dataclass(frozen=True, slots=True)
class Place:
    """Place in a submission's file where a problem occurs.

    Attributes:
        line: 1-based line of the file; None if the problem is not in a line (a missing question).
        detail: Description of the problem there.
    """

    line: int | None
    detail: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of problem in a submission, with the places where it occurs.

    Attributes:
        code: Stable name for programs, for example `unknown_evidence`.
        severity: An error rejects the submission; warnings and notes are stored and shown with it.
        what: The problem in one sentence.
        try_this: The remedy.
        count: Number of occurrences.
        positions: The first occurrences.
    """

    code: str
    severity: Severity
    what: str
    try_this: str | None
    count: int
    positions: tuple[Place, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the finding as a JSON object."""
        positions = [{"line": position.line, "detail": position.detail} for position in self.positions]
        return {
            "code": self.code,
            "severity": self.severity,
            "what": self.what,
            "try": self.try_this,
            "count": self.count,
            "places": positions,
        }


@cache
def _listed() -> Mapping[str, Any]:
    entries: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_name("findings.yaml").read_text(encoding="utf-8"))
    return entries


class Findings:
    """Collects the problems of a submission while it is read; stores at most `shown` places per kind.

    Attributes:
        strict: Whether problems that an official script tolerates are errors.
        tolerated: Number of problems that an official script tolerates.
    """

    def __init__(self, shown: int = LIMITS.shown, *, strict: bool = False) -> None:
        self._shown = shown
        self.strict, self.tolerated = strict, 0
        self._kinds: dict[str, tuple[Severity, str, str | None]] = {}
        self._counts: dict[str, int] = {}
        self._positions: dict[str, list[Place]] = {}

    def add(
        self, code: str, what: str, detail: str = "", *, line: int | None = None, severity: Severity = "error", try_this: str | None = None
    ) -> None:
        """Count a problem; the first call with a code sets the finding's text and remedy."""
        self._kinds.setdefault(code, (severity, what, try_this))
        self._counts[code] = self._counts.get(code, 0) + 1
        positions = self._positions.setdefault(code, [])
        if len(positions) < self._shown and (detail or line is not None):
            positions.append(Place(line, detail))

    def listed(self, code: str, detail: str = "", *, line: int | None = None, severity: Severity | None = None, **values: Any) -> None:
        """Count a problem whose text is defined in `findings.yaml`; `values` fill its placeholders."""
        known = _listed()[code]
        kind: Severity = severity or known.get("severity", "error")
        self.add(code, known["what"].format(**values), detail, line=line, severity=kind, try_this=known.get("try"))

    def lenient(self, code: str, what: str, detail: str = "", *, line: int | None = None, try_this: str | None = None) -> None:
        """Count a problem that an official script tolerates: a warning, or an error if `strict` is set."""
        self.tolerated += 1
        self.add(code, what, detail, line=line, severity="error" if self.strict else "warning", try_this=try_this)

    def count(self, code: str) -> int:
        """Return how often a problem occurred."""
        return self._counts.get(code, 0)

    @property
    def errors(self) -> int:
        """Return the number of problems that reject the submission."""
        return sum(count for code, count in self._counts.items() if self._kinds[code][0] == "error")

    def all(self) -> tuple[Finding, ...]:
        """Return all findings: errors first, then warnings, then notes, each in order of occurrence."""
        rank = {"error": 0, "warning": 1, "note": 2}
        results = [Finding(code, *self._kinds[code], self._counts[code], tuple(self._positions[code])) for code in self._kinds]
        return tuple(sorted(results, key=lambda item: rank[item.severity]))


@dataclass(frozen=True)
class Report:
    """Result of validating a submission: the findings and, if it is accepted, its scores.

    Attributes:
        card: The submission's card.
        file: Name of the predictions file, for display.
        dataset: Name of the benchmark that it was checked against.
        dataset_fingerprint: Fingerprint of questions, gold and corpus.
        rows: Number of rows read.
        questions: Number of questions in the benchmark.
        findings: Problems, grouped by kind.
        predictions: Predictions in the order of the questions, with the dataset's own ids; empty if there are errors.
        contamination: How the declared training data overlap with the test questions, in sentences; empty if they do not.
        scores: Scores by metric id, shape (questions,), NaN if unscorable; empty if there are errors.
        digest: Hash of the predictions that does not depend on the order and formatting of the rows.
        official: Scores that the benchmark's official script would print, by its names; None means NaN.
        left_out: Number of missing questions that the official script ignores; tables count them as wrong.
    """

    card: Card
    file: str
    dataset: str
    dataset_fingerprint: str
    rows: int
    questions: int
    findings: tuple[Finding, ...]
    predictions: tuple[Prediction, ...] = ()
    contamination: tuple[str, ...] = ()
    scores: Mapping[str, Scores] = field(default_factory=dict)
    digest: str = ""
    official: Mapping[str, float | None] = field(default_factory=dict)
    left_out: int = 0

    @property
    def ok(self) -> bool:
        """Return whether the submission has no errors and may be stored."""
        return not self.of("error")

    def of(self, severity: Severity) -> list[Finding]:
        """Return the findings of this severity."""
        return [finding for finding in self.findings if finding.severity == severity]

    @property
    def means(self) -> dict[str, float | None]:
        """Return the mean over scorable questions by metric id; None if there are none."""
        return {name: mean(values) for name, values in self.scores.items()}

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object, without the predictions themselves."""
        return {
            "ok": self.ok,
            "method": self.card.method.name,
            "version": self.card.method.version,
            "file": self.file,
            "dataset": self.dataset,
            "dataset_fingerprint": self.dataset_fingerprint,
            "setting": str(self.card.setting),
            "seed": self.card.seed,
            "rows": self.rows,
            "questions": self.questions,
            "findings": [finding.to_json() for finding in self.findings],
            "contamination": list(self.contamination),
            "scores": self.means,
            "official": dict(self.official),
            "official_left_out": self.left_out,
            "predictions_digest": self.digest or None,
        }

    def lines(self) -> list[str]:
        """Render the report as text lines; names and answers in it are untrusted."""
        verdict = "can be stored" if self.ok else "cannot be stored"
        lines = [
            f"{self.card.method.label} on {self.dataset}, setting {self.card.setting}: {verdict}",
            f"{counted(self.rows, 'row')} of {self.file} read for {counted(self.questions, 'question')}",
        ]
        for finding in self.findings:
            count = f" ({finding.count} times)" if finding.count > 1 else ""
            lines.append(f"{finding.severity}: {finding.what}{count}")
            for position in finding.positions:
                where = f"{self.file}:{position.line}" if position.line is not None else ""
                lines.append("  " + ": ".join(filter(None, (where, position.detail))))
            if finding.positions and finding.count > len(finding.positions):
                lines.append(f"  … and {finding.count - len(finding.positions)} more")
            if finding.try_this:
                lines.append(f"  try: {finding.try_this}")
        if self.official:
            values = ", ".join(f"{name} {value}" if value is not None else f"{name} nan" for name, value in self.official.items())
            over = f" (over {counted(self.questions - self.left_out, 'question')}; tables count the other {self.left_out:,} as wrong)"
            lines.append(f"official script: {values}" + over * bool(self.left_out))
        return lines

    def require_ok(self) -> Report:
        """Return the report if it has no errors.

        Raises:
            UserError: The report has errors.
        """
        errors = self.of("error")
        if errors:
            first = errors[0]
            position = f"{self.file}:{first.positions[0].line}" if first.positions and first.positions[0].line else self.file
            more = f" (and {len(errors) - 1} other kinds of problems)" if len(errors) > 1 else ""
            raise UserError(f"{first.what}{more}", code="bad-submission", where=position, try_this=first.try_this)
        return self


def shown(value: object, length: int = SHOWN_CHARS) -> str:
    """Quote an untrusted value for a message: without control characters, truncated."""
    text = repr(value[: length + 1]) if isinstance(value, str) else ascii(value)
    return text if len(text) <= length else text[: length - 1] + "…"


def mean(values: Scores) -> float | None:
    """Return the mean over scorable questions; None if there are none."""
    return None if np.isnan(values).all() else float(np.nanmean(values))
