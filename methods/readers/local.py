"""Readers with a local model: causal, the pocket model, or an encoder–decoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from benchmarks.core.fingerprint import fingerprint
from benchmarks.schema import Passage, Query
from methods.api import FAILED, TRUNCATED, Answer, Call, Context, Services, Usage, kept
from methods.models.adapters import adapted, require_own_template
from methods.models.causal import NO_THINKING, CausalConfig, CausalModel, Generation, template_variables
from methods.models.decoding import Sampling
from methods.models.pocket import answer_prompt
from methods.models.reply import Completion, read
from methods.models.seq2seq import Seq2SeqConfig, Seq2SeqModel
from methods.models.thoughts import opening_of
from methods.models.weights import POCKET, beginning_hash, locate, weights_hash
from methods.readers.extract import Extract
from methods.readers.prompts import Instructions, ReadingOptions, answered, fit_middle, longest_prefix, prompt_tokens, reading_work
from methods.registry import ModelMethodConfig, register
from methods.work import Checkpoint, Lengths, Needs, Work, ask

LLAMA2_SYSTEM = "<<SYS>>"
EMPTY_SYSTEM = "<<SYS>>\n\n<</SYS>>\n\n"
"""Empty system block of RoG's Llama-2 prompts, which chat templates would omit."""
TOO_LONG = "the question alone is longer than the model's context"


class AdaptedConfig(CausalConfig, ModelMethodConfig):
    """Options of a local model with an optional PEFT adapter."""

    adapter: str | None = Field(
        None, description="a folder or hub id of a PEFT adapter for the model", exclude_if=lambda value: value is None
    )

    def preflight(self) -> None:
        """Check the model and the adapter."""
        super().preflight()
        if self.adapter is not None:
            locate(self.adapter)

    def needed_models(self) -> Needs | None:
        """Return the model and the adapter as requirements."""
        own = super().needed_models()
        return own + Needs((Checkpoint(self.adapter, adapter=True),)) if self.adapter and own else own

    def opened(self, device: str | None) -> CausalModel:
        """Load the model with its adapter."""
        model = CausalModel(self, device, own=self.adapter is not None)
        if self.adapter is not None:
            require_own_template(self.adapter, model.tokenizer, where="adapter")
            model.model = adapted(model.model, self.adapter, where="adapter").eval()
        return model

    @property
    def weights(self) -> str:
        """Return a hash of the weights of model and adapter."""
        own = weights_hash(self.model, self.revision)
        return own if self.adapter is None else fingerprint(own, weights_hash(self.adapter))


class CausalReaderConfig(ReadingOptions, AdaptedConfig):
    """Options of the local causal reader: model, instructions and generation."""

    chat_template: bool = Field(True, description="use the model's chat format, if it and the benchmark have one (ARK's code: false)")
    temperature: float = Field(0.0, ge=0, description="sampling temperature; 0: greedy (ARK's code: 0.1)")
    top_p: float = Field(1.0, gt=0, le=1, description="top-p (nucleus) sampling: probability mass to sample from (ARK's code: 0.9)")
    stop: tuple[str, ...] = Field((), description="texts at which an answer ends")
    template: dict[str, Any] = Field(
        default={}, description="variables of the chat template; {}: enable_thinking: false if the template knows it"
    )

    def preflight(self) -> None:
        """Check the model and the templates."""
        super().preflight()
        self.templates()


def _weights(config: CausalReaderConfig | Seq2SeqReaderConfig) -> str:
    weights = config.weights if isinstance(config, CausalReaderConfig) else weights_hash(config.model, config.revision)
    return f"{weights}-{config.templates()}{beginning_hash(config.model)}"


