"""CLaRa as a reader: the base answers with documents' memory in its prompt, or with their text for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from benchmarks.errors import UserError
from benchmarks.fingerprint import fingerprint
from benchmarks.schema import Query
from methods.api import FAILED, TRUNCATED, Answer, Context, Services, Usage
from methods.clara.checkpoint import CONFIG, read_config
from methods.clara.compressing import DocumentMemory
from methods.clara.config import ClaraConfig
from methods.clara.prompting import Prompt, answer, answer_from_text, paraphrase
from methods.clara.use import PAPER, VERSION, CheckpointOptions, DType, loaded
from methods.models.weights import locate, weights_hash
from methods.readers.instructions import longest_prefix
from methods.registry import MethodConfig, register

TOO_LONG = "the question with the memory of its documents is longer than the longest prompt"
TEXT_TOO_LONG = "the question alone is longer than the longest prompt"


class WritingOptions(MethodConfig):
    """How answers are written: greedily."""

    max_new_tokens: int = Field(64, ge=1, description="longest answer; released 64, in the compression tables 128")
    batch_size: int = Field(16, ge=1, description="prompts at once")


class ClaraReaderConfig(WritingOptions, CheckpointOptions):
    """Options of the reader from memory."""

    task: Literal["answer", "paraphrase"] = Field(
        "answer", description="paraphrase: tell the documents in other words, whatever is asked (Table 17)"
    )


@register(
    "clara_reader",
    kind="reader",
    summary="answers from memory tokens; passages that come as text it compresses itself",
    config=ClaraReaderConfig,
    paper=PAPER,
    extra="models",
    checkpoint_hash=lambda config: weights_hash(config.model),
)
class ClaraReader:
    """Reader of a checkpoint.

    Args:
        config: The checkpoint.
        services: Lends the device.
    """

    def __init__(self, config: ClaraReaderConfig, services: Services) -> None:
        self.config = config
        self.batch_size = 2 * config.batch_size
        self._loaded = loaded(config, services.device)
        self._clara = self._loaded.clara

    def read(self, queries: Sequence[Query], contexts: Sequence[Context]) -> list[Answer]:
        """One answer per query; one that does not fit has its reason under `notes["failed"]`.

        Raises:
            UserError: The memory is of another compressor.
        """
        memory = [self._memory(context) for context in contexts]
        asked = [self._prompt(query.text, len(one)) for query, one in zip(queries, memory, strict=True)]
        room = self._clara.generator.room - self.config.max_new_tokens
        fits = [prompt is not None and self._clara.generator.length(prompt) <= room for prompt in asked]
        prompts = [prompt for prompt, fit in zip(asked, fits, strict=True) if prompt is not None and fit]
        given = [one.to(self._clara.device) for one, fit in zip(memory, fits, strict=True) if fit]
        written = iter(self._clara.generate(prompts, given, self.config.max_new_tokens, self.config.batch_size) if prompts else [])
        answers = []
        for one, prompt, fit in zip(memory, asked, fits, strict=True):
            tokens = len(one) * self._clara.memory_tokens
            if fit:
                answers.append(answered(next(written), tokens))
            else:
                # Nothing to tell in other words is told as nothing; it is no failure.
                answers.append(Answer("", notes={} if prompt is None else {FAILED: TOO_LONG}))
        return answers

    def _prompt(self, question: str, documents: int) -> Prompt | None:
        if self.config.task == "answer":
            return answer(question, documents)
        return paraphrase(documents=documents) if documents else None

    def _memory(self, context: Context) -> Any:
        """Memory of a context's documents: [k, M, h]."""
        import torch

        if isinstance(context.memory, DocumentMemory):
            if context.memory.compressor != self._loaded.compressor:
                raise UserError(
                    "the memory was made by another compressor than that of the reader",
                    where="clara_reader",
                    try_this="the same checkpoint for clara_compressor and clara_reader, with the same dtype",
                )
            return context.memory.vectors
        if context.memory is not None:
            raise UserError("this memory is not of clara_compressor", where="clara_reader")
        with torch.inference_mode():
            return self._clara.encode([passage.full_text for passage in context.passages]).memory


