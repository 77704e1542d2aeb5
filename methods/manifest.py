"""What a training's folder of work says of itself: whose work it is, and which stages were finished from what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.errors import UserError
from benchmarks.fingerprint import folder_sha256
from methods.kept import read_json, write_json


@dataclass(frozen=True)
class StageRecord:
    """A finished stage.

    Attributes:
        sha256: Of its checkpoint.
        parent: Hash of the weights that it began from: the stage before, or the base.
        mined_with: Hash of the encoder that mined its negatives; None where none were retrieved.
        rows: Hash of its rows.
        figures: What it came to.
    """

    sha256: str
    parent: str
    mined_with: str | None
    rows: str
    figures: Mapping[str, float]


@dataclass
class Manifest:
    """The manifest of a folder of work.

    Attributes:
        path: The file.
        identity: Hash of options and data.
        config: The options.
        counts: Documents, questions, rows left out …, calls and scores of the run that made them.
        stages: Finished stages.
    """

    path: Path
    identity: str
    config: Mapping[str, Any]
    counts: dict[str, float] = field(default_factory=dict)
    stages: dict[str, StageRecord] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Path, identity: str, config: Mapping[str, Any]) -> Manifest:
        """Open or begin the manifest of a folder.

        Raises:
            UserError: The folder holds the work of another training.
        """
        path = folder / "manifest.json"
        if not path.exists():
            return cls(path, identity, config)
        there = read_json(path)
        if there.get("identity") != identity:
            raise UserError(
                "this folder holds the work of a training with other options or data",
                where=str(folder),
                try_this="another folder, or delete this one",
            )
        stages = {name: StageRecord(**record) for name, record in there["stages"].items()}
        return cls(path, identity, config, there["counts"], stages)

    def save(self) -> None:
        """Write it."""
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
        """The record of a stage whose checkpoint is there, None where it is still to be trained.

        Raises:
            UserError: The checkpoint was changed, or was trained from other weights than those that are there now.
        """
        record = self.stages.get(stage)
        if record is None or not folder.is_dir():
            if folder.exists():
                raise UserError(
                    f"{stage} was not finished by this training, and its folder is there",
                    where=str(folder),
                    try_this="move it away, or choose another --output",
                )
            return None
        if record.parent != parent:
            raise UserError(
                f"{stage} was trained from weights {record.parent[:12]}…, and those before it are now {parent[:12]}…",
                where=str(folder),
                try_this="delete this stage and those after it: they are trained again",
            )
        require_unchanged(stage, folder, record.sha256)
        return record


def require_unchanged(stage: str, folder: Path, sha256: str) -> None:
    """Check that a stage's checkpoint is the one that its training ended with.

    Raises:
        UserError: It is gone or was changed.
    """
    actual = folder_sha256(folder)
    if actual != sha256:
        raise UserError(
            f"the checkpoint of {stage} is not the one that its training ended with: {actual[:12]}… instead of {sha256[:12]}…",
            where=str(folder),
            try_this="delete this stage and those after it: they are trained again",
        )
