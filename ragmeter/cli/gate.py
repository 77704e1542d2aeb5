"""`ragmeter gate`: may a candidate take the baseline's place? The answer as text, JSON, JUnit XML and Markdown."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from rich.text import Text

from benchmarks.core.errors import counted, unwritable
from ragmeter.cli import completion
from ragmeter.cli.options import App, Common, option
from ragmeter.console import err, offering_score, out
from results import checkpoints
from results.checkpoints import Checkpoint
from results.gate import Gate, Verdict, ask, parse_margins, record
from results.queries import RunRow
from results.tables import markdown_text, to_markdown

app = App(help="Decide whether a candidate is worse than a baseline, by exit code.")

_COLORS = {"pass": "green", "regressed": "bold red", "inconclusive": "yellow"}
_SIGNS = {"pass": "✅ pass", "regressed": "❌ regressed", "inconclusive": "❔ inconclusive"}
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, not even escaped."""


@app.command()
def gate(
    baseline: Annotated[str, option("RUN to compare with: a tag, prefix or path.", completes=completion.runs)],
    candidate: Annotated[
        str, option("RUN, or CHECKPOINT: its newest run on the baseline's benchmark.", completes=completion.runs_or_checkpoints)
    ],
    metric: Annotated[list[str], option("Decide on this metric; may be repeated.", completes=completion.stored_metrics)],
    margin: Annotated[list[str], option("Tolerated loss, 1.0pp or 0.01; for one metric of several: f1=1.0pp.")],
    common: Common,
    strict: Annotated[bool, option("Count any significant loss as a regression, even within the margin.", "--strict")] = False,
    allow_partial: Annotated[bool, option("Decide on what two unfinished runs have both answered.", "--allow-partial")] = False,
    junit: Annotated[Path | None, option("Write a JUnit XML report here.")] = None,
    summary: Annotated[
        Path | None, option("Append a Markdown summary to this file.", envvar="GITHUB_STEP_SUMMARY", show_envvar=True)
    ] = None,
) -> int:
    """Decide whether a candidate is worse than a baseline, by exit code.

    0: it is not, by more than the margin; 100: it is; 101: too few questions to tell.
    """
    store = common.store
    common_margin, margins = parse_margins(margin)
    first, second = checkpoints.resolve(store, baseline), checkpoints.resolve(store, candidate)
    if isinstance(first, Checkpoint) and isinstance(second, RunRow):
        # A checkpoint's run is sought on the other side's benchmark.
        runs = checkpoints.run_of(store, first, second), second
    else:
        run = checkpoints.run_of(store, first)
        runs = run, checkpoints.run_of(store, second, run)
    with offering_score():
        decided = ask(store, *runs, metrics=metric, margin=common_margin, margins=margins, strict=strict, allow_partial=allow_partial)
    targets = {"baseline_checkpoint": first, "candidate_checkpoint": second}
    hashes = {name: item.sha256 for name, item in targets.items() if isinstance(item, Checkpoint)}
    queries = {"asked": {"baseline": baseline, "candidate": candidate}, **hashes}
    record(store, decided, **queries)
    if junit is not None:
        _write(junit, _junit(decided), "--junit", append=False)
    if summary is not None:
        _write(summary, _summary(decided, baseline, candidate), "--summary", append=True)
    common.emit(decided.to_json() | queries, lambda: _show(decided, baseline, candidate, common.quiet))
    return decided.exit_code


