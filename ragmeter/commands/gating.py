"""`gate`: may a candidate take the baseline's place?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from benchmarks.errors import unwritable
from benchmarks.plurals import counted
from ragmeter.console import emit, err, out
from ragmeter.gate_reports import interval, junit, points, reach, summary
from ragmeter.unscored import offering_score
from results import blessed, store_folder
from results.checkpoints import Checkpoint
from results.gate import Gate, ask
from results.gate_history import record
from results.margins import parse_margins
from results.queries import RunRow
from results.store import Store

_STYLES: Mapping[str, str] = {"pass": "green", "regressed": "bold red", "inconclusive": "yellow"}


@dataclass(frozen=True)
class Request:
    """What the gate was asked, as it was written."""

    baseline: str
    candidate: str
    metrics: tuple[str, ...]
    margins: tuple[str, ...]
    strict: bool = False
    allow_partial: bool = False


def gate(request: Request, junit_file: Path | None, summary_file: Path | None, folder: Path | None, as_json: bool, quiet: bool) -> int:
    """Decide, show, keep the decision; returns the exit code."""
    store = Store(store_folder(folder))
    margin, margins = parse_margins(request.margins)
    targets = blessed.resolve(store, request.baseline), blessed.resolve(store, request.candidate)
    baseline, candidate = _runs(store, *targets)
    with offering_score():
        decided = ask(
            store,
            baseline,
            candidate,
            metrics=request.metrics,
            margin=margin,
            margins=margins,
            strict=request.strict,
            allow_partial=request.allow_partial,
        )
    asked = {"asked": {"baseline": request.baseline, "candidate": request.candidate}} | {
        f"{role}_checkpoint": target.sha256
        for role, target in zip(("baseline", "candidate"), targets, strict=True)
        if isinstance(target, Checkpoint)
    }
    record(store, decided, **asked)
    if junit_file is not None:
        _write(junit_file, junit(decided), "--junit", append=False)
    if summary_file is not None:
        _write(summary_file, summary(decided, (request.baseline, request.candidate)), "--summary", append=True)
    emit(decided.to_json() | asked, as_json, lambda: _show(decided, request, quiet))
    return decided.exit_code


def _runs(store: Store, baseline: RunRow | Checkpoint, candidate: RunRow | Checkpoint) -> tuple[RunRow, RunRow]:
    """The runs meant; a checkpoint's is sought on the other side's benchmark."""
    if isinstance(baseline, Checkpoint) and isinstance(candidate, RunRow):
        return blessed.run_of(store, baseline, candidate), candidate
    first = blessed.run_of(store, baseline)
    return first, blessed.run_of(store, candidate, first)


def _show(decided: Gate, request: Request, quiet: bool) -> None:
    baseline = decided.baseline
    if not quiet:
        out.print(Text(f"baseline   {request.baseline}: {baseline.path} ({baseline.run[:8]})"))
        out.print(Text(f"candidate  {request.candidate}: {decided.candidate.path} ({decided.candidate.run[:8]})"))
        out.print(Text(f"on {baseline.dataset}, setting {baseline.setting}, {counted(decided.questions, 'question')}"))
        out.print()
    for verdict in decided.verdicts:
        found, margin = verdict.decision.difference, points(verdict.decision.margin)
        out.print(Text(f"{verdict.metric}  ", style="bold") + Text(verdict.outcome, style=_STYLES[verdict.outcome]))
        out.print(Text(f"  baseline {points(verdict.baseline)}, candidate {points(verdict.candidate)}"))
        better = "" if verdict.higher_is_better else ", less is better"
        out.print(Text(f"  difference {interval(verdict)}, margin {margin}pp, {found.n} pairs{better}"))
        if said := reach(verdict):
            out.print(Text(f"  {said}"))
    if not quiet:
        bar = "0" if decided.strict else "minus the margin"
        unit = "documents" if decided.clustered else "questions"
        rule = f"regressed: the interval lies below {bar}; pass: above minus the margin"
        out.print()
        out.print(Text(f"× 100, with 95 % intervals (bootstrap over {unit}); {rule}", style="dim"))
    for line in decided.remarks:
        err.print(Text(line, style="yellow"))
    out.print(Text(decided.outcome, style=_STYLES[decided.outcome]))


def _write(path: Path, text: str, option: str, *, append: bool) -> None:
    try:
        with path.open("a" if append else "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError as error:
        raise unwritable(error, f"{option} {path}") from error
