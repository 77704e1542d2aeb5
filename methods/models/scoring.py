"""How log-likelihoods are computed: options, and log-probabilities at chosen positions only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Item = tuple[Sequence[int], Sequence[int]]
"""Prompt and target of one score, as token ids."""

CPU_TOKENS, GPU_TOKENS = 4096, 32768
CPU_LOGITS, GPU_LOGITS = 1 << 26, 1 << 28
"""Largest batches in tokens, and largest tables of logits in numbers (4 bytes each)."""


class ScoringConfig(BaseModel):
    """Options of log-likelihood scoring; none of them changes a score by more than rounding."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    token_budget: int | None = Field(
        default=None, ge=1, description="tokens per batch, padding and cache included; null: 4,096 on CPU, 32,768 elsewhere"
    )
    share_prefixes: bool = Field(default=True, description="compute what prompts begin with in common once")
    smallest_prefix: int = Field(default=8, ge=1, description="shortest beginning worth sharing, in tokens")
    padding: Literal["left", "right"] = Field(default="right", description="side of the padding where no prefix is shared")

    def tokens(self, device: str) -> int:
        """Tokens per batch on a device."""
        if self.token_budget is not None:
            return self.token_budget
        return CPU_TOKENS if device == "cpu" else GPU_TOKENS


def rows_for(targets: Sequence[int], vocabulary: int, device: str) -> int:
    """Most rows whose logits fit, at the longest of the targets' lengths."""
    numbers = CPU_LOGITS if device == "cpu" else GPU_LOGITS
    return max(1, numbers // (vocabulary * max(targets)))


@contextmanager
def logits_only_at(model: Any, rows: Any, columns: Any) -> Iterator[None]:
    """Within this block a model computes logits at the given places of a batch alone.

    The output layer receives the hidden states at (rows[n], columns[n]) as one sequence, so logits have the shape
    [1, n, vocabulary]. What a model does to logits afterwards (scaling, soft caps) works number by number and stays.

    Args:
        model: A `transformers` model with output embeddings.
        rows: Integer tensor [n].
        columns: Integer tensor [n].
    """
    handle = model.get_output_embeddings().register_forward_pre_hook(lambda _, inputs: (inputs[0][rows, columns].unsqueeze(0), *inputs[1:]))
    try:
        yield
    finally:
        handle.remove()


def log_probabilities(logits: Any, targets: Any) -> Any:
    """Log-softmax in float32 at the targets: logits [1, n, vocabulary] and ids [n] to [n]."""
    numbers = logits[0].float()
    return numbers.gather(1, targets.unsqueeze(1)).squeeze(1) - numbers.logsumexp(dim=1)


def padded(rows: Sequence[Sequence[int]], fill: int, side: str = "right") -> tuple[list[list[int]], list[list[int]]]:
    """Rows of equal length and their masks (1: a token, 0: padding)."""
    width = max(len(row) for row in rows)
    ids, masks = [], []
    for row in rows:
        gap = width - len(row)
        left, right = (gap, 0) if side == "left" else (0, gap)
        ids.append([fill] * left + list(row) + [fill] * right)
        masks.append([0] * left + [1] * len(row) + [0] * right)
    return ids, masks
