"""Retrieval and reranking metrics over `Prediction.evidence`, in the order given.

What all of them share: the ranking is the order given, scores never re-order it; of a repeated id the first
mention counts. Ids are compared as they are, whatever characters they hold. A question without results scores 0 and
stays in the mean; a question without positives is unscorable. Positives are `Question.evidence`, with the grades that the
dataset gives them, else of grade 1. With `level=documents` a ranking is that of the documents which its passages were cut from,
each at the place of its first passage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from benchmarks.core.errors import UserError
from benchmarks.schema import Passage
from benchmarks.text import normalize
from judges.metric import Batch, Parameter, Scores, register
from judges.metrics.positions import Positions, find_positives

_K = Parameter("k", int, None, help="how many of the first items count")
_GAIN = Parameter("gain", str, "linear", ("linear", "exponential"), "grade itself, or 2^grade - 1")
_TREC = "trec_eval; NIST"
TEXT, TITLED = "text", "title_text"
PASSAGES, DOCUMENTS = "passages", "documents"
_SEARCHED = Parameter(
    "searched", str, TEXT, (TEXT, TITLED), "part of a passage to search for the answer: only its text, or its title too", quiet=True
)
_LEVEL = Parameter(
    "level", str, PASSAGES, (PASSAGES, DOCUMENTS), "ranked items: passages, or the documents that they were cut from", quiet=True
)
_RANKED = (_K, _LEVEL)


def positions(batch: Batch, level: str = PASSAGES) -> Positions:
    """Return the ranks of each question's positives; cached per batch and shared by all ranking metrics."""
    return batch.once(("positions", level), lambda: _find(batch, level))


def _find(batch: Batch, level: str) -> Positions:
    grades = [{name: question.grades.get(name, 1.0) for name in question.evidence} for question in batch.questions]
    rankings = batch.rankings
    if level == DOCUMENTS:
        document = documents_of(batch)
        rankings = [list(dict.fromkeys(map(document, ranking))) for ranking in rankings]
        grades = [_highest((document(name), grade) for name, grade in row.items()) for row in grades]
    graded = any(question.grades for question in batch.questions)
    return find_positives(rankings, grades, grades if graded else None, distinct=True)


def _highest(graded: Iterable[tuple[str, float]]) -> dict[str, float]:
    result: dict[str, float] = {}
    for name, grade in graded:
        result[name] = max(grade, result.get(name, grade))
    return result


def documents_of(batch: Batch) -> Callable[[str], str]:
    """Return a function that maps a passage id to its document's id; a passage outside the corpus is its own document."""
    if batch.passage is None:
        raise UserError(
            "documents are ranked, which needs the passages",
            code="passages-needed",
            try_this="score with the benchmark's corpus, or leave this metric out",
        )
    lookup, known = batch.passage, batch.memo.setdefault("documents", {})

    def document(identifier: str) -> str:
        if identifier not in known:
            try:
                known[identifier] = lookup(identifier).document_id or identifier
            except KeyError:
                known[identifier] = identifier
        return str(known[identifier])

    return document


@register("recall", version=2, source="CLaRa §4; trec_eval recall", group="retrieval", needs=("ranking",), parameters=_RANKED)
def recall(batch: Batch, k: int, level: str) -> Scores:
    """Compute recall@k: positives within the first k / all positives (recall@1 is at most 1 / positives). A question without
    positives is unscorable.
    """
    return positions(batch, level).recall(k)


@register("hit", version=2, source="trec_eval success", group="retrieval", needs=("ranking",), parameters=_RANKED)
def hit(batch: Batch, k: int, level: str) -> Scores:
    """Compute hit@k: 1 if at least one positive is within the first k, else 0; often published as recall. A question without
    positives is unscorable.
    """
    return positions(batch, level).hit(k)


@register("all", version=2, source="HippoRAG (all-recall)", group="retrieval", needs=("ranking",), parameters=_RANKED)
def all_found(batch: Batch, k: int, level: str) -> Scores:
    """Score 1 if every positive is within the first k, else 0. A question without positives is unscorable."""
    return positions(batch, level).all(k)


