"""`checkpoints`, `checkpoints add`, `checkpoints verify`, `bless`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.text import Text

from benchmarks.errors import UserError
from ragmeter.console import emit, err, listing, out
from results import blessed, store_folder
from results import checkpoints as registry
from results.checkpoints import CARD, Checkpoint
from results.queries import RunRow
from results.store import Store


def checkpoints(folder: Path | None, as_json: bool) -> None:
    """List registered checkpoints, and folders of the store that could be."""
    store = Store(store_folder(folder))
    known = registry.checkpoints(store)
    names: dict[str, list[str]] = {}
    for one in blessed.blessings(store):
        if one.checkpoint:
            names.setdefault(one.checkpoint, []).append(one.name)
    waiting = _unregistered(store, known)

    def show() -> None:
        rows = [
            (
                one.name,
                one.method,
                one.stage,
                one.sha256[:12],
                ", ".join(names.get(one.sha256, ())),
                f"{one.added_at:%Y-%m-%d %H:%M}" if one.added_at else "",
                str(one.path) if one.path.is_dir() else f"{one.path} (gone)",
            )
            for one in known
        ]
        listing(
            ("checkpoint", "method", "stage", "sha256", "blessed", "added (UTC)", "folder"),
            rows,
            empty=f"no trained checkpoint is registered in {store.folder}: ragmeter checkpoints add FOLDER",
        )
        for path in waiting:
            err.print(Text(f"not registered: {path} (ragmeter checkpoints add {path})"))

    emit(
        [one.to_json() | {"blessed": names.get(one.sha256, []), "registered": True} for one in known]
        + [registry.read(path).to_json() | {"blessed": [], "registered": False} for path in waiting],
        as_json,
        show,
    )


def add(path: Path, folder: Path | None, as_json: bool, quiet: bool) -> None:
    """Register a checkpoint folder."""
    store = Store(store_folder(folder))
    found = registry.register(store, path)
    known = {one.sha256 for one in registry.checkpoints(store)}
    strangers = [parent for parent in found.parents if parent not in known]

    def show() -> None:
        out.print(Text(f"{found.name}: {found.method} {found.stage}, sha256 {found.sha256[:12]}, {found.path}"))
        if strangers and not quiet:
            err.print(Text("parents that are not registered here: " + ", ".join(sha[:12] for sha in strangers)))

    emit(found.to_json() | {"unknown_parents": strangers}, as_json, show)


def verify(text: str | None, folder: Path | None, as_json: bool) -> int:
    """Check one checkpoint, or all that are registered; returns 1 where one of several is not what it was."""
    store = Store(store_folder(folder))
    if text is not None:
        path = Path(text) if (Path(text) / CARD).is_file() else blessed.find_checkpoint(store, text).path
        found = registry.verify(path)
        emit([_state(found, None)], as_json, lambda: out.print(Text(f"{found.name}: as described, {found.path}")))
        return 0
    states = []
    for one in registry.checkpoints(store):
        try:
            now = registry.verify(one.path)
            moved = None if now.sha256 == one.sha256 else f"another checkpoint stands there now: {now.sha256[:12]}"
        except UserError as error:
            moved = error.what
        states.append(_state(one, moved))
    rows = [(state["name"], state["sha256"][:12], state["problem"] or "as described", state["path"]) for state in states]
    emit(
        states,
        as_json,
        lambda: listing(("checkpoint", "sha256", "", "folder"), rows, empty="no checkpoint is registered: `ragmeter train` makes one"),
    )
    return 1 if any(state["problem"] for state in states) else 0


def bless(name: str | None, target: str | None, note: str | None, remove: bool, folder: Path | None, as_json: bool, quiet: bool) -> None:
    """List blessed names, give one, or take one away."""
    store = Store(store_folder(folder))
    if name is None:
        _list_names(store, as_json)
        return
    if remove:
        if target is not None or note is not None:
            raise UserError("--remove takes the name alone", try_this=f"ragmeter bless {name} --remove")
        gone = blessed.unbless(store, name)
        emit(
            {"name": name, "removed": gone.run or gone.checkpoint}, as_json, lambda: out.print(Text(f"{name} is no blessed name any more"))
        )
        return
    if target is None:
        raise UserError(f"what is {name!r} to mean?", try_this=f"ragmeter bless {name} RUN-or-CHECKPOINT")
    meant = blessed.resolve(store, target)
    before = blessed.bless(store, name, meant, note)
    old = (before.run or before.checkpoint) if before else None

    def show() -> None:
        out.print(Text(f"{name} is {_called(meant)}"))
        if old and not quiet:
            err.print(Text(f"before it was {old[:12]}"))

    kind = "run" if isinstance(meant, RunRow) else "checkpoint"
    emit({"name": name, kind: _identity(meant), "note": note, "before": old}, as_json, show)


def _list_names(store: Store, as_json: bool) -> None:
    found = blessed.blessings(store)
    emit(
        [
            {"name": one.name, "run": one.run, "checkpoint": one.checkpoint, "note": one.note, "blessed_at": one.blessed_at.isoformat()}
            for one in found
        ],
        as_json,
        lambda: listing(
            ("name", "is", "", "since (UTC)", "note"),
            [
                (
                    one.name,
                    "run" if one.run else "checkpoint",
                    (one.run or one.checkpoint or "")[:12],
                    f"{one.blessed_at:%Y-%m-%d %H:%M}",
                    one.note or "",
                )
                for one in found
            ],
            empty="no name is blessed yet: ragmeter bless NAME RUN-or-CHECKPOINT",
        ),
    )


def _unregistered(store: Store, known: list[Checkpoint]) -> list[Path]:
    """Checkpoint folders below the store's `checkpoints/` that are not registered."""
    root = store.folder / "checkpoints"
    registered = {one.path for one in known}
    return [card.parent for card in sorted(root.rglob(CARD)) if card.parent not in registered]


def _state(one: Checkpoint, problem: str | None) -> dict[str, Any]:
    return {"name": one.name, "sha256": one.sha256, "path": str(one.path), "problem": problem}


def _identity(meant: RunRow | Checkpoint) -> str:
    return meant.run if isinstance(meant, RunRow) else meant.sha256


def _called(meant: RunRow | Checkpoint) -> str:
    if isinstance(meant, RunRow):
        return f"run {meant.run[:12]} ({meant.path})"
    return f"checkpoint {meant.sha256[:12]} ({meant.path})"
