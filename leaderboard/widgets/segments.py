"""A choice of a few words side by side that is kept in the URL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from leaderboard.widgets import state


def segments(label: str, name: str, options: Mapping[str, str], default: str, *, resets: Sequence[str] = ()) -> str:
    """Draw it.

    Args:
        label: What it chooses; read aloud, not drawn.
        name: The parameter.
        options: Its values with our own words for them, which are read as Markdown.
        default: Where the URL says nothing, or something that does not exist.
        resets: Parameters that lose their meaning when this one changes.
    """
    value = state.pick(name, list(options), default, lambda one: options[one])
    key = f"choose-{name}"
    st.session_state[key] = value

    def changed() -> None:
        # A second click on what is chosen asks for nothing; it stays chosen.
        state.write(**{name: st.session_state[key] or value}, **dict.fromkeys(resets))

    st.segmented_control(
        label, list(options), key=key, format_func=lambda one: options[one], on_change=changed, label_visibility="collapsed"
    )
    return value
