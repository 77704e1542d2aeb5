"""Pages of metrics and of judges."""

from __future__ import annotations

from judges.api import NEEDS, MetricEntry, Parameter, written
from judges.judging import JUDGES, JudgeEntry
from judges.registry import METRICS
from ragmeter.reference.options import option_table
from ragmeter.reference.writing import code, codes, page, table

GROUPS = {
    "answer": "Answers",
    "text": "Texts",
    "graph": "Graph answers",
    "retrieval": "Rankings",
    "support": "Support",
    "triples": "Reasoning triples",
    "joint": "Answer and support together",
}


def metrics_page() -> str:
    """Every metric, by group."""
    lead = (
        "Every metric as its code defines it. How to choose, and how an id reads: [Metrics](../metrics.md). "
        "Metrics that a language model decides are [judges](judges.md)."
    )
    groups = dict.fromkeys([*GROUPS, *(entry.group for entry in METRICS)])
    parts = [part for group in groups for part in _group(group)]
    needs = table(("word", "what is read"), [(code(need), meaning) for need, meaning in NEEDS.items()])
    return page("Metrics", lead, (*parts, "## What they read", needs))


def judges_page() -> str:
    """Every judge."""
    lead = "Every judge as its code defines it. How to use them, and how far to trust them: [Judges](../judges.md)."
    return page("Judges", lead, map(_judge, JUDGES))


def signature(entry: MetricEntry) -> str:
    """The name as an id writes it: `recall@k`, `rouge(type=rouge1/rouge2/rougeL,stem=true/false)`."""
    named = [p for p in entry.parameters if p.name != "k"]
    shown = [f"{p.name}={'/'.join(map(written, p.choices)) or written(p.default)}" for p in named if not p.quiet]
    at = "@k" if len(named) < len(entry.parameters) else ""
    return entry.id + at + (f"({','.join(shown)})" if shown else "")


def span(low: float | None, high: float | None, higher_is_better: bool) -> str:
    """A range in words."""
    ends = f"{'−∞' if low is None else f'{low:g}'} – {'∞' if high is None else f'{high:g}'}"
    return ends + ("" if higher_is_better else ", less is better")


def _group(group: str) -> list[str]:
    entries = sorted((entry for entry in METRICS if entry.group == group), key=lambda entry: entry.id)
    return [f"## {GROUPS.get(group, group.capitalize())}", *map(_metric, entries)] if entries else []


def _metric(entry: MetricEntry) -> str:
    missing = {"empty": "what an empty answer scores", "unscorable": "nothing: it is left out and counted"}
    shown = "" if entry.unit == "fraction" else "; shown as it is, not × 100"
    facts = {
        "range": span(entry.low, entry.high, entry.higher_is_better) + shown,
        "without an answer": missing.get(str(entry.missing)) or f"{entry.missing:g}",
        "reads": codes(entry.needs),
        "source": entry.source,
        "code version": str(entry.version),
    }
    told = "\n".join(f"- {name}: {what}" for name, what in facts.items())
    head = f"### {code(signature(entry))} {{ #{entry.id} }}"
    return "\n\n".join(filter(None, (head, entry.definition, told, _parameters(entry.parameters))))


def _parameters(parameters: tuple[Parameter, ...]) -> str:
    rows = [
        (code(p.name), "*required*" if p.default is None else code(written(p.default)), codes(map(written, p.choices)), p.help)
        for p in parameters
        if p.name != "k"
    ]
    return table(("parameter", "default", "values", "meaning"), rows)


def _judge(entry: JudgeEntry) -> str:
    what = "gives every answer a number" if entry.kind == "point" else "compares two answers"
    facts = {
        "kind": f"{entry.kind}: {what}",
        "reads": codes(entry.needs),
        "criteria": codes(entry.criteria),
        "source": entry.source,
        "code version": str(entry.version),
    }
    told = "\n".join(f"- {name}: {said}" for name, said in facts.items() if said)
    rows = [(code(m.name), span(m.low, m.high, m.higher_is_better), m.definition) for m in entry.measures]
    measures = table(("measure", "range", "definition"), rows)
    parts = (f"## {entry.id}", entry.definition, told, measures, option_table(entry.config))
    return "\n\n".join(filter(None, parts))
