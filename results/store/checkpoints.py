"""Trained checkpoints: the card of a model folder, its verification and registration, and the runs that were made with it.

A checkpoint folder carries `ragmeter.json`: which method and stage trained it, from which parents, on which data, and
the hash of everything else in the folder. A run records the same hash among the weights of its parts, or in its provenance if a
part of a part has it; this links runs and checkpoints. `tags` gives names to both, and
`training_data` tells what the checkpoints of a run were trained on.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.core.errors import UserError, unknown_name
from benchmarks.core.fingerprint import CHECKPOINT_CARD as CARD
from benchmarks.core.fingerprint import READ_QUESTIONS, folder_sha256
from results.store import queries
from results.store.queries import RunRow
from results.store.read_questions import Record, put_record, records
from results.store.schema import now
from results.store.store import Store

_PREFIX = 4
"""Minimum hex digits of an abbreviated hash."""

SHA256 = re.compile(r"[0-9a-f]{64}")
"""A full hash."""
_KEYS = ("method", "version", "stage", "config", "parents", "data", "sha256")


@dataclass(frozen=True)
class Checkpoint:
    """Trained model in a folder, with the record of how it was trained (`ragmeter.json`).

    Attributes:
        method: Id of the method that uses it.
        version: Version of the method's code when it was trained.
        stage: The training stage that produced it.
        config: Options of the training.
        parents: Hashes of the checkpoints that training started from or used.
        data: Fingerprints of the training data.
        sha256: Hash of the folder's files (`benchmarks.core.fingerprint.folder_sha256`).
        path: The folder.
        added_at: When it was registered (UTC); None before.
        read: Hashes of the questions in its training data; None if unknown.
    """

    method: str
    version: int
    stage: str
    config: Mapping[str, Any]
    parents: tuple[str, ...]
    data: tuple[str, ...]
    sha256: str
    path: Path
    added_at: datetime | None = None
    read: Record | None = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """Return the name of the folder."""
        return self.path.name

    def to_json(self) -> dict[str, Any]:
        """Return the card as a JSON object."""
        own = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "read"}
        return own | {"name": self.name, "path": str(self.path), "added_at": self.added_at.isoformat() if self.added_at else None}


def describe(
    folder: Path | str,
    *,
    method: str,
    stage: str,
    version: int = 1,
    config: Mapping[str, Any] | None = None,
    parents: Iterable[Checkpoint | str] = (),
    data: Iterable[str] = (),
) -> Checkpoint:
    """Write `ragmeter.json` into a finished model folder, as the last step of a training.

    Args:
        folder: The folder with all files of the model.
        method, stage, version, config, data: As in `Checkpoint`; `config` must be JSON.
        parents: Checkpoints, or their full hashes.

    Raises:
        UserError: The folder is missing or empty, or the description is not JSON.
    """
    folder = Path(folder).absolute()
    hashes = [parent.sha256 if isinstance(parent, Checkpoint) else parent for parent in parents]
    card = {
        "method": method,
        "version": version,
        "stage": stage,
        "config": dict(config or {}),
        "parents": hashes,
        "data": list(data),
        "sha256": folder_sha256(folder),
    }
    target = folder / CARD
    try:
        text = json.dumps(card, ensure_ascii=False, indent=2, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise UserError(f"the description is not JSON: {error}", code="description-not-json", where=f"{target} (config)") from None
    result = _parsed(json.loads(text), target)
    # A concurrent reader sees the old card or the new one, never a part of it.
    draft = folder.with_name(f".{folder.name}.{os.getpid()}.{CARD}")
    draft.write_text(text, "utf-8")
    draft.replace(target)
    return result


def read(folder: Path | str) -> Checkpoint:
    """Read the card of a checkpoint folder without verifying the files (`verify` does).

    Raises:
        UserError: The folder has no readable card.
    """
    path = Path(folder).absolute() / CARD
    try:
        card = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise UserError(
            f"this folder holds no {CARD}, so it is not a checkpoint",
            code="folder-not-checkpoint",
            where=str(path.parent),
            try_this="name the folder that training wrote; results.store.checkpoints.describe writes a card for others",
        ) from None
    except (OSError, ValueError) as error:
        raise UserError(f"this checkpoint card cannot be read: {error}", code="unreadable-checkpoint-card", where=str(path)) from None
    return _parsed(card, path)


def verify(folder: Path | str) -> Checkpoint:
    """Read a checkpoint folder's card, and verify that the folder contains exactly the described files.

    Raises:
        UserError: The card is missing or damaged, or files were changed, added or removed.
    """
    result = read(folder)
    actual = folder_sha256(result.path)
    if actual != result.sha256:
        written = (result.path / CARD).stat().st_mtime_ns
        later = sorted(
            path.relative_to(result.path).as_posix()
            for path in result.path.rglob("*")
            if path.is_file() and path.name not in (CARD, READ_QUESTIONS) and path.stat().st_mtime_ns > written
        )
        hint = f"; written after the card: {', '.join(later[:5])}" if later else ""
        raise UserError(
            f"the files are not those that {CARD} describes: sha256 {actual[:12]}…, described {result.sha256[:12]}…" + hint,
            code="files-differ-from-card",
            where=str(result.path),
            try_this="copy the folder again from where it was trained, or train it again",
        )
    return result


def _parsed(card: Any, path: Path) -> Checkpoint:
    """Validate a card's content as a checkpoint."""
    if not isinstance(card, dict):
        raise UserError("this checkpoint card is not a JSON object", code="checkpoint-card-not-object", where=str(path))
    for key in _KEYS:
        if key not in card:
            raise UserError(f"this checkpoint card lacks {key!r}", code="checkpoint-card-lacks", where=str(path))
    for key in card:
        if key not in _KEYS:
            raise unknown_name("key of a checkpoint card", key, _KEYS, where=str(path))
    version = card["version"]
    shapes = {
        "method": isinstance(card["method"], str) and bool(card["method"]),
        "version": isinstance(version, int) and not isinstance(version, bool) and 1 <= version < 2**31,
        "stage": isinstance(card["stage"], str) and bool(card["stage"]),
        "config": isinstance(card["config"], dict),
        "parents": _texts(card["parents"]) and all(SHA256.fullmatch(parent) for parent in card["parents"]),
        "data": _texts(card["data"]),
        "sha256": isinstance(card["sha256"], str) and bool(SHA256.fullmatch(card["sha256"])),
    }
    for key, good in shapes.items():
        if not good:
            raise UserError(
                f"invalid {key} in the checkpoint card: {json.dumps(card[key], ensure_ascii=False)[:80]}",
                code="bad-checkpoint-card",
                where=str(path),
                try_this="method and stage: texts; version: a number from 1; config: an object; data: fingerprints; "
                "parents and sha256: hashes of 64 hex digits",
            )
    return Checkpoint(
        card["method"], version, card["stage"], card["config"], tuple(card["parents"]), tuple(card["data"]), card["sha256"], path.parent
    )


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) and item for item in value)


