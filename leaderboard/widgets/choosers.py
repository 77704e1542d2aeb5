"""The choices that pages share (experiment, board, reference), and what pages say when there is nothing to choose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st

from leaderboard.elements.columns import ALL_RUNS, board_key, board_label, families
from leaderboard.elements.nodes import el, link, message
from leaderboard.reading import source
from leaderboard.reading.source import Source
from leaderboard.widgets import state
from leaderboard.widgets.entering import without_store
from leaderboard.widgets.view import show
from results.queries import RunRow, UserError

NO_REFERENCE = "-"
_OF_EXPERIMENT = (
    "board",
    "reference",
    "question",
    "type",
    "datasets",
    "pin",
    "hide",
    "first",
    "sort",
    "order",
    "kinds",
    "readers",
    "untrained",
)
"""Parameters that lose their meaning with another experiment."""


@dataclass(frozen=True)
class Chosen:
    """What a page is about.

    Attributes:
        at: The store.
        experiment: None for all runs.
        group: Position of the board among the experiment's.
        runs: The board's runs.
        families: Metrics by family.
        definitions: Metric definitions by id.
    """

    at: Source
    experiment: str | None
    group: int
    runs: list[RunRow]
    families: dict[str, list[str]]
    definitions: dict[str, dict[str, Any]]

    @property
    def metrics(self) -> list[str]:
        """All metric ids of the board."""
        return self.families["all"]

    @property
    def methods(self) -> list[str]:
        """Names of the methods that can be a reference."""
        return list(dict.fromkeys(run.method for run in self.runs if run.kind != "control"))


def choose() -> Chosen | None:
    """Draw the shared choices; None where the store has nothing to show, which has then been said."""
    at = source.source()
    try:
        return _choose(at)
    except UserError as error:
        steps = [error.try_this] if error.try_this else []
        place = f"{error.where}. " if error.where else ""
        show(message(f"{error.what[:1].upper()}{error.what[1:]}", f"{place}What to do:", tuple(steps)), "message")
        return None


def experiment_of(at: Source) -> str | None:
    """The experiment that the URL names, None for all runs; nothing is drawn."""
    options = [*(row.name for row in source.experiments(at)), ALL_RUNS]
    name = state.pick("experiment", options, options[0])
    return None if name == ALL_RUNS else name


def experiment_box(at: Source) -> str | None:
    """Draw the choice of an experiment; None for all runs.

    Args:
        at: A store that is not empty.
    """
    options = [*(row.name for row in source.experiments(at)), ALL_RUNS]
    name = state.select(
        "Experiment",
        "experiment",
        options,
        options[0],
        resets=_OF_EXPERIMENT,
        show=lambda value: "All runs in the store" if value == ALL_RUNS else value,
    )
    return None if name == ALL_RUNS else name


def nothing(at: Source) -> bool:
    """Say that there is nothing to show, and what to do; False where there is something."""
    if without_store(at):
        return True
    if not source.has_runs(at):
        show(
            message(
                "The store is empty",
                f"{at.folder} has no runs yet. Run the demo, or an experiment of your own.",
                ("ragmeter demo", "ragmeter run EXPERIMENT.yaml"),
            ),
            "message",
        )
        return True
    return False


def _choose(at: Source) -> Chosen | None:
    if nothing(at):
        return None
    left, right = st.columns([1, 2])
    with left:
        experiment = experiment_box(at)
    found = source.run_groups(at, experiment)
    if not found:
        show(message("This experiment has no runs yet", "It was stored, but nothing has started.", ("ragmeter resume",)), "message")
        return None
    labels = {board_key(runs[0]): board_label(runs) for runs in found}
    if len(set(labels.values())) < len(labels):
        # One benchmark in two versions (another limit, other data): the fingerprint tells them apart.
        labels = {key: f"{label} · {key.rpartition('~')[2]}" for key, label in labels.items()}
    with right:
        board = state.select(
            "Benchmark · setting · seed",
            "board",
            list(labels),
            next(iter(labels)),
            resets=("question", "type"),
            show=lambda key: labels[key],
        )
    group = list(labels).index(board)
    runs = found[group]
    definitions = source.definitions(at)
    metrics = source.metric_ids(at, tuple(run.run for run in runs))
    if not metrics:
        show(
            message(
                "Nothing is scored yet",
                f"{len(runs)} runs have started, none has a finished question. Reload in a moment, or continue them.",
                ("ragmeter runs", "ragmeter resume"),
            ),
            "message",
        )
        return None
    card = source.datasets(at).get(runs[0].dataset_fingerprint, {}).get("card", {})
    return Chosen(at, experiment, group, runs, families(metrics, definitions, card.get("metrics", ())), definitions)


def permalink() -> None:
    """Draw the link that reproduces this view."""
    address = state.permalink()
    if address:
        show(el("p", link("Permanent link to this view", address), cls="note"), "permalink")


def default_reference(chosen: Chosen) -> str:
    """The experiment's reference where it has a run here."""
    for row in source.experiments(chosen.at):
        if row.name == chosen.experiment and row.reference in chosen.methods:
            return row.reference
    return NO_REFERENCE
