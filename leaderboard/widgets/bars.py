"""Rows of widgets above what they choose: side by side where there is room, two in a row on a phone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import streamlit as st

_PREFIX = "bar-"
STYLE = (
    f"@media (max-width: 640px) {{ [class*='st-key-{_PREFIX}'] [data-testid='stHorizontalBlock'] {{ gap: 0.6rem; }}"
    f" [class*='st-key-{_PREFIX}'] [data-testid='stColumn'] {{ min-width: calc(50% - 0.3rem);"
    " flex: 1 1 calc(50% - 0.3rem); } }"
    " [data-testid='stMultiSelect'] [data-tag] :is(span, button), [data-testid='stMultiSelect'] [data-tag]"
    " { color: light-dark(#ffffff, #10151b); }"
)
"""For Streamlit, which on a narrow screen gives every column a row of its own (nine widgets filled a phone's screen),
and writes what is chosen in white on our light blue of dark mode."""


def bar(key: str, shares: int | Sequence[float], *, align: Literal["top", "center", "bottom"] = "top") -> list[Any]:
    """Places for widgets, one beside the other.

    Args:
        key: Unique within the page.
        shares: How many, or how wide each is among them.
        align: Where a lower widget stands among higher ones.
    """
    with st.container(key=f"{_PREFIX}{key}"):
        return st.columns(shares, vertical_alignment=align)


def style() -> None:
    """What the page needs once for all of its bars."""
    st.html(f"<style>{STYLE}</style>")
