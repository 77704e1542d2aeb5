"""Mounts trees of `nodes` in a Streamlit page, and hands clicks back as changes of the URL."""

from __future__ import annotations

import importlib.resources
from collections.abc import Callable, Mapping

import streamlit as st

from leaderboard.nodes import Node

NAME = "ragmeter_view"


def show(node: Node, key: str, act: Callable[[Mapping[str, str | None]], None] | None = None) -> None:
    """Draw a tree.

    Args:
        node: What to draw.
        key: Unique within the page.
        act: Called before the next run with the `action` of the element that was clicked.
    """

    def clicked() -> None:
        action = st.session_state[key].get("action")
        # The browser is not trusted either: only changes of text parameters get through.
        if act is not None and isinstance(action, Mapping):
            act({str(k): None if v is None else str(v) for k, v in action.items()})

    _component()(key=key, data=node.to_json(), on_action_change=clicked)


def _component():  # type: ignore[no-untyped-def]  # Streamlit's ComponentRenderer, whose module is imported lazily
    """The component, registered anew where this Streamlit runtime does not know it yet."""
    assets = importlib.resources.files("leaderboard").joinpath("assets")
    return st.components.v2.component(
        NAME, css=assets.joinpath("view.css").read_text("utf-8"), js=assets.joinpath("view.js").read_text("utf-8")
    )
