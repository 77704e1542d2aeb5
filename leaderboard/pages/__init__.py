"""The pages of the leaderboard: `app.py` starts them, each is a file with `render`."""

from __future__ import annotations

import importlib
from typing import Any

PAGES = (
    ("board", "Board", "leaderboard", ""),
    ("method", "Methods", "science", "methods"),
    ("compare", "Compare", "compare_arrows", "compare"),
    ("question", "Questions", "quiz", "questions"),
    ("style", "Styles", "style", "styles"),
    ("budget", "Budget", "savings", "budget"),
    ("judge", "Judges", "gavel", "judges"),
    ("dataset", "Datasets", "database", "datasets"),
    ("run", "Runs", "history", "runs"),
    ("submit", "Submit", "upload", "submit"),
)
"""File, title, icon and address of each page; the first is the start page."""


def page(name: str, *, visible: bool = True) -> Any:
    """Return a page by the name of its file, for the navigation and for links; the file is imported when the page is drawn."""
    import streamlit as st

    title, icon, address = next((title, icon, address) for file, title, icon, address in PAGES if file == name)
    return st.Page(
        lambda: importlib.import_module(f"leaderboard.pages.{name}").render(),
        title=title,
        icon=f":material/{icon}:",
        url_path=address or name,
        default=not address,
        visibility="visible" if visible else "hidden",
    )
