"""Use a checkpoint through an endpoint that continues token ids and returns log-probabilities (vLLM).

The tokenizer is loaded locally, so that an endpoint receives the token ids that local weights would receive, without the
server's chat template, BOS or truncation. To score a given text, a request repeats its prompt (`echo`) and generates nothing.
Calls are those of a `ChatModel`: limits, retries, cache and costs are shared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from benchmarks.core.errors import Broke, UserError
from benchmarks.core.fingerprint import fingerprint
from methods.api import Services, Usage
from methods.flow import ordered, run, together
from methods.models.causal import FALLBACK_LENGTH, CausalConfig, CausalModel, Generation, chat_text
from methods.models.chat import ChatModel
from methods.models.chat_config import ChatConfig
from methods.models.decoding import Decoder
from methods.models.endpoint import Messages
from methods.models.likelihood import Item, LabelScores, Likelihood, ScoringConfig, TextEncoder, label_scores
from methods.models.llm import check_llm, open_llm
from methods.models.local_llm import Choice, Conversations, LabelModel
from methods.models.pretrained import context_length, is_encoder_decoder, load_tokenizer
from methods.models.reply import Completion, Logprobs
from methods.models.weights import locate, weights_hash
from methods.registry import MethodConfig
from methods.work import Needs, Work, ask, encode, needs_of

TOP = 20
"""Number of alternative tokens whose log-probabilities are requested per position; vLLM's default maximum."""
_ID = "token_id:"
VLLM = "serve the checkpoint by vLLM (its /v1/completions), or leave the option endpoint out and load the weights here"


class ServedConfig(MethodConfig):
    """Base class of options of systems whose checkpoint can run behind a vLLM endpoint."""

    endpoint: ChatConfig | None = Field(
        None,
        description="an endpoint that serves the checkpoint and returns log-probabilities (vLLM); then only the tokenizer of "
        "`model` is loaded. null: load the model locally",
        exclude_if=lambda value: value is None,
    )

    @model_validator(mode="after")
    def _decides_nothing_else(self) -> ServedConfig:
        if self.endpoint is not None and {"max_tokens", "temperature"} & self.endpoint.model_fields_set:
            raise ValueError("endpoint must not set max_tokens or temperature, which the system decides")
        if self.endpoint is not None and self.endpoint.batch:
            raise ValueError("endpoint must not set batch: calls depend on earlier replies")
        return self

    probes: ClassVar[tuple[Literal["write", "score"], ...]] = ("write",)
    """Requests that `reach` tests: `write` (continue a prompt) and `score` (log-probabilities of a given text)."""

    @property
    def served(self) -> ChatConfig | None:
        """Return the endpoint's options with the system's limit on reply length; None if the model runs locally."""
        options: Any = self
        return self.endpoint and self.endpoint.model_copy(update={"max_tokens": options.max_new_tokens, "temperature": 0.0})

    def preflight(self) -> None:
        """Check the options as the base class does, and the endpoint's API key."""
        super().preflight()
        if self.endpoint is not None:
            check_llm(self.endpoint)

    def needed_models(self) -> Needs | None:
        """Return the endpoint, or the local model if no endpoint is set."""
        return needs_of(self.served or self)

    def reach(self, cache: Path | None) -> None:
        """Send one test request per kind in `probes` and check that log-probabilities come back; the replies are cached.

        Raises:
            Broke: The endpoint does not answer, or returns no log-probabilities of the tokens that were sent.
        """
        super().reach(cache)
        if self.endpoint is None:
            return
        model = ServedModel(self, Services(cache=cache), "preflight")
        for probe in self.probes:
            failed = run(model.write([0], most=1, top=TOP)).failed if probe == "write" else run(model.score([0], [0])).failed
            if failed is not None:
                raise Broke(
                    f"a test request to {probe} one token failed: {failed}",
                    code="endpoint-probe-failed",
                    where=f"{self.endpoint.url} {self.endpoint.model}",
                    try_this=VLLM,
                )


