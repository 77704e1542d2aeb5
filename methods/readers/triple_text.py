"""Convert ranked triples to text passages for readers.

Formats of a triple:

    line        Jamaica location.country.languages_spoken Jamaican English     as the corpus has it
    words       Jamaica languages spoken Jamaican English.                     the relation's last part, as words
    statement   Velmar Dosk was a child of Ilra Venn.                          a sentence of the worlds' own if the relation
                is one of theirs, else as words

With `by_head`, all triples with the same head become one passage with the head as title, at the position of the first. Passages
that are not triples stay unchanged.

The pocket reader was trained on sentences of worlds and understands relation names poorly. F1 from gold triples, 300 questions
of all types about three validation worlds (python -m perf.triple_reading):

    form        one by one   by head
    line             0.055     0.135
    words            0.098     0.195
    statement        0.629     0.643
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Literal

from pydantic import Field

from benchmarks.corpus import Corpus
from benchmarks.graphs import TripleCorpus
from benchmarks.schema import Passage, Query, Triple
from benchmarks.worlds.text import mention_by_name, state
from benchmarks.worlds.world import Relation, relations
from methods.api import Context, Ranking, Services
from methods.registry import MethodConfig, register
from methods.work import free


class TripleTextConfig(MethodConfig):
    """Options for formatting triples as text."""

    form: Literal["line", "words", "statement"] = Field(
        "statement", description="format of a triple: line, words or statement (required by the pocket reader)"
    )
    by_head: bool = Field(True, description="merge all triples of one head entity into one passage with the entity as its title")


@register(
    "triple_text",
    kind="compressor",
    summary="triples as sentences, grouped by head entity: for readers that do not understand relation names",
    work=free,
)
class TripleText:
    """Compressor role: converts ranked triples to text without dropping any.

    Args:
        config: Options.
        services: Unused.
    """

    def __init__(self, config: TripleTextConfig, services: Services) -> None:
        self.config = config

    def compress(self, queries: Sequence[Query], rankings: Sequence[Ranking], corpus: Corpus, budget: int | None) -> list[Context]:
        """Return one context per query. `budget` is ignored; the reader drops the last passages if necessary."""
        return [Context(ranking.query_id, tuple(self._written(ranking.ids, corpus))) for ranking in rankings]

    def _written(self, identifiers: Sequence[str], corpus: Corpus) -> list[Passage]:
        if not isinstance(corpus, TripleCorpus):
            return corpus.get(identifiers)
        write = FORMS[self.config.form]
        triples = corpus.triples.take(corpus.rows_of(identifiers))
        passages = [Passage(item, "", write(triple)) for item, triple in zip(identifiers, triples, strict=True)]
        return _by_head(passages, triples) if self.config.by_head else passages


def as_line(triple: Triple) -> str:
    """Format a triple as head, relation and tail, separated by spaces."""
    return " ".join(triple)


def as_words(triple: Triple) -> str:
    """Format a triple with the last part of the relation as words: `Jamaica languages spoken Jamaican English.`"""
    head, relation, tail = triple
    return f"{head} {relation.rpartition('.')[2].replace('_', ' ')} {tail}."


def as_statement(triple: Triple) -> str:
    """Format a triple as a sentence in the style of generated worlds; for other relations, as `as_words`."""
    relation = _of_worlds().get(triple[1])
    return as_words(triple) if relation is None else state(relation.says[0], mention_by_name(triple[0]), triple[2])


FORMS: dict[str, Callable[[Triple], str]] = {"line": as_line, "words": as_words, "statement": as_statement}


@cache
def _of_worlds() -> dict[str, Relation]:
    return {relation.id: relation for relation in relations()}


def _by_head(passages: Sequence[Passage], triples: Sequence[Triple]) -> list[Passage]:
    """Merge triples into one passage per head, in order of first occurrence, with the first triple's id."""
    merged: dict[str, Passage] = {}
    for passage, (head, _, _) in zip(passages, triples, strict=True):
        known = merged.get(head)
        merged[head] = replace(passage, title=head) if known is None else replace(known, text=f"{known.text} {passage.text}")
    return list(merged.values())
