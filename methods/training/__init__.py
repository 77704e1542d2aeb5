"""Declare trainings: stages that can be stopped and taken up again, each ending in a checkpoint folder.

`ragmeter train NAME` builds a training from its options and runs its stages one after another. A stage that was
finished before is taken over; a stage that was interrupted resumes where it was. After each stage the command writes
the card (`ragmeter.json`) into its folder and enters the checkpoint into the store.

`stages.py` carries stages and their files, `loop.py` the steps of one, `journal.py` its log; `contrast.py` is what
rerankers that learn by contrast share; `adapters.py` and `soft_prompts.py` are what is on a frozen base;
`packing.py`, `candidates.py` and `balance.py` serve rows and losses.
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
    """Base of every training's options: frozen, and unknown keys are errors.

    A field's default is the spec's; its description also gives the paper's and the released value where they differ.
    """

    seed: int = Field(0, ge=0, lt=2**32, description="random seed")

    def preflight(self) -> None:
        """Check, without loading anything, that these options can work here: files, keys, packages.

        Raises:
            UserError: Something is missing; the message says how to get it.
        """

    def reach(self, cache: Path | None) -> None:
        """Make one short call to every endpoint that these options name, unless replies of its model are kept.

        Raises:
            Broke: One does not answer.
        """

    @property
    def wanted_judge(self) -> tuple[str, Mapping[str, Any]] | None:
        """Return name and options of the judge of answers that the training is to be provided with (`Services.judge`); None: none."""
        return None

    def stages_of(self, stages: tuple[str, ...]) -> tuple[str, ...]:
        """Return the stages that end in a checkpoint with these options; the last one is the training's result."""
        return stages


class TrainingOptions(RetiredOptions):
    """Base of a group of a training's options: frozen, and unknown keys are errors."""


class Progress(Protocol):
    """Interface for displaying the progress of a training."""

    def begin(self, what: str, total: int | None = None, done: int = 0) -> None:
        """Begin a step of the work: `done` of its `total` parts are finished; `total` is None if unknown."""
        ...

    def advance(self, steps: int = 1) -> None:
        """Count further finished steps."""
        ...

    def log(self, figures: Mapping[str, float]) -> None:
        """Show current figures, such as loss and learning rate."""
        ...


class Silent:
    """Progress that nobody watches."""

    def begin(self, what: str, total: int | None = None, done: int = 0) -> None: ...
    def advance(self, steps: int = 1) -> None: ...
    def log(self, figures: Mapping[str, float]) -> None: ...


@dataclass(frozen=True)
class TrainingContext:
    """Services and settings of a training.

    Attributes:
        work: Folder of its artifacts (graphs, generated texts, scores, rows); what lies there is not made again.
        checkpoints: Folder in which each stage makes a folder of its own.
        services: Seed, device, cache of model replies, and judge.
        progress: Reports every step.
        prepares: Make what the next stage needs before its first step, and end there with `Prepared`.
    """

    work: Path
    checkpoints: Path
    services: Services
    progress: Progress = field(default_factory=Silent)
    prepares: bool = False


class Prepared(Exception):
    """Ends a training that only prepares.

    Args:
        stage: The stage whose first step comes next.
        figures: Numbers of rows, of questions, and of what was left out.
    """

    def __init__(self, stage: str, figures: Mapping[str, float]) -> None:
        super().__init__(stage)
        self.stage, self.figures = stage, figures


@dataclass(frozen=True)
class TrainedStage:
    """A finished stage.

    Attributes:
        stage: Its name.
        folder: The checkpoint: complete, but for the card.
        parents: Hashes of the checkpoints that it began from or used; earlier stages of the same training by name.
        data: Fingerprints of the benchmarks that it was trained on.
        figures: What it came to: final loss, steps, rows …
        fresh: Whether it was trained now; False where it was taken over.
    """

    stage: str
    folder: Path
    parents: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)
    fresh: bool = True


class Training(Protocol):
    """Interface of a training that a registered factory creates."""

    def run(self, context: TrainingContext) -> Iterator[TrainedStage]:
        """Train, stage after stage; the generator may be left after any of them.

        Raises:
            UserError: The data or options do not allow it.
            Broke: A model that it needs cannot be used.
        """
        ...


LengthsOf = Callable[[str, Mapping[str, Mapping[str, Any]]], Lengths]
"""From a data reference, and options of loaders by dataset id, to what is known of the data."""


def known_data(config: Any, of: LengthsOf) -> list[Lengths]:
    """Return the facts about the data that options name (`data`, `data_options`), after checking the validation data too."""
    for item in config.validation:
        of(item, config.validation_options)
    return [of(item, config.data_options) for item in config.data]


TrainingWork = Callable[[Any, LengthsOf], Sequence[StageWork]]


@dataclass(frozen=True)
class TrainingEntry:
    """A registered training.

    Attributes:
        id: The name in `ragmeter train NAME`, and of the method whose checkpoints it makes.
        version: Its code version; bump it when what it makes may change.
        summary: One line.
        stages: In order.
        factory: From options to a `Training`.
        config: The class of its options.
        paper: Where it comes from.
        presets: Named sets of options (`paper`, `released`).
        extra: The extra of the distribution that it needs installed.
        work: From options and what is known of the data to the work of each stage; None: unknown.
        needs: From options to the models that must be there, first what it begins from.
        code: Of a plug-in; None for shipped trainings.
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
        """Check options, and that the models they name are here or can be had.

        Raises:
            UserError: Something is missing.
        """
        config.preflight()
        require_weights(self.needs(config) if self.needs else None)

    def validate(self, options: Mapping[str, Any]) -> TrainingConfig:
        """Return options with defaults filled in; a `preset` key lays named values under the given ones, key by key.

        Raises:
            pydantic.ValidationError: An option is unknown or of the wrong type.
            UserError: There is no such preset.
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
    """Declare a training; decorates its factory, from options to a `Training`; `config`, `identity` as of `methods.registry.register`."""

    def decorate(factory: F) -> F:
        options = config or config_class(factory, TrainingConfig)
        known = (paper, presets or {}, extra, work, needs, registered(identity, factory, options))
        entry = TrainingEntry(identifier, version, summary, tuple(stages), factory, options, *known)
        TRAININGS.add(entry, factory.__module__)
        return factory

    return decorate
