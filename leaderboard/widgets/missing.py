"""What a page says at its top where the link that led there names what is not here."""

from __future__ import annotations

from leaderboard.elements.nodes import el
from leaderboard.widgets import state
from leaderboard.widgets.state import Miss
from leaderboard.widgets.view import show

_LONGEST = 60
_NOUNS = {
    "board": "a benchmark", "criterion": "a criterion", "dataset": "a dataset", "datasets": "a dataset",
    "experiment": "an experiment", "judge": "a judge", "kinds": "a kind of method", "measure": "a metric",
    "method": "a method",
    "metric": "a metric", "question": "a question", "readers": "a reader", "reference": "a method to compare with",
    "run": "a run", "runs": "a run", "setting": "a setting", "type": "a type of question", "with": "a run",
    "x": "a run", "y": "a run",
}  # fmt: skip


def tell_missing() -> None:
    """At a page's end: say what the link names in vain, and what is shown instead."""
    found = state.corrected()
    if found:
        show(el("div", *(el("p", _said(name, miss)) for name, miss in found.items()), cls="missing", role="status"), "missing")


def _said(name: str, miss: Miss) -> str:
    instead = f"{_shortened(miss.shown)} is shown" if miss.shown else "it is left out"
    return f"This link names {_NOUNS.get(name, f'a value of {name}')} that is not here, {_shortened(miss.asked)}; {instead}."


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
