"""Set up the training stages: initial weights, trainable parts, data and objective."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from benchmarks.text import cover_em
from methods.clara.config import (
    ADAPTERS,
    TEXT,
    Adapter,
    ClaraTrainingConfig,
    JointStage,
    Part,
    Stage,
    StepOptions,
    SupervisedStage,
    ValidateOptions,
)
from methods.clara.data import (
    Row,
    TrainingExample,
    as_text,
    fitting_examples,
    fitting_rows,
    in_examples,
    in_rows,
    instruction_examples,
    scp_examples,
)
from methods.clara.model import Clara, Encoded
from methods.clara.objective import Compression, FrozenDocuments, Joint, Objective, Supervised, candidates_of, recalls
from methods.clara.prompts import Request, query
from methods.clara.rows import InstructionRow, JointRow, ScpRow
from methods.models.weights import locate
from methods.training import Progress
from methods.training.loop import Validate


@dataclass(frozen=True)
class Prepared:
    """A stage that is ready for training.

    Attributes:
        objective: Training objective.
        rows: Training rows.
        train: Optimization options.
        too_long: Number of questions and paraphrases dropped for their length.
    """

    objective: Objective[Any]
    rows: Sequence[Any]
    train: StepOptions
    too_long: int = 0


def begin(config: ClaraTrainingConfig, stage: Stage, parent: str | None, device: str | None) -> Clara:
    """Load a stage's initial model, with exactly the stage's parts trainable.

    Args:
        config: All options.
        stage: The stage.
        parent: Checkpoint to start from; None for the bare base.
        device: Device.

    Raises:
        UserError: The checkpoint's model options differ from the configured ones.
    """
    wanted = TEXT if config.reads == "text" else ADAPTERS
    if parent is None:
        clara = Clara.open(config.model, wanted, device, config.seed)
    else:
        clara = Clara.load(Path(locate(parent)), device)
        if tuple(clara.adapters.names) != wanted:
            raise UserError(
                f"the checkpoint has the adapters {', '.join(clara.adapters.names)}, and a training that reads {config.reads} "
                f"starts from {', '.join(wanted)}",
                code="checkpoint-adapters-mismatch",
                where=f"start: {parent}",
                try_this="a checkpoint that was trained with the same `reads`",
            )
        if clara.config != config.model:
            raise UserError(
                "the checkpoint was trained with other model options",
                code="checkpoint-options-mismatch",
                where=f"start: {parent}",
                try_this="remove `model`: the checkpoint has its options",
            )
    if stage == "instruction" and config.instruction.reinit_generator:
        clara.adapters.reset("generator", _seed(config, stage))
    if stage in ("supervised", "joint"):
        begins = config.joint.reasoner if stage == "joint" else "compressor"
        if begins == "compressor":
            clara.adapters.copy("compressor", "reasoner")
        elif begins == "random":
            clara.adapters.reset("reasoner", _seed(config, stage))
    clara.recompute_activations(config.recompute)
    clara.set_trainable(trained(config, stage))
    return clara


def trained(config: ClaraTrainingConfig, stage: Stage) -> set[Part]:
    """Return the parts of the model that a stage trains."""
    if config.reads == "text":
        return {"generator"}
    if stage == "scp":
        return {"compressor", "generator", "memory"}
    if stage == "supervised":
        return {"reasoner"}
    if stage == "joint":
        return {"generator"} if config.joint.selection == "frozen" else {"reasoner", "generator"}
    if config.instruction.trains == "generator":
        return {"generator"}
    # Behind pretraining memory rows are frozen; without it nothing else would ever train them.
    pretrained = config.start is not None or "scp" in config.planned
    return {"compressor", "generator"} if pretrained else {"compressor", "generator", "memory"}


def prepare(
    config: ClaraTrainingConfig, stage: Stage, clara: Clara, rows: Sequence[Row], folder: Path, progress: Progress, process: Any = None
) -> Prepared:
    """Build a stage's objective and training rows.

    Args:
        config: All options.
        stage: The stage.
        clara: The initial model.
        rows: Rows of the stage.
        folder: Folder for documents encoded by the frozen compressor.
        progress: Progress callback.
        process: `accelerate` process; None for a single process.
    """
    if stage in ("scp", "instruction"):
        options = config.scp if stage == "scp" else config.instruction
        taught = in_examples(examples(config, rows), config.out_of_vocabulary, config.seed)
        if config.reads == "text":
            taught = as_text(taught)
        kept = fitting_examples(taught, clara.generator, config.skip_long)
        return Prepared(Compression(clara, options, process), kept, options.train, _turns(taught) - _turns(kept))
    queries = in_rows([row for row in rows if isinstance(row, JointRow)], config.out_of_vocabulary, config.seed)
    stage_options = config.joint if stage == "joint" else config.supervised
    every = len(queries)
    if stage == "joint":
        queries = fitting_rows(queries, clara.generator, clara.config.k, config.skip_long)
    frozen = _frozen(clara, queries, stage_options, folder, progress, process)
    if stage == "joint":
        objective = Joint(clara, config.joint, frozen, process)
        return Prepared(objective, queries, config.joint.train, every - len(queries))
    return Prepared(Supervised(clara, frozen, process), queries, config.supervised.train)


def _turns(examples: Sequence[TrainingExample]) -> int:
    return sum(len(example.exchanges) for example in examples)


def finish(config: ClaraTrainingConfig, stage: Stage, clara: Clara) -> None:
    """Complete the model before its checkpoint is saved.

    If no stage has trained the reasoner yet, the compressor's adapter is copied to it, so that every checkpoint can rank.
    """
    if stage in ("scp", "instruction") and config.reads == "memory":
        clara.adapters.copy("compressor", "reasoner")


def examples(config: ClaraTrainingConfig, rows: Sequence[Row]) -> list[TrainingExample]:
    """Convert pretraining rows to training examples; each paraphrase gets a wording drawn by seed and row."""
    pretraining = [row for row in rows if isinstance(row, ScpRow)]
    tuning = [row for row in rows if isinstance(row, InstructionRow)]
    return [*scp_examples(pretraining, config.scp, config.seed), *instruction_examples(tuning, config.instruction, config.seed)]


def _frozen(
    clara: Clara, rows: Sequence[JointRow], options: SupervisedStage | JointStage, folder: Path, progress: Progress, process: Any
) -> Callable[[Sequence[str]], Tensor]:
    """Return the function that provides the candidates' memory."""
    clara.module.eval()
    texts = (text for row in rows for text in row.documents)
    shape = clara.memory_tokens, clara.hidden_size
    dtype = clara.base.get_input_embeddings().weight.dtype
    documents = FrozenDocuments(
        texts, lambda some: clara.encode(some).memory, shape, dtype, folder, 8 * options.train.micro_batch, progress, process
    )
    return documents.of


