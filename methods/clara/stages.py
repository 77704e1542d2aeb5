"""What sets the stages apart: where they begin, exactly what they train, what they learn from.

| | trained | frozen | begins from |
|---|---|---|---|
| scp | compressor, generator, memory rows | base | the base |
| instruction | compressor, generator | base, memory rows | pretraining; without it memory rows are trained, too |
| supervised | reasoner | all else | either |
| joint | reasoner, generator | all else | either |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.errors import UserError
from benchmarks.fingerprint import fingerprint
from methods.clara.compression import Compression
from methods.clara.config import Part
from methods.clara.fitting import fitting_lessons, fitting_rows
from methods.clara.frozen_documents import FrozenDocuments
from methods.clara.lessons import Lesson, instruction_lessons, scp_lessons
from methods.clara.material import Row
from methods.clara.model import Clara
from methods.clara.retrieving import Joint, Supervised
from methods.clara.rows import InstructionRow, JointRow, ScpRow
from methods.clara.trainer import Objective
from methods.clara.training_config import ClaraTrainingConfig, JointStage, Stage, StepOptions, SupervisedStage
from methods.clara.unheard import in_lessons, in_rows
from methods.training import Progress


@dataclass(frozen=True)
class Prepared:
    """A stage that is ready to be trained.

    Attributes:
        objective: Its loss.
        rows: What it learns from.
        train: Steps and rates.
        too_long: Questions and paraphrases that were left out for their length.
    """

    objective: Objective[Any]
    rows: Sequence[Any]
    train: StepOptions
    too_long: int = 0


def begin(config: ClaraTrainingConfig, stage: Stage, parent: str | None, device: str | None) -> Clara:
    """The model as a stage begins, exactly what it trains open for training.

    Args:
        config: All options.
        stage: The stage.
        parent: The checkpoint that it begins from; None: the bare base.
        device: Where it is trained.

    Raises:
        UserError: The checkpoint is of another model than the options say.
    """
    if parent is None:
        clara = Clara.open(config.model, device=device, seed=config.seed)
    else:
        clara = Clara.load(Path(parent), device)
        if clara.config != config.model:
            raise UserError(
                "the checkpoint is of a model with other options",
                where=f"start: {parent}",
                try_this="leave `model` out: the checkpoint says what it is; k and tau are also options of joint",
            )
    if stage == "instruction" and config.instruction.reinit_generator:
        clara.adapters.reset("generator", _seed(config, stage))
    if stage in ("supervised", "joint"):
        begins = config.joint.reasoner if stage == "joint" else config.supervised.reasoner
        if begins == "compressor":
            clara.adapters.copy("compressor", "reasoner")
        elif begins == "random":
            clara.adapters.reset("reasoner", _seed(config, stage))
    clara.recompute_activations(config.recompute)
    clara.set_trainable(trained(config, stage))
    return clara


def trained(config: ClaraTrainingConfig, stage: Stage) -> set[Part]:
    """Exactly what a stage trains."""
    if stage == "scp":
        return {"compressor", "generator", "memory"}
    if stage == "supervised":
        return {"reasoner"}
    if stage == "joint":
        return {"generator"} if config.joint.selection == "frozen" else {"reasoner", "generator"}
    options = config.instruction
    if options.trains == "generator":
        return {"generator"}
    # Behind pretraining memory rows are frozen; without it nothing else would ever train them.
    pretrained = config.start is not None or "scp" in config.planned
    return {"compressor", "generator"} if options.freeze_memory and pretrained else {"compressor", "generator", "memory"}


def prepare(
    config: ClaraTrainingConfig, stage: Stage, clara: Clara, rows: Sequence[Row], folder: Path, progress: Progress, process: Any = None
) -> Prepared:
    """Make a stage's objective.

    Args:
        config: All options.
        stage: The stage.
        clara: The model as it begins.
        rows: Its rows.
        folder: Where documents are kept that a frozen compressor encodes.
        progress: Told of these.
        process: Of `accelerate`; None: one process.
    """
    if stage in ("scp", "instruction"):
        options = config.scp if stage == "scp" else config.instruction
        taught = in_lessons(lessons(config, rows), config.data.unheard, config.seed)
        kept = fitting_lessons(taught, clara.generator, config.skip_long)
        return Prepared(Compression(clara, options, process), kept, options.train, _asked(taught) - _asked(kept))
    asked = in_rows([row for row in rows if isinstance(row, JointRow)], config.data.unheard, config.seed)
    stage_options = config.joint if stage == "joint" else config.supervised
    every = len(asked)
    if stage == "joint":
        asked = fitting_rows(asked, clara.generator, config.joint.k or clara.config.k, config.skip_long)
    frozen = _frozen(clara, asked, stage_options, folder, progress, process)
    if stage == "joint":
        objective = Joint(clara, config.joint, frozen, process)
        return Prepared(objective, asked, config.joint.train, every - len(asked))
    tau = config.supervised.tau or clara.config.tau
    return Prepared(Supervised(clara, tau, frozen, clara.config.k, process), asked, config.supervised.train)


def _asked(lessons: Sequence[Lesson]) -> int:
    return sum(len(one.exchanges) for one in lessons)


def finish(config: ClaraTrainingConfig, stage: Stage, clara: Clara) -> None:
    """Leave the model as its checkpoint is to be.

    Until a stage trains the reasoner it is the compressor, so that every checkpoint can rank. What joint training chose
    by is what its checkpoint says.
    """
    if stage in ("scp", "instruction"):
        clara.adapters.copy("compressor", "reasoner")
    if stage == "joint":
        given = {"k": config.joint.k, "tau": config.joint.tau}
        clara.config = clara.config.model_copy(update={name: one for name, one in given.items() if one is not None})


def lessons(config: ClaraTrainingConfig, rows: Sequence[Row]) -> list[Lesson]:
    """Rows as they are taught: each paraphrase in a wording of its own, drawn from the seed and the row."""
    pretraining = [row for row in rows if isinstance(row, ScpRow)]
    tuning = [row for row in rows if isinstance(row, InstructionRow)]
    return [*scp_lessons(pretraining, config.scp, config.seed), *instruction_lessons(tuning, config.instruction, config.seed)]


def _frozen(
    clara: Clara, rows: Sequence[JointRow], options: SupervisedStage | JointStage, folder: Path, progress: Progress, process: Any
) -> Callable[[Sequence[str]], Any]:
    """Where the memory of candidates comes from: a folder, or the compressor itself."""
    if options.documents == "anew":
        return lambda texts: _anew(clara, texts)
    clara.module.eval()
    texts = (text for row in rows for text in row.documents)
    shape = clara.memory_tokens, clara.hidden_size
    dtype = clara.base.get_input_embeddings().weight.dtype
    documents = FrozenDocuments(
        texts, lambda some: clara.encode(some).memory, shape, dtype, folder, 8 * options.train.micro_batch, progress, process
    )
    return documents.of


def _anew(clara: Clara, texts: Sequence[str]) -> Any:
    import torch

    with torch.no_grad(), clara.evaluating():
        return clara.encode(texts).memory.detach().cpu()


def _seed(config: ClaraTrainingConfig, stage: Stage) -> int:
    """Another one than the adapters' first factors were drawn from."""
    return int(fingerprint("clara", stage, config.seed), 16) % 2**32
