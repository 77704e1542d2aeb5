"""What the gate decided, in words, as JUnit XML and as Markdown."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from benchmarks.core.errors import counted
from results.gate import Gate, Verdict
from results.gate_many import ManyGates
from results.tables import markdown_text, to_markdown

_SIGNS = {"pass": "✅ pass", "regressed": "❌ regressed", "inconclusive": "❔ inconclusive"}

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, not even escaped."""


def points(value: float | None, *, signed: bool = False) -> str:
    """A fraction × 100, `–` where there is none."""
    if value is None or value != value:
        return "–"
    return f"{100 * value:+.2f}" if signed else f"{100 * value:.2f}"


def interval(verdict: Verdict) -> str:
    """`-1.20 [-2.31, -0.10]`, × 100, as the metric counts."""
    value, low, high = (points(number, signed=True) for number in verdict.change)
    return value if low == "–" else f"{value} [{low}, {high}]"


def _sentence(decided: Gate, verdict: Verdict) -> str:
    """What the gate says about one metric, with the numbers that decide."""
    loss = f"loss of more than {points(verdict.decision.margin)}pp"
    if verdict.outcome == "inconclusive":
        claim = f"{counted(verdict.decision.difference.n, 'question')} cannot tell whether there is a {loss}"
    elif verdict.outcome == "pass":
        claim = f"a {loss} is ruled out"
    else:
        claim = "a significant " + ("loss" if decided.strict else loss)
    better = "" if verdict.higher_is_better else " (less is better)"
    rest = f"; {reach(verdict, decided.sampled.kind)}" if verdict.outcome == "inconclusive" else ""
    return f"{verdict.metric}: {interval(verdict)}, {claim}{better}{rest}"


def reach(verdict: Verdict, kind: str) -> str:
    """What these questions can see, and how many units of this kind would decide."""
    parts = []
    if verdict.detectable == verdict.detectable:
        parts.append(f"losses from {points(verdict.detectable)}pp on are seen four times in five")
    if verdict.units_needed:
        parts.append(f"about {counted(verdict.units_needed, kind)} would decide")
    elif verdict.outcome == "inconclusive":
        parts.append(f"no number of {kind}s is known to decide")
    return ", ".join(parts)


def junit_of(*gates: Gate) -> str:
    """JUnit XML, one suite a gate and in it one test case a metric: regressed is a failure, inconclusive an error."""

    def xml(text: str) -> str:
        return _NOT_XML.sub("\ufffd", text)

    def counts(verdicts: Sequence[Verdict]) -> dict[str, str]:
        outcomes = [verdict.outcome for verdict in verdicts]
        numbers = (len(outcomes), outcomes.count("regressed"), outcomes.count("inconclusive"), 0, 0)
        return dict(zip(("tests", "failures", "errors", "skipped", "time"), map(str, numbers), strict=True))

    root = ET.Element("testsuites", {"name": "ragmeter gate", **counts([verdict for decided in gates for verdict in decided.verdicts])})
    for decided in gates:
        name = f"{decided.baseline.dataset} in {decided.baseline.setting}"
        suite = ET.SubElement(root, "testsuite", {"name": xml(name), **counts(decided.verdicts)})
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


def summary_of(decided: Gate, baseline: str, candidate: str) -> str:
    """Markdown, for a job's summary."""
    rows: list[Sequence[str]] = []
    for verdict in decided.verdicts:
        values = (points(verdict.baseline), points(verdict.candidate), interval(verdict), points(verdict.decision.margin))
        needed = f"{verdict.units_needed:,}" if verdict.units_needed else "–"
        rows.append(
            (verdict.metric, _SIGNS[verdict.outcome], *values, str(verdict.decision.difference.n), points(verdict.detectable), needed)
        )
    heads = (
        "metric",
        "outcome",
        "baseline",
        "candidate",
        "difference",
        "margin",
        "pairs",
        "detectable loss",
        f"{decided.sampled.kind}s to decide",
    )
    run, bar = decided.baseline, "0" if decided.strict else "minus the margin"
    names = {name: markdown_text(text) for name, text in (("baseline", baseline), ("candidate", candidate))}
    lines = [
        f"### ragmeter gate: {_SIGNS[decided.outcome]}\n",
        f"{names['candidate']} against {names['baseline']} on {markdown_text(run.dataset)}, setting {markdown_text(run.setting)}, "
        f"{decided.sampled.in_words(decided.questions)}.\n",
        to_markdown(heads, [[markdown_text(cell) for cell in row] for row in rows], left=2),
        f"Values × 100, differences with their 95 % interval. Regressed: the whole interval lies below {bar}. Pass: the whole "
        "interval lies above minus the margin. Detectable loss: the smallest that so many questions would call four times in five.\n",
    ]
    if changed := ", ".join(item.key.removeprefix("description.") for item in decided.changed[:12]):
        lines.append(f"Changed: {markdown_text(changed)}\n")
    return "\n".join([*lines, *(f"- {markdown_text(line)}" for line in decided.remarks)]) + "\n"


def place(decided: Gate) -> str:
    """The benchmark, as a gate file names it."""
    return f"{decided.baseline.dataset}/{decided.baseline.setting}/{decided.baseline.seed}"


def cell_remarks(decided: ManyGates) -> list[str]:
    """What a reader must know beside the outcomes, with the benchmark that it is about."""
    return [f"{place(cell.gate)}: {line}" for cell in decided.cells for line in cell.gate.remarks]


def summary_of_many(decided: ManyGates, baseline: str, candidate: str) -> str:
    """Markdown, for a job's summary."""
    heads = ("benchmark", "metric", "outcome", "must hold", "baseline", "candidate", "difference", "margin", "pairs", "p (Holm)")
    rows = []
    for cell in decided.cells:
        verdict = cell.verdict
        values = (points(verdict.baseline), points(verdict.candidate), interval(verdict), points(verdict.decision.margin))
        rows.append(
            (
                place(cell.gate),
                verdict.metric,
                _SIGNS[verdict.outcome],
                "yes" if cell.must_hold else "no",
                *values,
                str(verdict.decision.difference.n),
                f"{cell.p_family:.3f}",
            )
        )
    lines = [
        f"### ragmeter gate: {_SIGNS[decided.outcome]}\n",
        f"{markdown_text(candidate)} against {markdown_text(baseline)}, {decided.family}.\n",
        to_markdown(heads, [[markdown_text(text) for text in row] for row in rows], left=4),
    ]
    return "\n".join([*lines, *(f"- {markdown_text(line)}" for line in cell_remarks(decided))]) + "\n"
