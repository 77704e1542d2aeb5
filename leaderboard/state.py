"""The view's state: it is all in the URL, so that a link reproduces what its sender saw.

A widget shows what the URL says; changing it writes the whole view into the URL, defaults included, so that a link
means the same when the defaults have moved on. Whatever a URL says is checked against what exists; what a link names
without effect is kept for `drawing.py` to show.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import streamlit as st

_VIEW = "view"
_SHARED = ("experiment", "board", "metric", "reference", "runs")
"""Parameters that pages share."""
_LINKED = ("experiment", "board", "metric", "question", "failures")
"""Parameters that an element may set on the page that it opens, in addition to its own."""
_LONGEST = 8000
"""Maximum characters of a parameter that are read."""
_MISSES, _REPORTED, _SEEN, _OPENED, _LED, _KEPT = "misses", "reported", "seen", "opened", "led", "kept"
_SHORT = re.compile(r"[\w.-]+(?=[(#])")
"""Pattern of an id without parameters and version."""
_NOTHING = ("", "-", "*", "any")
"""Defaults that select nothing, or everything."""
Miss = tuple[str, str]
"""Value in the URL that is not available on this page, and the value chosen instead, empty if there is none."""


def begin(page: str) -> None:
    """Begin a page; if it was opened without parameters from another page, take over the shared ones."""
    opened = st.session_state.pop(_OPENED, None)
    if opened is not None:
        target, parameters = opened
        st.session_state[_LED] = True
        # Streamlit leaves these parameters at this page's address too: the way back must lead to what was left.
        st.switch_page(target, query_params={**view(), **parameters})
    previous = st.session_state.get("page")
    st.session_state["page"] = page
    if st.session_state.pop(_LED, False):
        _seen().add(_here())
    if previous not in (None, page):
        # Not every page uses the values of another page: it passes them on without a message.
        left = {**st.session_state.get(_KEPT, {}), **st.session_state.get(_VIEW, {})}
        shared = st.session_state[_KEPT] = {name: left[name] for name in _SHARED if left.get(name)}
        if not st.query_params.to_dict():
            st.query_params.from_dict(shared)
            _seen().add(_here())
    st.session_state[_VIEW] = {}
    st.session_state[_MISSES] = {}


def fragment(own: Collection[str], stale: Callable[[], bool], draw: Callable[[], None]) -> None:
    """Draw the changing part of a page: changes of its own parameters redraw only this part, unless the page is `stale`."""
    whole = [True]

    @st.fragment
    def drawn() -> None:
        if not whole:
            query, view = st.query_params.to_dict(), st.session_state[_VIEW]
            others = any(query[name] != view[name] for name in query.keys() & view.keys() if name not in own)
            if others or _OPENED in st.session_state or st.session_state[_MISSES] or stale():
                st.rerun()
        whole.clear()
        draw()

    drawn()


def open_page(page: Any, parameters: Mapping[str, str]) -> None:
    """Open another page at the next rerun; for click handlers, in which Streamlit cannot switch pages."""
    st.session_state[_OPENED] = (page, dict(parameters))


def read(name: str, default: str = "") -> str:
    """Read a parameter of the URL."""
    return str(st.query_params.get(name, default))[:_LONGEST]


def settle(name: str, value: str) -> str:
    """Record and return the value that a parameter has on this page."""
    st.session_state[_VIEW][name] = value
    return value


def pick(name: str, options: Sequence[str], default: str, show: Callable[[str], str] = str) -> str:
    """Read a URL parameter that must be one of `options`, or the name of exactly one of them without its parameters; otherwise
    return the default.
    """
    query = read(name)
    results = [query] if query in options else [option for option in options if (short := _SHORT.match(option)) and short[0] == query]
    if query and len(results) != 1:
        miss(name, query, "" if default in _NOTHING else show(default))
    return settle(name, results[0] if len(results) == 1 else default)


def miss(name: str, query: str, shown: str = "") -> None:
    """Record that the URL requests a value that is not available, and which one is shown instead."""
    st.session_state[_MISSES][name] = (query, shown)


def corrected() -> dict[str, Miss]:
    """Correct the URL to the shown values, and return the requested values that are not available, by parameter. Call it at the
    end of a page.

    Values that another choice made impossible are not reported. URLs from the browser's history are not corrected again,
    because that would break the back button.
    """
    results, view = st.session_state.get(_MISSES, {}), st.session_state.get(_VIEW, {})
    if results and _here() not in _seen():
        _seen().add(_here())
        right = {**st.query_params.to_dict(), **{name: view.get(name, "") for name in results}}
        st.query_params.from_dict({name: value for name, value in right.items() if value})
        st.session_state[_REPORTED] = (_here(), results)
    _seen().add(_here())
    position, misses = st.session_state.get(_REPORTED, ("", {}))
    return misses if position == _here() else {}


def _here() -> str:
    return f"{st.session_state.get('page')}?{urlencode(sorted(st.query_params.to_dict().items()))}"


def _seen() -> set[str]:
    """Return the addresses that this session has visited."""
    return st.session_state.setdefault(_SEEN, set())


def view() -> dict[str, str]:
    """Return the complete state of the page as URL parameters."""
    return {name: value for name, value in st.session_state[_VIEW].items() if value}


def permalink() -> str | None:
    """Return the full URL of the page with every choice; None if the server does not know its own address."""
    address = st.context.url
    return f"{address.partition('?')[0]}?{urlencode(view())}" if address else None


def write(**changes: str | None) -> None:
    """Change URL parameters; None or "" removes one."""
    merged = {**st.session_state.get(_VIEW, {}), **changes}
    st.query_params.from_dict({name: value for name, value in merged.items() if value})
    _seen().add(_here())


def act(allowed: Sequence[str], pages: Mapping[str, Any] | None = None) -> Callable[[Mapping[str, str | None]], None]:
    """Make a click handler that may change only these URL parameters; `pages`: those that a change of a parameter opens."""

    def clicked(action: Mapping[str, str | None]) -> None:
        for name, page in (pages or {}).items():
            if action.get(name):
                open_page(page, {key: value for key, value in action.items() if value and key in (name, *_LINKED)})
                return
        write(**{name: value for name, value in action.items() if name in allowed})

    return clicked


def select(
    label: str,
    name: str,
    options: Sequence[str] | Mapping[str, str],
    default: str | None = None,
    *,
    show: Callable[[str], str] | None = None,
    resets: Sequence[str] = (),
    within: Any = st,
) -> str:
    """Draw a select box bound to a URL parameter, and return the selected value.

    Args:
        options: The allowed values; a mapping has their display texts.
        default: Value if the URL has none, or an unknown one; None: the first one.
        show: Converts a value to its display text, if it is in no mapping.
        resets: Parameters to reset when this one changes, as for all widgets.
        within: Container to draw in, as for all widgets.
    """
    values, texts = list(options), options if isinstance(options, Mapping) else {}
    written = show or (lambda value: texts.get(value, value))
    value = pick(name, values, values[0] if default is None else default, written)
    within.selectbox(label, values, format_func=written, **bound(name, value, resets))
    return value


def bound(
    name: str, value: Any, resets: Sequence[str] = (), write_as: Callable[[Any], str | None] = lambda chosen: chosen
) -> dict[str, Any]:
    """Return the options that bind a Streamlit widget to a URL parameter: its key, and a callback that writes changes.

    `write_as` converts the widget's value to the parameter's text.
    """
    key = f"choose-{name}"
    st.session_state[key] = value
    return {"key": key, "on_change": lambda: write(**{name: write_as(st.session_state[key])}, **dict.fromkeys(resets))}


def switch(label: str, name: str, *, resets: Sequence[str] = (), help: str | None = None, within: Any = st) -> bool:
    """Draw a toggle bound to a URL parameter that is "1" or absent, and return whether it is on; `help` is rendered as Markdown."""
    value = settle(name, "1" if read(name) == "1" else "") == "1"
    within.toggle(label, help=help, **bound(name, value, resets, lambda chosen: "1" if chosen else None))
    return value


def number(name: str, default: int = 0) -> int:
    """Read a URL parameter that is a whole number of at most eight digits; otherwise return the default."""
    text = read(name)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else default


def search(label: str, name: str, *, placeholder: str, resets: Sequence[str] = (), within: Any = st) -> str:
    """Draw a search field bound to a URL parameter, and return its text."""
    value = settle(name, read(name)[:200])
    within.text_input(label, max_chars=200, placeholder=placeholder, **bound(name, value, resets, str.strip))
    return value
