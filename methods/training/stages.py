"""Run a training stage: reuse a finished checkpoint, resume an interrupted one, and save results atomically."""

from __future__ import annotations

import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol

from benchmarks.core.errors import UserError
from benchmarks.core.files import whole_text
from benchmarks.core.fingerprint import CHECKPOINT_CARD, content_id, fingerprint, folder_sha256
from benchmarks.read_questions import left_out_counts, write_so_far
from methods.models.weights import locate, weights_hash
from methods.training import Prepared, TrainedStage, TrainingConfig, TrainingContext
from methods.training.parts import Figures
from methods.training.ranks import accelerator, require_equal, wait


def file_id(identifier: str) -> str:
    """Return a safe file name for a question or document id, which may contain slashes and have any length."""
    return content_id("q", identifier)


def write_json(path: Path, value: Any, *, nan: bool = True) -> None:
    """Write a JSON file.

    Args:
        path: The file.
        value: The value.
        nan: Whether NaN and infinity are allowed; they are written in Python's (non-standard) form.

    Raises:
        ValueError: The value contains NaN or infinity, and `nan` is false.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    whole_text(path, json.dumps(value, ensure_ascii=False, allow_nan=nan, indent=1) + "\n")


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write JSON Lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def read_json(path: Path) -> Any:
    """Read a JSON file of earlier work.

    Raises:
        UserError: The file is damaged.
    """
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from None


def read_card(path: Path) -> Any:
    """Read a JSON file of a checkpoint's folder, which cannot be written again.

    Raises:
        UserError: The file is damaged.
    """
    try:
        return read_json(path)
    except UserError as error:
        raise UserError(
            error.what.replace("this file of earlier work", "this file of a checkpoint"),
            code="unreadable-checkpoint-file",
            where=str(path),
            try_this="copy the folder again from where it was trained, or train it again",
        ) from None


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read JSON Lines.

    Raises:
        UserError: A line is damaged.
    """
    try:
        with path.open("rb") as file:  # a text may contain U+2028, at which `splitlines` would cut
            return [json.loads(line) for line in file]
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> UserError:
    return UserError(
        f"this file of earlier work cannot be read: {error}",
        code="unreadable-earlier-work",
        where=str(path),
        try_this="delete it: it will be written again",
    )


def card_of(model: str) -> Mapping[str, Any] | None:
    """Read the card of a model's folder (`ragmeter.json`); None if it has none.

    Raises:
        UserError: The folder does not exist, or the card is damaged.
    """
    path = Path(locate(model)) / CHECKPOINT_CARD
    if not path.is_file():
        return None
    card = read_card(path)
    return card if isinstance(card, dict) else None


@dataclass(frozen=True)
class StageRecord:
    """Record of a finished stage in the manifest.

    Attributes:
        sha256: Hash of its checkpoint.
        parent: Hash of the initial weights (the previous stage, or the base model).
        mined_with: Hash of the encoder that mined its negatives; None without mining.
        rows: Hash of its training rows.
        figures: Final metrics.
    """

    sha256: str
    parent: str
    mined_with: str | None
    rows: str
    figures: Mapping[str, float]


