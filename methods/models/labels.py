"""Choosing among a closed set of labels by their likelihood behind a prompt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from methods.models.encoding import Span
from methods.models.likelihood import Likelihood, LikelihoodScorer, ScoredText


@dataclass(frozen=True, slots=True)
class LabelScores:
    """How likely each label is behind one prompt.

    Attributes:
        raw: Log-likelihoods as the model gives them, per label.
        probabilities: The same, normalised over the labels: they sum to 1.
    """

    labels: tuple[str, ...]
    raw: tuple[Likelihood, ...]
    probabilities: tuple[float, ...]

    @property
    def best(self) -> str:
        """The likeliest label; of equal ones the first."""
        return self.labels[max(range(len(self.labels)), key=self.probabilities.__getitem__)]


def label_likelihoods(
    scorer: LikelihoodScorer,
    prompts: Sequence[str],
    labels: Sequence[str],
    by: Literal["total", "mean"] = "total",
    chunks: Sequence[Span | None] | None = None,
) -> list[LabelScores]:
    """Score the same labels behind each prompt; a prompt is computed once for all of them.

    Args:
        scorer: The model.
        prompts: Texts that a label follows.
        labels: With their leading space, all different.
        by: What is normalised over the labels: "total", a label's probability (short labels are favoured as the model
            favours them), or "mean", its probability per token.
        chunks: Characters of each prompt that may be cut.

    Raises:
        ValueError: No labels, or the same twice.
    """
    if not labels or len(set(labels)) != len(labels):
        raise ValueError(f"labels must be given and differ: {list(labels)!r}")
    spans = [None] * len(prompts) if chunks is None else list(chunks)
    pairs = [ScoredText(prompt, label, span) for prompt, span in zip(prompts, spans, strict=True) for label in labels]
    scores = scorer.score(pairs)
    found = []
    for start in range(0, len(scores), len(labels)):
        raw = tuple(scores[start : start + len(labels)])
        found.append(LabelScores(tuple(labels), raw, softmax([getattr(likelihood, by) for likelihood in raw])))
    return found


def softmax(values: Sequence[float]) -> tuple[float, ...]:
    """Numbers as shares of their exponentials' sum, safe from overflow."""
    top = max(values)
    shares = [math.exp(value - top) for value in values]
    whole = math.fsum(shares)
    return tuple(share / whole for share in shares)
