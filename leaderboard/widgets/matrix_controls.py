"""The matrix's widgets: what is shown, who competes. All of it is in the URL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

import streamlit as st

from leaderboard.elements import formats
from leaderboard.matrix.cells import CORRECTIONS
from leaderboard.matrix.columns import ALL_SETTINGS, OWN, Definitions, known_families, metrics_in
from leaderboard.matrix.filters import ANY, SIZE_NAMES, WEIGHT_NAMES, Choices, Filters
from leaderboard.widgets import state
from leaderboard.widgets.choosers import NO_REFERENCE
from leaderboard.widgets.several import several
from results.matrix import Correction

_MOST = 50
FILTERS = ("datasets", "kinds", "readers", "size", "weights", "untrained", "since", "until")
"""Parameters of filters."""
_ROWS = ("first",)
_SORTED = ("first", "sort", "order")


def choose_setting(options: Sequence[str]) -> str:
    """Let the setting be chosen."""
    return state.select(
        "Setting",
        "setting",
        options,
        options[0],
        resets=("datasets", *_SORTED),
        show=lambda name: "All settings" if name == ALL_SETTINGS else name,
    )


def choose_family(metrics: Sequence[str], definitions: Definitions) -> str:
    """Let the family of metrics be chosen."""
    options = known_families(metrics, definitions)
    return state.select(
        "Metrics",
        "family",
        options,
        options[0],
        resets=("measure", *_SORTED),
        show=lambda name: f"{name} metrics" if name != "cost" else "cost per question",
    )


def choose_measure(family: str, metrics: Sequence[str], definitions: Definitions) -> str:
    """Let the metric be chosen, one for all or each dataset's own."""
    options = metrics_in(family, metrics, definitions)
    if family == "cost":
        return state.select("Metric", "measure", options, options[0], resets=_SORTED)
    return state.select(
        "Metric",
        "measure",
        [OWN, *options],
        OWN,
        resets=_SORTED,
        show=lambda one: "each dataset's own" if one == OWN else formats.metric_label(one),
    )


def choose_reference(methods: Sequence[str], default: str) -> str | None:
    """Let the method be chosen that differences are taken to."""
    name = state.select(
        "Compared with", "reference", [*methods, NO_REFERENCE], default, show=lambda one: "nothing" if one == NO_REFERENCE else one
    )
    return None if name == NO_REFERENCE else name


def choose_correction() -> Correction:
    """Let it be chosen for how many tests p-values are corrected."""
    words = {str(name): text for name, text in CORRECTIONS.items()}
    chosen = state.select("Tests corrected by", "correction", list(words), "column", show=lambda one: words[one])
    return next(name for name in CORRECTIONS if name == chosen)


def filters_asked(found: Choices) -> Filters:
    """What the URL asks for, as far as it exists here; nothing is drawn."""
    return Filters(
        _keys("kinds", found.kinds),
        _keys("readers", found.readers),
        state.pick("size", list(SIZE_NAMES), ANY),
        state.pick("weights", list(WEIGHT_NAMES), ANY),
        frozenset(found.training[key] for key in _keys("untrained", found.training)),
        _day("since"),
        _day("until"),
    )


def datasets_asked(labels: Mapping[str, str]) -> list[str]:
    """Columns that the URL asks for; all of them where it names none."""
    return [key for key in labels if key in _keys("datasets", labels)] or list(labels)


def _keys(name: str, known: Mapping[str, str]) -> frozenset[str]:
    return frozenset(state.read(name).split(",")) & frozenset(known)


def _day(name: str) -> date | None:
    try:
        return date.fromisoformat(state.settle(name, state.read(name)))
    except ValueError:
        state.settle(name, "")
        return None


def draw_filters(labels: Mapping[str, str], found: Choices, active: int) -> bool:
    """Draw the filters; whether papers' figures are to stand below.

    Args:
        labels: Of all columns, by key.
        found: What can be filtered by.
        active: How many ask for something.
    """
    with st.popover(f"Filters ({active})" if active else "Filters", icon=":material/filter_list:", width="stretch"):
        several("Datasets", "datasets", list(labels), (), least=0, most=_MOST, show=lambda key: labels[key], resets=_SORTED)
        _several("Kind of method", "kinds", found.kinds)
        _several("Reader", "readers", found.readers)
        state.select("Size", "size", list(SIZE_NAMES), ANY, show=lambda one: SIZE_NAMES[one], resets=_ROWS)
        state.select("Weights", "weights", list(WEIGHT_NAMES), ANY, show=lambda one: WEIGHT_NAMES[one], resets=_ROWS)
        if not (found.sizes_known and found.weights_known):
            st.caption(
                "Sizes and weights are counted where a model ran here and stated on a submission's card; a "
                "model behind an endpoint does not tell."
            )
        if found.training:
            _several("Not trained on", "untrained", found.training)
        else:
            st.caption("No method here declares training data.")
        left, right = st.columns(2)
        with left:
            _date("Run on or after", "since")
        with right:
            _date("Run on or before", "until")
        papers = state.switch("Papers' own figures below", "papers")
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
    key = f"choose-{name}"
    st.session_state[key] = _day(name)

    def changed() -> None:
        day = st.session_state[key]
        state.write(**{name: day.isoformat() if day else None}, **dict.fromkeys(_ROWS))

    st.date_input(label, value=None, key=key, format="YYYY-MM-DD", on_change=changed)
