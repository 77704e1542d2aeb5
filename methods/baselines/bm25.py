"""Retrieve with BM25, the sparse baseline: `bm25s` with the formula of Lucene.

    score(q, d) = Σ_t∈q  ln(1 + (N − n_t + ½) / (n_t + ½)) · f_td / (f_td + k1 · (1 − b + b · |d| / mean |d|))

N is the number of passages, n_t of them have term t, d has |d| terms and term t f_td times; a repeated term of the query
counts each time. A passage without any term of the query is not found.

If a question has its own candidates (or is about one document), N, n_t and mean |d| are those of these passages, so that
its ranking does not depend on passages of other questions. Without candidates, they are those of the corpus, from an
index of `bm25s`; with `statistics: corpus`, they always are.

Passages with equal term statistics and lengths get exactly equal scores, in any order of terms: among candidates, a
passage's summands are added from the smallest to the largest, and the sum is rounded to `ranking.SIGNIFICANT` bits; the
summands of an index are float32 numbers, whose sum in float64 is exact.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from benchmarks.core.errors import MissingPackage, UserError
from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from methods.api import Ranking, Services
from methods.baselines import tantivy_engine
from methods.baselines.postings import Postings, build, open_postings
from methods.baselines.words import BM25S, STOPWORDS, WORDS, numbered, one_form
from methods.pipeline import index_folder
from methods.registry import Component, MethodConfig, register
from methods.retrieval.ranking import PointwiseConfig, PointwiseReranker, Rows, Scope, best_rows, built_once, comparable, indexed_so_far
from methods.work import WORDS_PER_TOKEN, Lengths, Work, index, unknown


class BM25Config(MethodConfig):
    """Options of BM25."""

    k1: float = Field(default=1.5, ge=0, description="term-frequency saturation; Pyserini (and papers that use it): 0.9")
    b: float = Field(default=0.75, ge=0, le=1, description="length normalization; Pyserini: 0.4")
    stemmer: str | None = Field(default="english", description="Snowball stemmer, e.g. english, porter; null for none")
    stopwords: Literal["en"] | None = Field(default="en", description="stopwords: bm25s' English list, or null for none")
    tokens: Literal["normalized", "bm25s"] = Field(
        default="normalized",
        description="normalized: query and passages in one Unicode form; unspaced scripts and Korean as character bigrams; C++, "
        "C# and .NET as words. bm25s: the tokens of bm25s, to reproduce published rows",
    )
    statistics: Literal["candidates", "corpus"] | None = Field(
        default=None,
        description="where document frequencies and the mean length come from: candidates, the passages to rank, or corpus, the "
        "whole corpus; null: candidates if a question brings its own, else corpus",
    )

    @property
    def pattern(self) -> str:
        """Return the regular expression of a word."""
        return BM25S if self.tokens == "bm25s" else WORDS

    def among_candidates(self, query: Query) -> bool:
        """Return whether term statistics are computed over the query's candidates instead of the whole corpus."""
        if self.statistics is None:
            return query.candidates is not None or query.document_id is not None
        return self.statistics == "candidates"


def library() -> Any:
    """Import bm25s without letting it import JAX.

    If JAX is installed, bm25s imports it, and JAX takes three quarters of an accelerator's memory until the process ends.
    It is not needed here, so it is hidden from bm25s.

    Raises:
        ImportError: bm25s is not installed.
    """
    hidden = "bm25s" not in sys.modules and "jax" not in sys.modules
    if hidden:
        sys.modules["jax"] = None  # type: ignore[assignment]
    try:
        return import_module("bm25s")
    finally:
        if hidden:
            del sys.modules["jax"]


def tokenize(texts: Iterable[str], config: BM25Config, *, ids: bool) -> Any:
    """Split texts into lower-case stemmed words without stopwords.

    Returns:
        Ids and vocabulary if `ids` is true, else one list of strings per text.
    """
    try:
        import Stemmer
    except ImportError as error:
        raise MissingPackage(error.name or "PyStemmer", "retrieval", "BM25") from error
    if config.stemmer is not None and config.stemmer not in Stemmer.algorithms():
        raise UserError(
            f"PyStemmer has no stemmer {config.stemmer!r}",
            code="unknown-stemmer",
            where="bm25: stemmer",
            try_this="one of " + ", ".join(Stemmer.algorithms()),
        )
    tokens = numbered(
        texts if config.tokens == "bm25s" else map(one_form, texts),
        config.pattern,
        STOPWORDS if config.stopwords else frozenset(),
        Stemmer.Stemmer(config.stemmer).stemWords if config.stemmer else None,
    )
    if ids:
        return tokens
    words = list(tokens.vocab)
    return [[words[number] for number in text] for text in tokens.ids]


