"""Train CLaRa (`ragmeter train clara`): compressor, generator and query reasoner, from documents and questions."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from methods.clara.config import PRESETS, STAGES, ClaraConfig, ClaraTrainingConfig, Stage
from methods.clara.planning import needs, work_of
from methods.training import TrainedStage, TrainingContext, register_training
from methods.training.loop import LoopPlace
from methods.training.model_card import PATH, ModelKind, write_model_card
from methods.training.ranks import accelerator, first, wait
from methods.training.stages import PreparedRun, train_stage

CURVE = "curve.jsonl"
"""File in a checkpoint's folder with its loss curve."""


@register_training(
    "clara",
    summary="passages compressed into a few vectors; one language model retrieves and answers from them",
    stages=STAGES,
    paper="He et al. 2025, CLaRa: Bridging Retrieval and Generation with Continuous Latent Reasoning",
    presets=PRESETS,
    work=work_of,
    needs=needs,
)
class ClaraTraining:
    """Training of CLaRa.

    Args:
        config: Options of the training.
    """

    def __init__(self, config: ClaraTrainingConfig) -> None:
        self.config = config

    def run(self, context: TrainingContext) -> Iterator[TrainedStage]:
        """Train all stages in order and yield each finished one; with several processes, only the main one yields.

        Raises:
            UserError: The data must not be trained on or provides no rows, or the folders contain other work.
            Broke: The loss is NaN.
        """
        from methods.clara.data import training_rows

        config = _with_model(self.config)
        process = accelerator(config.precision, context.services.device)
        parent = config.start
        for stage in config.planned:
            # Stages share no intermediate files, so each has its own working folder.
            own = replace(context, work=context.work / stage)
            with first(process):
                rows, data = training_rows(config, stage, context.services)
            base = (config.model.base, config.model.revision) if parent is None else (parent, None)
            yield from train_stage(
                stage,
                config,
                base,
                data,
                own,
                process,
                lambda identity, stage=stage, own=own, rows=rows, parent=parent: _prepared(  # type: ignore[misc]
                    config, stage, parent, rows, own, process, identity
                ),
            )
            # The card is in the folder before anyone hashes it.
            wait(process)
            parent = str(context.checkpoints / stage)


def _with_model(config: ClaraTrainingConfig) -> ClaraTrainingConfig:
    """Fill in the model options from the start checkpoint, if they are not set."""
    given_names = config.model.model_fields_set if "model" in config.model_fields_set else set()
    if config.start is None or given_names - {"base"}:
        return config
    from methods.clara.checkpoint import read_config, require_checkpoint

    result, _ = read_config(require_checkpoint(config.start, where="start"))
    if given_names and result.base != config.model.base:
        raise UserError(
            f"the checkpoint is of the base {result.base!r}, and {config.model.base!r} is asked for",
            code="checkpoint-of-other-base",
            where=f"start: {config.start}",
            try_this="use that base, or remove start",
        )
    return config.model_copy(update={"model": result})


