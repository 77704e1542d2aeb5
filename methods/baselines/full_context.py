"""Give the reader every candidate, or the whole document, in the original order.

With `whole`, a document is joined from its passages without their overlaps, and may be cut to its first words. The
reader shortens a context that exceeds its model's limit: a reader that follows a benchmark with `truncation: middle`
(LongBench's rule) keeps the beginning and the end, half of the limit each. In both cases the prediction's notes record
it under `truncated`. The opposite control, without any context, is `no_retrieval`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus
from benchmarks.datasets.long_document import PAPER_OVERLAP, document_text
from benchmarks.schema import Passage, Query
from methods.api import TRUNCATED, Context, Index, Ranking, Services
from methods.registry import MethodConfig, register
from methods.retrieval.ranking import Scope
from methods.work import free

_WORD = re.compile(r"\S+")


class FullContextConfig(MethodConfig):
    """Options of full context."""

    whole: bool = Field(False, description="whole document in one piece (ARK: true); false: its passages one by one")
    overlap: int = Field(
        0,
        ge=0,
        description="words that a passage of a whole document repeats from the previous one: set it to the benchmark's chunk_overlap",
    )
    words: int | None = Field(
        None, ge=1, description="only the first words of a whole document (ARK's code: 16384); null: all, and the reader cuts"
    )

    @model_validator(mode="after")
    def _of_a_whole(self) -> Self:
        if not self.whole and (self.overlap or self.words):
            raise ValueError("overlap and words need a document in one piece: set whole")
        return self


@register(
    "full_context",
    kind="retriever",
    summary="all candidates, or the whole document, in their original order",
    presets={"paper": {"whole": True, "overlap": PAPER_OVERLAP}, "released": {"whole": True, "overlap": PAPER_OVERLAP, "words": 16_384}},
    work=free,
)
class FullContext:
    """Retriever role: returns all candidate passages in their original order."""

    reads_all = True
    """Marks that the reader receives the whole ranking unless an experiment sets `k`."""

    def __init__(self, config: FullContextConfig, services: Services) -> None:
        self.config = config

    def index(self, corpus: Corpus, folder: Path | None = None) -> Index:
        """Return the index; nothing is built."""
        return FullContextIndex(corpus, self.config)


class FullContextIndex:
    """Index that returns all passages that a query may use."""

    def __init__(self, corpus: Corpus, config: FullContextConfig) -> None:
        self.config = config
        self._corpus = corpus
        self._scope = Scope(corpus)

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """Return the candidates, or the document's passages, in their order.

        Raises:
            UserError: A query has neither; a whole corpus cannot be a context.
        """
        return [self._all(query, k) for query in queries]

    def contexts(self, queries: Sequence[Query], rankings: Sequence[Ranking]) -> list[Context]:
        """Return a whole document as one passage, or candidates as separate passages.

        Raises:
            UserError: The passages of a document do not overlap as the options say.
        """
        return [self._context(query, ranking) for query, ranking in zip(queries, rankings, strict=True)]

    def _all(self, query: Query, k: int) -> Ranking:
        rows = self._scope.rows_for(query)
        if rows is None:
            raise UserError(
                "full_context needs candidates or a document: a whole corpus is too large for a context",
                code="full-context-without-candidates",
                where=f"query {query.id}",
                try_this="use the setting distractor, gold_only, oracle or document, or a retriever such as bm25",
            )
        return self._scope.ranking(query, rows[:k], [1 / rank for rank in range(1, len(rows[:k]) + 1)])

    def _context(self, query: Query, ranking: Ranking) -> Context:
        passages = tuple(self._corpus.get(ranking.ids))
        # Candidates are separate passages; a reranked or shortened document is no longer in one piece.
        if not self.config.whole or query.candidates is not None or not passages or not self._in_order(ranking):
            return Context(query.id, passages)
        self._check_overlap(passages)
        text = document_text(passages, self.config.overlap)
        words = [match.end() for match in _WORD.finditer(text)] if self.config.words else []
        notes = {}
        if self.config.words and len(words) > self.config.words:
            text = text[: words[self.config.words - 1]]
            notes = {TRUNCATED: {"unit": "words", "kept": self.config.words, "of": len(words)}}
        first = passages[0]
        whole = Passage(first.document_id or first.id, first.title, text, (), first.document_id)
        return Context(query.id, (whole,), notes=notes)

    def _in_order(self, ranking: Ranking) -> bool:
        rows = [self._corpus.row(identifier) for identifier in ranking.ids]
        return all(second == first + 1 for first, second in pairwise(rows))

    def _check_overlap(self, passages: Sequence[Passage]) -> None:
        """Raise an error if the passages' overlap differs from the options, since the document would lose or repeat words."""
        most = self.config.overlap
        for first, second in pairwise(passages):
            shared = second.text.split(maxsplit=most)[:most]
            if first.text.split()[len(first.text.split()) - len(shared) :] != shared:
                raise UserError(
                    f"passages of document {first.document_id} do not repeat {most} words of the one before",
                    code="overlap-not-repeated",
                    where=f"passage {second.id}",
                    try_this="overlap: the benchmark's option chunk_overlap",
                )
