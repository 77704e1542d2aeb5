"""`gate`, `checkpoints`, `checkpoints add`, `checkpoints verify`, `bless`."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from benchmarks.core.errors import UserError, counted, unwritable
from ragmeter.console import emit, err, listing, offering_score, out
from results import checkpoints as blessed
from results import checkpoints as registry
from results import store_folder
from results.checkpoints import CARD, Checkpoint
from results.gate import Gate, Verdict, ask, parse_margins, record
from results.queries import RunRow
from results.store import Store
from results.tables import markdown_text, to_markdown


def checkpoints(folder: Path | None, as_json: bool) -> None:
    """List registered checkpoints, and folders of the store that could be."""
    store = Store(store_folder(folder))
    known = registry.checkpoints(store)
    names: dict[str, list[str]] = {}
    for one in blessed.blessings(store):
        if one.checkpoint:
            names.setdefault(one.checkpoint, []).append(one.name)
    waiting = _unregistered(store, known)

    def show() -> None:
        rows = [
            (
                one.name,
                one.method,
                one.stage,
                one.sha256[:12],
                ", ".join(names.get(one.sha256, ())),
                f"{one.added_at:%Y-%m-%d %H:%M}" if one.added_at else "",
                str(one.path) if one.path.is_dir() else f"{one.path} (gone)",
            )
            for one in known
        ]
        listing(
            ("checkpoint", "method", "stage", "sha256", "blessed", "added (UTC)", "folder"),
            rows,
            empty=f"no trained checkpoint is registered in {store.folder}: ragmeter checkpoints add FOLDER",
        )
        for path in waiting:
            err.print(Text(f"not registered: {path} (ragmeter checkpoints add {path})"))

    emit(
        [one.to_json() | {"blessed": names.get(one.sha256, []), "registered": True} for one in known]
        + [registry.read(path).to_json() | {"blessed": [], "registered": False} for path in waiting],
        as_json,
        show,
    )


def add(path: Path, folder: Path | None, as_json: bool, quiet: bool) -> None:
    """Register a checkpoint folder."""
    store = Store(store_folder(folder))
    found = registry.register(store, path)
    known = {one.sha256 for one in registry.checkpoints(store)}
    strangers = [parent for parent in found.parents if parent not in known]

    def show() -> None:
        out.print(Text(f"{found.name}: {found.method} {found.stage}, sha256 {found.sha256[:12]}, {found.path}"))
        if strangers and not quiet:
            err.print(Text("parents that are not registered here: " + ", ".join(sha[:12] for sha in strangers)))

    emit(found.to_json() | {"unknown_parents": strangers}, as_json, show)


def verify(text: str | None, folder: Path | None, as_json: bool) -> int:
    """Check one checkpoint, or all that are registered; returns 1 where one of several is not what it was."""
    store = Store(store_folder(folder))
    if text is not None:
        path = Path(text) if (Path(text) / CARD).is_file() else blessed.find_checkpoint(store, text).path
        found = registry.verify(path)
        emit([_state(found, None)], as_json, lambda: out.print(Text(f"{found.name}: as described, {found.path}")))
        return 0
    states = []
    for one in registry.checkpoints(store):
        try:
            now = registry.verify(one.path)
            moved = None if now.sha256 == one.sha256 else f"another checkpoint stands there now: {now.sha256[:12]}"
        except UserError as error:
            moved = error.what
        states.append(_state(one, moved))
    rows = [(state["name"], state["sha256"][:12], state["problem"] or "as described", state["path"]) for state in states]
    emit(
        states,
        as_json,
        lambda: listing(("checkpoint", "sha256", "", "folder"), rows, empty="no checkpoint is registered: `ragmeter train` makes one"),
    )
    return 1 if any(state["problem"] for state in states) else 0


def bless(name: str | None, target: str | None, note: str | None, remove: bool, folder: Path | None, as_json: bool, quiet: bool) -> None:
    """List blessed names, give one, or take one away."""
    store = Store(store_folder(folder))
    if name is None:
        _list_names(store, as_json)
        return
    if remove:
        if target is not None or note is not None:
            raise UserError("--remove takes the name alone", try_this=f"ragmeter bless {name} --remove")
        gone = blessed.unbless(store, name)
        emit(
            {"name": name, "removed": gone.run or gone.checkpoint}, as_json, lambda: out.print(Text(f"{name} is no blessed name any more"))
        )
        return
    if target is None:
        raise UserError(f"what is {name!r} to mean?", try_this=f"ragmeter bless {name} RUN-or-CHECKPOINT")
    meant = blessed.resolve(store, target)
    before = blessed.bless(store, name, meant, note)
    old = (before.run or before.checkpoint) if before else None

    def show() -> None:
        out.print(Text(f"{name} is {_called(meant)}"))
        if old and not quiet:
            err.print(Text(f"before it was {old[:12]}"))

    kind = "run" if isinstance(meant, RunRow) else "checkpoint"
    emit({"name": name, kind: _identity(meant), "note": note, "before": old}, as_json, show)


def _list_names(store: Store, as_json: bool) -> None:
    found = blessed.blessings(store)
    emit(
        [
            {"name": one.name, "run": one.run, "checkpoint": one.checkpoint, "note": one.note, "blessed_at": one.blessed_at.isoformat()}
            for one in found
        ],
        as_json,
        lambda: listing(
            ("name", "is", "", "since (UTC)", "note"),
            [
                (
                    one.name,
                    "run" if one.run else "checkpoint",
                    (one.run or one.checkpoint or "")[:12],
                    f"{one.blessed_at:%Y-%m-%d %H:%M}",
                    one.note or "",
                )
                for one in found
            ],
            empty="no name is blessed yet: ragmeter bless NAME RUN-or-CHECKPOINT",
        ),
    )


def _unregistered(store: Store, known: list[Checkpoint]) -> list[Path]:
    """Checkpoint folders below the store's `checkpoints/` that are not registered."""
    root = store.folder / "checkpoints"
    registered = {one.path for one in known}
    return [card.parent for card in sorted(root.rglob(CARD)) if card.parent not in registered]


