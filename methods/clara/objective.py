"""Training objectives of CLaRa's stages: losses as sums, so that parts of a batch can be added.

Source: paper, equations 2.1 to 2.3 (compression), 3.2 (joint); the supervised loss is that of the released code. Additions that
are not in the paper are marked as ours, and off by default.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch
from torch import Tensor

from benchmarks.core.errors import Broke, UserError
from benchmarks.core.fingerprint import fingerprint
from benchmarks.core.random import Draws
from methods.clara.config import ClaraTrainingConfig, CompressionOptions, JointStage, ScpStage, StepOptions
from methods.clara.data import TrainingExample
from methods.clara.generator import select
from methods.clara.model import Clara, Encoded
from methods.clara.prompts import answer
from methods.clara.rows import JointRow
from methods.training import Progress
from methods.training.loop import LoopPlace, loop_over_rows
from methods.training.parts import MicroBatch, over_parts
from methods.training.pieces import naming_terms
from methods.training.ranks import backward, wait

if TYPE_CHECKING:
    from torch import Tensor, nn


# Losses are sums over a batch divided by what the whole batch holds, so a batch in parts has the gradient of the whole:
# exactly, but for dropout, which is drawn from the seed, the step and the part.


Row = TypeVar("Row", contravariant=True)
Sums = Mapping[str, float]
"""Metrics of some rows, as their contribution to the batch's totals; `loss` is the differentiated value."""


class Objective(Protocol[Row]):
    """Protocol of a stage's training objective."""

    def whole(self, batch: Sequence[Row]) -> Any:
        """Return the totals of a batch by which the losses of its parts are divided."""
        ...

    def size(self, row: Row) -> int:
        """Return a row's approximate length, for grouping rows of similar length."""
        ...

    def part(self, rows: Sequence[Row], whole: Any, done: float, step: int) -> tuple[Tensor | None, Sums]:
        """Compute the loss of a part of a batch, as a scalar tensor with gradient, and its metrics.

        Args:
            rows: Rows of the part.
            whole: Totals of the batch (from `whole`).
            done: Fraction of the stage's steps completed.
            step: Number of the current step.
        """
        ...


