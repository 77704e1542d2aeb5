"""Pages of datasets and of the keys of an experiment file."""

from __future__ import annotations

from benchmarks.registry import DATASETS, DatasetEntry
from ragmeter.experiment import BenchmarkSpec, ComponentSpec, ExperimentSpec, JudgeSpec, MethodSpec
from ragmeter.reference.options import option_table
from ragmeter.reference.writing import code, codes, page, table
from ragmeter.trainings import TrainingSpec

PARTS = "[readers](readers.md), [rerankers](rerankers.md), [compressors](compressors.md)"
METHODS = "[retrievers](retrievers.md), [whole systems](systems.md), [controls](controls.md)"
KEYS = (
    ("The file", ExperimentSpec, ""),
    ("benchmarks", BenchmarkSpec, "One benchmark in one setting. Options: [datasets](datasets.md)."),
    ("methods", MethodSpec, f"One method. Options: {METHODS}."),
    ("reader, rerankers, compressor", ComponentSpec, f"A part; a bare name is `{{id: name}}`. Options: {PARTS}."),
    ("judges", JudgeSpec, "A judge; a bare name is `{id: name}`. Options: [judges](judges.md)."),
    ("trainings", TrainingSpec, "What is trained before methods run. Options: [trainings](trainings.md)."),
)


def experiment_page() -> str:
    """Every key of an experiment file."""
    lead = (
        "Every key that an experiment file may have. How to write one: [Experiments](../experiments.md). "
        "Unknown keys and wrong types are errors that name the line."
    )
    parts = (part for title, spec, said in KEYS for part in (f"## {title}", said, option_table(spec)))
    return page("Experiment files", lead, parts)


def datasets_page() -> str:
    """Every dataset."""
    lead = (
        "Every dataset as it is registered. Layouts of the files, and what to know of each: "
        "[Datasets](../datasets.md). `ragmeter datasets` says which of them are on your machine."
    )
    overview = table(("id", "task", "licence"), [(f"[{code(e.id)}](#{e.id})", e.card.task, e.card.licence) for e in DATASETS])
    return page("Datasets", lead, (overview, *map(_dataset, DATASETS)))


def _dataset(entry: DatasetEntry) -> str:
    card = entry.card
    facts = {
        "title": card.title,
        "on the hub": f"{code(card.hub_id)}{f' at {code(card.revision[:12])}' if card.revision else ''}" if card.hub_id else "",
        "licence": card.licence,
        "subsets": codes(entry.subsets),
        "splits": ", ".join(f"{code(name)}{'' if n is None else f' ({n:,})'}" for name, n in card.splits.items()),
        "settings": codes(card.settings),
        "metrics": codes(card.metrics),
        "languages": ", ".join(card.languages),
        "code version": str(entry.version),
    }
    told = "\n".join(f"- {name}: {what}" for name, what in facts.items() if what)
    return "\n\n".join(filter(None, (f"## {entry.id}", card.description, told, card.notes, option_table(entry.config))))
