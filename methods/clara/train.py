"""What sets the stages apart: where they begin, exactly what they train, what they learn from.

| | trained | frozen | begins from |
|---|---|---|---|
| scp | compressor, generator, memory rows | base | the base |
| instruction | compressor, generator | base, memory rows | pretraining; without it memory rows are trained, too |
| supervised | reasoner | all else | either |
| joint | reasoner, generator | all else | either |
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from benchmarks.text import cover_em
from methods.clara.config import (
    PRESETS,
    STAGES,
    Adapter,
    ClaraConfig,
    ClaraTrainingConfig,
    JointStage,
    Part,
    Stage,
    StepOptions,
    SupervisedStage,
    ValidateOptions,
)
from methods.clara.data import Lesson, Row, fitting_lessons, fitting_rows, in_lessons, in_rows, instruction_lessons, scp_lessons
from methods.clara.prompts import Prompt, answer, answer_from_text
from methods.clara.rows import InstructionRow, JointRow, ScpRow
from methods.clara.trainer import Objective
from methods.training import Progress, TrainedStage, Workshop, register_training
from methods.training.loop import Validate, accelerator
from methods.training.stages import Begun, train_stage

if TYPE_CHECKING:
    from torch import Tensor

    from methods.clara.model import Clara, Encoded

# -- The README of a model that CLaRa trained --


_CARD = """---
library_name: peft
base_model: {base}
pipeline_tag: text-generation
tags:
- peft
- lora
- retrieval-augmented-generation
- context-compression
---

# {title}

Base: `{base}`{revision}, which is frozen and not part of this folder. Training data of this stage: {data}. Seed {seed}.

CLaRa compresses a document of at most {length} tokens into {memory} vectors, the last states of {memory} learnt memory
tokens behind it. Questions become vectors of the same shape; the {k} nearest documents stand as vectors in the
generator's prompt, and it answers from them.

| adapter | |
|---|---|
| `compressor` | documents to memory vectors |
| `reasoner` | questions to vectors that are compared with those |
| `generator` | answers from memory vectors |

Each adapter is an ordinary PEFT folder for the base:

```python
from peft import PeftModel
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained("{base}")
generator = PeftModel.from_pretrained(base, "path/to/this/folder/generator")
```

`memory.safetensors` has the embeddings of the memory tokens (`memory`, one row each) and of the two marks that a
document begins with and a memory ends with (`marks`). All of it together:

```python
from pathlib import Path

from methods.clara.model import Clara
from methods.clara.prompts import answer

clara = Clara.load(Path("path/to/this/folder"))
memory = clara.encode(["The old bridge was built by a painter."]).memory
print(clara.generate([answer("Who built the old bridge?", 1)], [memory[0]], max_new_tokens=32)[0].text)
```

| | |
|---|---|
{rows}