class StageTrainer:
    """Training loop of one stage.

    Args:
        name: Name of the stage.
        module: Module with the trainable parameters.
        objective: Training objective.
        rows: Training rows.
        train: Optimization options.
        config: Options of the training.
        place: Working folder and process of the loop.
    """

    def __init__(
        self,
        name: str,
        module: nn.Module,
        objective: Objective[Any],
        rows: Sequence[Any],
        train: StepOptions,
        config: ClaraTrainingConfig,
        place: LoopPlace,
    ) -> None:
        self.objective, self._name, self._seed = objective, name, config.seed
        self._rows, self._process = list(rows), place.accelerator
        self._micro = MicroBatch(train.micro_batch, f"{name}.train.micro_batch")
        epoch = -(-len(rows) // train.batch_size)
        more: dict[str, Any] = {"decayed": "all", "betas": (0.9, 0.95), "weight_decay": 0.0, "trainable_only": True}
        more["save_every"] = config.save_every
        more["epoch"] = config.validate_on.every or min(epoch, train.steps or epoch)
        self.loop = loop_over_rows(
            f"clara {name}", {"clara": module}, train, self.rows_of, len(rows), self._step, place, micro=self._micro, **more
        )

    def rows_of(self, epoch: int) -> list[Any]:
        """Return the rows of an epoch in their shuffled order."""
        rows = list(self._rows)
        Draws("clara", self._name, self._seed, epoch).shuffle(rows)
        return rows

    def _step(self, rows: Sequence[Any], epoch: int, step: int) -> dict[str, float]:
        """Compute the gradient of a step in parts; each process handles its own parts."""
        rows = sorted(rows, key=self.objective.size)
        whole, done = self.objective.whole(rows), step / self.loop.options.steps
        size = self._micro.size
        parts = [rows[start : start + size] for start in range(0, len(rows), size)]
        return over_parts(parts, partial(self._part, whole, done, step), self._process)

    def _part(self, whole: Any, done: float, step: int, number: int, rows: Sequence[Any]) -> Sums:
        devices = [self._process.device] if self._process is not None and self._process.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(int(fingerprint(self._name, self._seed, step, number), 16) % 2**63)
            loss, sums = self.objective.part(rows, whole, done, step)
            if loss is None:
                return sums
            backward(loss, self._process)
        return sums


def supervised_terms(scores: Tensor, positive: Tensor, tau: float) -> Tensor:
    """Compute the supervised retrieval loss per question: the negative log of the positives' share of the softmax.

    Args:
        scores: Cosines, [B, D]; minus infinity for padding.
        positive: bool [B, D].
        tau: Temperature.

    Returns:
        [B], at least float32: -[logsumexp over positives of s/tau - logsumexp over all]; NaN for rows without positives.
    """
    s = scores.float() / tau
    missing = ~positive.any(-1)
    result = s.masked_fill(~positive, -torch.inf).logsumexp(-1)
    return (s.logsumexp(-1) - result).masked_fill(missing, torch.nan)


NAMED = 0.35
"""Fraction of the steps during which the weight of the naming loss decays to 0."""
CPU_TOKENS = 1024
"""Maximum tokens per batch on a CPU, where documents of similar length are grouped to limit padding."""


@dataclass(frozen=True, slots=True)
class Whole:
    """Totals of a batch: number of documents, and tokens of replies."""

    documents: int
    tokens: int


class Compression:
    """Objective of compression stages: cross-entropy of replies plus alignment loss (equation 2.3), and optionally the naming
    loss (ours).

    Args:
        clara: The model, with its trainable parts already set.
        options: Weights of the losses.
        process: `accelerate` process; None for no mixed precision.
    """

    def __init__(self, clara: Clara, options: CompressionOptions, process: Any = None) -> None:
        self._clara, self._options, self._process = clara, options, process
        named = options if isinstance(options, ScpStage) else ScpStage.model_validate({})
        self._naming_weight, self._naming_only = named.naming, named.naming_only
        self._learns = any(item.requires_grad for item in clara.adapters.of("compressor").values())

    def size(self, row: TrainingExample) -> int:
        """Return the number of characters of the longest text."""
        texts = row.documents or row.exchanges[0].prompt.texts
        return max(*(len(exchange.target) for exchange in row.exchanges), *map(len, texts))

    def whole(self, batch: Sequence[TrainingExample]) -> Whole:
        """Return the number of documents and reply tokens of a batch."""
        targets = [exchange.target for row in batch for exchange in row.exchanges]
        tokens = sum(len(self._clara.generator.target_ids(target)) for target in targets)
        return Whole(sum(len(row.documents) for row in batch), tokens)

    def part(self, rows: Sequence[TrainingExample], whole: Whole, done: float, step: int) -> tuple[Tensor, Sums]:
        """Compute the losses of a part of a batch; see `Objective.part`."""
        options = self._options
        documents = [text for row in rows for text in row.documents]
        loss, sums = torch.zeros((), device=self._clara.device), {}
        with nullcontext() if self._process is None else self._process.autocast():
            encoded = self._encoded(documents)
            if documents:
                mse = self._clara.alignment(encoded) * (len(documents) / whole.documents)
                loss, sums = options.mse * mse, {"mse": float(mse.detach())}
            weight = self._naming_weight * max(0.0, 1.0 - done / NAMED) if documents else 0.0
            if weight:
                naming = self._naming(documents, encoded) / whole.documents
                loss, sums["naming"] = loss + weight * naming, float(naming.detach())
            if step >= self._naming_only or not documents:
                entropy = self._entropy(rows, encoded) / whole.tokens
                loss, sums["cross_entropy"] = loss + entropy, float(entropy.detach())
        return loss, {"loss": float(loss.detach()), **sums}

    def _encoded(self, documents: Sequence[str]) -> Encoded:
        """Encode documents; an untrained compressor runs without dropout, as in inference."""
        budget = CPU_TOKENS if self._clara.device.type == "cpu" else None
        if self._learns:
            return self._clara.encode(documents, token_budget=budget)
        with torch.no_grad(), self._clara.evaluating():
            return self._clara.encode(documents, token_budget=budget)

    def _entropy(self, rows: Sequence[TrainingExample], encoded: Encoded) -> Tensor:
        """Compute the summed loss of reply tokens; prompts about the same memory are packed if the base supports it."""
        memory = encoded.memory.split([len(row.documents) for row in rows])
        if any(len(row.exchanges) > 1 for row in rows):
            packed = self._clara.packed_cross_entropy(
                [[exchange.prompt for exchange in row.exchanges] for row in rows],
                memory,
                [[exchange.target for exchange in row.exchanges] for row in rows],
            )
            if packed is not None:
                return packed.sum()
        queries = [(exchange, own) for row, own in zip(rows, memory, strict=True) for exchange in row.exchanges]
        queries.sort(key=lambda pair: len(pair[0].prompt.question) + len(pair[0].target))
        total: Any = 0.0
        for start in range(0, len(queries), len(rows)):
            some = queries[start : start + len(rows)]
            prompts, targets = [item.prompt for item, _ in some], [item.target for item, _ in some]
            total = total + self._clara.cross_entropy(prompts, [own for _, own in some], targets, "row_sums").sum()
        return total

    def _naming(self, documents: Sequence[str], encoded: Encoded) -> Tensor:
        """Compute the naming loss, summed over documents."""
        head = self._clara.base.get_output_embeddings()
        logits = head(encoded.memory.to(head.weight.dtype))
        rows = self._clara.compressor.ids(documents)
        longest = max(map(len, rows))
        ids = torch.tensor([row + [-1] * (longest - len(row)) for row in rows], device=logits.device)
        mask = ids >= 0
        # The mark that a document begins with is not a token of the base.
        known = mask & (ids < logits.shape[-1])
        return naming_terms(logits, ids.where(known, 0), mask, known).sum()


# Documents are encoded in blocks that follow from their order alone. So a training that continues reads the very numbers
# that it began with, and of several processes each may encode some of the blocks.


MEMORY = "memory.bin"
Encode = Callable[[Sequence[str]], Tensor]
"""Function from documents to their memory, [N, M, h], without gradient."""


class FrozenDocuments:
    """Memory of documents, encoded once by the frozen compressor and stored on disk.

    Args:
        texts: The documents; duplicates are encoded once.
        encode: Encoder, called at most once per block, without gradient.
        shape: M and h.
        dtype: Data type (that of the base).
        folder: Folder for the encoded documents.
        block: Number of documents per block.
        progress: Callback for progress by block.
        process: `accelerate` process; None for a single process.

    Raises:
        UserError: There is not enough disk space.
    """

    def __init__(
        self,
        texts: Iterable[str],
        encode: Encode,
        shape: tuple[int, int],
        dtype: torch.dtype,
        folder: Path,
        block: int,
        progress: Progress,
        process: Any = None,
    ) -> None:
        self._positions = {text: position for position, text in enumerate(dict.fromkeys(texts))}
        self._shape = shape
        folder.mkdir(parents=True, exist_ok=True)
        count, blocks = len(self._positions), -(-len(self._positions) // block)
        _require_room(folder, count * shape[0] * shape[1] * dtype.itemsize)
        # A file that is mapped and not there yet begins as zeros: no block is done.
        self._memory = torch.from_file(str(folder / MEMORY), shared=True, size=count * shape[0] * shape[1], dtype=dtype).view(count, *shape)
        done = torch.from_file(str(folder / "done.bin"), shared=True, size=blocks, dtype=torch.uint8)
        first, ranks = (process.process_index, process.num_processes) if process is not None else (0, 1)
        documents = list(self._positions)
        progress.begin("compressing documents", blocks, int(done.sum()))
        for number in range(first, blocks, ranks):
            if not done[number]:
                some = slice(number * block, (number + 1) * block)
                with torch.no_grad():
                    self._memory[some] = encode(documents[some]).to("cpu", dtype)
                done[number] = 1
                progress.advance()
        wait(process)

    def __len__(self) -> int:
        return len(self._positions)

    def of(self, texts: Sequence[str]) -> Tensor:
        """Return the memory of documents: [N, M, h] on the CPU, detached.

        Raises:
            KeyError: A document has not been encoded.
        """
        return self._memory[[self._positions[text] for text in texts]]


def _require_room(folder: Path, wanted: int) -> None:
    """Check the disk space first, because a full disk kills the writer of a mapped file."""
    memory = folder / MEMORY
    # Space on disk (blocks of 512 bytes), which is less than the file's length while the file is sparse.
    there = getattr(memory.stat(), "st_blocks", 0) * 512 if memory.is_file() else 0
    free = shutil.disk_usage(folder).free
    if wanted - there > free:
        raise UserError(
            f"the memory of the candidates takes {wanted / 2**30:,.1f} GiB, but only {free / 2**30:,.1f} GiB are free",
            code="candidate-memory-too-large",
            where=str(folder),
            try_this="put the store on another disk",
        )


Documents = Callable[[Sequence[str]], Tensor]
"""Function from texts to their memory from the frozen compressor, [N, M, h]."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Candidate documents of some questions, with similarity scores.

    Attributes:
        memory: [B, D, M, h]; zeros for padding.
        mask: False for padding, bool [B, D].
        positive: True for positives, bool [B, D].
        scores: Cosines, float32 [B, D].
    """

    memory: Tensor
    mask: Tensor
    positive: Tensor
    scores: Tensor


def candidates_of(clara: Clara, rows: Sequence[JointRow], documents: Documents, learns: bool = True) -> Candidates:
    """Score the candidates of questions by cosine similarity (equation 3.1).

    Args:
        clara: The model.
        rows: Rows with questions and candidates.
        documents: Memory of the candidates.
        learns: Whether to compute gradients of the scores.

    Raises:
        Broke: A cosine is NaN.
    """
    questions = [row.question for row in rows]
    if learns:
        query = clara.encode(questions, "reasoner").memory
    else:
        with torch.no_grad(), clara.evaluating():
            query = clara.encode(questions, "reasoner").memory
    widest = max(len(row.documents) for row in rows)
    mask = torch.zeros(len(rows), widest, dtype=torch.bool)
    positive = torch.zeros_like(mask)
    memory = torch.zeros(len(rows), widest, *query.shape[1:])
    for position, row in enumerate(rows):
        mask[position, : len(row.documents)] = True
        positive[position, list(row.positives)] = True
        memory[position, : len(row.documents)] = documents(row.documents).float()
    memory, mask, positive = (item.to(query.device) for item in (memory, mask, positive))
    scores = clara.similarity(query, memory)
    if not scores.detach().isfinite().all():
        raise Broke(
            "cosines of questions and documents are not numbers",
            code="cosines-not-finite",
            where="query reasoner",
            try_this="a lower learning rate, or precision bf16 or no instead of fp16",
        )
    return Candidates(memory, mask, positive, scores)


@dataclass(frozen=True, slots=True)
class JointWhole:
    """Totals of a batch: questions, questions with a positive, and tokens of answers."""

    rows: int
    judged: int
    tokens: int


class Joint:
    """Objective of joint training: cross-entropy of answers from the documents that the reasoner selects (equation 3.2).

    Args:
        clara: The model, with its trainable parts already set.
        options: Options of the stage.
        documents: Memory of candidates from the frozen compressor.
        process: `accelerate` process; None for no mixed precision.
    """

    def __init__(self, clara: Clara, options: JointStage, documents: Documents, process: Any = None) -> None:
        self._clara, self._options, self._documents, self._process = clara, options, documents, process
        self._k = clara.config.k

    def size(self, row: JointRow) -> int:
        """Return the number of characters of question and answer; all rows have equally many memory tokens."""
        return len(row.question) + len(row.answer)

    def whole(self, batch: Sequence[JointRow]) -> JointWhole:
        """Return the numbers of questions, questions with a positive, and answer tokens of a batch."""
        tokens = sum(len(self._clara.generator.target_ids(row.answer)) for row in batch)
        return JointWhole(len(batch), sum(bool(row.positives) for row in batch), tokens)

    def part(self, rows: Sequence[JointRow], whole: JointWhole, done: float, step: int) -> tuple[Tensor, Sums]:
        """Compute the loss of a part of a batch; see `Objective.part`.

        A question with fewer than k candidates uses all of them, without affecting other questions.
        """
        by_k: dict[int, list[JointRow]] = {}
        for row in rows:
            by_k.setdefault(min(self._k, len(row.documents)), []).append(row)
        parts = [self._of(some, k, whole) for k, some in by_k.items()]
        sums: dict[str, float] = {}
        for _, figures in parts:
            for name, value in figures.items():
                sums[name] = sums.get(name, 0.0) + value
        return torch.stack([loss for loss, _ in parts]).sum(), sums

    def _of(self, rows: Sequence[JointRow], k: int, whole: JointWhole) -> tuple[Tensor, dict[str, float]]:
        """Compute the summed loss of rows with the same k."""
        with nullcontext() if self._process is None else self._process.autocast():
            result = candidates_of(self._clara, rows, self._documents, self._options.selection == "learned")
            chosen = select(result.scores, k, self._clara.config.tau, result.mask, self._clara.config.mask)
            prompts = [answer(row.question, chosen.ids.shape[1]) for row in rows]
            memory = chosen.apply(result.memory)
            answers = [row.answer for row in rows]
            loss = self._clara.cross_entropy(prompts, memory, answers, "row_sums").sum() / whole.tokens
            sums = {"cross_entropy": float(loss.detach())}
        if whole.judged:
            sums["recall"] = float(recalls(chosen.ids, result.positive).nansum()) / whole.judged
        return loss, {"loss": float(loss.detach()), **sums}


class Supervised:
    """Objective of the supervised retriever: retrieval loss averaged over questions with a positive.

    Args:
        clara: The model, with its trainable parts already set.
        documents: Memory of candidates from the frozen compressor.
        process: `accelerate` process; None for no mixed precision.
    """

    def __init__(self, clara: Clara, documents: Documents, process: Any = None) -> None:
        self._clara, self._documents, self._process = clara, documents, process

    def size(self, row: JointRow) -> int:
        """Return the number of characters of the question."""
        return len(row.question)

    def whole(self, batch: Sequence[JointRow]) -> int:
        """Return the number of questions with a positive."""
        return sum(bool(row.positives) for row in batch)

    def part(self, rows: Sequence[JointRow], whole: int, done: float, step: int) -> tuple[Tensor, Sums]:
        """Compute the loss of a part of a batch; see `Objective.part`."""
        with nullcontext() if self._process is None else self._process.autocast():
            result = candidates_of(self._clara, rows, self._documents)
        scores = result.scores.masked_fill(~result.mask, -torch.inf)
        loss = supervised_terms(scores, result.positive, self._clara.config.tau).nansum() / whole
        # Places without a candidate come last and are never positive.
        best = scores.detach().sort(dim=-1, descending=True, stable=True).indices[:, : self._clara.config.k]
        recall = float(recalls(best, result.positive).nansum()) / whole
        return loss, {"loss": float(loss.detach()), "recall": recall}


def recalls(ids: Tensor, positive: Tensor) -> Tensor:
    """Compute the recall of the selected documents per question: [B]; NaN without positives.

    Args:
        ids: Indices of the selected documents, [B, k].
        positive: bool [B, D].
    """
    return positive.gather(1, ids).sum(-1) / positive.sum(-1)
