"""SARK's losses (paper, equations 4 to 10), as terms that add up: a batch in parts has the loss of the whole.

    L_pas  = mean over labeled passages of −[y log σ(z) + (1 − y) log(1 − σ(z))]
    L_list = mean over pairs, i before j in a list that is best first, of log(1 + exp(−(z_i − z_j)))
    L      = λ · mean over styles of L_pas + (1 − λ) · mean over styles of L_list

The released code keeps the other triangle of the differences, which rewards the worst of such a list; that is not
offered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

Head = Literal["paper", "official"]
"""paper: one number z; official: two, of which the second ranks and the difference classifies."""
LABELS = {"paper": 1, "official": 2}
"""Numbers that each head gives."""


def classified(logits: Tensor, head: Head) -> Tensor:
    """Return the logit of "this passage holds the evidence": shape (passages,).

    Args:
        logits: What the head gives: shape (passages, 1 or 2).
        head: Which head.
    """
    return logits[:, 0] if head == "paper" else logits[:, 1] - logits[:, 0]


def ranked(logits: Tensor, head: Head) -> Tensor:
    """Return the score that orders passages: shape (passages,); of the official head the second logit alone."""
    return logits[:, 0] if head == "paper" else logits[:, 1]


def passage_terms(scores: Tensor, labels: Tensor) -> Tensor:
    """Return binary cross-entropy of each passage: shape (passages,).

    Args:
        scores: As `classified` gives them.
        labels: 1 or 0, of the same shape and type.
    """
    from torch.nn.functional import binary_cross_entropy_with_logits

    return binary_cross_entropy_with_logits(scores, labels, reduction="none")


def pairs_of(size: int) -> int:
    """Return the number of pairs in a list of this size."""
    return size * (size - 1) // 2


def list_terms(scores: Tensor) -> Tensor:
    """Return the RankNet loss of each pair of each list: shape (lists, pairs).

    Args:
        scores: As `ranked` gives them, best passage first: shape (lists, passages).
    """
    import torch
    from torch.nn.functional import softplus

    first, second = torch.triu_indices(scores.shape[1], scores.shape[1], offset=1, device=scores.device)
    return softplus(scores[:, second] - scores[:, first])


def softmax_terms(scores: Tensor, evidence: Tensor) -> Tensor:
    """Return the softmax loss of each evidence passage against the passages of its list that are none: shape (evidence passages,).

    Args:
        scores: As `ranked` gives them: shape (lists, passages).
        evidence: Which passages are: of the same shape.
    """
    from torch.nn.functional import softplus

    others = scores.masked_fill(evidence, float("-inf")).logsumexp(1, keepdim=True)
    # −log(exp z / (exp z + Σ exp z_other)) = log(1 + exp(log Σ exp z_other − z))
    return softplus((others - scores)[evidence])
