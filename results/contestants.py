"""Who competes: runs of one name as one contestant, with what the store knows of it, and why a run is not ranked.

How many parameters its models have and whether their weights are open is what a submission's card declares, or what was
counted when it ran here; where neither is known it is None and never guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from benchmarks.errors import UserError
from benchmarks.fingerprint import fingerprint
from benchmarks.registry import DataReference
from results.queries import RunRow
from results.store import FINISHED

Cards = Mapping[str, Mapping[str, Any]]
WHOLE = "answers by itself"
"""Stands for the reader of a method that needs none."""
UNKNOWN_READER = "not stated"


@dataclass(frozen=True, slots=True)
class Contestant:
    """Runs that bear one name, at most one in each column.

    Attributes:
        key: Short and safe in a URL; the same for the same name.
        name: As the experiment or the submission has it.
        runs: By the column's key.
        readers: What answers, by its model's name.
        parameters: Of all models together; None where nothing says so.
        open_weights: Of what ran here: whether the weights were on the machine; None where nothing says so.
        first, last: When its runs were last written to.
        training: Data that it, or a part of it, was trained on, by its own card; empty where it declares none.
        declares: Whether there is a card that could have declared some.
    """

    key: str
    name: str
    runs: Mapping[str, RunRow]
    readers: tuple[str, ...]
    parameters: int | None
    open_weights: bool | None
    first: datetime
    last: datetime
    training: tuple[str, ...]
    declares: bool

    @property
    def any_run(self) -> RunRow:
        """A run of it; kind, method id and origin are of the method."""
        return next(iter(self.runs.values()))

    @property
    def control(self) -> bool:
        """Whether it sees the gold."""
        return any(run.kind == "control" for run in self.runs.values())

    @property
    def kinds(self) -> tuple[str, ...]:
        """What it is: retriever, reranker, method, …"""
        return tuple(dict.fromkeys(run.kind for run in self.runs.values()))

    @property
    def origins(self) -> tuple[str, ...]:
        """Where its figures come from: run, submitted, verified."""
        return tuple(dict.fromkeys(run.origin for run in self.runs.values()))


def key_of(*parts: str | int) -> str:
    """A short name for something, the same on every machine, that is safe in a URL."""
    return fingerprint(*parts)[:8]


def contestants(columns: Mapping[str, Sequence[RunRow]], cards: Cards) -> list[Contestant]:
    """Runs of several benchmarks, one contestant a name, in the order in which names come up.

    Where a name occurs twice in one column, the further runs are contestants of their own, named with their run.

    Args:
        columns: Runs by the column's key.
        cards: Of methods and their parts by id.
    """
    named: dict[str, dict[str, RunRow]] = {}
    for column, runs in columns.items():
        for run in runs:
            taken = column in named.get(run.method, {})
            named.setdefault(f"{run.method} · {run.run[:8]}" if taken else run.method, {})[column] = run
    return [_contestant(name, runs, cards) for name, runs in named.items()]


def why_not_ranked(run: RunRow, contaminated: Sequence[str], violations: Sequence[str], scored: int) -> str:
    """Why a run's value must not be compared with others'; empty where it may be.

    Args:
        run: The run.
        contaminated: Which of its training data cover what is asked, as `contaminated_by` finds them.
        violations: What does not hold between its scores and must.
        scored: Questions that have a row of the metric, with or without a value.
    """
    if run.kind == "control":
        return "a control: it sees the gold"
    if run.status != FINISHED:
        return f"{run.status}: {run.done:,} of {run.questions:,} questions answered"
    if violations:
        return f"these scores cannot be right: {'; '.join(violations)}"
    if contaminated:
        return f"contaminated: {'; '.join(contaminated)}"
    if scored < run.questions:
        return f"scored on {scored:,} of {run.questions:,} questions"
    return ""


def contaminated_by(run: RunRow, cards: Cards) -> tuple[str, ...]:
    """Declared training data that cover what is asked, one sentence each; references alone are compared.

    For submissions it is what was found when they were sent in, questions compared too.
    """
    kept = ((run.card or {}).get("submission") or {}).get("contamination") or ()
    sent = (kept,) if isinstance(kept, str) else tuple(str(one) for one in kept)
    return sent + tuple(
        f"{reference} was trained on" for reference in _trained_on(run, cards) if covers(reference, run.dataset)
    )


def covers(reference: str, dataset: str) -> bool:
    """Whether training data of this reference hold the evaluated split; one without a split holds all of them."""
    try:
        given, asked = DataReference.parse(reference), DataReference.of_name(dataset)
    except UserError:
        return False
    if given.name != asked.name or (given.subset and asked.subset and given.subset != asked.subset):
        return False
    return given.split is None or bool(set(given.split.split("+")) & set((asked.split or "").split("+")))


def _contestant(name: str, runs: Mapping[str, RunRow], cards: Cards) -> Contestant:
    said = [(run.card or {}).get("method") or {} for run in runs.values()]
    every = list(runs.values())
    trained = dict.fromkeys(one for run in every for one in (*_trained_on(run, cards), *_declared(run)))
    return Contestant(
        key_of(name), name, runs, tuple(dict.fromkeys(_reader(run) for run in every)),
        next((part["parameters"] for part in said if part.get("parameters") is not None), _most(every)),
        next((part["open_weights"] for part in said if part.get("open_weights") is not None), _here(every)),
        min(run.updated_at for run in every), max(run.updated_at for run in every), tuple(trained),
        any(run.card is not None or any(part["id"] in cards for part in parts(run.description)) for run in every),
    )  # fmt: skip


def _counted(runs: Sequence[RunRow]) -> list[Mapping[str, Any]]:
    """What was known of the models of runs made here; runs of before it was written down have nothing."""
    return [models for run in runs if isinstance(models := run.provenance.get("models"), Mapping)]


def _most(runs: Sequence[RunRow]) -> int | None:
    """Parameters of the largest of these runs' methods: seeds and benchmarks of a method differ in none."""
    found = [models.get("parameters") for models in _counted(runs)]
    known = [number for number in found if isinstance(number, int)]
    return max(known) if known and len(known) == len(found) else None


def _here(runs: Sequence[RunRow]) -> bool | None:
    found = {models.get("weights_here") for models in _counted(runs)}
    return True if found == {True} else None


def parts(description: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The method of a run and the parts that it is made of, each with its `id`."""
    for value in (description.get("method"), *(description.get("rerankers") or ()), description.get("compressor"),
                  description.get("reader")):  # fmt: skip
        if isinstance(value, Mapping) and isinstance(value.get("id"), str):
            yield value


def _trained_on(run: RunRow, cards: Cards) -> list[str]:
    """References on the cards of a run's parts."""
    listed = (cards.get(part["id"], {}).get("training_data") or () for part in parts(run.description))
    return list(dict.fromkeys(str(one) for each in listed for one in each))


def _declared(run: RunRow) -> list[str]:
    """Training data on a submission's card."""
    listed = (run.card or {}).get("training_data") or ()
    return [str(one.get("reference") or one.get("name")) for one in listed if isinstance(one, Mapping)]


def _reader(run: RunRow) -> str:
    if run.card is not None:
        models = (run.card.get("models") or ()) if isinstance(run.card, Mapping) else ()
        return next((str(one["id"]) for one in models if one.get("role") == "reader"), UNKNOWN_READER)
    reader = run.description.get("reader")
    if not isinstance(reader, Mapping) or "id" not in reader:
        return WHOLE
    return str((reader.get("config") or {}).get("model") or reader["id"])
