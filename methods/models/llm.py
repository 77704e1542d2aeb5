"""Open language models for programs: `await model.ask(messages)`, the same for an endpoint, a local model and a script.

The option `llm:` is an endpoint (`model: NAME, base_url: …`), a local model (`local: FOLDER or hub id`, optionally with a
PEFT `adapter:`) or a script that knows the answers (`scripted: worlds/multihop:test`), for trials. All three share the
cache, limits and rate limiter of endpoints; they differ only in their `Backend`.
"""

from __future__ import annotations

import copy
import time
import weakref
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    model_serializer,
    model_validator,
)

from benchmarks.core.errors import Broke
from benchmarks.core.fingerprint import fingerprint
from benchmarks.core.models import FrozenModel
from benchmarks.core.plugins import Registry
from methods.api import Call, Services, Usage, kept
from methods.flow import Batcher, trace
from methods.models.chat_config import ChatConfig
from methods.models.counting import Counter, TokenCounter
from methods.models.endpoint import Fault, Messages
from methods.models.limits import Address, limiters
from methods.models.weights import SHIPPED, adapted, beginning_hash, check_adapter, is_encoder_decoder, locate, weights_hash

if TYPE_CHECKING:
    from methods.models.causal import CausalModel, Generation
    from methods.models.chat import ChatModel
    from methods.models.decoding import Sampling
    from methods.models.likelihood import LabelScores
    from methods.models.reply import Completion
    from methods.models.seq2seq import Seq2SeqModel


T = TypeVar("T")


