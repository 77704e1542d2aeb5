"""Pages over runs in progress draw themselves anew when something has been written."""

from __future__ import annotations

from collections.abc import Iterable

import streamlit as st

from leaderboard.reading import source
from leaderboard.reading.source import Source
from results.queries import RunRow

_REFRESH_S = 15.0


def refresh_while_running(at: Source, runs: Iterable[RunRow]) -> None:
    """Look from time to time whether the store has changed, while any of these runs is in progress."""
    if not any(run.status == "running" for run in runs):
        return

    @st.fragment(run_every=_REFRESH_S)
    def watch() -> None:
        if source.source() != at:
            st.rerun()

    watch()
