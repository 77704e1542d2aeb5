"""Reading by a language model behind an OpenAI-compatible endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from benchmarks.schema import Query
from methods.api import FAILED, Answer, Context, Services, Usage
from methods.models.chat import ChatConfig, ChatModel, Messages, Reply
from methods.models.response_cache import shared
from methods.models.tokens import Estimate
from methods.readers.prompting import bare_answer, load_prompt, numbered, prompt_hash
from methods.registry import MethodConfig, register

CALL = "call"
"""Key in `notes`: the key of the call in the cache of replies, which is how a run's tape is cut."""
SCRIPTED = "scripted"
"""Key in `notes`: the name of the script, where one played the model."""


class ChatReaderConfig(ChatConfig, MethodConfig):
    """Options of the chat reader: the endpoint's and the prompts."""

    prompt: str | None = Field(None, description="a template file of one's own; null: the one that ships")
    closed_book_prompt: str | None = Field(None, description="the same, for questions that come without a passage")

    def preflight(self) -> None:
        """Check the key and the templates."""
        self.key()
        load_prompt(self.prompt, "passages")
        load_prompt(self.closed_book_prompt, "closed_book")

    def reach(self, cache: Path | None) -> None:
        """Make one short call to the endpoint, unless replies of this model are kept."""
        if cache is None or not cache.exists() or not shared(cache).holds(self.model):
            ChatModel(self, role="preflight").preflight()


@register(
    "chat",
    kind="reader",
    summary="any OpenAI-compatible endpoint, asked for a short answer from numbered passages",
    config=ChatReaderConfig,
    extra="llm",
    checkpoint_hash=lambda config: prompt_hash((config.prompt, "passages"), (config.closed_book_prompt, "closed_book")),
)
class ChatReader:
    """Reader that asks an endpoint.

    Args:
        config: Options.
        services: Of them the cache of replies. Not the seed: decoding is greedy unless a temperature is set, and
            endpoints differ in what a seed means.
    """

    def __init__(self, config: ChatReaderConfig, services: Services) -> None:
        self.config = config
        self._prompt = load_prompt(config.prompt, "passages")
        self._closed_book = load_prompt(config.closed_book_prompt, "closed_book")
        self._model = ChatModel(config, role="reader", cache=services.cache)
        self._notes_calls = services.cache is not None
        self.batch_size = 2 * config.concurrency

    def read(self, queries: Sequence[Query], contexts: Sequence[Context]) -> list[Answer]:
        """One answer per query; a question whose call failed for good has its reason under `notes["failed"]`.

        Raises:
            UserError: No further call could succeed (key, model, endpoint).
        """
        asked = [self._messages(query, context) for query, context in zip(queries, contexts, strict=True)]
        return [self._answer(reply) for reply in self._model.complete(asked)]

    def estimate(self, queries: Sequence[Query], contexts: Sequence[Context]) -> Estimate:
        """What reading these would take, without asking."""
        return self._model.estimate([self._messages(q, c) for q, c in zip(queries, contexts, strict=True)])

    def _messages(self, query: Query, context: Context) -> Messages:
        prompt = self._prompt if context.passages else self._closed_book
        system, user = prompt.filled(query.text, numbered(context.passages))
        messages = [{"role": "user", "content": user}]
        return [{"role": "system", "content": system}, *messages] if system else messages

    def _answer(self, reply: Reply) -> Answer:
        usage = Usage(
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            model_calls=reply.calls,
            cost_usd=reply.cost_usd,
        )
        notes = {CALL: reply.key} if self._notes_calls else {}
        if reply.scripted:
            notes[SCRIPTED] = reply.model
        if reply.failed is not None:
            return Answer("", usage, {**notes, FAILED: reply.failed})
        return Answer(bare_answer(reply.text), usage, notes)
