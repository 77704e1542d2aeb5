"""Do the declared training data cover what is evaluated? What they do is stored and shown, not refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from benchmarks import registry as datasets
from benchmarks.errors import UserError
from benchmarks.registry import Benchmark, DataReference
from benchmarks.text import normalise
from benchmarks.worlds.seeds import TEST
from results.asked import asked_of, covers
from results.submission.card import Card, TrainingPart
from results.submission.findings import Findings, shown


class TrainingQuestion(Protocol):
    """A question of training data."""

    @property
    def id(self) -> str: ...

    @property
    def text(self) -> str: ...


class Training(Protocol):
    """Training data, as far as they are compared."""

    @property
    def reference(self) -> DataReference: ...

    @property
    def questions(self) -> Sequence[TrainingQuestion]: ...


LoadTraining = Callable[[str], Training]
"""From a data reference to its questions; a UserError says that they are not on this machine."""
WORLDS = "worlds"
_SEEDS = re.compile(r"\s*(\d{1,10})(?:\s*(?:-|–|\.\.)\s*(\d{1,10}))?\s*")


def contamination(card: Card, benchmark: Benchmark, load: LoadTraining | None, findings: Findings) -> tuple[str, ...]:
    """Compare each declared item with the evaluated questions.

    An item is contaminated when its reference covers the evaluated split (a reference without split covers all), when
    it names seeds of test worlds or of the evaluated ones, when ids it lists are evaluated, or when a question of
    the data it refers to has the id (within one dataset) or the normalised text of an evaluated one.

    Args:
        card: With its declared training data.
        benchmark: What is evaluated.
        load: Gets a declared reference's questions; None compares references alone.
        findings: Gets a warning per contaminated item and a note per item that could not be compared.

    Returns:
        One sentence per contaminated item.
    """
    found: list[str] = []
    compared = _Compared(benchmark, load) if load is not None else None
    for number, data in enumerate(card.training_data, 1):
        label = f"training data {number} ({shown(data.reference or data.name)})"
        reasons = [*_by_reference(data, benchmark), *_by_seed(data, benchmark, findings), *_by_id(data, benchmark)]
        # The names in worlds are drawn, so equal questions of different worlds are chance; seeds decide there.
        own_world = data.reference and DataReference.parse(data.reference).name == WORLDS
        if not reasons and data.reference and not own_world and compared is not None:
            reasons = compared.reasons(data.reference, label, findings)
        if not reasons and _sounds_like(data, benchmark):
            findings.add(
                "training_data_unclear",
                "training data are named like the evaluated dataset",
                label,
                severity="warning",
                try_this="give them as a `reference` with the split, e.g. hotpotqa:train",
            )
        found += [f"{label} {reason}" for reason in reasons]
    for sentence in found:
        findings.add(
            "contaminated", "declared training data cover what is evaluated: stored and shown as contaminated", sentence, severity="warning"
        )
    return tuple(found)


def _by_reference(data: TrainingPart, benchmark: Benchmark) -> Iterator[str]:
    if not data.reference or not covers(data.reference, benchmark.name):
        return
    given, evaluated = asked_of(data.reference), asked_of(benchmark.name)
    if given.split is None:
        yield f"names no split, so it covers {benchmark.reference}"
    else:
        asked = set((evaluated.split or "").split("+"))
        # A split may hold another's questions under its own name.
        yield f"covers the evaluated split {'+'.join(sorted(set(given.split.split('+')) & asked or asked))}"


def _by_seed(data: TrainingPart, benchmark: Benchmark, findings: Findings) -> Iterator[str]:
    reference = DataReference.parse(data.reference) if data.reference else None
    if reference and reference.name == WORLDS and "test" in (reference.split or "").split("+"):
        yield "is of test worlds"
    evaluated = {
        question.metadata["seed"] for question in benchmark.questions if benchmark.reference.name == WORLDS and "seed" in question.metadata
    }
    for part in filter(None, data.seeds.split(",")):
        match = _SEEDS.fullmatch(part)
        if not match:
            findings.add("bad_seeds", "seeds cannot be read", shown(part), try_this="seeds: 0-99, 150")
            continue
        first, last = int(match[1]), int(match[2] or match[1])
        if last >= TEST.start:
            yield f"holds seeds of test worlds ({part.strip()})"
        elif any(first <= seed <= last for seed in evaluated):
            yield f"holds the evaluated worlds ({part.strip()})"


def _by_id(data: TrainingPart, benchmark: Benchmark) -> Iterator[str]:
    listed = set(data.question_ids)
    same = sum(1 for question in benchmark.questions if listed and {question.id, question.query_id} & listed)
    if same:
        yield f"lists {same} of the evaluated questions"


class _Compared:
    """Compares declared data by their questions, each reference once: loading is work, and a card may repeat it."""

    def __init__(self, benchmark: Benchmark, load: LoadTraining) -> None:
        self._benchmark, self._load = benchmark, load
        self._known: dict[DataReference, list[str] | UserError] = {}

    def reasons(self, text: str, label: str, findings: Findings) -> list[str]:
        given = DataReference.parse(text)
        # The order of splits makes no other data, nor does naming one twice.
        reference = replace(given, split="+".join(sorted(set(given.split.split("+")))) if given.split else None)
        if reference not in self._known:
            try:
                self._known[reference] = _by_content(self._load(str(reference)), self._benchmark)
            except UserError as error:
                self._known[reference] = error
        found = self._known[reference]
        if isinstance(found, UserError):
            findings.add(
                "training_data_not_compared",
                "declared training data are not on this machine, so questions were not compared",
                f"{label}: {found.what}",
                severity="note",
            )
            return []
        return found


def _by_content(data: Training, benchmark: Benchmark) -> list[str]:
    ids = {question.id for question in data.questions}
    texts = {normalise(question.text) for question in data.questions}
    alike = {question.id for question in benchmark.questions if normalise(question.text) in texts}
    if data.reference.name == benchmark.reference.name:
        named = sum(1 for question in benchmark.questions if question.id in ids and question.id not in alike)
        if named:
            return [f"has {named} question ids of the evaluated split"]
    return [f"has {len(alike)} of the evaluated questions word for word"] if alike else []


def _sounds_like(data: TrainingPart, benchmark: Benchmark) -> bool:
    said = re.sub(r"[^a-z0-9]", "", data.name.lower())
    names = (benchmark.reference.name, benchmark.card.title)
    return not data.reference and any(re.sub(r"[^a-z0-9]", "", name.lower()) in said for name in names)


def training_loader() -> LoadTraining:
    """A loader that asks the dataset registry, with default options."""
    return lambda reference: datasets.load(reference)
