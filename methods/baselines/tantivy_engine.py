"""BM25 with tantivy, whose index is smaller and faster to build and search than that of bm25s.

Texts are tokenized as for bm25s. Tantivy fixes k1 = 1.2 and b = 0.75 and rounds the lengths of passages to a byte, so rankings
differ: `python -m perf.tantivy_engine` states the overlap of the first ten passages.

Source: github.com/quickwit-oss/tantivy; Lucene's formula, see `methods.baselines.bm25`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.core.errors import MissingPackage, UserError
from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from methods.api import Ranking
from methods.retrieval.ranking import Scope

K1, B = 1.2, 0.75
"""The constants of tantivy."""
WORDS, ROW, ANALYZER = "words", "row", "cut"
HEAP = 128_000_000
"""Bytes that tantivy buffers before it writes a segment."""
AT_ONCE = 4096
"""Number of passages tokenized at once."""
Tokenize = Callable[[Iterable[str]], Sequence[Sequence[str]]]


def library() -> Any:
    """Return the package tantivy.

    Raises:
        MissingPackage: tantivy is not installed.
    """
    try:
        import tantivy
    except ImportError as error:
        raise MissingPackage("tantivy", "tantivy", "engine: tantivy") from error
    return tantivy


def build(texts: Iterable[str], tokenize: Tokenize, folder: Path | None, advance: Callable[[int], None]) -> Any:
    """Write a new index, after removing files of an interrupted build.

    Args:
        texts: The passages, in row order.
        tokenize: Function that splits texts into words.
        folder: Output folder; None: in memory.
        advance: Function called with the number of passages written so far.
    """
    tantivy = library()
    schema = tantivy.SchemaBuilder()
    schema.add_text_field(WORDS, tokenizer_name=ANALYZER, index_option="freq")
    schema.add_unsigned_field(ROW, fast=True)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    made = tantivy.Index(schema.build(), path=None if folder is None else str(folder))
    made.register_tokenizer(ANALYZER, tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build())
    writer, row, rest = made.writer(HEAP, 1), 0, iter(texts)
    while batch := list(islice(rest, AT_ONCE)):
        for words in tokenize(batch):
            document = tantivy.Document()
            document.add_text(WORDS, " ".join(words))
            document.add_unsigned(ROW, row)
            writer.add_document(document)
            row += 1
        advance(row)
    writer.commit()
    writer.wait_merging_threads()
    made.reload()
    return made


def open_index(folder: Path) -> Any:
    """Open an index that `build` wrote.

    Raises:
        UserError: The index is damaged.
    """
    try:
        return library().Index.open(str(folder))
    except (OSError, ValueError) as error:
        raise UserError(
            f"the BM25 index cannot be read: {error}",
            code="unreadable-bm25-index",
            where=str(folder),
            try_this="delete the folder that contains this one: it will be built again",
        ) from error


class TantivyIndex:
    """Tantivy index of a corpus."""

    def __init__(self, corpus: Corpus, index: Any, tokenize: Tokenize) -> None:
        self._scope, self._tokenize = Scope(corpus), tokenize
        self._schema, self._searcher = index.schema, index.searcher()

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """Rank the passages that share a word with each query; ties keep the order of the corpus.

        Raises:
            UserError: A query has its own passages, but tantivy only has the statistics of the whole corpus.
        """
        for query in queries:
            if query.candidates is not None or query.document_id is not None:
                raise UserError(
                    "engine: tantivy searches the whole corpus, but this question has its own passages",
                    code="tantivy-candidates",
                    where=f"query {query.id}",
                    try_this="set engine: bm25s, or a setting that searches the corpus",
                )
        return [self._rank(query, words, k) for query, words in zip(queries, self._tokenize([q.text for q in queries]), strict=True)]

    def _rank(self, query: Query, words: Sequence[str], k: int) -> Ranking:
        tantivy = library()
        terms = [(tantivy.Occur.Should, tantivy.Query.term_query(self._schema, WORDS, word, "freq")) for word in words]
        if not terms or k < 1:
            return Ranking(query.id, (), ())
        disjunction = tantivy.Query.boolean_query(terms)
        limit = 2 * k
        hits = self._searcher.search(disjunction, limit, count=False).hits
        # All passages that tie with the k-th are needed, because tantivy's order of ties depends on its segments.
        while len(hits) == limit and hits[k - 1][0] == hits[-1][0]:
            limit *= 2
            hits = self._searcher.search(disjunction, limit, count=False).hits
        rows = self._searcher.fast_field_values(ROW, [address for _, address in hits])
        best = sorted(zip((-score for score, _ in hits), rows, strict=True))[:k]
        return self._scope.ranking(query, [row for _, row in best], [-score for score, _ in best])
