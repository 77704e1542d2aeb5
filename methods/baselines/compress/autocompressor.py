"""AutoCompressor: a language model reads a text in segments, and summary vectors after each segment condition the following
ones.

The hidden states of 50 summary tokens after a segment are prepended to the next one, with those of all earlier segments. For
retrieval, each passage is encoded separately, and all vectors precede the question. The prompt is plain text (`Question: …`,
`Answer:`), because the model is trained as a language model.

Source: Chevalier et al. 2023, Adapting Language Models to Compress Contexts (arXiv:2305.14788).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from methods.baselines.compress.soft import LANGUAGE_MODEL, SegmentSystem, SoftConfig, cut
from methods.baselines.compress.training import PRESETS, register_system
from methods.models.pocket import asking
from methods.prompts import encoded

if TYPE_CHECKING:
    from torch import Tensor, nn

    from methods.baselines.compress.model import SoftModel
    from methods.baselines.compress.rows import CompressionRow
    from methods.training.pieces import Piece

STEPS = 2
"""Number of segments after which gradients are stopped."""


class AutoCompressorConfig(SoftConfig):
    """Options of AutoCompressor."""

    base: str = Field("meta-llama/Llama-2-7b-hf", description=SoftConfig.model_fields["base"].description)
    max_length: int = Field(
        2048,
        ge=1,
        description="tokens per segment; a longer passage becomes several segments, each after the summaries of the previous ones",
    )
    max_prompt: int = Field(4096, ge=16, description=SoftConfig.model_fields["max_prompt"].description)
    template: Literal["auto", "pocket", "plain"] = Field(
        "plain", description="prompt format of replies; the published model was trained with plain"
    )
    memory_tokens: int = Field(50, ge=1, description="summary vectors per segment; published 50")
    learns: Literal["text", "replies"] = Field(
        "text",
        description="text: passages one after another, then question and answer, token by token; replies: only answers, from "
        "passages that are encoded separately as in use (ours)",
    )


@register_system(
    "autocompressor",
    compressor="each passage as summary vectors of a language model that reads it in segments; for memory_reader",
    training="AutoCompressor: trains a whole language model on passages and answers, segment by segment, with gradients over two segments",
    small={"memory_tokens": 24, "learns": "replies"},
    worlds={"tuned": {**PRESETS["naming"], "steps": 400}},
)
class AutoCompressor(SegmentSystem):
    """The system AutoCompressor (see `System`)."""

    paper = "Chevalier et al. 2023, Adapting Language Models to Compress Contexts (arXiv:2305.14788)"
    config_class = AutoCompressorConfig
    learned = ("summary",)

    @property
    def whole(self) -> tuple[str, ...]:
        return (LANGUAGE_MODEL,)

    def parts(self, model: SoftModel) -> dict[str, nn.Module]:
        from torch import nn

        rows = nn.Embedding(self.config.memory_tokens, model.width)
        # As published: all begin as the token that ends a text.
        rows.weight.data[:] = model.base.get_input_embeddings().weight.detach()[model.end].float()
        return {"summary": rows}

    def segments(self, model: SoftModel, text: str) -> list[list[int]]:
        if not self.config.published:
            return super().segments(model, text)
        return cut(encoded(model.plain_tokenizer, [text])[0], self.config.max_length)

    def row(self, model: SoftModel, ids: Sequence[int], query: str) -> list[Piece]:
        return [[] if self.config.published else model.begin, ids, model.part("summary")]

    def vectors(self, model: SoftModel, rows: Sequence[Sequence[Piece]]) -> Tensor:
        return model.states(rows, self.config.memory_tokens)

    def encode(self, model: SoftModel, texts: Sequence[str], queries: Sequence[str]) -> list[Tensor]:
        import torch

        parts = [self.segments(model, text) for text in texts]
        memory = [model.nothing for _ in texts]
        for number in range(max(map(len, parts), default=0)):
            which = [at for at, own in enumerate(parts) if len(own) > number]
            rows = [[memory[at], *self.row(model, parts[at][number], "")] for at in which]
            for at, states in zip(which, self.vectors(model, rows), strict=True):
                memory[at] = torch.cat([memory[at], states])
        return memory

    def prompt(self, model: SoftModel, question: str, memory: Sequence[Tensor]) -> list[Piece]:
        pieces = model.filled(asking(question), [])
        if self.config.published and pieces[0][: len(model.begin)] == model.begin:
            pieces[0] = pieces[0][len(model.begin) :]
        return [*memory, *pieces]

    def losses(self, model: SoftModel, rows: Sequence[CompressionRow]) -> tuple[Tensor, int] | None:
        import torch

        if self.config.learns == "replies":
            return None
        parts = [self._segments(model, row) for row in rows]
        losses = [language_loss(model, own, model.part("summary"), STEPS) for own in parts]
        return torch.stack([loss for loss, _ in losses]).sum(), sum(number for _, number in losses)

    def predicted(self, model: SoftModel, row: CompressionRow) -> int:
        if self.config.learns == "replies":
            return super().predicted(model, row)
        return sum(map(len, self._segments(model, row))) - 1

    def _segments(self, model: SoftModel, row: CompressionRow) -> list[list[int]]:
        passages = [[*model.begin, *ids] for text in row.documents for ids in self.segments(model, text)]
        turns = ([*model.filled(asking(question), []), model.reply(target)] for question, target in row.asked)
        return [*passages, [identifier for pieces in turns for piece in pieces for identifier in piece]]


def language_loss(model: Any, segments: Sequence[Sequence[int]], summary: Tensor, steps: int) -> tuple[Tensor, int]:
    """Compute the summed cross-entropy of the tokens in segments, each conditioned on the summaries of earlier ones.

    Args:
        model: Model with an attribute `base`.
        segments: Token ids.
        summary: The embeddings of summary tokens, [m, h].
        steps: Number of segments after which gradients are stopped.

    Returns:
        The sum and its number of tokens (all except the first).
    """
    import torch
    from torch.nn import functional

    from methods.training.pieces import embedded
    from methods.training.soft_prompts import decoder_of

    before, states, count = summary[:0].float(), [], len(summary)
    for number, ids in enumerate(segments):
        last = number + 1 == len(segments)
        vectors, _ = embedded([[before, ids] if last else [before, ids, summary]], model.base.get_input_embeddings())
        output = decoder_of(model.base)(inputs_embeds=vectors, use_cache=False).last_hidden_state[0]
        states.append(output[len(before) : len(before) + len(ids)])
        if not last:
            before = torch.cat([before, output[-count:].float()])
            if (number + 1) % steps == 0:
                before = before.detach()
    labels = torch.tensor([identifier for ids in segments for identifier in ids], device=before.device)
    logits = model.base.get_output_embeddings()(torch.cat(states)[:-1])
    return functional.cross_entropy(logits.float(), labels[1:], reduction="sum"), len(labels) - 1
