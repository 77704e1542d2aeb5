"""Define controls: answers whose score is known in advance, to check metrics, judges and readers.

Controls receive the gold data, are marked, and are never ranked. If a metric or judge ranks one of them wrongly, the
metric or judge has a bug.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from benchmarks.core.fingerprint import content_hash, fingerprint
from benchmarks.corpus import Corpus
from benchmarks.schema import GoldQuery, Query, Question, sentence_of, without_gold
from benchmarks.text import normalize
from benchmarks.text_batch import has_answer_all
from methods.api import ANSWERABLE, SUPPORT, TRIPLES, Evidence, Index, Prediction, Ranking, Services, Usage
from methods.composed import Composed
from methods.flow import in_flight, one
from methods.pipeline import RetrieverChoice, RetrieverPart, index_folder
from methods.registry import MethodConfig, register
from methods.retrieval.ranking import Scope
from methods.work import free

SEPARATOR = "\n"
"""Separator of the answers of a question that requires all of them."""


def gold_text(question: Question) -> str:
    """Return the gold answer as one text: the first accepted one, or all if all are required; "" if there is none."""
    if question.answer_set:
        return SEPARATOR.join(question.answers)
    return question.answers[0] if question.answers else ""


def gold_of(query: Query) -> Question:
    """Return the question with gold data of a control's query.

    Raises:
        TypeError: The query has no gold data; controls must be called with `GoldQuery` objects.
    """
    if not isinstance(query, GoldQuery):
        raise TypeError("a control must be handed GoldQuery objects (Question.gold_query())")
    return query.question


class _Answering(ABC):
    """Base class of controls that answer without a reader."""

    def __init__(self, config: MethodConfig, services: Services) -> None:
        self.seed = services.seed

    def prepare(self, questions: Sequence[Question]) -> None:
        """Do nothing, because most controls only need the current question."""
        return

    def index(self, corpus: Corpus) -> None:
        self.corpus = corpus

    def answer(self, queries: Iterable[Query]) -> Iterator[Prediction]:
        for query in queries:
            started = time.perf_counter()
            prediction = self._predict(query.id, gold_of(query))
            usage = Usage(seconds={"read": time.perf_counter() - started})
            yield Prediction(query.id, prediction.answer, prediction.evidence, usage, prediction.notes)

    @abstractmethod
    def _predict(self, identifier: str, question: Question) -> Prediction:
        """Return the prediction for this query id, with empty usage."""


@register("gold_answer", kind="control", version=2, summary="the gold answer with the gold evidence: every metric's maximum", work=free)
class GoldAnswer(_Answering):
    """Control that returns the gold answer, evidence, support and triples."""

    def _predict(self, identifier: str, question: Question) -> Prediction:
        evidence = tuple(Evidence(gold, 1 / rank) for rank, gold in enumerate(dict.fromkeys(question.evidence), 1))
        notes: dict[str, Any] = {}
        if question.supporting_facts:
            notes[SUPPORT] = [list(sentence_of(fact)) for fact in question.supporting_facts]
        elif question.evidence:
            notes[SUPPORT] = list(dict.fromkeys(question.evidence))
        if question.group is not None:
            notes[ANSWERABLE] = question.answerable
        if question.triples:
            notes[TRIPLES] = [list(triple) for triple in question.triples]
        return Prediction(identifier, gold_text(question), evidence, notes=notes)


@register("empty_answer", kind="control", summary="no answer and no evidence: every metric's minimum", work=free)
class EmptyAnswer(_Answering):
    """Control that gives empty answers."""

    def _predict(self, identifier: str, question: Question) -> Prediction:
        return Prediction(identifier, "")


@register("idk", kind="control", summary='always "I don\'t know"', work=free)
class IDontKnow(_Answering):
    """Control that abstains on every question."""

    def _predict(self, identifier: str, question: Question) -> Prediction:
        return Prediction(identifier, "I don't know")


@register("whole_passage", kind="control", summary="the text of the first positive passage as the answer", work=free)
class WholePassage(_Answering):
    """Control that answers with the full text of the evidence: it contains the gold answer, but is not an answer."""

    def _predict(self, identifier: str, question: Question) -> Prediction:
        known = [passage for passage in question.evidence if passage in self.corpus]
        text = self.corpus.get(known[:1])[0].text if known else ""
        return Prediction(identifier, text, tuple(Evidence(passage, 1.0) for passage in known[:1]))


@register("shuffled_answer", kind="control", summary="the gold answer of another question: right form, wrong content", work=free)
class ShuffledAnswer(_Answering):
    """Control that answers each question with another question's gold answer."""

    def prepare(self, questions: Sequence[Question]) -> None:
        """Assign the answers over the whole question set, so that resuming a run does not change them."""
        self._dealt = deal(questions, self.seed)

    def _predict(self, identifier: str, question: Question) -> Prediction:
        return Prediction(identifier, self._dealt[identifier])