Numbers = NDArray[np.int64]


def lucene_scores(frequencies: Numbers, lengths: Numbers, repeated: Numbers, k1: float, b: float) -> NDArray[np.float64]:
    """Compute BM25 scores of documents, with statistics over these documents.

    Args:
        frequencies: Number of occurrences of each term in each document, shape (terms, documents).
        lengths: Number of words of each document, shape (documents,).
        repeated: Number of occurrences of each term in the query, shape (terms,).
        k1, b: As in `BM25Config`.

    Returns:
        Scores, shape (documents,); 0 for a document without any of the terms. Equal documents have equal scores in any
        order of terms and documents.
    """
    documents = len(lengths)
    scores = np.zeros(documents)
    if not documents or not lengths.any():
        return scores
    holders = (frequencies > 0).sum(axis=1)
    idf = np.log1p((documents - holders + 0.5) / (holders + 0.5))
    damped = frequencies + k1 * (1 - b + b * lengths / lengths.mean())
    saturation = np.divide(frequencies, damped, out=np.zeros(frequencies.shape), where=frequencies > 0)
    for summands in np.sort((repeated * idf)[:, None] * saturation, axis=0):
        scores += summands
    return comparable(scores)


KEPT_WORDS = 50_000_000
"""Maximum number of cached words of candidates, 4 bytes each; beyond that, candidates are tokenized again."""


class CandidateWords:
    """Cache of the tokenized words of passages that occur as candidates.

    Args:
        config: Options.
        corpus: The passages.
    """

    def __init__(self, config: BM25Config, corpus: Corpus) -> None:
        self._config, self._corpus = config, corpus
        self._vocabulary: dict[str, int] = {}
        self._ids: dict[int, NDArray[np.int32]] = {}
        self._count = 0

    def scores(self, words: Sequence[str], rows: Rows) -> NDArray[np.float64]:
        """Compute BM25 scores of some passages, with statistics over these passages: shape (rows,).

        Args:
            words: Words of the query, from `tokenize`.
            rows: Rows of the passages in the corpus, at least one.
        """
        documents = self._documents(rows.tolist())
        lengths = np.fromiter(map(len, documents), np.int64, len(documents))
        words_of_all = np.concatenate(documents)
        owners = np.repeat(np.arange(len(documents)), lengths)
        present = set(np.unique(words_of_all).tolist())
        repeated = Counter(number for word in words if (number := self._vocabulary.get(word)) in present)
        frequencies = [np.bincount(owners[words_of_all == number], minlength=len(documents)) for number in repeated]
        counts = np.array(list(repeated.values()), np.int64)
        terms = np.array(frequencies, np.int64).reshape(len(counts), len(documents))
        return lucene_scores(terms, lengths, counts, self._config.k1, self._config.b)

    def _documents(self, rows: Sequence[int]) -> list[NDArray[np.int32]]:
        if self._count > KEPT_WORDS:
            self._vocabulary, self._ids, self._count = {}, {}, 0
        if new := [row for row in dict.fromkeys(rows) if row not in self._ids]:
            number = self._vocabulary
            for row, words in zip(new, tokenize([self._corpus[row].full_text for row in new], self._config, ids=False), strict=True):
                self._ids[row] = np.fromiter((number.setdefault(word, len(number)) for word in words), np.int32, len(words))
                self._count += len(words)
        return [self._ids[row] for row in rows]


POSTING = 8
"""Bytes per posting: row and score."""


class BM25RetrieverConfig(BM25Config):
    """Options of BM25 over a corpus."""

    # Leaving out the default keeps the fingerprints of runs from before the option existed.
    engine: Literal["bm25s", "tantivy"] = Field(
        default="bm25s",
        exclude_if=lambda value: value == "bm25s",
        description="tantivy (extra `tantivy`): a smaller index and faster search with k1: 1.2 and b: 0.75 over the whole "
        "corpus; it rounds passage lengths, so rankings differ (`python -m perf.tantivy_engine`)",
    )

    @model_validator(mode="after")
    def _tantivy_can(self) -> BM25RetrieverConfig:
        fixed = (tantivy_engine.K1, tantivy_engine.B)
        if self.engine == "tantivy" and ((self.k1, self.b) != fixed or self.statistics == "candidates"):
            raise ValueError("engine: tantivy needs k1: {}, b: {} and statistics: corpus or null".format(*fixed))
        return self

    def preflight(self) -> None:
        """Check that the BM25 engine is installed."""
        super().preflight()
        if self.engine == "tantivy":
            tantivy_engine.library()


