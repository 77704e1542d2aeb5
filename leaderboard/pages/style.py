"""The style page: how methods score when the same candidates are rewritten in another style."""

from __future__ import annotations

from itertools import chain

from leaderboard import read, state
from leaderboard.drawing import explain, permalink, show, tell
from leaderboard.elements import formats
from leaderboard.elements.formats import higher_is_better
from leaderboard.elements.nodes import section
from leaderboard.read import Source
from leaderboard.views import style
from leaderboard.widgets import as_page, bar
from results.boards.style import Over
from results.errors import UserError

OVER: dict[Over, str] = {"formal": "Value by the share of formal candidates", "k": "Value by number of passages for the reader"}


@as_page("styles", "Style robustness")
def render(at: Source) -> None:
    """Draw the page `style`: style gaps and curves of an experiment."""
    names = read.styled_experiments(at)
    if not names:
        tell(
            "No experiment compares styles",
            "Run one over the same questions with their candidates in formal and in another style: a benchmark `styled` "
            "over one base, with mix {informal: 0} and {informal: 1}.",
            ("ragmeter list experiments", "ragmeter run EXPERIMENT.yaml"),
        )
        return
    left, right = bar("shown", 2)
    experiment = state.select("Experiment", "experiment", names, resets=("metric", "board"), within=left)
    try:
        tables = read.style_gaps(at, experiment)
    except UserError as error:
        explain(error, "Nothing to compare yet")
        tables = []
    curves = {over: read.style_curves(at, experiment, over) for over in OVER}
    known = list(dict.fromkeys(table.metric for table in chain(tables, *curves.values())))
    labels = {metric: formats.metric_label(metric, known) for metric in known}
    metric = state.select("Metric", "metric", labels, within=right) if known else ""
    upwards = higher_is_better(metric, read.definitions(at))
    for number, table in enumerate(table for table in tables if table.metric == metric):
        show(style.gap_section(table, higher_is_better=upwards), f"gaps-{number}")
    for over, drawn in curves.items():
        parts = [part for curve in drawn if curve.metric == metric for part in style.curve_parts(curve, OVER[over])]
        if parts:
            show(section(OVER[over], *parts), f"curves-{over}")
    permalink()
