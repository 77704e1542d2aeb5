"""Sampling whose outcome belongs to a prompt and its seed, not to the batch it was generated in.

Adding Gumbel noise to log-probabilities and taking the largest draws from the distribution. Each row's noise comes
from a generator of its own on the CPU, so neighbours, batch size and device do not change what is drawn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn.

    Attributes:
        temperature: Above 0; 1 is the model's own distribution.
        top_p: Smallest share of probability that is kept; 1: all.
        top_k: Likeliest tokens that are kept; None: all.
        seed: Where prompts bring no seed of their own, theirs is made of this one and their text.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.temperature > 0 or not 0 < self.top_p <= 1 or (self.top_k is not None and self.top_k < 1):
            raise ValueError(f"temperature must be above 0, top_p in (0, 1], top_k at least 1: {self}")

    def seeds(self, prompts: Sequence[str]) -> list[int]:
        """A seed per prompt: equal prompts have equal seeds, whatever stands around them."""
        return [int.from_bytes(hashlib.blake2b(f"{self.seed}\0{prompt}".encode(), digest_size=7).digest(), "big") for prompt in prompts]


def sampler(sampling: Sampling, seeds: Sequence[int]) -> Any:
    """A processor of scores for `generate(do_sample=False)` that makes its greedy choice a draw.

    Args:
        sampling: How tokens are drawn.
        seeds: One per row of the batch.
    """
    import torch
    from transformers import LogitsProcessor, LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    warpers: list[Any] = [TemperatureLogitsWarper(float(sampling.temperature))]
    if sampling.top_k is not None:
        warpers.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        warpers.append(TopPLogitsWarper(sampling.top_p))

    class Gumbel(LogitsProcessor):
        def __init__(self) -> None:
            self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]

        def __call__(self, input_ids: Any, scores: Any) -> Any:
            scores = scores.float()
            for warper in warpers:
                scores = warper(input_ids, scores)
            noise = torch.empty(scores.shape, dtype=torch.float32)
            for row, generator in enumerate(self.generators):
                noise[row].exponential_(generator=generator)
            return scores - noise.log().to(scores.device)

    return LogitsProcessorList([Gumbel()])