def bm25_work(config: BM25Config, lengths: Lengths) -> Work:
    """Estimate the disk space for building the index."""
    if isinstance(config, BM25RetrieverConfig) and config.engine == "tantivy":
        return unknown("the disk of a tantivy index")
    return index(Work(bytes=2 * lengths.corpus * lengths.passage * WORDS_PER_TOKEN * POSTING))


class WholeBM25:
    """Retriever role: BM25 with bm25s.

    Args:
        config: Options.
        services: Unused; BM25 has no randomness and needs no device.
    """

    def __init__(self, config: BM25Config, services: Services) -> None:
        self.config = config

    def index(self, corpus: Corpus, folder: Path | None = None) -> BM25Index:
        """Build the index, in memory or in `folder` with bounded memory; an existing index is memory-mapped."""
        if folder is None:
            return BM25Index(self.config, corpus, self._postings(corpus))
        built_once(folder, len(corpus), lambda target: self._build(corpus, target))
        return BM25Index(self.config, corpus, _open(folder))

    def texts(self, corpus: Corpus) -> Iterable[str]:
        """Return the indexed text of each passage."""
        return corpus.full_texts()

    def _postings(self, corpus: Corpus) -> Postings | None:
        tokens = tokenize(self.texts(corpus), self.config, ids=True)
        if not any(tokens.ids):
            # bm25s cannot index a corpus without terms, in which nothing can be found.
            return None
        try:
            model = library().BM25(method="lucene", k1=self.config.k1, b=self.config.b, backend="numpy")
        except ImportError as error:
            raise MissingPackage("bm25s", "retrieval", "BM25") from error
        model.index(tokens, create_empty_token=False, show_progress=False)
        made = model.scores
        return Postings(model.vocab_dict.get, made["indptr"], made["indices"], made["data"])

    def _build(self, corpus: Corpus, folder: Path) -> None:
        def split(texts: list[str]) -> Any:
            return tokenize(texts, self.config, ids=True)

        build(self.texts(corpus), split, self.config.k1, self.config.b, folder, lambda done: indexed_so_far(done, len(corpus)))


@register(
    "bm25",
    kind="retriever",
    summary="BM25 (Lucene's formula), with statistics of the question's own candidates or of the corpus",
    version=3,
    paper="Robertson and Zaragoza 2009; Lù 2024, BM25S (arXiv:2407.03618)",
    presets={"pyserini": {"k1": 0.9, "b": 0.4}},
    extra="retrieval",
    work=bm25_work,
)
class BM25(WholeBM25):
    """Retriever role: BM25 with the engine that the options select.

    Args:
        config: Options.
        services: Unused; BM25 has no randomness and needs no device.
    """

    def __init__(self, config: BM25RetrieverConfig, services: Services) -> None:
        super().__init__(config, services)
        self._tantivy = isinstance(config, BM25RetrieverConfig) and config.engine == "tantivy"

    def index(self, corpus: Corpus, folder: Path | None = None) -> Any:
        """Build the engine's index in memory or in `folder`, or open an existing one."""
        if not self._tantivy:
            return super().index(corpus, folder)

        def split(texts: Iterable[str]) -> Any:
            return tokenize(texts, self.config, ids=False)

        def build(target: Path | None) -> Any:
            return tantivy_engine.build(self.texts(corpus), split, target, lambda done: indexed_so_far(done, len(corpus)))

        if folder is None:
            return tantivy_engine.TantivyIndex(corpus, build(None), split)
        kept = built_once(folder, len(corpus), lambda target: build(target / "tantivy")) / "tantivy"
        return tantivy_engine.TantivyIndex(corpus, tantivy_engine.open_index(kept), split)


def _open(folder: Path) -> Postings | None:
    try:
        return open_postings(folder)
    except (OSError, ValueError) as error:
        raise UserError(
            f"the BM25 index cannot be read: {error}",
            code="unreadable-bm25-index",
            where=str(folder),
            try_this="delete this folder: it will be built again",
        ) from error


