"""Pointwise rerankers with causal language models: score query and passage by the output at their last token.

Pairs of all waiting queries are scored together, in batches of similar lengths; the batch changes a pair's score by less
than 1e-5 in float32. Padding is on the right, which a causal model ignores, and the score is read at each row's own last
token, so that it equals the score with padding on the left.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query
from methods.models.likelihood import batches, logits_only_at
from methods.prompts import encoded
from methods.registry import ModelMethodConfig
from methods.retrieval.ranking import PointwiseConfig, PointwiseReranker
from methods.work import Lengths, Work, encode

if TYPE_CHECKING:
    from torch import Tensor


class PairConfig(PointwiseConfig, ModelMethodConfig):
    """Options of pointwise rerankers with a language model."""

    dtype: Literal["float32", "bfloat16", "float16", "auto"] | None = Field(
        None, description="null: float32 on CPU, the checkpoint's own elsewhere"
    )
    token_budget: int = Field(16384, ge=32, description="tokens per batch, including padding; limits memory")


def pairs_work(config: Any, lengths: Lengths) -> Work:
    """Estimate the work: each question is scored with each of its candidates."""
    return encode(config, lengths.questions * lengths.ranked(config.depth), lengths.question + lengths.passage, causal=True)


class PairReranker(PointwiseReranker, ABC):
    """Base class of pointwise rerankers with a language model.

    Args:
        config: Options.
        tokenizer, model: Tokenizer and model of `transformers`.
        device: Device of the model.
    """

    batch_size = 32

    def __init__(self, config: Any, tokenizer: Any, model: Any, device: str) -> None:
        super().__init__(config.depth)
        self.config, self.tokenizer, self.model, self.device = config, tokenizer, model, device

    def scores_of(self, queries: Sequence[Query], ids: Sequence[Sequence[str]], corpus: Corpus) -> Sequence[NDArray[np.floating]]:
        """Score the pairs of all queries; equal token sequences are scored once."""
        texts = [[self.shown(passage) for passage in corpus.get(own)] for own in ids]
        rows = [[tuple(row) for row in self.encoded(query.text, own)] for query, own in zip(queries, texts, strict=True)]
        scores = self.scored(sorted({row for own in rows for row in own}))
        return [np.array([scores[row] for row in own], dtype=np.float64) for own in rows]

    def scores(self, query: Query, ids: Sequence[str], corpus: Corpus) -> NDArray[np.floating]:
        """Score one query's pairs."""
        return self.scores_of([query], [ids], corpus)[0]

    def scored(self, rows: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], float]:
        """Score rows of token ids.

        Raises:
            UserError: A score is NaN, for example after a float16 overflow.
        """
        import torch

        scores: dict[tuple[int, ...], float] = {}
        with torch.inference_mode():
            for batch, ids, mask in batches(rows, self.config.token_budget, self.device):
                scores.update(zip((rows[position] for position in batch), self.read(ids, mask).double().tolist(), strict=True))
        if not np.isfinite(list(scores.values())).all():
            raise UserError(
                "scores are not finite numbers in this dtype", code="scores-not-finite", where="dtype", try_this="float32, or bfloat16"
            )
        return scores

    def shown(self, passage: Passage) -> str:
        """Format a passage's title and text as one text."""
        return passage.full_text

    @abstractmethod
    def encoded(self, query: str, passages: Sequence[str]) -> list[list[int]]:
        """Tokenize a query with each passage."""

    @abstractmethod
    def read(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Compute the scores of a batch: shape (rows,)."""

    def tokens(self, texts: Sequence[str], most: int | None = None) -> list[list[int]]:
        """Tokenize texts without special tokens, truncated to `most` tokens."""
        return [ids[:most] for ids in encoded(self.tokenizer, texts)]


def ends(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return row and column indices of the last tokens in a right-padded batch."""
    import torch

    return torch.arange(len(mask), device=mask.device), mask.sum(dim=1) - 1


def head_scores(model: Any, ids: Tensor, mask: Tensor, head: Any = None) -> Tensor:
    """Compute the score of a one-label sequence classifier at each row's last token: shape (rows,)."""
    hidden = getattr(model, model.base_model_prefix)(input_ids=ids, attention_mask=mask).last_hidden_state
    return (head or model.score)(hidden[ends(mask)]).squeeze(-1).float()


def token_log_odds(model: Any, ids: Tensor, mask: Tensor, yes: int, no: int, context: Any = None) -> Tensor:
    """Compute the log-odds of token `yes` over `no` as the next token of each row, in nats: shape (rows,)."""
    at = ends(mask)
    with context or nullcontext(), logits_only_at(model, *at):
        logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits[0].float()
    return logits[:, yes] - logits[:, no]
