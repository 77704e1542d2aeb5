"""The method page: what a method is, and all that the store knows of it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import streamlit as st

from leaderboard import read as source
from leaderboard import state
from leaderboard.drawing import permalink, show, show_all, tell
from leaderboard.elements import formats, nodes
from leaderboard.elements.formats import ALL_RUNS, MAIN, board_key, families, scale_of
from leaderboard.elements.marks import OUTCOMES, run_marks
from leaderboard.elements.nodes import Node, aside, badge, button, el, facts, fold_facts, link, named, note, prose, section, show_value
from leaderboard.elements.pictures import Point, plot, point_of
from leaderboard.elements.tables import Cell, Column, Definitions, NumberColumn, WideColumn, metric_columns, table, value_cell
from leaderboard.pages import page
from leaderboard.read import Source
from leaderboard.widgets import as_page, bar
from results.boards.systems import contaminated_by
from results.errors import counted
from results.gate.timeline import Point as TimelinePoint
from results.gate.timeline import outcome_of, worth_showing
from results.statistics.core import Estimate
from results.store.checkpoints import Checkpoint, made_with
from results.store.cost_queries import Cost
from results.store.provenance import Result
from results.store.queries import RunRow
from results.store.store import shortened

_NUMBER = r"(?P<number>(?:[0-9]{4}\.[0-9]{4,5}|[a-z-]{2,20}(?:\.[A-Z]{2})?/[0-9]{7})(?:v[0-9]{1,3})?)(?![\w-]|\.[0-9])"
_ARXIV_NUMBER = re.compile(_NUMBER)
# A paper on arXiv: address of its page or file, DOI, or "arXiv:" and its number.
_ARXIV = re.compile(
    r"(?<![\w.-])(?:(?:https?://)?(?:www\.|export\.)?(?i:arxiv)\.org/(?:abs|pdf|html)/"
    rf"|(?:10\.48550/)?(?i:arxiv)[:.\s]\s?){_NUMBER}"
)
# Values by run and metric.
Values = Mapping[str, Mapping[str, Estimate]]
_NOT_STATED = "not stated"


@as_page("methods", "Method")
def render(at: Source) -> None:
    """Draw the page `method`: a method's description, results, costs and checkpoints."""
    known = source.method_ids(at)
    if not known:
        tell("No method has run yet", f"{at.folder} has no runs and no checkpoints.", ("ragmeter demo", "ragmeter run EXPERIMENT.yaml"))
        return
    cards = source.method_cards(at)
    left, right = bar("method", [1, 2])
    method = state.select("Method", "method", known, resets=("family",), within=left)
    runs = source.runs_of(at, method)
    own = [checkpoint for checkpoint in source.known_checkpoints(at) if checkpoint.method == method]
    if method not in cards and any(run.card for run in runs):
        show(submitted_cards(method, runs), "card")
    else:
        show(card(method, cards.get(method), checkpoints=bool(own)), "card")
    definitions = source.definitions(at)
    metrics = source.metric_ids(at, tuple(run.run for run in runs)) if runs else []
    groups = families(metrics, definitions, ()) if metrics else {MAIN: []}
    family = state.select("Metrics", "family", list(groups), MAIN, show="{} metrics".format, within=right)
    every = {run.run: run for group in source.run_groups(at, None) for run in group}.values() if own else ()
    used = {item.sha256: [run for run in every if made_with(run, item.sha256)] for item in own}
    _show_timeline(at, runs, used)
    _show_results(at, runs, groups[family])
    if own:
        show(section("Checkpoints", checkpoints(own, used)), "checkpoints")
    permalink()