class BM25Index:
    """Index of a corpus with BM25 postings (None if the corpus has no terms)."""

    def __init__(self, config: BM25Config, corpus: Corpus, postings: Postings | None) -> None:
        self._config = config
        self._scope = Scope(corpus)
        self._postings = postings
        self._candidates = CandidateWords(config, corpus)

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """Rank the passages that share a term with each query."""
        if not queries:
            return []
        words = tokenize([query.text for query in queries], self._config, ids=False)
        return [self._rank(query, terms, k) for query, terms in zip(queries, words, strict=True)]

    def _rank(self, query: Query, words: list[str], k: int) -> Ranking:
        rows = self._scope.rows_for(query)
        if rows is not None and len(rows) and self._config.among_candidates(query):
            scores = self._candidates.scores(words, rows)
        else:
            scores = self.scores(words, rows)
        best = best_rows(scores, k, above=0.0)
        return self._scope.ranking(query, best if rows is None else rows[best], scores[best])

    def scores(self, words: Sequence[str], rows: Rows | None) -> NDArray[np.float64]:
        """Compute the scores of a query's words, with statistics over the whole corpus.

        Args:
            words: Words from `tokenize`; words that are not in the corpus are ignored.
            rows: The passages to score; None: all.

        Returns:
            One score per row, 0 for passages with none of the words.
        """
        scores = np.zeros(len(self._scope.corpus) if rows is None else len(rows))
        if self._postings is None or not len(scores):
            return scores
        for holders, values in self._postings.of(words):
            if rows is None:
                np.add.at(scores, holders, values.astype(np.float64))
            else:
                position = np.searchsorted(holders, rows)
                position[position == len(holders)] = 0
                scores += np.where(holders[position] == rows, values[position], 0)
        self._postings.release()
        return scores


class BM25RerankerConfig(BM25Config, PointwiseConfig):
    """Options of BM25, and the number of candidates to rerank."""


def _reranker_work(config: BM25RerankerConfig, lengths: Lengths) -> Work:
    """Estimate the disk space: that of the BM25 index if corpus statistics are used."""
    indexed = lengths.whole if config.statistics is None else config.statistics == "corpus"
    return _retriever_of(config).work(lengths) if indexed else Work()


def _retriever_of(config: BM25RerankerConfig) -> Component:
    return Component.of("bm25", config.model_dump(include=set(BM25Config.model_fields)))


@register(
    "bm25_reranker",
    kind="reranker",
    summary="reranks its candidates with BM25, with statistics of the candidates or of the corpus",
    version=3,
    paper="Robertson and Zaragoza 2009; Lù 2024, BM25S (arXiv:2407.03618)",
    presets={"pyserini": {"k1": 0.9, "b": 0.4}},
    extra="retrieval",
    work=_reranker_work,
)
class BM25Reranker(PointwiseReranker):
    """Reranker role: BM25; candidates that share no word with the query come last, in their order.

    Args:
        config: Options.
        services: Services, of which it uses the folder of indexes, shared with BM25 as a retriever.
    """

    def __init__(self, config: BM25RerankerConfig, services: Services) -> None:
        super().__init__(config.depth)
        self.config = config
        self._services = services
        self._retriever = _retriever_of(config)
        self._indexed: tuple[Corpus, BM25Index] | None = None
        self._candidates: tuple[Corpus, CandidateWords] | None = None

    def scores(self, query: Query, ids: Sequence[str], corpus: Corpus) -> NDArray[np.floating]:
        """Compute the BM25 scores of the candidates; 0 for candidates that share no word with the query."""
        if not ids:
            return np.zeros(0)
        words = tokenize([query.text], self.config, ids=False)[0]
        rows = np.array([corpus.row(identifier) for identifier in ids], dtype=np.int64)
        if not self.config.among_candidates(query):
            return self._whole(corpus).scores(words, rows)
        if self._candidates is None or self._candidates[0] is not corpus:
            self._candidates = corpus, CandidateWords(self.config, corpus)
        return self._candidates[1].scores(words, rows)

    def _whole(self, corpus: Corpus) -> BM25Index:
        """Open the index of the whole corpus once."""
        if self._indexed is None or self._indexed[0] is not corpus:
            folder = index_folder(self._retriever, corpus, self._services)
            self._indexed = corpus, cast(BM25Index, self._retriever.build(self._services).index(corpus, folder))
        return self._indexed[1]