def register(store: Store, folder: Path | str) -> Checkpoint:
    """Verify a checkpoint folder and register it in the store; registering it at another path updates the path.

    Raises:
        UserError: As for `verify`.
    """
    return _put(store, verify(folder))


def _put(store: Store, checkpoint: Checkpoint) -> Checkpoint:
    result = replace(checkpoint, added_at=now())
    with store.database.writing() as connection:
        connection.execute("DELETE FROM checkpoints WHERE sha256 = ?", [result.sha256])
        connection.execute(
            "INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                result.sha256,
                result.method,
                result.version,
                result.stage,
                json.dumps(dict(result.config)),
                list(result.parents),
                list(result.data),
                str(result.path),
                result.added_at,
            ],
        )
        put_record(connection, result.sha256, result.path)
    return result


def register_recorded(store: Store, folders: Mapping[str, Path]) -> None:
    """Register checkpoints that a run uses, if their folders record the training questions; an unreadable record counts as unknown.

    A folder that was edited after the training (its model card, another precision) is registered as it is now, because its
    weights have read these questions, too. A warning names such folders, because an incomplete copy differs likewise.

    Args:
        store: The store to write to.
        folders: Checkpoint folders by their hash.
    """
    recorded = [sha256 for sha256, folder in folders.items() if (folder / READ_QUESTIONS).is_file()]
    known = known_checkpoints(store) if recorded else {}
    for sha256 in recorded:
        if sha256 not in known or known[sha256].read is None:
            with suppress(UserError):
                _put(store, replace(read(folders[sha256]), sha256=sha256))
    for sha256, folder in folders.items():
        with suppress(UserError):
            if read(folder).sha256 != sha256:
                warnings.warn(
                    f"the files of {folder} are not those that its {CARD} describes: they were edited, or are an incomplete copy; "
                    "the run is one of another checkpoint",
                    stacklevel=2,
                )


def checkpoints(store: Store) -> list[Checkpoint]:
    """List registered checkpoints, newest first; empty if there is no store yet."""
    rows = store.database.rows(
        """SELECT method, version, stage, config, parents, data, sha256, path, added_at FROM checkpoints
               ORDER BY added_at DESC, sha256""",
        lenient=True,
    )
    return [
        Checkpoint(m, v, stage, json.loads(config), tuple(parents), tuple(data), sha, Path(path), added)
        for m, v, stage, config, parents, data, sha, path, added in rows
    ]


def matching(store: Store, text: str) -> list[Checkpoint]:
    """Find registered checkpoints by the beginning of the hash, else by folder, else by the folder's name.

    Raises:
        UserError: The text is a checkpoint folder that was changed, or that is not registered.
    """
    known = checkpoints(store)
    results = [c for c in known if len(text) >= _PREFIX and c.sha256.startswith(text.lower())]
    if not results and (Path(text) / CARD).is_file():
        # A folder refers to its present content, even if it was registered elsewhere.
        sha256 = verify(text).sha256
        results = [c for c in known if c.sha256 == sha256]
        if not results:
            raise UserError(
                "this checkpoint is not registered",
                code="unregistered-checkpoint",
                where=text,
                try_this=f"ragmeter train checkpoints add {text}",
            )
    return results or [c for c in known if c.name == text]


def runs_with(store: Store, checkpoint: Checkpoint) -> list[RunRow]:
    """List runs that use a checkpoint's weights in one of their parts, newest first."""
    made = {run.run: run for run in queries.runs(store) if made_with(run, checkpoint.sha256)}
    return sorted(made.values(), key=lambda run: run.started_at, reverse=True)


def made_with(run: RunRow, sha256: str) -> bool:
    """Return whether a run uses a checkpoint, directly or through a part that was trained from it."""
    return sha256 in run.provenance.get("checkpoints", ()) or _uses(run.description, sha256)


def _uses(description: Any, sha256: str) -> bool:
    """Return whether a run's description contains a checkpoint's hash among the weights of its parts."""
    if isinstance(description, Mapping):
        weights = description.get("weights")
        if isinstance(weights, str) and sha256 in weights:
            return True
        return any(_uses(part, sha256) for part in description.values())
    if isinstance(description, list | tuple):
        return any(_uses(part, sha256) for part in description)
    return False


def known_checkpoints(store: Store) -> dict[str, Checkpoint]:
    """Return all registered checkpoints by their hash."""
    registered = records(store)
    return {checkpoint.sha256: replace(checkpoint, read=registered.get(checkpoint.sha256)) for checkpoint in checkpoints(store)}
