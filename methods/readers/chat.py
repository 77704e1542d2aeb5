"""Reader with a chat model: an endpoint, or a local model with its chat template."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from benchmarks.schema import Query
from methods.api import FAILED, TRUNCATED, Answer, Context, Services
from methods.models.chat import Reply
from methods.models.chat_config import ChatConfig
from methods.models.counting import PER_MESSAGE, Estimate, TokenCounter
from methods.models.endpoint import Messages
from methods.models.llm import llm_hash, open_llm
from methods.readers.prompts import Instructions, ReadingOptions, fit_middle, longest_prefix, reading_work
from methods.registry import AskingMethodConfig, register

CALL = "call"
"""Key in `notes`: the call's key in the reply cache, for exporting a run's replies."""


class ChatReaderConfig(ReadingOptions, AskingMethodConfig):
    """Options of the chat reader: the model and the instructions."""

    max_prompt_tokens: int | None = Field(
        None,
        ge=16,
        description="longest prompt, counted with the model's `tokenizer`. A longer context loses its middle, or its last "
        "triples. null: no limit for an endpoint, a local model's own limit",
    )

    def preflight(self) -> None:
        """Check the model and the templates."""
        super().preflight()
        self.templates()


def prompts_made_of(config: ChatReaderConfig) -> str:
    """Return a hash of the templates, a local model's weights, and the tokenizer by which prompts are truncated."""
    texts, llm = config.templates() + llm_hash(config.llm), config.llm
    if config.max_prompt_tokens is None or not isinstance(llm, ChatConfig) or llm.tokenizer is None:
        return texts
    # The tokenizer determines where prompts are cut, so it belongs to the hash.
    return f"{texts}-{TokenCounter(llm.tokenizer).fingerprint}"


@register(
    "chat",
    kind="reader",
    summary="any language model, at an endpoint or local, asked for a short answer from numbered passages",
    version=2,
    presets={"rog": {"reading": "triples", "llm": {"max_tokens": 512}}},
    checkpoint_hash=prompts_made_of,
    work=lambda config, lengths: reading_work(config, lengths, config.llm),
)
class ChatReader:
    """Reader role: asks a language model once per question.

    Args:
        config: Options.
        services: Services: reply cache, the benchmark's instructions, and for a local model device and seed. (Endpoints get no
            seed.)
    """

    def __init__(self, config: ChatReaderConfig, services: Services) -> None:
        self.config = config
        self._instructions = Instructions(config, services.reading)
        longest = config.llm.max_tokens and self._instructions.longest(config.llm.max_tokens)
        llm = config.llm.model_copy(update={"max_tokens": longest})
        # A short answer leaves no tokens for a thought: a local model does not think unless `llm.template` says otherwise.
        self._model = open_llm(llm, services, role="reader", known=True)
        limits = [limit for limit in (config.max_prompt_tokens, self._model.room) if limit is not None]
        self._longest_prompt = min(limits) if limits else None
        self._notes_calls = services.cache is not None
        self.waits = isinstance(llm, ChatConfig)
        self.batches = self._model.batches
        self.in_flight = self._model.in_flight

    async def read_one(self, query: Query, context: Context) -> Answer:
        """Return the answer; if the call failed permanently, the reason is under `notes["failed"]`.

        Raises:
            Broke: No further call could succeed (key, model, endpoint).
        """
        messages, notes = self._request(query, context)
        return self._answer(await self._model.ask(messages), notes, context, messages[-1]["content"])

    def estimate(self, queries: Sequence[Query], contexts: Sequence[Context]) -> Estimate:
        """Estimate the cost of answering these queries, without calling the model."""
        return self._model.estimate([self._request(q, c)[0] for q, c in zip(queries, contexts, strict=True)])

    def _request(self, query: Query, context: Context) -> tuple[Messages, dict[str, object]]:
        """Build the conversation, and notes for the prediction."""
        evidence = self._instructions.evidence(context.passages)
        most = self._longest_prompt
        if most is None or self._model.counter.count(self._messages(query.text, evidence)) <= most:
            return self._messages(query.text, evidence), {}
        if self._instructions.triples:
            return self._without_last(query.text, context, most)
        spans = self._model.counter.spans(evidence)
        room = most - PER_MESSAGE

        def excess(text: str) -> int:
            return self._model.counter.count(self._messages(query.text, text)) - most

        # If even the question without passages is too long, it is sent as it is, and the endpoint may refuse it.
        text, kept = fit_middle(evidence, spans, excess, room) or ("", 0)
        return self._messages(query.text, text), {TRUNCATED: {"unit": "tokens", "kept": kept, "of": len(spans)}}

    def _without_last(self, question: str, context: Context, most: int) -> tuple[Messages, dict[str, object]]:
        """Build the conversation with as many triples as fit; without any, the prompt for no retrieval."""

        def messages(count: int) -> Messages:
            return self._messages(question, self._instructions.evidence(context.passages[:count]))

        of = len(context.passages)
        kept = longest_prefix(of, lambda count: self._model.counter.count(messages(count)) <= most)
        return messages(kept), {TRUNCATED: {"unit": "lines", "kept": kept, "of": of}}

    def _messages(self, question: str, evidence: str) -> Messages:
        system, user = self._instructions.filled(question, evidence)
        messages = [{"role": "user", "content": user}]
        return [{"role": "system", "content": system}, *messages] if system else messages

    def _answer(self, reply: Reply, cut: dict[str, object], context: Context, prompt: str) -> Answer:
        notes = {**cut, **({CALL: reply.key} if self._notes_calls else {})}
        if reply.failed is not None:
            return Answer("", reply.usage, {**notes, FAILED: reply.failed}, raw=reply.raw)
        result = self._instructions.answer(reply.text, context.passages, prompt)
        return Answer(result.text, reply.usage, {**notes, **result.notes}, raw=reply.raw if reply.raw != result.text else "")