@register(
    "causal",
    kind="reader",
    summary="a local language model, asked for a short answer from numbered passages",
    version=2,
    presets={"rog": {"reading": "triples", "max_new_tokens": 512}},
    checkpoint_hash=_weights,
    work=lambda config, lengths: reading_work(config, lengths, config),
)
class CausalReader:
    """Reader role: generates answers with a local causal language model.

    Args:
        config: Options.
        services: Services: device, seed for sampling, and the benchmark's instructions.
        model: Loaded model that replaces the configured one.
    """

    _instructions: Instructions | None = None
    _sampling: Sampling | None = None
    _model: CausalModel | Seq2SeqModel
    _stop: tuple[str, ...] = ()
    _rule: Extract = "short"
    _variables: Mapping[str, Any] = {}

    def __init__(self, config: CausalReaderConfig, services: Services, model: CausalModel | None = None) -> None:
        self._instructions = Instructions(config, services.reading)
        longest = self._instructions.longest(config.max_new_tokens)
        self._model = model or config.model_copy(update={"max_new_tokens": longest}).opened(services.device)
        if not (config.chat_template and self._instructions.chat):
            self._model.tokenizer.chat_template = None
        self._stop = config.stop
        self._variables = template_variables(self._model.tokenizer, config.template, "template")
        # A short answer leaves no tokens for a thought.
        self._variables = self._variables or template_variables(self._model.tokenizer, NO_THINKING)
        if config.temperature:
            self._sampling = Sampling(config.temperature, config.top_p, seed=services.seed)
        # A few batches at a time, so that prompts of like length meet and a kill still loses little.
        self.batch_size = 2 * config.batch_size

    @property
    def device(self) -> str:
        """Return the device of the model."""
        return self._model.device

    def read(self, queries: Sequence[Query], contexts: Sequence[Context]) -> list[Answer]:
        """Return one answer per query; if even the question does not fit, the reason is under `notes["failed"]`.

        If the middle of a context was removed, this is recorded under `notes["truncated"]`.
        """
        fitted = [self._fitted(query.text, context.passages) for query, context in zip(queries, contexts, strict=True)]
        prompts = [item[0] for item in fitted if item is not None]
        written = iter(self._model.generate(prompts, sampling=self._sampling, stop=self._stop))
        return [
            Answer("", notes={FAILED: TOO_LONG}) if item is None else self._answer(next(written), context, *item)
            for item, context in zip(fitted, contexts, strict=True)
        ]

    def written(self, question: str, passages: Sequence[Passage]) -> str | None:
        """Build the prompt with as many passages as fit; None if the question alone is too long."""
        fitted = self._fitted(question, passages)
        return None if fitted is None else fitted[0]

    def _answer(self, generation: Generation, context: Context, prompt: str, notes: dict[str, object]) -> Answer:
        cost = (generation.prompt_tokens, generation.completion_tokens)
        raw = opening_of(prompt) + generation.text
        finish = "stop" if generation.ended else "length"
        content = read(Completion(raw, finish, *cost, self._model.config.model), max_tokens=self._model.config.max_new_tokens)
        lost = content.failed if raw.strip() else None  # a local model that writes nothing has answered nothing
        call = Call(
            "reader",
            "",
            kept(prompt),
            kept(content.text if lost is None else lost),
            *cost,
            generation.seconds,
            failed=lost is not None,
            thought=kept(content.thought),
            raw=kept(raw) if raw.strip() != content.text else "",
            finish_reason=finish,
            model=self._model.config.model,
        )
        usage = Usage(*cost, model_calls=1)
        if lost is not None:
            return Answer("", usage, {**notes, FAILED: lost}, (call,), raw)
        text = content.text if content.thought else raw  # without a thought its white space counts
        if self._instructions is not None:
            result = self._instructions.answer(text, context.passages, prompt)
        else:
            result = answered(text, self._rule, (), prompt)
        return Answer(result.text, usage, {**notes, **result.notes}, (call,), raw if raw.strip() != result.text else "")

    def _fitted(self, question: str, passages: Sequence[Passage]) -> tuple[str, dict[str, object]] | None:
        """Build the prompt with as much of the passages as fits, and notes; None if even the question does not fit.

        The question is never truncated.
        """
        if self._instructions is not None and self._instructions.middle:
            return self._without_middle(question, self._instructions.evidence(passages))
        if self._instructions is not None and self._instructions.triples:
            return self._without_last(question, passages)
        prompt = self._fit(question, passages)
        return None if prompt is None else (prompt, {})

    def _without_last(self, question: str, passages: Sequence[Passage]) -> tuple[str, dict[str, object]] | None:
        """Build the prompt with as many whole triples as fit; without any, the prompt for no retrieval."""
        kept = longest_prefix(len(passages), lambda count: self._length(question, passages[:count]) <= 0)
        if not kept and self._length(question, []) > 0:
            return None
        note: dict[str, object] = {TRUNCATED: {"unit": "lines", "kept": kept, "of": len(passages)}}
        return self._rendered(question, passages[:kept]), note if kept < len(passages) else {}

    def _without_middle(self, question: str, evidence: str) -> tuple[str, dict[str, object]] | None:
        """Build the prompt with the beginning and the end of the evidence."""
        encoded = self._model.tokenizer(evidence, add_special_tokens=False, return_offsets_mapping=True)
        spans = encoded["offset_mapping"]
        fitted = fit_middle(evidence, spans, lambda text: self._excess(self._prompt(question, text)), self._model.room)
        if fitted is None:
            return None
        text, kept = fitted
        note: dict[str, object] = {TRUNCATED: {"unit": "tokens", "kept": kept, "of": len(spans)}}
        return self._prompt(question, text), note if kept < len(spans) else {}

    def _fit(self, question: str, passages: Sequence[Passage]) -> str | None:
        """Build the prompt with as many passages as fit; if the first is too long, with its beginning."""
        kept = list(passages[: longest_prefix(len(passages), lambda count: self._length(question, passages[:count]) <= 0)])
        if not kept and passages:
            kept = self._cut(question, passages[0])
        return self._rendered(question, kept) if self._length(question, kept) <= 0 else None

    def _cut(self, question: str, passage: Passage) -> list[Passage]:
        """Truncate a passage to fit; [] if not one word fits."""
        words = passage.text.split()

        def short(count: int) -> list[Passage]:
            return [Passage(passage.id, passage.title, " ".join(words[:count]))] if count else []

        return short(longest_prefix(len(words), lambda count: self._length(question, short(count)) <= 0))

    def _rendered(self, question: str, passages: Sequence[Passage]) -> str:
        assert self._instructions is not None
        return self._prompt(question, self._instructions.evidence(passages))

    def _prompt(self, question: str, evidence: str) -> str:
        assert self._instructions is not None
        system, user = self._instructions.filled(question, evidence)
        if self._instructions.triples and not system and self._knows(LLAMA2_SYSTEM):
            user = EMPTY_SYSTEM + user
        return self._model.render(system, user, self._variables)

    def _knows(self, marker: str) -> bool:
        return marker in str(getattr(self._model.tokenizer, "chat_template", None) or "")

    def _length(self, question: str, passages: Sequence[Passage]) -> int:
        """Return the number of tokens by which the prompt is too long; at most 0 if it fits."""
        return self._excess(self._rendered(question, passages))

    def _excess(self, prompt: str) -> int:
        return len(self._model.encode(prompt)) - self._model.room