class _Options(FrozenModel):
    """Options that local models and scripts share with endpoints."""

    temperature: float = Field(0.0, ge=0, description="0: greedy; otherwise tokens are sampled, seeded by the prompt and the task's seed")
    max_tokens: int = Field(64, ge=1, description="longest reply")

    @property
    def longest(self) -> int:
        """Return the longest reply in tokens, for estimates."""
        return self.max_tokens

    def usd(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return 0: local calls are free."""
        return 0.0


class LocalConfig(_Options):
    """Options of a local language model that is called like an endpoint."""

    local: str = Field(description="a folder or hub id of a causal language model, or of an encoder-decoder model (T5)")
    revision: str | None = Field(None, description="revision of a hub id")
    adapter: str | None = Field(
        None, description="a folder or hub id of a PEFT adapter for the model; owner/name/folder if the repository has several"
    )
    dtype: Literal["float32", "bfloat16", "float16", "auto"] | None = Field(
        None, description="null: float32 on CPU, the checkpoint's own elsewhere"
    )
    top_p: float = Field(1.0, gt=0, le=1, description="top-p (nucleus) sampling: probability mass to sample from")
    stop: tuple[str, ...] = Field((), description="texts at which a reply ends")
    template: dict[str, Any] = Field(
        default={},
        description="variables of the model's chat template (enable_thinking: true); {}: enable_thinking: false if the template knows it",
    )
    max_prompt_tokens: int | None = Field(None, ge=16, description="longest prompt; null: the model's own limit")
    batch_size: int = Field(8, ge=1, description="prompts generated at once", exclude=True)

    @model_serializer(mode="wrap")
    def _without_defaults(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out the option `template` if it is empty, because it was added later and runs keep their fingerprints."""
        values: dict[str, Any] = dump(self)
        return {name: value for name, value in values.items() if name != "template" or value}


class ScriptedConfig(_Options):
    """Options of a script that replaces a language model; results that use it are marked and never ranked."""

    scripted: str = Field(description="source of the facts that it can answer from: a benchmark of worlds, such as worlds/multihop:test")
    options: dict[str, Any] = Field(default={}, description="options of that benchmark, as in the experiment")
    reading: Literal["evidence", "memory"] = Field("evidence", description="evidence: it only answers from passages that contain the proof")
    corruption: float = Field(0.0, ge=0, le=1, description="share of its replies that are corrupted")
    seed: int = Field(0, description="seed that chooses the corrupted replies")

    @property
    def model(self) -> str:
        """Return the model name in its replies."""
        from methods.models.chat import SCRIPTED

        return SCRIPTED + self.scripted


LLMConfig = ChatConfig | LocalConfig | ScriptedConfig


def _kind(value: Any) -> str:
    for name, config in (("local", LocalConfig), ("scripted", ScriptedConfig)):
        if name in value if isinstance(value, dict) else isinstance(value, config):
            return f"<{name}>"
    return "<endpoint>"


LLM = Annotated[
    Annotated[ChatConfig, Tag("<endpoint>")] | Annotated[LocalConfig, Tag("<local>")] | Annotated[ScriptedConfig, Tag("<scripted>")],
    Discriminator(_kind),
]
"""Type of the option `llm:`; error messages leave out the tags (`first_error`)."""


def defaults(*, temperature: float = 0.0, max_tokens: int = 64, stop: Sequence[str] = ()) -> BeforeValidator:
    """Return a system's defaults for options of its model that are not set: `Annotated[LLM, defaults(max_tokens=256)]`."""

    def filled(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        options = {"temperature": temperature, "max_tokens": max_tokens, **value}
        if stop and _kind(value) == "<local>":
            options.setdefault("stop", tuple(stop))
        elif stop and _kind(value) == "<endpoint>":
            options.setdefault("parameters", {"top_p": 1.0, "stop": list(stop)})
        return options

    return BeforeValidator(filled)


class AskingConfig(BaseModel):
    """Base of options with a language model."""

    model_config = ConfigDict(hide_input_in_errors=True)  # a key put into the wrong field

    llm: LLM = Field(description="the model: `model:` at an endpoint, `local:` a local model, or `scripted:`, for trials")

    @model_validator(mode="before")
    @classmethod
    def _nested(cls, value: Any) -> Any:
        if isinstance(value, dict) and "llm" not in value and "model" in value and "model" not in cls.model_fields:
            raise ValueError("options of the language model belong under `llm:` (llm: {model: …, base_url: …})")
        return value

    def preflight(self) -> None:
        """Check that the model can be called here."""
        check_llm(self.llm)

    def reach(self, cache: Path | None) -> None:
        """Make one short call to an endpoint, unless replies of its model are cached."""
        reach_llm(self.llm, cache)


class MayAskConfig(BaseModel):
    """Base of options of a step that uses a language model only if the option `choice` is `llm`."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
    choice: ClassVar[str] = "by"

    llm: LLM | None = Field(None, description="the model")

    @model_validator(mode="after")
    def _has_a_model(self) -> Self:
        if getattr(self, self.choice) == "llm" and self.llm is None:
            raise ValueError(f"{self.choice}: llm needs llm: {{model: …}}")
        return self

    @property
    def active_llm(self) -> LLMConfig | None:
        """Return the options of the language model if it is used, else None."""
        return self.llm if getattr(self, self.choice) == "llm" else None


def check_llm(config: LLMConfig) -> None:
    """Check, without loading anything, that a model can be called here.

    Raises:
        UserError: Its key is not set, its folder is missing, or the script does not exist.
    """
    if isinstance(config, ChatConfig):
        config.key()
        config.filled("headers")
        config.filled("query")
    elif isinstance(config, LocalConfig):
        locate(config.local)
        if config.adapter is not None:
            locate(config.adapter)
            check_adapter(config.adapter, config.local, where="llm.adapter")
    else:
        SCRIPTS.get(config.scripted.partition("/")[0], where="scripted")


def reach_llm(config: LLMConfig, cache: Path | None) -> None:
    """Make one short call to an endpoint, unless replies of its model are cached.

    Raises:
        Broke: The endpoint does not answer.
    """
    if isinstance(config, ChatConfig):
        from methods.models.chat import reach_model

        reach_model(config, cache)


def chats(options: Any) -> list[ChatConfig]:
    """Return all endpoint models in options, at any depth."""
    if isinstance(options, ChatConfig):
        return [options]
    return [config for value in _inner(options).values() for config in chats(value)]


def unpriced(options: Any) -> list[str]:
    """Return the names of endpoint models and apps without a configured price, at any depth."""
    if getattr(options, "priced", None) is False:
        return [options.model if isinstance(options, ChatConfig) else options.served]
    return list(dict.fromkeys(name for value in _inner(options).values() for name in unpriced(value)))


def with_chats(options: T, change: Callable[[ChatConfig], ChatConfig]) -> T:
    """Apply a function to all endpoint models in options, at any depth; returns the same object if nothing changes."""
    if isinstance(options, ChatConfig):
        return change(options)  # type: ignore[return-value]
    inner = _inner(options)
    changed = {name: new for name, value in inner.items() if (new := with_chats(value, change)) is not value}
    if not changed:
        return options
    if isinstance(options, BaseModel):
        return options.model_copy(update=changed)
    every = {**inner, **changed}
    return every if isinstance(options, dict) else type(options)(every.values())  # type: ignore[call-arg, return-value]


def _inner(options: Any) -> dict[Any, Any]:
    """Return the values in options, by name or position."""
    if isinstance(options, BaseModel):
        return {name: getattr(options, name) for name in type(options).model_fields}
    if isinstance(options, dict):
        return options
    return dict(enumerate(options)) if isinstance(options, list | tuple) else {}


@contextmanager
def smallest_concurrency(options: Any) -> Iterator[list[str]]:
    """Context manager that limits each endpoint to the smallest `concurrency` set for it anywhere in the options.

    Otherwise the setting of a part that is not open yet would be ignored.

    Yields:
        A line about each endpoint with different values.
    """
    limits: dict[Address, set[int]] = defaultdict(set)
    for config in chats(options):
        limits[config.address].add(config.concurrency)
    with ExitStack() as stack:
        for address, values in limits.items():
            limiter = limiters(address)
            stack.callback(limiter.part, limiter.join(min(values)))
        yield [
            f"{address.model} at {address.url}: `concurrency` is stated as {' and '.join(map(str, sorted(values)))}; "
            f"{min(values)} counts for all parts"
            for address, values in limits.items()
            if len(values) > 1
        ]


def endpoints(options: Any) -> frozenset[str]:
    """Return all endpoint models in options as `URL MODEL`, at any depth."""
    return frozenset(f"{config.url} {config.model}" for config in chats(options))


def llm_name(config: LLMConfig) -> str:
    """Return a model's name for tables."""
    return config.local if isinstance(config, LocalConfig) else config.model


def llm_hash(config: LLMConfig) -> str:
    """Return the hash of a local model's weights; "" for endpoints and scripts."""
    if not isinstance(config, LocalConfig):
        return ""
    adapter = weights_hash(config.adapter, None) if config.adapter else ""
    return fingerprint(weights_hash(config.local, config.revision), adapter) + beginning_hash(config.local)


def asks_released(config: LLMConfig, prompt: str) -> bool:
    """Return whether a model uses the published prompt of this name by default.

    It does if it is a local model other than the shipped ones, or if its name at an endpoint is one of the prompt's
    checkpoints. Scripts only support ragmeter's prompts.
    """
    if isinstance(config, LocalConfig):
        return config.local not in SHIPPED
    from benchmarks.published_prompts import registry

    return isinstance(config, ChatConfig) and registry()[prompt].is_of(config.model)


def open_llm(config: LLMConfig, services: Services | None = None, *, role: str, thinks: bool = False, known: bool = False) -> ChatModel:
    """Open the language model that an option selects.

    Args:
        config: The option.
        services: Services, of which it uses the cache of replies, `replies` and `repeat`; for a local model, also device and seed.
        role: Name under which calls are counted and stored.
        thinks: Whether a local model thinks before it answers, if its template can switch that; `llm.template` takes
            precedence. Token limits are for short replies, so only protocols that contain the thought let it think.
        known: Whether its calls are known before the first reply, so that `batch: true` may send them in batches.

    Raises:
        UserError: The key is not set, or the model or the script's benchmark cannot be loaded.
        MissingPackage: A package that it needs is not installed.
    """
    from methods.models.chat import ChatModel

    services = services or Services()
    addressed: dict[str, Any] = {"role": role, "cache": services.cache, "replies": services.replies, "repeat": services.repeat}
    if isinstance(config, ChatConfig):
        return ChatModel(config, known=known, **addressed)
    backend = LocalBackend(config, services.device, services.seed, thinks) if isinstance(config, LocalConfig) else ScriptBackend(config)
    # Everything that determines a reply is part of its cache key; of the variables, only those that the template has.
    parameters = {**config.model_dump(mode="json", exclude={*_Options.model_fields, "template"}), "weights": llm_hash(config)}
    if isinstance(backend, LocalBackend) and backend.variables:
        parameters["template"] = backend.variables
    options = {
        "model": llm_name(config),
        "key_variable": None,
        "temperature": config.temperature,
        "max_tokens": config.max_tokens,
        "parameters": {**parameters, **({"draws": services.seed} if config.temperature else {})},
        # A script knows the unchanged text of our prompts, and the shape that each requests.
        "structured_output": "prompt" if isinstance(config, LocalConfig) else "json_schema",
        "concurrency": backend.together,
        "attempts": 1,
    }
    return ChatModel(ChatConfig.model_validate(options), backend=backend, **addressed)


class _Here:
    """A `Backend` in this process: it has no connections, and a fault affects only its own conversation."""

    connected = False
    charged = False

    async def close(self) -> None:
        """Do nothing, because no connection is open."""

    def hopeless(self, fault: Fault) -> bool:
        """Return False: a fault concerns only its own conversation."""
        return False

    async def error(self, fault: Fault) -> Broke:
        """Return the fault."""
        return Broke(fault.reason, code="model-fault")


KNOWN = 256
"""Number of conversations whose prompts are cached."""


@dataclass(frozen=True, slots=True)
class _WritingJob:
    """A prompt's token ids, the forced beginning of its continuation, and the options of the continuation."""

    prompt: tuple[int, ...]
    start: str
    max_tokens: int
    sampling: Sampling | None
    seed: int
    stop: tuple[str, ...] = ()


def started(messages: Sequence[Mapping[str, str]]) -> tuple[list[dict[str, str]], str]:
    """Split a conversation into its prompt and the beginning of the reply, which is a last message of the assistant.

    A local model continues from there; an endpoint treats such a message as a turn of its own.
    """
    turns = [dict(message) for message in messages]
    return (turns[:-1], turns[-1]["content"]) if turns and turns[-1]["role"] == "assistant" else (turns, "")


class Rendered(NamedTuple):
    """A conversation in the form that a model reads: text, token ids, and the forced beginning of a separate decoder.

    Without a separate decoder, text and ids contain the beginning of the reply, tokenized together with the prompt.
    """

    text: str
    ids: tuple[int, ...]
    start: str


class Conversations:
    """Renders conversations with a model's tokenizer, and caches their tokens.

    Attributes:
        model: Model that has the tokenizer and renders: a `CausalModel`, a `Seq2SeqModel` or a `ServedModel`.
        decodes: Whether a separate decoder writes the reply.
    """

    model: Any
    decodes = False

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Rendered] = {}

    def parts(self, messages: Sequence[Mapping[str, str]], variables: Mapping[str, Any] | None = None) -> Rendered:
        """Return a conversation in the form that the model reads, tokenized once for all users."""
        key = (*((message["role"], message["content"]) for message in messages), *map(repr, sorted((variables or {}).items())))
        if key not in self._known:
            if len(self._known) >= KNOWN:
                self._known.clear()
            turns, start = started(messages)
            text = self.model.render_chat(turns, variables) + ("" if self.decodes else start)
            self._known[key] = Rendered(text, tuple(self.model.encode(text)), start if self.decodes else "")
        return self._known[key]


class Loaded(Conversations):
    """A loaded local model shared by concurrent callers, whose prompts are batched together.

    Args:
        config: Options.
        device: "cpu", "cuda" …; None chooses.
        own: Load weights that the caller may change; an adapter always gets its own.
    """

    def __init__(self, config: LocalConfig, device: str | None, own: bool = False) -> None:
        from methods.models.causal import CausalConfig, CausalModel
        from methods.models.seq2seq import Seq2SeqConfig, Seq2SeqModel

        options = {
            "model": config.local,
            "revision": config.revision,
            "dtype": config.dtype,
            "max_new_tokens": config.max_tokens,
            "max_prompt_tokens": config.max_prompt_tokens,
            "batch_size": config.batch_size,
        }
        super().__init__()
        own = own or config.adapter is not None
        self.decodes = is_encoder_decoder(config.local, config.revision)
        self.model: CausalModel | Seq2SeqModel = (
            Seq2SeqModel(Seq2SeqConfig.model_validate(options), device, own=own)
            if self.decodes
            else CausalModel(CausalConfig.model_validate(options), device, own=own)
        )
        if config.adapter is not None:
            self.model.model = adapted(self.model.model, config.adapter, where="llm.adapter").eval()
        self.generate: Batcher[_WritingJob, Generation] = Batcher(
            self._generate, 4 * config.batch_size, device=self.model.device, length=lambda job: len(job.prompt)
        )

    def with_room(self, max_tokens: int) -> CausalModel | Seq2SeqModel:
        """Return a model with the same weights and another maximum length of replies."""
        model = copy.copy(self.model)
        model.config = self.model.config.model_copy(update={"max_new_tokens": max_tokens})
        model.room = model._room()
        return model

    def _generate(self, jobs: list[_WritingJob]) -> list[Generation]:
        groups: dict[tuple[int, Sampling | None, tuple[str, ...]], list[int]] = defaultdict(list)
        for number, job in enumerate(jobs):
            groups[job.max_tokens, job.sampling, job.stop].append(number)
        results: dict[int, Generation] = {}
        for (max_tokens, sampling, stop), numbers in groups.items():
            prompts = [jobs[number].prompt for number in numbers]
            starts: dict[str, Any] = {"starts": [jobs[number].start for number in numbers]} if self.decodes else {}
            seeds = [jobs[number].seed for number in numbers] if sampling else None
            model = self.with_room(max_tokens)
            made = model.generate(prompts, **starts, sampling=sampling, seeds=seeds, stop=stop)
            results.update(zip(numbers, made, strict=True))
        return [results[number] for number in range(len(jobs))]


_loaded: weakref.WeakValueDictionary[tuple[Any, ...], Loaded] = weakref.WeakValueDictionary()


def _weights(config: LocalConfig, device: str | None) -> Loaded:
    """Return the model that options name; it stays in memory as long as it has users."""
    key = (config.local, config.revision, config.adapter, config.dtype, config.max_prompt_tokens, config.batch_size, device)
    loaded = _loaded[key] = _loaded.get(key) or Loaded(config, device)
    return loaded


class OwnCounter:
    """A `Counter` that uses a model's own tokenizer and chat template."""

    def __init__(self, loaded: Conversations, variables: Mapping[str, Any] | None = None) -> None:
        self._loaded, self._model, self._variables = loaded, loaded.model, variables
        self.name = f"the tokenizer of {loaded.model.config.model}"

    @property
    def fingerprint(self) -> str:
        return fingerprint(self._model.tokenizer.backend_tokenizer.to_str(), self._model.tokenizer.chat_template)

    def count(self, messages: Sequence[Mapping[str, str]]) -> int:
        return len(self._loaded.parts(messages, self._variables).ids)

    def spans(self, text: str) -> list[tuple[int, int]]:
        spans = self._model.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        return [(start, end) for start, end in spans]

    @property
    def begin(self) -> int:
        return len(self._model.text_encoder.before)

    def first(self, text: str, tokens: int, special: bool = True) -> str:
        from methods.prompts import encoded

        tokenizer = self._model.tokenizer
        if special:
            return str(tokenizer.convert_tokens_to_string(tokenizer.tokenize(text)[:tokens]))
        return str(tokenizer.decode(encoded(tokenizer, [text])[0][:tokens], skip_special_tokens=True))

    def counts(self, texts: Sequence[str]) -> list[int]:
        return [len(ids) for ids in self._model.tokenizer(list(texts), add_special_tokens=False)["input_ids"]]


class LocalBackend(_Here):
    """`Backend` with a local language model.

    JSON is requested in the prompt. Samples depend only on the conversation, the seed and the repetition.

    Args:
        config: Options; models with equal weights are loaded once per process.
        device: "cpu", "cuda" …; None chooses.
        seed: Random seed of sampling.
        thinks: Whether a chat template may begin a thought; `llm.template` takes precedence.

    Raises:
        UserError: The model cannot be loaded, or its template does not know a variable.
    """

    url = "local"

    def __init__(self, config: LocalConfig, device: str | None = None, seed: int = 0, thinks: bool = True) -> None:
        from methods.models.causal import NO_THINKING, template_variables
        from methods.models.decoding import Sampling

        self.config = config
        self.weights = _weights(config, device)
        tokenizer = self.weights.model.tokenizer
        wanted = template_variables(tokenizer, config.template, "llm.template")
        self.variables = {} if thinks or wanted else template_variables(tokenizer, NO_THINKING)
        self.variables |= wanted
        self.counter: Counter = OwnCounter(self.weights, self.variables)
        self.room: int | None = self.weights.with_room(config.max_tokens).room
        self.together = 4 * config.batch_size
        self._sampling = Sampling(config.temperature, config.top_p, seed=seed) if config.temperature else None

    async def send(self, messages: list[dict[str, str]], extra: Mapping[str, Any], repetition: int) -> Completion:
        """Generate a reply; see `Backend.send`."""
        from methods.models.reply import Completion
        from methods.models.thoughts import opening_of

        prompt = self.weights.parts(messages, self.variables)
        (seed,) = self._sampling.seeds([f"{repetition}\0{prompt.text}{prompt.start}"]) if self._sampling else (0,)
        config = self.config
        written = await self.weights.generate(_WritingJob(prompt.ids, prompt.start, config.max_tokens, self._sampling, seed, config.stop))
        # Some templates begin the thought themselves; without the opening tag, an unfinished thought would not be detected.
        text = opening_of(prompt.text) + written.text
        finish = "stop" if written.ended else "length"
        return Completion(text, finish, written.prompt_tokens, written.completion_tokens, config.local, written.seconds)


@dataclass(frozen=True, slots=True)
class Choice:
    """A prompt's token ids, the labels, and the token ids of each label after that prompt."""

    prompt: tuple[int, ...]
    labels: tuple[str, ...]
    targets: tuple[tuple[int, ...], ...]


class LabelModel(ABC):
    """Base class of models that choose the most likely of several labels, so that no reply has to be parsed.

    Args:
        conversations: Renders and tokenizes conversations.
        role: Name under which its calls are stored.
        room: Longest prompt in tokens; None: any.
        in_flight: Maximum number of concurrent choices.

    Attributes:
        counter, room, in_flight: As in `ChatModel`.
    """

    def __init__(self, conversations: Conversations, role: str, room: int | None, in_flight: int) -> None:
        self.role, self.room, self.in_flight = role, room, in_flight
        self._conversations = conversations
        self.counter: Counter = OwnCounter(conversations)
        self._targets: dict[tuple[str, tuple[str, ...]], tuple[tuple[int, ...], ...]] = {}

    async def choose(self, messages: Messages, labels: Sequence[str], step: str = "") -> tuple[LabelScores | None, Usage]:
        """Return the log-probabilities of the labels as replies to a conversation (None if a call failed), and the usage.

        Args:
            messages: The conversation; a last message of the assistant is the beginning of the reply.
            labels: The labels, each with the space before it.
            step: Name of the program's prompt.
        """
        own = self._conversations
        prompt = own.parts(messages)
        key = prompt.start, tuple(labels)  # a decoder writes the start, too: it is the same before every label
        if key not in self._targets:
            self._targets[key] = tuple(tuple(own.model.text_encoder.target(prompt.start + label)) for label in labels)
        return await self.scored(Choice(prompt.ids, key[1], self._targets[key]), messages, step)

    @abstractmethod
    async def scored(self, choice: Choice, messages: Messages, step: str) -> tuple[LabelScores | None, Usage]:
        """Compute the labels' scores, record the calls, and return scores and usage."""


class LocalLabelModel(LabelModel):
    """Label model with a local language model.

    Args:
        config: Options; models with equal weights are loaded once per process.
        role: Name under which its calls are stored.
        device: "cpu", "cuda" …; None chooses.
    """

    def __init__(self, config: LocalConfig, *, role: str, device: str | None = None) -> None:
        self._weights = _weights(config, device)
        super().__init__(self._weights, role, self._weights.with_room(config.max_tokens).room, 8 * config.batch_size)
        # One batch is computed while other programs prepare their next prompts.
        self._score: Batcher[Choice, tuple[LabelScores, float]] = Batcher(
            self._scored, 4 * config.batch_size, device=self._weights.model.device, length=lambda choice: len(choice.prompt)
        )

    async def scored(self, choice: Choice, messages: Messages, step: str) -> tuple[LabelScores, Usage]:
        """Score the labels in batches with those of other prompts."""
        scores, seconds = await self._score(choice)
        usage = Usage(len(choice.prompt), 1, model_calls=1)
        text = kept("\n\n".join(f"{message['role']}: {message['content']}" for message in messages))
        trace().calls.append(Call(self.role, step, text, scores.best.strip(), usage.prompt_tokens, 1, seconds))
        return scores, usage

    def _scored(self, choices: list[Choice]) -> list[tuple[LabelScores, float]]:
        from methods.models.likelihood import Likelihood, ScoringConfig, label_scores

        began = time.perf_counter()
        items = [(choice.prompt, target) for choice in choices for target in choice.targets]
        # A short common prefix saves less than the cost of its separate pass and the masks.
        values = iter(self._weights.model.logprobs(items, ScoringConfig(smallest_prefix=64)))
        made = [label_scores(choice.labels, [Likelihood.of(target, next(values)) for target in choice.targets]) for choice in choices]
        seconds = (time.perf_counter() - began) / len(choices)
        return [(scores, seconds) for scores in made]


@dataclass(frozen=True)
class Script:
    """A registered script, which replaces a language model in trials.

    Attributes:
        id: The part of `scripted:` before the slash.
        open: Function from options to a function that replies to a conversation, or raises `Fault` if it has no reply.
    """

    id: str
    open: Callable[[ScriptedConfig], Callable[[Messages], Completion]]


SCRIPTS: Registry[Script] = Registry("script", "ragmeter.scripted", "ragmeter.scripts")


def register_script(identifier: str) -> Callable[[Callable[[ScriptedConfig], Callable[[Messages], Completion]]], Any]:
    """Register a script; decorates its `open` function."""

    def decorate(factory: Callable[[ScriptedConfig], Callable[[Messages], Completion]]) -> Any:
        SCRIPTS.add(Script(identifier, factory), factory.__module__)
        return factory

    return decorate


@lru_cache(maxsize=8)
def _open_script(options: str) -> Callable[[Messages], Completion]:
    config = ScriptedConfig.model_validate_json(options)
    return SCRIPTS.get(config.scripted.partition("/")[0], where="scripted").open(config)


class ScriptBackend(_Here):
    """`Backend` with a script.

    Raises:
        UserError: The script does not exist, or its benchmark cannot be loaded.
    """

    url = "scripted"
    charged = True
    room: int | None = None
    together = 32

    def __init__(self, config: ScriptedConfig) -> None:
        self.counter: Counter = TokenCounter()
        reply = _open_script(config.model_dump_json(exclude={"temperature", "max_tokens"}))
        self._reply: Batcher[Messages, Completion] = Batcher(lambda several: [reply(messages) for messages in several], self.together)

    async def send(self, messages: list[dict[str, str]], extra: Mapping[str, Any], repetition: int) -> Completion:
        """Return the script's reply; see `Backend.send`."""
        return await self._reply(messages)
