"""DPA-RAG's reranker: a classifier of question and passage that was taught which passages help the reader.

Two labels, of which the second says that a passage is aligned with what the reader prefers; the score is how much likelier it
is, in nats. No checkpoint is published: `model` is one of one's own, or an ordinary cross-encoder of one label, untrained.

Source: Dong et al. 2025, DPA-RAG (arXiv:2406.18676).
"""

from __future__ import annotations

from pydantic import Field

from methods.registry import register
from methods.retrieval.cross_encoder import CrossEncoderReranker, CrossEncoderRerankerConfig, pairs_work


class DpaRagConfig(CrossEncoderRerankerConfig):
    """Options of the reranker."""

    model: str = Field("BAAI/bge-reranker-large", description="a folder or hub id of a classifier of two labels, or of one")


@register(
    "dpa_rag",
    kind="reranker",
    summary="DPA-RAG's reranker: how much likelier it is that a passage helps the reader than that it does not",
    config=DpaRagConfig,
    paper="Dong et al. 2025, DPA-RAG (arXiv:2406.18676)",
    work=pairs_work,
)
class DpaRag(CrossEncoderReranker):
    """Reranker by a classifier of one or two labels.

    Args:
        config: Options.
        services: Provides the device.
    """

    labels = (1, 2)
