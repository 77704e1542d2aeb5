"""Papers' own figures as lines of the matrix: for scale, greyed and never ranked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from results.beside import printed
from results.matrix import Column
from results.published import Figure

_LEFT_OUT = ("split", "questions")
"""Keys of a setting that the column says already, or that would tear a paper's row apart."""


@dataclass(frozen=True, slots=True)
class Printed:
    """One row of a paper: the same method in the same setting.

    Attributes:
        paper: Which.
        method: As it calls it.
        said: Its setting, shortened.
        figures: By the column's key.
    """

    paper: str
    method: str
    said: str
    figures: Mapping[str, Figure]

    @property
    def source(self) -> str:
        """Where it is printed."""
        return next(iter(self.figures.values())).source


def papers_of(columns: Sequence[Column]) -> list[Printed]:
    """Rows of papers that have a figure of the metric and dataset of any column."""
    found: dict[tuple[str, str, str], dict[str, Figure]] = {}
    for column in columns:
        if column.metric is None:
            continue
        for figure in printed(column.first.dataset, column.first.setting, column.metric):
            found.setdefault((figure.paper, figure.method, _said(figure)), {}).setdefault(column.key, figure)
    return [Printed(paper, method, said, figures) for (paper, method, said), figures in sorted(found.items())]


def _said(figure: Figure) -> str:
    setting = "; ".join(f"{key}={value}" for key, value in figure.conditions.items() if key not in _LEFT_OUT)
    return " · ".join(filter(None, (figure.paper.upper(), setting)))
