"""Call a local language model like an endpoint: it renders conversations, generates in batches, and chooses between labels."""

from __future__ import annotations

import copy
import time
import weakref
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from benchmarks.core.fingerprint import fingerprint
from methods.api import Call, Usage, kept
from methods.flow import Batcher, trace
from methods.models.adapters import adapted, require_own_template
from methods.models.counting import Counter
from methods.models.endpoint import Messages
from methods.models.in_process import InProcessBackend, InProcessOptions
from methods.models.pretrained import is_encoder_decoder

if TYPE_CHECKING:
    from methods.models.causal import CausalModel, Generation
    from methods.models.decoding import Sampling
    from methods.models.likelihood import LabelScores
    from methods.models.reply import Completion
    from methods.models.seq2seq import Seq2SeqModel


class LocalConfig(InProcessOptions):
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
            require_own_template(config.adapter, self.model.tokenizer, where="llm.adapter")
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


class LocalBackend(InProcessBackend):
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
