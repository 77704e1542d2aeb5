"""The comparison page: two to six runs of one board, question by question."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from leaderboard import read, state
from leaderboard.drawing import draw, permalink, show, tell
from leaderboard.elements import formats
from leaderboard.elements.formats import MAIN, Scale, higher_is_better, scale_of
from leaderboard.elements.nodes import line_of_facts, note, section
from leaderboard.pages import draw_page
from leaderboard.read import Source
from leaderboard.views import compare
from leaderboard.widgets import Chosen, as_page, bar, choose, run_labels, several
from results.boards.compare import Comparison
from results.store.queries import RunRow

QUESTIONS_PAGE = "question.py"
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
    result = read.compared(chosen.at, tuple(run.run for run in runs), metric, tuple(runs))
    shown, better = scale_of(metric, chosen.definitions), higher_is_better(metric, chosen.definitions)
    _values(result, shown, better=better)
    if not result.pairs:
        tell(
            "No question in common",
            f"No two of these runs have a value of {formats.metric_label(metric)} on "
            "the same question yet. Choose another metric, or let them finish.",
            ("ragmeter run --resume",),
        )
        return
    for line in result.read:
        show(note(line), f"read-{line}")
    _scatter(result, shown)
    _kinds(result, shown, zeros=better and shown is formats.PERCENT)
    _show_differences(result, shown)
    if better and shown is formats.PERCENT:
        _stages(chosen, result, metric, shown)
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
    with left:
        names = several("Runs", "runs", list(able), usual, least=LEAST, most=MOST, show=lambda run: labels[run], resets=("x", "y", "from"))
    with right:
        metric = state.select("Metric", "metric", chosen.metrics, chosen.families[MAIN][0], show=chosen.label, resets=("from",))
    return [able[name] for name in names], metric


def _values(result: Comparison, shown: Scale, *, better: bool) -> None:
    show(compare.values(result, shown), "values")
    if not result.pairs:
        return
    text = (
        f"{result.sampled.in_words(len(result.questions))}. Intervals: at the level of the corrected test, over {result.sampled.kind}s. "
        "▲ ▼ significantly better or worse (Holm-corrected over the pairs "
        "shown, 5 %). ? insufficient data, for the reason below the interval."
    )
    parts = (compare.pairs(result, shown, higher_is_better=better), note(text if better else f"{text} For this metric, lower is better."))
    show(section("Paired differences", *parts), "pairs")


def _scatter(result: Comparison, shown: Scale) -> None:
    show(section("Question by question"), "scatter-title")
    called = dict(zip((run.run for run in result.runs), compare.names(result), strict=True))
    left, right = st.columns(2)
    with left:
        x = state.select("Along", "x", called)
    with right:
        y = state.select("Against", "y", {run: name for run, name in called.items() if run != x})
    positions = list(called)
    picture, sides = compare.scatter(result, positions.index(x), positions.index(y), shown)
    if not sides:
        show(note("These two have no scored question in common yet."), "scatter")
        return
    parts = (
        f"▲ {sides['above']:,} questions above the line, where {called[y]} scores more",
        f"● {sides['on']:,} on it",
        f"▼ {sides['below']:,} below it, where {called[x]} scores more",
        "area: number of questions",
    )
    draw(picture, "scatter", "ragmeter-scatter")
    show(line_of_facts(parts, "facts note"), "scatter-note")


def _kinds(result: Comparison, shown: Scale, *, zeros: bool) -> None:
    parts = [(result.by_type, "Question type"), (result.by_evidence, "Gold passages")]
    tables = [compare.slices(result, slices, what, shown, zeros=zeros) for slices, what in parts if slices]
    if tables:
        show(section("Where each fails", *tables), "kinds")


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
            state.open_page(QUESTIONS_PAGE, {**shared, "question": question})

    show(section(title, position, compare.draw_differences(result, listed, shown)), "apart", opened)
    with st.container(horizontal=True):
        st.button("Earlier", key="earlier", disabled=not start, on_click=_turn, args=(start - PAGE,))
        st.button("Later", key="later", disabled=start + PAGE >= len(positions), on_click=_turn, args=(start + PAGE,))


def _turn(start: int) -> None:
    state.write(**{"from": str(start) if start > 0 else None})


def _stages(chosen: Chosen, result: Comparison, metric: str, shown: Scale) -> None:
    ceiling = chosen.definitions.get(metric, {}).get("high")
    if ceiling is None:
        return
    parts = [read.attributed(chosen.at, run.run, metric, float(ceiling), run) for run in result.runs]
    called = compare.names(result)
    show(section("Which stage loses it", compare.stages(parts, called, shown), compare.unattributed(parts, called)), "stages")


if __name__ == "__main__":
    draw_page("compare")
