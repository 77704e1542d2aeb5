"""OSCAR: memory tokens after question and passage, encoded online by the first layers of the base, since they depend on the
question.

    memory, rank token = first layers([question] [passage] [memory tokens] [rank token]);   relevance = linear(rank token)

The encoder is a fully trained copy of the base's first layers; the base answers with an adapter. The optional rank token is
trained to predict a reranker's score, with the loss ranking · Σ (r − r′)² over a row's passages.

A long passage is split as in PISCO, and a long question is truncated separately; the released code truncates both together.

Source: Louis et al. 2025, OSCAR: Online Soft Compression And Reranking (arXiv:2504.07109).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from benchmarks.core.errors import UserError
from methods.baselines.compress.pisco import SMALL, Pisco, PiscoConfig
from methods.baselines.compress.soft import SoftConfig, cut
from methods.baselines.compress.training import PRESETS, register_system
from methods.presets import laid_over
from methods.prompts import plain_ids

if TYPE_CHECKING:
    from torch import Tensor, nn

    from methods.baselines.compress.model import SoftModel
    from methods.training.pieces import Piece


DOCUMENT = "Document:\n"


class OscarConfig(PiscoConfig):
    """Options of OSCAR."""

    layers: int = Field(8, ge=1, description="number of the base's layers that encode; published 5, 8 or 10")
    norm: bool = Field(False, description="apply the base's final norm after these layers; released false")
    connector: int | None = Field(None, ge=1, description="hidden width of a ReLU network between encoder and base; null: no network")
    ranks: bool = Field(False, description="add a token that predicts each passage's relevance (used by `keep` of the compressor)")


@register_system(
    "oscar",
    compressor="each passage, encoded with the question by the base's first layers; for memory_reader",
    training="OSCAR: the base's first layers as encoder, and an adapter, trained by cross-entropy on answers",
    versions=(2, 2),
    small={**SMALL, "layers": 2},
    worlds={"together": 1, "questions": None, "tuned": {**PRESETS["naming"], "steps": 400, "batch_size": 16, "micro_batch": 16}},
    presets={"worlds-long": laid_over(PRESETS["long"], {"tuned": {"steps": 600, "naming_only": 80, "batch_size": 8, "micro_batch": 8}})},
)
class Oscar(Pisco):
    """The system OSCAR (see `System`)."""

    paper = "Louis et al. 2025, OSCAR: Online Soft Compression And Reranking (arXiv:2504.07109)"
    config_class: ClassVar[type[SoftConfig]] = OscarConfig
    adapters = ("decoder",)
    learned = ("memory", "connector", "rank", "relevance")
    queried = True

    @property
    def encoder(self) -> tuple[str, str] | None:
        return "AutoModelForCausalLM", self.config.base

    def parts(self, model: SoftModel) -> dict[str, nn.Module]:
        from torch import nn

        from methods.training.soft_prompts import decoder_of

        below = decoder_of(model.encoder)
        below.layers = below.layers[: self.config.layers]
        if not self.config.norm:
            if not hasattr(below, "norm"):
                what = f"the last norm of a {type(model.encoder).__name__} cannot be left out"
                raise UserError(what, code="oscar-parts-mismatch", where="model.norm", try_this="model.norm=true")
            # The states that go into it are what comes out of it.
            below.norm.register_forward_hook(lambda _, inputs, __: inputs[0])
        model.encoder.config.num_hidden_layers = len(below.layers)
        if getattr(model.encoder.config, "layer_types", None):
            model.encoder.config.layer_types = model.encoder.config.layer_types[: self.config.layers]
        parts, inner = super().parts(model), self.config.connector
        if inner:
            parts["connector"] = nn.Sequential(nn.Linear(model.width, inner), nn.ReLU(), nn.Linear(inner, model.width))
        if self.config.ranks:
            parts |= {"rank": model.new_rows(1, draw=2), "relevance": nn.Linear(model.width, 1)}
        return parts

    def segments(self, model: SoftModel, text: str) -> list[list[int]]:
        # As they are after a question; of text alone some tokenizers make other ids.
        before, both = (plain_ids(model.tokenizer, some) for some in (DOCUMENT, DOCUMENT + (model.turn_text(text) if text.strip() else "")))
        return cut(both[len(before) :] if both[: len(before)] == before else model.ids(text), self.config.max_length)

    def row(self, model: SoftModel, ids: Sequence[int], query: str) -> list[Piece]:
        question, before = (plain_ids(model.tokenizer, text) for text in (f"\nQuery:\n{query}", DOCUMENT))
        after = [model.part(name) for name in ("memory", "rank") if name in model.parts]
        return [model.begin, question[: self.config.max_length], before, ids, *after]

    def vectors(self, model: SoftModel, rows: Sequence[Sequence[Piece]]) -> Tensor:
        return self._read(model, rows)[0]

    def _read(self, model: SoftModel, rows: Sequence[Sequence[Piece]]) -> tuple[Tensor, Tensor]:
        """Encode rows; returns memory, and the states of rank tokens [N, h]."""
        count = self.config.memory_tokens
        states = model.states(rows, count + self.config.ranks, model=model.encoder)
        memory = states[:, :count]
        return (model.parts["connector"](memory) if self.config.connector else memory), states[:, -1]

    def scored(self, model: SoftModel, texts: Sequence[str], queries: Sequence[str]) -> tuple[list[Tensor], Tensor]:
        import torch

        if not self.config.ranks:
            return super().scored(model, texts, queries)
        parts = [self.segments(model, text) for text in texts]
        memory, states = self._read(model, self.pieces_of(model, parts, queries))
        scores = iter(model.parts["relevance"](states)[:, 0])
        # A passage of several segments is as relevant as the best of them.
        best = [torch.stack([next(scores) for _ in own]).max() if own else states.new_zeros(()) for own in parts]
        return model.joined(parts, memory), torch.stack(best)
