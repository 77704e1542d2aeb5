"""The runs page: running runs, all runs, the provenance of one, and the differences of two."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from leaderboard import read, state
from leaderboard.drawing import permalink, show, show_all, tell
from leaderboard.elements.formats import ALL_RUNS, board_key
from leaderboard.elements.nodes import aside, el, note, section
from leaderboard.pages import page
from leaderboard.read import Source, store_of
from leaderboard.views import run as diff_view
from leaderboard.widgets import as_page, bar, show_running
from results.boards.diff import settings_of
from results.store import checkpoints, cost_queries, queries
from results.store.queries import RunRow
from results.store.store import shortened

ANY = "any"
NONE = "-"
# Runs listed at a time.
PAGE = 25
# Seconds between two looks at running runs.
EVERY_S = 5.0
# Other runs offered for a comparison; the browser is sent all of their names with every change.
NEAREST = 300


@st.cache_resource(show_spinner=False, max_entries=16)
def _runs(at: Source, experiment: str | None) -> list[RunRow]:
    """Return the distinct runs of an experiment or of the store, newest first; shared, so not to be modified."""
    distinct = {run.run: run for run in reversed(queries.runs(store_of(at), experiment))}
    return sorted(distinct.values(), key=lambda run: run.started_at, reverse=True)


@as_page("runs", "Runs")
def render(at: Source) -> None:
    """Draw the page `run`: the list of runs, one run's configuration, and the comparison of two runs."""
    every = _runs(at, None)
    if not every:
        tell(
            "No run yet",
            f"{at.folder} holds none. Run the demo, or an experiment of your own.",
            ("ragmeter demo", "ragmeter run EXPERIMENT.yaml"),
        )
        return
    show_running(at, None, None, EVERY_S)
    run = _list(at, every)
    if run is None:
        return
    used = [checkpoint for checkpoint in read.known_checkpoints(at) if checkpoints.made_with(run, checkpoint.sha256)]
    made = diff_view.made(run, cost_queries.index_costs(store_of(at), [run.run]).get(run.run))
    title = f"Where the numbers of {run.method} come from"
    show(section(title, made, diff_view.weights(used), *diff_view.folds(run)), "made")
    _differences(at, run, every)
    permalink()


def _list(at: Source, every: Sequence[RunRow]) -> RunRow | None:
    """Draw the filters and the list; return the chosen run, None if no run matches."""
    show(section("All runs"), "list-title")
    left, right = bar("filter", 2)
    names = {ALL_RUNS: "All runs in the store", **{row.name: row.name for row in read.experiments(at)}}
    experiment = state.select("Experiment", "experiment", names, resets=("from", "run"), within=left)
    states = {ANY: "any state", **{run.status: run.status for run in every}}
    wanted = state.select("State", "state", states, resets=("from", "run"), within=right)
    members = every if experiment == ALL_RUNS else _runs(at, experiment)
    results = [run for run in members if wanted in (ANY, run.status)]
    if not results:
        tell("No run matches", "Choose another experiment or state.")
        return None
    ids = [run.run for run in results]
    chosen, count = state.pick("run", ids, ids[0], shortened), len(results)
    # The listed page is the URL's, else that of the chosen run.
    start = min(state.number("from", ids.index(chosen)), count - 1) // PAGE * PAGE
    state.settle("from", str(start))
    show(diff_view.listing(results[start : start + PAGE], chosen), "list", state.act(("run",)))
    if count > PAGE:
        with st.container(horizontal=True, vertical_alignment="center"):
            for name, to in (("Newer", start - PAGE), ("Older", start + PAGE)):
                st.button(name, key=name.lower(), disabled=not 0 <= to < count, on_click=state.write, kwargs={"from": str(to)})
        show(note(f"{start + 1:,}–{min(start + PAGE, count):,} of {count:,}"), "place")
    return results[ids.index(chosen)]


def _differences(at: Source, run: RunRow, every: Sequence[RunRow]) -> None:
    show(section("Differences from another run"), "diff-title")
    query = state.read("with")

    def distance(item: RunRow) -> tuple[bool, bool]:
        same_data = item.dataset_fingerprint == run.dataset_fingerprint
        return not (same_data and (item.setting, item.seed) == (run.setting, run.seed)), not same_data

    # First those of the same board, then those on the same data, then the rest.
    near = sorted((item for item in every if item.run != run.run), key=distance)
    # Any run may be asked for by the address.
    others = {item.run: item for position, item in enumerate(near) if position < NEAREST or item.run == query}
    labels = {NONE: "choose a run"} | {
        name: f"{item.method} · {item.dataset} · {item.setting} · seed {item.seed} · {shortened(name)}" for name, item in others.items()
    }
    second = state.select("Other run", "with", labels)
    if second == NONE:
        show(note("You then see in which settings the two differ."), "diff-none")
        return
    command = f"ragmeter results compare {run.short} {shortened(second)}"
    parts = {
        "diff-who": note(f"First: {run.method} ({run.short}). Second: {others[second].method} ({shortened(second)})."),
        "settings": diff_view.settings(settings_of(run, others[second])),
        "diff-command": el("p", aside("Their scores: "), el("span", command, cls="command")),
    }
    show_all("differences", parts)
    if board_key(run) == board_key(others[second]):
        shared = {"experiment": ALL_RUNS, "board": board_key(run), "runs": f"{run.run},{second}"}
        st.page_link(page("compare"), label="Compare them question by question", icon=":material/compare_arrows:", query_params=shared)
