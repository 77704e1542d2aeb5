"""The datasets page: the questions, their source, and the submissions that were trained on them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from shlex import quote
from typing import Any

import streamlit as st

from leaderboard import read, state
from leaderboard.drawing import permalink, show, show_all, tell
from leaderboard.elements import formats
from leaderboard.elements.nodes import Node, aside, badge, button, el, facts, link, named, note, prose, section
from leaderboard.elements.tables import Cell, Column, NumberColumn, WideColumn, table
from leaderboard.read import Source
from leaderboard.views.question import gold_passages, question
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
    keys = [dataset_key(dataset) for dataset in results]
    names = {key: dataset.name for key, dataset in zip(keys, results, strict=True)}
    chosen = state.pick("dataset", keys, keys[0], lambda key: names[key])
    show(overview(results, chosen), "datasets", state.act(("dataset", "start")))
    dataset = results[keys.index(chosen)]
    left, right = st.columns([1, 1], gap="medium")
    with left:
        show_all("about", {"card": card(dataset), "contamination": contamination(dataset)})
    start = state.number("start") % max(1, dataset.questions)
    state.settle("start", str(start) if start else "")
    rows = read.samples(at, dataset.fingerprint, SAMPLES, start)
    with right:
        parts = (el("div", question(row.question), gold_passages(row.question, row.passages), cls="sample") for row in rows)
        show(section("Some of its questions", el("div", *parts, cls="stack")), "samples")
        if dataset.questions > SAMPLES:
            text = "Show other questions from all parts of the dataset"
            st.button("Others", key="others", on_click=lambda: state.write(start=str(start + 1)), help=text)
    permalink()


_HUB = "https://huggingface.co/datasets/"
_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)
_REVISION = re.compile(r"[\w.-]+", re.ASCII)


def dataset_key(dataset: DatasetFacts) -> str:
    """Return a dataset's key in URLs: readable, and unique by the fingerprint."""
    return f"{dataset.name}~{dataset.fingerprint}"


def overview(datasets: Sequence[DatasetFacts], chosen: str) -> Node:
    """Build the list of all datasets; a click on a name selects the one shown below."""

    def name(dataset: DatasetFacts) -> Node:
        key = dataset_key(dataset)
        return button(dataset.name, f"pick-{dataset.fingerprint}", {"dataset": key, "start": None}, pressed=key == chosen)

    def runs(dataset: DatasetFacts) -> Cell:
        return Cell(f"{dataset.runs:,}", f"{dataset.methods:,} methods", cls="contaminated" if dataset.contaminated else "")

    stored = "Questions stored; fewer than the dataset has if runs were limited"
    columns: list[Column[DatasetFacts]] = [
        Column("Dataset", name, tip="Choose one to see its card, its findings and some of its questions"),
        WideColumn("Task", lambda dataset: str(dataset.card.get("task", ""))),
        NumberColumn("Questions", lambda dataset: dataset.questions, "asked", stored),
        NumberColumn("Passages", lambda dataset: dataset.passages, "stored", "Passages in the corpus"),
        Column("License", lambda dataset: str(dataset.card.get("license", ""))),
        NumberColumn("Runs", runs, "of methods"),
    ]
    return table("Datasets in this store", "datasets-scroll", datasets, columns)


def card(dataset: DatasetFacts) -> Node:
    """Build the card of a dataset."""
    card = dataset.card
    counted = [
        f"{dataset.questions:,}" + ("" if math.isnan(dataset.words) else f" of {dataset.words:.1f} words on average"),
        f"{dataset.with_evidence:,} with gold evidence",
        f"{dataset.without_gold:,} without a gold answer" if dataset.without_gold else "",
        f"over {dataset.documents:,} documents" if dataset.documents else "",
    ]
    rows: list[tuple[str, Node | str]] = [
        ("License", str(card.get("license", ""))),
        ("Source", _origin(card.get("hub_id"), card.get("revision"))),
        ("Revision", str(card.get("revision") or "not pinned" if card.get("hub_id") else "")),
        ("Languages", _joined(card.get("languages"))),
        ("Metrics", _joined(formats.metric_label(str(metric)) for metric in card.get("metrics") or ())),
        ("Settings", _joined(card.get("settings"))),
        ("Splits", _joined(name if size is None else f"{name} {size:,}" for name, size in (card.get("splits") or {}).items())),
        ("Questions here", ", ".join(filter(None, counted))),
        ("Types", _joined(f"{kind or 'no type'} {number:,}" for kind, number in dataset.types.items())),
        ("Fingerprint", dataset.fingerprint),
        ("About it", el("span", *prose(str(card["notes"]))) if card.get("notes") else ""),
        ("When it was read", el("ul", *(el("li", *prose(note)) for note in dataset.notes)) if dataset.notes else ""),
    ]
    cited = el("p", str(card.get("citation", "")), cls="text")
    return el(
        "section",
        el("h2", str(card.get("title") or dataset.name)),
        el("p", *prose(str(card.get("description", "")))),
        facts(rows),
        el("details", el("summary", "How to cite it"), cited, key=f"cite-{dataset.fingerprint}"),
        cls="stack",
    )


def _origin(hub: Any, revision: Any) -> Node | str:
    if not hub or not _HUB_ID.fullmatch(str(hub)):
        return str(hub or "made or read here; no repository")
    tree = f"/tree/{revision}" if revision and _REVISION.fullmatch(str(revision)) else ""
    return link(str(hub), f"{_HUB}{hub}{tree}")


def _joined(parts: Any) -> str:
    return ", ".join(str(part) for part in parts or ())


def contamination(dataset: DatasetFacts) -> Node:
    """Build the list of methods that declare the dataset as training data, and the command that searches training files."""
    result = el("p", "No stored submission declares training data that cover these questions.")
    text = "This check does not cover methods run here, or training data that was not declared."
    if dataset.contaminated:
        reasons = [(item.method, el("ul", *(el("li", reason) for reason in item.reasons))) for item in dataset.contaminated]
        result = el("ul", *(el("li", named(name, badge("contaminated", "failed")), why) for name, why in reasons))
        text = "These submissions declare training data that cover these questions; their scores carry a badge."
    command = el("span", f"ragmeter data overlap --train FILE --eval {quote(dataset.name)}", cls="command")
    return section("Contamination", result, note(text), el("p", aside("To look for the questions in training files: "), command))
