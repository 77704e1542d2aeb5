"""What each stage learns: losses of rows, as sums that add up over the parts of a batch.

Source: paper, equations 2.1 to 2.3 (compression), 3.2 (joint); the supervised loss is that of the released code. What
is ours and not the paper's says so, and is off by default.
"""

from __future__ import annotations

from typing import Any


def supervised_terms(scores: Any, positive: Any, tau: float) -> Any:
    """How far each question is from choosing only positives: minus the log of their share of the softmax.

    Args:
        scores: Cosines, [B, D]; minus infinity where there is no candidate.
        positive: bool [B, D].
        tau: Temperature.

    Returns:
        [B], float32 at least: -[logsumexp over positives of s/tau - logsumexp over all]; NaN where a row has none.
    """
    import torch

    s = scores.float() / tau
    missing = ~positive.any(-1)
    found = s.masked_fill(~positive, -torch.inf).logsumexp(-1)
    return (s.logsumexp(-1) - found).masked_fill(missing, torch.nan)


def marginal_terms(weights: Any, likelihoods: Any) -> Any:
    """Minus the log likelihood of answers, summed over documents as they are weighed (ours; cf. the paper's A.1).

    Args:
        weights: Log of each document's weight, [B, k].
        likelihoods: Log likelihood of the answer given each document alone, [B, k].

    Returns:
        [B].
    """
    return -(weights.log_softmax(-1) + likelihoods).logsumexp(-1)


def naming_terms(logits: Any, ids: Any, mask: Any, known: Any) -> Any:
    """How well memory tokens name the tokens of their share of a document (ours).

    The document's tokens are parted evenly, in order: of n tokens, the one at place t belongs to memory token
    floor(t M / n).

    Args:
        logits: What the base's output layer says of each memory token, [N, M, V].
        ids: Tokens of the documents, padded at the end, int64 [N, n].
        mask: Which of them are tokens, bool [N, n].
        known: Which of them are to be named, bool [N, n].

    Returns:
        [N]: mean of minus the log probability over what a document has to name.
    """
    import torch

    count = mask.sum(-1, keepdim=True)
    place = torch.arange(ids.shape[1], device=ids.device)
    slot = (place * logits.shape[1] // count).clamp(max=logits.shape[1] - 1)
    rows = torch.arange(len(ids), device=ids.device).unsqueeze(-1)
    said = logits.float().log_softmax(-1)[rows, slot, ids]
    return -(said * known).sum(-1) / known.sum(-1)