def deal(questions: Sequence[Question], seed: int) -> dict[str, str]:
    """Return, per question, another question's gold answer that is wrong for it.

    The questions are put on a circle in an order drawn from the seed, independent of their original order. Each gets the
    answer of the next question on the circle whose answer is not accepted for it after normalization, or "" if there is
    none. If all answers differ, this is a permutation without fixed points.

    Returns:
        Answers by query id.
    """
    circle = sorted(questions, key=lambda question: content_hash([str(seed), question.query_id]))
    texts = [gold_text(question) for question in circle]
    normal = [normalize(text) for text in texts]
    distinct = set(normal)
    dealt = {}
    for position, question in enumerate(circle):
        accepted = {normalize(text) for text in (*question.golds, texts[position])} | {""}
        dealt[question.query_id] = ""
        if distinct - accepted:
            following = ((position + step) % len(circle) for step in range(1, len(circle)))
            dealt[question.query_id] = next(texts[other] for other in following if normal[other] not in accepted)
    return dealt


@register("oracle_evidence", kind="control", summary="only the positive passages, then any reader", work=free)
class OracleEvidence:
    """Control retriever that returns the gold evidence, in the dataset's order."""

    reads_all = True

    def __init__(self, config: MethodConfig, services: Services) -> None:
        pass

    def index(self, corpus: Corpus, folder: Path | None = None) -> Index:
        """Return an empty index."""
        return _OracleIndex(corpus)

    def prepare(self, questions: Sequence[Question]) -> None:
        """Do nothing, because each query carries its gold data."""


class _OracleIndex:
    """Index that returns only positives."""

    def __init__(self, corpus: Corpus) -> None:
        self._known: Callable[[str], bool] = corpus.__contains__

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """Return the positives of each query that are in the corpus."""
        rankings = []
        for query in queries:
            results = [passage for passage in dict.fromkeys(gold_of(query).evidence) if self._known(passage)][:k]
            rankings.append(Ranking(query.id, tuple(results), tuple(1 / rank for rank in range(1, len(results) + 1))))
        return rankings


# The ranking of a perfect judge of answer strings; no reranker of the same candidates can reach a higher
# has_answer@k.


class HasAnswerOrderConfig(MethodConfig):
    """Options of the control."""

    retriever: RetrieverPart = Field(
        RetrieverChoice(id="bm25"),
        description="retriever that finds the passages and sets their order; full_context: the benchmark's own candidates",
    )
    searched: Literal["text", "title_text"] = Field(
        "text", description="where to look for answers: in the text (like has_answer@k), or also in the title"
    )

    def preflight(self) -> None:
        """Check the retriever."""
        self.retriever.component.preflight()


