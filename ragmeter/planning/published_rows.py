"""Rows of a paper's table whose methods do not exist here: they stand beside ours as published figures alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from methods.registry import METHODS
from ragmeter.experiment import Experiment
from results.published import IDENTITY, Figure, figures, papers
from results.series import stem

_NAME = re.compile(r"(?P<paper>[a-z]+)-(?P<what>table|figure)(?P<number>\d+)")
_SAID = re.compile(r"published figures alone|not built")
"""How an experiment's description says that it leaves rows of its table to the paper."""


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """A method that is there by its published figures alone.

    Attributes:
        method: Its name in the paper.
        paper, table: Where they are printed.
        figures: How many.
    """

    method: str
    paper: str
    table: str
    figures: int

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)


def published_rows(experiment: Experiment) -> list[PublishedRow]:
    """What an experiment leaves to the paper, of the table that its name says it is of (`ark-table2`)."""
    match = _NAME.fullmatch(experiment.name)
    if match is None or match["paper"] not in papers() or not _SAID.search(experiment.description):
        return []
    table = match["number"] if match["what"] == "table" else f"figure {match['number']}"
    ours = [_plain(stem(method.name)) for method in experiment.methods]
    found = [figure for figure in figures(match["paper"]) if figure.table == table and "over" not in figure.conditions]
    counted = Counter(name for figure in found for name in _named(figure) if not any(_plain(name) in one for one in ours))
    return [PublishedRow(name, match["paper"], table, number) for name, number in counted.items()]


def _named(figure: Figure) -> Iterator[str]:
    """The methods of a figure that we have not: its own, and whom that was compared with."""
    match = IDENTITY.fullmatch(figure.id)
    if match is None or match["name"] not in METHODS:
        yield figure.method
    if "against" in figure.conditions:
        yield figure.conditions["against"]


def _plain(name: str) -> str:
    return "".join(character for character in name.casefold() if character.isalnum())
