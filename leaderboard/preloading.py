"""Imports what pages need before a visitor asks for them: SciPy and pandas alone take a second."""

from __future__ import annotations

import gc
import importlib
import threading

import streamlit as st

_PAGES = ("board", "method", "compare", "question", "style", "budget", "judge", "dataset", "run")
_LIBRARIES = ("altair", "pandas", "pyarrow", "scipy.stats")


@st.cache_resource(show_spinner=False)
def preload() -> threading.Thread:
    """Start the imports beside whatever the server does, once in its life."""
    # Not a daemon: a library that is cut off while it loads takes the whole process down noisily.
    thread = threading.Thread(target=_import_all, name="preloading")
    thread.start()
    return thread


def _import_all() -> None:
    for name in (*_LIBRARIES, *(f"leaderboard.screens.{page}" for page in _PAGES)):
        importlib.import_module(name)
    # Altair checks every mark against its schema when it is made: a third of the Budget page's time. Tests check
    # whole charts.
    importlib.import_module("altair.utils.schemapi").disable_debug_mode()
    # What was imported stays: looking through it again and again for garbage stops a page for up to 0.3 s.
    gc.collect()
    gc.freeze()