def _state(one: Checkpoint, problem: str | None) -> dict[str, Any]:
    return {"name": one.name, "sha256": one.sha256, "path": str(one.path), "problem": problem}


def _identity(meant: RunRow | Checkpoint) -> str:
    return meant.run if isinstance(meant, RunRow) else meant.sha256


def _called(meant: RunRow | Checkpoint) -> str:
    if isinstance(meant, RunRow):
        return f"run {meant.run[:12]} ({meant.path})"
    return f"checkpoint {meant.sha256[:12]} ({meant.path})"


# -- A gate's outcome for machines and pages that show test results: JUnit XML, and Markdown for a job summary --


_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, not even escaped."""

_SIGNS = {"pass": "✅ pass", "regressed": "❌ regressed", "inconclusive": "❔ inconclusive"}


def points(value: float | None, *, signed: bool = False) -> str:
    """A fraction × 100, `–` where there is none."""
    if value is None or value != value:
        return "–"
    return f"{100 * value:+.2f}" if signed else f"{100 * value:.2f}"


def interval(verdict: Verdict) -> str:
    """`-1.20 [-2.31, -0.10]`, × 100, as the metric counts."""
    value, low, high = (points(number, signed=True) for number in verdict.change)
    return value if low == "–" else f"{value} [{low}, {high}]"


def sentence(gate: Gate, verdict: Verdict) -> str:
    """What the gate says about one metric, in words, with the numbers that decide."""
    bar = f"a loss of more than {points(verdict.decision.margin)}pp"
    found = verdict.decision.difference
    if verdict.outcome == "regressed":
        claim = "surely a loss" if gate.strict else f"surely {bar}"
    elif verdict.outcome == "pass":
        claim = f"surely not {bar}"
    else:
        claim = f"{counted(found.n, 'question')} cannot tell whether there is {bar}"
    if not verdict.higher_is_better:
        claim += " (less is better)"
    said = f"{verdict.metric}: {interval(verdict)}, {claim}"
    if verdict.outcome == "inconclusive":
        said += f"; {reach(verdict)}"
    return said


def reach(verdict: Verdict) -> str:
    """What these questions can see, and how many would decide."""
    parts = []
    smallest = verdict.detectable
    if smallest == smallest:
        parts.append(f"losses from {points(smallest)}pp on are seen four times in five")
    if verdict.questions_needed:
        parts.append(f"about {counted(verdict.questions_needed, 'question')} would decide")
    elif verdict.outcome == "inconclusive":
        parts.append("no number of questions is known to decide")
    return ", ".join(parts)


def junit(gate: Gate) -> str:
    """The gate as JUnit XML, one test case a metric: regressed is a failure, inconclusive an error."""
    outcomes = [verdict.outcome for verdict in gate.verdicts]
    counts = {
        "tests": str(len(outcomes)),
        "failures": str(outcomes.count("regressed")),
        "errors": str(outcomes.count("inconclusive")),
        "skipped": "0",
        "time": "0",
    }
    root = ET.Element("testsuites", {"name": "ragmeter gate", **counts})
    suite = ET.SubElement(root, "testsuite", {"name": _xml(f"{gate.baseline.dataset} in {gate.baseline.setting}"), **counts})
    properties = ET.SubElement(suite, "properties")
    facts = {
        "baseline": f"{gate.baseline.run} {gate.baseline.path}",
        "candidate": f"{gate.candidate.run} {gate.candidate.path}",
        "outcome": gate.outcome,
        "strict": str(gate.strict).lower(),
    }
    for name, value in facts.items():
        ET.SubElement(properties, "property", {"name": name, "value": _xml(value)})
    for verdict in gate.verdicts:
        place = {"classname": _xml(gate.candidate.path), "name": _xml(verdict.metric), "time": "0"}
        case = ET.SubElement(suite, "testcase", place)
        said = _xml(sentence(gate, verdict))
        if verdict.outcome != "pass":
            kind = "failure" if verdict.outcome == "regressed" else "error"
            ET.SubElement(case, kind, {"type": verdict.outcome, "message": said}).text = _xml("\n".join(gate.remarks))
        else:
            ET.SubElement(case, "system-out").text = said
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def summary(gate: Gate, names: Sequence[str]) -> str:
    """The gate as Markdown.

    Args:
        gate: What was decided.
        names: How baseline and candidate were called.
    """
    baseline, candidate = (markdown_text(name) for name in names)
    rows = []
    for verdict in gate.verdicts:
        needed = f"{verdict.questions_needed:,}" if verdict.questions_needed else "–"
        cells = [
            verdict.metric,
            _SIGNS[verdict.outcome],
            points(verdict.baseline),
            points(verdict.candidate),
            interval(verdict),
            points(verdict.decision.margin),
            str(verdict.decision.difference.n),
            points(verdict.detectable),
            needed,
        ]
        rows.append([markdown_text(cell) for cell in cells])
    heads = ["metric", "outcome", "baseline", "candidate", "difference", "margin", "pairs", "detectable loss", "questions to decide"]
    changed = ", ".join(one.key.removeprefix("description.") for one in gate.changed[:12])
    lines = [
        f"### ragmeter gate: {_SIGNS[gate.outcome]}\n",
        f"{candidate} against {baseline} on {markdown_text(gate.baseline.dataset)}, setting "
        f"{markdown_text(gate.baseline.setting)}, {counted(gate.questions, 'question')}.\n",
        to_markdown(heads, rows, left=2),
        "Values × 100, differences with their 95 % interval. Regressed: the whole interval lies below "
        + ("0" if gate.strict else "minus the margin")
        + ". Pass: the whole interval lies above minus the margin. Detectable loss: the smallest that so many "
        "questions would call four times in five.\n",
    ]
    if changed:
        lines.append(f"Changed: {markdown_text(changed)}\n")
    lines += [f"- {markdown_text(line)}" for line in gate.remarks]
    return "\n".join(lines) + "\n"


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)


# -- `gate`: may a candidate take the baseline's place? --


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