@dataclass
class Manifest:
    """Manifest of a training's working folder: its inputs and finished stages.

    Attributes:
        path: The file.
        identity: Hash of options and data.
        config: The options.
        counts: Number of documents, questions, skipped rows, calls and scores.
        stages: Finished stages.
    """

    path: Path
    identity: str
    config: Mapping[str, Any]
    counts: dict[str, float] = field(default_factory=dict)
    stages: dict[str, StageRecord] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Path, identity: str, config: Mapping[str, Any]) -> Manifest:
        """Open the manifest of a folder, or start a new one.

        Raises:
            UserError: The folder contains the work of another training.
        """
        path = folder / "manifest.json"
        if not path.exists():
            return cls(path, identity, config)
        there = read_json(path)
        if there.get("identity") != identity:
            raise UserError(
                "this folder contains the results of a training with other options or data",
                code="folder-of-other-training",
                where=str(folder),
                try_this="choose another folder, or delete this one",
            )
        stages = {name: StageRecord(**record) for name, record in there["stages"].items()}
        return cls(path, identity, config, there["counts"], stages)

    def save(self) -> None:
        """Write the manifest file."""
        write_json(
            self.path,
            {
                "identity": self.identity,
                "config": dict(self.config),
                "counts": self.counts,
                "stages": {name: asdict(record) for name, record in self.stages.items()},
            },
        )

    def finished(self, stage: str, folder: Path, parent: str) -> StageRecord | None:
        """Return the record of a stage whose checkpoint exists; None if it still has to be trained.

        Raises:
            UserError: The checkpoint was modified, or was trained from other initial weights.
        """
        record = self.stages.get(stage)
        if record is None or not folder.is_dir():
            if folder.exists():
                raise UserError(
                    f"the folder of {stage} exists, but this training did not finish it",
                    code="training-folder-unfinished",
                    where=str(folder),
                    try_this="move it away, or choose another --output",
                )
            return None
        if record.parent != parent:
            raise UserError(
                f"{stage} was trained from weights {record.parent[:12]}…, but the stage before it now has weights {parent[:12]}…",
                code="parent-weights-changed",
                where=str(folder),
                try_this="delete this stage and those after it: they are trained again",
            )
        require_unchanged(stage, folder, record.sha256)
        return record


def require_unchanged(stage: str, folder: Path, sha256: str) -> None:
    """Check that a stage's checkpoint has not been modified since its training.

    Raises:
        UserError: The checkpoint is missing or was modified.
    """
    actual = folder_sha256(folder)
    if actual != sha256:
        raise UserError(
            f"the checkpoint of {stage} is not the one that its training ended with: {actual[:12]}… instead of {sha256[:12]}…",
            code="checkpoint-replaced",
            where=str(folder),
            try_this="delete this stage and those after it: they are trained again",
        )


class Steps(Protocol):
    """Protocol of a stage's training procedure, usually a `Loop`."""

    def run(self) -> Mapping[str, float]:
        """Train to the end and return the final metrics."""
        ...

    def forget(self) -> None:
        """Delete the files that are only needed for resuming."""
        ...


@dataclass(frozen=True)
class PreparedRun:
    """A training that is ready to run.

    Attributes:
        loop: The training procedure.
        save: Function that writes the checkpoint into an empty folder, given the final metrics.
        figures: Figures known before training (rows, skipped rows …).
        mined_with, rows: As in `StageRecord`.
    """

    loop: Steps
    save: Callable[[Path, Figures], None]
    figures: Figures
    mined_with: str | None = None
    rows: str = ""


def train_stage(
    stage: str,
    config: TrainingConfig,
    base: tuple[str, str | None],
    data: Sequence[str],
    context: TrainingContext,
    accelerator: Any,
    begin: Callable[[str], PreparedRun],
    *,
    others: Sequence[tuple[str, str | None]] = (),
    inputs: Sequence[str] = (),
) -> Iterator[TrainedStage]:
    """Train a stage, or reuse its finished checkpoint, and yield the result.

    Args:
        stage: Name of the stage and its folder.
        config: All options.
        base: Base model and its revision.
        data: Fingerprints of the training data.
        context: Context of the training.
        accelerator: `accelerate` process; with several processes, only the main one yields.
        begin: Function that prepares the training, given a hash of everything that determines the result.
        others: Further base models.
        inputs: Hashes of other inputs, such as files named in options.

    Raises:
        UserError: The folders contain other work, or the processes of the group prepared different things.
        Prepared: The training only prepares.
    """
    options = config.model_dump(mode="json")
    parents = [weights_hash(*model) for model in (base, *others)]
    parent = parents[0] if len(parents) == 1 else fingerprint(parents)
    identity = fingerprint(options, list(data), *inputs)
    manifest = Manifest.open(context.work, identity, options)
    folder = context.checkpoints / stage
    record = manifest.finished(stage, folder, parent)
    fresh = record is None
    if record is None:
        prepared = begin(fingerprint(identity, parent))
        left_out = {reason: float(count) for reason, count in left_out_counts().items()}
        prepared = replace(prepared, figures={**left_out, **prepared.figures})
        if context.prepares:
            raise Prepared(stage, prepared.figures)
        require_equal({"rows": prepared.rows, **prepared.figures}, accelerator, str(context.work))
        figures = {**prepared.loop.run(), **prepared.figures}
        if accelerator.is_main_process:
            made = StageRecord("", parent, prepared.mined_with, prepared.rows, figures)
            record = saved(stage, folder, manifest, made, lambda draft: prepared.save(draft, figures))
        wait(accelerator)
        prepared.loop.forget()
    if record is not None and accelerator.is_main_process:
        yield TrainedStage(stage, folder, _ours((base, *others), parents), tuple(data), record.figures, fresh)


