"""KILT's metrics: pages ranked as provenance, and answers that count only if the right pages are ranked first.

Gold is `Question.metadata["pages"]`: for each output that states its provenance, the Wikipedia pages that it needs together. A
prediction's pages are `notes["pages"]`, if it has them; else the documents of its ranked passages, each at its first passage.

Source: Petroni et al., 2021, https://github.com/facebookresearch/KILT (its scripts for downstream and retrieval evaluation).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.core.errors import UserError
from benchmarks.schema import PAGES, Question
from benchmarks.text import normalize
from judges.metric import Batch, Parameter, Scores, english, register
from judges.metrics.retrieval import documents_of
from methods.api import Prediction

_SOURCE = "KILT evaluator, Petroni et al. 2021"
_RANKED = ("pages",)
_BOTH = ("answer", *_RANKED)


def page_sets(question: Question) -> list[list[str]]:
    """Return the sets of gold pages that each suffice to answer, without repeated pages; empty without provenance."""
    return [list(dict.fromkeys(pages)) for pages in question.metadata.get(PAGES, ()) if pages]


@register("kilt_rprec", source=_SOURCE, group="retrieval", needs=_RANKED)
def r_precision(batch: Batch) -> Scores:
    """Compute R-precision of pages: of a set of R gold pages, the share among the first R retrieved pages, the maximum over the sets.

    A question without provenance is unscorable (the official script counts 0).
    """
    return batch.once("kilt_rprec", lambda: np.array([_r_precision(*pair) for pair in _pairs(batch)], dtype=np.float64))


def _r_precision(sets: list[list[str]], ranked: list[str]) -> float:
    return max((len(set(ranked[: len(pages)]) & set(pages)) / len(pages) for pages in sets), default=np.nan)


@register(
    "kilt_recall", source=_SOURCE, group="retrieval", needs=_RANKED, parameters=(Parameter("k", int, None, help="how many ranks count"),)
)
def recall(batch: Batch, k: int) -> Scores:
    """Compute recall@k of page sets: the share of distinct gold page sets that are complete within the first k places.

    The pages of one set occupy one place together, that of the last of them; a page outside the sets occupies one place. A
    question without provenance is unscorable (the official script counts 0).
    """
    return np.array([_recall(sets, ranked, k) for sets, ranked in _pairs(batch)], dtype=np.float64)


def _recall(sets: list[list[str]], ranked: list[str], k: int) -> float:
    missing = [set(pages) for pages in dict.fromkeys(frozenset(pages) for pages in sets)]
    if not missing:
        return np.nan
    number = len(missing)
    order: list[bool | int] = []
    for page in ranked:
        holding = [at for at, pages in enumerate(missing) if page in pages]
        for at in holding:
            # A bool is an int: identity tells the place of set 1 from a complete set.
            order = [place for place in order if isinstance(place, bool) or place != at]
            missing[at].remove(page)
            order.append(at if missing[at] else True)
        if not holding:
            order.append(False)
    return sum(place is True for place in order[:k]) / number


@register("kilt_accuracy", source=_SOURCE, group="answer", needs=_BOTH)
def accuracy(batch: Batch) -> Scores:
    """Compute KILT-AC: 1 if the answer literally equals a gold answer and kilt_rprec is 1, else 0. A question without a gold
    answer is unscorable.
    """
    return _with_pages(batch, lambda answer, golds: float(answer in golds))


@register("kilt_em", source=_SOURCE, group="answer", needs=_BOTH, language=english)
def exact_match(batch: Batch) -> Scores:
    """Compute KILT-EM: 1 if the answer equals a gold answer after SQuAD's normalization and kilt_rprec is 1, else 0.

    An empty answer scores 0. A question without a gold answer is unscorable.
    """
    return _with_pages(batch, lambda answer, golds: float(normalize(answer) in map(normalize, golds)))


@register("kilt_f1", source=_SOURCE, group="answer", needs=_BOTH, language=english)
def f1(batch: Batch) -> Scores:
    """Compute KILT-F1: token F1 after SQuAD's normalization, the maximum over the gold answers, if kilt_rprec is 1, else 0.

    An empty answer scores 0. A question without a gold answer is unscorable.
    """
    return _with_pages(batch, lambda answer, golds: max(_overlap(normalize(answer).split(), normalize(gold).split()) for gold in golds))


def _overlap(answer: list[str], gold: list[str]) -> float:
    common = (Counter(answer) & Counter(gold)).total()
    return 2 * common / (len(answer) + len(gold)) if common else 0.0


def _with_pages(batch: Batch, compare: Callable[[str, Sequence[str]], float]) -> Scores:
    """Return the answers' scores, set to 0 unless the pages are correct (without provenance they cannot be)."""
    right = r_precision(batch) == 1
    result = np.full(len(batch), np.nan)
    for row, (question, answer) in enumerate(zip(batch.questions, batch.answers, strict=True)):
        golds = [gold.strip() for gold in question.answers if gold.strip()]
        if golds:
            result[row] = compare(answer.strip(), golds) if right[row] and answer.strip() else 0.0
    return result


def _pairs(batch: Batch) -> list[tuple[list[list[str]], list[str]]]:
    """Return gold sets and ranked pages of every question."""
    predicted = [_predicted_pages(prediction) for prediction in batch.predictions]
    wanted = list(map(page_sets, batch.questions))
    if any(pages is None and sets and ranking for pages, sets, ranking in zip(predicted, wanted, batch.rankings, strict=True)):
        document = documents_of(batch)
        ranked = [list(dict.fromkeys(map(document, ranking))) for ranking in batch.rankings]
    else:
        ranked = [[] for _ in predicted]
    return [(sets, own if pages is None else pages) for sets, pages, own in zip(wanted, predicted, ranked, strict=True)]


def _predicted_pages(prediction: Prediction) -> list[str] | None:
    pages = prediction.notes.get(PAGES)
    if pages is not None and not (isinstance(pages, list | tuple) and all(isinstance(page, str) for page in pages)):
        raise UserError(
            f"notes[{PAGES!r}] must be a list of ids of pages",
            code="bad-page-notes",
            where=f"prediction for {prediction.question_id!r}",
            try_this="correct it",
        )
    return None if pages is None else list(dict.fromkeys(page.strip() for page in pages))
