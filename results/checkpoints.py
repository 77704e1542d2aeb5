"""Trained checkpoints: what a model folder says of itself, whether it is still that, and which runs were made with it.

A checkpoint folder carries `ragmeter.json`: which method and stage trained it, from which parents, on which data, and
the hash of everything else in the folder. A run records the same hash among the weights of its parts, or, where a part
of a part has it, in its provenance, which is how the two find each other. `results.blessed` gives names to checkpoints
and runs.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.errors import UserError, unknown_name
from benchmarks.fingerprint import CHECKPOINT_CARD as CARD
from benchmarks.fingerprint import folder_sha256
from results import queries
from results.database import now
from results.queries import RunRow
from results.store import Store

PREFIX = 4
"""Fewest hex digits that may stand for a hash."""

_SHA256 = re.compile(r"[0-9a-f]{64}")
_KEYS = ("method", "version", "stage", "config", "parents", "data", "sha256")


@dataclass(frozen=True)
class Checkpoint:
    """A trained model in a folder.

    Attributes:
        method: Id of the method that it belongs to.
        version: That method's code version when it was trained.
        stage: Which step of the method's training made it.
        config: Options of the training.
        parents: Hashes of the checkpoints that training began from or used.
        data: Fingerprints of the training data.
        sha256: `benchmarks.fingerprint.folder_sha256` of the folder.
        path: The folder.
        added_at: When it was registered (UTC); None before.
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

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.path.name

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self) | {"name": self.name, "path": str(self.path), "added_at": self.added_at.isoformat() if self.added_at else None}


# -- the folder ----------------------------------------------------------------------------------------------------


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
    """Write `ragmeter.json` into a finished model folder; the last step of a training.

    Args:
        folder: Holds the model's files, all of them.
        method, stage, version, config, data: As in `Checkpoint`; `config` must be JSON.
        parents: Checkpoints, or their full hashes.

    Raises:
        UserError: There is no such folder, it is empty, or the description is not JSON.
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
        raise UserError(f"the description is not JSON: {error}", where=f"{target} (config)") from None
    found = _parsed(json.loads(text), target)
    # Whoever reads the card meanwhile sees the old one or the new one, never half of it.
    draft = folder.with_name(f".{folder.name}.{os.getpid()}.{CARD}")
    draft.write_text(text, "utf-8")
    draft.replace(target)
    return found


def read(folder: Path | str) -> Checkpoint:
    """What a checkpoint folder says of itself, unchecked; `verify` checks it.

    Raises:
        UserError: There is no readable card.
    """
    path = Path(folder).absolute() / CARD
    try:
        card = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise UserError(
            f"this folder holds no {CARD}, so it is no checkpoint",
            where=str(path.parent),
            try_this="name the folder that training wrote; results.checkpoints.describe writes a card for others",
        ) from None
    except (OSError, ValueError) as error:
        raise UserError(f"this checkpoint card cannot be read: {error}", where=str(path)) from None
    return _parsed(card, path)


def verify(folder: Path | str) -> Checkpoint:
    """Read a checkpoint folder's card and check that the folder holds exactly what was described.

    Raises:
        UserError: The card is missing or broken, or files were changed, added or removed since.
    """
    found = read(folder)
    actual = folder_sha256(found.path)
    if actual != found.sha256:
        written = (found.path / CARD).stat().st_mtime_ns
        later = sorted(
            path.relative_to(found.path).as_posix()
            for path in found.path.rglob("*")
            if path.is_file() and path.name != CARD and path.stat().st_mtime_ns > written
        )
        hint = f"; written after the card: {', '.join(later[:5])}" if later else ""
        raise UserError(
            f"the files are not those that {CARD} describes: sha256 {actual[:12]}…, described {found.sha256[:12]}…" + hint,
            where=str(found.path),
            try_this="copy the folder again from where it was trained, or train it anew",
        )
    return found


def _parsed(card: Any, path: Path) -> Checkpoint:
    """A card's content as a checkpoint, validated."""
    if not isinstance(card, dict):
        raise UserError("this checkpoint card is not a JSON object", where=str(path))
    for key in _KEYS:
        if key not in card:
            raise UserError(f"this checkpoint card lacks {key!r}", where=str(path))
    for key in card:
        if key not in _KEYS:
            raise unknown_name("key of a checkpoint card", key, _KEYS, where=str(path))
    version = card["version"]
    shapes = {
        "method": isinstance(card["method"], str) and bool(card["method"]),
        "version": isinstance(version, int) and not isinstance(version, bool) and 1 <= version < 2**31,
        "stage": isinstance(card["stage"], str) and bool(card["stage"]),
        "config": isinstance(card["config"], dict),
        "parents": _texts(card["parents"]) and all(_SHA256.fullmatch(parent) for parent in card["parents"]),
        "data": _texts(card["data"]),
        "sha256": isinstance(card["sha256"], str) and bool(_SHA256.fullmatch(card["sha256"])),
    }
    for key, good in shapes.items():
        if not good:
            raise UserError(
                f"{key} of this checkpoint is {json.dumps(card[key], ensure_ascii=False)[:80]}",
                where=str(path),
                try_this="method and stage: texts; version: a number from 1; config: an object; data: fingerprints; "
                "parents and sha256: hashes of 64 hex digits",
            )
    return Checkpoint(
        card["method"], version, card["stage"], card["config"], tuple(card["parents"]), tuple(card["data"]), card["sha256"], path.parent
    )


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) and item for item in value)