class OneStageTraining(ABC):
    """Base class of trainings with one stage.

    Args:
        config: Options, with `precision` at the top level or in `train`.
    """

    stage: ClassVar[str]
    """Name of the stage, and of its folder."""

    def __init__(self, config: Any) -> None:
        self.config = config

    @abstractmethod
    def load(self) -> tuple[Any, Sequence[str]]:
        """Load the training data; returns the data and its fingerprints."""

    @abstractmethod
    def begin(self, data: Any, context: TrainingContext, process: Any, identity: str) -> PreparedRun:
        """Prepare the training; `identity` is a hash of everything that determines the result."""

    def bases(self) -> Sequence[tuple[str, str | None]]:
        """Return the base models, each with its revision."""
        return [(self.config.base, getattr(self.config, "revision", None))]

    def inputs(self, data: Any) -> Sequence[str]:
        """Return hashes of other inputs that determine the result, such as files named in options."""
        return ()

    def run(self, context: TrainingContext) -> Iterator[TrainedStage]:
        """Train the stage, or reuse its finished checkpoint, and yield the result.

        Raises:
            UserError: The data must not be trained on or provides no rows, or the folders contain other work.
            Broke: A model cannot be called, or the loss is NaN.
        """
        data, fingerprints = self.load()
        precision = getattr(self.config, "precision", None) or self.config.train.precision
        process = accelerator(precision, context.services.device)
        begin = partial(self.begin, data, context, process)
        base, *others = self.bases()
        where = self.stage, self.config, base, tuple(fingerprints), context, process, begin
        yield from train_stage(*where, others=others, inputs=self.inputs(data))


def _ours(models: Sequence[tuple[str, str | None]], hashes: Sequence[str]) -> tuple[str, ...]:
    """Return the hashes of those base models that are ragmeter checkpoints."""
    results = zip(models, hashes, strict=True)
    return tuple(item for (model, _), item in results if (Path(locate(model)) / CHECKPOINT_CARD).is_file())


def saved(stage: str, folder: Path, manifest: Manifest, record: StageRecord, save: Callable[[Path], None]) -> StageRecord:
    """Save a checkpoint with the record of its training questions atomically, recording its hash in the manifest first.

    Args:
        stage: Its name.
        folder: Checkpoint folder.
        manifest: Manifest to update.
        record: Record of the stage, still without the hash.
        save: Function that writes the checkpoint into an empty folder.

    Returns:
        The record with the hash.
    """
    draft = folder.with_name(f".{folder.name}.{os.getpid()}")
    # Remove drafts of killed processes, too: only one training at a time writes into these folders.
    for earlier in folder.parent.glob(f".{folder.name}.*"):
        shutil.rmtree(earlier, ignore_errors=True)
    draft.mkdir(parents=True)
    save(draft)
    _without_versions(draft)
    # Now, so that no killed process leaves a checkpoint whose training questions are unknown.
    write_so_far(draft)
    record = replace(record, sha256=folder_sha256(draft))
    manifest.stages[stage] = record
    manifest.save()
    draft.rename(folder)
    return record


def _without_versions(folder: Path) -> None:
    """Remove library versions from the folder's files, so that equal trainings have equal hashes."""
    for name, key in (("config_sentence_transformers.json", "__version__"), ("config.json", "transformers_version")):
        for path in folder.rglob(name):
            settings: dict[str, Any] = json.loads(path.read_text("utf-8"))
            settings.pop(key, None)
            path.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", "utf-8")
