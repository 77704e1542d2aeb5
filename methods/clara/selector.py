"""Which documents are answered from: the best k, chosen so that the loss has a gradient in the scores.

Forward, the weights are one-hot rows of the k highest scores; backward, they are those of a softmax over the documents
not yet taken (straight-through estimator). With memory m_i, gradient g_j at slot j and soft weights p_j, the scores get

    dL/ds_i = (1/tau) Σ_j p_j[i] g_jᵀ (m_i − Σ_l p_j[l] m_l)

Source: paper, equations 3.3 to 3.6 and algorithm 1, which disagree on where the mask of taken documents stands: the
equation divides it by the temperature, the algorithm does not and so leaks weight onto taken documents. By default the
mask is −∞ and there is nothing to disagree on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from benchmarks.core.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

Variant = Literal["minus_infinity", "equation", "algorithm"]
EPSILON = 1e-8
SMALLEST_TAU = 1e-6


@dataclass(frozen=True, slots=True)
class Selection:
    """What was chosen.

    Attributes:
        weights: Z, float [B, k, D]: forward the choice, backward the softmax.
        ids: Places of the chosen documents, int64 [B, k], by falling score.
        soft: The softmax weights of each slot, float [B, k, D].
    """

    weights: Tensor
    ids: Tensor
    soft: Tensor

    def apply(self, memory: Tensor) -> Tensor:
        """The chosen documents' memory (equation 3.6).

        Args:
            memory: float [B, D, M, h].

        Returns:
            [B, k, M, h] in the weights' precision, float32 at least.
        """
        import torch

        batch, documents, *shape = memory.shape
        flat = memory.reshape(batch, documents, -1).to(self.weights.dtype)
        # Reduced precision would lose the gradient, a sum over all numbers of a document.
        with torch.autocast(memory.device.type, enabled=False):
            chosen = torch.einsum("bkd,bdn->bkn", self.weights, flat)
        return chosen.reshape(batch, -1, *shape)


def select(
    scores: Tensor, k: int, tau: float, mask: Tensor | None = None, variant: Variant = "minus_infinity", softness: float = 0.0
) -> Selection:
    """Choose the k best documents of each row; of equal scores the first.

    Args:
        scores: float [B, D]; computed with in float32, or float64 where they are.
        k: Documents to choose.
        tau: Temperature of the soft weights.
        mask: bool [B, D]; False: no candidate. It is never chosen, has no weight and no gradient.
        variant: How documents already taken are masked in the soft weights.
        softness: 0: weights are the choice (the paper); 1: they are the soft weights; between, a mixture. The gradient
            is that of the softmax in any case. Ours, for a warm-up.

    Raises:
        UserError: A row has too few candidates.
        ValueError: Scores are no numbers, an option is out of range, or shapes differ.
    """
    import torch

    s = scores if scores.dtype == torch.float64 else scores.float()
    _check(s, k, tau, mask, softness)
    if mask is not None:
        s = s.masked_fill(~mask, -torch.inf)
    _require_enough(s, k)
    ids = torch.sort(s.detach(), dim=-1, descending=True, stable=True).indices[:, :k]
    hard = torch.nn.functional.one_hot(ids, s.shape[-1]).to(s.dtype)
    taken = hard.cumsum(1) - hard
    soft = torch.softmax(_logits(s, taken, max(tau, SMALLEST_TAU), variant), dim=-1)
    forward = hard if softness == 0 else torch.lerp(hard, soft.detach(), softness)
    return Selection(forward + (soft - soft.detach()), ids, soft)


def _logits(s: Tensor, taken: Tensor, tau: float, variant: Variant) -> Tensor:
    """Logits of the soft weights of each slot: [B, k, D]."""
    import torch

    rows = s.unsqueeze(1)
    if variant == "minus_infinity":
        return (rows / tau).masked_fill(taken.bool(), -torch.inf)
    kept = torch.log(1 - taken + EPSILON)
    return (rows + kept) / tau if variant == "equation" else rows / tau + kept


def _check(s: Tensor, k: int, tau: float, mask: Tensor | None, softness: float) -> None:
    if s.dim() != 2:
        raise ValueError(f"scores have {s.dim()} dimensions, not (batch, documents)")
    if mask is not None and mask.shape != s.shape:
        raise ValueError(f"the candidate mask is {tuple(mask.shape)} and the scores {tuple(s.shape)}")
    if k < 1 or tau <= 0 or not 0 <= softness <= 1:
        raise ValueError(f"k={k}, tau={tau}, softness={softness}: at least 1, above 0, from 0 to 1")
    known = s if mask is None else s[mask]
    if not known.detach().isfinite().all():
        raise ValueError("scores of candidates must be finite numbers")


def _require_enough(s: Tensor, k: int) -> None:
    fewest = int((s.detach() > float("-inf")).sum(-1).min()) if len(s) else s.shape[-1]
    if k > fewest:
        raise UserError(
            f"{k} documents are to be chosen where a question has {fewest} candidates",
            code="documents-chosen-question-candidates",
            where="k",
            try_this=f"k of at most {fewest}, or more candidates",
        )
