"""A training of one stage: taken over where it is finished, gone on with where it was cut off, saved whole or not."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.fingerprint import CHECKPOINT_CARD, fingerprint, folder_sha256
from methods.manifest import Manifest, StageRecord
from methods.models.weights import locate, weights_hash
from methods.torch_loop import Loop
from methods.training import TrainedStage, TrainingConfig, Workshop

Figures = Mapping[str, float]


@dataclass(frozen=True)
class Begun:
    """A training that is ready to run.

    Attributes:
        loop: Its steps.
        save: Writes the checkpoint into an empty folder, given what the training came to.
        figures: What is known of it beforehand (rows, what was left out …).
    """

    loop: Loop
    save: Callable[[Path, Figures], None]
    figures: Figures


def train_stage(
    stage: str,
    config: TrainingConfig,
    base: tuple[str, str | None],
    data: Sequence[str],
    workshop: Workshop,
    accelerator: Any,
    begin: Callable[[str], Begun],
    *,
    others: Sequence[tuple[str, str | None]] = (),
    inputs: Sequence[str] = (),
) -> Iterator[TrainedStage]:
    """Train, or take over what was trained.

    Args:
        stage: Its name, and that of its folder.
        config: All options.
        base: The model that it begins from, and its revision.
        data: Fingerprints of what it is trained on.
        workshop: Where it works.
        accelerator: Of `accelerate`; of several processes the main one alone yields.
        begin: From a hash of everything that decides the result to the training.
        others: Further models that it begins from.
        inputs: Hashes of what else decides the result: files that options name.

    Raises:
        UserError: The folders hold other work.
    """
    options = config.model_dump(mode="json")
    parents = [weights_hash(*model) for model in (base, *others)]
    parent = parents[0] if len(parents) == 1 else fingerprint(parents)
    identity = fingerprint(options, list(data), *inputs)
    manifest = Manifest.open(workshop.work, identity, options)
    folder = workshop.checkpoints / stage
    record = manifest.finished(stage, folder, parent)
    fresh = record is None
    if record is None:
        begun = begin(fingerprint(identity, parent))
        figures = {**begun.loop.run(), **begun.figures}
        if accelerator.is_main_process:
            made = StageRecord("", parent, None, "", figures)
            record = saved(stage, folder, manifest, made, lambda draft: begun.save(draft, figures))
        accelerator.wait_for_everyone()
        begun.loop.forget()
    if record is not None and accelerator.is_main_process:
        yield TrainedStage(stage, folder, _ours((base, *others), parents), tuple(data), record.figures, fresh)


def _ours(models: Sequence[tuple[str, str | None]], hashes: Sequence[str]) -> tuple[str, ...]:
    """The hashes of checkpoints; a base that is none of ours has no hash of the kind that cards hold."""
    found = zip(models, hashes, strict=True)
    return tuple(one for (model, _), one in found if (Path(locate(model)) / CHECKPOINT_CARD).is_file())


def saved(stage: str, folder: Path, manifest: Manifest, record: StageRecord, save: Callable[[Path], None]) -> StageRecord:
    """Write a checkpoint so that it appears whole or not at all, its hash first.

    Args:
        stage: Its name.
        folder: Where it goes.
        manifest: Gets the record.
        record: Of the stage, yet without a hash.
        save: Writes the checkpoint into an empty folder.

    Returns:
        The record with the hash.
    """
    draft = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    save(draft)
    _without_versions(draft)
    record = replace(record, sha256=folder_sha256(draft))
    manifest.stages[stage] = record
    manifest.save()
    draft.rename(folder)
    return record


def _without_versions(folder: Path) -> None:
    """Leave library versions out of the folder: equal trainings give equal hashes wherever they ran."""
    for name, key in (("config_sentence_transformers.json", "__version__"), ("config.json", "transformers_version")):
        for path in folder.rglob(name):
            settings: dict[str, Any] = json.loads(path.read_text("utf-8"))
            settings.pop(key, None)
            path.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", "utf-8")
