"""Which benchmarks, in which setting, with which metric each, a matrix shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from leaderboard.elements.columns import MAIN, families, higher_is_better
from results.column_figures import COST, COSTS, Wanted
from results.contestants import key_of
from results.matrix import Column
from results.queries import RunRow

ALL_SETTINGS = "*"
"""Stands for every setting, each in columns of its own."""
OWN = "own"
"""Stands for each dataset's own metric of the family."""
Definitions = Mapping[str, Mapping[str, Any]]


def settings_of(groups: Sequence[Sequence[RunRow]]) -> list[str]:
    """Settings in the order in which they come up, those with most benchmarks first; then all.

    All come first where no setting has two benchmarks: a matrix of one column is none.
    """
    every = [runs[0].setting for runs in groups]
    distinct = sorted(dict.fromkeys(every), key=lambda setting: -every.count(setting))
    if len(distinct) < 2:
        return distinct
    return [*distinct, ALL_SETTINGS] if len(distinct) < len(every) else [ALL_SETTINGS, *distinct]


def column_key(run: RunRow) -> str:
    """The URL's name for a column."""
    return key_of(run.dataset_fingerprint, run.setting, run.seed)


def labels(groups: Sequence[Sequence[RunRow]], setting: str) -> dict[str, tuple[str, str]]:
    """Name and small print of each group's column, by its key: seed and version only where they tell columns apart."""
    found = {}
    firsts = [runs[0] for runs in groups]
    for run in firsts:
        same = [other for other in firsts if other.dataset == run.dataset and other.setting == run.setting]
        below = [run.setting] if setting == ALL_SETTINGS else []
        if len({other.seed for other in same}) > 1:
            below.append(f"seed {run.seed}")
        if len({other.dataset_fingerprint for other in same}) > 1:
            below.append(run.dataset_fingerprint[:8])
        found[column_key(run)] = (run.dataset, " · ".join(below))
    return found


def metrics_of(runs: Sequence[RunRow], scored: Mapping[str, Sequence[str]]) -> list[str]:
    """Metrics that any of a board's runs was scored on."""
    return list(dict.fromkeys(metric for run in runs for metric in scored.get(run.run, ())))


def known_families(metrics: Sequence[str], definitions: Definitions) -> list[str]:
    """Families that can be chosen: the datasets' own metrics, each group that was scored, and costs."""
    groups = [str(definitions.get(metric, {}).get("group") or "other") for metric in metrics]
    return [MAIN, *(name for name in dict.fromkeys(groups) if name not in (MAIN, COST)), COST]


def metrics_in(family: str, metrics: Sequence[str], definitions: Definitions) -> list[str]:
    """Metrics of a family."""
    if family == COST:
        return list(COSTS)
    if family == MAIN:
        return list(metrics)
    return [one for one in metrics if str(definitions.get(one, {}).get("group") or "other") == family]


def columns_of(
    groups: Sequence[Sequence[RunRow]],
    scored: Mapping[str, Sequence[str]],
    definitions: Definitions,
    cards: Mapping[str, Mapping[str, Any]],
    family: str,
    measure: str,
) -> list[Column]:
    """One column a board.

    Args:
        groups: Runs by board.
        scored: Metrics by run.
        definitions: Of metrics by id.
        cards: Of datasets by fingerprint.
        family: One of `known_families`.
        measure: A metric's id, or `OWN`.
    """
    found = []
    for runs in groups:
        metrics = metrics_in(family, metrics_of(runs, scored), definitions)
        official = cards.get(runs[0].dataset_fingerprint, {}).get("card", {}).get("metrics", ())
        if measure != OWN:
            metric = measure if measure in metrics else None
        else:
            metric = families(metrics, definitions, official)[MAIN][0] if metrics else None
        better = metric is None or higher_is_better(metric, {**definitions, **COSTS})
        found.append(Column(column_key(runs[0]), tuple(runs), metric, better, ranked=family != COST))
    return found


def wanted_of(columns: Sequence[Column], series: Mapping[str, tuple[str, ...]] | None = None) -> tuple[Wanted, ...]:
    """What to read for them; `series`: by run, the runs of all seeds that it stands for."""
    return tuple(
        Wanted(one.key, one.first.dataset_fingerprint, tuple(run.run for run in one.runs), one.metric, series or {})
        for one in columns
        if one.metric is not None
    )