class ClaraTextConfig(WritingOptions):
    """Options of the reader from text."""

    model: str = Field(description="a base: folder, hub id or `pocket`; or a checkpoint of CLaRa, whose base is taken")
    revision: str | None = Field(None, description="revision of a hub id")
    dtype: DType | None = Field(None, description="of the weights; null: float32 on CPU, the base's own elsewhere")
    max_length: int = Field(256, ge=1, description="longest document in tokens, the rest is cut; a checkpoint's own wins")

    def preflight(self) -> None:
        """Check that the model is there."""
        if self.is_checkpoint:
            read_config(Path(locate(self.model)))

    @property
    def is_checkpoint(self) -> bool:
        """Whether the model is a checkpoint of CLaRa."""
        return (Path(locate(self.model)) / CONFIG).is_file()

    @property
    def base(self) -> ClaraConfig:
        """The base and how it is asked."""
        if self.is_checkpoint:
            found, _ = read_config(Path(locate(self.model)))
            return found.model_copy(update={"dtype": self.dtype}) if self.dtype else found
        given = {"base": self.model, "revision": self.revision, "dtype": self.dtype, "max_length": self.max_length}
        return ClaraConfig.model_validate({**given, "rate": self.max_length})


def _text_weights(config: ClaraTextConfig) -> str:
    base = config.base
    return fingerprint(VERSION, weights_hash(base.base, base.revision), base.max_length, base.template, base.max_prompt)


@register(
    "clara_text",
    kind="reader",
    summary="the base of CLaRa without adapters, asked the same from documents as text, or from none",
    config=ClaraTextConfig,
    paper=PAPER,
    extra="models",
    checkpoint_hash=_text_weights,
)
class ClaraText:
    """Reader whose prompt is CLaRa's, with text in the place of memory.

    Args:
        config: The base.
        services: Lends the device.
    """

    def __init__(self, config: ClaraTextConfig, services: Services) -> None:
        from methods.clara.model import Clara

        self.config = config
        self.batch_size = 2 * config.batch_size
        self._clara = Clara.open(config.base, ("generator",), services.device)

    def read(self, queries: Sequence[Query], contexts: Sequence[Context]) -> list[Answer]:
        """One answer per query, from as many of its passages, best first, as fit."""
        fitted = [self._fitted(query.text, context) for query, context in zip(queries, contexts, strict=True)]
        prompts = [prompt for prompt, _ in fitted if prompt is not None]
        limits = self.config.max_new_tokens, self.config.batch_size
        written = iter(self._clara.generate(prompts, None, *limits, adapter=None) if prompts else [])
        return [
            Answer("", notes={FAILED: TEXT_TOO_LONG}) if prompt is None else answered(next(written), 0, notes) for prompt, notes in fitted
        ]

    def _fitted(self, question: str, context: Context) -> tuple[Prompt | None, dict[str, Any]]:
        """The longest prompt that fits, None where even the question does not; and what is to be noted."""
        texts = [passage.full_text for passage in context.passages]
        room = self._clara.generator.room - self.config.max_new_tokens

        def fits(count: int) -> bool:
            return self._clara.generator.length(answer_from_text(question, texts[:count])) <= room

        kept = len(texts) if fits(len(texts)) else longest_prefix(len(texts), fits)
        if not kept and not fits(0):
            return None, {}
        notes = {TRUNCATED: {"unit": "passages", "kept": kept, "of": len(texts)}} if kept < len(texts) else {}
        return answer_from_text(question, texts[:kept]), notes


def answered(generation: Any, memory_tokens: int, notes: dict[str, Any] | None = None) -> Answer:
    """An answer with what it took: text and memory tokens are counted apart."""
    usage = Usage(generation.prompt_tokens - memory_tokens, generation.completion_tokens, memory_tokens, 1)
    return Answer(generation.text.strip(), usage, notes or {})
