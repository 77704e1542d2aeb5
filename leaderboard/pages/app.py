"""The leaderboard: `streamlit run` starts here; `read.STORE_VARIABLE` names the store to show.

It is in this folder, because Streamlit makes its own menu from a folder `pages` next to the file that it starts.
"""

from __future__ import annotations

import gc
import importlib
import threading
from pathlib import Path

import streamlit as st

from leaderboard import read
from leaderboard.drawing import tell_missing
from leaderboard.intake import submit_command
from leaderboard.pages import PAGES, page
from leaderboard.widgets import style
from results.errors import UserError

_LIBRARIES = ("pandas", "pyarrow", "scipy.stats")


def main() -> None:
    """Set up the leaderboard's navigation and run the page that the URL names."""
    assets = Path(__file__).parents[1] / "assets"
    # A file of our own: browsers fetch the icon of a page that names a Material symbol from Google.
    st.set_page_config(page_icon=str(assets / "icon.svg"), layout="wide")
    st.logo(str(assets / "logo.svg"), size="medium")
    empty = _empty()
    style()
    opened = st.navigation([page(file, visible=file not in empty) for file, *_ in PAGES], position="top")
    st.set_page_config(page_title=f"{opened.title} · ragmeter")
    top = st.container()
    opened.run()
    # A page knows its missing values only at the end, but readers should see them first.
    with top:
        tell_missing(lambda: read.submissions(read.source()))
    # Last, so that the first page does not wait for pages that are not open.
    preload()


def _empty() -> set[str]:
    """Return the pages without content in the store: the navigation omits them, and their URLs show how to fill them."""
    at, takes = read.source(), submit_command() is not None
    try:
        # Visitors can read the status of submissions.
        takes = takes or read.has_submissions(at)
        full = {"submit": takes, "style": bool(read.styled_experiments(at)), "judge": bool(read.judges(at))}
    except UserError:
        # The page itself reports errors of the store.
        full = {"submit": takes, "style": False, "judge": False}
    return {file for file, has in full.items() if not has}


@st.cache_resource(show_spinner=False)
def preload() -> threading.Thread:
    """Import slow packages (SciPy, pandas) in a background thread, once per server."""
    # Not a daemon: a library that is cut off while it loads takes the whole process down noisily.
    thread = threading.Thread(target=_import_all, name="preloading")
    thread.start()
    return thread


def _import_all() -> None:
    for name in (*_LIBRARIES, *(f"leaderboard.pages.{file}" for file, *_ in PAGES[:-1])):
        importlib.import_module(name)
    # Imported objects stay: scanning them for garbage again and again stops a page for up to 0.3 s.
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    main()
