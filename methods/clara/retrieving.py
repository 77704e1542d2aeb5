"""What the query reasoner learns: jointly with the generator from answers alone, or from positives (the baseline)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.errors import Broke
from methods.clara.model import Clara
from methods.clara.objective import marginal_terms, supervised_terms
from methods.clara.prompting import answer
from methods.clara.rows import JointRow
from methods.clara.selector import Selection, select
from methods.clara.trainer import Sums
from methods.clara.training_config import JointStage

Documents = Callable[[Sequence[str]], Tensor]
"""From texts to their memory as the frozen compressor made it, [N, M, h]."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates of some questions, and how near they are.

    Attributes:
        memory: [B, D, M, h]; zeros where a question has fewer candidates.
        mask: Which are candidates, bool [B, D].
        positive: Which are positive, bool [B, D].
        scores: Cosines, float32 [B, D].
    """

    memory: Tensor
    mask: Tensor
    positive: Tensor
    scores: Tensor


def candidates_of(clara: Clara, rows: Sequence[JointRow], documents: Documents, learns: bool = True) -> Candidates:
    """Score the candidates of some questions (equation 3.1).

    Args:
        clara: The model.
        rows: Questions.
        documents: Memory of their candidates.
        learns: Whether scores have a gradient.

    Raises:
        Broke: A cosine is no number.
    """
    questions = [row.question for row in rows]
    if learns:
        asked = clara.encode(questions, "reasoner").memory
    else:
        with torch.no_grad(), clara.evaluating():
            asked = clara.encode(questions, "reasoner").memory
    widest = max(len(row.documents) for row in rows)
    mask = torch.zeros(len(rows), widest, dtype=torch.bool)
    positive = torch.zeros_like(mask)
    memory = torch.zeros(len(rows), widest, *asked.shape[1:])
    for place, row in enumerate(rows):
        mask[place, : len(row.documents)] = True
        positive[place, list(row.positives)] = True
        memory[place, : len(row.documents)] = documents(row.documents).float()
    memory, mask, positive = (one.to(asked.device) for one in (memory, mask, positive))
    scores = clara.similarity(asked, memory)
    if not scores.detach().isfinite().all():
        raise Broke(
            "cosines of questions and documents are no numbers",
            where="query reasoner",
            try_this="a lower learning rate, or precision bf16 or no in place of fp16",
        )
    return Candidates(memory, mask, positive, scores)


@dataclass(frozen=True, slots=True)
class Whole:
    """What a batch holds: questions, those with a positive, and tokens of answers."""

    rows: int
    judged: int
    tokens: int


class Joint:
    """Cross-entropy of answers from the documents that the reasoner chose (equation 3.2).

    Args:
        clara: The model; what it trains is set already.
        options: Of the stage.
        documents: Memory of candidates, made once by the frozen compressor.
        process: Of `accelerate`; None: no mixed precision.
    """

    def __init__(self, clara: Clara, options: JointStage, documents: Documents, process: Any = None) -> None:
        self._clara, self._options, self._documents, self._process = clara, options, documents, process
        self._k = options.k or clara.config.k
        self._tau = options.tau or clara.config.tau

    def size(self, row: JointRow) -> int:
        """Characters of question and answer: all rows have as much memory."""
        return len(row.question) + len(row.answer)

    def whole(self, batch: Sequence[JointRow]) -> Whole:
        """Questions and answer tokens of a batch."""
        tokens = sum(len(self._clara.generator.target_ids(row.answer)) for row in batch)
        return Whole(len(batch), sum(bool(row.positives) for row in batch), tokens)

    def tau(self, done: float) -> float:
        """The temperature at some share of the steps: the paper's is always the same."""
        start, until = self._options.tau_start, self._options.tau_steps
        if start is None or done >= until:
            return self._tau
        return float(start * (self._tau / start) ** (done / until))

    def softness(self, done: float) -> float:
        """How much of the soft weights is in the mixture at some share of the steps: none in the paper."""
        soft = self._options.soft_steps
        return 1 - done / soft if done < soft else 0.0

    def part(self, rows: Sequence[JointRow], whole: Whole, done: float, step: int) -> tuple[Any, Sums]:
        """The loss of some rows: see `trainer.Objective`.

        A question with fewer candidates than k has all of them, and its neighbours k all the same.
        """
        alike: dict[int, list[JointRow]] = {}
        for row in rows:
            alike.setdefault(min(self._k, len(row.documents)), []).append(row)
        parts = [self._of(some, k, whole, done) for k, some in alike.items()]
        sums: dict[str, float] = {}
        for _, figures in parts:
            for name, value in figures.items():
                sums[name] = sums.get(name, 0.0) + value
        return torch.stack([loss for loss, _ in parts]).sum(), sums

    def _of(self, rows: Sequence[JointRow], k: int, whole: Whole, done: float) -> tuple[Tensor, dict[str, float]]:
        """Of rows that are all answered from k documents."""
        with nullcontext() if self._process is None else self._process.autocast():
            found = candidates_of(self._clara, rows, self._documents, self._options.selection == "learnt")
            chosen = select(found.scores, k, self.tau(done), found.mask, self._clara.config.mask, self.softness(done))
            prompts = [answer(row.question, chosen.ids.shape[1]) for row in rows]
            memory = chosen.apply(found.memory)
            answers = [row.answer for row in rows]
            loss = self._clara.cross_entropy(prompts, memory, answers, "row_sums").sum() / whole.tokens
            sums = {"cross_entropy": float(loss.detach())}
            if self._options.marginal:
                marginal = self._marginal(rows, found, chosen, self.tau(done)) / whole.rows
                loss, sums["marginal"] = loss + self._options.marginal * marginal, float(marginal.detach())
        if whole.judged:
            sums["recall"] = float(recalls(chosen.ids, found.positive).nansum()) / whole.judged
        return loss, {"loss": float(loss.detach()), **sums}

    def _marginal(self, rows: Sequence[JointRow], found: Candidates, chosen: Selection, tau: float) -> Tensor:
        """Summed over rows; each chosen document answers alone."""
        ids = chosen.ids
        each = found.memory.gather(1, ids[..., None, None].expand(-1, -1, *found.memory.shape[2:]))
        prompts = [answer(row.question, 1) for row in rows for _ in range(ids.shape[1])]
        answers = [row.answer for row in rows for _ in range(ids.shape[1])]
        told = self._clara.cross_entropy(prompts, each.flatten(0, 1), answers, "row_sums")
        return marginal_terms(found.scores.gather(1, ids) / tau, -told.view(ids.shape)).sum()