def _seed(config: ClaraTrainingConfig, stage: Stage) -> int:
    """Return a stage's random seed, different from that of adapter initialization."""
    return int(fingerprint("clara", stage, config.seed), 16) % 2**32


ANSWER_TOKENS, TOGETHER = 24, 16
"""Maximum answer length in validation, and batch size for validation answers."""
RECALLS = (1, 3, 5)
"""Values of k for which recall is reported."""


def validator(
    clara: Clara,
    examples: Sequence[TrainingExample],
    questions: Sequence[JointRow],
    options: ValidateOptions,
    *,
    selects: bool,
    text: bool = False,
) -> Validate | None:
    """Build the function that computes validation metrics; None without validation rows.

    Pretraining rows give `validation_loss` and `validation_mse`. Questions give `validation_answer_loss` (per token) and
    `validation_cover_em`, answered from all their documents or, with `selects`, from the selected ones, then with
    `validation_recall@k`.

    Args:
        clara: The model.
        examples: Validation rows of pretraining.
        questions: Validation questions.
        options: Validation options.
        selects: Whether the reasoner selects documents.
        text: Whether documents are read as text.
    """
    if not examples and not questions:
        return None

    def validate() -> Mapping[str, float]:
        figures: dict[str, float] = {}
        with torch.inference_mode(), clara.evaluating():
            if examples:
                figures |= losses(clara, examples, TOGETHER)
            if questions:
                figures |= answered(clara, questions, options, selects=selects, text=text)
        return {f"validation_{name}": value for name, value in figures.items()}

    return validate