`curve.jsonl` tells of every step the losses, the learning rate and the gradient's norm, and of validations what they
came to.
"""

_TITLES: Mapping[Stage, str] = {
    "scp": "A compressor pretrained with CLaRa",
    "instruction": "A compressor tuned with CLaRa to answer questions",
    "supervised": "A compressor with a supervised retriever",
    "joint": "Retrieval and generation trained together with CLaRa",
}


def write_card(folder: Path, config: ClaraTrainingConfig, stage: Stage, figures: Mapping[str, float]) -> None:
    """Write the card; it holds nothing that changes between equal trainings.

    Args:
        folder: Of the checkpoint.
        config: Of the training.
        stage: Which the checkpoint is of.
        figures: What it came to.
    """
    model: ClaraConfig = config.model
    facts: dict[str, object] = {
        "compression": f"{model.rate} tokens of a full document to one vector",
        "adapters": f"rank {model.lora.r}, alpha {model.lora.alpha:g}, dropout {model.lora.dropout:g}",
        "temperature of the selector": f"{model.tau:g}",
        "learning rate": f"{_steps(config, stage).learning_rate:g}",
        "rows per step": _steps(config, stage).batch_size,
        **{name: f"{value:.6g}" for name, value in figures.items()},
    }
    text = _CARD.format(
        title=_TITLES[stage],
        base=model.base,
        revision=f" at {model.revision}" if model.revision else "",
        data=", ".join(f"`{one}`" for one in config.references(stage)),
        seed=config.seed,
        length=model.max_length,
        memory=model.memory_tokens,
        k=model.k,
        rows="\n".join(f"| {name} | {value} |" for name, value in facts.items()),
    )
    (folder / "README.md").write_text(text, "utf-8")


def _steps(config: ClaraTrainingConfig, stage: Stage) -> StepOptions:
    options: StepOptions = getattr(config, stage).train
    return options


# -- What sets the stages apart: where they begin, exactly what they train, what they learn from --


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
    from methods.clara.model import Clara

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
    from methods.clara.objective import Compression, Joint, Supervised

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
) -> Callable[[Sequence[str]], Tensor]:
    """Where the memory of candidates comes from: a folder, or the compressor itself."""
    if options.documents == "anew":
        return lambda texts: _anew(clara, texts)
    from methods.clara.objective import FrozenDocuments

    clara.module.eval()
    texts = (text for row in rows for text in row.documents)
    shape = clara.memory_tokens, clara.hidden_size
    dtype = clara.base.get_input_embeddings().weight.dtype
    documents = FrozenDocuments(
        texts, lambda some: clara.encode(some).memory, shape, dtype, folder, 8 * options.train.micro_batch, progress, process
    )
    return documents.of


def _anew(clara: Clara, texts: Sequence[str]) -> Tensor:
    import torch

    with torch.no_grad(), clara.evaluating():
        return clara.encode(texts).memory.detach().cpu()


def _seed(config: ClaraTrainingConfig, stage: Stage) -> int:
    """Another one than the adapters' first factors were drawn from."""
    return int(fingerprint("clara", stage, config.seed), 16) % 2**32


# -- `ragmeter train clara`: from documents and questions to a compressor, a generator, and a reasoner that chooses --


CURVE = "curve.jsonl"
"""Of a checkpoint's steps, in its folder."""


@register_training(
    "clara",
    summary="passages compressed into a few vectors that one language model retrieves by and answers from",
    stages=STAGES,
    config=ClaraTrainingConfig,
    paper="He et al. 2025, CLaRa: Bridging Retrieval and Generation with Continuous Latent Reasoning",
    presets=PRESETS,
)
class ClaraTraining:
    """The training.

    Args:
        config: Options.
    """

    def __init__(self, config: ClaraTrainingConfig) -> None:
        self.config = config

    def run(self, workshop: Workshop) -> Iterator[TrainedStage]:
        """Train, stage after stage; only the main process of several reports them.

        Raises:
            UserError: The data may not be trained on or gives no row, or the folders hold other work.
            Broke: The loss is no number.
        """
        from methods.clara.data import training_rows

        config = _with_model(self.config)
        process = accelerator(config.precision, workshop.services.device)
        parent = config.start
        for stage in config.planned:
            # What one stage is made of is no other's: each has work of its own.
            own = replace(workshop, work=workshop.work / stage)
            with process.main_process_first():
                rows, data = training_rows(config, stage, workshop.services)
            base = (config.model.base, config.model.revision) if parent is None else (parent, None)
            yield from train_stage(
                stage,
                config,
                base,
                data,
                own,
                process,
                lambda identity, stage=stage, own=own, rows=rows, parent=parent: _begun(  # type: ignore[misc]
                    config, stage, parent, rows, own, process, identity
                ),
            )
            # The card is in the folder before anyone hashes it.
            process.wait_for_everyone()
            parent = str(workshop.checkpoints / stage)


def _with_model(config: ClaraTrainingConfig) -> ClaraTrainingConfig:
    """Options whose model is that of the checkpoint to begin from, where they do not say."""
    if config.start is None or "model" in config.model_fields_set:
        return config
    from methods.clara.model import read_config, require_checkpoint

    found, _ = read_config(require_checkpoint(config.start, where="start"))
    return config.model_copy(update={"model": found})


