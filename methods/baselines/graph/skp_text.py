"""The texts that SKP reads of a graph: single triples, or the triples of one head together."""

from __future__ import annotations

from typing import Literal

import numpy as np

from methods.baselines.graph.skp_masking import SEPARATOR
from methods.knowledge.linearise import LineariseConfig, linearised
from methods.knowledge.pretraining import PretrainingGraph

Unit = Literal["triple", "subgraph"]


def unit_texts(graph: PretrainingGraph, unit: Unit, linearise: LineariseConfig, most: int) -> list[str]:
    """The distinct texts of a graph, in the order of its triples.

    Args:
        graph: The triples.
        unit: triple: each is a text; subgraph: those that share a head are, with a separator between them.
        linearise: How a triple is written.
        most: Triples in a subgraph at most; a head with more has several.
    """
    texts = linearised(graph.triples, config=linearise)
    if unit == "subgraph":
        order = np.argsort(graph.heads, kind="stable")
        heads = graph.heads[order]
        # Where a head begins, and then every `most` triples.
        begins = np.flatnonzero(np.diff(heads, prepend=-1))
        within = np.arange(len(heads)) - np.repeat(begins, np.diff(begins, append=len(heads)))
        starts = np.flatnonzero(within % most == 0)
        ends = [*starts[1:].tolist(), len(heads)]
        rows = order.tolist()
        between = f" {SEPARATOR} "
        groups = sorted((rows[start:end] for start, end in zip(starts.tolist(), ends, strict=True)), key=lambda one: one[0])
        texts = [between.join(texts[row] for row in group) for group in groups]
    # Triples whose relations share their last part may read alike: a text must not be its own contrast.
    return list(dict.fromkeys(texts))
