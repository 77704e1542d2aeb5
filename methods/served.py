"""A checkpoint whose weights are behind an endpoint that continues token ids and returns log-probabilities (vLLM).

The tokenizer is read here, so that an endpoint continues the token ids that local weights would read: no chat template, BOS
or cut of the server's own comes between. Calls are those of a `ChatModel`: limits, retries, cache and costs are shared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from benchmarks.core.errors import Broke, UserError
from methods.api import Services, Usage
from methods.flow import run
from methods.models.causal import Decoder, Generation, chat_text
from methods.models.chat import ChatModel
from methods.models.endpoint import ChatConfig
from methods.models.likelihood import TextEncoder
from methods.models.llm import check_llm, open_llm
from methods.models.weights import load_tokenizer
from methods.registry import MethodConfig
from methods.work import Needs, needs_of

TOP = 20
"""Tokens in the place of one whose log-probabilities are asked for; the most that vLLM returns by default."""
_ID = "token_id:"


class ServedConfig(MethodConfig):
    """Options of a system whose checkpoint may be behind an endpoint."""

    endpoint: ChatConfig | None = Field(
        None,
        description="an endpoint that serves the checkpoint and returns log-probabilities (vLLM); only the tokenizer of `model` is loaded. "
        "null: weights of this machine",
        exclude_if=lambda value: value is None,
    )

    @model_validator(mode="after")
    def _decides_nothing_else(self) -> ServedConfig:
        if self.endpoint is not None and {"max_tokens", "temperature"} & self.endpoint.model_fields_set:
            raise ValueError(
                "endpoint must not set max_tokens or temperature: the system decodes greedily up to its own option max_new_tokens"
            )
        if self.endpoint is not None and self.endpoint.batch:
            raise ValueError("endpoint must not set batch: calls depend on earlier replies")
        return self

    @property
    def served(self) -> ChatConfig | None:
        """The endpoint with the limit of the system's replies; None if weights of this machine are used."""
        options: Any = self
        return self.endpoint and self.endpoint.model_copy(update={"max_tokens": options.max_new_tokens, "temperature": 0.0})

    def preflight(self) -> None:
        """Check the endpoint's key, too."""
        super().preflight()
        if self.endpoint is not None:
            check_llm(self.endpoint)

    def needed_models(self) -> Needs | None:
        """Return the endpoint, or the model that must be there."""
        return needs_of(self.served or self)

    def reach(self, cache: Path | None) -> None:
        """Ask the endpoint for one token with its log-probability, unless replies of its model are kept."""
        super().reach(cache)
        if self.endpoint is not None and not holds(self.endpoint, cache):
            run(ServedModel(self, Services(), "preflight").write([0], most=1, top=TOP))


def holds(endpoint: ChatConfig, cache: Path | None) -> bool:
    """Tell whether a cache has replies of an endpoint's model."""
    from methods.models.reply_cache import shared

    return cache is not None and cache.exists() and shared(cache).holds(endpoint.model)


@dataclass(frozen=True, slots=True)
class Written:
    """Hold the continuation that an endpoint wrote.

    Attributes:
        generation: As local weights give it.
        logprobs: Of each of its tokens, in nats.
        last: The likeliest token ids in the place of its last token, with their log-probabilities; empty if the endpoint wrote
            beyond the text that ends a continuation.
        usage: What the call cost.
        failed: Why nothing was written.
    """

    generation: Generation
    logprobs: tuple[float, ...]
    last: Mapping[int, float]
    usage: Usage
    failed: str | None = None


class ServedModel:
    """The tokenizer of a checkpoint and the endpoint that serves it.

    Args:
        config: Options, with `model`, `revision`, `endpoint` and `max_new_tokens`.
        services: Of them the cache of replies.
        role: Under which name calls are counted and kept.

    Raises:
        UserError: The key is not set, or the tokenizer cannot be loaded.
    """

    def __init__(self, config: Any, services: Services, role: str) -> None:
        self.config = config
        self.tokenizer = load_tokenizer(config.model, config.revision)
        self.text_encoder = TextEncoder(self.tokenizer)
        self._text = Decoder(self.tokenizer)
        self._special = {number for number, token in self.tokenizer.added_tokens_decoder.items() if token.special}
        self._chat: ChatModel = open_llm(config.served, services, role=role)
        self.in_flight = self._chat.in_flight
        self.room: int | None = getattr(config, "max_prompt_tokens", None)

    def render(self, system: str, user: str) -> str:
        """Return the text of a prompt in the checkpoint's chat template."""
        return chat_text(self.tokenizer, [{"role": "system", "content": system}, {"role": "user", "content": user}])

    def encode(self, prompt: str) -> list[int]:
        """Return a prompt's token ids, as those of `CausalModel`."""
        return self.text_encoder.prompts([prompt])[0]

    async def write(
        self, ids: Sequence[int], *, stop: Sequence[str] = (), top: int = 0, most: int | None = None, step: str = ""
    ) -> Written:
        """Continue a prompt greedily.

        Args:
            ids: The prompt.
            stop: Texts at which a continuation ends.
            top: How many tokens in the place of each are asked for.
            most: Most tokens; None: as the options say.
            step: Which of its prompts a system asks.

        Raises:
            Broke: The endpoint does not return log-probabilities of token ids.
        """
        fields: dict[str, Any] = {"max_tokens": most or self.config.max_new_tokens, "logprobs": top, "skip_special_tokens": False}
        fields |= {"return_tokens_as_token_ids": True, **({"stop": list(stop)} if stop else {})}
        reply = await self._chat.resume(ids, fields, shown=str(self.tokenizer.decode(list(ids))), step=step)
        if reply.failed is not None:
            return Written(Generation("", reply.prompt_tokens, 0, reply.seconds, False), (), {}, reply.usage, reply.failed)
        stated = reply.logprobs
        if stated is None or not stated.tokens or not all(token.startswith(_ID) for token in (*stated.tokens, *stated.last)):
            raise self._silent()
        sent = [int(token.removeprefix(_ID)) for token in stated.tokens]
        ends = self._special & {sent[-1]} if reply.finish_reason == "stop" else set()
        text, tokens, _ = self._text.read(sent, list(ends), stop)
        values = tuple(value for value in stated.values[: len(tokens)] if value is not None)
        if len(values) < len(tokens) or (top and not stated.last):
            raise self._silent()
        last = {int(token.removeprefix(_ID)): value for token, value in stated.last.items()} if len(tokens) == len(sent) else {}
        ended = reply.finish_reason == "stop"
        made = Generation(text, reply.prompt_tokens, len(sent), reply.seconds, ended, tuple(tokens))
        return Written(made, values, last, reply.usage)

    def _silent(self) -> UserError:
        return Broke(
            f"{self.config.endpoint.url} returns no log-probabilities of token ids",
            code="no-token-logprobs",
            where=f"model {self.config.endpoint.model!r}",
            try_this="serve the checkpoint by vLLM (its /v1/completions), or leave the option endpoint out and load the weights here",
        )
