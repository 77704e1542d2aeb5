"""`ragmeter train sark`: from questions and candidates to a reranker, by labels, orders and style pairs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from benchmarks.errors import UserError
from benchmarks.fingerprint import file_sha256, fingerprint
from benchmarks.registry import Benchmark
from methods.models.rewriting_prompt import prompts_hash
from methods.one_stage import Begun, train_stage
from methods.sark.card import write_card
from methods.sark.config import PRESETS, SarkTrainingConfig
from methods.sark.data import SarkData, data_of
from methods.sark.data_config import SarkDataConfig
from methods.sark.material import load_material
from methods.sark.model import new_reranker, save
from methods.sark.objective import Objective
from methods.sark.rows import SarkRow
from methods.sark.trainer import SarkTrainer
from methods.sark.validation import validator
from methods.torch_loop import accelerator
from methods.training import TrainedStage, Workshop, register_training

STAGE = "reranker"
CURVE = "curve.jsonl"
"""Of a checkpoint's steps, in its folder."""


class RowSource(Protocol):
    """Where rows come from."""

    def __call__(self, config: SarkTrainingConfig, benchmarks: Sequence[Benchmark], workshop: Workshop, folder: Path) -> SarkData:
        """The rows of benchmarks, kept in a folder; a second call makes nothing anew."""
        ...


@register_training(
    "sark",
    summary="a reranker trained on what helps a model to answer, every passage in two styles",
    stages=(STAGE,),
    config=SarkTrainingConfig,
    paper="Zhang et al., Don't Be Misled by Style: A Style-Adaptive Reranker for Capturing Effective Knowledge in "
    "Retrieval-Augmented Generation",
    presets=PRESETS,
)
class SarkTraining:
    """The training.

    Args:
        config: Options.
        source: Where rows come from, in place of what the options say.
    """

    def __init__(self, config: SarkTrainingConfig, source: RowSource | None = None) -> None:
        self.config, self._source = config, source or _made

    def run(self, workshop: Workshop) -> Iterator[TrainedStage]:
        """Make rows and train.

        Raises:
            UserError: The data may not be trained on or give no row, or the folders hold other work.
            Broke: A model that is asked cannot be used.
        """
        config = self.config
        material = load_material(config)
        process = accelerator(config.train.precision, workshop.services.device)

        def begin(identity: str) -> Begun:
            work = workshop.work
            # The others find in its files what the main process was told.
            with process.main_process_first():
                training = self._source(config, material.training, workshop, work / "data")
                held_out = None
                if material.validation:
                    held_out = self._source(config.held_out, material.validation, workshop, work / "validation")
            return _begun(config, training, held_out, workshop, process, identity)

        data = [benchmark.fingerprint for benchmark in material.training]
        seen = fingerprint([benchmark.fingerprint for benchmark in material.validation])
        yield from train_stage(
            STAGE, config, (config.base, config.revision), data, workshop, process, begin, inputs=(seen, *_files(config))
        )


def _made(config: SarkTrainingConfig, benchmarks: Sequence[Benchmark], workshop: Workshop, folder: Path) -> SarkData:
    """Rows, kept beside those of other trainings where there is such a place: one with other losses shares them."""
    services = workshop.services
    made_of = config.model_dump(mode="json", include=set(SarkDataConfig.model_fields))
    shared = services.folder("sark", fingerprint(made_of, [benchmark.fingerprint for benchmark in benchmarks]))
    return data_of(config, benchmarks, services, shared or folder, workshop.progress)


def _begun(
    config: SarkTrainingConfig, training: SarkData, held_out: SarkData | None, workshop: Workshop, process: Any, identity: str
) -> Begun:
    rows = [row for row in training.rows if _teaches(row, config)]
    if not rows:
        raise _nothing_to_train(config)
    objective = Objective(new_reranker(config, str(process.device)), config, process)
    same = fingerprint(identity, training.fingerprint, held_out.fingerprint if held_out is not None else None)
    validate = validator(objective, held_out.rows, config) if held_out is not None else None
    trainer = SarkTrainer(objective, rows, config, workshop.work / "train", same, workshop.progress, validate)

    def write(folder: Path, figures: Mapping[str, float]) -> None:
        save(objective.model, folder)
        # λ, 1 − λ, norms and cosine of every step (the paper's figure 8).
        shutil.copyfile(trainer.loop.curve, folder / CURVE)
        write_card(folder, config, figures)

    counts = {name: float(count) for name, count in training.counts.items()}
    return Begun(trainer.loop, write, {**counts, "rows_trained_on": float(len(rows))})


def _teaches(row: SarkRow, config: SarkTrainingConfig) -> bool:
    """Whether the active losses learn anything from a row."""
    return (config.loss.passage and row.label is not None) or (config.loss.listwise and row.list is not None)


def _nothing_to_train(config: SarkTrainingConfig) -> UserError:
    needed = {(True, False): "a label", (False, True): "a list"}.get((config.loss.passage, config.loss.listwise), "a label or a list")
    return UserError(
        f"no training row has {needed}",
        where="data",
        try_this="more questions, or another model to label and order; `labels.known` where a reader knows nothing",
    )


def _files(config: SarkTrainingConfig) -> list[str]:
    """Hashes of the files that options name, by option: a file that takes another's place is another input."""
    judge, styles = config.wanted_judge, config.styles
    named = {
        "labels.prompt": config.labels.prompt,
        "labels.judge_options.prompt": judge[1].get("prompt") if judge is not None else None,
        "lists.prompt": config.lists.prompt,
        "styles.file": styles.file,
    }
    hashes = [f"{option}: {file_sha256(Path(one).expanduser())}" for option, one in named.items() if one is not None]
    if styles.by == "llm" and styles.llm is not None and styles.llm.prompts is not None:
        hashes.append(f"styles.llm.prompts: {prompts_hash(styles.llm.prompts)}")
    return hashes
