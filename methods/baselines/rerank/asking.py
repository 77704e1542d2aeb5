"""Base code of rerankers that call a language model to order a window of passages, or to choose the best of a few.

Every system here combines a strategy, a prompt and a parser of replies. An unusable reply leaves its passages in their
order, and is counted in the prediction's notes under the reranker's name: `calls`, and `fallbacks` by reason.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from benchmarks.core.fingerprint import fingerprint
from benchmarks.core.random import Draws
from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from methods.api import Ranking, Services, Usage
from methods.baselines.rerank.prompts import PROMPTS, Writer
from methods.baselines.rerank.replies import UNUSABLE, Order, order_of
from methods.baselines.rerank.strategies import bubblesort, bubblesort_calls, heapsort, heapsort_calls, window_calls, windows
from methods.flow import together
from methods.models.chat import ChatModel, Reply
from methods.models.llm import asks_released, llm_hash, open_llm
from methods.models.local_llm import LabelModel
from methods.prompts import OURS, Messages
from methods.registry import AskingMethodConfig
from methods.work import WORDS_PER_TOKEN, Lengths, Work, ask

FAILED, NO_ROOM = "failed", "no_room"
"""Reasons of a skipped comparison: no reply, or a prompt that is too long even with empty passages."""
VOTE_SEED = 929
"""Random seed of the displayed order and of ties between votes, as in the published code."""
OVERHEAD = 120
"""Assumed tokens of a prompt, without query and passages."""


class AskingRerankerConfig(AskingMethodConfig):
    """Options shared by all rerankers that call a language model."""

    depth: int | None = Field(None, ge=1, description="number of candidates to rerank; the rest follow in their order; null: all. SARK: 50")
    prompt: str | None = Field(
        None,
        description="`ours`; `published`, as the authors of the system published it; or a template file. null: published if the "
        "system's checkpoints were trained with it and the model is local or an endpoint with the name of a "
        "checkpoint, else ours",
    )
    context: int | None = Field(
        None, ge=64, description="maximum tokens of prompt and reply together, if the model's own limit is larger or unknown"
    )
    system: ClassVar[str]

    @property
    def template(self) -> str:
        """Return the name of the prompt template."""
        return self.system

    @property
    def chosen_prompt(self) -> str | None:
        """Return the option `prompt`, or the default for the selected model."""
        published = PROMPTS[self.template].published
        return self.prompt or (None if published and asks_released(self.llm, published) else OURS)

    def preflight(self) -> None:
        """Check the model and the template; download a published template."""
        super().preflight()
        PROMPTS[self.template].load(self.chosen_prompt)


def made_of(config: AskingRerankerConfig) -> str:
    """Return a hash of the model's weights and the template."""
    return fingerprint(llm_hash(config.llm), PROMPTS[config.template].hash(config.chosen_prompt))


@dataclass(slots=True)
class State:
    """Progress of one reranking: passages, calls and fallbacks.

    Attributes:
        query: The question's text.
        passages: All passages to rank, in their order.
        ids: Their ids.
        selected: Positions of the passages that the reader may receive; None for all.
        calls: Number of model calls.
        fallbacks: Number of replies that were unusable or needed repair, by reason.
        usage: Cost of the calls.
    """

    query: str
    passages: list[str]
    ids: Sequence[str]
    selected: Sequence[int] | None = None
    calls: int = 0
    fallbacks: Counter[str] = field(default_factory=Counter)
    usage: Usage = field(default_factory=Usage)

    def texts(self, positions: Sequence[int]) -> list[str]:
        """Return the texts of the passages at these positions."""
        return [self.passages[position] for position in positions]


