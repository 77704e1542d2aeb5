"""The comparison page: two to six runs of one board, question by question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import streamlit as st

from leaderboard import read, state
from leaderboard.drawing import permalink, show, tell
from leaderboard.elements import formats
from leaderboard.elements.formats import MAIN, Scale, higher_is_better, scale_of
from leaderboard.elements.marks import run_marks
from leaderboard.elements.nodes import Node, aside, button, el, named, note, section
from leaderboard.elements.tables import Cell, Column, NumberColumn, WideColumn, difference_cell, table, tested_cell, value_cell
from leaderboard.pages import page
from leaderboard.read import Source
from leaderboard.widgets import Chosen, as_page, bar, choose, several
from results.boards.compare import Comparison, Pair, Slice
from results.boards.names import run_labels
from results.statistics.core import Estimate
from results.statistics.stages import StageLosses
from results.store.provenance import Attribution
from results.store.queries import RunRow

LEAST, MOST = 2, 6
AT_FIRST = 3
# Questions listed at a time.
PAGE = 15


@as_page("compare", "Compare")
def render(at: Source) -> None:
    """Draw the page `compare`: several runs on one metric, question by question."""
    chosen = choose(at)
    if chosen is None:
        return
    runs, metric = _choices(chosen)
    if len(runs) < LEAST:
        tell(
            "Choose two runs at least",
            "You can compare up to six runs of one board. Controls are left out because they see the gold.",
            ("ragmeter run EXPERIMENT.yaml",) if len(_comparable(chosen)) < LEAST else (),
        )
        return
    result = read.compared(chosen.at, runs, metric)
    shown, better = scale_of(metric, chosen.definitions), higher_is_better(metric, chosen.definitions)
    shares = better and shown is formats.PERCENT
    show(values(result, shown), "values")
    if not result.pairs:
        tell(
            "No question in common",
            f"No two of these runs have a value of {formats.metric_label(metric)} on "
            "the same question yet. Choose another metric, or let them finish.",
            ("ragmeter run --resume",),
        )
        return
    text = (
        f"{result.sampled.in_words(len(result.questions))}. Intervals: at the level of the corrected test, over {result.sampled.kind}s. "
        "▲ ▼ significantly better or worse (Holm-corrected over the pairs "
        "shown, 5 %). ? insufficient data, for the reason below the interval."
    )
    lines = (text if better else f"{text} For this metric, lower is better.", *result.read)
    show(section("Paired differences", pairs(result, shown, higher_is_better=better), *map(note, lines)), "pairs")
    kinds = ((result.by_type, "Question type"), (result.by_evidence, "Gold passages"))
    if tables := [slices(result, part, what, shown, zeros=shares) for part, what in kinds if part]:
        show(section("Where each fails", *tables), "kinds")
    _show_differences(result, shown)
    ceiling = chosen.definitions.get(metric, {}).get("high")
    if shares and ceiling is not None:
        losses = [read.attributed(chosen.at, run.run, metric, float(ceiling), run) for run in result.runs]
        called = names(result)
        show(section("Which stage loses it", stages(losses, called, shown), unattributed(losses, called)), "stages")
    permalink()


def _comparable(chosen: Chosen) -> list[RunRow]:
    return [run for run in chosen.runs if run.kind != "control"]


def _choices(chosen: Chosen) -> tuple[list[RunRow], str]:
    able = {run.run: run for run in _comparable(chosen)}
    labels = run_labels(list(able.values()))
    finished = [run for run in able if able[run].status == "finished"] or list(able)
    # A run that was chosen elsewhere is compared with the first of the others.
    chosen_runs = [run for run in state.read("runs").split(",") if run in able]
    usual = list(dict.fromkeys([*chosen_runs, *finished]))[: LEAST if chosen_runs else AT_FIRST]
    left, right = bar("runs", [2, 1])
    label = labels.__getitem__
    names = several("Runs", "runs", list(able), usual, least=LEAST, most=MOST, show=label, resets=("from",), within=left)
    first = chosen.families[MAIN][0]
    metric = state.select("Metric", "metric", chosen.metrics, first, show=chosen.label, resets=("from",), within=right)
    return [able[name] for name in names], metric


def _show_differences(result: Comparison, shown: Scale) -> None:
    positions, title = result.apart(), "Only where they differ"
    if not positions:
        show(section(title, note("Their scores are equal on every question that at least two of them were scored on.")), "apart")
        return
    start = min(state.number("from"), len(positions) - 1) // PAGE * PAGE
    state.settle("from", str(start) if start else "")
    listed = positions[start : start + PAGE]
    numbers = f"{start + 1:,}–{start + len(listed):,} of {len(positions):,} questions"
    position = note(f"{numbers}, largest difference first; {len(result.questions):,} in all")

    def opened(action: Mapping[str, str | None]) -> None:
        if (question := action.get("open")) and question in {row.question for row in result.questions}:
            shared = {name: value for name, value in state.view().items() if name in ("experiment", "board", "metric", "runs")}
            state.open_page(page("question"), {**shared, "question": question})

    show(section(title, position, draw_differences(result, listed, shown)), "apart", opened)
    with st.container(horizontal=True):
        for name, to in (("Earlier", start - PAGE), ("Later", start + PAGE)):
            turned = {"from": str(to) if to > 0 else None}
            st.button(name, key=name.lower(), disabled=not 0 <= to < len(positions), on_click=state.write, kwargs=turned)


_STAGES = {
    "retrieval": "Gained by adding the evidence that retrieval missed to the candidates",
    "reranking": "Gained further by removing everything except the evidence: the cost of distractors and low ranks",
    "compression": "Gained further by reading the evidence in full instead of compressed",
    "reading": "What is missing even if the reader gets only the evidence",
}


def names(result: Comparison) -> list[str]:
    """Return the names of the runs, which are distinct."""
    return list(run_labels(result.runs).values())


def values(result: Comparison, shown: Scale) -> Node:
    """Build the table of each run's value with its interval."""
    columns: list[Column[tuple[RunRow, str, Estimate]]] = [
        Column("Run", lambda row: named(row[1], *run_marks(row[0], progress=True))),
        NumberColumn("Value", lambda row: value_cell(row[2], shown), f"{shown.unit}, 95 % interval"),
        NumberColumn(
            "Questions", lambda row: Cell(f"{row[2].n:,}", f"{row[2].unscorable:,} unscorable" if row[2].unscorable else ""), "scored"
        ),
    ]
    return table("Values of the runs compared", "values-scroll", zip(result.runs, names(result), result.estimates, strict=True), columns)


