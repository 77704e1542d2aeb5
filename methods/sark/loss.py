"""SARK's losses (paper, equations 4 to 10), as sums of terms, so that a batch can be processed in parts.

    L_pas  = mean over labeled passages of −[y log σ(z) + (1 − y) log(1 − σ(z))]
    L_list = mean over pairs, i before j in a list that is best first, of log(1 + exp(−(z_i − z_j)))
    L      = λ · mean over styles of L_pas + (1 − λ) · mean over styles of L_list

The released code uses the opposite sign of the differences, which rewards the worst passages; this is not supported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

Head = Literal["paper", "official"]
"""Scoring head: `paper` has one logit z; `official` has two, where the second ranks and the difference classifies."""
LABELS = {"paper": 1, "official": 2}
"""Number of logits of each head."""


def classified(logits: Tensor, head: Head) -> Tensor:
    """Return the logit of the positive class ("this passage helps"): shape (passages,).

    Args:
        logits: Output of the head: shape (passages, 1 or 2).
        head: Which head.
    """
    return logits[:, 0] if head == "paper" else logits[:, 1] - logits[:, 0]


def ranked(logits: Tensor, head: Head) -> Tensor:
    """Return the ranking score: shape (passages,); for the official head, the second logit."""
    return logits[:, 0] if head == "paper" else logits[:, 1]


def passage_terms(scores: Tensor, labels: Tensor) -> Tensor:
    """Compute the binary cross-entropy of each passage: shape (passages,).

    Args:
        scores: Result of `classified`.
        labels: 1 or 0, of the same shape and type.
    """
    from torch.nn.functional import binary_cross_entropy_with_logits

    return binary_cross_entropy_with_logits(scores, labels, reduction="none")


def pairs_of(size: int) -> int:
    """Return the number of pairs in a list of this size."""
    return size * (size - 1) // 2


def list_terms(scores: Tensor) -> Tensor:
    """Compute the RankNet loss of each pair of each list: shape (lists, pairs).

    Args:
        scores: Results of `ranked`, best passage first: shape (lists, passages).
    """
    import torch
    from torch.nn.functional import softplus

    first, second = torch.triu_indices(scores.shape[1], scores.shape[1], offset=1, device=scores.device)
    return softplus(scores[:, second] - scores[:, first])


def softmax_terms(scores: Tensor, evidence: Tensor) -> Tensor:
    """Compute the softmax loss of each evidence passage against the non-evidence passages of its list: shape (evidence
    passages,).

    Args:
        scores: Results of `ranked`: shape (lists, passages).
        evidence: Mask of evidence passages, of the same shape.
    """
    from torch.nn.functional import softplus

    others = scores.masked_fill(evidence, float("-inf")).logsumexp(1, keepdim=True)
    # −log(exp z / (exp z + Σ exp z_other)) = log(1 + exp(log Σ exp z_other − z))
    return softplus((others - scores)[evidence])
