"""What pretraining and instruction tuning learn: replies from memory, and memory that stays near its document."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from methods.clara.compressor import Encoded
from methods.clara.lessons import Lesson
from methods.clara.model import Clara
from methods.clara.objective import naming_terms
from methods.clara.trainer import Sums
from methods.clara.training_config import CompressionOptions

CPU_TOKENS = 1024
"""Tokens that a CPU reads at once: documents of like length, with little padding between them."""


@dataclass(frozen=True, slots=True)
class Whole:
    """What a batch holds: documents and tokens of replies."""

    documents: int
    tokens: int


class Compression:
    """Cross-entropy of replies, the alignment loss, and perhaps the naming loss (equation 2.3; naming is ours).

    Args:
        clara: The model; what it trains is set already.
        options: Weights of the losses.
        process: Of `accelerate`; None: no mixed precision.
    """

    def __init__(self, clara: Clara, options: CompressionOptions, process: Any = None) -> None:
        self._clara, self._options, self._process = clara, options, process
        self._learns = any(one.requires_grad for one in clara.adapters.of("compressor").values())

    def size(self, row: Lesson) -> int:
        """Characters of the longest text."""
        return max(*(len(one.target) for one in row.exchanges), *map(len, row.documents))

    def whole(self, batch: Sequence[Lesson]) -> Whole:
        """Documents and reply tokens of a batch."""
        targets = [one.target for row in batch for one in row.exchanges]
        tokens = sum(len(self._clara.generator.target_ids(target)) for target in targets)
        return Whole(sum(len(row.documents) for row in batch), tokens)

    def part(self, rows: Sequence[Lesson], whole: Whole, done: float, step: int) -> tuple[Any, Sums]:
        """The losses of some rows: see `trainer.Objective`."""
        options = self._options
        documents = [text for row in rows for text in row.documents]
        share = len(documents) / whole.documents
        with nullcontext() if self._process is None else self._process.autocast():
            encoded = self._encoded(documents)
            mse = self._clara.alignment(encoded) * share
            loss, sums = options.mse * mse, {"mse": float(mse.detach())}
            weight = options.naming * _left(done, options.naming_fades)
            if weight:
                naming = self._naming(documents, encoded) / whole.documents
                loss, sums["naming"] = loss + weight * naming, float(naming.detach())
            if step >= options.naming_only:
                entropy = self._entropy(rows, encoded) / whole.tokens
                loss, sums["cross_entropy"] = loss + entropy, float(entropy.detach())
        return loss, {"loss": float(loss.detach()), **sums}

    def _encoded(self, documents: Sequence[str]) -> Encoded:
        """The documents' memory; a compressor that is not trained works without dropout, as it will in use."""
        budget = CPU_TOKENS if self._clara.device.type == "cpu" else None
        if self._learns:
            return self._clara.encode(documents, token_budget=budget)
        with torch.no_grad(), self._clara.evaluating():
            return self._clara.encode(documents, token_budget=budget)

    def _entropy(self, rows: Sequence[Lesson], encoded: Encoded) -> Any:
        """Summed over reply tokens; all that is asked of one memory is read in one row, by bases that can do so."""
        memory = encoded.memory.split([len(row.documents) for row in rows])
        if any(len(row.exchanges) > 1 for row in rows):
            packed = self._clara.packed_cross_entropy(
                [[one.prompt for one in row.exchanges] for row in rows], memory, [[one.target for one in row.exchanges] for row in rows]
            )
            if packed is not None:
                return packed.sum()
        asked = [(one, own) for row, own in zip(rows, memory, strict=True) for one in row.exchanges]
        asked.sort(key=lambda pair: len(pair[0].prompt.question) + len(pair[0].target))
        total: Any = 0.0
        for start in range(0, len(asked), len(rows)):
            some = asked[start : start + len(rows)]
            prompts, targets = [one.prompt for one, _ in some], [one.target for one, _ in some]
            total = total + self._clara.cross_entropy(prompts, [own for _, own in some], targets, "row_sums").sum()
        return total

    def _naming(self, documents: Sequence[str], encoded: Encoded) -> Any:
        """Summed over documents."""
        head = self._clara.base.get_output_embeddings()
        logits = head(encoded.memory.to(head.weight.dtype))
        rows = self._clara.compressor.ids(documents)
        longest = max(map(len, rows))
        ids = torch.tensor([row + [-1] * (longest - len(row)) for row in rows], device=logits.device)
        mask = ids >= 0
        # The mark that a document begins with is no token of the base.
        known = mask & (ids < logits.shape[-1])
        return naming_terms(logits, ids.where(known, 0), mask, known).sum()


def _left(done: float, fades: float | None) -> float:
    """What is left of a weight that falls evenly to nothing in a share of the steps; None: all of it."""
    return 1.0 if fades is None else max(0.0, 1.0 - done / fades)
