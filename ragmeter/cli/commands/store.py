"""`results`: runs out of a store, in, and thrown away; `cache`: what is kept of models' replies."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.text import Text

from benchmarks.core.errors import UserError, counted, unwritable
from methods.models.reply_cache import ResponseCache, export_tape, import_tape
from methods.readers.chat import CALL
from ragmeter.console import emit, listing, out
from results import checkpoints, exchange, queries, store_folder
from results.database import now
from results.store import CACHE, Store

# -- `cache`: what is kept of models' replies --


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
        said = source.predictions(checkpoints.find_run(source, run).run)
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


def prune_replies(
    older_than: float | None, model: str | None, keep_mib: float | None, everything: bool, store: Path | None, as_json: bool
) -> None:
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


# -- `results`: taking runs out of a store, bringing them in, throwing them away --


def export(folder: Path, runs: list[str], store: Path | None, as_json: bool) -> None:
    """Write runs (all of them where none is named) as Parquet."""
    source = Store(store_folder(store))
    chosen = [checkpoints.find_run(source, text).run for text in runs] or None
    rows = exchange.export(source, folder, chosen)
    shown = {table: count for table, count in rows.items() if count}
    emit(
        {"folder": str(folder), "rows": rows},
        as_json,
        lambda: listing(("table", "rows"), shown.items(), empty="the store holds no run yet: ragmeter demo"),
    )


def merge(sources: list[Path], store: Path | None, as_json: bool) -> None:
    """Bring in what other stores, or exports of them, hold."""
    target = Store(store_folder(store))
    found: list[dict[str, Any]] = []
    for source in sources:
        merged = exchange.merge(target, source)
        found.append({"source": str(source), **asdict(merged)})
    emit(
        found,
        as_json,
        lambda: listing(
            ("from", "new runs", "completed runs", "questions"),
            [(one["source"], one["new_runs"], one["completed_runs"], one["questions"]) for one in found],
            empty="nothing to merge",
        ),
    )


def prune(
    runs: list[str],
    experiment: str | None,
    orphans: bool,
    older_than: int | None,
    artefacts: bool,
    yes: bool,
    store: Path | None,
    as_json: bool,
) -> None:
    """Delete runs and what only they needed; without `yes`, only say which."""
    source = Store(store_folder(store))
    every = {row.run: row for row in queries.runs(source)}
    chosen = {checkpoints.find_run(source, text).run for text in runs}
    if experiment is not None:
        queries.experiment(source, experiment)
        others = {row.run for row in queries.runs(source) if row.experiment not in (experiment, "-")}
        # A run that another experiment shows stays.
        chosen |= {row.run for row in queries.runs(source, experiment)} - others
    if orphans:
        chosen |= {row.run for row in exchange.orphans(source, list(every.values()))}
    if older_than is not None:
        if not (runs or experiment or orphans):
            raise UserError(
                "--older-than narrows a choice and makes none", where="--older-than", try_this="add --orphans, --experiment NAME or runs"
            )
        since = now() - timedelta(days=older_than)
        chosen = {run for run in chosen if every[run].updated_at < since}
    if not (chosen or artefacts or runs or experiment or orphans):
        raise UserError("nothing was named", where="prune", try_this="name runs, --experiment NAME, --orphans or --artefacts")
    going = [every[run] for run in every if run in chosen]
    gone = exchange.prune(source, [row.run for row in going], artefacts=artefacts) if yes else None

    def show() -> None:
        listing(
            ("run", "path", "answered"), [(row.run[:8], row.path, f"{row.done}/{row.questions}") for row in going], empty="no run is to go"
        )
        if gone is None and not (going or artefacts):
            return
        if gone is None:
            out.print(Text("nothing was deleted; the same with --yes deletes these"))
        else:
            freed = f", {gone.artefact_bytes / 2**20:.0f} MiB of artefacts" if artefacts else ""
            sets, passages = counted(gone.datasets, "data set"), counted(gone.passages, "passage")
            out.print(Text(f"deleted: {counted(gone.runs, 'run')}, {sets}, {passages}{freed}"))
            if gone.resting:
                kept = f"{counted(gone.resting, 'label')} by people stay in the store"
                out.print(Text(f"{kept}, for when equal answers come in"))

    value = {"runs": [row.run for row in going], "deleted": None if gone is None else asdict(gone)}
    emit(value, as_json, show)


def vacuum(store: Path | None, as_json: bool) -> None:
    """Give the room that deleted rows left back to the disk."""
    source = Store(store_folder(store))
    before, after = exchange.vacuum(source.database)
    emit(
        {"bytes_before": before, "bytes_after": after},
        as_json,
        lambda: out.print(Text(f"{before / 2**20:.1f} MiB before, {after / 2**20:.1f} MiB now")),
    )
