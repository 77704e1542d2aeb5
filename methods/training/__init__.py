"""Trainings: sequences of stages that can be interrupted and resumed, each ending in a checkpoint folder.

`ragmeter train NAME` builds a training from its options and runs its stages in order. Finished stages are reused, and an
interrupted stage resumes. After each stage, the command writes the card (`ragmeter.json`) into its folder and registers the
checkpoint in the store.

`stages.py` manages stages and their files, `loop.py` is the training loop, `journal.py` saves results of calls. `contrast.py`
is shared by rerankers with contrastive training; `adapters.py` and `soft_prompts.py` extend a frozen base model; `packing.py`,
`candidates.py` and `balance.py` are for rows and losses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import Field

from benchmarks.core.code import Code, Identity, registered
from benchmarks.core.errors import unknown_name
from benchmarks.core.models import RetiredOptions
from benchmarks.core.plugins import Registry, config_class
from methods.api import Services
from methods.models.weights import require_weights
from methods.presets import laid_over
from methods.work import Lengths, Needs, StageWork


class TrainingConfig(RetiredOptions):
    """Base class of every training's options: immutable, and unknown keys are errors.

    If a default differs from the paper or the released code, the field's description gives their values.
    """

    seed: int = Field(0, ge=0, lt=2**32, description="random seed")

    def preflight(self) -> None:
        """Check, without loading anything, that files, keys and packages needed by these options are available.

        Raises:
            UserError: Something is missing; the message explains how to get it.
        """

    def reach(self, cache: Path | None) -> None:
        """Check that every endpoint in the options responds, with one short call each; endpoints with cached replies are
        skipped.

        Raises:
            Broke: An endpoint does not respond.
        """

    @property
    def wanted_judge(self) -> tuple[str, Mapping[str, Any]] | None:
        """Return name and options of the judge that the training needs (`Services.judge`), or None."""
        return None

    def stages_of(self, stages: tuple[str, ...]) -> tuple[str, ...]:
        """Return which of the given stages end in a checkpoint with these options; the last one is the training's result."""
        return stages


class TrainingOptions(RetiredOptions):
    """Base class of a group of training options: immutable, and unknown keys are errors."""


class Progress(Protocol):
    """Interface for displaying a training's progress."""

    def begin(self, what: str, total: int | None = None, done: int = 0) -> None:
        """Start a step of the work with `total` parts (None if unknown), of which `done` are finished."""
        ...

    def advance(self, steps: int = 1) -> None:
        """Report further finished parts of the current step."""
        ...

    def log(self, figures: Mapping[str, float]) -> None:
        """Show current metrics, such as loss and learning rate."""
        ...


class Silent:
    """Progress display that shows nothing."""

    def begin(self, what: str, total: int | None = None, done: int = 0) -> None: ...
    def advance(self, steps: int = 1) -> None: ...
    def log(self, figures: Mapping[str, float]) -> None: ...


@dataclass(frozen=True)
class TrainingContext:
    """Services and settings of a training.

    Attributes:
        work: Folder of intermediate results (graphs, generated texts, scores, rows), which are reused.
        checkpoints: Folder in which each stage creates its checkpoint folder.
        services: Seed, device, cache of model replies, and judge.
        progress: Progress display.
        prepares: Whether to only prepare the next stage's data and then raise `Prepared`.
    """

    work: Path
    checkpoints: Path
    services: Services
    progress: Progress = field(default_factory=Silent)
    prepares: bool = False


class Prepared(Exception):
    """Raised at the end of a run that only prepares a stage's data.

    Args:
        stage: The prepared stage.
        figures: Number of rows, questions and skipped items.
    """

    def __init__(self, stage: str, figures: Mapping[str, float]) -> None:
        super().__init__(stage)
        self.stage, self.figures = stage, figures


@dataclass(frozen=True)
class TrainedStage:
    """Result of a finished stage.

    Attributes:
        stage: Its name.
        folder: Checkpoint folder, complete except for the card.
        parents: Hashes of the checkpoints it started from or used; earlier stages of the same training by name.
        data: Fingerprints of the training benchmarks.
        figures: Final metrics: loss, steps, rows …
        fresh: Whether it was trained now; False if an earlier result was reused.
    """

    stage: str
    folder: Path
    parents: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)
    fresh: bool = True


