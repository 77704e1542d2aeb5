"""A choice of several values that is kept in the URL, comma-separated."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from leaderboard.widgets import state


def several(
    label: str,
    name: str,
    options: Sequence[str],
    default: Sequence[str],
    *,
    least: int,
    most: int,
    show: Callable[[str], str] = str,
    resets: Sequence[str] = (),
) -> list[str]:
    """A box in which several values are chosen, bound to a parameter.

    Args:
        label: What it chooses.
        name: The parameter.
        options: Its values; none holds a comma.
        default: Where the URL names too few that exist.
        least: How many make a choice; while fewer are chosen, they are returned as they are.
        most: No more can be chosen.
        show: From a value to what is shown.
        resets: Parameters that lose their meaning when this one changes.
    """
    named = list(dict.fromkeys(filter(None, state.read(name).split(","))))
    asked = [value for value in named if value in options][:most]
    if unknown := [value for value in named if value not in options]:
        state.miss(name, ", ".join(unknown))
    key = f"choose-{name}"
    unfinished = st.session_state.get(f"unfinished-{name}")
    # While the reader takes one away to put another in, the box must not snap back.
    value = asked if len(asked) >= least or (asked and unfinished == asked) else [*default][:most]
    state.settle(name, ",".join(value))
    st.session_state[key] = value

    def changed() -> None:
        st.session_state[f"unfinished-{name}"] = list(st.session_state[key])
        state.write(**{name: ",".join(st.session_state[key])}, **dict.fromkeys(resets))

    st.multiselect(label, options, key=key, format_func=show, max_selections=most, on_change=changed)
    return list(value)