def _show_results(at: Source, runs: list[RunRow], metrics: list[str]) -> None:
    title = "Results on every board"
    if not runs:
        text = "Only checkpoints of it are registered."
        show(section(title, nodes.message("It has not run yet", text, ("ragmeter run EXPERIMENT.yaml",))), "message")
        return
    result = source.results_of(at, runs, metrics)
    learned = source.method_cards(at), source.checkpoints_by_hash(at)
    contaminated = {run.run: contaminated_by(run, *learned) for run in runs}
    text = (
        "Brackets: 95 % interval. Cells with insufficient data have no interval and no mark; point at one for the reason. "
        "Rows are not comparable with each other: data, settings and components differ."
    )
    spent, settings = costs(result), options(runs)
    parts = {
        "results": section(title, results(result, metrics, source.definitions(at), contaminated), note(text)),
        "costs": spent and section("Time and tokens per question", spent),
        "options": settings and nodes.fold("Options of its runs, for all components", "", settings, key="options-fold"),
    }
    show_all("all-results", parts)


def _show_timeline(at: Source, runs: list[RunRow], used: dict[str, list[RunRow]]) -> None:
    """Draw the scores of a method's runs over time, with the gate's outcomes and the anchor."""
    every = {run.run: run for run in [*runs, *(run for each in used.values() for run in each)]}
    lines = {" · ".join(line): points for line, points in source.timelines(at, list(every.values())).items() if worth_showing(points)}
    metrics = source.metric_ids(at, tuple(every)) if lines else []
    if not metrics:
        return
    definitions = source.definitions(at)
    show(section("Over time"), "timeline-title")
    left, right = st.columns(2)
    name = state.select("Timeline of", "line", list(lines), within=left)
    points = lines[name]
    decided = [item.metric for point in points for item in point.decided if item.metric in metrics]
    first, label = decided[0] if decided else families(metrics, definitions, ())[MAIN][0], partial(formats.metric_label, among=metrics)
    metric = state.select("Measured by", "over", metrics, first, show=label, within=right)
    values = {result.run.run: result.values for result in source.results_of(at, [point.run for point in points], [metric])}
    shown = chart_points(points, values, metric, definitions, name)
    axis = f"{formats.metric_label(metric, metrics)}, {scale_of(metric, definitions).unit}"
    about = "The metric over the method's runs and revisions; its values are in the table"
    chart = plot(shown, "run, in the order in which they were started", axis, about) if len(shown) > 1 else None
    listed = timeline_table(points, values, metric, definitions)
    show(el("div", chart, listed, cls="stack"), "timeline", state.act((), {"runs": page("compare")}))


def submitted_cards(method: str, runs: Sequence[RunRow]) -> Node:
    """Build the cards submitted with a method's runs, newest first; equal cards are merged, runs without one left out."""
    groups: dict[str, list[RunRow]] = {}
    for run in sorted(runs, key=lambda run: run.updated_at, reverse=True):
        if run.card:
            same = (_part(run, "method"), run.card.get("contact"), run.card.get("training_data"))
            groups.setdefault(json.dumps(same, sort_keys=True), []).append(run)
    return el("div", *(_card(method, same) for same in groups.values()), cls="stack")


def _card(method: str, runs: Sequence[RunRow]) -> Node:
    about, sent = _part(runs[0], "method"), runs[0].card or {}
    name, version, url = (str(about.get(key) or "") for key in ("name", "version", "url"))
    paragraphs = [part for part in str(about.get("description") or "").split("\n\n") if part.strip()]
    trained = [str(item.get("reference") or item.get("name") or _NOT_STATED) for item in _mappings(sent, "training_data")]
    findings = dict.fromkeys(str(item.get("what") or "") for run in runs for item in _mappings(_part(run, "submission"), "findings"))
    number = about.get("parameters")
    size = formats.parameters(number) if number is not None else _NOT_STATED
    rows: list[tuple[str, Node | str]] = [
        ("Name", f"{name or method}, version {version}" if version else name or method),
        ("Sent in by", ", ".join(map(str, about.get("authors") or ())) or _NOT_STATED),
        ("Contact", str(sent.get("contact") or "")),
        ("URL", link(url, url) if nodes.is_web_address(url) else url),
        ("Paper", paper(str(about.get("paper") or "")) or "none given"),
        ("Parameters", ", ".join(filter(None, (size, formats.weights(about.get("open_weights"), number))))),
        ("License", str(about.get("license") or "")),
        ("Trained on", ", ".join(trained) or "none declared"),
        ("Found by the check", "; ".join(findings) or "nothing"),
    ]
    return el(
        "section",
        note("Submitted; its description is the submitter's and was not verified."),
        *(el("p", *prose(part)) for part in paragraphs),
        facts(rows),
        *(fold_facts(f"The whole card and its findings, for {run.dataset} · {run.setting}", run.card, f"sent-{run.run}") for run in runs),
        cls="stack",
    )


