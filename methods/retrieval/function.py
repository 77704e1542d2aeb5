"""A Python function as a retriever: `search(question, k)` returns the best passages, best first.

    # my_retriever.py                                      # experiment.yaml
    def search(question: str, k: int):                     plugins: [my_retriever.py]
        return my_index.search(question, k)                methods:
                                                             - {id: function_retriever, config: {call: "my_retriever:search"}}

`results.py` says what it may return. The function has an index of its own, or a parameter `passages`: the passages that it may
return, a sequence of objects with `id`, `title` and `text`. Without it, the function cannot be used if questions have candidates
of their own. It may be `async`, and receives `turns` and `id` if it has such parameters. The code is part of the run's
identity, so changed code is run again.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query
from methods.api import OUTSIDE, PARTIAL, Ranking, Services
from methods.apps.calls import Caller, FunctionConfig, resolve, turns_for
from methods.apps.results import Lookup, Texts, read_results
from methods.flow import trace
from methods.registry import register, shortened
from methods.retrieval.ranking import Scope
from methods.spending import charged
from methods.work import Lengths, Work, unknown

OFFERED = ("k", "passages", "turns", "id")
"""Keyword arguments of a search function."""


class FunctionRetrieverConfig(FunctionConfig):
    """Options of the retriever `function_retriever`."""

    concurrency: int = Field(
        1, ge=1, description="maximum concurrent calls; more than 1 for a function that waits for a server", exclude=True
    )
    lower_is_better: bool = Field(False, description="whether the function returns distances instead of similarities")

    @field_validator("call")
    @classmethod
    def _takes_k(cls, value: str) -> str:
        _length_by(resolve(value), value)
        return value


def _length_by(search: Callable[..., Any], name: str) -> bool:
    """Return whether the function takes k by position; otherwise by name.

    Raises:
        ValueError: It takes no k.
    """
    parameters = list(inspect.signature(search).parameters.values())
    positional = [item for item in parameters if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)]
    if any(item.kind is item.VAR_POSITIONAL for item in parameters) or (len(positional) > 1 and positional[1].name not in OFFERED):
        return True
    if any(item.name == "k" or item.kind is item.VAR_KEYWORD for item in parameters):
        return False
    raise ValueError(f"{name} takes no number of results: def search(question, k)")


def _work(config: FunctionRetrieverConfig, lengths: Lengths) -> Work:
    return unknown(f"what {config.call} takes")


@register(
    "function_retriever",
    kind="retriever",
    summary="your Python function: (question, k) -> ids, texts or documents, best first",
    config=FunctionRetrieverConfig,
    work=_work,
    needs=lambda config: None,
)
class FunctionRetriever:
    """Retriever role: calls a Python function once per question.

    Args:
        config: Options.
        services: Unused.
    """

    reads_turns = True

    def __init__(self, config: FunctionRetrieverConfig, services: Services) -> None:
        self._config = config

    def index(self, corpus: Corpus, folder: Path | None = None) -> FunctionIndex:
        """Prepare for calls; the function indexes its documents itself."""
        return FunctionIndex(self._config, corpus)


class FunctionIndex:
    """A search function and the corpus that its results are looked up in.

    Attributes:
        keeps_outside: Whether rankings may hold texts that match no passage of the corpus; set by a caller that can use them.
    """

    def __init__(self, config: FunctionRetrieverConfig, corpus: Corpus) -> None:
        search = resolve(config.call)
        self._config, self._corpus, self._scope = config, corpus, Scope(corpus)
        self._search = Caller(search, config, OFFERED)
        self._by_position = _length_by(search, config.call)
        self._slots = asyncio.Semaphore(config.concurrency)
        self._looking_up = asyncio.Lock()
        self.in_flight = config.concurrency
        self.keeps_outside = False

    async def retrieve_one(self, query: Query, k: int) -> Ranking:
        """Call the function with a question, and look up its results.

        Raises:
            UserError: A result has an unknown id, or the function cannot be used with these questions.
            TypeError, ValueError: The results have the wrong form.
        """
        rows = self._scope.rows_for(query)
        if rows is not None and "passages" not in self._search.accepts:
            raise UserError(
                "each question has its own passages, but the function does not accept passages",
                code="no-place-for-passages",
                where=self._config.call,
                try_this="add a parameter `passages`, or use `setting: corpus` to search all passages",
            )
        passages = self._corpus if rows is None else tuple(self._corpus[int(row)] for row in rows)
        offered = {"k": k, "passages": passages, "turns": turns_for(query, self._search), "id": query.id}
        names = self._search.accepts - ({"k"} if self._by_position else set())
        named = {name: offered[name] for name in names}
        with trace().during(waiting=1):
            await self._slots.acquire()
        try:
            async with charged(0.0, self._search.name):
                returned = await self._search(query.text, *([k] if self._by_position else []), **named)
        finally:
            self._slots.release()
        # The lookup takes time that other retrievers do not need, and an index of all texts may take long to build.
        with trace().during(waiting=1):
            async with self._looking_up:
                return await asyncio.to_thread(self._ranking, query, k, returned, passages)

    @cached_property
    def _whole(self) -> Texts:
        return Texts(self._corpus)

    def _ranking(self, query: Query, k: int, returned: Any, passages: Sequence[Passage]) -> Ranking:
        if passages is self._corpus:
            lookup = Lookup(self._config.call, self._corpus, None, lambda: self._whole)
        else:
            lookup = Lookup(self._config.call, self._corpus, frozenset(item.id for item in passages), cache(lambda: Texts(passages)))
        lower = self._config.lower_is_better
        scores: dict[str, float] = {}
        for rank, result in enumerate(read_results(returned, lower), 1):
            score = 1 / rank if result.score is None else -result.score if lower else result.score
            for name in lookup.of(result):
                scores.setdefault(name, score)
            if len(scores) >= k:
                break
        ids = tuple(scores)[:k]
        outside = {name: text for name, text in lookup.outside.items() if name in ids}
        if outside and not self.keeps_outside:
            raise UserError(
                f"the function returned a text that is in no passage of the corpus: {shortened(next(iter(outside.values())), 60)!r}",
                code="text-outside-corpus",
                where=self._config.call,
                try_this="name function_retriever as the method itself; other parts can only use passages of the corpus",
            )
        notes: dict[str, Any] = {OUTSIDE: outside} if outside else {}
        notes |= {PARTIAL: partial} if (partial := len(lookup.partial.intersection(ids))) else {}
        return Ranking(query.id, ids, tuple(scores[name] for name in ids), notes=notes)
