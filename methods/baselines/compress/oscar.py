"""OSCAR: PISCO's memory tokens behind question and passage, encoded by the first layers of the base, so nothing can be kept.

The encoder is a copy of the base's first layers that trains as a whole; the base answers through an adapter. The token from
which OSCAR can also rerank is not here.

Source: Louis et al. 2025, OSCAR: Online Soft Compression And Reranking (arXiv:2504.07109).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from methods.baselines.compress.memory import SOFT, SoftCompressor
from methods.baselines.compress.pisco import SMALL, Pisco, PiscoConfig
from methods.baselines.compress.soft import ENCODER, SoftConfig, System
from methods.baselines.compress.training import NAMING, SoftTraining, SoftTrainingConfig, shared_settings
from methods.registry import register
from methods.training import register_training

if TYPE_CHECKING:
    from torch import Tensor, nn

    from methods.baselines.compress.model import SoftModel
    from methods.training.pieces import Piece

PAPER = "Louis et al. 2025, OSCAR: Online Soft Compression And Reranking (arXiv:2504.07109)"


class OscarConfig(PiscoConfig):
    """Options of OSCAR."""

    layers: int = Field(8, ge=1, description="of the base that encode; published 5, 8 or 10")


class Oscar(Pisco):
    """The system."""

    name = "oscar"
    config_class: ClassVar[type[SoftConfig]] = OscarConfig
    adapters = ("decoder",)
    queried = True

    @property
    def whole(self) -> tuple[str, ...]:
        return (ENCODER,)

    @property
    def encoder(self) -> tuple[str, str] | None:
        return "AutoModelForCausalLM", self.config.base

    def parts(self, model: SoftModel) -> dict[str, nn.Module]:
        from methods.training.soft_prompts import decoder_of

        below = decoder_of(model.encoder)
        below.layers = below.layers[: self.config.layers]
        model.encoder.config.num_hidden_layers = len(below.layers)
        if getattr(model.encoder.config, "layer_types", None):
            model.encoder.config.layer_types = model.encoder.config.layer_types[: self.config.layers]
        return super().parts(model)

    def encode(self, model: SoftModel, texts: Sequence[str], queries: Sequence[str]) -> list[Tensor]:
        import torch

        asking = [model.ids(query)[: self.config.max_length] for query in queries]
        parts = [model.segments(text) for text in texts]
        rows = [self._row(model, query, ids) for query, own in zip(asking, parts, strict=True) for ids in own]
        states = iter(model.states(rows, self.config.memory_tokens, model=model.encoder) if rows else [])
        return [torch.cat([next(states) for _ in own]) if own else model.nothing for own in parts]

    def _row(self, model: SoftModel, query: Sequence[int], ids: Sequence[int]) -> list[Piece]:
        mark, begin, passage, *rest = self.row(model, ids)
        return [mark, begin, query, passage, *rest]

    def trained(self, stage: str) -> set[str]:
        return {*self.adapters, ENCODER, "parts.memory"}


@register(
    "oscar", summary="each passage with the question as states of the base's first layers; read by memory_reader", paper=PAPER, **SOFT
)
class OscarCompressor(SoftCompressor):
    """The compressor."""

    memory = "oscar"


class OscarTrainingConfig(SoftTrainingConfig):
    """Options of the training."""

    system_class: ClassVar[type[System]] = Oscar
    model: OscarConfig = OscarConfig.model_validate({})


@register_training(
    "oscar",
    summary="OSCAR: the base's first layers as encoder, and an adapter, by cross-entropy on answers",
    stages=Oscar.stages,
    config=OscarTrainingConfig,
    paper=PAPER,
    **shared_settings({**SMALL, "layers": 2}, {"together": 1, "questions": None, "tuned": {**NAMING, "steps": 500, "batch_size": 16, "micro_batch": 16}}),
)
class OscarTraining(SoftTraining):
    """The training."""
