"""Show a gate's decision as text, JUnit XML and Markdown."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence

from benchmarks.core.errors import counted
from benchmarks.core.unseen import printable
from results.boards.markup import markdown_text, to_markdown
from results.boards.tables import geometric_note, minus, values_shown
from results.gate.many import ManyGates
from results.gate.verdicts import Gate, Verdict

SIGNS = {"pass": "✅ pass", "regressed": "❌ regressed", "inconclusive": "❔ inconclusive", "not tested": "🚫 not tested"}
DETECTABLE = "Minimum detectable loss: the smallest true loss that this many questions detect with 80 % power."
_KINDS = {"regressed": "failure", "inconclusive": "error", "not tested": "error"}
"""JUnit element of each outcome except a pass."""

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot contain, even escaped."""


_DECIMALS = 9
"""Number of decimals above which two numbers are no longer distinguished."""


def points(value: float | None, *, scale: float, signed: bool = False, bars: Sequence[float] = ()) -> str:
    """Format a value × `scale`; `–` for None.

    Args:
        value: The value.
        scale: 100 for a fraction, 1 for a plain number.
        signed: Whether to write a plus sign.
        bars: Thresholds; the number gets enough decimals to be distinguishable from them.
    """
    if value is None or not math.isfinite(value):
        return "–"
    number, others = round(scale * value, _DECIMALS), [round(scale * bar, _DECIMALS) for bar in bars]
    decimals = next(
        (few for few in range(2, _DECIMALS) if all(number == bar or round(number, few) != round(bar, few) for bar in others)), _DECIMALS
    )
    return minus(f"{number:{'+' if signed else ''}.{decimals}f}")


def interval(verdict: Verdict) -> str:
    """Format the difference with its interval, for example `−1.20 [−2.31, −0.10]`, × its scale, in the metric's own direction."""
    return _interval(verdict, verdict.change)


def _interval(verdict: Verdict, change: tuple[float, float, float]) -> str:
    margin = verdict.decision.margin
    value, low, high = (points(number, scale=verdict.scale, signed=True, bars=(margin, -margin, 0.0)) for number in change)
    return value if low == "–" else f"{value} [{low}, {high}]"


def margin_of(verdict: Verdict) -> str:
    """Format the margin with its unit, with enough decimals to be distinguishable from the bounds that it is compared with."""
    bounds = [*verdict.change[1:], *verdict.change_since[1:]]
    bars = [abs(bound) for bound in bounds if math.isfinite(bound)]
    return points(verdict.decision.margin, scale=verdict.scale, bars=bars) + _unit(verdict)


def _unit(verdict: Verdict) -> str:
    return "pp" if verdict.scale == 100 else ""


def scales(verdicts: Iterable[Verdict]) -> str:
    """Return the note on how values and differences are shown."""
    every = list(verdicts)
    means = geometric_note((verdict.metric, verdict.decision.difference) for verdict in every)
    return "; ".join(filter(None, [values_shown(verdict.scale for verdict in every).replace("value", "Values", 1), means]))


def since_text(verdict: Verdict) -> str:
    """Format the loss since the anchor, for example `since anchor: -1.80 [-3.20, -0.40], regressed`; empty without an anchor."""
    if (since := verdict.since) is None:
        return ""
    change = _interval(verdict, verdict.change_since)
    return f"since the anchor of {since.set_at:%Y-%m-%d}: {change}, {since.outcome} (decision {since.number})"


def remembered_text(verdict: Verdict) -> str:
    """Format the number of the candidate's attempt if it is not the first, and the loss since the anchor."""
    number = verdict.memory.attempt
    attempt = f"attempt {number}, a pass requires a bound of {100 * verdict.pass_level:.4g} %" if number > 1 else ""
    return "; ".join(filter(None, [attempt, since_text(verdict)]))


def _sentence(decided: Gate, verdict: Verdict) -> str:
    """Describe the decision on one metric with its numbers."""
    if verdict.outcome == "not tested":
        return f"{verdict.metric}: nothing was tested"
    loss = f"loss of more than {margin_of(verdict)}"
    if verdict.outcome == "inconclusive":
        claim = f"{counted(verdict.decision.difference.n, 'question')} are too few to decide whether there is a {loss}"
    elif verdict.outcome == "pass":
        claim = f"a {loss} is ruled out"
    else:
        claim = "a significant " + ("loss" if decided.strict else loss)
        if verdict.decision.outcome != "regressed":
            claim += " since the anchor"
    better = "" if verdict.higher_is_better else " (lower is better)"
    rest = f"; {reach(verdict, decided.sampled.kind)}" if verdict.outcome == "inconclusive" else ""
    more = remembered_text(verdict)
    return f"{verdict.metric}: {interval(verdict)}, {claim}{better}{rest}{more and f'; {more}'}"


def reach(verdict: Verdict, kind: str) -> str:
    """Format the minimum detectable loss, and the number of clusters needed to decide."""
    parts = []
    if math.isinf(verdict.detectable):
        parts.append(f"no loss can be detected with these {kind}s")
    elif verdict.detectable == verdict.detectable:
        parts.append(f"minimum detectable loss: {points(verdict.detectable, scale=verdict.scale)}{_unit(verdict) and ' pp'} (80 % power)")
    if verdict.clusters_needed:
        parts.append(f"about {counted(verdict.clusters_needed, kind)} needed to decide")
    elif verdict.outcome == "inconclusive":
        parts.append(f"the number of {kind}s needed to decide is unknown")
    return "; ".join(parts)


