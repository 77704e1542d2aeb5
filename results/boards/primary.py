"""The primary metric and comparison that an experiment declares, and the error probability of stars on several metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from results.boards.names import base_name
from results.store.queries import ExperimentRow, RunRow, laid

EACH = 5
"""Percent: how often a column without any difference shows a star."""


@dataclass(frozen=True, slots=True)
class Primary:
    """Primary metric and benchmark of an experiment.

    Attributes:
        metric: As the experiment names it.
        method: The row that is compared with the reference, by its name or the id of its method; None: all of them.
    """

    metric: str
    method: str | None = None

    def of(self, metrics: tuple[str, ...]) -> str | None:
        """Return the metric among these ids; None if it is not shown."""
        return next(
            (metric for metric in metrics if metric == self.metric or metric.startswith((f"{self.metric}(", f"{self.metric}#"))), None
        )

    def row(self, runs: Iterable[RunRow]) -> str | None:
        """Return the method's name in tables: that of a row, else of the row of the method with this id."""
        runs = list(runs)
        if self.method in {name for run in runs for name in (run.method, base_name(run.method))}:
            return self.method
        return next((base_name(run.method) for run in runs if run.method_id == self.method), self.method)


def primary_of(experiment: ExperimentRow) -> Primary | None:
    """Return what the file of a stored experiment declares; None if it declares nothing."""
    value = laid(experiment.source, experiment.profile).get("primary")
    return Primary(str(value["metric"]), value.get("method")) if isinstance(value, Mapping) and value.get("metric") else None


def of_metrics(starred: int, metrics: int) -> str:
    """Return the error probability of a pair's stars if its metrics were corrected together."""
    return f"stars on {starred} of {metrics} metrics: corrected together (Holm), the probability of any false star is at most {EACH} %"


def of_several(starred: int, metrics: int) -> str:
    """Return the error probability of stars on several metrics if none is declared as primary."""
    most = min(100, EACH * metrics)
    return (
        f"stars on {starred} of {metrics} metrics: the probability of a false star is at most {EACH} % per metric and, over all "
        f"{metrics}, up to {most} %; `primary` in the experiment names the metric that decides"
    )