def _part(run: RunRow, key: str) -> Mapping[str, Any]:
    part = (run.card or {}).get(key)
    return part if isinstance(part, Mapping) else {}


def _mappings(part: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    return [item for item in part.get(key) or () if isinstance(item, Mapping)]


def card(method: str, known: Mapping[str, Any] | None, *, checkpoints: bool = False) -> Node:
    """Build the method's description and training data; `checkpoints`: whether checkpoints are listed below it."""
    if known is None:
        return note("The store has no card of this method.")
    trained = known.get("training_data") or []
    presets = known.get("presets") or {}
    rows: list[tuple[str, Node | str]] = [
        ("Id", f"{method}, version {known.get('version')}"),
        ("Kind", str(known.get("kind") or "")),
        ("Paper", paper(known.get("paper")) or "none given"),
        ("Trained on", ", ".join(map(str, trained)) or ("see the checkpoints below" if checkpoints else "none declared")),
        ("Presets", "; ".join(f"{name}: {show_value(values)}" for name, values in presets.items())),
    ]
    return el("section", el("p", *prose(str(known.get("summary") or ""))), facts(rows), cls="stack")


def paper(text: str | None) -> Node | str:
    """Format a method's paper, as a link if it is or contains an arXiv number; empty if there is none."""
    stripped = (text or "").strip()
    result = _ARXIV.search(stripped) or _ARXIV_NUMBER.fullmatch(stripped)
    return link(stripped, f"https://arxiv.org/abs/{result['number']}") if result else stripped


def options(runs: Sequence[RunRow]) -> Node | None:
    """Build the table of options: those that all runs share, and those that differ; None without options."""
    described = [(run.method, dict(nodes.flat(run.description))) for run in runs]
    rows = []
    for key in dict.fromkeys(key for _, options in described for key in options):
        values: dict[str, dict[str, None]] = {}
        for method, options in described:
            values.setdefault(show_value(options[key]) if key in options else formats.NOTHING, {})[method] = None
        rows += [(key, value, ", ".join(where) if len(values) > 1 else "all runs") for value, where in values.items()]
    columns: list[Column[tuple[str, str, str]]] = [
        Column("Option", lambda row: row[0]),
        WideColumn("Value", lambda row: row[1]),
        WideColumn("In", lambda row: row[2]),
    ]
    return table("Options of this method's runs", "options", rows, columns) if rows else None


def results(rows: Sequence[Result], metrics: Sequence[str], definitions: Definitions, contaminated: Mapping[str, Sequence[str]]) -> Node:
    """Build the table of a method's runs: dataset, setting and values with intervals; `contaminated`: what covers a run's questions."""

    def value(metric: str, row: Result) -> Cell:
        return value_cell(row.values.get(metric), scale_of(metric, definitions))

    def name(row: Result) -> Node:
        return el("span", el("span", row.run.method), *run_marks(row.run, contaminated.get(row.run.run, ())), aside(row.run.experiment))

    def answered(row: Result) -> Cell:
        return Cell(f"{row.run.done:,} of {row.run.questions:,}", f"{row.run.failed:,} failed" if row.run.failed else "")

    columns: list[Column[Result]] = [
        Column("Dataset · setting · seed", _benchmark),
        WideColumn("Run as", name),
        *metric_columns(metrics, definitions, value),
        NumberColumn("Questions", answered, "answered"),
    ]
    return table("All results of this method", "results", rows, columns)


def _benchmark(row: Result) -> str:
    return f"{row.run.dataset} · {row.run.setting} · {row.run.seed}"


def costs(rows: Sequence[Result]) -> Node | None:
    """Build the table of the mean cost per question; None if nothing was measured."""
    measured = [(row, row.cost) for row in rows if row.cost is not None]
    if not measured:
        return None

    def stages(of: tuple[Result, Cost]) -> str:
        row, spent = of[0], sum(of[0].stages.values())
        each = {} if formats.missing(of[1].seconds) else row.stages
        parts = [f"{name} {formats.duration(value)}" + (f" ({value / spent:.0%})" if spent else "") for name, value in each.items()]
        return "; ".join(parts) + formats.waited(row.waited_s)

    def time(of: tuple[Result, Cost]) -> Cell | None:
        return Cell(formats.duration(of[1].seconds), formats.percentiles(of[1])) if of[1].seconds > 0 else None

    columns: list[Column[tuple[Result, Cost]]] = [
        Column("Dataset · setting · seed", lambda row: _benchmark(row[0])),
        WideColumn("Run as", lambda row: row[0].run.method),
        NumberColumn("Time", time, "per question", "Mean, and below it p50 to p95"),
        WideColumn("By stage", stages, "mean per question"),
        NumberColumn("Prompt", lambda row: formats.count(row[1].prompt_tokens), "tokens / question"),
        NumberColumn("Completion", lambda row: formats.count(row[1].completion_tokens), "tokens / question"),
        NumberColumn(
            "Memory", lambda row: formats.count(row[1].memory_tokens), "tokens / question", "Continuous memory tokens in place of text"
        ),
        NumberColumn("Calls", lambda row: formats.count(row[1].model_calls), "per question"),
        NumberColumn("Peak memory", lambda row: round(row[0].peak_memory_bytes / 2**20) or None, "MiB"),
        NumberColumn("Cost", lambda row: formats.dollars(row[1].cost_usd), "US$ total"),
    ]
    return table("Time and tokens per question", "costs", measured, columns)


def checkpoints(matches: Sequence[Checkpoint], runs: Mapping[str, Sequence[RunRow]]) -> Node:
    """Build the table of a method's checkpoints, one line each."""
    columns: list[Column[Checkpoint]] = [
        Column("Checkpoint", lambda item: named(item.sha256[:12]), "SHA-256"),
        WideColumn("Stage", lambda item: Cell(item.stage, item.name), "folder"),
        Column("Registered", lambda item: item.added_at, "UTC"),
        Column(
            "Began from",
            lambda item: ", ".join(parent[:8] for parent in item.parents) or "none",
            tip="Checkpoints that training started from or used",
        ),
        WideColumn("Training data", lambda item: ", ".join(data[:8] for data in item.data) or "none named", "fingerprints"),
        NumberColumn("Runs", lambda item: len(runs.get(item.sha256, ())), "made with it"),
    ]
    return table("Checkpoints", "checkpoints", matches, columns)


def timeline_table(points: Sequence[TimelinePoint], values: Values, metric: str, definitions: Definitions) -> Node:
    """Build the table of a timeline: one line per run, with value, tags and gate decisions."""
    scale = scale_of(metric, definitions)

    def change(point: TimelinePoint, *, pinned: bool = False) -> Cell | None:
        decided = outcome_of(point.decided, metric)
        if decided is None or (pinned and decided.details.get("anchor") is None):
            return None
        item = decided.details["anchor"]["difference"] if pinned else asdict(decided)
        return Cell(scale.difference(item["value"]), scale.differences(item["low"], item["high"]))

    columns: list[Column[TimelinePoint]] = [
        Column(
            "Revision", lambda point: el("span", f"{point.number}  {point.revision}", cls="method", title=point.revision), "oldest first"
        ),
        Column("Started", lambda point: point.run.started_at, "UTC"),
        WideColumn("Run", lambda point: el("span", *_timeline_run(point), _compare(point, points, metric))),
        NumberColumn(
            formats.metric_name(metric)[0],
            lambda point: value_cell(values.get(point.run.run, {}).get(metric), scale),
            f"{scale.unit} [95 %]",
        ),
        Column("Gate", lambda point: _gate(point, metric, definitions), tip="The newest decision about this run as candidate"),
        NumberColumn("Change", change, "points, interval", "Candidate minus baseline on this metric, as the gate measured it"),
        NumberColumn("Since the anchor", partial(change, pinned=True), "points, interval", "Candidate minus the baseline's pinned run"),
    ]
    return table("The method over its runs and revisions", "timeline", points, columns)


def _compare(point: TimelinePoint, points: Sequence[TimelinePoint], metric: str) -> Node | None:
    """Make the button that compares a run with its gate's baseline, else with the run before it on the same questions."""
    decided, board = outcome_of(point.decided, metric), board_key(point.run)
    before = [item.run.run for item in points[: point.number - 1] if board_key(item.run) == board]
    other = decided.baseline if decided else before[-1] if before else None
    pair = {"experiment": ALL_RUNS, "board": board, "runs": f"{other},{point.run.run}", "metric": metric}
    label = f"Compare {point.revision} question by question"
    return None if other is None else button("compare", f"compare-{point.number}", pair, label=label)


def _timeline_run(point: TimelinePoint) -> list[Node]:
    marks = [badge(f"tag {name}", "", "The tag points to this run or to its checkpoint") for name in point.tags]
    marks += [badge(f"anchor of {name}", "reference", "Losses of later candidates are measured from this run") for name in point.anchors]
    if point.changed_data:
        marks.append(badge("other questions", "failed", "Questions or gold differ from the run before: values are not comparable"))
    if point.run.status != "finished":
        marks.append(badge(point.run.status, "failed"))
    return [el("span", point.run.method), aside(f"{point.run.short} · seed {point.run.seed}"), *marks]


def _gate(point: TimelinePoint, metric: str, definitions: Definitions) -> Node | None:
    """Return the outcome on the metric; if the gate used only other metrics, their outcome with the metric's name."""
    decided = outcome_of(point.decided, metric)
    shown = [decided] if decided else [*{item.metric: item for item in reversed(point.decided)}.values()]
    badges = []
    for item in shown:
        when = f"{formats.metric_label(item.metric)}, {item.decided_at:%Y-%m-%d %H:%M} UTC: baseline {shortened(item.baseline)}"
        lost = f"tolerated loss {scale_of(item.metric, definitions).value(item.margin)}, {counted(item.n, 'question')}"
        badges.append(badge(item.outcome, OUTCOMES.get(item.outcome, ""), f"{when}, {lost}"))
    return el("span", *badges) if shown else None


def chart_points(points: Sequence[TimelinePoint], values: Values, metric: str, definitions: Definitions, name: str) -> list[Point]:
    """Convert a timeline to chart points; a new curve begins where the questions changed."""
    scale, drawn, series = scale_of(metric, definitions), [], name
    for point in points:
        series = f"{name} ({point.run.dataset_fingerprint[:6]})" if point.changed_data else series
        value = values.get(point.run.run, {}).get(metric)
        if value is None:
            continue
        decided, words = outcome_of(point.decided, metric), []
        words += [f"gate: {decided.outcome}"] if decided else []
        words += [f"anchor of {anchor}" for anchor in point.anchors]
        item = point_of(series, float(point.number), value, scale, point.revision)
        drawn.append(replace(item, shown="; ".join((item.shown, *words))))
    return drawn
