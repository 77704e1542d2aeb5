"""A metric: is the answer as short as was asked for?"""

from __future__ import annotations

import numpy as np

from judges.metric import Batch, Parameter, Scores, register


@register(
    "brief",
    source="this package",
    group="text",
    needs=("answer",),
    parameters=(Parameter("words", int, 5, help="the most words that a short answer has"),),
)
def brief(batch: Batch, words: int) -> Scores:
    """1 where the answer has at least one and at most `words` words, else 0; whether it is right does not matter."""
    counts = np.array([len(answer.split()) for answer in batch.answers])
    return ((counts >= 1) & (counts <= words)).astype(np.float64)
