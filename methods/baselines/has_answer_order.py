"""The has-answer control: passages that hold a gold answer first, everything else as a retriever left it.

What a perfect judge of answer strings would do to a ranking; no reranker of the same candidates can reach a higher
has_answer@k.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from benchmarks.corpus import Corpus
from benchmarks.fingerprint import fingerprint
from benchmarks.schema import Query, Question
from benchmarks.text_batch import has_answer_all
from methods.api import Index, Ranking, Services
from methods.baselines.controls import gold_of
from methods.baselines.hybrid import Part, RetrieverPart
from methods.pipeline import index_folder
from methods.registry import MethodConfig, register


class HasAnswerOrderConfig(MethodConfig):
    """Options of the control."""

    retriever: RetrieverPart = Field(
        Part(id="bm25"), description="what finds the passages, in whose order they stay; full_context: the benchmark's own candidates"
    )

    def preflight(self) -> None:
        """Check the retriever."""
        self.retriever.component.preflight()


@register(
    "has_answer_order",
    kind="control",
    summary="passages that hold a gold answer first, the rest in a retriever's order",
    config=HasAnswerOrderConfig,
    checkpoint_hash=lambda config: fingerprint(config.retriever.component.fingerprint),
)
class HasAnswerOrder:
    """Retriever that moves what holds an accepted answer (DPR's rule) to the front.

    Args:
        config: Options.
        services: Handed to the retriever, whose index it shares.
    """

    def __init__(self, config: HasAnswerOrderConfig, services: Services) -> None:
        self._component = config.retriever.component
        self._retriever = self._component.build(services)
        self._services = services

    def prepare(self, questions: Sequence[Question]) -> None:
        """Nothing to prepare: each query carries its own gold."""

    def index(self, corpus: Corpus, folder: Path | None = None) -> Index:
        """The index of the retriever underneath."""
        own = index_folder(self._component, corpus, self._services) or folder
        return _HasAnswerIndex(corpus, self._retriever.index(corpus, own))


class _HasAnswerIndex:
    """An index whose rankings are split by whether a passage holds an answer."""

    def __init__(self, corpus: Corpus, index: Index) -> None:
        self._corpus = corpus
        self._index = index

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """The k best of the retriever, those with an answer first."""
        asked = [Query(one.id, one.text, one.document_id, one.candidates, one.topic_entities) for one in queries]
        rankings = self._index.retrieve(asked, k)
        return [self._split(query, ranking) for query, ranking in zip(queries, rankings, strict=True)]

    def _split(self, query: Query, ranking: Ranking) -> Ranking:
        texts = [passage.full_text for passage in self._corpus.get(ranking.ids)]
        holding = has_answer_all(texts, [gold_of(query).golds] * len(texts))
        ids = sorted(ranking.ids, key=dict(zip(ranking.ids, ~holding, strict=True)).__getitem__)
        return Ranking(query.id, tuple(ids), tuple(1 / rank for rank in range(1, len(ids) + 1)), ranking.usage)
