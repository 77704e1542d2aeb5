"""What the pages about datasets, judges, styles and budgets read, remembered as `leaderboard.source` remembers."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from leaderboard.source import Source
from results import dataset_facts
from results.dataset_facts import DatasetFacts, Sample
from results.store import Store


def _store(at: Source) -> Store:
    return Store(Path(at.folder))


@st.cache_data(show_spinner=False, max_entries=8)
def datasets(at: Source) -> list[DatasetFacts]:
    """Stored datasets with what is known of them."""
    return dataset_facts.dataset_facts(_store(at))


@st.cache_data(show_spinner=False, max_entries=64)
def samples(at: Source, fingerprint: str, number: int, start: int) -> list[Sample]:
    """Some of a dataset's questions."""
    return dataset_facts.samples(_store(at), fingerprint, number, start)
