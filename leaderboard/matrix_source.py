"""What the matrix reads, remembered as long as the store's file stays the same; shared, so not to be changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import streamlit as st

from leaderboard import source
from leaderboard.source import Source
from results import column_figures, invariants, method_record, queries
from results.beside import Comparison, beside
from results.column_figures import Figures, Wanted
from results.queries import Cost, RunRow
from results.statistics import Estimate
from results.store import Store


def _store(at: Source) -> Store:
    return Store(Path(at.folder))


@st.cache_resource(show_spinner=False, max_entries=4)
def cards(at: Source) -> dict[str, dict[str, Any]]:
    """Cards of methods and of their parts by id."""
    return method_record.cards(_store(at))


@st.cache_resource(show_spinner=False, max_entries=8)
def _ids(at: Source, experiment: str | None) -> list[str]:
    return [run.run for group in source.run_groups(at, experiment) for run in group]


@st.cache_resource(show_spinner=False, max_entries=8)
def scored_metrics(at: Source, experiment: str | None) -> dict[str, list[str]]:
    """Metrics that each run was scored on."""
    return column_figures.scored_metrics(_store(at), _ids(at, experiment))


@st.cache_resource(show_spinner=False, max_entries=8)
def costs(at: Source, experiment: str | None) -> dict[str, Cost]:
    """Mean cost per question by run."""
    return queries.costs(_store(at), _ids(at, experiment))


@st.cache_resource(show_spinner=False, max_entries=8)
def violations(at: Source, experiment: str | None) -> dict[str, list[str]]:
    """What does not hold between a run's scores and must."""
    return invariants.violations(_store(at), _ids(at, experiment))


@st.cache_resource(show_spinner="Comparing …", max_entries=8)
def figures(at: Source, wanted: tuple[Wanted, ...]) -> dict[str, Figures]:
    """Means, and differences of all pairs, of every wanted column."""
    return column_figures.figures(_store(at), wanted)


@st.cache_resource(show_spinner=False, max_entries=8)
def published(at: Source, wanted: tuple[Wanted, ...], _runs: dict[str, RunRow]) -> dict[tuple[str, str], Comparison]:
    """The printed figure whose setting is the closest, by the column's key and the run.

    Args:
        at: The store.
        wanted: The columns.
        _runs: By fingerprint; not part of what is remembered, since the store's stamp says what they are.
    """
    found = {}
    for column in wanted:
        kept = figures(at, wanted)[column.key]
        for run, place in kept.runs.items():
            row = _runs[run]
            value, half = float(kept.means.value[place]), float(kept.means.half[place])
            ours = Estimate(value, value - half, value + half, int(kept.means.n[place]), 0)
            known = beside(row.dataset, row.setting, column.metric, row.description, estimate=ours,
                           stated={"questions": str(kept.questions)})  # fmt: skip
            if known and ours.n:
                found[column.key, run] = known[0]
    return found
