"""Rerankers by separately encoded vectors: bi-encoders (cosine similarity) and late interaction.

As an embedding model, mGTE is the preset `gte-multilingual-base` here; as a reranker, `mgte` of `cross_encoder`. SARK's text
calls it an embedding model and its citation covers both, so tables must state which one was used.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query
from methods.api import Services
from methods.models.embeddings import exact_scores
from methods.models.encoder import Encoder
from methods.models.encoder_config import EncoderConfig
from methods.models.encoder_presets import PRESETS
from methods.models.late_interaction import LateInteraction, LateInteractionConfig, max_sim
from methods.registry import ModelMethodConfig, register
from methods.retrieval.ranking import ModelReranker, PointwiseConfig
from methods.work import Lengths, Work, encode


class BiEncoderConfig(EncoderConfig, PointwiseConfig, ModelMethodConfig):
    """Options of the encoder, and the number of candidates to rerank."""


def _cosine_work(config: BiEncoderConfig, lengths: Lengths) -> Work:
    """Estimate the work: encode questions, and each passage once (cached by text)."""
    passages = min(lengths.questions * lengths.ranked(config.depth), lengths.corpus)
    return encode(config, passages, lengths.passage) + encode(config, lengths.questions, lengths.question)


@register(
    "bi_encoder",
    kind="reranker",
    summary="candidates by the inner product of two vectors; MiniLM by default, presets as for dense",
    paper="Reimers and Gurevych 2019, Sentence-BERT (arXiv:1908.10084)",
    presets=PRESETS,
    work=_cosine_work,
)
class BiEncoderReranker(ModelReranker):
    """Reranker role: encodes query and passages separately, and compares the vectors.

    Args:
        config: Options.
        services: Services; the device is used.
    """

    def __init__(self, config: BiEncoderConfig, services: Services) -> None:
        super().__init__(config, Encoder(config, services.device))
        self.encoder: Encoder = self.model

    def scores(self, query: Query, ids: Sequence[str], corpus: Corpus) -> NDArray[np.floating]:
        """Compute cosine similarities, or inner products if the encoder does not normalize."""
        # Batches contain only this query's passages, in an order that depends on their content, so that scores
        # depend neither on other queries nor on the order of the candidates, to the last bit.
        passages = sorted(set(corpus.get(ids)), key=_content)
        rows = {_content(passage): row for row, passage in enumerate(passages)}
        vectors = self.encoder.passages([passage.text for passage in passages], [passage.title for passage in passages])
        wanted = np.array([rows[_content(passage)] for passage in corpus.get(ids)], dtype=np.int64)
        return exact_scores(vectors, self.encoder.queries([query.text])[0], wanted)


def _content(passage: Passage) -> tuple[str, str]:
    return passage.title, passage.text


class LateInteractionRerankerConfig(LateInteractionConfig, PointwiseConfig, ModelMethodConfig):
    """Options of the encoder, and the number of candidates to rerank."""


def _late_work(config: LateInteractionRerankerConfig, lengths: Lengths) -> Work:
    """Estimate the work: encode questions and all their candidates, without a cache."""
    pairs = lengths.questions * lengths.ranked(config.depth)
    return encode(config, pairs, lengths.passage) + encode(config, lengths.questions, lengths.question)


@register(
    "late_interaction",
    kind="reranker",
    summary="candidates by MaxSim over token vectors; ColBERTv2 by default, any ColBERT or PyLate checkpoint",
    paper="Santhanam et al. 2022, ColBERTv2 (arXiv:2112.01488)",
    work=_late_work,
)
class LateInteractionReranker(ModelReranker):
    """Reranker role: late interaction with one vector per token.

    Args:
        config: Options.
        services: Services; the device is used.
    """

    def __init__(self, config: LateInteractionRerankerConfig, services: Services) -> None:
        super().__init__(config, LateInteraction(config, services.device))

    def scores(self, query: Query, ids: Sequence[str], corpus: Corpus) -> NDArray[np.floating]:
        """Compute MaxSim scores; a passage without tokens scores lowest."""
        # In an order that depends on the passages' content, so that scores do not depend on the order of the candidates.
        wanted = [passage.full_text for passage in corpus.get(ids)]
        texts = sorted(set(wanted))
        result = max_sim(self.model.queries([query.text])[0], self.model.passages(texts))
        empty = ~np.isfinite(result)
        result[empty] = result[~empty].min(initial=0.0) - 1
        by_text = dict(zip(texts, result.tolist(), strict=True))
        return np.array([by_text[text] for text in wanted], dtype=np.float64)
