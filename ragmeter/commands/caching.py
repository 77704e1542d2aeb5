"""`cache`: what is kept of models' replies."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from benchmarks.errors import UserError, unwritable
from benchmarks.plurals import counted
from methods.models.response_cache import ResponseCache
from methods.models.tape import export_tape, import_tape
from methods.readers.chat import CALL
from ragmeter.console import emit, out
from results import blessed, store_folder
from results.store import CACHE, Store


def show(store: Path | None, as_json: bool) -> None:
    """Count what is kept."""
    path = store_folder(store) / CACHE
    count, size = 0, 0
    if path.exists():
        count, size = len(ResponseCache(path)), path.stat().st_size
    emit(
        {"path": str(path), "replies": count, "bytes": size},
        as_json,
        lambda: out.print(Text(f"{counted(count, 'reply', 'replies')}, {size / 2**20:.1f} MiB in {path}")),
    )


def tape(file: Path, run: str | None, store: Path | None, as_json: bool) -> None:
    """Write replies as a tape."""
    source = Store(store_folder(store))
    keys = None
    if run is not None:
        said = source.predictions(blessed.find_run(source, run).run)
        keys = [str(one.notes[CALL]) for one in said if one.notes.get(CALL)]
        if not keys:
            raise UserError("this run asked no endpoint, or kept no reply", where=run, try_this="leave --run out")
    try:
        count = export_tape(_existing(source.folder), file, keys)
    except OSError as error:
        raise unwritable(error, file, what="the tape") from None
    told = Text(f"{counted(count, 'reply', 'replies')} in {file}")
    emit({"file": str(file), "replies": count}, as_json, lambda: out.print(told))


def load(file: Path, store: Path | None, as_json: bool) -> None:
    """Take a tape in."""
    folder = store_folder(store)
    if not file.is_file():
        raise UserError("there is no such tape", where=str(file), try_this="ragmeter cache tape FILE writes one")
    folder.mkdir(parents=True, exist_ok=True)
    added = import_tape(ResponseCache(folder / CACHE), file)
    emit({"file": str(file), "new": added}, as_json, lambda: out.print(Text(f"{added:,} new replies")))


def prune(older_than: float | None, model: str | None, keep_mib: float | None, everything: bool, store: Path | None, as_json: bool) -> None:
    """Delete replies."""
    if not everything and older_than is None and keep_mib is None and model is None:
        raise UserError("nothing was named", where="cache prune", try_this="--older-than, --model, --keep-mib or --everything")
    cache = _existing(store_folder(store))
    deleted = cache.prune(
        older_than_s=None if older_than is None else older_than * 86400,
        model=model,
        keep_bytes=None if keep_mib is None else round(keep_mib * 2**20),
    )
    emit({"deleted": deleted}, as_json, lambda: out.print(Text(f"{counted(deleted, 'reply', 'replies')} deleted")))


def _existing(folder: Path) -> ResponseCache:
    if not (folder / CACHE).exists():
        raise UserError("this store keeps no replies", where=str(folder), try_this="--store FOLDER")
    return ResponseCache(folder / CACHE)