class Supervised:
    """The supervised retriever's loss, averaged over questions that have a positive.

    Args:
        clara: The model; what it trains is set already.
        tau: Temperature.
        documents: Memory of candidates, made once by the frozen compressor.
        k: Documents whose recall is told.
        process: Of `accelerate`; None: no mixed precision.
    """

    def __init__(self, clara: Clara, tau: float, documents: Documents, k: int, process: Any = None) -> None:
        self._clara, self._tau, self._documents, self._k, self._process = clara, tau, documents, k, process

    def size(self, row: JointRow) -> int:
        """Characters of the question."""
        return len(row.question)

    def whole(self, batch: Sequence[JointRow]) -> int:
        """Questions with a positive."""
        return sum(bool(row.positives) for row in batch)

    def part(self, rows: Sequence[JointRow], whole: int, done: float, step: int) -> tuple[Any, Sums]:
        """The loss of some rows: see `trainer.Objective`."""
        with nullcontext() if self._process is None else self._process.autocast():
            found = candidates_of(self._clara, rows, self._documents)
        scores = found.scores.masked_fill(~found.mask, -torch.inf)
        loss = supervised_terms(scores, found.positive, self._tau).nansum() / whole
        # Places without a candidate come last and are never positive.
        best = scores.detach().sort(dim=-1, descending=True, stable=True).indices[:, : self._k]
        recall = float(recalls(best, found.positive).nansum()) / whole
        return loss, {"loss": float(loss.detach()), "recall": recall}


def recalls(ids: Tensor, positive: Tensor) -> Tensor:
    """Share of each question's positives among the chosen: [B]; NaN where it has none.

    Args:
        ids: Places of the chosen documents, [B, k].
        positive: bool [B, D].
    """
    return positive.gather(1, ids).sum(-1) / positive.sum(-1)
