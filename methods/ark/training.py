"""`ragmeter train ark`: from documents and questions to a tuned retriever, stage after stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.errors import UserError
from benchmarks.fingerprint import CHECKPOINT_CARD, file_sha256, fingerprint, folder_sha256
from methods.ark.card import write_card
from methods.ark.config import PRESETS, STAGES, ArkTrainingConfig
from methods.ark.curriculum import StagePlan, StageTrainer, stage_plan
from methods.ark.graphs import GraphQueries
from methods.ark.knowledge import QuerySource
from methods.ark.material import Material, load_material
from methods.ark.preparation import Preparation
from methods.ark.rows import TrainRow
from methods.ark.terms import Terms
from methods.ark.tower import Prompts, Tower, load_tower, prompts_of
from methods.ark.validation import validator
from methods.manifest import Manifest, StageRecord, require_unchanged
from methods.models.encoder import Encoder, EncoderConfig
from methods.models.weights import locate, weights_hash
from methods.one_stage import saved
from methods.torch_loop import Validate, accelerator
from methods.training import TrainedStage, Workshop, register_training


@register_training(
    "ark",
    summary="a retriever tuned on which chunks make the answer likely, against negatives from a knowledge graph",
    stages=STAGES,
    config=ArkTrainingConfig,
    paper="ARK: answer-centric retriever tuning with a knowledge-graph curriculum (2025)",
    presets=PRESETS,
)
class ArkTraining:
    """The training.

    Args:
        config: Options.
        source: Where augmented queries come from, in place of the one that the options name.
    """

    def __init__(self, config: ArkTrainingConfig, source: QuerySource | None = None) -> None:
        self.config = config
        self._source = source

    def run(self, workshop: Workshop) -> Iterator[TrainedStage]:
        """Prepare and train; only the main process of several reports stages.

        Raises:
            UserError: The data may not be trained on, or the folders hold other work.
        """
        job = _Job(self.config, workshop, self._source)
        with job.accelerator.main_process_first():
            job.prepare()
        for stage in job.stages:
            trained = job.stage(stage)
            if job.accelerator.is_main_process:
                yield trained


@dataclass(frozen=True)
class _Parent:
    """The weights that a stage begins from."""

    stage: str | None
    config: EncoderConfig
    sha256: str


class _Job:
    """One run of a training."""

    def __init__(self, config: ArkTrainingConfig, workshop: Workshop, source: QuerySource | None) -> None:
        self.config, self.workshop = config, workshop
        self.accelerator = accelerator(config.train.precision, workshop.services.device)
        self.device = str(self.accelerator.device)
        self.material: Material = load_material(config)
        identity = fingerprint(config.model_dump(mode="json"), self.material.fingerprints)
        self.manifest = Manifest.open(workshop.work, identity, config.model_dump(mode="json"))
        services = workshop.services
        embeddings = services.folder("embeddings")
        terms = Terms(config, self.device, services.folder("alignment"), embeddings)
        self._preparation = Preparation(
            config, self.material, workshop.work, terms, (source or self._graphs()) if config.augments else None, workshop.progress
        )
        self._parents = [_Parent(None, config.encoder, weights_hash(config.encoder.model, config.encoder.revision))]

    def _graphs(self) -> QuerySource:
        return GraphQueries(self.config, self.workshop.work, self.workshop.services)

    @property
    def stages(self) -> tuple[str, ...]:
        """Stages that end in a checkpoint."""
        return self.config.stages_of(STAGES)

    def prepare(self) -> None:
        """Everything before training."""
        self._preparation.run(self.manifest)

    def stage(self, name: str) -> TrainedStage:
        """Train a stage, or take it over."""
        parent = self._parents[-1]
        if parent.stage is not None:
            require_unchanged(parent.stage, Path(parent.config.model), parent.sha256)
        folder = self.workshop.checkpoints / name
        record = self.manifest.finished(name, folder, parent.sha256)
        fresh = record is None
        if record is None:
            record = self._train(name, folder, parent)
        self._parents.append(_Parent(name, self._encoder_of(folder), record.sha256))
        return TrainedStage(name, folder, self._parent_hashes(parent), self.material.fingerprints, record.figures, fresh)

    def _parent_hashes(self, parent: _Parent) -> tuple[str, ...]:
        if parent.stage is not None:
            return (parent.stage,)
        # A base that is no checkpoint of ours has no hash of the kind that cards hold.
        return (parent.sha256,) if (Path(locate(parent.config.model)) / CHECKPOINT_CARD).is_file() else ()

    def _encoder_of(self, folder: Path) -> EncoderConfig:
        return self.config.encoder.model_copy(update={"model": str(folder), "revision": None, "pooling": None})

    def _train(self, name: str, folder: Path, parent: _Parent) -> StageRecord:
        work = self.workshop.work
        with self.accelerator.main_process_first():
            rows, skipped, mined_with = self._rows(name, parent)
        model = load_tower(parent.config, self.device)
        instruction = self.config.train.query_instruction
        evaluated = prompts_of(self.config.encoder, model)
        longest = model.max_seq_length
        tower = Tower(model, prompts_of(self.config.encoder, model, instruction), self.config.train, self.accelerator)
        hashed = fingerprint([file_sha256(work / "train" / f"{one}.jsonl") for one in self._of(name)])
        identity = fingerprint(self.manifest.identity, name, parent.sha256, hashed)
        trainer = self._trainer(tower, stage_plan(name, rows, self.config), work / "train" / name, identity, evaluated)
        figures = {**trainer.run(), "rows_left_out": float(skipped)}
        model.max_seq_length = longest
        model.prompts = {"query": evaluated.query, "document": evaluated.passage}
        record = StageRecord("", parent.sha256, mined_with, hashed, figures)
        if self.accelerator.is_main_process:
            record = self._save(name, folder, model, record, evaluated)
        self.accelerator.wait_for_everyone()
        trainer.forget()
        return record if record.sha256 else StageRecord(folder_sha256(folder), parent.sha256, mined_with, hashed, figures)

    def _trainer(self, tower: Tower, stage: StagePlan, folder: Path, identity: str, evaluated: Prompts) -> StageTrainer:
        validate: Validate | None = None
        if self.config.validation:
            validate = validator(self.config, tower.model, evaluated)
        return StageTrainer(tower, stage, self.material.texts, self.config, folder, identity, self.workshop.progress, validate)

    def _of(self, name: str) -> Sequence[str]:
        """The stages whose rows a stage is trained on."""
        return self.config.train.stages if self.config.train.curriculum == "mixed" else (name,)

    def _rows(self, name: str, parent: _Parent) -> tuple[list[TrainRow], int, str | None]:
        """Rows, how many were left out, and the hash of the encoder that mined."""
        preparation = self._preparation
        stages = self._of(name)
        miner = self._parents[0] if self.config.mine.model == "base" else parent
        encoder = None
        if any(map(preparation.needs_mining, stages)):
            update = {} if self.config.train.query_instruction else {"query_prompt": ""}
            cache = self.workshop.services.folder("embeddings")
            encoder = Encoder(miner.config.model_copy(update=update), self.device, cache)
        rows: list[TrainRow] = []
        skipped = 0
        for stage in stages:
            found, without = preparation.rows(stage, encoder, miner.sha256)
            rows += found
            skipped += without
        if not rows:
            raise _nothing_to_train(name)
        return rows, skipped, miner.sha256 if encoder else None

    def _save(self, name: str, folder: Path, model: Any, record: StageRecord, prompts: Prompts) -> StageRecord:
        def save(draft: Path) -> None:
            model.save_pretrained(str(draft), create_model_card=False)
            write_card(draft, name, self.config, record.figures, (prompts.query, prompts.passage))

        return saved(name, folder, self.manifest, record, save)


def _nothing_to_train(name: str) -> UserError:
    return UserError(
        f"{name} has no training row: no question has a positive with a negative",
        where="data",
        try_this="more data; or mine.source: question, if the graph gives no queries",
    )
