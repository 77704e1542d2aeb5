"""The pages of the leaderboard: `app.py` starts them, each is a file with `render`.

Streamlit may show a string that stands alone in a file that it runs, so what a page's constants are is said in comments.
"""

from __future__ import annotations

import importlib

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


def draw_page(file: str) -> None:
    """Draw a page: Streamlit runs its file again for every change, but the module of the same name is loaded once."""
    importlib.import_module(f"leaderboard.pages.{file}").render()