def _begun(
    config: ClaraTrainingConfig, stage: Stage, parent: str | None, rows: list[Any], workshop: Workshop, process: Any, identity: str
) -> Begun:
    from methods.clara.data import held_out, held_out_pretraining, held_out_that_fit, set_aside
    from methods.clara.trainer import StageTrainer

    work, progress = workshop.work, workshop.progress
    clara = begin(config, stage, parent, str(process.device))
    rows, aside = set_aside(config, stage, rows)
    prepared = prepare(config, stage, clara, rows, work / f"documents-{identity[:12]}", progress, process)
    taught = lessons(config, [*(held_out_pretraining(config) if stage == "scp" else []), *aside])
    questions = [*held_out(config, stage, workshop.services, rows), *(row for row in aside if isinstance(row, JointRow))]
    selects = stage in ("supervised", "joint")
    told = held_out_that_fit(taught, questions, clara.generator, clara.config.k if selects else None, config.validate_on.max_new_tokens)
    left_out = len(taught) + len(questions) - len(told[0]) - len(told[1])
    validate = validator(clara, *told, config.validate_on, selects=selects)
    trainer = StageTrainer(
        stage,
        clara.module,
        prepared.objective,
        prepared.rows,
        prepared.train,
        config,
        work / "train",
        fingerprint(identity, stage),
        progress,
        process,
        validate,
    )

    def save(folder: Path, figures: Mapping[str, float]) -> None:
        finish(config, stage, clara)
        clara.save(folder)
        shutil.copyfile(trainer.loop.curve, folder / CURVE)
        write_card(folder, config, stage, figures)
        # They are as large as what was trained on, and follow from it.
        shutil.rmtree(work / f"documents-{identity[:12]}", ignore_errors=True)

    counts = {"rows": len(rows), "set_aside": len(aside), "too_long": prepared.too_long, "held_out_too_long": left_out}
    return Begun(trainer.loop, save, {name: float(count) for name, count in counts.items()})


# -- What a model in training is worth on held-out rows: losses, answers from memory, what the reasoner finds --


RECALLS = (1, 3, 5)
"""How many of the best candidates recall is told of."""


def validator(
    clara: Clara, lessons: Sequence[Lesson], questions: Sequence[JointRow], options: ValidateOptions, *, selects: bool
) -> Validate | None:
    """The figures of held-out rows; None where there are none.

    `validation_loss` and `validation_mse` of lessons; `validation_answer_loss` (per token) and `validation_cover_em` of
    questions answered from all their documents, or, where the model selects, from those that it chose, with
    `validation_recall@k` of the choice.

    Args:
        clara: The model.
        lessons: Held-out rows of pretraining.
        questions: Held-out questions.
        options: How they are answered.
        selects: Whether the reasoner chooses among the documents.
    """
    if not lessons and not questions:
        return None
    import torch

    def validate() -> Mapping[str, float]:
        figures: dict[str, float] = {}
        with torch.inference_mode(), clara.evaluating():
            if lessons:
                figures |= losses(clara, lessons, options.batch_size)
            if questions:
                figures |= answered(clara, questions, options, selects=selects)
        return {f"validation_{name}": value for name, value in figures.items()}

    return validate


def losses(clara: Clara, lessons: Sequence[Lesson], batch_size: int) -> dict[str, float]:
    """Cross-entropy per token of replies, and the alignment loss."""
    entropy = mse = tokens = documents = 0.0
    for start in range(0, len(lessons), batch_size):
        some = lessons[start : start + batch_size]
        encoded: Encoded = clara.encode([text for one in some for text in one.documents])
        memory = encoded.memory.split([len(one.documents) for one in some])
        asked = [(one, own) for lesson, own in zip(some, memory, strict=True) for one in lesson.exchanges]
        prompts, targets = [one.prompt for one, _ in asked], [one.target for one, _ in asked]
        entropy += float(clara.cross_entropy(prompts, [own for _, own in asked], targets, "row_sums").sum())
        tokens += sum(len(clara.generator.target_ids(target)) for target in targets)
        mse += float(clara.alignment(encoded)) * len(encoded.memory)
        documents += len(encoded.memory)
    return {"loss": entropy / tokens, "mse": mse / documents}


