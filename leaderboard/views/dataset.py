"""Datasets as page elements: the list, one's card, what is known of contamination, and sampled questions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any

from leaderboard.elements import formats
from leaderboard.elements.nodes import Cell, Head, Line, Node, badge, el, facts, link, plain_table, prose
from results.store.provenance import Contaminated, DatasetFacts, Sample

_HUB = "https://huggingface.co/datasets/"
_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)
_REVISION = re.compile(r"[\w.-]+", re.ASCII)
_LONGEST = 700
"""Maximum characters of a displayed passage."""


def dataset_key(dataset: DatasetFacts) -> str:
    """Return a dataset's key in URLs: readable, and unique by the fingerprint."""
    return f"{dataset.name}~{dataset.fingerprint}"


def overview(datasets: Sequence[DatasetFacts], chosen: str) -> Node:
    """Build the list of all datasets; a click on a name selects the one shown below."""
    heads = [
        Head("Dataset", tip="Choose one to see its card, its findings and some of its questions"),
        Head("Task", wide=True),
        Head("Questions", "asked", "Questions stored; fewer than the dataset has if runs were limited", number=True),
        Head("Passages", "stored", "Passages in the corpus", number=True),
        Head("License"),
        Head("Runs", "of methods", number=True),
    ]
    lines = [
        Line(
            el(
                "button",
                dataset.name,
                cls="turn",
                key=f"pick-{dataset.fingerprint}",
                pressed=str(dataset_key(dataset) == chosen).lower(),
                action={"dataset": dataset_key(dataset), "start": None},
            ),
            [
                str(dataset.card.get("task", "")),
                f"{dataset.questions:,}",
                f"{dataset.passages:,}",
                str(dataset.card.get("license", "")),
                Cell(f"{dataset.runs:,}", f"{dataset.methods:,} methods", cls="contaminated" if dataset.contaminated else ""),
            ],
        )
        for dataset in datasets
    ]
    return plain_table("Datasets in this store", heads, lines, "datasets-scroll")


def card(dataset: DatasetFacts) -> Node:
    """Build the card of a dataset."""
    card = dataset.card
    rows: list[tuple[str, Node | str]] = [
        ("License", str(card.get("license", ""))),
        ("Source", _origin(card)),
        ("Revision", str(card.get("revision") or "not pinned" if card.get("hub_id") else "")),
        ("Languages", _joined(card.get("languages"))),
        ("Metrics", _joined(formats.metric_label(str(metric)) for metric in card.get("metrics") or ())),
        ("Settings", _joined(card.get("settings"))),
        ("Splits", _splits(card.get("splits") or {})),
        ("Questions here", _questions(dataset)),
        ("Types", _joined(f"{kind or 'no type'} {number:,}" for kind, number in dataset.types.items())),
        ("Fingerprint", dataset.fingerprint),
        ("About it", el("span", *prose(str(card["notes"]))) if card.get("notes") else ""),
        ("When it was read", el("ul", *(el("li", *prose(note)) for note in dataset.notes)) if dataset.notes else ""),
    ]
    return el(
        "section",
        el("h2", str(card.get("title") or dataset.name)),
        el("p", *prose(str(card.get("description", "")))),
        facts(rows),
        el(
            "details",
            el("summary", "How to cite it"),
            el("p", str(card.get("citation", "")), cls="text"),
            key=f"cite-{dataset.fingerprint}",
        ),
        cls="stack",
    )


def _origin(responses: Mapping[str, Any]) -> Node | str:
    hub, revision = responses.get("hub_id"), responses.get("revision")
    if not hub:
        return "made or read here; no repository"
    if not _HUB_ID.fullmatch(str(hub)):
        return str(hub)
    tree = f"/tree/{revision}" if revision and _REVISION.fullmatch(str(revision)) else ""
    return link(str(hub), f"{_HUB}{hub}{tree}")


def _splits(splits: Mapping[str, int | None]) -> str:
    return _joined(f"{name} {number:,}" if number is not None else name for name, number in splits.items())


def _questions(dataset: DatasetFacts) -> str:
    parts = [
        f"{dataset.questions:,} of {dataset.words:.1f} words on average" if dataset.words == dataset.words else f"{dataset.questions:,}"
    ]
    parts.append(f"{dataset.with_evidence:,} with gold evidence")
    if dataset.without_gold:
        parts.append(f"{dataset.without_gold:,} without a gold answer")
    if dataset.documents:
        parts.append(f"over {dataset.documents:,} documents")
    return ", ".join(parts)


def _joined(parts: Any) -> str:
    return ", ".join(str(part) for part in parts or ())


def contamination(dataset: DatasetFacts) -> Node:
    """Build the list of methods that declare the dataset as training data, and the command that searches training files."""
    heading = el("h2", "Contamination", cls="section")
    if dataset.contaminated:
        result: Node = el("ul", *map(_contaminated, dataset.contaminated))
        text = "These submissions declare training data that cover these questions; their scores carry a badge."
    else:
        result = el("p", "No stored submission declares training data that cover these questions.")
        text = "This check does not cover methods run here, or training data that was not declared."
    command = f"ragmeter data overlap --train FILE --eval {quote(dataset.name)}"
    look = el("p", el("span", "To look for the questions in training files: ", cls="aside"), el("span", command, cls="command"))
    return el("section", heading, result, el("p", text, cls="note"), look, cls="stack")


def _contaminated(result: Contaminated) -> Node:
    return el(
        "li",
        el("span", result.method, cls="method"),
        badge("contaminated", "failed"),
        el("ul", *(el("li", reason) for reason in result.reasons)),
    )


def sampled(samples: Sequence[Sample]) -> Node:
    """Build the list of sample questions with their gold."""
    return el("section", *map(_sample, samples), cls="stack")


def _sample(sample: Sample) -> Node:
    row = sample.question
    about = [row.type, f"document {row.document_id}" if row.document_id else "", row.question]
    golds = [el("span", gold, cls="gold-answer") for gold in dict.fromkeys(row.answers) if gold]
    evidence = [_passage(identifier, sample) for identifier in row.evidence]
    return el(
        "div",
        el("p", " · ".join(part for part in about if part), cls="kicker"),
        el("p", el("strong", row.text)),
        el("div", el("span", "Gold", cls="kicker"), *golds, cls="gold") if golds else el("p", "no gold answer", cls="note"),
        el(
            "details",
            el("summary", f"{len(evidence)} gold passage{'s' * (len(evidence) != 1)}"),
            el("div", *evidence, cls="stack"),
            key=f"gold-{row.question}",
        )
        if evidence
        else None,
        cls="sample",
    )


def _passage(identifier: str, sample: Sample) -> Node:
    passage = sample.passages.get(identifier)
    if passage is None:
        return el("p", f"{identifier}: not among the stored passages", cls="note")
    text = passage.text if len(passage.text) <= _LONGEST else passage.text[:_LONGEST] + " …"
    return el("div", el("strong", passage.title) if passage.title else None, el("p", text))
