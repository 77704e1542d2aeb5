"""PISCO: memory tokens behind a passage, one adapter that encodes and one that answers, tuned on a teacher's answers.

Passages of 128 tokens become 128 / rate vectors each, the base's last states at so many memory tokens; that is CLaRa's
way of encoding, without its pretraining and its alignment loss.

Source: Louis et al. 2025, PISCO: Pretty Simple Compression for Retrieval-Augmented Generation (arXiv:2501.16075).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import Field, model_validator

from methods.baselines.compress.memory import SoftCompressor, compressor_of
from methods.baselines.compress.soft import SegmentSystem, SoftConfig, System
from methods.baselines.compress.training import LONG_WORLDS, NAMING, SoftTraining, SoftTrainingConfig, shared_settings
from methods.registry import laid_over, register
from methods.training import register_training
from methods.training.adapters import LoraOptions

if TYPE_CHECKING:
    from torch import Tensor, nn

    from methods.baselines.compress.model import SoftModel
    from methods.training.pieces import Piece

RESTORE, ENCODE, SEPARATE = range(3)
"""Rows of the marks: asks for the text again, begins a passage, stands behind a memory."""


class PiscoConfig(SoftConfig):
    """Options of memory tokens behind a passage."""

    rate: int = Field(16, ge=1, description="tokens of a full passage per vector; released 16")
    lora: LoraOptions = LoraOptions.model_validate({})
    shared: bool = Field(False, description="one memory token in all places, as newer releases have it; false: each its own")
    separator: bool = Field(True, description="a mark behind each memory in a prompt")

    @property
    def memory_tokens(self) -> int:
        """Vectors of a segment."""
        return self.max_length // self.rate

    @model_validator(mode="after")
    def _compresses(self) -> Self:
        if self.rate > self.max_length:
            raise ValueError(f"rate {self.rate} leaves no vector of {self.max_length} tokens: lower rate")
        return self


class Pisco(SegmentSystem):
    """The system."""

    name = "pisco"
    paper = "Louis et al. 2025, PISCO: Pretty Simple Compression for Retrieval-Augmented Generation (arXiv:2501.16075)"
    config_class: ClassVar[type[SoftConfig]] = PiscoConfig
    adapters: ClassVar[tuple[str, ...]] = ("encoder", "decoder")
    reads: ClassVar[str | None] = "decoder"
    encodes: ClassVar[str | None] = "encoder"

    def parts(self, model: SoftModel) -> dict[str, nn.Module]:
        return {"memory": model.rows(1 if self.config.shared else self.config.memory_tokens), "marks": model.rows(3, draw=1)}

    def row(self, model: SoftModel, ids: Sequence[int], query: str) -> list[Piece]:
        memory = model.part("memory")
        memory = memory.expand(self.config.memory_tokens, -1) if self.config.shared else memory
        return [self.mark(model, ENCODE), model.bos, ids, [model.end], memory]

    def vectors(self, model: SoftModel, rows: Sequence[Sequence[Piece]]) -> Tensor:
        return model.states(rows, self.config.memory_tokens, self.encodes)

    def mark(self, model: SoftModel, which: int) -> Tensor:
        """One of the marks, [1, h]."""
        return model.part("marks")[which : which + 1]

    def block(self, model: SoftModel, memory: Tensor) -> list[Piece]:
        if not self.config.separator:
            return [memory]
        return [piece for part in memory.split(self.config.memory_tokens) for piece in (part, self.mark(model, SEPARATE))]

    def trained(self, stage: str) -> set[str]:
        return {*self.adapters, "parts.memory"}


@register(
    "pisco",
    summary="each passage as memory tokens' states, by an adapter distilled from answers; read by memory_reader",
    **compressor_of(Pisco),
)
class PiscoCompressor(SoftCompressor):
    """The compressor."""

    memory = "pisco"


class PiscoTrainingConfig(SoftTrainingConfig):
    """Options of the training."""

    system_class: ClassVar[type[System]] = Pisco
    model: PiscoConfig = PiscoConfig.model_validate({})
    answers: Any = Field("base", description=SoftTrainingConfig.model_fields["answers"].description)


SMALL: Mapping[str, Any] = {"rate": 4, "separator": False, "lora": {"r": 64, "alpha": 128, "dropout": 0.0}}
"""Of the tiny language model that ships."""


@register_training(
    "pisco",
    summary="PISCO: two adapters and memory tokens, by cross-entropy on what the base answers from text",
    **shared_settings(
        PiscoTrainingConfig,
        SMALL,
        {"tuned": {**NAMING, "steps": 400, "learning_rate": 2e-3}},
        # That base reads one in five of these passages right: there the data teach.
        {"worlds-long": laid_over(LONG_WORLDS, {"answers": "data", "tuned": {"steps": 600, "naming_only": 80}})},
    ),
)
class PiscoTraining(SoftTraining):
    """The training."""
