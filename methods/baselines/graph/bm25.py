"""BM25 over triples, verbalized as words.

Formula and statistics are those of `methods.baselines.bm25`: if a query has its own graph, document frequencies and lengths are
by default computed over this graph, since a word in every triple of it is uninformative there. Names are tokenized once,
because they occur in many triples. Whole-corpus search uses `bm25s`.

All triples are ranked: those that share no word with the question come last, in the order of the graph.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.corpus import Corpus
from benchmarks.graphs import TripleCorpus, Triples
from benchmarks.schema import Query
from methods.api import Index, Ranking, Services
from methods.baselines.bm25 import BM25Config, BM25Index, Numbers, WholeBM25, bm25_work, lucene_scores, tokenize
from methods.models.embeddings import read_array
from methods.registry import register
from methods.retrieval.ranking import Rows, best_rows, built_once
from methods.retrieval.triples import TripleScope, triple_corpus

_BETWEEN_WORDS = re.compile(r"[._\s]+")


def relation_words(relation: str) -> str:
    """Split a relation's name into words: `people.person.place_of_birth` becomes "people person place of birth"."""
    return _BETWEEN_WORDS.sub(" ", relation).strip()


def verbalized(triples: Triples, rows: NDArray[np.integer] | None = None) -> list[str]:
    """Convert many triples to text; each distinct relation is converted once.

    Args:
        triples: All triples.
        rows: Rows to convert, in order; None for all.

    Returns:
        One text per row: entity names unchanged, the relation as words.
    """
    table = triples.table if rows is None else triples.table[rows]
    relations = pa.array([relation_words(relation) for relation in triples.relations.to_pylist()], pa.string())
    columns = ((triples.entities, "head"), (relations, "relation"), (triples.entities, "tail"))
    # Large strings: a million texts may pass the two gigabytes that 32-bit offsets reach.
    parts = [names.cast(pa.large_string()).take(pa.array(table[column])) for names, column in columns]
    joined: pa.Array = pc.binary_join_element_wise(*parts, pa.scalar(" ", pa.large_string()))
    return joined.to_pylist()


class TripleBM25Config(BM25Config):
    """Options of BM25 over triples."""

    stemmer: str | None = Field(None, description="Snowball stemmer, e.g. english, porter (like Lucene's English analyzer); null for none")
    stopwords: Literal["en"] | None = Field(
        None, description="stopwords: bm25s' English list (like Lucene's English analyzer), or null for none"
    )

    @property
    def pattern(self) -> str:
        """Return the regular expression of a word: letters and digits, split at `_` and `.`."""
        return r"(?u)[^\W_]+"


