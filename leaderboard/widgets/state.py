"""The view's state: it is all in the URL, so that a link reproduces what its sender saw.

A widget shows what the URL says; changing it writes the whole view into the URL, defaults included, so that a link
means the same when the defaults have moved on. Whatever a URL says is checked against what exists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlencode

import streamlit as st

_VIEW = "view"
_SHARED = ("experiment", "board", "metric", "reference")
"""What pages have in common."""
_LONGEST = 8000
"""Characters of a parameter that are looked at."""


def begin(page: str) -> None:
    """Start a page: where it was reached without parameters from another page, what they share is carried over."""
    previous = st.session_state.get("page")
    if previous not in (None, page) and not st.query_params.to_dict():
        left = st.session_state.get(_VIEW, {})
        st.query_params.from_dict({name: left[name] for name in _SHARED if left.get(name)})
    st.session_state["page"] = page
    st.session_state[_VIEW] = {}


def read(name: str, default: str = "") -> str:
    """A parameter of the URL."""
    return str(st.query_params.get(name, default))[:_LONGEST]


def settle(name: str, value: str) -> str:
    """Record which value a parameter really has in this view."""
    st.session_state[_VIEW][name] = value
    return value


def pick(name: str, options: Sequence[str], default: str) -> str:
    """A parameter that must be one of some options; anything else is the default."""
    asked = read(name, default)
    return settle(name, asked if asked in options else default)


def view() -> dict[str, str]:
    """The whole state of this view, as URL parameters."""
    return {name: value for name, value in st.session_state[_VIEW].items() if value}


def permalink() -> str | None:
    """The address of this view with every choice spelt out; None where the server does not know its own."""
    address = st.context.url
    return f"{address.partition('?')[0]}?{urlencode(view())}" if address else None


def write(**changes: str | None) -> None:
    """Change parameters; None or "" removes one."""
    merged = {**st.session_state.get(_VIEW, {}), **changes}
    st.query_params.from_dict({name: value for name, value in merged.items() if value})


def act(allowed: Sequence[str]) -> Callable[[Mapping[str, str | None]], None]:
    """A handler of clicks that may change these parameters and no others."""
    return lambda action: write(**{name: value for name, value in action.items() if name in allowed})


def select(
    label: str,
    name: str,
    options: Sequence[str],
    default: str,
    *,
    show: Callable[[str], str] = str,
    resets: Sequence[str] = (),
    help: str | None = None,
) -> str:
    """A select box bound to a parameter.

    Args:
        label: What it chooses.
        name: The parameter.
        options: Its values.
        default: Where the URL says nothing, or something that does not exist.
        show: From a value to what is shown.
        resets: Parameters that lose their meaning when this one changes.
        help: Shown on hover; our own words only, it is read as Markdown.
    """
    value = pick(name, options, default)
    key = f"choose-{name}"
    st.session_state[key] = value
    st.selectbox(
        label, options, key=key, format_func=show, help=help,
        on_change=lambda: write(**{name: st.session_state[key]}, **dict.fromkeys(resets)),
    )  # fmt: skip
    return value


def switch(label: str, name: str, *, resets: Sequence[str] = (), help: str | None = None) -> bool:
    """A toggle bound to a parameter that is "1" or absent."""
    value = settle(name, "1" if read(name) == "1" else "") == "1"
    key = f"choose-{name}"
    st.session_state[key] = value
    st.toggle(
        label, key=key, help=help,
        on_change=lambda: write(**{name: "1" if st.session_state[key] else None}, **dict.fromkeys(resets)),
    )  # fmt: skip
    return value


def search(label: str, name: str, *, placeholder: str, resets: Sequence[str] = ()) -> str:
    """A text field bound to a parameter."""
    value = settle(name, read(name)[:200])
    key = f"choose-{name}"
    st.session_state[key] = value
    st.text_input(
        label, key=key, max_chars=200, placeholder=placeholder,
        on_change=lambda: write(**{name: st.session_state[key].strip()}, **dict.fromkeys(resets)),
    )  # fmt: skip
    return value
