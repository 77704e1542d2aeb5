"""Register SARK's reranker, and measure how much style affects a reranker's order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark
from benchmarks.schema import Passage, Query
from methods.api import Ranking, Reranker
from methods.flow import each
from methods.registry import register
from methods.retrieval.cross_encoder import CrossEncoderReranker, CrossEncoderRerankerConfig, pairs_work
from methods.sark.model import require_checkpoint


class SarkConfig(CrossEncoderRerankerConfig):
    """Options of a cross-encoder; the length is that of the checkpoint's training."""

    model: str = Field(description="folder of a checkpoint that `ragmeter train sark` made")

    def preflight(self) -> None:
        """Check that the model is a SARK checkpoint."""
        super().preflight()
        require_checkpoint(self.model, where="sark, option model")


@register(
    "sark",
    kind="reranker",
    summary="a reranker that SARK trained to ignore style",
    config=SarkConfig,
    paper="Zhang et al., Don't Be Misled by Style: A Style-Adaptive Reranker for Capturing Effective Knowledge in "
    "Retrieval-Augmented Generation",
    work=pairs_work,
)
class Sark(CrossEncoderReranker):
    """Reranker role with a SARK checkpoint.

    Args:
        config: Options with the checkpoint.
        services: Services; the device is used.
    """


# For a question with candidates i in formal style and in another one,
#
# τ    Kendall's rank correlation of the two orders: 1 if style changes no rank, −1 if it reverses the order
# |Δz| mean over i of |z_i(formal) − z_i(styled)|, in the reranker's own units
# |Δz| / s, the same over the standard deviation of all 2n scores of the question, so that rerankers whose scores
# have other units can be compared: 0 if style changes no score, at most 2
#
# Both texts of a pair have the same content, so a reranker that ignores style has τ = 1. This needs no gold, so it also works
# with parallel texts that people wrote (`parallel_style`).


Floats = NDArray[np.float64]
LEAST = 2
"""Minimum number of candidates for an order."""
BATCH = 16
"""Questions between two progress reports."""


@dataclass(frozen=True, slots=True)
class InBothStyles:
    """A question with the same candidates in two styles; `formal[i]` and `styled[i]` have the same content."""

    question: str
    query: Query
    formal: tuple[Passage, ...]
    styled: tuple[Passage, ...]


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Effect of style on a reranker, per question.

    Attributes:
        questions: Question ids, in the order of the arrays.
        candidates: Number of candidates per question, shape (questions,).
        tau: Kendall's τ between both orders, shape (questions,).
        shift: Mean |Δz|, shape (questions,).
        relative_shift: Mean |Δz| divided by the standard deviation of the question's scores; NaN if all are equal.
        signed_shift: Mean of z(styled) − z(formal); positive if the reranker prefers the style.
    """

    questions: tuple[str, ...]
    candidates: NDArray[np.int64]
    tau: Floats
    shift: Floats
    relative_shift: Floats
    signed_shift: Floats


def in_both_styles(benchmark: Benchmark, style: str) -> list[InBothStyles]:
    """Return the questions of a benchmark from `styles.mix.styled` with the candidates that have a text in a style.

    Candidates without a text in that style are dropped in both versions, as are questions with fewer than two candidates left.

    Raises:
        UserError: The benchmark was not made by `styled`, or nothing in it can be compared.
    """
    pairs = benchmark.extra.get("styles")
    if pairs is None:
        raise UserError(f"{benchmark.reference} has a single style", code="single-style", try_this="make it with styled")
    results = []
    for question in benchmark.questions:
        both = [pair for pair in pairs[question.id] if pair.style == style]
        if len(both) >= LEAST:
            formal, styled = tuple(pair.formal for pair in both), tuple(pair.styled for pair in both)
            results.append(InBothStyles(question.id, question.query(), formal, styled))
    if not results:
        raise UserError(
            f"no question of {benchmark.name} has two candidates in the style {style!r}",
            code="no-question-with-two-candidates",
            try_this="another style, or pairs that hold this one",
        )
    return results


def sensitivity(reranker: Reranker, queries: Sequence[InBothStyles], progress: Callable[[int, int], None] | None = None) -> Sensitivity:
    """Rerank both versions of each question's candidates, and compare the orders and scores.

    Args:
        reranker: A reranker whose scores determine its order.
        queries: Result of `in_both_styles`.
        progress: Called with the number of finished questions and the total.
    """
    # One corpus of each style, for rerankers that count words in the corpus.
    corpora = [Corpus.of(passage for item in queries for passage in texts(item)) for texts in (attrgetter("formal"), attrgetter("styled"))]
    rows: list[tuple[float, ...]] = []
    for start in range(0, len(queries), BATCH):
        batch = queries[start : start + BATCH]
        formal = _scored(reranker, [(item.query, item.formal) for item in batch], corpora[0])
        styled = _scored(reranker, [(item.query, item.styled) for item in batch], corpora[1])
        rows += [_compared(*both) for both in zip(formal, styled, strict=True)]
        if progress:
            progress(len(rows), len(queries))
    tau, shift, relative, signed = np.array(rows, dtype=np.float64).reshape(-1, 4).T
    sizes = np.array([len(item.formal) for item in queries], dtype=np.int64)
    return Sensitivity(tuple(item.question for item in queries), sizes, tau, shift, relative, signed)


def kendall_tau(first: Sequence[int], second: Sequence[int]) -> float:
    """Compute Kendall's τ between two orders without ties: (concordant − discordant pairs) / all pairs.

    Args:
        first, second: Rank of each item, each rank once.

    Returns:
        In [−1, 1]; NaN for fewer than two items.

    Source: Kendall 1938, A new measure of rank correlation.
    """
    item, other = np.asarray(first, dtype=np.int64), np.asarray(second, dtype=np.int64)
    if len(item) < LEAST:
        return float("nan")
    rows, columns = np.triu_indices(len(item), 1)
    agreement = np.sign(item[rows] - item[columns]) * np.sign(other[rows] - other[columns])
    return float(agreement.mean())


def _scored(
    reranker: Reranker, requests: Sequence[tuple[Query, Sequence[Passage]]], corpus: Corpus
) -> list[tuple[NDArray[np.int64], Floats]]:
    """Rerank, and return per question the rank and score of each passage, in the given order."""
    queries = [query for query, _ in requests]
    options = [
        Ranking(query.id, tuple(passage.id for passage in passages), tuple(float(-n) for n in range(len(passages))))
        for query, passages in requests
    ]
    results = []
    for ranking, before in zip(each(reranker, "rerank", queries, options, corpus), options, strict=True):
        positions = {identifier: position for position, identifier in enumerate(ranking.ids)}
        ranks = np.array([positions[identifier] for identifier in before.ids], dtype=np.int64)
        results.append((ranks, np.array(ranking.scores, dtype=np.float64)[ranks]))
    return results


def _compared(formal: tuple[NDArray[np.int64], Floats], styled: tuple[NDArray[np.int64], Floats]) -> tuple[float, float, float, float]:
    (ranks, scores), (ranks_restyled, scores_restyled) = formal, styled
    apart = scores_restyled - scores
    shift, spread = float(np.abs(apart).mean()), float(np.concatenate([scores, scores_restyled]).std())
    relative = shift / spread if spread > 0 else float("nan")
    return kendall_tau(ranks.tolist(), ranks_restyled.tolist()), shift, relative, float(apart.mean())
