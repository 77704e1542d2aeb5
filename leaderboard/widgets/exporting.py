"""What a page shows, as files to download: made when they are asked for, never before."""

from __future__ import annotations

import importlib.resources
from collections.abc import Callable

import streamlit as st

from leaderboard.widgets import state

_MIMES = {"csv": "text/csv", "md": "text/markdown", "tex": "application/x-tex", "svg": "image/svg+xml"}
_LABELS = {"csv": "CSV", "md": "Markdown", "tex": "LaTeX", "svg": "SVG"}


def offer(name: str, texts: dict[str, Callable[[], str]]) -> None:
    """Draw the menu of files, and the address of the view.

    Args:
        name: Of the files, without what follows the point; our own words.
        texts: By the files' ending (csv, md, tex, svg), what writes them. An SVG can be had as PNG too.
    """
    with st.popover("Export", icon=":material/download:", width="stretch"):
        for ending, text in texts.items():
            st.download_button(
                _LABELS[ending],
                _encoded(text),
                f"{name}.{ending}",
                _MIMES[ending],
                key=f"export-{ending}",
                on_click="ignore",
                width="stretch",
            )
        if "svg" in texts:
            _png(f"{name}.png", texts["svg"])
        address = state.permalink()
        if address:
            st.caption("Link to this view")
            st.code(address, language=None, wrap_lines=True)


def _encoded(text: Callable[[], str]) -> Callable[[], bytes]:
    return lambda: text().encode("utf-8", "replace")


def _png(name: str, svg: Callable[[], str]) -> None:
    """A button that has the browser draw the picture: it has the fonts of whatever a method is called."""

    def asked() -> None:
        st.session_state["png-asked"] = True

    wanted = st.session_state.pop("png-asked", False)
    data = {"label": "PNG", "name": name, "svg": svg() if wanted else None}
    _component()(key="export-png", data=data, on_asked_change=asked)


def _component():  # type: ignore[no-untyped-def]  # as in `leaderboard.widgets.view`
    assets = importlib.resources.files("leaderboard").joinpath("assets")
    return st.components.v2.component(
        "ragmeter_picture", css=assets.joinpath("picture.css").read_text("utf-8"), js=assets.joinpath("picture.js").read_text("utf-8")
    )
