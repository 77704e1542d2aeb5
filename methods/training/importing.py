"""Treat the conversion of a published checkpoint as a training of one stage, so that experiments can request it.

Each model family registers its own "training" (`clara_released`, `compressor_released`) with options, and a model for planning
before the download. The conversion is that of `ragmeter train checkpoints convert`.
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
"""Assumed maximum size of adapters, token embeddings and projectors of a model with 7 billion parameters."""


class ReleasedConfig(TrainingConfig):
    """Options that select a published checkpoint."""

    whole: ClassVar[frozenset[str]] = frozenset()
    """Layouts whose checkpoint contains the whole language model or encoder."""

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
    """Convert a published checkpoint of any supported layout to ragmeter's format.

    Args:
        checkpoint: The published checkpoint.
        folder: Output folder, which must not exist.
        base: Base model, replacing the one that the checkpoint names.
        options: Model options that override the checkpoint's.
        device: Device of the models.

    Raises:
        UserError: The checkpoint has an unsupported layout, or does not fit its base model.
    """
    family = "clara" if checkpoint.layout == "clara" else "baselines.compress"
    import_module(f"methods.{family}.convert").convert(checkpoint, folder, base, options, device)


class Conversion:
    """Training that downloads and converts a published checkpoint.

    Args:
        config: Options that select the checkpoint.
    """

    def __init__(self, config: ReleasedConfig) -> None:
        self._config = config

    def run(self, context: TrainingContext) -> Iterator[TrainedStage]:
        """Convert the checkpoint unless it already exists; its parent is the hub commit.

        Raises:
            UserError: The checkpoint cannot be downloaded, has another layout, or does not fit its base model.
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
    """Estimate the disk space of the converted checkpoint."""
    whole = config.kind in config.whole
    return [StageWork(STAGE, unknown(f"disk of the model that {config.source} holds") if whole else Work(bytes=BYTES))]


def needs(config: ReleasedConfig) -> Needs:
    """Return the base model and the published checkpoint."""
    below = (Checkpoint(config.base),) if config.base else ()
    return Needs((*below, Checkpoint(config.source, config.revision, converted=True)))
