"""Draw trees of elements, downloads and messages on a Streamlit page."""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import streamlit as st

from leaderboard import state
from leaderboard.elements.nodes import Part, el, link, message
from leaderboard.state import Miss
from results.errors import UserError
from results.submission.review import Submitted

NAME = "ragmeter_view"
Act = Callable[[Mapping[str, str | None]], None]


def show(part: Part, key: str, act: Act | None = None) -> None:
    """Render a tree; `act` is called before the next rerun with the `action` of the clicked element."""
    _mount(part, key, {"": act})


def show_all(key: str, parts: Mapping[str, Part | None], acts: Mapping[str, Act] | None = None) -> None:
    """Render several trees, by key, as one component, because each takes the browser some time; `acts` as for `show`, by key."""
    shown = (el("div", part, cls="part", key=name) for name, part in parts.items() if part is not None)
    _mount(el("div", *shown, cls="stack"), key, acts or {})


def _mount(tree: Part, key: str, acts: Mapping[str, Act | None]) -> None:
    """Send a tree to the browser, with the actions of clicks on its parts."""

    def clicked() -> None:
        # The browser is not trusted either: only changes of text parameters get through.
        match st.session_state[key].get("action"):
            case {"part": str(part), "action": Mapping() as action} if (act := acts.get(part)) is not None:
                act({str(k): None if v is None else str(v) for k, v in action.items()})

    component = st.components.v2.component(NAME, css=asset("view.css"), js=asset("view.js"))
    # As bytes: other data Streamlit serializes twice, and parses at every rerun.
    data = json.dumps(tree.to_json(), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
    component(key=key, data=data, on_action_change=clicked)


@cache
def asset(name: str) -> str:
    """Read a static file of the leaderboard (script, style sheet); cached."""
    return importlib.resources.files("leaderboard").joinpath("assets", name).read_text("utf-8")


_MIMES = {"csv": "text/csv", "md": "text/markdown", "tex": "application/x-tex"}
_LABELS = {"csv": "CSV", "md": "Markdown", "tex": "LaTeX"}


def offer(name: str, texts: Mapping[str, Callable[[], str]]) -> None:
    """Draw the menu of downloads, whose texts are by extension, with the link to the page."""
    with st.popover("Export", icon=":material/download:", width="stretch"):
        for ending, text in texts.items():
            options: dict[str, Any] = {"key": f"export-{ending}", "on_click": "ignore", "width": "stretch"}
            data = partial(lambda text: text().encode("utf-8", "replace"), text)
            st.download_button(_LABELS[ending], data, f"{name}.{ending}", _MIMES[ending], **options)
        if address := state.permalink():
            st.caption("Link to this view")
            st.code(address, language=None, wrap_lines=True)


def tell(title: str, text: str, steps: tuple[str, ...] = ()) -> None:
    """Show a message on the page: the situation, and commands to run next."""
    show(message(title, text, steps), "message")


def explain(error: UserError, title: str) -> None:
    """Show an error on the page: why there is nothing to show, and the remedy."""
    position = f" ({error.where})" if error.where else ""
    text = f"{error.what[:1].upper()}{error.what[1:]}{position}."
    tell(title, text, (error.try_this,) if error.try_this else ())


def permalink() -> None:
    """Draw the link that reproduces this page."""
    address = state.permalink()
    if address:
        show(el("p", link("Permanent link to this view", address), cls="note"), "permalink")


_LONGEST = 60
_NOUNS = {
    "board": "a benchmark", "criterion": "a criterion", "dataset": "a dataset", "datasets": "a dataset",
    "experiment": "an experiment", "judge": "a judge", "kinds": "a kind of method", "measure": "a metric",
    "method": "a method",
    "metric": "a metric", "question": "a question", "readers": "a reader", "reference": "a method to compare with",
    "run": "a run", "runs": "a run", "setting": "a setting", "type": "a type of question", "with": "a run",
}  # fmt: skip
_OF_SUBMISSIONS = ("a run", "a method", "a method to compare with")


def tell_missing(submissions: Callable[[], Sequence[Submitted]]) -> None:
    """Show, at the end of a page, which values of the URL are not available and what is shown instead."""
    result = state.corrected()
    if result:
        lines = [el("p", _message(name, miss, submissions)) for name, miss in result.items()]
        show(el("div", *lines, cls="missing", role="status"), "missing")


def _message(name: str, miss: Miss, submissions: Callable[[], Sequence[Submitted]]) -> str:
    requested, shown = miss
    instead = f"{_shortened(shown)} is shown" if shown else "it is left out"
    for item in submissions() if _NOUNS.get(name) in _OF_SUBMISSIONS else ():
        if requested in (item.run.run, item.run.short, item.run.method, item.run.method_id):
            reason = f" ({_shortened(item.reason)})" if item.reason else ""
            return f"This link names the submission {_shortened(item.run.method)}, which is {item.status}{reason}; {instead}."
    return f"This link names {_NOUNS.get(name, f'a value of {name}')} that is not here, {_shortened(requested)}; {instead}."


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
