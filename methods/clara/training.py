"""`ragmeter train clara`: from documents and questions to a compressor, a generator, and a reasoner that chooses."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.fingerprint import fingerprint
from methods.clara.training_config import STAGES, ClaraTrainingConfig, Stage
from methods.clara.training_presets import PRESETS
from methods.one_stage import Begun, train_stage
from methods.torch_loop import accelerator
from methods.training import TrainedStage, Workshop, register_training

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
        from methods.clara.material import training_rows

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
    from methods.clara.checkpoint import read_config, require_checkpoint

    found, _ = read_config(require_checkpoint(config.start, where="start"))
    return config.model_copy(update={"model": found})


def _begun(
    config: ClaraTrainingConfig, stage: Stage, parent: str | None, rows: list[Any], workshop: Workshop, process: Any, identity: str
) -> Begun:
    from methods.clara.card import write_card
    from methods.clara.fitting import held_out_that_fit
    from methods.clara.material import held_out, held_out_pretraining, set_aside
    from methods.clara.rows import JointRow
    from methods.clara.stages import begin, finish, lessons, prepare
    from methods.clara.trainer import StageTrainer
    from methods.clara.validation import validator

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