def pairs(result: Comparison, shown: Scale, *, higher_is_better: bool) -> Node:
    """Build the table of all pairs: difference, interval, corrected p-value, and questions won, tied and lost."""
    called = names(result)

    def difference(pair: Pair) -> Cell:
        return tested_cell(pair.difference, pair.p_holm, shown, higher_is_better=higher_is_better)

    def count(outcome: str, pair: Pair) -> Cell:
        number = getattr(pair.difference, outcome)
        return Cell(f"{number:,}", f"{number / pair.difference.n:.0%}")

    better, worse = ("wins", "losses") if higher_is_better else ("losses", "wins")
    what = "First minus second on the questions that both have a value on, with its 95 % interval"
    test = "Sign-flip permutation test, corrected over all pairs shown"
    columns: list[Column[Pair]] = [
        Column("Pair", lambda pair: named(called[pair.first], aside(f"against {called[pair.second]}"))),
        NumberColumn("Difference", difference, shown.difference_unit, what),
        NumberColumn(
            "p", lambda pair: Cell(formats.p_value(pair.p_holm), f"{formats.p_value(pair.difference.p)} alone"), "Holm-corrected", test
        ),
        NumberColumn("Better", partial(count, better), "questions", "The first scores better"),
        NumberColumn("Equal", partial(count, "ties"), "questions"),
        NumberColumn("Worse", partial(count, worse), "questions", "The first scores worse"),
    ]
    return table("Paired differences", "pairs-scroll", result.pairs, columns)