class Training(Protocol):
    """Interface of a training, as created by a registered factory."""

    def run(self, context: TrainingContext) -> Iterator[TrainedStage]:
        """Train all stages in order and yield each finished one; the generator may be closed after any of them.

        Raises:
            UserError: The data or options do not allow it.
            Broke: A model that it needs cannot be used.
        """
        ...


LengthsOf = Callable[[str, Mapping[str, Mapping[str, Any]]], Lengths]
"""Function from a data reference and dataset options to the known `Lengths` of the data."""


def known_data(config: Any, of: LengthsOf) -> list[Lengths]:
    """Return the `Lengths` of the data that options name (`data`, `data_options`); validation data are checked, too."""
    for item in config.validation:
        of(item, config.validation_options)
    return [of(item, config.data_options) for item in config.data]


TrainingWork = Callable[[Any, LengthsOf], Sequence[StageWork]]


@dataclass(frozen=True)
class TrainingEntry:
    """Registry entry of a training.

    Attributes:
        id: Name in `ragmeter train NAME`, and of the method that uses its checkpoints.
        version: Code version; increase it if results can change.
        summary: One-line summary.
        stages: Names of the stages, in order.
        factory: Function from options to a `Training`.
        config: Class of the options.
        paper: The publication.
        presets: Named sets of options (`paper`, `released`).
        extra: Required pip extra.
        work: Function from options and `LengthsOf` to the estimated work of each stage; None if unknown.
        needs: Function from options to the required models, the base model first.
        code: Source code of a plug-in; None for shipped trainings.
    """

    id: str
    version: int
    summary: str
    stages: tuple[str, ...]
    factory: Callable[[Any], Training]
    config: type[TrainingConfig]
    paper: str | None
    presets: Mapping[str, Mapping[str, Any]]
    extra: str | None
    work: TrainingWork | None = None
    needs: Callable[[Any], Needs | None] | None = None
    code: Code | None = None

    def preflight(self, config: TrainingConfig) -> None:
        """Check the options, and that the models they name are available or can be downloaded.

        Raises:
            UserError: Something is missing.
        """
        config.preflight()
        require_weights(self.needs(config) if self.needs else None)

    def validate(self, options: Mapping[str, Any]) -> TrainingConfig:
        """Validate options and fill in defaults; a `preset` supplies values for options that are not given.

        Raises:
            pydantic.ValidationError: An option is unknown or of the wrong type.
            UserError: The preset does not exist.
        """
        options = dict(options)
        preset = options.pop("preset", None)
        if preset is not None:
            if preset not in self.presets:
                raise unknown_name(f"preset of {self.id}", str(preset), self.presets)
            options = laid_over(self.presets[preset], options)
        return self.config.model_validate(options)


TRAININGS: Registry[TrainingEntry] = Registry("training", "methods", "ragmeter.methods")

F = TypeVar("F", bound=Callable[..., Any])


def register_training(
    identifier: str,
    *,
    summary: str,
    stages: Sequence[str],
    config: type[TrainingConfig] | None = None,
    version: int = 1,
    paper: str | None = None,
    presets: Mapping[str, Mapping[str, Any]] | None = None,
    extra: str | None = "models",
    work: TrainingWork | None = None,
    needs: Callable[[Any], Needs | None] | None = None,
    identity: Identity = "code",
) -> Callable[[F], F]:
    """Register a training; decorates its factory, a function from options to a `Training`. See `methods.registry.register` for
    `config` and `identity`.
    """

    def decorate(factory: F) -> F:
        options = config or config_class(factory, TrainingConfig)
        known = (paper, presets or {}, extra, work, needs, registered(identity, factory, options))
        entry = TrainingEntry(identifier, version, summary, tuple(stages), factory, options, *known)
        TRAININGS.add(entry, factory.__module__)
        return factory

    return decorate