def junit_of(decided: Gate | ManyGates) -> str:
    """Render a gate as JUnit XML: one suite per gate, one test case per metric.

    Regressed is a failure; inconclusive and not tested are errors. Remarks are part of every test case's text.
    """

    def xml(text: str) -> str:
        return printable(_NOT_XML.sub("\ufffd", text))

    def counts(verdicts: Sequence[Verdict]) -> dict[str, str]:
        kinds = [_KINDS.get(verdict.outcome) for verdict in verdicts]
        numbers = (len(kinds), kinds.count("failure"), kinds.count("error"), 0, 0)
        return dict(zip(("tests", "failures", "errors", "skipped", "time"), map(str, numbers), strict=True))

    root = ET.Element("testsuites", {"name": "ragmeter gate", **counts([verdict for gate in decided.gates for verdict in gate.verdicts])})
    notes = decided.notes if isinstance(decided, ManyGates) else ()
    for gate in decided.gates:
        name = f"{gate.baseline.dataset} in {gate.baseline.setting}"
        suite = ET.SubElement(root, "testsuite", {"name": xml(name), **counts(gate.verdicts)})
        properties = ET.SubElement(suite, "properties")
        facts = {side: f"{run.run} {run.path}" for side, run in (("baseline", gate.baseline), ("candidate", gate.candidate))}
        for name, value in (facts | {"outcome": gate.outcome, "strict": str(gate.strict).lower()}).items():
            ET.SubElement(properties, "property", {"name": name, "value": xml(value)})
        for verdict in gate.verdicts:
            case = ET.SubElement(suite, "testcase", {"classname": xml(gate.candidate.path), "name": xml(verdict.metric), "time": "0"})
            sentence, remarks = xml(_sentence(gate, verdict)), [xml(line) for line in (*notes, *gate.remarks)]
            if (kind := _KINDS.get(verdict.outcome)) is None:
                ET.SubElement(case, "system-out").text = "\n".join([sentence, *remarks])
            else:
                ET.SubElement(case, kind, {"type": verdict.outcome, "message": sentence}).text = "\n".join(remarks)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def summary_of(decided: Gate | ManyGates, baseline: str, candidate: str) -> str:
    """Render a gate as Markdown for the job summary of a CI run.

    Args:
        decided: The decision.
        baseline, candidate: The names that the user gave for the two runs.
    """
    lines = [f"### ragmeter gate: {SIGNS[decided.outcome]}\n", f"{markdown_text(candidate)} against {markdown_text(baseline)}"]
    if isinstance(decided, ManyGates):
        lines[-1] += f", {decided.family}.\n"
        heads = ["benchmark", "metric", "outcome", "must hold", "baseline", "candidate", "difference", "margin", "pairs", "p (Holm)"]
        heads += ["attempt", "since the anchor"]
        rows: list[tuple[str, ...]] = [
            (cell.gate.place, *_cells(cell.verdict, "yes" if cell.must_hold else "no"), f"{cell.p_family:.3f}", *memory_cells(cell.verdict))
            for cell in decided.cells
        ]
        return "\n".join([*lines, _table(heads, rows, left=4), *_listed(decided)]) + "\n"
    run, kind = decided.baseline, decided.sampled.kind
    counts = markdown_text(decided.sampled.in_words(decided.questions))
    on = f"on {markdown_text(run.dataset)}, setting {markdown_text(run.setting)}, {counts}"
    lines[-1] += f" {on}.\n"
    heads = [
        "metric",
        "outcome",
        "baseline",
        "candidate",
        "difference",
        "margin",
        "pairs",
        "detectable loss",
        f"{markdown_text(kind)}s to decide",
        "attempt",
        "since the anchor",
    ]
    needed = [f"{verdict.clusters_needed:,}" if verdict.clusters_needed else "–" for verdict in decided.verdicts]
    rows = [
        (*_cells(verdict), points(verdict.detectable, scale=verdict.scale), number, *memory_cells(verdict))
        for verdict, number in zip(decided.verdicts, needed, strict=True)
    ]
    lines += [_table(heads, rows, left=2), f"{scales(decided.verdicts)}. {rule_of(decided)} {DETECTABLE}\n"]
    if changed := ", ".join(item.key.removeprefix("description.") for item in decided.changed[:12]):
        lines.append(f"Changed: {markdown_text(changed)}\n")
    return "\n".join([*lines, *_listed(decided)]) + "\n"


def rule_of(decided: Gate) -> str:
    """Explain in three sentences how the interval decides the outcome."""
    bar = "0" if decided.strict else "minus the margin"
    return (
        f"Regressed: the upper bound lies below {bar}. Pass: the lower bound lies above minus the margin. "
        "A worse candidate is accepted with a probability of at most 2.5 %, over all its attempts."
    )


def memory_cells(verdict: Verdict) -> tuple[str, str]:
    """Return the two table cells about earlier decisions: attempt, and loss since the anchor."""
    if (since := verdict.since) is None:
        return str(verdict.memory.attempt), "–"
    change = _interval(verdict, verdict.change_since)
    return str(verdict.memory.attempt), f"{change}, {since.outcome} (decision {since.number})"


def numbers_of(verdict: Verdict) -> tuple[str, str, str, str]:
    """Return the table cells with baseline, candidate, difference and margin; the margin without its unit."""
    before, after = (points(value, scale=verdict.scale) for value in (verdict.baseline, verdict.candidate))
    return before, after, interval(verdict), margin_of(verdict).removesuffix("pp")


def _cells(verdict: Verdict, *more: str) -> tuple[str, ...]:
    return verdict.metric, SIGNS[verdict.outcome], *more, *numbers_of(verdict), str(verdict.decision.difference.n)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> str:
    return to_markdown(heads, [[markdown_text(cell) for cell in row] for row in rows], left=left)


def _listed(decided: Gate | ManyGates) -> list[str]:
    return [f"- {markdown_text(line)}" for line in decided.remarks]
