"""The view's state: it is all in the URL, so that a link reproduces what its sender saw.

A widget shows what the URL says; changing it writes the whole view into the URL, defaults included, so that a link
means the same when the defaults have moved on. Whatever a URL says is checked against what exists; what a link names
without effect is kept for `widgets.py` to show.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

import streamlit as st

_VIEW = "view"
_SHARED = ("experiment", "board", "metric", "reference", "runs")
"""Parameters that pages share."""
_LINKED = ("board", "metric", "question", "failures")
"""Parameters that an element may set on the page that it opens, besides its own."""
_LONGEST = 8000
"""Characters of a parameter that are looked at."""
_MISSES, _REPORTED, _SEEN, _OPENED, _LED = "misses", "reported", "seen", "opened", "led"
_SHORT = re.compile(r"[\w.-]+(?=[(#])")
"""Pattern of an id without parameters and version."""
_NOTHING = ("", "-", "*", "any")
"""Defaults that choose nothing, or everything."""
_NO_PAGES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Miss:
    """Value in the URL that is not available.

    Attributes:
        requested: As the URL has it.
        shown: The value chosen instead; empty if there is none.
    """

    requested: str
    shown: str


def begin(page: str) -> None:
    """Start a page: where it was reached without parameters from another page, what they share is carried over."""
    opened = st.session_state.pop(_OPENED, None)
    if opened is not None:
        script, parameters = opened
        st.session_state[_LED] = True
        # Streamlit leaves these parameters at this page's address too: the way back must lead to what was left.
        st.switch_page(script, query_params={**view(), **parameters})
    previous = st.session_state.get("page")
    st.session_state["page"] = page
    if st.session_state.pop(_LED, False):
        _seen().add(_here())
    if previous not in (None, page) and not st.query_params.to_dict():
        left = st.session_state.get(_VIEW, {})
        st.query_params.from_dict({name: left[name] for name in _SHARED if left.get(name)})
        # Not every page has the values of another page: this is not an error.
        _seen().add(_here())
    st.session_state[_VIEW] = {}
    st.session_state[_MISSES] = {}


def open_page(script: str, parameters: Mapping[str, str]) -> None:
    """Have the next run open another page; in a click's handler, where pages cannot be switched."""
    st.session_state[_OPENED] = (script, dict(parameters))


def read(name: str, default: str = "") -> str:
    """Return a parameter of the URL."""
    return str(st.query_params.get(name, default))[:_LONGEST]


def settle(name: str, value: str) -> str:
    """Record which value a parameter really has in this view."""
    st.session_state[_VIEW][name] = value
    return value


def pick(name: str, options: Sequence[str], default: str, show: Callable[[str], str] = str) -> str:
    """Return a parameter that must be one of some options, or the name of just one of them without its parameters; anything
    else is the default, as `show` has it."""
    query = read(name)
    results = [query] if query in options else [option for option in options if query and _shorten_option(option) == query]
    if query and len(results) != 1:
        miss(name, query, "" if default in _NOTHING else show(default))
    return settle(name, results[0] if len(results) == 1 else default)


def _shorten_option(option: str) -> str | None:
    named = _SHORT.match(option)
    return named[0] if named else None


def miss(name: str, query: str, shown: str = "") -> None:
    """Record that the URL names something that cannot be chosen, and what is shown instead."""
    st.session_state[_MISSES][name] = Miss(query, shown)


def corrected() -> dict[str, Miss]:
    """Return, at a page's end, the values in the link that are not available here, by parameter, until something else is chosen.

    The URL then says what is shown. Choices that another choice made impossible are not misses, nor is what is in
    the browser's history: there a second correction would lead the way back forward again.
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
    """Return addresses at which this session has been."""
    return st.session_state.setdefault(_SEEN, set())


def view() -> dict[str, str]:
    """Return the whole state of this view, as URL parameters."""
    return {name: value for name, value in st.session_state[_VIEW].items() if value}


def permalink() -> str | None:
    """Return the address of this view with every choice spelled out; None if the server does not know its own."""
    address = st.context.url
    return f"{address.partition('?')[0]}?{urlencode(view())}" if address else None


def write(**changes: str | None) -> None:
    """Change parameters; None or "" removes one."""
    merged = {**st.session_state.get(_VIEW, {}), **changes}
    st.query_params.from_dict({name: value for name, value in merged.items() if value})
    _seen().add(_here())


def act(allowed: Sequence[str], pages: Mapping[str, str] = _NO_PAGES) -> Callable[[Mapping[str, str | None]], None]:
    """Return a handler of clicks that may change these parameters and no others.

    Args:
        allowed: Parameters of this page.
        pages: By a parameter of another page, the script of that page: it is opened with it and with `_LINKED` of the action.
    """

    def clicked(action: Mapping[str, str | None]) -> None:
        for name, script in pages.items():
            if action.get(name):
                open_page(script, {key: value for key, value in action.items() if value and key in (name, *_LINKED)})
                return
        write(**{name: value for name, value in action.items() if name in allowed})

    return clicked


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
    """Return a select box bound to a parameter.

    Args:
        label: Name of the choice.
        name: The parameter.
        options: Its values.
        default: Used if the URL has no value, or one that does not exist.
        show: From a value to what is shown.
        resets: Parameters that lose their meaning when this one changes.
        help: Shown on hover; our own words only, it is read as Markdown.
    """
    value = pick(name, options, default, show)
    st.selectbox(label, options, format_func=show, help=help, **bound(name, value, resets))
    return value


def bound(
    name: str, value: Any, resets: Sequence[str] = (), write_as: Callable[[Any], str | None] = lambda chosen: chosen
) -> dict[str, Any]:
    """Return options that bind a widget to a parameter: its key, which holds the value, and what a change writes.

    Args:
        name: The parameter.
        value: As the widget shows it.
        resets: Parameters that lose their meaning when this one changes.
        write_as: From what is chosen to the parameter's text.
    """
    key = f"choose-{name}"
    st.session_state[key] = value
    return {"key": key, "on_change": lambda: write(**{name: write_as(st.session_state[key])}, **dict.fromkeys(resets))}


def switch(label: str, name: str, *, resets: Sequence[str] = (), help: str | None = None) -> bool:
    """Return a toggle bound to a parameter that is "1" or absent."""
    value = settle(name, "1" if read(name) == "1" else "") == "1"
    st.toggle(label, help=help, **bound(name, value, resets, lambda chosen: "1" if chosen else None))
    return value


def number(name: str, default: int = 0) -> int:
    """Return a parameter that is a whole number of at most eight digits; anything else is the default."""
    text = read(name)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else default


def search(label: str, name: str, *, placeholder: str, resets: Sequence[str] = ()) -> str:
    """Return a text field bound to a parameter."""
    value = settle(name, read(name)[:200])
    st.text_input(label, max_chars=200, placeholder=placeholder, **bound(name, value, resets, str.strip))
    return value