def _write(path: Path, text: str, option: str, *, append: bool) -> None:
    try:
        with path.open("a" if append else "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError as error:
        raise unwritable(error, f"{option} {path}") from error


def _points(value: float | None, *, signed: bool = False) -> str:
    """A fraction × 100, `–` where there is none."""
    if value is None or value != value:
        return "–"
    return f"{100 * value:+.2f}" if signed else f"{100 * value:.2f}"


def _interval(verdict: Verdict) -> str:
    """`-1.20 [-2.31, -0.10]`, × 100, as the metric counts."""
    value, low, high = (_points(number, signed=True) for number in verdict.change)
    return value if low == "–" else f"{value} [{low}, {high}]"


def _sentence(decided: Gate, verdict: Verdict) -> str:
    """What the gate says about one metric, with the numbers that decide."""
    loss = f"loss of more than {_points(verdict.decision.margin)}pp"
    if verdict.outcome == "inconclusive":
        claim = f"{counted(verdict.decision.difference.n, 'question')} cannot tell whether there is a {loss}"
    elif verdict.outcome == "pass":
        claim = f"a {loss} is ruled out"
    else:
        claim = "a significant " + ("loss" if decided.strict else loss)
    better = "" if verdict.higher_is_better else " (less is better)"
    rest = f"; {_reach(verdict)}" if verdict.outcome == "inconclusive" else ""
    return f"{verdict.metric}: {_interval(verdict)}, {claim}{better}{rest}"


def _reach(verdict: Verdict) -> str:
    """What these questions can see, and how many would decide."""
    parts = []
    if verdict.detectable == verdict.detectable:
        parts.append(f"losses from {_points(verdict.detectable)}pp on are seen four times in five")
    if verdict.questions_needed:
        parts.append(f"about {counted(verdict.questions_needed, 'question')} would decide")
    elif verdict.outcome == "inconclusive":
        parts.append("no number of questions is known to decide")
    return ", ".join(parts)


def _show(decided: Gate, baseline: str, candidate: str, quiet: bool) -> None:
    for side, name, run in (("baseline ", baseline, decided.baseline), ("candidate", candidate, decided.candidate)):
        if not quiet:
            out.print(Text(f"{side}  {name}: {run.path} ({run.run[:8]})"))
    if not quiet:
        run = decided.baseline
        out.print(Text(f"on {run.dataset}, setting {run.setting}, {counted(decided.questions, 'question')}\n"))
    for verdict in decided.verdicts:
        pairs, margin = verdict.decision.difference.n, _points(verdict.decision.margin)
        better = "" if verdict.higher_is_better else ", less is better"
        out.print(Text(f"{verdict.metric}  ", style="bold") + Text(verdict.outcome, style=_COLORS[verdict.outcome]))
        out.print(Text(f"  baseline {_points(verdict.baseline)}, candidate {_points(verdict.candidate)}"))
        out.print(Text(f"  difference {_interval(verdict)}, margin {margin}pp, {pairs} pairs{better}"))
        if reach := _reach(verdict):
            out.print(Text(f"  {reach}"))
    if not quiet:
        unit, bar = "documents" if decided.clustered else "questions", "0" if decided.strict else "minus the margin"
        rule = f"regressed: the interval lies below {bar}; pass: above minus the margin"
        out.print(Text(f"\n× 100, with 95 % intervals (bootstrap over {unit}); {rule}", style="dim"))
    for line in decided.remarks:
        err.print(Text(line, style="yellow"))
    out.print(Text(decided.outcome, style=_COLORS[decided.outcome]))


def _junit(decided: Gate) -> str:
    """JUnit XML, one test case a metric: regressed is a failure, inconclusive an error."""

    def xml(text: str) -> str:
        return _NOT_XML.sub("\ufffd", text)

    outcomes = [verdict.outcome for verdict in decided.verdicts]
    numbers = (len(outcomes), outcomes.count("regressed"), outcomes.count("inconclusive"), 0, 0)
    counts = dict(zip(("tests", "failures", "errors", "skipped", "time"), map(str, numbers), strict=True))
    root = ET.Element("testsuites", {"name": "ragmeter gate", **counts})
    suite = ET.SubElement(root, "testsuite", {"name": xml(f"{decided.baseline.dataset} in {decided.baseline.setting}"), **counts})
    properties = ET.SubElement(suite, "properties")
    facts = {side: f"{run.run} {run.path}" for side, run in (("baseline", decided.baseline), ("candidate", decided.candidate))}
    for name, value in (facts | {"outcome": decided.outcome, "strict": str(decided.strict).lower()}).items():
        ET.SubElement(properties, "property", {"name": name, "value": xml(value)})
    for verdict in decided.verdicts:
        case = ET.SubElement(suite, "testcase", {"classname": xml(decided.candidate.path), "name": xml(verdict.metric), "time": "0"})
        sentence = xml(_sentence(decided, verdict))
        if verdict.outcome == "pass":
            ET.SubElement(case, "system-out").text = sentence
        else:
            kind = "failure" if verdict.outcome == "regressed" else "error"
            ET.SubElement(case, kind, {"type": verdict.outcome, "message": sentence}).text = xml("\n".join(decided.remarks))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _summary(decided: Gate, baseline: str, candidate: str) -> str:
    """Markdown, for a job's summary."""
    rows: list[Sequence[str]] = []
    for verdict in decided.verdicts:
        values = (_points(verdict.baseline), _points(verdict.candidate), _interval(verdict), _points(verdict.decision.margin))
        needed = f"{verdict.questions_needed:,}" if verdict.questions_needed else "–"
        rows.append(
            (verdict.metric, _SIGNS[verdict.outcome], *values, str(verdict.decision.difference.n), _points(verdict.detectable), needed)
        )
    heads = ("metric", "outcome", "baseline", "candidate", "difference", "margin", "pairs", "detectable loss", "questions to decide")
    run, bar = decided.baseline, "0" if decided.strict else "minus the margin"
    names = {name: markdown_text(text) for name, text in (("baseline", baseline), ("candidate", candidate))}
    lines = [
        f"### ragmeter gate: {_SIGNS[decided.outcome]}\n",
        f"{names['candidate']} against {names['baseline']} on {markdown_text(run.dataset)}, setting {markdown_text(run.setting)}, "
        f"{counted(decided.questions, 'question')}.\n",
        to_markdown(heads, [[markdown_text(cell) for cell in row] for row in rows], left=2),
        f"Values × 100, differences with their 95 % interval. Regressed: the whole interval lies below {bar}. Pass: the whole "
        "interval lies above minus the margin. Detectable loss: the smallest that so many questions would call four times in five.\n",
    ]
    if changed := ", ".join(item.key.removeprefix("description.") for item in decided.changed[:12]):
        lines.append(f"Changed: {markdown_text(changed)}\n")
    return "\n".join([*lines, *(f"- {markdown_text(line)}" for line in decided.remarks)]) + "\n"
