"""The method page: what a method is, and all that the store knows of it."""

from __future__ import annotations

import streamlit as st

from leaderboard import read as source
from leaderboard import state
from leaderboard.drawing import draw, permalink, show, tell, together
from leaderboard.elements import formats
from leaderboard.elements.formats import MAIN, families, scale_of
from leaderboard.elements.nodes import fold, message, note, section
from leaderboard.elements.pictures import plot
from leaderboard.pages import draw_page
from leaderboard.read import Source, store_of
from leaderboard.views import method as history_view
from leaderboard.views import submission
from leaderboard.widgets import as_page, bar
from results.boards.systems import contaminated_by
from results.gate.timeline import Line, Point, timelines, worth_showing
from results.store import checkpoints, provenance
from results.store.checkpoints import Checkpoint
from results.store.provenance import Result
from results.store.queries import RunRow

# Checkpoints whose curves are drawn together.
_CURVES = 6
# Quantities that are drawn first if there are several.
_FIRST = ("loss",)


@st.cache_data(show_spinner=False, max_entries=32)
def _results(at: Source, method: str, metrics: tuple[str, ...]) -> list[Result]:
    return provenance.results_of(store_of(at), source.runs_of(at, method), metrics)


@as_page("methods", "Method")
def render(at: Source) -> None:
    """Draw the page `method`: a method's description, results, costs and checkpoints."""
    known = source.method_ids(at)
    if not known:
        tell("No method has run yet", f"{at.folder} has no runs and no checkpoints.", ("ragmeter demo", "ragmeter run EXPERIMENT.yaml"))
        return
    cards = source.method_cards(at)
    left, right = bar("method", [1, 2])
    with left:
        method = state.select("Method", "method", known, resets=("family", "figure"))
    runs = source.runs_of(at, method)
    own = [checkpoint for checkpoint in source.known_checkpoints(at) if checkpoint.method == method]
    if method not in cards and any(run.card for run in runs):
        show(submission.cards(method, runs), "card")
    else:
        show(history_view.card(method, cards.get(method), checkpoints=bool(own)), "card")
    definitions = source.definitions(at)
    metrics = source.metric_ids(at, tuple(run.run for run in runs)) if runs else []
    groups = families(metrics, definitions, ()) if metrics else {MAIN: []}
    with right:
        family = state.select("Metrics", "family", list(groups), MAIN, show=lambda name: f"{name} metrics")
    used = _made_with(at, own)
    _show_timeline(at, runs, used)
    with together("all-results"):
        _show_results(at, method, runs, tuple(groups[family]))
    if own:
        show(section("Checkpoints", history_view.checkpoints(own, used)), "checkpoints")
        _show_curves(own)
    permalink()


def _show_results(at: Source, method: str, runs: list[RunRow], metrics: tuple[str, ...]) -> None:
    title = "Results on every board"
    if not runs:
        text = "Only checkpoints of it are registered."
        show(section(title, message("It has not run yet", text, ("ragmeter run EXPERIMENT.yaml",))), "message")
        return
    result = _results(at, method, metrics)
    learned = source.method_cards(at), source.checkpoints_by_hash(at)
    contaminated = {run.run: contaminated_by(run, *learned) for run in runs}
    text = (
        "Brackets: 95 % interval. Cells with insufficient data have no interval and no mark; point at one for the reason. "
        "Rows are not comparable with each other: data, settings and components differ."
    )
    show(section(title, history_view.results(result, metrics, source.definitions(at), contaminated), note(text)), "results")
    if (spent := history_view.costs(result)) is not None:
        show(section("Time and tokens per question", spent), "costs")
    if (options := history_view.options(runs)) is not None:
        show(fold("Options of its runs, for all components", "", options, key="options-fold"), "options")


def _made_with(at: Source, own: list[Checkpoint]) -> dict[str, list[RunRow]]:
    """Return the runs of each of these checkpoints, by hash."""
    every = {run.run: run for group in source.run_groups(at, None) for run in group}.values() if own else ()
    return {item.sha256: [run for run in every if checkpoints.made_with(run, item.sha256)] for item in own}


@st.cache_data(show_spinner=False, max_entries=16)
def _timelines(at: Source, _runs: list[RunRow], ids: tuple[str, ...]) -> dict[Line, list[Point]]:
    every = timelines(store_of(at), _runs)
    return {line: points for line, points in every.items() if worth_showing(points)}


def _show_timeline(at: Source, runs: list[RunRow], used: dict[str, list[RunRow]]) -> None:
    """Draw the scores of a method's runs over time, with the gate's outcomes and the anchor."""
    every = {run.run: run for run in [*runs, *(run for each in used.values() for run in each)]}
    lines = {" · ".join(line): points for line, points in _timelines(at, list(every.values()), tuple(every)).items()}
    metrics = source.metric_ids(at, tuple(every)) if lines else []
    if not metrics:
        return
    definitions = source.definitions(at)
    show(section("Over time"), "timeline-title")
    left, right = st.columns(2)
    with left:
        name = state.select("Timeline of", "line", list(lines))
    points = lines[name]
    decided = [item.metric for point in points for item in point.decided if item.metric in metrics]
    with right:
        first = decided[0] if decided else families(metrics, definitions, ())[MAIN][0]
        metric = state.select("Measured by", "over", metrics, first, show=lambda item: formats.metric_label(item, metrics))
    results = provenance.results_of(store_of(at), [point.run for point in points], [metric])
    values = {result.run.run: result.values for result in results}
    shown = history_view.chart_points(points, values, metric, definitions, name)
    if len(shown) > 1:
        axis = f"{formats.metric_label(metric, metrics)}, {scale_of(metric, definitions).unit}"
        label = "The metric over the method's runs and revisions; its values are in the table"
        draw(plot(shown, "run, in the order in which they were started", axis, label), "timeline-chart", "ragmeter-timeline")
    show(history_view.timeline_table(points, values, metric, definitions), "timeline", state.act((), {"runs": "compare.py"}))


def _show_curves(own: list[Checkpoint]) -> None:
    """Draw the training curves in the registered folders of the checkpoints; nothing if there are none."""
    read = {f"{item.stage} {item.sha256[:8]}": provenance.curve(item.path) for item in own[:_CURVES]}
    read = {name: figures for name, figures in read.items() if figures}
    if not read:
        return
    names = list(dict.fromkeys(figure for figures in read.values() for figure in figures))
    show(section("Training curves"), "curves-title")
    first = next((name for name in _FIRST if name in names), names[0])
    figure = state.select("Figure", "figure", names, first, show=lambda name: name.replace("_", " "))
    curves = {name: figures[figure] for name, figures in read.items() if figure in figures}
    draw(history_view.curve_chart(curves, figure), "curve-chart", "ragmeter-training")
    if len(own) > _CURVES:
        show(note(f"Of the {_CURVES} newest of {len(own):,} checkpoints."), "curves-note")


if __name__ == "__main__":
    draw_page("method")
