"""Retrieval and reranking metrics over `Prediction.evidence`, in the order given.

What all of them share: the ranking is the order given, scores never re-order it; of a repeated id the first
mention counts, and a sentence counts as its passage. A question without results scores 0 and stays in the mean;
a question without positives is unscorable. Positives are `Question.evidence`, all of grade 1.
"""

from __future__ import annotations

import numpy as np

from benchmarks.errors import UserError
from benchmarks.text import normalise
from judges.api import Batch, Parameter, Scores
from judges.ranking import Positions, find_positives
from judges.registry import register

_K = Parameter("k", int, None, help="how many of the first items count")
_GAIN = Parameter("gain", str, "linear", ("linear", "exponential"), "grade itself, or 2^grade - 1")
_TREC = "trec_eval; NIST"


def positions(batch: Batch) -> Positions:
    """Where each question's positives stand; found once per batch, shared by every metric here."""
    positives = (tuple(dict.fromkeys(question.evidence)) for question in batch.questions)
    return batch.once("positions", lambda: find_positives(batch.rankings, list(positives), distinct=True))


@register("recall", source="CLaRa §4; trec_eval recall", group="retrieval", needs=("ranking",), parameters=(_K,))
def recall(batch: Batch, k: int) -> Scores:
    """Positives within the first k / all positives: recall@1 is at most 1 / positives. No positives: unscorable."""
    return positions(batch).recall(k)


@register("hit", source="trec_eval success", group="retrieval", needs=("ranking",), parameters=(_K,))
def hit(batch: Batch, k: int) -> Scores:
    """1 if at least one positive is within the first k, else 0; often published as recall. No positives: unscorable."""
    return positions(batch).hit(k)


@register("all", source="HippoRAG (all-recall)", group="retrieval", needs=("ranking",), parameters=(_K,))
def all_found(batch: Batch, k: int) -> Scores:
    """1 if every positive is within the first k, else 0. No positives: unscorable."""
    return positions(batch).all(k)


@register("precision", source=_TREC, group="retrieval", needs=("ranking",), parameters=(_K,))
def precision(batch: Batch, k: int) -> Scores:
    """Positives within the first k / k, also where fewer than k were returned. No positives: unscorable."""
    return positions(batch).precision(k)


@register("mrr", source="trec_eval recip_rank, cut at k", group="retrieval", needs=("ranking",), parameters=(_K,))
def mrr(batch: Batch, k: int) -> Scores:
    """1 / rank of the first positive, 0 if none is within the first k. No positives: unscorable."""
    return positions(batch).reciprocal_rank(k)


@register("map", source="trec_eval map_cut", group="retrieval", needs=("ranking",), parameters=(_K,))
def mean_average_precision(batch: Batch, k: int) -> Scores:
    """Sum of the precisions at the rank of each positive within the first k / all positives, found or not.

    Divided by all positives, as trec_eval's map_cut does, not by min(k, positives). No positives: unscorable.
    """
    return positions(batch).average_precision(k)


@register("ndcg", source="trec_eval ndcg_cut", group="retrieval", needs=("ranking",), parameters=(_K, _GAIN))
def ndcg(batch: Batch, k: int, gain: str) -> Scores:
    """Sum of gain / log2(rank + 1) over the first k / the same sum for the ideal ranking.

    Linear gain is the grade (trec_eval), exponential 2^grade - 1 (Burges); the questions here have positives of grade
    1 alone, for which the two agree. No positives: unscorable.
    """
    return positions(batch).ndcg(k, exponential=gain == "exponential")


@register("has_answer", source="DPR, Karpukhin et al. 2020", group="retrieval", needs=("ranking", "texts"), parameters=(_K,))
def has_answer_at(batch: Batch, k: int) -> Scores:
    """1 if the text of one of the first k passages holds an accepted answer as consecutive tokens, else 0.

    DPR's rule: NFD, tokens of letters, digits and marks, uncased. Golds without tokens count for nothing. A question
    with none left, or without an answer by its gold, is unscorable. For a set of answers any one suffices.
    """
    ranks = _answer_ranks(batch, k)
    return np.where(np.isnan(ranks), np.nan, (ranks <= k).astype(np.float64))


@register(
    "has_answer_mrr", source="trec_eval recip_rank, over DPR's has_answer", group="retrieval", needs=("ranking", "texts"), parameters=(_K,)
)
def has_answer_reciprocal_rank(batch: Batch, k: int) -> Scores:
    """1 / rank of the first passage that holds an accepted answer by has_answer's rule, 0 if none of the first k does.

    Says how high a reranker puts what can be answered from, where no passage is annotated as positive. Unscorable where
    has_answer is.
    """
    ranks = _answer_ranks(batch, k)
    return np.where(np.isnan(ranks), np.nan, np.where(ranks <= k, 1 / ranks, 0.0))


_KEPT_TEXTS = 100_000
"""Normalised passages kept for the questions that share them: about 100 MB."""


def _answer_ranks(batch: Batch, k: int) -> Scores:
    """Rank of the first passage with an answer; infinity where none of the first k has one, NaN where unscorable."""
    depth, ranks = batch.memo.get("answer_ranks", (0, None))
    if ranks is not None and depth >= k:
        return ranks
    if batch.corpus_text is None:
        raise UserError(
            "has_answer and has_answer_mrr need the texts of the passages",
            try_this="score with the benchmark's corpus at hand, or leave these metrics out",
        )
    known: dict[str, str] = batch.memo.setdefault("padded_texts", {})
    found = np.full(len(batch), np.inf)
    for row, (question, ranking) in enumerate(zip(batch.questions, batch.rankings, strict=True)):
        golds = [f" {gold} " for text in question.golds if (gold := normalise(text, "dpr"))]
        if not golds or not question.answerable:
            found[row] = np.nan
            continue
        for rank, identifier in enumerate(ranking[:k], start=1):
            padded = known.get(identifier)
            if padded is None:
                padded = f" {normalise(_text(batch, identifier), 'dpr')} "
                if len(known) < _KEPT_TEXTS:
                    known[identifier] = padded
            if any(gold in padded for gold in golds):
                found[row] = rank
                break
    batch.memo["answer_ranks"] = k, found
    return found


def _text(batch: Batch, identifier: str) -> str:
    assert batch.corpus_text is not None
    try:
        return batch.corpus_text(identifier)
    except KeyError:
        raise UserError(
            f"the corpus has no passage {identifier!r}",
            where="evidence of a prediction",
            try_this="check that the predictions were made on this corpus",
        ) from None
