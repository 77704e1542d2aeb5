"""The cosine of two vectors as a reranker: what a cross-encoder adds is seen against it.

As an embedding model, mGTE is the preset `gte-multilingual-base` here; as a reranker, `mgte` of `cross_encoder`. SARK's
text calls it an embedding model, its citation covers both: a table must say which one a row is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query
from methods.api import Services
from methods.baselines.pointwise import PointwiseConfig, PointwiseReranker
from methods.models.encoder import Encoder, EncoderConfig
from methods.models.encoder_presets import PRESETS
from methods.models.vector_search import exact_scores
from methods.registry import register


class BiEncoderConfig(EncoderConfig, PointwiseConfig):
    """Options of the encoder, and how far down it reranks."""

    def preflight(self) -> None:
        """Check the models and their code."""
        self.check()


@register(
    "bi_encoder",
    kind="reranker",
    summary="candidates by the inner product of two vectors; MiniLM by default, presets as of dense",
    config=BiEncoderConfig,
    paper="Reimers and Gurevych 2019, Sentence-BERT (arXiv:1908.10084)",
    presets=PRESETS,
    extra="models",
    checkpoint_hash=lambda config: config.weights(),
)
class BiEncoderReranker(PointwiseReranker):
    """Reranker that encodes query and passages apart.

    Args:
        config: Options.
        services: Lends the device.
    """

    def __init__(self, config: BiEncoderConfig, services: Services) -> None:
        super().__init__(config.depth)
        self.config = config
        self.encoder = Encoder(config, services.device)

    def scores(self, query: Query, ids: Sequence[str], corpus: Corpus) -> NDArray[np.floating]:
        """Cosines, or inner products where the encoder does not normalise."""
        # Batches are made of this query's passages alone, in an order that their content decides: so that scores
        # depend neither on other queries nor on the order of the candidates, to the last bit.
        passages = sorted(set(corpus.get(ids)), key=_content)
        rows = {_content(passage): row for row, passage in enumerate(passages)}
        vectors = self.encoder.passages([passage.text for passage in passages], [passage.title for passage in passages])
        wanted = np.array([rows[_content(passage)] for passage in corpus.get(ids)], dtype=np.int64)
        return exact_scores(vectors, self.encoder.queries([query.text])[0], wanted)


def _content(passage: Passage) -> tuple[str, str]:
    return passage.title, passage.text
