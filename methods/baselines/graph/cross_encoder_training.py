"""`ragmeter train graph_cross_encoder`: a cross-encoder that tells which triple of a graph answers a question.

It stands in for the published one of the hybrid baseline where no hub is at hand: trained on worlds, on the questions
of seeds that are for training. Its checkpoint is a `CrossEncoder` of sentence-transformers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from benchmarks.errors import UserError
from benchmarks.registry import Benchmark, resolve
from methods.baselines.graph.cross_encoder_card import write_card
from methods.baselines.graph.cross_encoder_loss import GroupObjective
from methods.baselines.graph.cross_encoder_rows import Group, asked_of, groups, load_graphs, load_training
from methods.baselines.graph.cross_encoder_validation import validator
from methods.baselines.graph.trained import without_load_report
from methods.models.weights import loading, locate
from methods.one_stage import Begun, Figures, train_stage
from methods.torch_loop import Loop, LoopOptions, Schedule, accelerator
from methods.training import TrainedStage, TrainingConfig, Workshop, register_training

STAGE = "reranker"


class GraphCrossEncoderTrainingConfig(TrainingConfig):
    """Options of the training."""

    data: tuple[str, ...] = Field(
        ("worlds/graph:train",), min_length=1, description="references of questions with graphs and reasoning triples"
    )
    data_options: dict[str, dict[str, Any]] = Field(default_factory=dict, description="options of the loaders, by dataset id")
    validation: tuple[str, ...] = Field((), description="references of held-out questions, for curves")
    validation_options: dict[str, dict[str, Any]] = Field(default_factory=dict, description="as data_options")
    validate_k: int = Field(10, ge=1, description="k of the recall of reasoning triples among the best, for curves")
    base: str = Field("minilm", description="folder or hub id of the encoder that is trained")
    revision: str | None = Field(None, description="revision of a hub id")
    max_length: int = Field(128, ge=16, description="longest pair in tokens")
    negatives: int = Field(7, ge=1, description="other triples that each right one is told from")
    hard: float = Field(0.5, ge=0, le=1, description="share of them that BM25 finds for the question; others: any")
    pool: int = Field(50, ge=1, description="triples that BM25 finds, from which the hard ones are drawn")
    epochs: int = Field(3, ge=1, description="times that each right triple is used")
    batch_size: int = Field(8, ge=1, description="right triples per step")
    part: int = Field(64, ge=1, description="pairs read at once; bounds memory, changes nothing")
    learning_rate: float = Field(
        3e-4, gt=0, description="of AdamW, at its peak; fits MiniLM, which does not learn at 5e-5; larger ones want less"
    )
    warm_up: float = Field(0.1, ge=0, description="share of the steps in which it rises, below 1; else their number")
    weight_decay: float = Field(0.01, ge=0, description="of matrices")
    max_grad_norm: float = Field(1.0, gt=0, description="gradients are scaled down to this norm")
    precision: Literal["no", "bf16", "fp16"] = Field("no", description="mixed precision")
    save_every: int = Field(50, ge=1, description="steps between two points to go on from")

    def preflight(self) -> None:
        """Check references and the base."""
        for reference in (*self.data, *self.validation):
            resolve(reference, where="data")
        locate(self.base)


@register_training(
    "graph_cross_encoder",
    summary="a cross-encoder of questions and triples, for the hybrid baseline where no published one is at hand",
    stages=(STAGE,),
    config=GraphCrossEncoderTrainingConfig,
    paper="Nogueira and Cho 2019, Passage Re-ranking with BERT (arXiv:1901.04085)",
)
class GraphCrossEncoderTraining:
    """The training.

    Args:
        config: Options.
    """

    def __init__(self, config: GraphCrossEncoderTrainingConfig) -> None:
        self.config = config

    def run(self, workshop: Workshop) -> Iterator[TrainedStage]:
        """Train one cross-encoder.

        Raises:
            UserError: The data may not be trained on or holds no reasoning triples, or the folders hold other work.
        """
        config = self.config
        benchmarks = load_training(config.data, config.data_options)
        process = accelerator(config.precision, workshop.services.device)

        def begin(identity: str) -> Begun:
            return _Job(config, benchmarks, workshop, process).begun(identity)

        data = tuple(benchmark.fingerprint for benchmark in benchmarks)
        yield from train_stage(STAGE, config, (config.base, config.revision), data, workshop, process, begin)


class _Job:
    """One run of the training."""

    def __init__(self, config: GraphCrossEncoderTrainingConfig, benchmarks: list[Benchmark], workshop: Workshop, process: Any) -> None:
        self.config, self.workshop, self.process = config, workshop, process
        self.asked, self.without = asked_of(benchmarks, config.pool)
        self.model = cross_encoder(config, str(process.device))
        self.objective = GroupObjective(self.model, config.part, process)
        self.count = sum(len(one.gold) for one in self.asked)
        self._groups = lru_cache(1)(self._groups_of)

    @property
    def _epoch(self) -> int:
        """Steps of an epoch."""
        return -(-self.count // self.config.batch_size)

    def begun(self, identity: str) -> Begun:
        """The loop, ready to run."""
        config = self.config
        options = LoopOptions(
            config.epochs * self._epoch,
            self._epoch,
            Schedule(config.learning_rate, config.warm_up, "linear"),
            config.weight_decay,
            max_grad_norm=config.max_grad_norm,
            save_every=config.save_every,
        )
        validate = None
        if config.validation:
            held_out, _ = asked_of(load_graphs(config.validation, config.validation_options), 1)
            validate = validator(self.objective, held_out, config.validate_k)
        loop = Loop(
            {"model": self.model},
            options,
            self._step,
            self.workshop.work / "train",
            identity,
            self.workshop.progress,
            "graph_cross_encoder",
            self.process,
            validate,
        )
        figures = {"questions": float(len(self.asked)), "rows": float(self.count), "questions_left_out": float(self.without)}
        return Begun(loop, self._save, figures)

    def _step(self, step: int) -> Figures:
        epoch, place = divmod(step, self._epoch)
        size = self.config.batch_size
        rows = self._groups(epoch)[place * size : (place + 1) * size]
        return {"loss": self.objective.backward(rows, (self.config.seed, "cross-encoder", step))}

    def _groups_of(self, epoch: int) -> list[Group]:
        hard = round(self.config.hard * self.config.negatives)
        return groups(self.asked, self.config.negatives, hard, self.config.seed, epoch)

    def _save(self, folder: Path, figures: Figures) -> None:
        self.model.save_pretrained(str(folder), create_model_card=False)
        write_card(folder, self.config.base, self.config.seed, self.config.data, self._facts(figures))

    def _facts(self, figures: Figures) -> Mapping[str, object]:
        config = self.config
        return {
            "other triples per right one": config.negatives,
            "of them found by BM25": f"{config.hard:.0%}",
            "rows per batch": config.batch_size,
            "epochs": config.epochs,
            **figures,
        }


def cross_encoder(config: GraphCrossEncoderTrainingConfig, device: str) -> Any:
    """The base as a `CrossEncoder` of one score; a base without a head gets one, drawn from the seed.

    Raises:
        UserError: It cannot be loaded.
    """
    with loading("encoder", config.base), without_load_report():
        import torch
        from sentence_transformers import CrossEncoder

        torch.manual_seed(config.seed)
        model = CrossEncoder(
            locate(config.base),
            num_labels=1,
            revision=config.revision,
            device=device,
            max_length=config.max_length,
            model_kwargs={"dtype": torch.float32},
        )
    if model.num_labels != 1:
        raise UserError(
            f"{config.base!r} gives {model.num_labels} scores per pair where a reranker gives one",
            where="base",
            try_this="an encoder, or a cross-encoder that was trained for ranking",
        )
    return model
