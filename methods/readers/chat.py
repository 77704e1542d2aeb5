"""Reading by a language model behind an OpenAI-compatible endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from benchmarks.schema import Query
from methods.api import FAILED, TRUNCATED, Answer, Context, Services
from methods.models.chat import ChatModel, Reply, reach_model
from methods.models.endpoint import PER_MESSAGE, ChatConfig, Estimate, Messages, TokenCounter
from methods.readers.prompts import Instructions, ReadingOptions, fit_middle, longest_prefix, reading_work
from methods.registry import MethodConfig, register
from methods.work import needs_of

CALL = "call"
"""Key in `notes`: the key of the call in the cache of replies, by which the replies of a run are exported."""
SCRIPTED = "scripted"
"""Key in `notes`: the name of the script, where one played the model."""


class ChatReaderConfig(ChatConfig, ReadingOptions, MethodConfig):
    """Options of the chat reader: the endpoint's and the instructions."""

    max_prompt_tokens: int | None = Field(
        None,
        ge=16,
        description="longest prompt, as `tokenizer` counts; a context beyond it loses its middle, one of triples its "
        "last ones; null: sent as it is",
    )

    def preflight(self) -> None:
        """Check the key and the templates."""
        self.key()
        self.templates()

    def reach(self, cache: Path | None) -> None:
        """Make one short call to the endpoint, unless replies of this model are kept."""
        reach_model(self, cache)


def _prompts(config: ChatReaderConfig) -> str:
    if config.max_prompt_tokens is None or config.tokenizer is None:
        return config.templates()
    # What cuts the prompts is part of what is computed.
    return f"{config.templates()}-{TokenCounter(config.tokenizer).fingerprint}"


@register(
    "chat",
    kind="reader",
    summary="any OpenAI-compatible endpoint, asked for a short answer from numbered passages",
    config=ChatReaderConfig,
    presets={"rog": {"reading": "triples", "max_tokens": 512}},
    extra="llm",
    checkpoint_hash=_prompts,
    work=lambda config, lengths: reading_work(config, lengths, config),
    needs=needs_of,
)
class ChatReader:
    """Reader that asks an endpoint.

    Args:
        config: Options.
        services: Of them the cache of replies and the benchmark's instructions. Not the seed: decoding is greedy
            unless a temperature is set, and endpoints differ in what a seed means.
    """

    def __init__(self, config: ChatReaderConfig, services: Services) -> None:
        self._instructions = Instructions(config, services.reading)
        longest = self._instructions.longest(config.max_tokens)
        self.config = config.model_copy(update={"max_tokens": longest})
        self._counter = TokenCounter(config.tokenizer)
        self._model = ChatModel(self.config, role="reader", cache=services.cache)
        self._notes_calls = services.cache is not None

    waits = True
    """Nothing is computed here."""

    @property
    def in_flight(self) -> int:
        """Questions at once that keep the endpoint busy."""
        return self._model.in_flight

    async def read_one(self, query: Query, context: Context) -> Answer:
        """The answer; a question whose call failed for good has its reason under `notes["failed"]`.

        Raises:
            Broke: No further call could succeed (key, model, endpoint).
        """
        messages, notes = self._request(query, context)
        return self._answer(await self._model.ask(messages), notes)

    def estimate(self, queries: Sequence[Query], contexts: Sequence[Context]) -> Estimate:
        """What reading these would take, without asking."""
        return self._model.estimate([self._request(q, c)[0] for q, c in zip(queries, contexts, strict=True)])

    def _request(self, query: Query, context: Context) -> tuple[Messages, dict[str, object]]:
        """The conversation, and what is to be noted of it."""
        evidence = self._instructions.evidence(context.passages)
        most = self.config.max_prompt_tokens
        if most is None or self._counter.count(self._messages(query.text, evidence)) <= most:
            return self._messages(query.text, evidence), {}
        if self._instructions.triples:
            return self._without_last(query.text, context, most)
        spans = self._counter.spans(evidence)
        room = most - PER_MESSAGE

        def excess(text: str) -> int:
            return self._counter.count(self._messages(query.text, text)) - most

        # A question that is too long by itself is sent: what the endpoint makes of it is the endpoint's.
        text, kept = fit_middle(evidence, spans, excess, room) or ("", 0)
        return self._messages(query.text, text), {TRUNCATED: {"unit": "tokens", "kept": kept, "of": len(spans)}}

    def _without_last(self, question: str, context: Context, most: int) -> tuple[Messages, dict[str, object]]:
        """The conversation with as many triples, best first, as fit; where not one does, as without retrieval."""

        def messages(count: int) -> Messages:
            return self._messages(question, self._instructions.evidence(context.passages[:count]))

        of = len(context.passages)
        kept = longest_prefix(of, lambda count: self._counter.count(messages(count)) <= most)
        return messages(kept), {TRUNCATED: {"unit": "lines", "kept": kept, "of": of}}

    def _messages(self, question: str, evidence: str) -> Messages:
        system, user = self._instructions.filled(question, evidence)
        messages = [{"role": "user", "content": user}]
        return [{"role": "system", "content": system}, *messages] if system else messages

    def _answer(self, reply: Reply, cut: dict[str, object]) -> Answer:
        notes = {**cut, **({CALL: reply.key} if self._notes_calls else {})}
        if reply.scripted:
            notes[SCRIPTED] = reply.model
        if reply.failed is not None:
            return Answer("", reply.usage, {**notes, FAILED: reply.failed})
        return Answer(self._instructions.answer(reply.text), reply.usage, notes)