# -- the registry --------------------------------------------------------------------------------------------------


def register(store: Store, folder: Path | str) -> Checkpoint:
    """Check a checkpoint folder and enter it; entering it again from another place remembers the new place.

    Raises:
        UserError: As `verify`.
    """
    found = replace(verify(folder), added_at=now())
    with store.database.writing() as connection:
        connection.execute("DELETE FROM checkpoints WHERE sha256 = ?", [found.sha256])
        connection.execute(
            "INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                found.sha256,
                found.method,
                found.version,
                found.stage,
                json.dumps(dict(found.config)),
                list(found.parents),
                list(found.data),
                str(found.path),
                found.added_at,
            ],
        )
    return found


def checkpoints(store: Store) -> list[Checkpoint]:
    """Registered checkpoints, newest first; none where there is no store yet."""
    if not store.database.exists:
        return []
    with store.database.reading() as connection:
        rows = connection.execute(
            """SELECT method, version, stage, config, parents, data, sha256, path, added_at FROM checkpoints
               ORDER BY added_at DESC, sha256"""
        ).fetchall()
    return [
        Checkpoint(m, v, stage, json.loads(config), tuple(parents), tuple(data), sha, Path(path), added)
        for m, v, stage, config, parents, data, sha, path, added in rows
    ]


def matching(store: Store, text: str) -> list[Checkpoint]:
    """Registered checkpoints that a text means: by a hash's beginning, else by their folder, else by its name.

    Raises:
        UserError: It is a checkpoint folder that was tampered with, or is not registered.
    """
    known = checkpoints(store)
    found = [c for c in known if len(text) >= PREFIX and c.sha256.startswith(text.lower())]
    if not found and (Path(text) / CARD).is_file():
        # A folder means what it holds now, wherever it was registered from.
        sha256 = verify(text).sha256
        found = [c for c in known if c.sha256 == sha256]
        if not found:
            raise UserError("this checkpoint is not registered", where=text, try_this=f"ragmeter checkpoints add {text}")
    return found or [c for c in known if c.name == text]


def runs_with(store: Store, checkpoint: Checkpoint) -> list[RunRow]:
    """Runs one of whose parts has a checkpoint's weights, newest first, each once."""
    made = {run.run: run for run in queries.runs(store) if made_with(run, checkpoint.sha256)}
    return sorted(made.values(), key=lambda run: run.started_at, reverse=True)


def made_with(run: RunRow, sha256: str) -> bool:
    """Whether a checkpoint is among the weights of a run's parts, or among those that a part is made of itself."""
    return sha256 in run.provenance.get("checkpoints", ()) or uses(run.description, sha256)


def uses(description: Any, sha256: str) -> bool:
    """Whether a run's description names a checkpoint's hash among the weights of its parts."""
    if isinstance(description, Mapping):
        weights = description.get("weights")
        if isinstance(weights, str) and sha256 in weights:
            return True
        return any(uses(part, sha256) for part in description.values())
    if isinstance(description, list | tuple):
        return any(uses(part, sha256) for part in description)
    return False
