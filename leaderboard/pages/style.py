"""The style page: how methods score when the same candidates are rewritten in another style."""

from __future__ import annotations

from itertools import chain

from leaderboard import read, state
from leaderboard.drawing import draw, explain, permalink, show, tell
from leaderboard.elements import formats
from leaderboard.elements.formats import higher_is_better
from leaderboard.elements.nodes import note, section
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
    with left:
        experiment = state.select("Experiment", "experiment", names, resets=("metric", "board"))
    try:
        tables = read.style_gaps(at, experiment)
    except UserError as error:
        explain(error, "Nothing to compare yet")
        tables = []
    curves = {over: read.style_curves(at, experiment, over) for over in OVER}
    known = list(dict.fromkeys(table.metric for table in chain(tables, *curves.values())))
    with right:
        labels = {metric: formats.metric_label(metric, known) for metric in known}
        metric = state.select("Metric", "metric", labels) if known else ""
    upwards = higher_is_better(metric, read.definitions(at))
    for number, table in enumerate(table for table in tables if table.metric == metric):
        seed = f" · seed {table.seed}" if table.seed else ""
        show(section(f"Style gaps on {table.base} · {table.setting}{seed}", style.average(table)), f"average-{number}")
        draw(style.gap_chart(table), f"gap-chart-{number}", "ragmeter-style")
        show(style.gaps(table, higher_is_better=upwards), f"gaps-{number}")
        show(note(style.gaps_note(table)), f"gap-note-{number}")
    for over, drawn in curves.items():
        for number, curve in enumerate(curve for curve in drawn if curve.metric == metric):
            title = note(curve.title)
            show(title if number else section(OVER[over], title), f"curve-title-{over}-{number}")
            draw(style.curve_chart(curve, OVER[over]), f"curve-chart-{over}-{number}", "ragmeter-style")
            show(style.curve_table(curve, f"curve-scroll-{over}-{number}"), f"curve-{over}-{number}")
    permalink()
