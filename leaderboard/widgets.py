"""Widgets of several pages: how they ask what to show. All of it is in the URL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import streamlit as st

from leaderboard import read, state
from leaderboard.drawing import explain, show, tell
from leaderboard.elements import formats
from leaderboard.elements.formats import ALL_RUNS, board_key, board_label
from leaderboard.elements.nodes import el, note
from leaderboard.matrix.rows import own_metrics, ranked_families
from leaderboard.read import Source
from leaderboard.views.run import Sightings, live
from results.errors import UserError
from results.store.queries import RunRow, running
from results.store.schema import now
from results.store.store import Store

_PREFIX, _OPENER = "bar-", "unfold"
_BARS, _OPEN = f"[class*='st-key-{_PREFIX}']", f".st-key-{_OPENER}"
STYLE = (
    f"@media (min-width: 641px) {{ {_OPEN} {{ display: none; }} }}"
    f" @media (max-width: 640px) {{ body:not(:has({_OPEN} input:checked)) :is({_BARS}, [data-testid='stLayoutWrapper']:has(> {_BARS}))"
    " { display: none; } [data-testid='stMainBlockContainer'] { padding-top: 3.9rem; }"
    " [class*='st-key-split-'] > [data-testid='stLayoutWrapper'] > [data-testid='stHorizontalBlock'] { flex-direction: column-reverse; }"
    f" {_BARS} [data-testid='stHorizontalBlock'] {{ gap: 0.6rem; }}"
    f" {_BARS} [data-testid='stColumn'] {{ min-width: calc(50% - 0.3rem);"
    " flex: 1 1 calc(50% - 0.3rem); } }"
    " [data-testid='stTopNavLink']:focus-visible { outline: 2px solid var(--st-primary-color, currentcolor); outline-offset: -2px; }"
    " [data-testid='stMultiSelect'] [data-tag] :is(span, button), [data-testid='stMultiSelect'] [data-tag]"
    " { color: light-dark(#ffffff, #10151b); }"
)
"""Styles for Streamlit: on a phone all bars of widgets are folded behind one switch, and two widgets share a row. A page's link
shows that it has the keyboard's focus. Selected values would otherwise be white on light blue in dark mode.
"""


def bar(key: str, shares: int | Sequence[float], *, align: Literal["top", "center", "bottom"] = "top") -> list[Any]:
    """Make a row of containers for widgets; on a phone they are folded; `shares`: number of containers, or their relative widths."""
    with st.container(key=f"{_PREFIX}{key}"):
        return st.columns(shares, vertical_alignment=align)


def style() -> None:
    """Add the style sheet of widget rows, and the button that unfolds them on a phone."""
    st.html(f"<style>{STYLE}</style>")
    st.toggle("Options and filters", key=_OPENER)


def as_page(name: str, title: str) -> Callable[[Callable[[Source], None]], Callable[[], None]]:
    """Decorate a function that draws a page: it is called only if the store can be read, otherwise an explanation is shown."""

    def decorate(draw: Callable[[Source], None]) -> Callable[[], None]:
        def render() -> None:
            state.begin(name)
            show(el("h1", title, cls="page"), "title")
            at = read.source()
            try:
                if at.stamp:
                    draw(at)
                else:
                    _tell_empty("No results here yet", f"The folder {at.folder} holds no store.")
            except UserError as error:
                explain(error, "This store cannot be read")

        return render

    return decorate


def _tell_empty(title: str, text: str) -> None:
    """Show on a page without a store's content how to fill it; the last command opens another store."""
    fill = (
        "Each of these commands fills it: the demo (minutes, no GPU, no keys), an experiment of yours, which `ragmeter init` "
        "writes for your data, or predictions of another system. Then reload this page."
    )
    first = "ragmeter demo", "ragmeter init FOLDER", "ragmeter run EXPERIMENT.yaml"
    tell(title, f"{text} {fill}", (*first, "ragmeter submit template", "ragmeter leaderboard --store FOLDER"))


NO_REFERENCE = "-"
OF_ROWS = ("sort", "order", "first", "hide")
"""Parameters of the rows of a board."""
_OF_EXPERIMENT = ("board", "reference", "question", "type", "datasets", "kinds", "readers", "untrained", *OF_ROWS)
"""Parameters that lose their meaning with another experiment."""


@dataclass(frozen=True)
class Chosen:
    """The user's choices that most pages share: experiment, board and metrics.

    Attributes:
        experiment: Name of the experiment; None for all runs.
        group: Position of the board in `read.run_groups`.
    """

    at: Source
    experiment: str | None
    group: int
    runs: list[RunRow]
    families: dict[str, list[str]]
    definitions: dict[str, dict[str, Any]]

    @property
    def metrics(self) -> list[str]:
        """Return all metric ids of the board."""
        return self.families["all"]

    def label(self, metric: str) -> str:
        """Return the label of one of the board's metrics."""
        return formats.metric_label(metric, self.metrics)


def experiment_of(at: Source) -> str | None:
    """Return the experiment that the URL names, None for all runs, without drawing a selector."""
    names = [*read.ordered_experiments(at), ALL_RUNS]
    name = state.pick("experiment", names, names[0])
    return None if name == ALL_RUNS else name


def experiment_box(at: Source, within: Any) -> str | None:
    """Draw the selector of the experiment, and return its value; None for all runs."""
    options = {name: name for name in read.ordered_experiments(at)} | {ALL_RUNS: "All runs in the store"}
    name = state.select("Experiment", "experiment", options, resets=_OF_EXPERIMENT, within=within)
    return None if name == ALL_RUNS else name