@register(
    "has_answer_order",
    kind="control",
    version=2,
    summary="passages that contain a gold answer first, then the rest, each in a retriever's order",
    checkpoint_hash=lambda config: fingerprint(config.retriever.component.fingerprint),
    work=lambda config, lengths: config.retriever.component.work(lengths),
    needs=lambda config: config.retriever.component.needs,
)
class HasAnswerOrder:
    """Control retriever that moves passages with an accepted answer (DPR's rule) to the front of another retriever's ranking.

    Args:
        config: Options.
        services: Services for the retriever, whose index it shares.
    """

    def __init__(self, config: HasAnswerOrderConfig, services: Services) -> None:
        self._titled = config.searched == "title_text"
        self._component = config.retriever.component
        self._retriever = self._component.build(services)
        self._services = services

    def prepare(self, questions: Sequence[Question]) -> None:
        """Do nothing, because each query carries its gold data."""

    def index(self, corpus: Corpus, folder: Path | None = None) -> _HasAnswerIndex:
        """Build the index of the underlying retriever."""
        own = index_folder(self._component, corpus, self._services) or folder
        return _HasAnswerIndex(corpus, self._retriever.index(corpus, own), self._titled)


class _HasAnswerIndex(Composed):
    """Index that moves passages with an answer to the front."""

    def __init__(self, corpus: Corpus, index: Index, titled: bool) -> None:
        super().__init__(index)
        self._corpus = corpus
        self._titled = titled
        self._retrieve = one(index, "retrieve")
        self.in_flight = in_flight([(index, "retrieve")])

    async def retrieve_one(self, query: Query, k: int) -> Ranking:
        """Return the retriever's k best passages, those with an answer first."""
        return self._split(query, await self._retrieve(without_gold(query), k))

    def _split(self, query: Query, ranking: Ranking) -> Ranking:
        texts = [passage.full_text if self._titled else passage.text for passage in self._corpus.get(ranking.ids)]
        holding = has_answer_all(texts, [gold_of(query).golds] * len(texts))
        ids = sorted(ranking.ids, key=dict(zip(ranking.ids, ~holding, strict=True)).__getitem__)
        return Ranking(query.id, tuple(ids), tuple(1 / rank for rank in range(1, len(ids) + 1)), ranking.usage, ranking.notes)


@register("no_retrieval", kind="retriever", summary="closed book: the reader answers without passages", work=free)
class NoRetrieval:
    """Retriever that returns no passages, for closed-book answers; it is not scored on rankings."""

    def __init__(self, config: MethodConfig, services: Services) -> None:
        pass

    def index(self, corpus: Corpus, folder: Path | None = None) -> Index:
        """Return an empty index."""
        return EmptyIndex()


class EmptyIndex:
    """Index without passages."""

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """Return one empty ranking per query."""
        return [Ranking(query.id, (), ()) for query in queries]


@register("random", kind="retriever", summary="passages in random order, seeded per query", version=2, work=free)
class Random:
    """Control retriever that returns random passages.

    Args:
        config: No options.
        services: Services; the seed is used.
    """

    def __init__(self, config: MethodConfig, services: Services) -> None:
        self.seed = services.seed

    def index(self, corpus: Corpus, folder: Path | None = None) -> Index:
        """Return the sampler; nothing is built."""
        return RandomIndex(corpus, self.seed)


class RandomIndex:
    """Sampler of passages without replacement, seeded by the task's seed and the query's id."""

    def __init__(self, corpus: Corpus, seed: int) -> None:
        self._scope = Scope(corpus)
        self._size = len(corpus)
        self._seed = seed

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """Sample k passages per query."""
        return [self._draw(query, k) for query in queries]

    def _draw(self, query: Query, k: int) -> Ranking:
        generator = np.random.default_rng(int(content_hash([str(self._seed), query.id]), 16))
        rows = self._scope.rows_for(query)
        size = self._size if rows is None else len(rows)
        drawn = generator.choice(size, min(k, size), replace=False)
        if rows is not None:
            # Samples from candidates in the order of their ids, independent of the benchmark's order and of other questions.
            ids = self._scope.corpus.ids
            drawn = np.array(sorted(rows.tolist(), key=ids.__getitem__), dtype=np.int64)[drawn]
        return self._scope.ranking(query, drawn, 1 / np.arange(1, len(drawn) + 1))
