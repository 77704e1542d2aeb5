"""RAPTOR: a tree of summaries over the passages, searched as one list of nodes.

Passages are clustered softly by their vectors, a model sums up each cluster, and the summaries are clustered again, until
few are left. A question is compared with all nodes; in the native context a reader gets the nearest of these until the
next would not fit, as passages those under the nearest nodes.

Source: Sarthi et al. 2024 (arXiv:2401.18059) and its released code. A variant: truncated SVD of the vectors stands for
UMAP unless that is wanted; the search for a number of clusters ends where five in a row are no better; a cluster is divided
once more where it is too long, never again and again; one tree per document (scope).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.core.errors import MissingPackage
from benchmarks.schema import Passage, Query
from methods.api import Context, Ranking, Usage
from methods.baselines.graph_rag.common import Group, SystemConfig, SystemIndex, indexed_passages, reading_work, register, within
from methods.flow import together
from methods.prompts import Prompt
from methods.retrieval.ranking import best_rows
from methods.work import Lengths, Work, ask, index, tokens

CLUSTER_TOKENS = 3500
"""Tokens of a cluster; a longer one is divided."""
SUMMARY_TOKENS = 100
"""Tokens of a summary."""
FEW = 11
"""Nodes that are not clustered any more."""
POSTERIOR = 0.1
"""Of a cluster, from which a node belongs to it."""
SEED = 0
DIMENSIONS, NEIGHBORS = 10, 10
"""Of the reduced vectors; of UMAP inside a cluster."""
MOST, PATIENCE = 50, 5
"""Numbers of clusters that are tried, and how many in a row that are no better end the search."""


class RaptorConfig(SystemConfig):
    """Options of RAPTOR."""

    needs_llm = True

    reduction: Literal["svd", "umap"] = Field("svd", description="of the vectors before they are clustered; paper: umap (extra umap)")
    layers: int = Field(5, ge=1, description="of summaries, at most")
    tokens: int = Field(2000, ge=1, description="native context: of all nodes; paper: 2000")

    def preflight(self) -> None:
        super().preflight()
        if self.reduction == "umap" and find_spec("umap") is None:
            raise MissingPackage("umap-learn", "umap", "reduction: umap")

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
    """Nodes: the passages first, then the summaries layer by layer.

    Attributes:
        texts: Of the nodes.
        leaves: Positions of the passages under each node.
        failed: Summaries that could not be had.
    """

    texts: list[str]
    leaves: list[tuple[int, ...]]
    failed: int = 0


def clusters(vectors: NDArray[np.float32], lengths: Sequence[int], most_tokens: int, reduction: str = "svd") -> list[list[int]]:
    """Soft clusters of rows: a row may be in several, every row is in one.

    Args:
        vectors: Shape (rows, dimension).
        lengths: Tokens of each row.
        most_tokens: Beyond which a cluster is divided.
        reduction: How vectors become shorter.
    """
    if len(vectors) <= FEW:
        return [list(range(len(vectors)))]
    results: list[list[int]] = []
    for rows in _mixture(vectors, reduction, math.isqrt(len(vectors) - 1)):
        parts = [rows]
        if len(rows) > FEW:
            parts = [[rows[n] for n in part] for part in _mixture(vectors[rows], reduction, NEIGHBORS)]
        for part in parts:
            results += _divided(part, lengths, most_tokens)
    return results


def _divided(rows: list[int], lengths: Sequence[int], most: int) -> list[list[int]]:
    """Rows in their order, cut where a cluster would have too many tokens."""
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
        return np.asarray(umap.fit_transform(vectors), np.float64)
    left, values, _ = np.linalg.svd((vectors - vectors.mean(axis=0)).astype(np.float64), full_matrices=False)
    return np.asarray(left[:, :size] * values[:size])


def _mixture(vectors: NDArray[np.float32], reduction: str, neighbors: int) -> list[list[int]]:
    """Clusters by the Gaussian mixture with the least BIC."""
    from sklearn.mixture import GaussianMixture

    reduced = _reduced(vectors, reduction, neighbors)
    best, least, since = None, np.inf, 0
    for number in range(1, min(MOST, len(vectors))):
        mixture = GaussianMixture(number, random_state=SEED, reg_covar=1e-5).fit(reduced)
        since += 1
        if (bic := mixture.bic(reduced)) < least:
            best, least, since = mixture, bic, 0
        if since == PATIENCE:
            break
    assert best is not None
    chances = best.predict_proba(reduced)
    members = [np.flatnonzero(chances[:, n] > POSTERIOR).tolist() for n in range(chances.shape[1])]
    return [rows for rows in members if rows]


def _work(config: RaptorConfig, lengths: Lengths) -> Work:
    # About a sixth as many summaries as nodes below, layer upon layer.
    summaries = indexed_passages(config, lengths) / 5
    return reading_work(config, lengths) + index(ask(config.llm, summaries, 60 + 6 * lengths.passage, SUMMARY_TOKENS))


@register(
    "raptor",
    summary="RAPTOR: a tree of summaries of clustered passages, all nodes searched as one list",
    config=RaptorConfig,
    paper="Sarthi et al. 2024, RAPTOR (arXiv:2401.18059), with SVD in place of UMAP (reduction)",
    work=_work,
)
class RaptorIndex(SystemIndex):
    """A corpus with a tree over each group."""

    async def prepare(self, group: Group) -> tuple[Tree, Usage]:
        """The tree of a group, layer by layer."""
        assert self.writer is not None
        tree = Tree(list(group.index.texts), [(n,) for n in range(len(group.index.texts))])
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
                tree.leaves.append(tuple(dict.fromkeys(leaf for n in rows for leaf in tree.leaves[layer[n]])))
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
        """Passages in the order of the nodes above them, those under one summary in the order of the text."""
        group, tree, order = await self._nearest(query)
        note = {"summaries": len(tree.texts) - len(group.rows), **({"failed": tree.failed} if tree.failed else {})}
        return self.ranking(query, group, [leaf for node in order for leaf in tree.leaves[node]], k, note)

    async def contexts_one(self, query: Query, ranking: Ranking) -> Context:
        """The passages; in the native context the nearest nodes, as far as the tokens go."""
        if self.config.context != "native" or not ranking.ids:
            return await super().contexts_one(query, ranking)
        _, tree, order = await self._nearest(query)
        return Context(query.id, tuple(within([Passage(f"node {node}", "", tree.texts[node]) for node in order], self.config.tokens)))
