"""What pretraining and instruction tuning learn: replies from memory, and memory that stays near its document."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from methods.clara.compressor import Encoded
from methods.clara.model import Clara
from methods.clara.objective import naming_terms
from methods.clara.prompting import PARAPHRASES, Prompt, answer, paraphrase, qa_pairs, qa_target
from methods.clara.rows import InstructionRow, ScpRow
from methods.clara.trainer import Sums
from methods.clara.training_config import CompressionOptions


@dataclass(frozen=True, slots=True)
class Lesson:
    """A row as the model is taught it.

    Attributes:
        prompt: What is asked.
        documents: Whose memory stands in it.
        target: The reply.
    """

    prompt: Prompt
    documents: tuple[str, ...]
    target: str


def scp_lesson(row: ScpRow, wording: int) -> Lesson:
    """A row of pretraining; a paraphrase is asked for in one of several wordings, counted on without end."""
    if row.kind == "paraphrase":
        return Lesson(paraphrase(wording % PARAPHRASES), (row.document,), row.paraphrase)
    return Lesson(qa_pairs(), (row.document,), qa_target(row.questions, row.answers))


def instruction_lesson(row: InstructionRow, documents: int) -> Lesson:
    """A row of instruction tuning, with its first so many documents."""
    kept = row.documents[:documents]
    return Lesson(answer(row.question, len(kept)), kept, row.answer)


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
        return max(len(row.target), *map(len, row.documents))

    def whole(self, batch: Sequence[Lesson]) -> Whole:
        """Documents and reply tokens of a batch."""
        tokens = sum(len(self._clara.generator.target_ids(one.target)) for one in batch)
        return Whole(sum(len(one.documents) for one in batch), tokens)

    def part(self, rows: Sequence[Lesson], whole: Whole, done: float, step: int) -> tuple[Any, Sums]:
        """The losses of some rows: see `trainer.Objective`."""
        options = self._options
        documents = [text for row in rows for text in row.documents]
        share = len(documents) / whole.documents
        with nullcontext() if self._process is None else self._process.autocast():
            encoded = self._encoded(documents)
            mse = self._clara.alignment(encoded) * share
            loss, sums = options.mse * mse, {"mse": float(mse.detach())}
            if options.naming:
                naming = self._naming(documents, encoded) / whole.documents
                loss, sums["naming"] = loss + options.naming * naming, float(naming.detach())
            if step >= options.naming_only:
                entropy = self._entropy(rows, encoded) / whole.tokens
                loss, sums["cross_entropy"] = loss + entropy, float(entropy.detach())
        return loss, {"loss": float(loss.detach()), **sums}

    def _encoded(self, documents: Sequence[str]) -> Encoded:
        """The documents' memory; a compressor that is not trained works without dropout, as it will in use."""
        if self._learns:
            return self._clara.encode(documents)
        with torch.no_grad(), self._clara.evaluating():
            return self._clara.encode(documents)

    def _entropy(self, rows: Sequence[Lesson], encoded: Encoded) -> Any:
        """Summed over reply tokens."""
        memory = encoded.memory.split([len(row.documents) for row in rows])
        prompts, targets = [row.prompt for row in rows], [row.target for row in rows]
        return self._clara.cross_entropy(prompts, memory, targets, "row_sums").sum()

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