def answered(clara: Clara, questions: Sequence[JointRow], options: ValidateOptions, *, selects: bool) -> dict[str, float]:
    """Share of questions whose answer covers a gold one, loss per token of answers, recall of documents chosen."""
    documents = dict.fromkeys(text for row in questions for text in row.documents)
    memory = clara.encode(list(documents)).memory
    places = {text: place for place, text in enumerate(documents)}

    def of(texts: Sequence[str]) -> Tensor:
        return memory[[places[text] for text in texts]]

    figures: dict[str, float] = {}
    chosen = [list(range(len(row.documents))) for row in questions]
    if selects:
        chosen, figures = _selected(clara, questions, of, options.batch_size)
    kept = [[row.documents[place] for place in best] for row, best in zip(questions, chosen, strict=True)]
    prompts = [answer(row.question, len(texts)) for row, texts in zip(questions, kept, strict=True)]
    own = list(map(of, kept))
    entropy = {"answer_loss": _loss(clara, prompts, own, [row.answer for row in questions], options.batch_size)}
    return figures | entropy | {"cover_em": covered(clara, questions, prompts, own, options)}


def _loss(clara: Clara, prompts: Sequence[Prompt], memory: Sequence[Tensor], answers: Sequence[str], batch_size: int) -> float:
    """Cross-entropy per token of answers."""
    total = 0.0
    for start in range(0, len(prompts), batch_size):
        end = start + batch_size
        told = clara.cross_entropy(prompts[start:end], memory[start:end], answers[start:end], "row_sums")
        total += float(told.sum())
    return total / sum(len(clara.generator.target_ids(one)) for one in answers)


def answered_from_text(clara: Clara, questions: Sequence[JointRow], options: ValidateOptions, *, documents: bool) -> float:
    """The same for the base without adapters, from the documents as text or from none: what memory is compared with."""
    prompts = [answer_from_text(row.question, row.documents if documents else ()) for row in questions]
    return covered(clara, questions, prompts, None, options, None)


def covered(
    clara: Clara,
    questions: Sequence[JointRow],
    prompts: Sequence[Prompt],
    memory: Sequence[Tensor] | None,
    options: ValidateOptions,
    adapter: Adapter | None = "generator",
) -> float:
    """Share of questions whose reply covers a gold answer."""
    replies = clara.generate(prompts, memory, options.max_new_tokens, options.batch_size, adapter)
    scores = [cover_em(reply.text, row.golds) for reply, row in zip(replies, questions, strict=True)]
    return math.fsum(scores) / len(scores)


def _selected(
    clara: Clara, questions: Sequence[JointRow], of: Callable[[Sequence[str]], Tensor], batch_size: int
) -> tuple[list[list[int]], dict[str, float]]:
    """The k best documents of each question, and recall over questions that have a positive."""
    import torch

    from methods.clara.objective import candidates_of, recalls

    chosen: list[list[int]] = []
    found: dict[int, list[float]] = {k: [] for k in RECALLS}
    for start in range(0, len(questions), batch_size):
        rows = questions[start : start + batch_size]
        scored = candidates_of(clara, rows, of, learns=False)
        order = scored.scores.masked_fill(~scored.mask, -torch.inf).sort(dim=-1, descending=True, stable=True).indices
        for k in RECALLS:
            found[k] += recalls(order[:, :k], scored.positive).tolist()
        chosen += [best[: min(clara.config.k, len(row.documents))] for best, row in zip(order.tolist(), rows, strict=True)]
    judged = {k: [one for one in values if not math.isnan(one)] for k, values in found.items()}
    return chosen, {f"recall@{k}": math.fsum(values) / len(values) for k, values in judged.items() if values}
