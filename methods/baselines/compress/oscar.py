"""OSCAR: memory tokens behind question and passage, encoded by the first layers of the base, so nothing can be kept.

    memory, rank token = first layers([question] [passage] [memory tokens] [rank token]);   relevance = linear(rank token)

The encoder is a copy of the base's first layers that trains as a whole; the base answers through an adapter. The rank token is
optional; in training its relevance is drawn to a reranker's score, by ranking · Σ (r − r′)² over a row's passages.

A long passage is split as PISCO's are, and a long question is cut, so that it takes nothing of a passage; the release cuts both at once.

Source: Louis et al. 2025, OSCAR: Online Soft Compression And Reranking (arXiv:2504.07109).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from benchmarks.core.errors import UserError
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
    norm: bool = Field(False, description="whether the base's last norm stands behind them; released false")
    connector: int | None = Field(None, ge=1, description="width inside a ReLU network between encoder and base; null: none")
    ranks: bool = Field(False, description="whether a further token gives each passage a relevance (`keep` of the compressor)")


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
    def ranks(self) -> bool:
        return bool(self.config.ranks)

    @property
    def encoder(self) -> tuple[str, str] | None:
        return "AutoModelForCausalLM", self.config.base

    def parts(self, model: SoftModel) -> dict[str, nn.Module]:
        from torch import nn

        from methods.training.soft_prompts import decoder_of

        below = decoder_of(model.encoder)
        below.layers = below.layers[: self.config.layers]
        model.encoder.config.num_hidden_layers = len(below.layers)
        if getattr(model.encoder.config, "layer_types", None):
            model.encoder.config.layer_types = model.encoder.config.layer_types[: self.config.layers]
        parts, inner = super().parts(model), self.config.connector
        if inner:
            parts["connector"] = nn.Sequential(nn.Linear(model.width, inner), nn.ReLU(), nn.Linear(inner, model.width))
        if self.config.ranks:
            parts |= {"rank": model.rows(1, draw=2), "relevance": nn.Linear(model.width, 1)}
        return parts

    def count(self, model: SoftModel, text: str) -> int:
        return len(self._segments(model, text)) * int(self.config.memory_tokens)

    def encode(self, model: SoftModel, texts: Sequence[str], queries: Sequence[str]) -> list[Tensor]:
        return self.scored(model, texts, queries)[0]

    def scored(self, model: SoftModel, texts: Sequence[str], queries: Sequence[str]) -> tuple[list[Tensor], Tensor]:
        import torch

        parts = [self._segments(model, text) for text in texts]
        heads = [self._head(model, query) for query in queries]
        after = [model.part(name) for name in ("memory", "rank") if name in model.parts]
        rows: list[list[Piece]] = [[model.begin, head, ids, *after] for head, own in zip(heads, parts, strict=True) for ids in own]
        count = self.config.memory_tokens
        with nullcontext() if self.config.norm else _without_norm(model.encoder):
            states = model.states(rows, count + self.config.ranks, model=model.encoder) if rows else model.nothing[:, None]
        memory = iter(model.parts["connector"](states[:, :count]) if self.config.connector else states[:, :count])
        scores = iter(model.parts["relevance"](states[:, -1])[:, 0] if self.config.ranks else states.new_zeros(len(states)))
        # A passage of several segments is as relevant as the best of them.
        best = [torch.stack([next(scores) for _ in own]).max() if own else states.new_zeros(()) for own in parts]
        return [torch.cat([next(memory) for _ in own]) if own else model.nothing for own in parts], torch.stack(best)

    def _head(self, model: SoftModel, query: str) -> list[int]:
        """What stands before a passage, as released; of a long question the end is cut."""
        before, after = _ids(model, f"\nQuery:\n{query}"), _ids(model, DOCUMENT)
        return [*before[: self.config.max_length], *after]

    def _segments(self, model: SoftModel, text: str) -> list[list[int]]:
        """A passage's ids as they stand behind a question, in parts."""
        if not text.strip():
            return []
        text, before = model.written(text), _ids(model, DOCUMENT)
        both, most = _ids(model, DOCUMENT + text), self.config.max_length
        ids = both[len(before) :] if both[: len(before)] == before else _ids(model, text)
        return [ids[start : start + most] for start in range(0, len(ids), most)]

    def trained(self, stage: str) -> set[str]:
        return {*self.adapters, ENCODER, *(f"parts.{name}" for name in ("memory", "connector", "rank", "relevance"))}


DOCUMENT = "Document:\n"


def _ids(model: SoftModel, text: str) -> list[int]:
    return list(model.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])


@contextmanager
def _without_norm(model: Any) -> Iterator[None]:
    """A causal language model whose last states are those of its last layer."""
    from torch import nn

    from methods.training.soft_prompts import decoder_of

    decoder = decoder_of(model)
    if not hasattr(decoder, "norm"):
        raise UserError(f"the last norm of a {type(model).__name__} cannot be left out", where="model.norm", try_this="model.norm=true")
    kept, decoder.norm = decoder.norm, nn.Identity()
    try:
        yield
    finally:
        decoder.norm = kept


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
    **shared_settings(
        {**SMALL, "layers": 2}, {"together": 1, "questions": None, "tuned": {**NAMING, "steps": 500, "batch_size": 16, "micro_batch": 16}}
    ),
)
class OscarTraining(SoftTraining):
    """The training."""
