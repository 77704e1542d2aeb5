"""Find corpus passages in the texts that a system showed its model, so that retrieval metrics work for any system.

`benchmarks.text_index` says when a context and a passage match. A context that repeats the id of a passage of the corpus is that
passage. A context without a text is the passage or document that its id or URL names: a document of several passages is found only
by metrics of documents (`level=documents`). A context that matches nothing keeps its rank, under an id of its own content that no
gold names: leaving it out would move what follows up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import chain
from urllib.parse import unquote

from benchmarks import text_index
from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus
from benchmarks.own.library import DocumentNames
from benchmarks.schema import Passage, Question
from benchmarks.text_index import TextIndex
from methods.api import Evidence, Prediction, outside_of
from methods.record import Shown

_QUERY = re.compile("[?#]")
_HOST = re.compile(r"[a-z][a-z0-9+.-]*://([^/?#]*)", re.IGNORECASE)


def outside(context: Shown) -> Passage:
    """Make a passage from a retrieved context that is in no corpus; its id is a hash of its content, or of its name if it has no text."""
    name = context.url or context.id
    if context.text or not name:
        return text_index.outside(context.text, name)
    return replace(text_index.outside(name, name), text="", document_id=context.id or name)


class Matcher:
    """Maps the context texts that a system reports to passages of the corpus, for the questions of one benchmark.

    Args:
        corpus: The corpus to search for questions without candidates; indexed on first use.
    """

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus

    @cached_property
    def _whole(self) -> TextIndex:
        return TextIndex(self._corpus)

    def place(self, question: Question, prediction: Prediction) -> Prediction:
        """Match each reported context to corpus passages (`Shown.matched`); the matches become the evidence if the prediction
        lists none.
        """
        if prediction.contexts is None:
            return prediction
        allowed = None if question.candidates is None else [name for name in question.candidates if name in self._corpus]
        find: Callable[[str], tuple[str, ...]]
        find = TextIndex(self._corpus.get(allowed)).find if allowed is not None else lambda text: self._whole.find(text)
        known = self._corpus if allowed is None else frozenset(allowed)

        def matched(item: Shown) -> Shown:
            if item.id and item.id in known:
                return replace(item, matched=(item.id,))
            if item.text.strip() or not (item.id or item.url):
                return replace(item, matched=find(item.text))
            document, passages = self._named(item)
            passages = tuple(name for name in passages if name in known)
            item = replace(item, matched=passages if len(passages) == 1 else ())
            # The document's own name as the id, so that metrics of documents know it.
            return item if document in (None, item.id) else replace(item, id=document, url=item.url or item.id)

        contexts = tuple(map(matched, prediction.contexts))
        return replace(prediction, contexts=contexts, evidence=prediction.evidence or _ranked(contexts))

    @cached_property
    def _documents(self) -> DocumentNames:
        return DocumentNames(self._corpus.by_document)

    def _named(self, context: Shown) -> tuple[str | None, tuple[str, ...]]:
        """Return the document that a context without a text names, if any, and the passages that it may be."""
        for name in chain.from_iterable(map(_forms, filter(None, (context.id, context.url)))):
            if (native := self._corpus.by_native_id(name)) is not None:
                return None, (native,)
            with suppress(UserError):  # several documents fit
                if (document := self._documents.find(name)) is not None and _agrees(name, document):
                    return document, self._corpus.by_document[document]
        return None, ()


def _forms(name: str) -> Iterator[str]:
    """Yield the forms of a name or URL, from exact to tolerant: decoded, and without query, fragment and closing slash.

    A file may have these signs in its name (`C#.md`), and the pages of a site may differ only in the query.
    """
    bare = _QUERY.split(name)[0]
    yield from dict.fromkeys(form for form in (name, unquote(name), bare, unquote(bare), unquote(bare).rstrip("/")) if form)


def _agrees(name: str, document: str) -> bool:
    """Return whether a document that was found fits a name: URLs have the same host, and a name with a query needs a document with one."""
    hosts = {match[1].lower().removeprefix("www.") for url in (name, document) if (match := _HOST.match(url))}
    return len(hosts) < 2 and (not _QUERY.search(name) or _QUERY.search(document) is not None)


def _ranked(contexts: Sequence[Shown]) -> tuple[Evidence, ...]:
    """Return the passages of contexts in order of first occurrence; scores decrease with the rank."""
    ids = dict.fromkeys(name for item in contexts for name in (item.matched or (outside(item).id,)))
    return tuple(Evidence(name, 1 / rank) for rank, name in enumerate(ids, 1))


def outsiders(predictions: Iterable[Prediction]) -> dict[str, Passage]:
    """Collect the reported contexts and the retrieved texts that match no corpus passage, as passages by id."""
    known: dict[str, Passage] = {}
    for prediction in predictions:
        contexts = (outside(item) for item in prediction.contexts or () if not item.matched)
        known |= {passage.id: passage for passage in (*contexts, *outside_of(prediction.notes))}
    return known


def named(corpus: Corpus, predictions: Sequence[Prediction]) -> list[Passage]:
    """Return the passages that the predictions' evidence refers to: corpus passages, and contexts that match none."""
    ids = dict.fromkeys(item.id for prediction in predictions for item in prediction.evidence)
    others = outsiders(predictions)
    return [*corpus.get(name for name in ids if name in corpus), *(others[name] for name in ids if name in others)]


def reading(corpus: Corpus, predictions: Sequence[Prediction]) -> Callable[[str], Passage]:
    """Return a function that looks up an evidence id, in the corpus or among unmatched contexts, for metrics that read texts."""
    others = outsiders(predictions)
    return lambda name: others[name] if name in others else corpus.get([name])[0]