def slices(result: Comparison, parts: Sequence[Slice], what: str, shown: Scale, *, zeros: bool) -> Node:
    """Build the table of values by kind of question, one column per run; `zeros`: also show how many have a score of zero."""

    def value(run: int, part: Slice) -> Cell:
        small = f"{part.zeros[run]:,} of {part.questions:,} at zero" if zeros else ""
        return value_cell(part.estimates[run], shown, note=small)

    columns: list[Column[Slice]] = [
        Column(what, lambda part: named(part.name or "no type given")),
        NumberColumn("Questions", lambda part: part.questions),
        *(NumberColumn(name, partial(value, run), shown.unit) for run, name in enumerate(names(result))),
    ]
    return table(f"Values by {what.lower()}", f"by-{what.lower().replace(' ', '-')}-scroll", parts, columns)


def draw_differences(result: Comparison, positions: Sequence[int], shown: Scale) -> Node:
    """Build the list of questions with each run's score; a click opens the question's page."""

    def question(position: int) -> Node:
        row = result.questions[position]
        gold = " · ".join(dict.fromkeys(row.answers)) or "none"
        return el("span", button(row.text, f"open-{position}", {"open": row.question}), aside(f"gold: {gold}"))

    def value(run: int, position: int) -> str:
        return shown.value(float(result.values[run, position]))

    columns: list[Column[int]] = [
        WideColumn("Question", question, "opens its page"),
        *(NumberColumn(name, partial(value, run), shown.unit) for run, name in enumerate(names(result))),
    ]
    return table("Questions on which the runs differ", "apart-scroll", positions, columns)


def stages(results: Sequence[Attribution], called: Sequence[str], shown: Scale) -> Node | None:
    """Build the table of losses by pipeline stage, one line per run; None if no run has all needed runs."""
    known = [(name, item.questions, item.losses) for name, item in zip(called, results, strict=True) if item.losses is not None]
    if not known:
        return None

    def lost(stage: str, row: tuple[str, int, StageLosses]) -> Cell:
        share = row[2].shares.get(stage)
        small = "" if formats.missing(share) else f"{share:.0%} of the loss"
        return difference_cell(getattr(row[2], stage), shown, note=small)

    unit = shown.difference_unit
    columns: list[Column[tuple[str, int, StageLosses]]] = [
        Column("Run", lambda row: named(row[0])),
        NumberColumn("As it is", lambda row: value_cell(row[2].normal, shown), shown.unit),
        *(
            NumberColumn(f"Lost in {stage}", partial(lost, stage), unit, tip)
            for stage, tip in _STAGES.items()
            if stage != "compression" or any(losses.compression for _, _, losses in known)
        ),
        NumberColumn(
            "Gained by evidence", lambda row: difference_cell(row[2].evidence_gain, shown), unit, "The run as it is minus closed book"
        ),
        NumberColumn("Questions", lambda row: row[1], tip="Scored in all of the settings"),
    ]
    return table("Losses by stage", "stages-scroll", known, columns)


def unattributed(results: Sequence[Attribution], called: Sequence[str]) -> Node | None:
    """Explain which runs' losses cannot be split, and why; None if all can."""
    lines = []
    for name, item in zip(called, results, strict=True):
        if item.obstacle:
            lines.append(el("li", el("span", f"{name}: ", cls="method"), item.obstacle))
        elif item.missing:
            needed = [el("span", setting, cls="command") for setting in item.missing]
            lines.append(el("li", el("span", f"{name} ", cls="method"), "still needs a run of the same pipeline in ", *needed))
    if not lines:
        return None
    text = "Add these settings to those of the experiment and run it again; finished runs are not repeated."
    return el("section", el("ul", *lines), note(text) if any(item.missing for item in results) else None, cls="note")
