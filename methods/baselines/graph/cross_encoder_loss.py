"""The loss of a cross-encoder over groups: of a question's triples the right one should score highest.

L = mean over groups of −log( exp(s_right) / Σ over the group's triples exp(s) )
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from benchmarks.fingerprint import fingerprint
from methods.baselines.graph.cross_encoder_rows import Group
from methods.torch_loop import backward, own, summed


class GroupObjective:
    """Adds the gradient of a batch's loss to the parameters of a cross-encoder.

    Groups are gone through a few at a time; the loss is a mean over groups, so nothing changes.

    Args:
        model: A `CrossEncoder` of sentence-transformers.
        part: Pairs that fit.
        accelerator: Of `accelerate`; None: one process in the model's own precision.
    """

    def __init__(self, model: Any, part: int, accelerator: Any = None) -> None:
        self.model, self.part, self.accelerator = model, part, accelerator

    def backward(self, batch: Sequence[Group], seed: Sequence[str | int]) -> float:
        """Add the gradient; each process adds that of its own groups.

        Args:
            batch: The groups.
            seed: What dropout is drawn from: seed, step …

        Returns:
            The loss.
        """
        import torch

        total = 0.0
        for number, group in own(list(enumerate(self._parts(batch))), self.accelerator):
            torch.manual_seed(int(fingerprint(*seed, number), 16) % 2**63)
            loss = self._loss(group) / len(batch)
            total += float(loss.detach())
            backward(loss, self.accelerator)
        return summed(total, self.accelerator, self.model.device)

    def scores(self, pairs: Sequence[tuple[str, str]]) -> Any:
        """Raw scores of questions and triples: shape (pairs,)."""
        tokenizer = self.model.tokenizer
        questions, triples = map(list, zip(*pairs, strict=True))
        features = tokenizer(questions, triples, truncation=True, max_length=self.model.max_seq_length, padding=True, return_tensors="pt")
        with nullcontext() if self.accelerator is None else self.accelerator.autocast():
            found = self.model(dict(features.to(self.model.device)))["scores"]
        return found.float().reshape(len(pairs))

    def _parts(self, batch: Sequence[Group]) -> list[list[Group]]:
        """Groups in parts of at most so many pairs, at least one group each."""
        parts: list[list[Group]] = []
        room = 0
        for group in batch:
            if not parts or room < len(group.texts):
                parts.append([])
                room = self.part
            parts[-1].append(group)
            room -= len(group.texts)
        return parts

    def _loss(self, part: Sequence[Group]) -> Any:
        """The summed loss of some groups."""
        scores = self.scores([(group.question, text) for group in part for text in group.texts])
        ends = np.cumsum([len(group.texts) for group in part]).tolist()
        starts = [0, *ends[:-1]]
        losses = [scores[start:end].logsumexp(0) - scores[start] for start, end in zip(starts, ends, strict=True)]
        return sum(losses)