class ScorerConfig(ServedConfig, CausalConfig):
    """Options of a language model that scores given texts and never generates."""

    probes = ("score",)
    max_new_tokens: int = Field(1, ge=1, le=1, description="has no effect, because nothing is generated")

    @classmethod
    def of(cls, model: str, endpoint: ChatConfig | None, **options: Any) -> ScorerConfig:
        """Build the options for a model and an optional endpoint; other options keep their defaults."""
        return cls.model_validate({"model": model, "endpoint": endpoint, **options})

    def preflight(self) -> None:
        """Check the model's folder and the endpoint's key."""
        super().preflight()
        locate(self.model)

    def open(self, services: Services, role: str) -> CausalModel | ServedModel:
        """Load the model; if it is behind an endpoint, load only its tokenizer."""
        return CausalModel(self, services.device) if self.endpoint is None else ServedModel(self, services, role)

    def reach(self, cache: Path | None) -> None:
        """Check that the endpoint returns log-probabilities of given tokens; refuse encoder-decoder models."""
        if self.endpoint is not None and is_encoder_decoder(self.model, self.revision):
            raise UserError(
                f"an endpoint cannot score {self.model!r}, because it is an encoder-decoder model",
                code="served-encoder-decoder",
                where="endpoint",
                try_this="leave the option endpoint out and load the weights here",
            )
        super().reach(cache)

    @property
    def identity(self) -> str:
        """Return a hash that identifies the scorer: its local weights, or the served model's name and tokenizer."""
        if self.endpoint is None:
            return fingerprint(weights_hash(self.model, self.revision), self.dtype)
        return fingerprint(self.model, self.revision, self.endpoint.model_dump(mode="json"))


def scoring_work(config: ScorerConfig, texts: float, length: float) -> Work:
    """Estimate the work of scoring texts: local forward passes, or endpoint calls that generate nothing."""
    return encode(config, texts, length, causal=True) if config.endpoint is None else ask(config.served, texts, length, 0)


@dataclass(frozen=True, slots=True)
class Written:
    """A continuation generated by an endpoint.

    Attributes:
        generation: The continuation, in the type that local models return.
        logprobs: Log-probability of each of its tokens, in nats.
        last: The most likely token ids at the position of its last token, with their log-probabilities; empty if the
            endpoint wrote beyond the stop text.
        usage: Tokens and calls.
        failed: Reason why there is no continuation; None on success.
    """

    generation: Generation
    logprobs: tuple[float, ...]
    last: Mapping[int, float]
    usage: Usage
    failed: str | None = None


@dataclass(frozen=True, slots=True)
class Scored:
    """Log-probabilities that an endpoint returned for a given text.

    Attributes:
        logprobs: Log-probability of each of its tokens, in nats; () if the call failed.
        usage: Tokens and calls.
        failed: Reason why the text was not scored; None on success.
    """

    logprobs: tuple[float, ...]
    usage: Usage
    failed: str | None = None


