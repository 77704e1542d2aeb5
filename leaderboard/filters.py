"""Choices of the overview matrix: setting, metrics, and the filters on rows and columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

import streamlit as st

from leaderboard import state
from leaderboard.elements import formats
from leaderboard.matrix.rows import (
    ALL_SETTINGS,
    ANY,
    OWN,
    SIZE_NAMES,
    WEIGHT_NAMES,
    Choices,
    Definitions,
    Filters,
    known_families,
    metrics_in,
)
from leaderboard.widgets import choose_papers, several

_MOST = 50
FILTERS = ("datasets", "kinds", "readers", "size", "weights", "untrained", "since", "until")
"""Parameters of filters."""
_ROWS = ("first",)
_SORTED = ("first", "sort", "order")


def choose_setting(options: Sequence[str]) -> str:
    """Draw the selector of the retrieval setting, and return its value."""
    names = {name: "All settings" if name == ALL_SETTINGS else name for name in options}
    return state.select("Setting", "setting", names, resets=("datasets", *_SORTED))


def choose_family(metrics: Sequence[str], definitions: Definitions) -> str:
    """Draw the selector of the metric family, and return its value."""
    names = {name: f"{name} metrics" if name != "cost" else "cost per question" for name in known_families(metrics, definitions)}
    return state.select("Metrics", "family", names, resets=("measure", *_SORTED))


def choose_measure(family: str, metrics: Sequence[str], definitions: Definitions) -> str:
    """Draw the selector of the metric (one for all datasets, or each dataset's own), and return its value."""
    options = metrics_in(family, metrics, definitions)
    if family == "cost":
        return state.select("Metric", "measure", options, resets=_SORTED)
    labels = {OWN: "each dataset's own", **{item: formats.metric_label(item, options) for item in options}}
    return state.select("Metric", "measure", labels, resets=_SORTED)


def filters_of_url(result: Choices) -> Filters:
    """Read the filters from the URL, without drawing; unknown values are ignored."""
    return Filters(
        _keys("kinds", result.kinds),
        _keys("readers", result.readers),
        state.pick("size", list(SIZE_NAMES), ANY),
        state.pick("weights", list(WEIGHT_NAMES), ANY),
        frozenset(result.training[key] for key in _keys("untrained", result.training)),
        _day("since"),
        _day("until"),
    )


def datasets_of_url(labels: Mapping[str, str]) -> list[str]:
    """Read the selected columns from the URL; all of them if it names none."""
    return [key for key in labels if key in _keys("datasets", labels)] or list(labels)


def _keys(name: str, known: Mapping[str, str]) -> frozenset[str]:
    return frozenset(state.read(name).split(",")) & frozenset(known)


def _day(name: str) -> date | None:
    try:
        return date.fromisoformat(state.settle(name, state.read(name)))
    except ValueError:
        state.settle(name, "")
        return None


def draw_filters(labels: Mapping[str, str], result: Choices, active: int) -> bool:
    """Draw the filters of the matrix; return whether cells show published figures."""
    with st.popover(f"Filters ({active})" if active else "Filters", icon=":material/filter_list:", width="stretch"):
        several("Datasets", "datasets", list(labels), (), least=0, most=_MOST, show=lambda key: labels[key], resets=_SORTED)
        _several("Kind of method", "kinds", result.kinds)
        _several("Reader", "readers", result.readers)
        state.select("Size", "size", SIZE_NAMES, ANY, resets=_ROWS)
        state.select("Weights", "weights", WEIGHT_NAMES, ANY, resets=_ROWS)
        if not (result.sizes_known and result.weights_known):
            st.caption(
                "Sizes and weights are counted for models that ran here and taken from the card for submissions. They are unknown "
                "for models behind an endpoint."
            )
        if result.training:
            _several("Not trained on", "untrained", result.training)
        else:
            st.caption("No method here declares training data.")
        left, right = st.columns(2)
        with left:
            _date("Run on or after", "since")
        with right:
            _date("Run on or before", "until")
        papers = choose_papers()
        st.button(
            "Clear filters",
            key="clear-filters",
            disabled=not active,
            width="stretch",
            on_click=lambda: state.write(**dict.fromkeys((*FILTERS, "first"))),
        )
    return papers


def _several(label: str, name: str, known: Mapping[str, str]) -> None:
    several(label, name, list(known), (), least=0, most=_MOST, show=lambda key: known[key], resets=_ROWS)


def _date(label: str, name: str) -> None:
    bound = state.bound(name, _day(name), _ROWS, lambda day: day.isoformat() if day else None)
    st.date_input(label, value=None, format="YYYY-MM-DD", **bound)
