"""A language model as a program asks it: `await model.ask(messages)`, the same for an endpoint and for local weights.

The option `llm:` is an endpoint (`model: NAME, base_url: …`) or a model of this machine (`local: FOLDER or hub id`, with
a PEFT `adapter:` where there is one).
"""

from __future__ import annotations

import copy
import weakref
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag

from benchmarks.core.fingerprint import fingerprint
from methods.api import Call, kept
from methods.flow import Batcher, trace
from methods.models.chat import ChatModel, Reply, asked, reach_model, strict_schema
from methods.models.endpoint import ChatConfig, Messages
from methods.models.weights import locate, weights_hash

if TYPE_CHECKING:
    from methods.models.causal import CausalModel, Generation, Sampling


class LocalConfig(BaseModel):
    """Options of a language model of this machine that is asked as an endpoint is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    local: str = Field(description="a folder or hub id of a causal language model")
    revision: str | None = Field(None, description="revision of a hub id")
    adapter: str | None = Field(None, description="a folder or hub id of a PEFT adapter to put onto it")
    dtype: Literal["float32", "bfloat16", "float16", "auto"] | None = Field(
        None, description="null: float32 on CPU, the checkpoint's own elsewhere"
    )
    temperature: float = Field(0.0, ge=0, description="0: greedy; else tokens are drawn, by the prompt and the task's seed")
    top_p: float = Field(1.0, gt=0, le=1, description="share of probability that is drawn from")
    max_tokens: int = Field(64, ge=1, description="longest reply")
    stop: tuple[str, ...] = Field((), description="texts at which a reply ends")
    max_prompt_tokens: int | None = Field(None, ge=16, description="longest prompt; null: what the model has room for")
    batch_size: int = Field(8, ge=1, description="prompts generated at once", exclude=True)

    def usd(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Nothing: it runs here."""
        return 0.0


LLMConfig = ChatConfig | LocalConfig


class Model(Protocol):
    """What a program asks."""

    @property
    def in_flight(self) -> int:
        """Questions at once that keep it busy."""
        ...

    async def ask(self, messages: Messages, *, shape: type[BaseModel] | None = None, repetition: int = 0, step: str = "") -> Reply:
        """Reply to a conversation: see `ChatModel.ask`."""
        ...


def _kind(value: Any) -> str:
    local = "local" in value if isinstance(value, dict) else isinstance(value, LocalConfig)
    return "<local>" if local else "<endpoint>"


LLM = Annotated[Annotated[ChatConfig, Tag("<endpoint>")] | Annotated[LocalConfig, Tag("<local>")], Discriminator(_kind)]
"""The option `llm:`; the tags are no part of an option's place in a file (`first_error` leaves them out)."""


