"""Imports what pages need before a visitor asks for them: SciPy and pandas alone take a second."""

from __future__ import annotations

import importlib
import threading

import streamlit as st

_PAGES = ("board", "method", "compare", "question", "style", "budget", "judge", "dataset", "run")
_LIBRARIES = ("altair", "pandas", "pyarrow", "scipy.stats")


@st.cache_resource(show_spinner=False)
def preload() -> threading.Thread:
    """Start the imports beside whatever the server does, once in its life."""
    thread = threading.Thread(target=_import_all, name="preloading", daemon=True)
    thread.start()
    return thread


def _import_all() -> None:
    for name in (*_LIBRARIES, *(f"leaderboard.{page}_page" for page in _PAGES)):
        importlib.import_module(name)
