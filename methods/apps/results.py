"""Read what a user's search function returned, and find the passages that it means.

A result is an id, a text, an object with id, text and score as keys or attributes (documents of LangChain, LlamaIndex and
Haystack, passages of ragmeter), or a pair (result, score). The list is the ranking, best first; scores must agree with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from numbers import Integral
from typing import Any, SupportsFloat

from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus
from benchmarks.schema import Passage
from benchmarks.text_index import LEAST, TextIndex, outside, words
from methods.apps.reply import TEXTS, storable

_IDS = ("id", "node_id", "id_", "_id", "passage_id", "chunk_id", "doc_id", "docid", "document_id")
_SCORES = ("score", "relevance_score", "similarity", "distance")
_FORMS = "an id, a text, an object with id or text, or (one of these, score)"
SHORTEST = 3
"""Minimum words of a text that is found inside a passage; below `LEAST` words, only if it is in one passage."""
_NO_LISTS = (str, bytes, Mapping, set, frozenset)


@dataclass(frozen=True, slots=True)
class Result:
    """One result of a search.

    Attributes:
        names: Ids that it states, the most specific first.
        text: Its text, None if it states none.
        title: Its title, "" if it states none.
        score: Its score, None if it states none.
        bare: Whether names and text are the same string, which may be either.
    """

    names: tuple[str, ...]
    text: str | None = None
    title: str = ""
    score: float | None = None
    bare: bool = False


def read_results(returned: Any, lower_is_better: bool) -> list[Result]:
    """Parse the list that a search function returned.

    Raises:
        TypeError: It is not a list of results.
        ValueError: A score is missing or not finite, or the scores contradict the order.
    """
    if returned is None or isinstance(returned, _NO_LISTS) or not isinstance(returned, Iterable):
        raise TypeError(f"the function returned {type(returned).__name__}: return a list of results, best first")
    results = [_result(item) for item in returned]
    scores = [result.score for result in results]
    stated = [score for score in scores if score is not None]
    if stated and len(stated) < len(scores):
        raise ValueError(f"the function returned a score with {len(stated)} of {len(scores)} results: score all or none")
    wrong = next((pair for pair in pairwise(stated) if (pair[0] > pair[1] if lower_is_better else pair[0] < pair[1])), None)
    if wrong is not None:
        hint = "lower_is_better is set" if lower_is_better else "set lower_is_better if the scores are distances"
        raise ValueError(f"the function returned the score {wrong[0]:.6g} before {wrong[1]:.6g}: sort the results, best first ({hint})")
    return results


def _result(item: Any) -> Result:
    if isinstance(item, tuple):
        if len(item) != 2 or isinstance(item[1], str):
            raise TypeError(f"the function returned a tuple of {len(item)}: a result must be {_FORMS}")
        return replace(_result(item[0]), score=_score(item[1]))
    if isinstance(item, str):
        return Result((item,), item, bare=True)
    if _is_id(item):
        return Result((str(item),))
    inner = getattr(item, "node", item)  # LlamaIndex wraps a node with its score

    def field(name: str) -> Any:
        return inner.get(name) if isinstance(inner, Mapping) else getattr(inner, name, None)

    metadata = next((value for name in ("metadata", "meta") if isinstance(value := field(name), Mapping)), {})
    named = [*map(field, _IDS), *(metadata.get(name) for name in _IDS)]
    names = tuple(dict.fromkeys(str(value) for value in named if (isinstance(value, str) and value) or _is_id(value)))
    text = next((value for name in TEXTS if isinstance(value := field(name), str)), None)
    title = next((value for value in (field("title"), metadata.get("title")) if isinstance(value, str)), "")
    if text is None:
        names = (*names, title) if title else names
        if not names:
            raise TypeError(f"the function returned {type(item).__name__}: a result must be {_FORMS}")
    outer = item if inner is not item and not isinstance(inner, Mapping) else None
    scores = [getattr(outer, "score", None), *map(field, _SCORES)]
    score = next((value for value in scores if value is not None and not callable(value)), None)
    return Result(names, text, title, None if score is None else _score(score))


def _is_id(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _score(value: Any) -> float:
    number = float(value) if isinstance(value, SupportsFloat) and not isinstance(value, bool) else math.nan
    if not math.isfinite(number):
        raise ValueError(f"the function returned the score {value!r}: a score must be a finite number")
    return number


class Texts:
    """Passages by their text.

    Args:
        passages: The passages.
    """

    def __init__(self, passages: Sequence[Passage]) -> None:
        self._passages = passages
        self._equal: dict[int, list[str]] = {}
        for passage in passages:
            title, text = words(passage.title), words(passage.text)
            for whole in {tuple(text), (*title, *text)} - {()}:
                self._equal.setdefault(hash(whole), []).append(passage.id)

    @cached_property
    def _parts(self) -> TextIndex:
        return TextIndex(self._passages)

    @cached_property
    def _flat(self) -> dict[str, str]:
        return {passage.id: f" {' '.join(words(passage.full_text))} " for passage in self._passages}

    @cached_property
    def _titles(self) -> dict[tuple[str, ...], tuple[str, ...]]:
        titles: dict[tuple[str, ...], tuple[str, ...]] = {}
        for passage in self._passages:
            if own := tuple(words(passage.title)):
                titles[own] = (*titles.get(own, ()), passage.id)
        return titles

    def equal(self, text: str, title: str = "") -> tuple[str, ...]:
        """Return the passages with these words and this title; if there are none, those with these words."""
        own = words(text)
        titled = self._equal.get(hash((*words(title), *own)), ()) if title else ()
        return tuple(titled or self._equal.get(hash(tuple(own)), ()))

    def titled(self, title: str) -> tuple[str, ...]:
        """Return the passages with this title."""
        return self._titles.get(tuple(words(title)), ())

    def overlapping(self, text: str) -> tuple[str, ...]:
        """Return the passages that a text is a part of, or that it contains."""
        own = words(text)
        if len(own) >= LEAST:
            return self._parts.find(text)
        flat = f" {' '.join(own)} "
        return tuple(name for name, whole in self._flat.items() if flat in whole) if len(own) >= SHORTEST else ()


class Lookup:
    """Finds the passages that results mean, for one question.

    Args:
        where: Name of the function, for messages.
        corpus: The corpus.
        allowed: Ids of the passages that the question may use; None for the whole corpus.
        texts: Function that returns the texts of these passages.

    Attributes:
        partial: Passages that were found by a part of their text, or in a longer text.
        outside: Texts that match no passage, by id.
    """

    def __init__(self, where: str, corpus: Corpus, allowed: frozenset[str] | None, texts: Callable[[], Texts]) -> None:
        self._where, self._corpus, self._allowed, self._texts = where, corpus, allowed, texts
        self.partial: set[str] = set()
        self.outside: dict[str, str] = {}

    def of(self, result: Result) -> tuple[str, ...]:
        """Return the ids of the passages that a result means: by its id, text or title, or by a part of a text.

        A text that matches nothing gets an id of its own.

        Raises:
            UserError: The result states only an id, and no passage has it, or several do.
            ValueError: The question may not use the passage.
        """
        own = next((name for name in result.names if name in self._corpus), None)
        if own is not None:
            return self._permitted(own)
        # A document's name may also be an id of another index, so that an equal text is better evidence.
        if result.text is not None and not result.bare and (equal := self._texts().equal(result.text, result.title)):
            return equal
        documents = [ids for name in result.names if (ids := self._named(name))]
        if single := next((ids[0] for ids in documents if len(ids) == 1), None):
            return self._permitted(single)
        if result.bare and (equal := self._texts().equal(result.names[0])):
            return equal
        if result.text is None or result.bare:
            titled = [ids for name in result.names if len(ids := self._texts().titled(name)) == 1]
            if titled:
                return titled[0]
        if result.text is not None:
            number = len(words(result.text))
            parts = self._texts().overlapping(result.text)
            if parts and (number >= LEAST or len(parts) == 1):
                self.partial.update(parts)
                return parts
            # A short string that is nowhere in the corpus is more likely an id.
            if not result.bare or parts or (not documents and number >= LEAST):
                passage = outside(storable(result.text))
                self.outside[passage.id] = passage.text
                return (passage.id,)
        if documents:
            raise UserError(
                f"the function returned the document {result.names[0]!r}, which has {len(documents[0])} passages in this corpus",
                code="document-of-several-passages",
                where=self._where,
                try_this="return the text that was found, or load documents as one passage each (chunker: whole)",
            )
        raise UserError(
            f"the function returned {result.names[0]!r}, which is no id, text or title of this corpus (an id is {self._example()!r})",
            code="unknown-passage-id",
            where=self._where,
            try_this="return the texts that were found, as {'text': …}, or ids of the parameter `passages`",
        )

    def _named(self, name: str) -> tuple[str, ...]:
        """Return the passages of a document, or the passage that the dump knows by this id."""
        if passages := self._corpus.by_document.get(name):
            return passages
        native = self._corpus.by_native_id(name)
        return () if native is None else (native,)

    def _permitted(self, name: str) -> tuple[str, ...]:
        if self._allowed is not None and name not in self._allowed:
            raise ValueError(f"the function returned the passage {name}, which is not one of the `passages` of this question")
        return (name,)

    def _example(self) -> str:
        return self._corpus.ids[0] if len(self._corpus) else ""
