"""All reference pages, by the path that they have in the documentation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from ragmeter.reference.asking import datasets_page, experiment_page
from ragmeter.reference.commands import commands_page
from ragmeter.reference.methods import methods_page, trainings_page
from ragmeter.reference.scoring import judges_page, metrics_page

PAGES: Mapping[str, Callable[[], str]] = {
    "reference/experiment.md": experiment_page,
    "reference/retrievers.md": partial(methods_page, "retriever"),
    "reference/rerankers.md": partial(methods_page, "reranker"),
    "reference/compressors.md": partial(methods_page, "compressor"),
    "reference/readers.md": partial(methods_page, "reader"),
    "reference/systems.md": partial(methods_page, "method"),
    "reference/controls.md": partial(methods_page, "control"),
    "reference/trainings.md": trainings_page,
    "reference/datasets.md": datasets_page,
    "reference/metrics.md": metrics_page,
    "reference/judges.md": judges_page,
    "reference/commands.md": commands_page,
}


def pages() -> dict[str, str]:
    """Every page as Markdown, by its path below `docs/`."""
    return {path: write() for path, write in PAGES.items()}
