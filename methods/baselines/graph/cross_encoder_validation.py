"""How well a cross-encoder in training ranks the triples that prove the answers of held-out questions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from methods.baselines.graph.cross_encoder_loss import GroupObjective
from methods.baselines.graph.cross_encoder_rows import Asked
from methods.baselines.graph.verbalise import verbalised
from methods.torch_loop import Figures, Validate


def validator(objective: GroupObjective, asked: Sequence[Asked], k: int) -> Validate:
    """Recall of a question's reasoning triples among the k best of its graph, over all questions.

    Args:
        objective: Scores pairs.
        asked: The questions.
        k: As said.
    """

    def validate() -> Figures:
        return {f"validation_triple_recall@{k}": float(np.mean([_recall(objective, one, k) for one in asked]))}

    return validate


def _recall(objective: GroupObjective, asked: Asked, k: int) -> float:
    import torch

    rows = np.concatenate([asked.easy, asked.gold])
    texts = verbalised(asked.corpus.triples, rows)
    pairs = [(asked.question.text, text) for text in texts]
    with torch.inference_mode():
        parts = [objective.scores(pairs[start : start + objective.part]) for start in range(0, len(pairs), objective.part)]
    # Gold comes last, so that equal scores do not favour it.
    best = np.argsort(-torch.cat(parts).cpu().numpy(), kind="stable")[:k]
    return float((best >= len(asked.easy)).sum() / len(asked.gold))
