"""Mounts trees of `nodes` and charts in a Streamlit page, and hands clicks back as changes of the URL."""

from __future__ import annotations

import importlib.resources
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING

import streamlit as st

from leaderboard.elements.nodes import Node

if TYPE_CHECKING:
    import altair

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


def draw(chart: altair.TopLevelMixin, *, alt: str, key: str | None = None) -> None:
    """Draw a chart as wide as there is room.

    Args:
        chart: What to draw, with its data in it.
        alt: What it shows, and where its numbers stand, for readers who do not see it.
        key: Unique within the page; needed where equal charts may stand on it.
    """
    # As `st.altair_chart`, but without the schema's check in every rerun, which took half of a page's time.
    spec = chart.to_dict(validate=False)
    for side in ("continuousWidth", "continuousHeight"):
        spec.get("config", {}).get("view", {}).pop(side, None)
    st.vega_lite_chart(spec=spec, width="stretch", key=key, alt=alt)


def _component():  # type: ignore[no-untyped-def]  # Streamlit's ComponentRenderer, whose module is imported lazily
    """The component, registered anew where this Streamlit runtime does not know it yet."""
    return st.components.v2.component(NAME, css=asset("view.css"), js=asset("view.js"))


@cache
def asset(name: str) -> str:
    """A file of ours, read once: a page draws ten trees."""
    return importlib.resources.files("leaderboard").joinpath("assets", name).read_text("utf-8")
