"""What the comparison page reads, remembered as long as the store's file stays the same."""

from __future__ import annotations

import streamlit as st

from leaderboard.reading.source import Source, store_of
from results import attribution as attributions
from results import comparison, queries
from results.attribution import Attribution
from results.comparison import Comparison
from results.queries import RunRow


@st.cache_resource(show_spinner=False, max_entries=32)
def compared(at: Source, ids: tuple[str, ...], metric: str, _runs: tuple[RunRow, ...]) -> Comparison:
    """A comparison; shared between readers, not to be changed. `ids` are those of the runs, which are not hashed."""
    return comparison.compare(store_of(at), _runs, metric)


@st.cache_resource(show_spinner=False, max_entries=128)
def attributed(at: Source, run: str, metric: str, ceiling: float, _row: RunRow) -> Attribution:
    """What a run's stages lose; shared, not to be changed. `run` is the row's id, the row itself is not hashed."""
    among = _runs_on(at, _row.dataset_fingerprint)
    return attributions.attribution(store_of(at), _row, metric, ceiling=ceiling, among=among)


@st.cache_resource(show_spinner=False, max_entries=8)
def _runs_on(at: Source, data: str) -> list[RunRow]:
    return queries.runs(store_of(at), dataset_fingerprint=data)
