"""RAPTOR: a tree of summaries over the passages, searched as a flat list of nodes.

Passages are split into leaves, which are soft-clustered by their vectors, globally and then within each cluster. A model
summarizes each cluster, and the summaries are clustered again, until few are left. A question is compared with all nodes. The
native context has the nearest nodes that fit; otherwise, the passages below the nearest nodes are returned.

Source: Sarthi et al. 2024 (arXiv:2401.18059) and parthsarthi03/raptor at 2e3e83e5: leaves of 100 tokens, UMAP to 10 dimensions,
Gaussian mixtures of the number with the least BIC, a cluster beyond 3,500 tokens is clustered again. Ours: UMAP is seeded (its
labels equal the released ones for equal seeds); a leaf keeps its punctuation; a long cluster that clustering cannot divide, or
of at most 11 nodes, is cut in the order of the text (released: an error or no end); tokens are characters / 4; one tree per
document (scope). `reduction: svd` replaces UMAP by truncated SVD, which is then RAPTOR without UMAP.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.core.errors import MissingPackage
from benchmarks.schema import Passage, Query
from benchmarks.text import sentences
from methods.api import Context, Ranking, Usage
from methods.baselines.graph_rag.common import Group, SystemConfig, SystemIndex, indexed_passages, reading_work, register, within
from methods.flow import together
from methods.prompts import Prompt
from methods.retrieval.ranking import best_rows
from methods.work import Lengths, Work, ask, encode, index, tokens

CLUSTER_TOKENS = 3500
"""Maximum tokens of a cluster; a longer one is split."""
SUMMARY_TOKENS = 100
"""Tokens per summary."""
FEW = 11
"""Number of nodes up to which no further clustering happens."""
POSTERIOR = 0.1
"""Minimum posterior probability with which a node belongs to a cluster."""
SEED, SEARCH_SEED = 0, 224
"""Random seed of UMAP and the final mixture, and of the mixtures compared for model selection."""
DIMENSIONS, NEIGHBORS = 10, 10
"""Number of reduced dimensions, and number of UMAP's neighbors within a cluster."""
MOST = 50
"""Exclusive upper bound on the tried numbers of clusters."""


class RaptorConfig(SystemConfig):
    """Options of RAPTOR."""

    needs_llm = True

    reduction: Literal["umap", "svd"] = Field(
        "umap", description="reduction of the vectors before clustering: umap, as published (extra umap), or svd (truncated SVD)"
    )
    leaf_tokens: int = Field(100, ge=1, description="maximum tokens of a leaf, which holds whole sentences of a passage")
    layers: int = Field(5, ge=1, description="maximum layers of summaries")
    tokens: int = Field(2000, ge=1, description="tokens of all nodes in the native context; paper: 2000")

    def preflight(self) -> None:
        super().preflight()
        if self.reduction == "umap" and find_spec("umap") is None:
            raise MissingPackage("umap-learn", "umap", "RAPTOR (unless reduction: svd stands for UMAP)")

    @property
    def context_tokens(self) -> int:
        return self.tokens if self.context == "native" else 0

    @property
    def written_tokens(self) -> int:
        return SUMMARY_TOKENS

    def templates(self) -> list[Prompt]:
        return [self.template("summary")]


@dataclass
class Tree:
    """Tree of nodes: leaves first, then summaries layer by layer.

    Attributes:
        texts: Texts of the nodes.
        passages: Positions of the passages under each node.
        bottom: Number of leaves.
        failed: Number of failed summaries.
    """

    texts: list[str]
    passages: list[tuple[int, ...]]
    bottom: int
    failed: int = 0


def leaves_of(text: str, most: int) -> list[str]:
    """Split a text into leaves of whole sentences; a long sentence is split after commas, colons and semicolons."""
    pieces: list[str] = []
    for sentence in sentences(text):
        pieces += [sentence] if tokens(sentence) <= most else re.split(r"(?<=[,;:])\s+", sentence)
    parts = _divided(list(range(len(pieces))), [tokens(piece) for piece in pieces], most)
    return [" ".join(pieces[n] for n in part) for part in parts if part] or [text]


def clusters(vectors: NDArray[np.float32], lengths: Sequence[int], most_tokens: int, reduction: str = "umap") -> list[list[int]]:
    """Soft-cluster rows; a row may be in several clusters, and every row is in at least one.

    Args:
        vectors: Shape (rows, dimension).
        lengths: Tokens of each row.
        most_tokens: Maximum tokens of a cluster, beyond which it is clustered again.
        reduction: Dimensionality reduction: `umap` or `svd`.
    """
    if len(vectors) <= FEW:
        return _divided(list(range(len(vectors))), lengths, most_tokens)
    results: list[list[int]] = []
    for rows in in_two_steps(vectors, reduction):
        if len(rows) == 1 or sum(lengths[row] for row in rows) <= most_tokens:
            results.append(rows)
        elif len(rows) == len(vectors):
            results += _divided(rows, lengths, most_tokens)
        else:
            within_rows = clusters(vectors[rows], [lengths[row] for row in rows], most_tokens, reduction)
            results += [[rows[n] for n in part] for part in within_rows]
    return results


def in_two_steps(vectors: NDArray[np.float32], reduction: str) -> list[list[int]]:
    """Cluster rows globally, then within each cluster that has more than `FEW` rows."""
    results: list[list[int]] = []
    for rows in _mixture(vectors, reduction, math.isqrt(len(vectors) - 1)):
        parts = _mixture(vectors[rows], reduction, NEIGHBORS) if len(rows) > FEW else [list(range(len(rows)))]
        results += [[rows[n] for n in part] for part in parts]
    return results