def losses(clara: Clara, examples: Sequence[TrainingExample], batch_size: int) -> dict[str, float]:
    """Compute the cross-entropy per reply token, and the alignment loss."""
    entropy = mse = tokens = documents = 0.0
    for start in range(0, len(examples), batch_size):
        some = examples[start : start + batch_size]
        encoded: Encoded = clara.encode([text for item in some for text in item.documents])
        memory = encoded.memory.split([len(item.documents) for item in some])
        queries = [(exchange, own) for example, own in zip(some, memory, strict=True) for exchange in example.exchanges]
        prompts, targets = [item.prompt for item, _ in queries], [item.target for item, _ in queries]
        entropy += float(clara.cross_entropy(prompts, [own for _, own in queries], targets, "row_sums").sum())
        tokens += sum(len(clara.generator.target_ids(target)) for target in targets)
        mse += float(clara.alignment(encoded)) * len(encoded.memory) if len(encoded.memory) else 0.0
        documents += len(encoded.memory)
    return {"loss": entropy / tokens, **({"mse": mse / documents} if documents else {})}


def answered(
    clara: Clara, questions: Sequence[JointRow], options: ValidateOptions, *, selects: bool, text: bool = False
) -> dict[str, float]:
    """Compute cover EM and per-token loss of the answers, and the recall of selected documents."""
    documents = {} if text else dict.fromkeys(item for row in questions for item in row.documents)
    memory = clara.encode(list(documents)).memory
    positions = {text: position for position, text in enumerate(documents)}

    def of(texts: Sequence[str]) -> Tensor:
        return memory[[positions[text] for text in texts]]

    figures: dict[str, float] = {}
    chosen = [list(range(len(row.documents))) for row in questions]
    if selects:
        chosen, figures = _selected(clara, questions, of, TOGETHER)
    kept = [[row.documents[position] for position in best] for row, best in zip(questions, chosen, strict=True)]
    prompts = [query(row.question, texts, text=text) for row, texts in zip(questions, kept, strict=True)]
    own = None if text else list(map(of, kept))
    entropy = {"answer_loss": _loss(clara, prompts, own, [row.answer for row in questions], TOGETHER)}
    return figures | entropy | {"cover_em": covered(clara, questions, prompts, own, options)}


def _loss(clara: Clara, prompts: Sequence[Request], memory: Sequence[Tensor] | None, answers: Sequence[str], batch_size: int) -> float:
    """Compute the cross-entropy per answer token."""
    total = 0.0
    for start in range(0, len(prompts), batch_size):
        end = start + batch_size
        own = None if memory is None else memory[start:end]
        losses = clara.cross_entropy(prompts[start:end], own, answers[start:end], "row_sums")
        total += float(losses.sum())
    return total / sum(len(clara.generator.target_ids(item)) for item in answers)


def covered(
    clara: Clara,
    questions: Sequence[JointRow],
    prompts: Sequence[Request],
    memory: Any,
    options: ValidateOptions,
    adapter: Adapter | None = "generator",
) -> float:
    """Compute the fraction of questions whose reply contains a gold answer."""
    replies = clara.generate(prompts, memory, ANSWER_TOKENS, TOGETHER, adapter)
    scores = [cover_em(reply.text, row.golds) for reply, row in zip(replies, questions, strict=True)]
    return math.fsum(scores) / len(scores)


def _selected(clara: Clara, questions: Sequence[JointRow], of: Any, batch_size: int) -> tuple[list[list[int]], dict[str, float]]:
    """Return the k best documents per question, and the recall over questions with positives."""
    chosen: list[list[int]] = []
    results: dict[int, list[float]] = {k: [] for k in RECALLS}
    for start in range(0, len(questions), batch_size):
        rows = questions[start : start + batch_size]
        scored = candidates_of(clara, rows, of, learns=False)
        order = scored.scores.masked_fill(~scored.mask, -torch.inf).sort(dim=-1, descending=True, stable=True).indices
        for k in RECALLS:
            results[k] += recalls(order[:, :k], scored.positive).tolist()
        chosen += [best[: min(clara.config.k, len(row.documents))] for best, row in zip(order.tolist(), rows, strict=True)]
    judged = {k: [value for value in values if not math.isnan(value)] for k, values in results.items()}
    return chosen, {f"recall@{k}": math.fsum(values) / len(values) for k, values in judged.items() if values}
