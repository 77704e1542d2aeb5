"""The primary metric and comparison that an experiment declares, and the error probability of marks on several metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from results.boards.names import base_name
from results.store.queries import ExperimentRow, RunRow, with_profile

EACH = 5
"""Probability, in percent, that a column without any difference shows a mark."""


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
        """Return the id among these that matches the primary metric; None if it is not shown."""
        return next(
            (metric for metric in metrics if metric == self.metric or metric.startswith((f"{self.metric}(", f"{self.metric}#"))), None
        )

    def row(self, runs: Iterable[RunRow]) -> str | None:
        """Return the primary method's name in tables; `method` may also be the id of a registered method."""
        runs = list(runs)
        if self.method in {name for run in runs for name in (run.method, base_name(run.method))}:
            return self.method
        return next((base_name(run.method) for run in runs if run.method_id == self.method), self.method)


def primary_of(experiment: ExperimentRow) -> Primary | None:
    """Read the `primary` key of a stored experiment; None if the experiment does not declare it."""
    value = with_profile(experiment.source, experiment.profile).get("primary")
    return Primary(str(value["metric"]), value.get("method")) if isinstance(value, Mapping) and value.get("metric") else None


def of_metrics(starred: int, metrics: int) -> str:
    """Return the table note on the error probability of marks if each pair's p-values are corrected over all metrics."""
    return f"marks on {starred} of {metrics} metrics: corrected together (Holm), the probability of any false mark is at most {EACH} %"


def of_several(starred: int, metrics: int) -> str:
    """Return the table note on the error probability of marks on several metrics if the experiment declares no primary metric."""
    most = min(100, EACH * metrics)
    return (
        f"marks on {starred} of {metrics} metrics: the probability of a false mark is at most {EACH} % per metric and, over all "
        f"{metrics}, up to {most} %; the experiment's key primary names the metric that decides"
    )