def _prepared(
    config: ClaraTrainingConfig, stage: Stage, parent: str | None, rows: list[Any], context: TrainingContext, process: Any, identity: str
) -> PreparedRun:
    from methods.clara.data import as_text, documents_of, held_out, held_out_pretraining, held_out_that_fit, set_aside
    from methods.clara.objective import StageTrainer
    from methods.clara.rows import JointRow
    from methods.clara.stages import ANSWER_TOKENS, begin, examples, finish, prepare, validator

    work, progress = context.work, context.progress
    clara = begin(config, stage, parent, str(process.device))
    rows, aside = set_aside(config, stage, rows)
    prepared = prepare(config, stage, clara, rows, work / f"documents-{identity[:12]}", progress, process)
    taught = examples(config, [*(held_out_pretraining(config) if stage == "scp" else []), *aside])
    questions = [*held_out(config, stage, context.services, rows), *(row for row in aside if isinstance(row, JointRow))]
    selects, text = stage in ("supervised", "joint"), config.reads == "text"
    if text:
        taught = as_text(taught)
    k, longest = clara.config.k if selects else None, ANSWER_TOKENS
    fitting = held_out_that_fit(taught, questions, clara.generator, k, longest, text=text)
    left_out = len(taught) + len(questions) - len(fitting[0]) - len(fitting[1])
    validate = validator(clara, *fitting, config.validate_on, selects=selects, text=text)
    place = LoopPlace.of(context, fingerprint(identity, stage), process, validate)
    trainer = StageTrainer(stage, clara.module, prepared.objective, prepared.rows, prepared.train, config, place)

    def save(folder: Path, figures: Mapping[str, float]) -> None:
        finish(config, stage, clara)
        clara.save(folder)
        shutil.copyfile(trainer.loop.curve, folder / CURVE)
        write_card(folder, config, stage, figures)
        # The encoded documents are as large as the training data, and can be computed again from it.
        shutil.rmtree(work / f"documents-{identity[:12]}", ignore_errors=True)

    counts = {"rows": len(rows), "set_aside": len(aside), "too_long": prepared.too_long, "held_out_too_long": left_out}
    cut = clara.compressor.truncation([*{text for row in prepared.rows for text in documents_of(row)}])["truncated"]
    # If a question has no more documents than the answer is read from, its selection is not learned.
    fixed = sum(len(row.documents) <= clara.config.k for row in prepared.rows) if stage == "joint" else 0
    counts |= {name: count for name, count in (("documents_cut", cut), ("rows_without_choice", fixed)) if count}
    return PreparedRun(trainer.loop, save, {name: float(count) for name, count in counts.items()})


_ADAPTERS = ModelKind(
    "peft",
    "text-generation",
    ("peft", "lora", "retrieval-augmented-generation", "context-compression"),
    f"""from pathlib import Path

from methods.clara.model import Clara
from methods.clara.prompts import answer

clara = Clara.load(Path("{PATH}"))
memory = clara.encode(["The old bridge was built by a painter."]).memory
print(clara.generate([answer("Who built the old bridge?", 1)], [memory[0]], max_new_tokens=32)[0].text)""",
)
_TITLES: Mapping[Stage, str] = {
    "scp": "A compressor pretrained with CLaRa",
    "instruction": "A compressor tuned with CLaRa to answer questions",
    "supervised": "A compressor with a supervised retriever",
    "joint": "Retrieval and generation trained together with CLaRa",
}


def write_card(folder: Path, config: ClaraTrainingConfig, stage: Stage, figures: Mapping[str, float]) -> None:
    """Write the model card of a checkpoint.

    Args:
        folder: Checkpoint folder.
        config: Options of the training.
        stage: Stage of the checkpoint.
        figures: Final metrics.
    """
    model: ClaraConfig = config.model
    write_model_card(
        folder,
        _ADAPTERS,
        _TITLES[stage],
        f"CLaRa compresses a document of at most {model.max_length} tokens into {model.memory_tokens} vectors, the last states of learned "
        f"memory tokens behind it. Questions become vectors of the same shape. The {model.k} nearest documents stand as vectors in the "
        "generator's prompt, and it answers from them.\n\nThe folders `compressor` (documents to memory vectors), `reasoner` (questions to "
        "vectors that are compared with those) and `generator` (answers from memory vectors) are PEFT adapters for the frozen base"
        f"{f' at revision {model.revision}' if model.revision else ''}. `memory.safetensors` has the embeddings of the memory tokens "
        "(`memory`) and of the marks that begin a document and end a memory (`marks`). `curve.jsonl` has the losses, the learning rate and "
        "the gradient's norm of every step, and the validations.",
        base=[model.base],
        data=config.references(stage),
        seed=config.seed,
        facts={
            "compression": f"{model.rate} tokens of a full document to one vector",
            "adapters": f"rank {model.lora.r}, alpha {model.lora.alpha:g}, dropout {model.lora.dropout:g}",
            "temperature of the selector": model.tau,
            "learning rate": config.steps_of(stage).learning_rate,
            "rows per step": config.steps_of(stage).batch_size,
            **figures,
        },
    )