@register("precision", version=2, source=_TREC, group="retrieval", needs=("ranking",), parameters=_RANKED)
def precision(batch: Batch, k: int, level: str) -> Scores:
    """Compute precision@k: positives within the first k / k, also if fewer than k were returned. A question without positives
    is unscorable.
    """
    return positions(batch, level).precision(k)


@register("mrr", version=2, source="trec_eval recip_rank, cut at k", group="retrieval", needs=("ranking",), parameters=_RANKED)
def mrr(batch: Batch, k: int, level: str) -> Scores:
    """Compute the reciprocal rank: 1 / rank of the first positive, 0 if none is within the first k. A question without
    positives is unscorable.
    """
    return positions(batch, level).reciprocal_rank(k)


@register("map", version=2, source="trec_eval map_cut", group="retrieval", needs=("ranking",), parameters=_RANKED)
def mean_average_precision(batch: Batch, k: int, level: str) -> Scores:
    """Compute average precision at k: the sum of precisions at the ranks of positives within the first k / all positives, retrieved or not.

    The divisor is the number of all positives, as in trec_eval's map_cut, not min(k, positives). A question without positives
    is unscorable.
    """
    return positions(batch, level).average_precision(k)


@register("ndcg", version=2, source="trec_eval ndcg_cut", group="retrieval", needs=("ranking",), parameters=(_K, _GAIN, _LEVEL))
def ndcg(batch: Batch, k: int, gain: str, level: str) -> Scores:
    """Compute nDCG@k: the sum of gain / log2(rank + 1) over the first k / the same sum for the ideal ranking.

    The gain is the grade (linear, as in trec_eval) or 2^grade - 1 (exponential, Burges); they agree if all grades are 1. A
    question without positives is unscorable.
    """
    at = positions(batch, level)
    if gain == "exponential":
        _require_scale(at, 50.0, "exponential gain", "gain=linear")
    return at.ndcg(k, exponential=gain == "exponential")


def _require_scale(at: Positions, largest: float, what: str, hint: str) -> None:
    """Check that no grade lies above a scale, where 2^grade would say nothing.

    Raises:
        UserError: One does.
    """
    if (highest := float(at.ideal.max(initial=0.0))) > largest:
        raise UserError(
            f"a grade of {highest:g} is above {largest:g}, the largest for {what}", code="grade-too-large", where="grades", try_this=hint
        )


def _of_scale(value: Any) -> str | None:
    return None if 0 < value <= 50 else "it must be above 0 and at most 50"


def _share(value: Any) -> str | None:
    return None if 0 < value < 1 else "it must lie between 0 and 1"


@register(
    "err",
    source="Chapelle et al. 2009; gdeval, ir_measures ERR",
    group="retrieval",
    needs=("ranking",),
    parameters=(_K, Parameter("largest", float, 4.0, help="largest grade of the dataset's scale", check=_of_scale)),
)
def expected_reciprocal_rank(batch: Batch, k: int, largest: float) -> Scores:
    """Compute expected reciprocal rank: the expected 1 / rank at which a reader stops, 0 beyond the first k.

    The reader stops at a passage of grade g with probability (2^g - 1) / 2^largest. The largest grade is 4 by default, as in
    gdeval; a higher grade is an error. A question without positives is unscorable.
    """
    _require_scale(positions(batch), largest, f"err(largest={largest:g})", "largest=… of the dataset's own scale")
    return positions(batch).expected_reciprocal_rank(k, largest)


@register(
    "rbp",
    source="Moffat & Zobel 2008; cwl_eval, ir_measures RBP",
    group="retrieval",
    needs=("ranking",),
    parameters=(
        Parameter("p", float, 0.8, help="persistence: probability of looking at the next passage", check=_share),
        Parameter("rel", float, 1.0, help="lowest grade that counts as relevant"),
    ),
)
def rank_biased_precision(batch: Batch, p: float, rel: float) -> Scores:
    """Compute rank-biased precision: (1 - p) × the sum of p^(rank - 1) over the relevant passages of the whole ranking.

    A passage is relevant if its grade is at least rel. A question without positives is unscorable.
    """
    return positions(batch).rank_biased_precision(p, rel)