def _divided(rows: list[int], lengths: Sequence[int], most: int) -> list[list[int]]:
    """Split rows in order so that no cluster has too many tokens."""
    parts: list[list[int]] = [[]]
    size = 0
    for row in rows:
        if parts[-1] and size + lengths[row] > most:
            parts.append([])
            size = 0
        parts[-1].append(row)
        size += lengths[row]
    return parts


def _reduced(vectors: NDArray[np.float32], reduction: str, neighbors: int) -> NDArray[np.float64]:
    size = max(1, min(DIMENSIONS, len(vectors) - 2))
    if reduction == "umap":
        from umap import UMAP

        # One thread, and the same each time.
        umap = UMAP(n_neighbors=neighbors, n_components=size, metric="cosine", random_state=SEED, n_jobs=1)
        torch = sys.modules.get("torch")
        threads = torch.get_num_threads() if torch else 0
        reduced = np.asarray(umap.fit_transform(vectors), np.float64)
        if torch:
            # Numba sets the number of cores for all libraries, and threads in excess slow PyTorch down.
            torch.set_num_threads(threads)
        return reduced
    left, values, _ = np.linalg.svd((vectors - vectors.mean(axis=0)).astype(np.float64), full_matrices=False)
    return np.asarray(left[:, :size] * values[:size])


def _mixture(vectors: NDArray[np.float32], reduction: str, neighbors: int) -> list[list[int]]:
    """Cluster by the Gaussian mixture with the lowest BIC."""
    from sklearn.mixture import GaussianMixture

    reduced = _reduced(vectors, reduction, neighbors)
    tried = range(1, min(MOST, len(vectors)))
    bics = [GaussianMixture(number, random_state=SEARCH_SEED).fit(reduced).bic(reduced) for number in tried]
    best = GaussianMixture(tried[int(np.argmin(bics))], random_state=SEED).fit(reduced)
    chances = best.predict_proba(reduced)
    members = [np.flatnonzero(chances[:, n] > POSTERIOR).tolist() for n in range(chances.shape[1])]
    return [rows for rows in members if rows]


def _work(config: RaptorConfig, lengths: Lengths) -> Work:
    # About a sixth as many summaries as nodes below, layer upon layer.
    leaf = min(lengths.passage, config.leaf_tokens)
    leaves = indexed_passages(config, lengths) * math.ceil(lengths.passage / config.leaf_tokens)
    written = encode(config, leaves * 1.2, leaf) + ask(config.llm, leaves / 5, 60 + 6 * leaf, SUMMARY_TOKENS)
    return reading_work(config, lengths) + index(written)


@register(
    "raptor",
    version=2,
    summary="RAPTOR: a tree of summaries of clustered passages; all nodes are searched as one list",
    config=RaptorConfig,
    paper="Sarthi et al. 2024, RAPTOR (arXiv:2401.18059)",
    work=_work,
)
class RaptorIndex(SystemIndex):
    """Index with a summary tree per group."""

    async def prepare(self, group: Group) -> tuple[Tree, Usage]:
        """Build a group's tree, layer by layer."""
        assert self.writer is not None
        passages = [(number, leaf) for number, text in enumerate(group.index.texts) for leaf in leaves_of(text, self.config.leaf_tokens)]
        tree = Tree([leaf for _, leaf in passages], [(number,) for number, _ in passages], len(passages))
        usage = Usage()
        layer = list(range(len(tree.texts)))
        for _ in range(self.config.layers):
            if len(layer) <= FEW:
                break
            texts = [tree.texts[node] for node in layer]
            vectors = await self.compute(lambda: group.index.vectors(texts))  # noqa: B023
            sizes = [tokens(text) for text in texts]
            grouped = await self.compute(lambda: clusters(vectors, sizes, CLUSTER_TOKENS, self.config.reduction))  # noqa: B023
            joined = ["\n\n".join(texts[n] for n in rows) for rows in grouped]
            written = await together(*(self.writer(self.config.template("summary"), "summary", text) for text in joined))
            above = []
            for rows, (text, cost, _) in zip(grouped, written, strict=True):
                usage += cost
                if not text:
                    tree.failed += 1
                    continue
                above.append(len(tree.texts))
                tree.texts.append(text)
                tree.passages.append(tuple(dict.fromkeys(passage for n in rows for passage in tree.passages[layer[n]])))
            if len(above) >= len(layer):
                break
            layer = above
        return tree, usage

    async def _nearest(self, query: Query) -> tuple[Group, Tree, list[int]]:
        group = await self.compute(lambda: self.group(query))
        tree: Tree = await self.prepared(group)

        def order() -> list[int]:
            vectors = group.index.once("nodes", lambda: group.index.vectors(tree.texts))
            scores = (vectors @ self.query_vector(query.text)).astype(np.float64)
            return best_rows(scores, len(scores)).tolist()

        return group, tree, await self.compute(order)

    async def retrieve_one(self, query: Query, k: int) -> Ranking:
        """Rank passages by the best node above them; passages under the same summary in text order."""
        group, tree, order = await self._nearest(query)
        note: dict[str, Any] = {"summaries": len(tree.texts) - tree.bottom, **({"failed": tree.failed} if tree.failed else {})}
        if self.config.reduction == "svd":
            note["clusters"] = "without UMAP"
        return self.ranking(query, group, [passage for node in order for passage in tree.passages[node]], k, note)

    async def contexts_one(self, query: Query, ranking: Ranking) -> Context:
        """Return the passages; in the native context, the nearest nodes that fit."""
        if self.config.context != "native" or not ranking.ids:
            return await super().contexts_one(query, ranking)
        _, tree, order = await self._nearest(query)
        return Context(query.id, tuple(within([Passage(f"node {node}", "", tree.texts[node]) for node in order], self.config.tokens)))