class ServedModel:
    """A causal language model behind an endpoint, with its tokenizer loaded locally.

    Args:
        config: Options, with `model`, `revision`, `endpoint` and `max_new_tokens`.
        services: Services; only the reply cache is used.
        role: Name under which calls are counted and stored.

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
        self._length: int | None = None

    def render(self, system: str, user: str) -> str:
        """Format a system and a user message with the checkpoint's chat template."""
        return self.render_chat([{"role": "system", "content": system}, {"role": "user", "content": user}])

    def render_chat(self, messages: Messages, variables: Mapping[str, Any] | None = None) -> str:
        """Format a conversation with the checkpoint's chat template, ready to be continued."""
        return chat_text(self.tokenizer, messages, variables)

    def encode(self, prompt: str) -> list[int]:
        """Return a prompt's token ids, equal to those of a local `CausalModel`."""
        return self.text_encoder.prompts([prompt])[0]

    async def write(
        self, ids: Sequence[int], *, stop: Sequence[str] = (), top: int = 0, most: int | None = None, step: str = ""
    ) -> Written:
        """Generate a greedy continuation of a prompt.

        Args:
            ids: The prompt.
            stop: Texts at which a continuation ends.
            top: Number of alternative tokens per position whose log-probabilities are requested.
            most: Maximum tokens to generate; None for `max_new_tokens`.
            step: Name of the prompt, for the stored call.

        Raises:
            Broke: The endpoint does not return log-probabilities of token ids.
        """
        fields: dict[str, Any] = {"max_tokens": most or self.config.max_new_tokens, "logprobs": top, "skip_special_tokens": False}
        fields |= {"return_tokens_as_token_ids": True, **({"stop": list(stop)} if stop else {})}
        reply = await self._chat.resume(ids, fields, shown=str(self.tokenizer.decode(list(ids))), step=step)
        if reply.failed is not None:
            return Written(Generation("", reply.prompt_tokens, 0, reply.seconds, False), (), {}, reply.usage, reply.failed)
        logprobs = reply.logprobs
        if logprobs is None or not logprobs.tokens or not all(token.startswith(_ID) for token in (*logprobs.tokens, *logprobs.last)):
            raise self._silent()
        sent = [int(token.removeprefix(_ID)) for token in logprobs.tokens]
        ends = self._special & {sent[-1]} if reply.finish_reason == "stop" else set()
        text, tokens, _ = self._text.read(sent, list(ends), stop)
        values = tuple(value for value in logprobs.values[: len(tokens)] if value is not None)
        if len(values) < len(tokens) or (top and not logprobs.last):
            raise self._silent()
        last = {int(token.removeprefix(_ID)): value for token, value in logprobs.last.items()} if len(tokens) == len(sent) else {}
        ended = reply.finish_reason == "stop"
        made = Generation(text, reply.prompt_tokens, len(sent), reply.seconds, ended, tuple(tokens))
        return Written(made, values, last, reply.usage)

    async def score(self, ids: Sequence[int], target: Sequence[int], *, step: str = "") -> Scored:
        """Return the log-probability of each target token, given the prompt.

        Args:
            ids: The prompt, at least one token.
            target: The tokens after the prompt to score.
            step: Name of the prompt, for the stored call.

        Raises:
            Broke: The endpoint does not return the log-probability of each token of the target.
        """
        sent = [*ids, *target]
        fields: dict[str, Any] = {"max_tokens": 0, "echo": True, "logprobs": 1, "return_tokens_as_token_ids": True}
        named = tuple(f"{_ID}{token}" for token in sent)

        def of_target(completion: Completion) -> Completion:
            """Keep the target's log-probabilities if the tokens are those that were sent; a prompt's fill the cache."""
            logprobs = completion.logprobs
            if logprobs is None or logprobs.tokens[: len(named)] != named:
                return completion
            own = slice(len(ids), len(named))
            return replace(completion, text="", logprobs=Logprobs(logprobs.tokens[own], logprobs.values[own], {}))

        reply = await self._chat.resume(sent, fields, shown=str(self.tokenizer.decode(sent)), step=step, keep=of_target)
        if reply.failed is not None:
            return Scored((), reply.usage, reply.failed)
        logprobs = reply.logprobs
        if logprobs is None or not logprobs.tokens or not all(token.startswith(_ID) for token in logprobs.tokens):
            raise self._silent()
        if logprobs.tokens != named[len(ids) :]:
            raise self._silent("of the tokens that were sent")
        values = tuple(value for value in logprobs.values if value is not None)
        if len(values) < len(target):
            raise self._silent("of every token of the text to score")
        return Scored(values, reply.usage)

    def prompt_room(self, target: int) -> int:
        """Return the maximum prompt length in tokens if `target` more tokens follow; vLLM needs room for one extra token."""
        if self._length is None:
            self._length = context_length(self.config.model, self.config.revision) or FALLBACK_LENGTH
        return self._length - target - 1

    def logprobs(self, items: Sequence[Item], config: ScoringConfig) -> list[list[float]]:
        """Return the log-probability of each target token per item, like `CausalModel.logprobs`; `config` is ignored.

        Raises:
            ValueError: A prompt or a target is empty.
            Broke: As `score`, or a call failed.
        """
        if not all(ids and target for ids, target in items):
            raise ValueError("prompts and targets need at least one token")

        async def score(item: Item) -> list[float]:
            scored = await self.score(*item, step="score")
            if scored.failed is not None:
                raise Broke(
                    f"a text of {len(item[0]) + len(item[1]):,} tokens was not scored: {scored.failed}",
                    code="text-not-scored",
                    where=f"{self.config.endpoint.url} {self.config.endpoint.model}",
                    try_this="run the command again: the scores of other texts are kept",
                )
            return list(scored.logprobs)

        return ordered(score, items, self.in_flight)

    def _silent(self, what: str = "of token ids") -> UserError:
        return Broke(
            f"{self.config.endpoint.url} returns no log-probabilities {what}",
            code="no-token-logprobs",
            where=f"model {self.config.endpoint.model!r}",
            try_this=VLLM,
        )


class _ServedConversations(Conversations):
    def __init__(self, model: ServedModel) -> None:
        super().__init__()
        self.model = model


class ServedLabelModel(LabelModel):
    """A model behind an endpoint that scores a fixed set of labels, with one call per label.

    Args:
        config: Options of the scorer, with an endpoint.
        services: Services; only the reply cache is used.
        role: Name under which its calls are stored.
    """

    def __init__(self, config: ScorerConfig, services: Services, role: str) -> None:
        self._model = ServedModel(config, services, role)
        super().__init__(_ServedConversations(self._model), role, self._model.prompt_room(1), self._model.in_flight)

    async def scored(self, choice: Choice, messages: Messages, step: str) -> tuple[LabelScores | None, Usage]:
        """Return the scores of all labels, or None if a call failed, and the usage."""
        made = await together(*(self._model.score(choice.prompt, target, step=step) for target in choice.targets))
        usage = sum((item.usage for item in made), Usage())
        if any(item.failed is not None for item in made):
            return None, usage
        raw = [Likelihood.of(target, item.logprobs) for target, item in zip(choice.targets, made, strict=True)]
        return label_scores(choice.labels, raw), usage
