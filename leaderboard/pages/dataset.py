"""The datasets page: the questions, their source, and the submissions that were trained on them."""

from __future__ import annotations

import streamlit as st

from leaderboard import read, state
from leaderboard.drawing import permalink, show, tell, together
from leaderboard.elements.nodes import section
from leaderboard.pages import draw_page
from leaderboard.read import Source
from leaderboard.views import dataset as dataset_view
from leaderboard.widgets import as_page
from results.store.provenance import DatasetFacts

# Questions shown at a time.
SAMPLES = 5


@as_page("datasets", "Datasets")
def render(at: Source) -> None:
    """Draw the page `dataset`: stored datasets, their cards and sample questions."""
    results = read.dataset_facts(at)
    if not results:
        tell("The store has no dataset yet", "A dataset is stored with the first run over it.", ("ragmeter demo", "ragmeter list datasets"))
        return
    keys = [dataset_view.dataset_key(dataset) for dataset in results]
    names = {key: dataset.name for key, dataset in zip(keys, results, strict=True)}
    chosen = state.pick("dataset", keys, keys[0], lambda key: names[key])
    show(dataset_view.overview(results, chosen), "datasets", state.act(("dataset", "start")))
    dataset = results[keys.index(chosen)]
    left, right = st.columns([1, 1], gap="medium")
    with left, together("about"):
        show(dataset_view.card(dataset), "card")
        show(dataset_view.contamination(dataset), "contamination")
    with right:
        _samples(at, dataset)
    permalink()


def _samples(at: Source, dataset: DatasetFacts) -> None:
    start = state.number("start") % max(1, dataset.questions)
    state.settle("start", str(start) if start else "")
    rows = read.samples(at, dataset.fingerprint, SAMPLES, start)
    show(section("Some of its questions", dataset_view.sampled(rows)), "samples")
    if dataset.questions > SAMPLES:
        text = "Show other questions from all parts of the dataset"
        st.button("Others", key="others", on_click=lambda: state.write(start=str(start + 1)), help=text)


if __name__ == "__main__":
    draw_page("dataset")