@dataclass(frozen=True)
class NameWords:
    """Tokenized names of all entities and relations in a triple corpus.

    Attributes:
        words: Word numbers of all names, concatenated (entities first, then relations).
        offsets: Start of each name in `words`, followed by the end of the last.
        vocabulary: Number of each word.
        entities: Number of entity names.
    """

    words: NDArray[np.int32]
    offsets: Numbers
    vocabulary: dict[str, int]
    entities: int

    @classmethod
    def of(cls, triples: Triples, config: BM25Config) -> NameWords:
        """Tokenize all names of a triple corpus."""
        relations = map(relation_words, triples.relations.to_pylist())
        tokens = tokenize(chain(triples.entities.to_pylist(), relations), config, ids=True)
        lengths = np.fromiter(map(len, tokens.ids), np.int64, len(tokens.ids))
        words = np.fromiter(chain.from_iterable(tokens.ids), np.int32, int(lengths.sum()))
        return cls(words, np.concatenate([[0], np.cumsum(lengths)]), dict(tokens.vocab), len(triples.entities))

    def save(self, folder: Path) -> None:
        """Write to a folder."""
        np.save(folder / "words.npy", self.words)
        np.save(folder / "offsets.npy", self.offsets)
        known = {"vocabulary": self.vocabulary, "entities": self.entities}
        (folder / "names.json").write_text(json.dumps(known), "utf-8")

    @classmethod
    def open(cls, folder: Path) -> NameWords:
        """Read what `save` wrote."""
        words, offsets = (read_array(folder / name, mapped=False) for name in ("words.npy", "offsets.npy"))
        return cls(words, offsets, **json.loads((folder / "names.json").read_text("utf-8")))

    def frequencies(self, triples: Triples, rows: Rows, terms: Sequence[int]) -> tuple[Numbers, Numbers]:
        """Count terms in triples, shape (terms, rows), and return the triples' lengths in words, shape (rows,).

        Args:
            triples: The triples.
            rows: Rows of the triples.
            terms: Word numbers of the terms.
        """
        table = triples.table[rows]
        parts = np.stack([table["head"], table["relation"] + self.entities, table["tail"]])
        names, position = np.unique(parts, return_inverse=True)
        starts, lengths = self.offsets[names], np.diff(self.offsets)[names]
        owners = np.repeat(np.arange(len(names)), lengths)
        within = np.arange(len(owners)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        words = self.words[starts[owners] + within]
        counts = np.array([np.bincount(owners[words == term], minlength=len(names)) for term in terms], np.int64)
        position = position.reshape(parts.shape)
        return counts.reshape(len(terms), len(names))[:, position].sum(axis=1), lengths[position].sum(axis=0)


@register(
    "bm25_triples",
    kind="retriever",
    summary="BM25 over the triples of a graph, written in natural words",
    version=3,
    paper="Robertson and Zaragoza 2009; Lù 2024, BM25S (arXiv:2407.03618)",
    presets={"pyserini": {"k1": 0.9, "b": 0.4}, "lucene_english": {"stemmer": "porter", "stopwords": "en"}},
    extra="retrieval",
    work=bm25_work,
)
class TripleBM25:
    """Retriever role: BM25 over triples.

    Args:
        config: Options.
        services: Unused; BM25 has no randomness and needs no device.
    """

    over_triples = True

    def __init__(self, config: TripleBM25Config, services: Services) -> None:
        self.config = config

    def index(self, corpus: Corpus, folder: Path | None = None) -> Index:
        """Tokenize the names of a triple corpus, or open the saved result in `folder`."""
        triples = triple_corpus(corpus, "bm25_triples")
        if folder is None:
            return TripleBM25Index(self.config, triples, NameWords.of(triples.triples, self.config), None)
        kept = built_once(folder, len(triples), lambda target: NameWords.of(triples.triples, self.config).save(target))
        return TripleBM25Index(self.config, triples, NameWords.open(kept), folder / "whole")


class _Verbalized(WholeBM25):
    """BM25 over the triples of a corpus as if they were passages."""

    def texts(self, corpus: Corpus) -> Iterable[str]:
        return verbalized(triple_corpus(corpus, "bm25_triples").triples)


class TripleBM25Index:
    """Index of a triple corpus with tokenized names."""

    def __init__(self, config: TripleBM25Config, corpus: TripleCorpus, names: NameWords, folder: Path | None) -> None:
        self._config = config
        self._corpus = corpus
        self._scope = TripleScope(corpus)
        self._names = names
        self._folder = folder

    @cached_property
    def _whole(self) -> BM25Index:
        """Return the index with corpus statistics, built on first use."""
        index = _Verbalized(self._config, Services()).index(self._corpus, self._folder)
        assert isinstance(index, BM25Index)
        return index

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """Rank triples by BM25; ties in the order of the query's graph."""
        if not queries:
            return []
        split = tokenize([query.text for query in queries], self._config, ids=False)
        return [self._rank(query, words, k) for query, words in zip(queries, split, strict=True)]

    def _rank(self, query: Query, words: Sequence[str], k: int) -> Ranking:
        rows = self._scope.rows_for(query)
        if query.candidates is None:
            scores = self._whole.scores(words, None)
        elif self._config.among_candidates(query):
            scores = self._scores(words, rows)
        else:
            scores = self._whole.scores(words, rows)
        best = best_rows(scores, k)
        return self._scope.ranking(query, rows[best], scores[best])

    def _scores(self, words: Sequence[str], rows: Rows) -> NDArray[np.float64]:
        """Compute BM25 scores with statistics over these triples only."""
        queries = Counter(number for word in words if (number := self._names.vocabulary.get(word)) is not None)
        frequencies, lengths = self._names.frequencies(self._corpus.triples, rows, list(queries))
        repeated = np.array(list(queries.values()), np.int64)
        return lucene_scores(frequencies, lengths, repeated, self._config.k1, self._config.b)
