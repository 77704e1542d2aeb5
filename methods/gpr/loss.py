"""GPR's margin loss: a question should be closer to its triple than to a neighbor, and closer to the neighbor than to a
negative.

    M(p, n, q, g) = max(0, g + cos(n, q) − cos(p, q))
    L = M(τ, τ_nb, q, g1) + M(τ_nb, τ_neg, q, g2), its mean over the rows of a batch

It is 0 if τ is closer to q than τ_nb by margin g1, and τ_nb closer than τ_neg by margin g2 (paper, equations 4 and 5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pydantic import Field, model_validator

from benchmarks.core.models import FrozenModel

if TYPE_CHECKING:
    from torch import Tensor


class LossConfig(FrozenModel):
    """Margins of the loss, and terms to omit in ablations."""

    g1: float = Field(0.5, ge=0, description="margin between a triple and its neighbor; paper 0.5")
    g2: float = Field(0.5, ge=0, description="margin between a neighbor and a negative; paper 0.5")
    neighbors: bool = Field(True, description="false (ablation): the loss is M(τ, τ_neg, q, g1)")
    negatives: bool = Field(True, description="false (ablation): the loss is M(τ, τ_nb, q, g1)")

    @model_validator(mode="after")
    def _contrasts(self) -> LossConfig:
        if not (self.neighbors or self.negatives):
            raise ValueError("neighbors and negatives must not both be off")
        return self


class Cosines(NamedTuple):
    """Cosines of each row's question with its triple, a neighbor and a negative: tensors of shape (rows,)."""

    anchor: Tensor
    neighbor: Tensor
    negative: Tensor

    def ordered(self) -> Tensor:
        """Return a mask of the rows in which the anchor is closer than the neighbor, and the neighbor closer than the negative."""
        return (self.anchor > self.neighbor) & (self.neighbor > self.negative)


def cosines(question: Tensor, anchor: Tensor, neighbor: Tensor, negative: Tensor) -> Cosines:
    """Compute the cosine similarities of each row, from vectors of shape (rows, dimension)."""
    from torch.nn.functional import normalize

    query = normalize(question, dim=-1)
    return Cosines(*((query * normalize(item, dim=-1)).sum(-1) for item in (anchor, neighbor, negative)))


def margin(nearer: Tensor, farther: Tensor, gap: float) -> Tensor:
    """Compute the hinge M = max(0, gap + farther − nearer) per row."""
    return (gap + farther - nearer).clamp_min(0)


def row_losses(result: Cosines, config: LossConfig) -> Tensor:
    """Compute the loss L of each row: shape (rows,)."""
    if not config.neighbors:
        return margin(result.anchor, result.negative, config.g1)
    loss = margin(result.anchor, result.neighbor, config.g1)
    return loss + margin(result.neighbor, result.negative, config.g2) if config.negatives else loss
