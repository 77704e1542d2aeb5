"""PISCO: memory tokens after a passage, one adapter for encoding and one for answering, fine-tuned on a teacher's answers.

A segment of 128 tokens becomes 128 / rate vectors: the base's last hidden states at the memory tokens. This is CLaRa's encoding
without its pretraining and alignment loss.

Source: Louis et al. 2025, PISCO: Pretty Simple Compression for Retrieval-Augmented Generation (arXiv:2501.16075).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import Field, model_validator

from methods.baselines.compress.soft import SegmentSystem, SoftConfig
from methods.baselines.compress.training import PRESETS, register_system
from methods.presets import laid_over
from methods.prompts import ids_behind_bos
from methods.training.adapters import LoraOptions

if TYPE_CHECKING:
    from torch import Tensor, nn

    from methods.baselines.compress.model import SoftModel
    from methods.training.pieces import Piece

RESTORE, ENCODE, SEPARATE = range(3)
"""Rows of the mark tokens: request to restore the text, start of a passage, and separator after a memory."""
SMALL: Mapping[str, Any] = {"rate": 4, "separator": False, "lora": {"r": 64, "alpha": 128, "dropout": 0.0}}
"""Options for the shipped pocket model."""


class PiscoConfig(SoftConfig):
    """Options of systems with memory tokens after a passage."""

    rate: int = Field(16, ge=1, description="tokens of a full passage per vector; released 16")
    lora: LoraOptions = LoraOptions.model_validate({})
    shared: bool = Field(False, description="use one memory token in all positions, as newer releases do; false: one token per position")
    separator: bool = Field(True, description="put a separator token after each memory in a prompt")

    @property
    def memory_tokens(self) -> int:
        """Return the number of memory vectors per segment."""
        return self.max_length // self.rate

    @model_validator(mode="after")
    def _compresses(self) -> Self:
        if self.rate > self.max_length:
            raise ValueError(f"rate {self.rate} leaves no vectors for {self.max_length} tokens: lower rate")
        return self


@register_system(
    "pisco",
    compressor="each passage as the states of memory tokens, by an adapter distilled from answers; for memory_reader",
    training="PISCO: two adapters and memory tokens, trained by cross-entropy on the base's answers from text",
    defaults={"answers": "base"},
    small=SMALL,
    worlds={"tuned": {**PRESETS["naming"], "steps": 400, "learning_rate": 2e-3}},
    # That base reads one in five of these passages right: there the data teach.
    presets={"worlds-long": laid_over(PRESETS["long"], {"answers": "data", "tuned": {"steps": 600, "naming_only": 80}})},
)
class Pisco(SegmentSystem):
    """The system PISCO (see `System`)."""

    paper = "Louis et al. 2025, PISCO: Pretty Simple Compression for Retrieval-Augmented Generation (arXiv:2501.16075)"
    config_class: ClassVar[type[SoftConfig]] = PiscoConfig
    adapters: ClassVar[tuple[str, ...]] = ("encoder", "decoder")
    reads: ClassVar[str | None] = "decoder"
    encodes: ClassVar[str | None] = "encoder"
    learned: ClassVar[tuple[str, ...]] = ("memory",)

    def parts(self, model: SoftModel) -> dict[str, nn.Module]:
        return {"memory": model.new_rows(1 if self.config.shared else self.config.memory_tokens), "marks": model.new_rows(3, draw=1)}

    def segments(self, model: SoftModel, text: str) -> list[list[int]]:
        if not self.config.published:
            return super().segments(model, text)
        # As published the row is cut, its end token included, and an empty text has a row.
        return [ids_behind_bos(model.plain_tokenizer, text)[: self.config.max_length + 1]]

    def row(self, model: SoftModel, ids: Sequence[int], query: str) -> list[Piece]:
        memory = model.part("memory")
        memory = memory.expand(self.config.memory_tokens, -1) if self.config.shared else memory
        cut = self.config.published and len(ids) > self.config.max_length
        return [model.mark(ENCODE), model.bos, ids, [] if cut else [model.end], memory]

    def vectors(self, model: SoftModel, rows: Sequence[Sequence[Piece]]) -> Tensor:
        return model.states(rows, self.config.memory_tokens, self.encodes)

    def block(self, model: SoftModel, memory: Tensor) -> list[Piece]:
        if not self.config.separator:
            return [memory]
        parts = [memory] if self.config.published else memory.split(self.config.memory_tokens)
        return [piece for part in parts for piece in (part, model.mark(SEPARATE))]