class AskingReranker(ABC):
    """Base class of rerankers that call a language model.

    Args:
        config: Options.
        services: Services; reply cache, device and seed are used.
        name: Name under which calls are counted.
        template: The shipped prompt.
        limits: Maximum lengths of queries and passages: options of `Writer`.
        model: Model to use instead of the one in the options.
        thinks: Whether the reply format includes the model's reasoning.
    """

    def __init__(
        self,
        config: Any,
        services: Services,
        name: str,
        template: str,
        limits: dict[str, Any],
        model: LabelModel | None = None,
        thinks: bool = False,
    ) -> None:
        self.config, self.name = config, name
        self.model: ChatModel | LabelModel = model or open_llm(config.llm, services, role=name, thinks=thinks)
        self.in_flight = self.model.in_flight
        context = None if "context" in limits or config.context is None else config.context - config.llm.longest
        room = min((room for room in (self.model.room, context) if room is not None), default=None)
        self.writer = Writer(PROMPTS[template].load(config.chosen_prompt), self.model.counter, room, **limits)
        self.writer.require_room(("1", "2"))

    async def rerank_one(self, query: Query, ranking: Ranking, corpus: Corpus) -> Ranking:
        """Reorder the candidates; scores are negative ranks.

        Raises:
            Broke: All further calls would fail (key, model, endpoint).
        """
        ids = ranking.ids[: self.config.depth]
        state = State(query.text, [self.writer.shown(passage) for passage in corpus.get(ids)], ids)
        order = await self.order(state)
        result = (*(ids[position] for position in order), *ranking.ids[len(ids) :])
        fallbacks = {"fallbacks": dict(sorted(state.fallbacks.items()))} if state.fallbacks else {}
        note = {self.name: {"calls": state.calls, **fallbacks}}
        selected = None if state.selected is None else frozenset(ids[position] for position in state.selected)
        return Ranking(query.id, result, tuple(-float(rank) for rank in range(len(result))), state.usage, note, selected)

    @abstractmethod
    async def order(self, state: State) -> Sequence[int]:
        """Return all positions of the passages, best first."""

    async def reply(self, state: State, messages: Messages | None, step: str, *, raw: bool = False) -> Reply | None:
        """Call the model and return its reply (with `raw`, including the reasoning); None and a counted failure if there is
        none.
        """
        assert isinstance(self.model, ChatModel)
        if messages is None:
            state.fallbacks[NO_ROOM] += 1
            return None
        reply = await self.model.ask(messages, step=step, raw=raw)
        state.calls += reply.calls
        state.usage += reply.usage
        if reply.failed is not None:
            state.fallbacks[FAILED] += 1
            return None
        return reply


class WindowConfig(AskingRerankerConfig):
    """Options of rerankers with sliding windows."""

    window: int = Field(20, ge=2, description="passages per window")
    step: int = Field(10, ge=1, description="number of passages from the start of one window to the start of the next")
    passage_words: int | None = Field(300, ge=1, description="words shown per passage; null: all")

    @model_validator(mode="after")
    def _overlap(self) -> WindowConfig:
        if self.step >= self.window:
            raise ValueError(f"step must be below window ({self.window}): the best passages must reach the next window")
        return self


def windows_work(config: Any, lengths: Lengths) -> Work:
    """Estimate the work: one call per window."""
    n = lengths.ranked(config.depth)
    words = config.passage_words
    passage = lengths.passage if words is None else min(lengths.passage, words / WORDS_PER_TOKEN)
    prompt = OVERHEAD + 2 * lengths.question + min(n, config.window) * (passage + 4)
    return ask(config.llm, lengths.questions * window_calls(round(n), config.window, config.step), prompt)


class WindowReranker(AskingReranker):
    """Reranker that orders sliding windows from the end of the list to its start (RankGPT).

    Args:
        config: Options.
        services: As in `AskingReranker`.
        name: Name of the reranker and its template.
        tagged: Whether the order is in an answer tag.
        named: Number of passages that a reply must name; None for all.
        limits: As in `AskingReranker`.
    """

    def __init__(
        self, config: Any, services: Services, name: str, *, tagged: bool = False, named: int | None = None, **limits: Any
    ) -> None:
        super().__init__(config, services, name, name, {"plain_references": True, **limits}, thinks=tagged)
        self._tagged, self._named = tagged, named

    async def order(self, state: State) -> Sequence[int]:
        return await windows(len(state.ids), partial(self._sorted, state), self.config.window, self.config.step)

    async def _sorted(self, state: State, window: Sequence[int]) -> Sequence[int]:
        labels = [str(number) for number in range(1, len(window) + 1)]
        reply = await self.reply(state, self.writer(state.query, state.texts(window), labels), "window", raw=self._tagged)
        order = order_of(reply.text, len(window), tagged=self._tagged, named=self._named) if reply else Order(tuple(range(len(window))))
        if order.fault:
            state.fallbacks[order.fault] += 1
        return [window[position] for position in order.positions]


