"""The local models that an experiment loads: those of its methods, of its settings, and of what its trainings use."""

from __future__ import annotations

from collections.abc import Iterator

from methods.ark.config import ArkTrainingConfig
from methods.gpr.config import GprTrainingConfig
from methods.sark.config import SarkTrainingConfig
from methods.training import TrainingConfig
from ragmeter.candidates import candidate_retriever
from ragmeter.experiment import Experiment
from ragmeter.planning.weights import Weights
from ragmeter.sizing.named import models_in
from ragmeter.trainings import TrainingPlan

Model = tuple[str, str | None]
"""A folder or hub id, and a revision of it."""


def needed_models(experiment: Experiment, left: list[TrainingPlan], weights: Weights) -> Iterator[tuple[Model, str]]:
    """Every model and who needs it, checkpoints of the experiment's own trainings left out.

    Args:
        experiment: Validated.
        left: Trainings that are still to be carried out.
        weights: Knows which checkpoints these will make.
    """
    for plan in left:
        for model in _of_training(plan.config, weights):
            yield from _foreign(model, weights, plan.name)
    for method in experiment.methods:
        for model in models_in(tuple(method.components)):
            yield from _foreign(model, weights, method.name)
    for benchmark in experiment.benchmarks:
        retriever = candidate_retriever(benchmark.setting)
        for model in models_in((retriever,)) if retriever is not None else ():
            yield from _foreign(model, weights, f"setting {benchmark.setting}")


def _foreign(model: Model, weights: Weights, who: str) -> Iterator[tuple[Model, str]]:
    if weights.training(model[0]) is None:
        yield model, who


def _of_training(config: TrainingConfig, weights: Weights) -> Iterator[Model]:
    base = weights.base(config)
    if base is not None:
        yield base
    if isinstance(config, ArkTrainingConfig):
        score = config.score
        if score.f.weight or score.b.weight:
            yield score.scorer, score.revision
        if score.v.weight:
            yield config.vector_encoder.model, config.vector_encoder.revision
        if config.augments and config.kg.similarity.enabled:
            yield config.kg.similarity.encoder.model, config.kg.similarity.encoder.revision
    elif isinstance(config, GprTrainingConfig):
        yield config.triple_encoder.model, config.triple_revision or config.revision
    elif isinstance(config, SarkTrainingConfig):
        parts = [config.candidates.component] if config.candidates.source == "retriever" else []
        parts += [config.labels.extra.component] if config.labels.extra is not None else []
        parts += [config.labels.component] if config.labels.by == "reader" else []
        yield from models_in(tuple(parts))
