"""Reader role for all soft compressors: the checkpoint's base model answers from the memory of passages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.published_prompts import registry
from benchmarks.schema import Query
from methods.api import FAILED, Answer, Context, Services, Usage
from methods.baselines.compress.memory import SoftMemory, SoftOptions, known_system, loaded, soft_needs, unknown_system
from methods.baselines.compress.soft import SYSTEMS, require_checkpoint
from methods.models.causal import CausalConfig, Generation
from methods.models.pocket import asking
from methods.prompts import Shipped
from methods.registry import register
from methods.training.asking import AskedOptions
from methods.work import Lengths, Work, ask, encode, mean, tokens

if TYPE_CHECKING:
    from torch import Tensor

    from methods.training.pieces import Piece

TOO_LONG = "the question with the memory of its passages is longer than the longest prompt"


PROMPTS = {
    name: Shipped(
        "methods.readers",
        "passages",
        published=name if name in registry() else "",
        follows=frozenset({"bos", "joined", "memories", "stop", "max_tokens"}),
    )
    for name in SYSTEMS
}
"""Published prompt of each system, and the allowed placeholders of replacement templates."""


class MemoryReaderConfig(AskedOptions, SoftOptions):
    """Options of the reader."""

    max_new_tokens: int = Field(
        64, ge=1, description="longest answer, if the prompt does not set it (xRAG's published: 100); in CLaRa's compression tables 128"
    )
    batch_size: int = Field(16, ge=1, description="prompts at once")

    def checkpoint(self) -> tuple[Path, Shipped, bool]:
        folder, system = require_checkpoint(self.model, where="option model")
        return folder, PROMPTS[system.name], system.config.published


def _work(config: MemoryReaderConfig, lengths: Lengths) -> Work:
    """Estimate the work: answers from memory, and encoding of passages that arrive as text."""
    system = known_system(config.model, lengths)
    if system is None:
        return unknown_system(config.model)
    options = {"model": system.config.base, "revision": system.config.revision, "dtype": config.dtype or system.config.dtype}
    base = CausalConfig.model_validate({**options, "max_new_tokens": config.max_new_tokens, "batch_size": config.batch_size})
    memory = lengths.handed * system.typical_count(lengths.passage)
    prompt = mean([tokens(asking(item.question)) for item in lengths.samples])
    read = ask(base, lengths.questions, prompt + memory, memory=memory)
    return read if lengths.compressed else read + encode(base, lengths.questions * lengths.handed, lengths.passage, causal=True)


@register(
    "memory_reader",
    kind="reader",
    summary="answers from the vectors of pisco, cocom, xrag, pcc, autocompressor; encodes passages that arrive as text",
    work=_work,
    needs=soft_needs,
)
class MemoryReader:
    """Reader role: answers from a soft compressor's memory."""

    reads_memory = SYSTEMS
    same_model = True

    def __init__(self, config: MemoryReaderConfig, services: Services) -> None:
        self.config = config
        self.batch_size = 2 * config.batch_size
        self._model = loaded(config, services.device)
        self.device = str(self._model.device)
        self._prompts = {some: config.template({"passages"} if some else ()) for some in (True, False)}
        for some, prompt in self._prompts.items():
            if prompt is not None:  # whether the base takes it
                self._model.asked(prompt, "?", [[self._model.nothing]] * some)
        own = prompt.options.max_tokens if (prompt := self._prompts[True]) else None
        self._longest = config.max_new_tokens if "max_new_tokens" in config.model_fields_set or own is None else own

    def read(self, queries: Sequence[Query], contexts: Sequence[Context]) -> list[Answer]:
        """Return one answer per query; a prompt that is too long has the reason under `notes["failed"]`.

        Raises:
            UserError: The memory was made by another checkpoint.
        """
        memory = [self._memory(query.text, context) for query, context in zip(queries, contexts, strict=True)]
        model, longest = self._model, self._longest
        prompts = [self._asked(query.text, own) for query, own in zip(queries, memory, strict=True)]
        fits = [model.fits(prompt, longest) for prompt in prompts]
        chosen = [prompt for prompt, fit in zip(prompts, fits, strict=True) if fit]
        written = iter(model.generate(chosen, longest, self.config.batch_size, model.system.reads) if chosen else [])
        answers = []
        for own, fit in zip(memory, fits, strict=True):
            if not fit:
                answers.append(Answer("", notes={FAILED: TOO_LONG}))
                continue
            reply, count = next(written), sum(map(len, own))
            answers.append(Answer(self._until_stop(reply), Usage(reply.prompt_tokens - count, reply.completion_tokens, count, 1)))
        return answers

    def _asked(self, question: str, memory: Sequence[Tensor]) -> list[Piece]:
        """Build the prompt for a question about passages in memory."""
        model, prompt = self._model, self._prompts[bool(memory)]
        if prompt is None:
            return model.system.prompt(model, question, memory)
        return model.asked(prompt, question, [model.system.block(model, item) for item in memory])

    def _until_stop(self, reply: Generation) -> str:
        prompt = self._prompts[True]
        if prompt is None or not prompt.options.stop:
            return reply.text
        text = str(self._model.tokenizer.decode(reply.tokens, skip_special_tokens=True))
        for stop in prompt.options.stop:
            text = text.partition(stop)[0]
        return text.strip()

    def _memory(self, question: str, context: Context) -> list[Tensor]:
        """Return the memory of a context's passages: [m, h] each."""
        if isinstance(context.memory, SoftMemory):
            if context.memory.checkpoint != self._model.hash:
                raise UserError(
                    "the memory was made by a checkpoint other than the reader's",
                    code="memory-checkpoint-mismatch",
                    where="memory_reader",
                    try_this="use the same model and dtype for compressor and reader",
                )
            return [item.to(self._model.device) for item in context.memory.vectors]
        if context.memory is not None:
            raise UserError(
                "this memory is not from a compressor that memory_reader supports", code="memory-kind-mismatch", where="memory_reader"
            )
        import torch

        texts = [passage.full_text for passage in context.passages]
        with torch.inference_mode():
            return [item.half().float() for item in self._model.encode(texts, [question] * len(texts))]
