"""A retriever: passages by the words that their title, and then their text, share with the question."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from benchmarks.text import tokens
from methods.api import Ranking, Services
from methods.registry import MethodConfig, register


class TitleOverlapConfig(MethodConfig):
    """Options; each shows in `ragmeter list methods title_overlap`."""

    title_weight: float = Field(3.0, ge=0.0, description="what a word shared with the title counts; with the text: 1")


@register("title_overlap", kind="retriever", summary="passages by shared words, those of the title first", version=1)
class TitleOverlap:
    """Counts shared words; passages with equal counts are ordered by id, so that runs are the same everywhere.

    Args:
        config: Options.
        services: Seed, device, folders: nothing that this method needs.
    """

    def __init__(self, config: TitleOverlapConfig, services: Services) -> None:
        self._weight = config.title_weight
        self._words: dict[str, tuple[frozenset[str], frozenset[str]]] = {}

    def index(self, corpus: Corpus, folder: Path | None = None) -> TitleOverlap:
        """Take the words of every passage; what is returned retrieves."""
        self._words = {p.id: (frozenset(tokens(p.title)), frozenset(tokens(p.text))) for p in corpus}
        return self

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """The k best passages of each question, among its candidates where it brings some."""
        return [self._ranking(query, k) for query in queries]

    def _ranking(self, query: Query, k: int) -> Ranking:
        queries = frozenset(tokens(query.text))
        scores = {}
        for identifier in self._words if query.candidates is None else query.candidates:
            title, text = self._words[identifier]
            scores[identifier] = self._weight * len(queries & title) + len(queries & text)
        best = sorted(scores, key=lambda identifier: (-scores[identifier], identifier))[:k]
        return Ranking(query.id, tuple(best), tuple(float(scores[identifier]) for identifier in best))
