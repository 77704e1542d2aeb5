"""The leaderboard: `streamlit run` starts here; which store it shows is said by `source.STORE_VARIABLE`."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

import ragmeter  # noqa: F401  # So that no folder of the user's is taken for one of our packages.
from leaderboard import submitting
from leaderboard.preloading import preload
from leaderboard.widgets.bars import style
from leaderboard.widgets.missing import tell_missing


def main() -> None:
    """Set the page up and run the one that the URL names."""
    assets = Path(__file__).with_name("assets")
    # A file of our own: browsers fetch the icon of a page that names a Material symbol from Google.
    st.set_page_config(page_icon=str(assets / "icon.svg"), layout="wide")
    st.logo(str(assets / "logo.svg"), size="medium")
    # Not in a folder called `pages`: of that Streamlit makes a menu of its own until "/" is visited.
    pages = [
        st.Page("scripts/board.py", title="Board", icon=":material/leaderboard:", default=True),
        st.Page("scripts/methods.py", title="Methods", icon=":material/science:", url_path="methods"),
        st.Page("scripts/compare.py", title="Compare", icon=":material/compare_arrows:", url_path="compare"),
        st.Page("scripts/questions.py", title="Questions", icon=":material/quiz:", url_path="questions"),
        st.Page("scripts/styles.py", title="Styles", icon=":material/style:", url_path="styles"),
        st.Page("scripts/budget.py", title="Budget", icon=":material/savings:", url_path="budget"),
        st.Page("scripts/judges.py", title="Judges", icon=":material/gavel:", url_path="judges"),
        st.Page("scripts/datasets.py", title="Datasets", icon=":material/database:", url_path="datasets"),
        st.Page("scripts/runs.py", title="Runs", icon=":material/history:", url_path="runs"),
    ]
    if submitting.command() is not None:
        pages.append(st.Page("scripts/submit.py", title="Submit", icon=":material/upload:", url_path="submit"))
    style()
    page = st.navigation(pages, position="top")
    st.set_page_config(page_title=f"{page.title} · ragmeter")
    top = st.container()
    page.run()
    # A page knows what it lacks when it has asked for everything; its reader should know first.
    with top:
        tell_missing()
    # Last: whoever opens the first page does not wait for those that nobody has asked for.
    preload()


if __name__ == "__main__":
    main()