@register("judged", source="ir_measures Judged", group="retrieval", needs=("ranking",), parameters=(_K,))
def judged(batch: Batch, k: int) -> Scores:
    """Compute the share of the first k passages that the dataset judges, with any grade; with fewer than k results, the share
    of the results.

    It shows how far a low score may be due to missing judgments. A question without results scores 0; one without any judgment
    is unscorable.
    """
    scores = np.full(len(batch), np.nan)
    for row, (question, ranking) in enumerate(zip(batch.questions, batch.rankings, strict=True)):
        known = question.grades or frozenset(question.evidence)
        if known:
            first = ranking[:k]
            scores[row] = sum(name in known for name in first) / max(len(first), 1)
    return scores


@register(
    "has_answer", version=2, source="DPR, Karpukhin et al. 2020", group="retrieval", needs=("ranking", "texts"), parameters=(_K, _SEARCHED)
)
def has_answer_at(batch: Batch, k: int, searched: str) -> Scores:
    """Score 1 if the text of one of the first k passages contains an accepted answer as consecutive tokens, else 0.

    DPR's rule: Unicode NFD, tokens of letters, digits and marks, uncased. Titles are searched only with searched=title_text.
    Gold answers without tokens are ignored; a question with none left, or an unanswerable one, is unscorable. For a set of
    answers, any one suffices.
    """
    ranks = _answer_ranks(batch, k, searched)
    return np.where(np.isnan(ranks), np.nan, (ranks <= k).astype(np.float64))


@register(
    "has_answer_mrr",
    version=2,
    source="trec_eval recip_rank, over DPR's has_answer",
    group="retrieval",
    needs=("ranking", "texts"),
    parameters=(_K, _SEARCHED),
)
def has_answer_reciprocal_rank(batch: Batch, k: int, searched: str) -> Scores:
    """Compute 1 / rank of the first passage that contains an accepted answer (has_answer's rule), 0 if none of the first k does.

    It measures how high a reranker ranks passages with an answer if no passages are annotated as positive. Unscorable if
    has_answer is.
    """
    ranks = _answer_ranks(batch, k, searched)
    return np.where(np.isnan(ranks), np.nan, np.where(ranks <= k, 1 / ranks, 0.0))


_KEPT_TEXTS = 100_000
"""Cache size for normalized passages that questions share: about 100 MB."""


def _answer_ranks(batch: Batch, k: int, searched: str) -> Scores:
    """Return the rank of the first passage with an answer; infinity if none of the first k has one, NaN if unscorable."""
    depth, ranks = batch.memo.get(("answer_ranks", searched), (0, None))
    if ranks is not None and depth >= k:
        return ranks
    if batch.passage is None:
        raise UserError(
            "has_answer and has_answer_mrr need the texts of the passages",
            code="passage-texts-needed",
            try_this="score with the benchmark's corpus at hand, or leave these metrics out",
        )
    known: dict[str, str] = batch.memo.setdefault(("padded_texts", searched), {})
    result = np.full(len(batch), np.inf)
    for row, (question, ranking) in enumerate(zip(batch.questions, batch.rankings, strict=True)):
        golds = [f" {gold} " for text in question.golds if (gold := normalize(text, "dpr"))]
        if not golds or not question.answerable:
            result[row] = np.nan
            continue
        for rank, identifier in enumerate(ranking[:k], start=1):
            padded = known.get(identifier)
            if padded is None:
                passage = _passage(batch, identifier)
                padded = f" {normalize(passage.text if searched == TEXT else passage.full_text, 'dpr')} "
                if len(known) < _KEPT_TEXTS:
                    known[identifier] = padded
            if any(gold in padded for gold in golds):
                result[row] = rank
                break
    batch.memo["answer_ranks", searched] = k, result
    return result


def _passage(batch: Batch, identifier: str) -> Passage:
    assert batch.passage is not None
    try:
        return batch.passage(identifier)
    except KeyError:
        raise UserError(
            f"the corpus has no passage {identifier!r}",
            code="unknown-passage",
            where="evidence of a prediction",
            try_this="check that the predictions were made on this corpus",
        ) from None