def choose(at: Source) -> Chosen | None:
    """Draw the selectors that most pages share, and return the choices; None (with a message) if the store has nothing to show."""
    if not read.has_runs(at):
        _tell_empty("The store is empty", f"{at.folder} has no runs yet.")
        return None
    left, right = bar("chosen", [1, 2])
    experiment = experiment_box(at, left)
    results = read.run_groups(at, experiment)
    if not results:
        tell("This experiment has no runs yet", "It is stored, but no run has started.", ("ragmeter run --resume",))
        return None
    labels = {board_key(runs[0]): board_label(runs) for runs in results}
    if len(set(labels.values())) < len(labels):
        # One benchmark in two versions (another limit, other data): the fingerprint tells them apart.
        labels = {key: f"{label} · {key.rpartition('~')[2]}" for key, label in labels.items()}
    board = state.select("Benchmark · setting · seed", "board", labels, resets=("question", "type"), within=right)
    group = list(labels).index(board)
    runs = results[group]
    definitions = read.definitions(at)
    scored = read.metric_ids(at, tuple(run.run for run in runs))
    metrics = shown_metrics(own_metrics(runs, scored), scored, right)
    if not scored:
        tell(
            "Nothing is scored yet",
            f"{len(runs)} runs have started, none has a finished question. Reload in a moment, or continue them.",
            ("ragmeter list runs", "ragmeter run --resume"),
        )
        return None
    card = read.datasets(at).get(runs[0].dataset_fingerprint, {}).get("card", {})
    return Chosen(at, experiment, group, runs, ranked_families(runs, metrics, definitions, card, read.primary(at, experiment)), definitions)


def shown_metrics(own: Sequence[str], scored: Sequence[str], within: Any) -> list[str]:
    """Draw the switch that adds metrics of other experiments and of submissions, if there are any; return the metrics to show."""
    others = [metric for metric in scored if metric not in own]
    if not others or not own:
        return list(own or scored)
    label = f"{len(others):,} more metric{'s' * (len(others) != 1)}"
    tip = "Scored here, but not listed by the experiment: by another experiment, or for a submission"
    more = state.switch(label, "others", resets=("metric", "measure", "sort", "order"), help=tip, within=within)
    return [*own, *others] if more else list(own)


def choose_reference(at: Source, experiment: str | None, methods: Sequence[str], within: Any) -> str | None:
    """Draw the selector of the reference method, at first the experiment's, and return its value."""
    default = read.reference_of(at, experiment, methods) or NO_REFERENCE
    options = {name: name for name in methods} | {NO_REFERENCE: "nothing"}
    name = state.select("Compared with", "reference", options, default, within=within)
    return None if name == NO_REFERENCE else name


def choose_papers(within: Any = st) -> bool:
    """Draw the switch that shows published figures in cells, and return whether it is on."""
    return state.switch("Published figures", "papers", help="The closest published figure, below ours", within=within)


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
    within: Any = st,
) -> list[str]:
    """Draw a multi-select box bound to a URL parameter, and return the selected values, which contain no commas.

    Args:
        default: Values if the URL names too few known ones.
        least: Minimum number of values in the URL; a smaller selection in the box is returned unchanged.
    """
    named = list(dict.fromkeys(filter(None, state.read(name).split(","))))
    queries = [value for value in named if value in options][:most]
    if unknown := [value for value in named if value not in options]:
        state.miss(name, ", ".join(unknown))
    unfinished = st.session_state.get(f"unfinished-{name}")
    # While the reader takes one away to put another in, the box must not snap back.
    value = queries if len(queries) >= least or (queries and unfinished == queries) else [*default][:most]
    state.settle(name, ",".join(value))

    def write_chosen(chosen: list[str]) -> str:
        st.session_state[f"unfinished-{name}"] = list(chosen)
        return ",".join(chosen)

    within.multiselect(label, options, format_func=show, max_selections=most, **state.bound(name, value, resets, write_chosen))
    return list(value)


@st.cache_resource(show_spinner=False)
def _sightings() -> Sightings:
    return Sightings()


def show_running(at: Source, experiment: str | None, runs: Iterable[RunRow] | None, every_s: float = 15.0) -> None:
    """Draw the progress of running runs, and redraw the page when runs of the experiment (None: of the store) have changed.

    Args:
        runs: Those of which to show the running ones, if there are any; None: all, with a note if there are none.
        every_s: Seconds between two looks at the store.
    """
    known = read.run_groups(at, experiment)
    among = None if runs is None else {run.run for run in runs if run.status == "running"}
    if among is None or among:
        show(el("h2", "Running now", cls="section"), "live-title")

    @st.fragment(run_every=every_s)
    def watch() -> None:
        try:
            if (latest := read.source()) != at and read.run_groups(latest, experiment) != known:
                st.rerun()
            every = running(Store(Path(at.folder)))
        except UserError as error:
            # A page that updates by itself reports errors of the store when it is drawn again.
            if among is None:
                show(note(f"The progress of runs cannot be read now: {error.what}."), "live-none")
            return
        shown = [run for run in every if among is None or run.run in among]
        if shown:
            show(live(shown, _sightings().look(every, now())), "live")
        elif among is None:
            show(note(f"Nothing is running. Runs that you start appear here within {every_s:g} s."), "live-none")

    watch()