def defaults(*, temperature: float = 0.0, max_tokens: int = 64, stop: Sequence[str] = ()) -> BeforeValidator:
    """What a system's prompts need where the option does not say: `Annotated[LLM, defaults(max_tokens=256)]`."""

    def filled(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        options = {"temperature": temperature, "max_tokens": max_tokens, **value}
        if stop and _kind(value) == "<local>":
            options.setdefault("stop", tuple(stop))
        elif stop:
            options.setdefault("parameters", {"top_p": 1.0, "stop": list(stop)})
        return options

    return BeforeValidator(filled)


def check_llm(config: LLMConfig) -> None:
    """Check, without loading anything, that a model can be asked here.

    Raises:
        UserError: Its key is not set, or its folder is missing.
    """
    if isinstance(config, ChatConfig):
        config.key()
    else:
        locate(config.local)


def reach_llm(config: LLMConfig, cache: Path | None) -> None:
    """Make one short call to an endpoint, unless replies of its model are kept.

    Raises:
        Broke: It does not answer.
    """
    if isinstance(config, ChatConfig):
        reach_model(config, cache)


def llm_hash(config: LLMConfig) -> str:
    """Of the weights of a model of this machine; "" for an endpoint, whose name is all that is known."""
    if isinstance(config, ChatConfig):
        return ""
    adapter = weights_hash(config.adapter, None) if config.adapter else ""
    return fingerprint(weights_hash(config.local, config.revision), adapter)


def open_llm(config: LLMConfig, *, role: str, cache: Path | None = None, device: str | None = None, seed: int = 0) -> Model:
    """The model that an option names.

    Args:
        config: The option.
        role: Under which name calls are counted and kept.
        cache: File of cached replies of endpoints.
        device: Of a model of this machine; None chooses.
        seed: Of what such a model draws.

    Raises:
        UserError: The key is not set, or the model cannot be loaded.
        MissingPackage: A package that it needs is not installed.
    """
    if isinstance(config, ChatConfig):
        return ChatModel(config, role=role, cache=cache)
    return LocalModel(config, role=role, device=device, seed=seed)


# -- Local weights behind a batcher: loaded once for all that ask them --


@dataclass(frozen=True, slots=True)
class _Job:
    """A prompt, and how it is to be continued."""

    prompt: str
    max_tokens: int
    sampling: Sampling | None
    seed: int


class _Loaded:
    """A model in memory, with those who wait for it; whoever asks, prompts are generated together."""

    def __init__(self, config: LocalConfig, device: str | None) -> None:
        from methods.models.causal import CausalConfig, CausalModel

        self.model = CausalModel(
            CausalConfig(
                model=config.local,
                revision=config.revision,
                dtype=config.dtype,
                max_new_tokens=config.max_tokens,
                max_prompt_tokens=config.max_prompt_tokens,
                batch_size=config.batch_size,
            ),
            device,
        )
        if config.adapter is not None:
            from peft import PeftModel

            self.model.model = PeftModel.from_pretrained(self.model.model, locate(config.adapter)).merge_and_unload().eval()
        self.generate: Batcher[_Job, Generation] = Batcher(
            self._generate, 4 * config.batch_size, device=self.model.device, length=lambda job: len(job.prompt)
        )

    def with_room(self, max_tokens: int) -> CausalModel:
        """The same weights with another longest reply."""
        model = copy.copy(self.model)
        model.config = self.model.config.model_copy(update={"max_new_tokens": max_tokens})
        model.room = model._room()
        return model

    def _generate(self, jobs: list[_Job]) -> list[Generation]:
        groups: dict[tuple[int, Sampling | None], list[int]] = defaultdict(list)
        for number, job in enumerate(jobs):
            groups[job.max_tokens, job.sampling].append(number)
        results: dict[int, Generation] = {}
        for (max_tokens, sampling), numbers in groups.items():
            prompts = [jobs[number].prompt for number in numbers]
            seeds = [jobs[number].seed for number in numbers] if sampling else None
            made = self.with_room(max_tokens).generate(prompts, sampling=sampling, seeds=seeds)
            results.update(zip(numbers, made, strict=True))
        return [results[number] for number in range(len(jobs))]


_loaded: weakref.WeakValueDictionary[tuple[Any, ...], _Loaded] = weakref.WeakValueDictionary()


class LocalModel:
    """A language model of this machine, asked as an endpoint is.

    Args:
        config: Options; models of equal weights are loaded once in a process.
        role: Under which name calls are kept.
        device: "cpu", "cuda" …; None chooses.
        seed: Of what is drawn.

    Raises:
        UserError: The model cannot be loaded.
    """

    def __init__(self, config: LocalConfig, *, role: str = "chat", device: str | None = None, seed: int = 0) -> None:
        from methods.models.causal import Sampling

        self.config = config
        self.role = role
        key = (config.local, config.revision, config.adapter, config.dtype, config.max_prompt_tokens, config.batch_size, device)
        # Held by every model that uses it, and by nothing else.
        self._weights = _loaded[key] = _loaded.get(key) or _Loaded(config, device)
        self._room = self._weights.with_room(config.max_tokens).room
        self._seed = seed
        self._sampling = Sampling(config.temperature, config.top_p, seed=seed) if config.temperature else None
        self.in_flight = 8 * config.batch_size

    async def ask(self, messages: Messages, *, shape: type[BaseModel] | None = None, repetition: int = 0, step: str = "") -> Reply:
        """Reply to a conversation; one that does not fit fails and says so.

        JSON is asked for in the prompt. What is drawn depends on the conversation, the seed and the repetition alone.
        """
        if shape is not None:
            messages, _ = asked("prompt", messages, shape.__name__, strict_schema(shape))
        model = self._weights.model
        prompt = model.render_chat([dict(message) for message in messages])
        reply = await self._reply(prompt, len(model.encode(prompt)), repetition)
        text = "\n\n".join(f"{message['role']}: {message['content']}" for message in messages)
        answer = reply.text if reply.failed is None else reply.failed
        cost = (reply.prompt_tokens, reply.completion_tokens, reply.seconds)
        trace().calls.append(Call(self.role, step, kept(text), kept(answer), *cost, failed=reply.failed is not None))
        return reply

    async def _reply(self, prompt: str, tokens: int, repetition: int) -> Reply:
        if not 0 < tokens <= self._room:
            return Reply("", f"the prompt has {tokens} tokens, and {self.config.local} has room for {self._room}", calls=0)
        (seed,) = self._sampling.seeds([f"{repetition}\0{prompt}"]) if self._sampling else (0,)
        written = await self._weights.generate(_Job(prompt, self.config.max_tokens, self._sampling, seed))
        text = written.text
        for stop in self.config.stop:
            text = text.partition(stop)[0]
        failed = None if text.strip() else "the reply is empty"
        return Reply(
            text.strip(), failed, written.prompt_tokens, written.completion_tokens, seconds=written.seconds, model=self.config.local
        )
