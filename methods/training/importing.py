"""Published checkpoints as trainings of one stage, so that an experiment converts what its rows need.

Each family registers its own (`clara_released`, `compressor_released`): options, and the model that is planned with before
anything is downloaded. Converting is the same for all, and is what `ragmeter train checkpoints convert` does.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from benchmarks.core.errors import UserError
from methods.training import LengthsOf, TrainedStage, TrainingConfig, TrainingContext
from methods.training.released import Released, released
from methods.work import Checkpoint, Needs, StageWork, Work, unknown

STAGE = "published"
BYTES = 1e9
"""Maximum size of adapters, rows and projectors next to a base of 7 billion parameters, at most."""


class ReleasedConfig(TrainingConfig):
    """Options that select the published checkpoint."""

    whole: ClassVar[frozenset[str]] = frozenset()
    """Layouts whose checkpoint holds the language model or the encoder as a whole."""

    seed: int = Field(0, ge=0, lt=2**32, exclude=True, description="has no effect: a conversion is deterministic")
    source: str = Field(min_length=1, description="published checkpoint: a hub id or folder")
    revision: str | None = Field(None, description="revision of a hub id")
    subfolder: str | None = Field(None, description="folder in the repository that holds the checkpoint")
    base: str | None = Field(None, description="base model, if the checkpoint does not name it, or names it by a path")
    options: dict[str, Any] = Field(default_factory=dict, description="options of the model that replace those of the checkpoint")

    @property
    def kind(self) -> str:
        """Return the layout that the checkpoint must have."""
        raise TypeError("a family's own class says which")


def convert(checkpoint: Released, folder: Path, base: str | None, options: Mapping[str, Any], device: str | None) -> None:
    """Write a published checkpoint of any layout as one of ours.

    Args:
        checkpoint: What was published.
        folder: Where to; must not exist.
        base: The model below it, in place of the one that it names.
        options: Of the model, over what the checkpoint says.
        device: Where the models are put.

    Raises:
        UserError: It is of another layout, or does not belong to its base.
    """
    family = "clara" if checkpoint.layout == "clara" else "baselines.compress"
    import_module(f"methods.{family}.convert").convert(checkpoint, folder, base, options, device)


class Conversion:
    """A training that converts.

    Args:
        config: The checkpoint.
    """

    def __init__(self, config: ReleasedConfig) -> None:
        self._config = config

    def run(self, context: TrainingContext) -> Iterator[TrainedStage]:
        """Convert, unless the checkpoint is there; its parent is the commit of the hub.

        Raises:
            UserError: The checkpoint cannot be had, is of another layout, or does not belong to its base.
        """
        config, folder = self._config, context.checkpoints / STAGE
        if folder.is_dir():
            yield TrainedStage(STAGE, folder, fresh=False)
            return
        checkpoint = released(config.source, config.revision, config.subfolder)
        if checkpoint.layout != config.kind:
            raise UserError(
                f"this checkpoint has the layout of {checkpoint.layout}, not of {config.kind}",
                code="checkpoint-of-other-system",
                where=config.source,
                try_this="the id or folder of another checkpoint, or the training and layout of this one",
            )
        context.progress.begin(f"converting {config.source}")
        context.checkpoints.mkdir(parents=True, exist_ok=True)
        draft = context.checkpoints / f"{STAGE}-part"
        shutil.rmtree(draft, ignore_errors=True)
        try:
            convert(checkpoint, draft, config.base, config.options, context.services.device)
            draft.rename(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        yield TrainedStage(STAGE, folder, (checkpoint.revision,) if checkpoint.revision else ())


def work(config: ReleasedConfig, of: LengthsOf) -> list[StageWork]:
    """Return the disk that the converted checkpoint takes."""
    held = config.kind in config.whole
    return [StageWork(STAGE, unknown(f"disk of the model that {config.source} holds") if held else Work(bytes=BYTES))]


def needs(config: ReleasedConfig) -> Needs:
    """Return the model below a published checkpoint, and the checkpoint."""
    below = (Checkpoint(config.base),) if config.base else ()
    return Needs((*below, Checkpoint(config.source, config.revision, converted=True)))
