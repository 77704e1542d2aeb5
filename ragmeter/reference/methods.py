"""Pages of methods, by kind, and of what can be trained."""

from __future__ import annotations

from collections.abc import Iterable

from methods.registry import METHODS, MethodEntry
from methods.training import TRAININGS, TrainingEntry
from ragmeter.reference.options import option_table, preset_table
from ragmeter.reference.writing import code, codes, page, table

KINDS = {
    "retriever": ("Retrievers", "They find passages, or triples of a graph, for a question. A reader completes them."),
    "reranker": ("Rerankers", "They put what was retrieved into another order: `rerankers: [{id: …}]` of a method."),
    "compressor": ("Compressors", "They shorten what the reader is given: `compressor: {id: …}` of a method."),
    "reader": ("Readers", "They answer from what they are given: `reader: {id: …}` of a method."),
    "method": ("Whole systems", "They answer by themselves and take no other parts."),
    "control": (
        "Controls",
        "Their place is known beforehand: they show what a metric can tell. They see the gold, are marked on every table and never ranked.",
    ),
}
APPROACHES = ("ark", "gpr", "sark", "clara")
"""Methods with a page of their own."""


def methods_page(kind: str) -> str:
    """All methods of a kind."""
    title, lead = KINDS[kind]
    found = [entry for entry in METHODS if entry.kind == kind]
    overview = table(("id", ""), [(f"[{code(e.id)}](#{e.id})", e.summary) for e in found])
    return page(title, lead, (overview, *map(_method, found)))


def trainings_page() -> str:
    """Everything that `ragmeter train` trains."""
    lead = (
        "What `ragmeter train NAME` takes: as `--set OPTION=VALUE`, as a file with `--config`, or as the `config` of a "
        "training in an [experiment](../experiments.md#training-what-methods-need)."
    )
    overview = table(("id", ""), [(f"[{code(e.id)}](#{e.id})", e.summary) for e in TRAININGS])
    return page("Trainings", lead, (overview, *map(_training, TRAININGS)), wide=True)


def _method(entry: MethodEntry) -> str:
    facts = [
        ("paper", entry.paper or ""),
        ("page", _approach(entry.id)),
        ("needs", code(f"pip install 'ragmeter[{entry.extra}]'") if entry.extra else ""),
        ("trained on", codes(entry.training_data)),
        ("code version", str(entry.version)),
    ]
    return _section(entry, facts)


def _training(entry: TrainingEntry) -> str:
    facts = [
        ("stages", codes(entry.stages)),
        ("paper", entry.paper or ""),
        ("page", _approach(entry.id)),
        ("code version", str(entry.version)),
    ]
    return _section(entry, facts)


def _approach(identifier: str) -> str:
    name = identifier.partition("_")[0]
    return f"[{name.upper()}](../methods/{name}.md)" if name in APPROACHES else ""


def _section(entry: MethodEntry | TrainingEntry, facts: Iterable[tuple[str, str]]) -> str:
    summary = entry.summary[:1].upper() + entry.summary[1:].rstrip(".") + "."
    told = "\n".join(f"- {name}: {what}" for name, what in facts if what)
    parts = (f"## {entry.id}", summary, told, option_table(entry.config, entry.presets), preset_table(entry.presets))
    return "\n\n".join(filter(None, parts))