TRAINED_LENGTH = 424
"""Maximum prompt length in the pocket model's training; longer prompts work badly."""


class PocketReaderConfig(AdaptedConfig):
    """Options of the pocket reader."""

    model: str = Field(POCKET, description="`pocket`, the model that ships, or the folder of another training run")
    max_new_tokens: int = Field(24, ge=1, description="longest answer")
    max_prompt_tokens: int | None = Field(
        TRAINED_LENGTH, ge=16, description="longest prompt; if passages do not fit, the last ones are left out"
    )
    batch_size: int = Field(32, ge=1, description="prompts generated at once")


def _pocket_weights(config: PocketReaderConfig) -> str:
    # The format is part of what the reader computes.
    example = Passage("", "title", "text")
    return f"{config.weights}-{fingerprint(answer_prompt('question', [example]))}"


def _pocket_work(config: PocketReaderConfig, lengths: Lengths) -> Work:
    prompt = prompt_tokens(lambda question, passages: [answer_prompt(question, passages)], lengths, config, config.max_prompt_tokens)
    return ask(config, lengths.questions, prompt)


@register(
    "pocket",
    kind="reader",
    summary="the small language model that ships: reads worlds offline, on any machine",
    checkpoint_hash=_pocket_weights,
    work=_pocket_work,
)
class PocketReader(CausalReader):
    """Reader role: the shipped pocket model.

    Args:
        config: Options.
        services: Services; the device is used.
        model: As in `CausalReader`.
    """

    def __init__(self, config: PocketReaderConfig, services: Services, model: CausalModel | None = None) -> None:
        self._model = model or config.opened(services.device)
        self.batch_size = 2 * config.batch_size

    def _rendered(self, question: str, passages: Sequence[Passage]) -> str:
        return self._model.render("", answer_prompt(question, passages))


# T5's vocabulary has no line break: asked for a list of lines it writes one line, which evaluators that count lines see
# as a single answer.


class Seq2SeqReaderConfig(Seq2SeqConfig, ReadingOptions, ModelMethodConfig):
    """Options of the encoder–decoder reader: model and instructions."""

    max_prompt_tokens: int | None = Field(
        None, ge=16, description="longest prompt; null: the limit that the checkpoint was made for (T5: 512; RoG: 507)"
    )
    max_new_tokens: int = Field(32, ge=1, description="longest answer (GPR experiments: 128; RoG set none, so its library stopped at 20)")

    def preflight(self) -> None:
        """Check the model and the templates."""
        super().preflight()
        self.templates()


T5_PROMPT = 512
"""Assumed maximum prompt length in tokens for models that state none."""


@register(
    "seq2seq",
    kind="reader",
    summary="a local encoder-decoder model (Flan-T5), asked for a short answer from numbered passages",
    version=2,
    presets={"rog": {"reading": "triples", "max_prompt_tokens": 507, "max_new_tokens": 128}},
    checkpoint_hash=_weights,
    work=lambda config, lengths: reading_work(config, lengths, config, T5_PROMPT),
)
class Seq2SeqReader(CausalReader):
    """Reader role: generates answers greedily with a local encoder–decoder model.

    Args:
        config: Options.
        services: Services: device and the benchmark's instructions.
    """

    def __init__(self, config: Seq2SeqReaderConfig, services: Services) -> None:
        self._instructions = Instructions(config, services.reading)
        longest = self._instructions.longest(config.max_new_tokens)
        self._model = Seq2SeqModel(config.model_copy(update={"max_new_tokens": longest}), services.device)
        self.batch_size = 2 * config.batch_size
