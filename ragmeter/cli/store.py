"""`ragmeter store`: what a store holds, out of it, into it, and thrown away."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.text import Text

from benchmarks.core.errors import UserError, counted, unwritable
from ragmeter.cli import completion
from ragmeter.cli.options import App, Common, argument, option
from ragmeter.show.console import complain, err, listing, out

if TYPE_CHECKING:
    from methods.models.reply_cache import ResponseCache
    from results.store.queries import RunRow
    from results.store.store import Store

# The store and numpy with it are imported by the commands: `--help` takes none of them.

app = App(default="show", help="Disk space; export, import or delete (prune) runs, cached replies.")
replies_app = App(default="show", help="Model replies that the store keeps, so that equal calls are made once.")
app.add_typer(replies_app, name="replies")

RunsToTake = Annotated[list[str] | None, argument("Runs (default: all).", completion.runs)]
MIB = 2**20


def _bytes_of(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


@app.command()
def show(common: Common) -> None:
    """Show the contents and size of the store."""
    from results.store import queries
    from results.store.database import FILE
    from results.store.store import CACHE

    store = common.store
    runs = queries.runs(store) if store.database.exists else []
    parts = {"database": FILE, "replies": CACHE, "artifacts": "artifacts", "checkpoints": "checkpoints"}
    sizes = {name: _bytes_of(store.folder / path) for name, path in parts.items()}
    experiments = queries.experiments(store) if store.database.exists else []
    value = {"folder": str(store.folder), "runs": len(runs), "experiments": len(experiments), "bytes": sizes}

    def print_all() -> None:
        out.print(Text(f"{store.folder}: {counted(len(runs), 'run')} in {counted(len(experiments), 'experiment')}"), soft_wrap=True)
        listing(("", "MiB"), [(name, f"{size / MIB:,.1f}") for name, size in sizes.items()], empty="")

    common.emit(value, print_all)


@app.command()
def export(
    output: Annotated[Path, option("New folder for the Parquet files.", "--output", "-o")], common: Common, runs: RunsToTake = None
) -> None:
    """Export runs, with their data and cards, as Parquet."""
    from results.formats import exchange
    from results.store import tags

    chosen = [tags.find_run(common.store, text).run for text in runs or ()] or None
    rows = exchange.export(common.store, output, chosen)
    shown = {table: count for table, count in rows.items() if count}
    value = {"folder": str(output), "rows": rows}
    common.emit(value, lambda: listing(("table", "rows"), shown.items(), empty="the store holds no run yet: ragmeter demo"))


@app.command("import")
def import_runs(
    sources: Annotated[list[Path], argument("Store folders, or folders that `ragmeter store export` wrote.")], common: Common
) -> None:
    """Import runs of other stores and rescore them; existing runs stay unchanged. A source that is refused does not stop the others."""
    from results.formats import exchange

    merged: dict[str, exchange.Merged] = {}
    refused: list[UserError] = []
    for source in sources:
        try:
            merged[str(source)] = exchange.merge(common.store, source)
        except UserError as error:
            refused.append(error)
    lines = [(source, item.new_runs, item.completed_runs, item.questions, item.scores.rescored) for source, item in merged.items()]
    value = [{"source": source} | item.to_json() for source, item in merged.items()]

    def show() -> None:
        listing(("from", "new runs", "completed runs", "questions", "scores rescored"), lines, empty="nothing to import")
        for item in merged.values():
            for line in item.in_words():
                err.print(Text(line, style="yellow"))

    common.emit(value, show)
    for other in refused[1:]:
        complain(other, as_json=False)
    if refused:
        raise refused[0]


@app.command()
def prune(
    common: Common,
    runs: Annotated[list[str] | None, argument("Runs to delete.", completion.runs)] = None,
    experiment: Annotated[
        str | None, option("Experiment to delete, with the runs that only it shows.", completes=completion.stored_experiments)
    ] = None,
    orphans: Annotated[bool, option("Delete runs that no experiment shows.", "--orphans")] = False,
    older_than: Annotated[int | None, option("Restrict this to runs not written for DAYS.", min=0)] = None,
    artifacts: Annotated[bool, option("Delete indexes and embeddings too.", "--artifacts")] = False,
    yes: Annotated[bool, option("Delete; without this option, list what would be deleted.", "--yes")] = False,
) -> None:
    """Delete runs with the data that only they use, and free the disk space; without a selection, list candidates."""
    from results.formats import pruning

    store = common.store
    chosen = _chosen(store, runs or [], experiment, orphans or not (runs or experiment or artifacts), older_than)
    referring = pruning.references(store, [row.run for row in chosen]) if chosen else {}
    gone = pruning.prune(store, [row.run for row in chosen], artifacts=artifacts) if yes else None
    before, after = pruning.vacuum(store.database) if yes else (0, 0)

    def show() -> None:
        rows = [(row.short, row.path, f"{row.done}/{row.questions}", ", ".join(referring[row.run])) for row in chosen]
        listing(("run", "path", "answered", "referred to by"), rows, empty="no run to delete")
        if gone is None:
            size = _bytes_of(store.folder / "artifacts") / MIB
            out.print(Text(f"nothing was deleted; --yes deletes these. --artifacts: indexes and embeddings, {size:,.0f} MiB"))
            return
        sets, passages = counted(gone.datasets, "data set"), counted(gone.passages, "passage")
        freed = max(0, before - after) + (gone.artifact_bytes if artifacts else 0)
        out.print(Text(f"deleted: {counted(gone.runs, 'run')}, {sets}, {passages}; {freed / MIB:,.1f} MiB less on the disk"))
        if gone.resting:
            out.print(Text(f"{counted(gone.resting, 'label')} by people stay, in case equal answers are imported"))

    value = {
        "runs": [row.run for row in chosen],
        "references": referring,
        "deleted": None if gone is None else asdict(gone),
        "bytes_freed": before - after,
    }
    common.emit(value, show)


def _chosen(store: Store, runs: list[str], experiment: str | None, orphans: bool, older_than: int | None) -> list[RunRow]:
    from results.formats import pruning
    from results.store import queries, tags
    from results.store.schema import now

    every = {row.run: row for row in queries.runs(store, hidden=True)}
    chosen = {tags.find_run(store, text).run for text in runs}
    if experiment is not None:
        queries.experiment(store, experiment)
        others = {row.run for row in queries.runs(store) if row.experiment not in (experiment, "-")}
        # A run that another experiment shows stays, and so do submissions.
        chosen |= {row.run for row in queries.runs(store, experiment) if row.origin == queries.OURS} - others
    if orphans:
        chosen |= {row.run for row in pruning.orphans(store, list(every.values()))}
    if older_than is not None:
        since = now() - timedelta(days=older_than)
        chosen = {run for run in chosen if every[run].updated_at < since}
    return [row for run, row in every.items() if run in chosen]


@replies_app.command("show")
def show_replies(common: Common) -> None:
    """Show the number and size of cached replies."""
    from methods.models.reply_cache import ResponseCache
    from results.store.store import CACHE

    path = common.store.folder / CACHE
    count, size = (len(ResponseCache(path)), path.stat().st_size) if path.exists() else (0, 0)
    value = {"path": str(path), "replies": count, "bytes": size}
    common.emit(value, lambda: out.print(Text(f"{counted(count, 'reply', 'replies')}, {size / MIB:.1f} MiB in {path}")))


@replies_app.command("export")
def export_replies(
    output: Annotated[Path, option("File to write (JSON Lines).", "--output", "-o")],
    common: Common,
    run: Annotated[str | None, option("Write only the replies of this run (default: all).", completes=completion.runs)] = None,
) -> None:
    """Export replies to a file, so that a run can be repeated elsewhere without calls."""
    from methods.models.reply_cache import export_replies
    from methods.readers.chat import CALL
    from results.store import tags

    keys = None
    if run is not None:
        answers = common.store.predictions(tags.find_run(common.store, run).run)
        keys = [str(answer.notes[CALL]) for answer in answers if answer.notes.get(CALL)]
        if not keys:
            raise UserError(
                "this run asked no endpoint, or kept no reply", code="run-without-replies", where=run, try_this="leave --run out"
            )
    try:
        count = export_replies(_replies(common.store), output, keys)
    except OSError as error:
        raise unwritable(error, output, what="the replies") from None
    common.emit({"file": str(output), "replies": count}, lambda: out.print(Text(f"{counted(count, 'reply', 'replies')} in {output}")))


@replies_app.command("import")
def import_replies(file: Annotated[Path, argument("File of `ragmeter store replies export`.")], common: Common) -> None:
    """Import replies from a file; existing replies stay unchanged."""
    from methods.models.reply_cache import ResponseCache, import_replies
    from results.store.store import CACHE

    if not file.is_file():
        raise UserError(
            "file does not exist", code="missing-file", where=str(file), try_this="ragmeter store replies export -o FILE writes one"
        )
    common.store.folder.mkdir(parents=True, exist_ok=True)
    added = import_replies(ResponseCache(common.store.folder / CACHE), file)
    common.emit({"file": str(file), "new": added}, lambda: out.print(Text(f"{added:,} new replies")))


@replies_app.command("prune")
def prune_replies(
    common: Common,
    older_than: Annotated[float | None, option("Delete replies older than DAYS.", min=0)] = None,
    model: Annotated[str | None, option("Delete only this model's replies.")] = None,
    keep_mib: Annotated[float | None, option("Delete the oldest replies until this many MiB are left.", min=0)] = None,
    everything: Annotated[bool, option("Delete all replies.", "--all")] = False,
) -> None:
    """Delete cached replies; runs that need them call the model again."""
    if not everything and older_than is None and keep_mib is None and model is None:
        raise UserError(
            "no selection of replies is given",
            code="nothing-named",
            where="store replies prune",
            try_this="--older-than, --model, --keep-mib or --all",
        )
    deleted = _replies(common.store).prune(
        older_than_s=None if older_than is None else older_than * 86400,
        model=model,
        keep_bytes=None if keep_mib is None else round(keep_mib * MIB),
    )
    common.emit({"deleted": deleted}, lambda: out.print(Text(f"{counted(deleted, 'reply', 'replies')} deleted")))


def _replies(store: Store) -> ResponseCache:
    from methods.models.reply_cache import ResponseCache
    from results.store.store import CACHE

    if not (store.folder / CACHE).exists():
        raise UserError("this store keeps no replies", code="store-without-replies", where=str(store.folder), try_this="--store FOLDER")
    return ResponseCache(store.folder / CACHE)