class ChoiceConfig(AskingRerankerConfig):
    """Options of rerankers that choose the best of a few passages."""

    sort: Literal["heapsort", "bubblesort"] = Field(
        "heapsort", description="heapsort needs the fewest calls; bubblesort always compares neighbors"
    )
    children: int = Field(3, ge=1, le=22, description="passages per comparison, minus one")
    k: int = Field(10, ge=1, description="number of passages to put into order; the others follow in their original order")
    votes: int = Field(
        1, ge=1, description="number of times that each comparison is repeated, each with another order of its passages; the majority wins"
    )


def choices_work(config: Any, lengths: Lengths, llm: Any = None, calls_each: int = 1) -> Work:
    """Estimate the work of all comparisons, with `calls_each` calls per comparison."""
    n = round(lengths.ranked(config.depth))
    calls = (heapsort_calls if config.sort == "heapsort" else bubblesort_calls)(n, config.children, config.k)
    query, passage = min(lengths.question, config.query_tokens), min(lengths.passage, config.passage_tokens)
    number = lengths.questions * calls * config.votes * calls_each
    return ask(llm or config.llm, number, OVERHEAD + query + min(n, config.children + 1) * (passage + 6))


class ChoiceReranker(AskingReranker):
    """Reranker that sorts by choosing the best of a few passages (Setwise); without a usable vote, the first one is chosen.

    Args:
        config: Options.
        services: As in `AskingReranker`.
        name: Name under which calls are counted.
        template: Shipped prompt.
        labels: Labels of the passages.
        named: Function from a reply and the number of passages to the one that it names, or None.
        shuffles: Whether to shuffle the passages even with a single vote.
        raw: Whether `named` gets replies including the reasoning.
        model: As in `AskingReranker`.
        limits: As in `AskingReranker`.
    """

    def __init__(
        self,
        config: Any,
        services: Services,
        name: str,
        template: str,
        labels: Sequence[str],
        named: Callable[[str, int], int | None],
        *,
        shuffles: bool = False,
        raw: bool = False,
        model: LabelModel | None = None,
        **limits: Any,
    ) -> None:
        super().__init__(config, services, name, template, limits, model, thinks=raw)
        self.labels, self._named, self._shuffles, self._raw = labels, named, shuffles or config.votes > 1, raw

    async def order(self, state: State) -> Sequence[int]:
        sort = heapsort if self.config.sort == "heapsort" else bubblesort
        return await sort(len(state.ids), partial(self._best, state), self.config.children, self.config.k)

    async def _best(self, state: State, members: Sequence[int]) -> int:
        if not self._shuffles:
            return await self.chosen(state, state.texts(members)) or 0
        draws = Draws(self.name, VOTE_SEED, state.query, *(state.ids[member] for member in members))
        orders = [list(range(len(members))) for _ in range(self.config.votes)]
        for order in orders:
            draws.shuffle(order)
        choices = await together(*(self.chosen(state, state.texts([members[place] for place in order])) for order in orders))
        votes = Counter(order[place] for order, place in zip(orders, choices, strict=True) if place is not None)
        most = max(votes.values(), default=0)
        return draws.pick(sorted(place for place, number in votes.items() if number == most)) if votes else 0

    async def chosen(self, state: State, texts: Sequence[str]) -> int | None:
        """Return the position of the best passage; None (counted) if no vote is usable."""
        reply = await self.reply(state, self.writer(state.query, texts, self.labels), "", raw=self._raw)
        place = self._named(reply.text, len(texts)) if reply else None
        if reply and place is None:
            state.fallbacks[UNUSABLE] += 1
        return place
