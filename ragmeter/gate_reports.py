"""A gate's outcome for machines and pages that show test results: JUnit XML, and Markdown for a job summary."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from benchmarks.plurals import counted
from results.gate import Gate, Verdict
from results.tables import markdown_text, to_markdown

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
