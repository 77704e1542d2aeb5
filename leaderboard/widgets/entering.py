"""How a page about the whole store begins, and what it says when there is nothing to show."""

from __future__ import annotations

from leaderboard.elements.nodes import el, message
from leaderboard.reading import source
from leaderboard.reading.source import Source
from leaderboard.widgets import state
from leaderboard.widgets.view import show
from results.queries import UserError


def enter(page: str, title: str) -> Source | None:
    """Start a page; None where there is no store, which has then been said.

    Args:
        page: Its name in the URL.
        title: Its heading.
    """
    state.begin(page)
    show(el("h1", title, cls="page"), "title")
    at = source.source()
    return None if without_store(at) else at


def without_store(at: Source) -> bool:
    """Say so where there is no store, and what to do."""
    if at.stamp:
        return False
    show(
        message(
            "No results here yet",
            f"The folder {at.folder} holds no store. Run the demo (minutes, no GPU, no keys), then reload this page; "
            "or point the server at another folder.",
            ("ragmeter demo", "ragmeter serve --store FOLDER"),
        ),
        "message",
    )
    return True


def explain(error: UserError, title: str) -> None:
    """Say why a page has nothing to show, and what to do."""
    place = f" ({error.where})" if error.where else ""
    text = f"{error.what[:1].upper()}{error.what[1:]}{place}."
    show(message(title, text, (error.try_this,) if error.try_this else ()), "message")
