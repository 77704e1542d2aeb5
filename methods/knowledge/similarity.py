"""Edges between entities whose vectors are alike: the second half of how ARK makes its graph (Algorithm 2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from methods.knowledge.graph import KnowledgeGraph
from methods.models.encoder import EncoderConfig

BLOCK = 1024
"""Rows and columns compared at once: 4 MiB of cosines, however large the graph."""


class SimilarityConfig(BaseModel):
    """Which entities are alike."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    enabled: bool = Field(True, description="join entities that are alike")
    threshold: float = Field(0.8, ge=-1, le=1, description="cosine from which two entities are joined (tau)")
    inclusive: bool = Field(False, description="join at the threshold itself; paper: no, released: yes")
    encoder: EncoderConfig = Field(
        EncoderConfig.model_validate({}),
        description="embeds name and descriptions; paper: BGE-M3, released: Qwen3-Embedding (see encoder presets)",
    )


class TextEncoder(Protocol):
    """What of an encoder is needed here."""

    def passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of texts, shape (texts, dimension)."""
        ...


def with_similarity_edges(graph: KnowledgeGraph, config: SimilarityConfig, encoder: TextEncoder) -> KnowledgeGraph:
    """The graph with an edge between every two entities that are alike."""
    if not config.enabled or len(graph.nodes) < 2:
        return graph
    vectors = encoder.passages([node.text for node in graph.nodes])
    return graph.with_similarities(similar_pairs(vectors, config.threshold, inclusive=config.inclusive))


def similar_pairs(
    vectors: NDArray[Any], threshold: float, *, inclusive: bool = False, block: int = BLOCK
) -> Iterator[tuple[int, int, float]]:
    """Pairs of rows whose cosine is above a threshold.

    Args:
        vectors: Shape (rows, dimension); a row of zeros is like nothing.
        threshold: In [-1, 1].
        inclusive: Whether the threshold itself suffices.
        block: Rows compared at once.

    Yields:
        Two indices, the smaller first, and their cosine; by the blocks they lie in.
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.divide(vectors, lengths, out=np.zeros_like(vectors, dtype=np.float32), where=lengths > 0)
    something = lengths[:, 0] > 0
    for top in range(0, len(unit), block):
        for left in range(top, len(unit), block):
            cosines = unit[top : top + block] @ unit[left : left + block].T
            alike = cosines >= threshold if inclusive else cosines > threshold
            alike &= something[top : top + block, None] & something[left : left + block]
            rows, columns = np.nonzero(np.triu(alike, 1) if left == top else alike)
            # Rounding may put a cosine a little beyond 1.
            found = np.clip(cosines[rows, columns], -1, 1)
            yield from zip((rows + top).tolist(), (columns + left).tolist(), found.tolist(), strict=True)
