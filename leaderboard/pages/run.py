"""The runs page: running runs, all runs, the provenance of one, and the differences of two."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from leaderboard import read, state
from leaderboard.elements import formats
from leaderboard.elements.formats import ALL_RUNS
from leaderboard.elements.nodes import el
from leaderboard.read import Source, store_of
from leaderboard.views import run as diff_view
from leaderboard.widgets import as_page, bar, permalink, show, show_running, tell, together
from results.boards.diff import Diff, diff
from results.store import checkpoints
from results.store.queries import RunRow, UserError, running
from results.store.store import shortened

ANY = "any"
NONE = "-"
# Runs listed at a time.
PAGE = 25
# How often what continues is looked at.
EVERY_S = 2.0
# How often it is looked whether something has started.
IDLE_S = 10.0
# Questions shown on which two runs differ most.
APART = 8
# Other runs offered for a comparison; the browser is sent all of their names with every change.
NEAREST = 300


@st.cache_resource(show_spinner=False, max_entries=16)
def _runs(at: Source, experiment: str | None) -> list[RunRow]:
    """Return the distinct runs of an experiment or of the store, newest first; shared, so not to be modified."""
    return sorted(read.executions(at, experiment), key=lambda run: run.started_at, reverse=True)


@st.cache_data(show_spinner="Comparing …", max_entries=32)
def _diff(at: Source, first: str, second: str, _pair: tuple[RunRow, RunRow]) -> Diff:
    """Return the differences; `first` and `second` are the fingerprints of the pair, which is not hashed."""
    return diff(store_of(at), *_pair, questions=APART)


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
    _live(at)
    run = _list(at, every)
    if run is None:
        return
    with together("origin"):
        show(el("h2", f"Where the numbers of {run.method} come from", cls="section"), "made-title")
        show(diff_view.made(run, read.index_cost(at, run.run)), "made")
        used = diff_view.weights([checkpoint for checkpoint in read.known_checkpoints(at) if checkpoints.made_with(run, checkpoint.sha256)])
        if used is not None:
            show(used, "weights")
        for number, fold in enumerate(diff_view.folds(run)):
            show(fold, f"fold-{number}")
    _differences(at, run, every)
    permalink()


def _live(at: Source) -> None:
    """Show runs in progress; polls the store, and less often while nothing runs."""
    show(el("h2", "Running now", cls="section"), "live-title")
    active = bool(running(store_of(at)))
    st.fragment(_look, run_every=EVERY_S if active else IDLE_S)(at.folder, active)


def _look(folder: str, active: bool) -> None:
    try:
        count = show_running(folder, "live")
    except UserError as error:
        # A page that updates by itself needs no text that says it.
        show(el("p", f"The progress of runs cannot be read now: {error.what}.", cls="note"), "live-none")
        return
    if bool(count) != active:
        # The list below has changed, and it is time to look more often, or seldom.
        st.rerun(scope="app")
    if not count:
        note = f"Nothing is running. Runs that you start appear here within {IDLE_S:g} s."
        show(el("p", note, cls="note"), "live-none")
        return
    note = f"Updates every {EVERY_S:g} s. A run whose process was killed stays here until it is resumed."
    show(el("p", note, cls="note"), "live-note")


def _list(at: Source, every: Sequence[RunRow]) -> RunRow | None:
    """Draw the filters and the list; return the chosen run, None if no run matches."""
    show(el("h2", "All runs", cls="section"), "list-title")
    left, right = bar("filter", 2)
    names = [row.name for row in read.experiments(at)]
    with left:
        experiment = state.select(
            "Experiment",
            "experiment",
            [ALL_RUNS, *names],
            ALL_RUNS,
            resets=("from", "run"),
            show=lambda name: "All runs in the store" if name == ALL_RUNS else name,
        )
    with right:
        states = [ANY, *dict.fromkeys(run.status for run in every)]
        wanted = state.select("State", "state", states, ANY, resets=("from", "run"), show=lambda name: "any state" if name == ANY else name)
    members = every if experiment == ALL_RUNS else _runs(at, experiment)
    results = [run for run in members if wanted in (ANY, run.status)]
    if not results:
        tell("No run matches", "Choose another experiment or state.")
        return None
    ids = [run.run for run in results]
    chosen = state.pick("run", ids, ids[0], shortened)
    start = _start(len(results), ids.index(chosen))
    show(diff_view.listing(results[start : start + PAGE], chosen), "list", state.act(("run",)))
    _turn(start, len(results))
    return results[ids.index(chosen)]


def _start(count: int, chosen: int) -> int:
    """Return the offset of the listed page: the URL's, else that of the chosen run."""
    start = min(state.number("from", chosen), count - 1) // PAGE * PAGE
    state.settle("from", str(start))
    return start


def _turn(start: int, count: int) -> None:
    if count <= PAGE:
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        for name, to in (("Newer", start - PAGE), ("Older", start + PAGE)):
            st.button(name, key=name.lower(), disabled=not 0 <= to < count, on_click=lambda to=to: state.write(**{"from": str(to)}))
    show(el("p", f"{start + 1:,}–{min(start + PAGE, count):,} of {count:,}", cls="note"), "place")


def _differences(at: Source, run: RunRow, every: Sequence[RunRow]) -> None:
    show(el("h2", "Differences from another run", cls="section"), "diff-title")
    near, query = _nearest(run, every), state.read("with")
    # Any run may be asked for by the address.
    others = {item.run: item for position, item in enumerate(near) if position < NEAREST or item.run == query}
    labels = {
        name: f"{item.method} · {item.dataset} · {item.setting} · seed {item.seed} · {shortened(name)}" for name, item in others.items()
    }
    second = state.select("Other run", "with", [NONE, *others], NONE, show=lambda name: labels.get(name, "choose a run"))
    if second == NONE:
        show(el("p", "You then see settings, numbers and answers of both side by side.", cls="note"), "diff-none")
        return
    result = _diff(at, run.run, second, (run, others[second]))
    with together("differences"):
        show(el("p", f"First: {run.method} ({run.short}). Second: {others[second].method} ({shortened(second)}).", cls="note"), "diff-who")
        show(diff_view.settings(result.settings), "settings")
        definitions = read.definitions(at)
        if result.unpaired:
            show(el("p", f"The numbers are not paired: {result.unpaired}.", cls="note"), "unpaired")
        for line in result.read:
            show(el("p", line, cls="note"), f"read-{line}")
        if result.numbers:
            show(diff_view.numbers(result, definitions), "numbers")
        if result.by is not None and result.questions:
            more = f", {len(result.questions)} of {result.apart:,}" if result.apart > len(result.questions) else ""
            show(el("h3", f"Where they differ most on {formats.metric_label(result.by)}{more}"), "apart-title")
            show(diff_view.questions(result, definitions), "apart")
        show(el("p", el("span", f"ragmeter results compare {run.short} {shortened(second)}", cls="command")), "diff-command")


def _nearest(run: RunRow, every: Sequence[RunRow]) -> list[RunRow]:
    """Return the other runs: first those of the same board, then those on the same data, then the rest."""
    position = (run.dataset_fingerprint, run.setting, run.seed)
    others = [item for item in every if item.run != run.run]
    return sorted(
        others,
        key=lambda item: (
            (item.dataset_fingerprint, item.setting, item.seed) != position,
            item.dataset_fingerprint != run.dataset_fingerprint,
        ),
    )


if __name__ == "__main__":
    # Streamlit runs this file; what it holds is imported once.
    from leaderboard.pages import run as page

    page.render()
