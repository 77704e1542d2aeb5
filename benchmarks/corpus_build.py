"""Build a corpus folder from a dump: streaming, in bounded memory, resuming after an interruption.

    FOLDER/passages-00000.arrow …   the passages, `SHARD_RECORDS` of the dump's records in each, repetitions left out
    FOLDER/ids.{keys,places}.npy    from passage id to row (`corpus.py`)
    FOLDER/natives.arrow            from the dump's own ids to rows; natives.{keys,places}.npy find an id in it
    FOLDER/corpus.json              counts, fingerprint and source; written last
    FOLDER/unfinished/              what a build needs to continue; gone when it is done

A shard is complete once its state is written, so a killed build repeats its last shard and produces the same bytes. Memory
holds one batch of passages, and 8 bytes per passage seen (30 in the last step).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from filelock import FileLock

from benchmarks.core.errors import UserError, unwritable
from benchmarks.core.files import cache_home, whole_text
from benchmarks.core.fingerprint import content_hash, fingerprint
from benchmarks.corpus import (
    BATCH_ROWS,
    CARD,
    FORMAT,
    SCHEMA,
    Corpus,
    IdIndex,
    Keys,
    KeySet,
    keys_of,
    mapped,
    natives_path,
    read_card,
    shard_path,
    table_of_columns,
)
from benchmarks.dumps import BEIR, VERSION, Entry, Read, dump_files, layout_of, read
from benchmarks.io.files import archive_of, size_of
from benchmarks.records import BadRecord
from benchmarks.schema import passage_id

SHARD_RECORDS = 16 * BATCH_ROWS
"""Records of the dump per shard: the most that a killed build repeats."""
SUFFIX = ".corpus"
"""Suffix of the folder built next to a dump."""

_UNFINISHED = "unfinished"
_PLAN = "plan.json"
_LISTED = 100
_RESOLVED = pa.schema([("native_id", pa.string()), ("row", pa.uint32())])
_WAITING = pa.schema([("native_id", pa.string()), ("key", pa.uint64())])


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a corpus build.

    Attributes:
        records: Number of records read.
        passages: Number of distinct passages among them.
        share: Fraction of the dump's bytes read; None if unknown (compressed files, Parquet).
    """

    records: int
    passages: int
    share: float | None


@dataclass
class _State:
    """Cumulative state of a build at the end of a shard."""

    file: int = 0
    position: int = 0
    read: int = 0
    records: int = 0
    passages: int = 0
    bad: int = 0
    natives: bool = False
    listed: list[str] = field(default_factory=list)


def build_corpus(
    source: Path | Sequence[Path],
    target: Path,
    *,
    layout: str | None = None,
    skip_bad: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Corpus:
    """Build a corpus folder from a dump and open it; a finished folder is opened without building.

    Passages with equal title and text are merged and found by all of their native ids, except in the layout `beir`. Ids are
    64-bit content hashes: among 21 million passages, the probability of a collision is 1 in 80,000.

    Args:
        source: The dump: a file, or a folder of files (taken by name); or its files, which may be members of archives.
        target: The folder to build; it may hold an unfinished build of the same dump, which is continued.
        layout: One of `dumps.LAYOUTS`; None: by the first file's content.
        skip_bad: Leave out records that cannot be read; the card counts them and names the first hundred.
        progress: Called after every batch of records.

    Raises:
        UserError: The dump cannot be read, the target holds something else, or it cannot be written.
        Broke: The disk is full.
    """
    files = dump_files(source) if isinstance(source, Path) else list(source)
    layout = layout or layout_of(files[0])
    plan = {
        "format": FORMAT,
        "layout": layout,
        "skip_bad": skip_bad,
        "source": [{"name": file.name, "bytes": size_of(file)} for file in files],
    }
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{target}.lock"):
            if (target / CARD).exists():
                _check_same(target, plan)
                shutil.rmtree(target / _UNFINISHED, ignore_errors=True)
            else:
                _Build(files, layout, skip_bad, target, progress).run(plan)
    except OSError as error:
        raise unwritable(
            error,
            target,
            what="the corpus",
            try_this="make room, or build it into another folder (ragmeter data build-corpus); a build that was cut off "
            "goes on where it stopped",
        ) from error
    return Corpus.open(target)


def open_corpus(path: Path, *, progress: Callable[[Progress], None] | None = None) -> Corpus:
    """Open a corpus folder, an Arrow file of `Corpus.save`, or a dump; a dump is first built into a folder next to it.

    Raises:
        UserError: It is none of these, or the folder next to the dump cannot be written.
        Broke: The disk is full.
    """
    if not path.exists():
        raise UserError("corpus does not exist", code="no-corpus", where=str(path), try_this="correct the option corpus")
    if (path / CARD).exists() or _is_arrow(path):
        return Corpus.open(path)
    if (path / _UNFINISHED).exists():
        raise UserError(
            "the corpus in this folder is not finished",
            code="unfinished-corpus",
            where=str(path),
            try_this="run `ragmeter data build-corpus` again: it resumes",
        )
    return build_corpus(path, path.with_name(path.name + SUFFIX), progress=progress)


def kept_corpus(files: Sequence[Path], layout: str, *, skip_bad: bool = False) -> Corpus:
    """Open the corpus of a dump's files from the cache (`corpora` in RAGMETER_CACHE); build it there the first time.

    Args:
        files: The files, or members of archives. If a file changes, the corpus is built again.
        layout, skip_bad: As in `build_corpus`.

    Raises:
        UserError: A file cannot be read, or the cache cannot be written.
        Broke: The disk is full.
    """
    key = fingerprint(FORMAT, VERSION, layout, skip_bad, [(str(file.absolute()), size_of(file), modified(file)) for file in files])
    return build_corpus(files, cache_home() / "corpora" / key, layout=layout, skip_bad=skip_bad)


def open_documents(path: Path) -> Corpus:
    """Open documents whose own ids matter: a corpus folder with the layout `beir`, or a dump, which is built into the cache.

    Raises:
        UserError: The path does not exist, or is a corpus folder in which documents with equal text were merged.
    """
    if not (path / CARD).exists():
        return kept_corpus(dump_files(path), BEIR)
    if read_card(path)["layout"] != BEIR:
        what = "this corpus was not built with --layout beir, so documents of equal text are one document in it"
        raise UserError(
            what, code="unreadable-documents", where=f"corpus: {path}", try_this="ragmeter data build-corpus DUMP -o FOLDER --layout beir"
        )
    return Corpus.open(path)


def modified(file: Path) -> int:
    """Return the modification time of a file, or of the archive that contains it, in nanoseconds."""
    position = archive_of(file)
    return (file if position is None else position[0]).stat().st_mtime_ns


def _is_arrow(path: Path) -> bool:
    if path.is_dir():
        return False
    with open(path, "rb") as file:
        return file.read(6) == b"ARROW1"


def _check_same(target: Path, plan: dict[str, Any]) -> None:
    card = read_card(target)
    if {name: card.get(name) for name in plan} != plan:
        raise UserError(
            "this folder contains a corpus of another dump, or with other options",
            code="folder-of-other-corpus",
            where=str(target),
            try_this="name another folder, or delete this one",
        )


class _Build:
    """A running build, starting at the first missing shard."""

    def __init__(
        self, files: Sequence[Path], layout: str, skip_bad: bool, target: Path, progress: Callable[[Progress], None] | None
    ) -> None:
        self._files = files
        self._layout = layout
        self._skip_bad = skip_bad
        self._target = target
        self._work = target / _UNFINISHED
        self._progress = progress
        self._seen = KeySet()
        self._state = _State()
        self._shards = 0
        compressed = layout == "parquet" or any(file.suffix == ".gz" for file in files)
        self._bytes = None if compressed else sum(map(size_of, files))

    def run(self, plan: dict[str, Any]) -> None:
        self._prepare(plan)
        hashed = content_hash(self._ids())
        if not self._state.records:
            first = f": {self._state.listed[0]}" if self._state.listed else ""
            raise UserError(f"the dump has no readable passage{first}", code="empty-dump", where=str(self._files[0]))
        index = IdIndex.of(self._all_keys(), lambda row: "")
        index.save(self._target / "ids")
        if self._state.natives:
            self._save_natives(index)
        card = {
            **plan,
            "passages": self._state.passages,
            "records": self._state.records,
            "repeated": self._state.records - self._state.passages,
            "bad": self._state.bad,
            "bad_listed": self._state.listed,
            "fingerprint": hashed,
            "shards": self._shards,
        }
        _write_json(self._target / CARD, card)
        shutil.rmtree(self._work)

    def _prepare(self, plan: dict[str, Any]) -> None:
        """Create the folder, or continue an unfinished build of the same dump."""
        plan_path = self._work / _PLAN
        if plan_path.exists() and _read_json(plan_path) == {**plan, "modified": self._modified()}:
            while (state := self._work / f"state-{self._shards:05}.json").exists():
                self._state = _State(**_read_json(state))
                self._shards += 1
            return
        if self._work.exists():
            # Of another dump, or of other options: nothing of it can be used.
            shutil.rmtree(self._work)
            for shard in self._target.glob(shard_path(self._target, 0).name.replace("00000", "*")):
                shard.unlink()
        elif self._target.exists() and any(self._target.iterdir()):
            raise UserError(
                "this folder contains other files",
                code="folder-in-use",
                where=str(self._target),
                try_this="name a folder that is empty or does not exist",
            )
        self._work.mkdir(parents=True)
        _write_json(plan_path, {**plan, "modified": self._modified()})

    def _modified(self) -> list[int]:
        return list(map(modified, self._files))

    def _ids(self) -> Iterator[str]:
        """Yield all passage ids in order, writing missing shards on the way."""
        for number in range(self._shards):
            for batch in _columns(shard_path(self._target, number), "id"):
                self._seen.add(keys_of(batch))
                yield from batch
        batches = self._batches()
        while first := next(batches, None):
            for ids in self._shard(first, batches):
                yield from ids

    def _shard(self, first: list[Read], batches: Iterator[list[Read]]) -> Iterator[list[str]]:
        """Write a shard, and yield the ids of its passages."""
        paths = shard_path(self._target, self._shards), self._work / f"natives-{self._shards:05}.arrow"
        with _Writer(paths[0], SCHEMA) as passages, _Writer(paths[1], _WAITING) as natives:
            for batch in (first, *islice(batches, SHARD_RECORDS // BATCH_ROWS - 1)):
                entries = [item.entry for item in batch if isinstance(item.entry, Entry)]
                ids = self._identified(entries)
                keys = keys_of(ids)
                new = np.flatnonzero(self._seen.add(keys)).tolist()
                if len(new) < len(ids):
                    ids = [ids[position] for position in new]
                kept = entries if len(new) == len(entries) else [entries[position] for position in new]
                passages.write(table_of_columns(ids, [e.title for e in kept], [e.text for e in kept], [e.document for e in kept]))
                natives.write(_waiting(entries, keys))
                self._advance(batch, entries, len(new))
                yield ids
        _write_json(self._work / f"state-{self._shards:05}.json", asdict(self._state))
        self._shards += 1

    def _identified(self, entries: list[Entry]) -> list[str]:
        """Return the ids of passages; in the layout `beir`, these include the passages' own ids."""
        if self._layout == BEIR:
            return [passage_id(title, text, native) for native, title, text, _ in entries]
        return [passage_id(title, text) for _, title, text, _ in entries]

    def _batches(self) -> Iterator[list[Read]]:
        """Yield the remaining entries in batches; a batch never spans two files."""
        for number in range(self._state.file, len(self._files)):
            skip = self._state.position if number == self._state.file else 0
            self._state.file, self._state.position = number, skip
            reading = read(self._files[number], self._layout, skip)
            while batch := list(islice(reading, BATCH_ROWS)):
                yield batch

    def _advance(self, batch: list[Read], entries: list[Entry], new: int) -> None:
        state = self._state
        for item in batch:
            if isinstance(item.entry, BadRecord):
                if not self._skip_bad:
                    raise item.entry
                state.bad += 1
                if len(state.listed) < _LISTED:
                    position = (item.entry.where or "").removeprefix(f"{self._files[state.file].parent}{os.sep}")
                    state.listed.append(f"{position}: {item.entry.what}")
        state.position = batch[-1].position
        state.read += sum(item.size for item in batch)
        state.records += len(entries)
        state.passages += new
        state.natives = state.natives or any(entry.native_id is not None for entry in entries)
        if self._progress is not None:
            self._progress(Progress(state.records, state.passages, state.read / self._bytes if self._bytes else None))

    def _all_keys(self) -> Keys:
        keys = np.empty(self._state.passages, dtype=np.uint64)
        row = 0
        for number in range(self._shards):
            for batch in _columns(shard_path(self._target, number), "id"):
                keys[row : row + len(batch)] = keys_of(batch)
                row += len(batch)
        return keys

    def _save_natives(self, index: IdIndex) -> None:
        """Write the native ids with their rows, and an index over them."""
        path = natives_path(self._target)
        keys = []
        with _Writer(path, _RESOLVED) as writer:
            for number in range(self._shards):
                for batch in mapped(self._work / f"natives-{number:05}.arrow").to_batches():
                    rows = index.places_of(batch.column("key").to_numpy())
                    writer.write(pa.table([batch.column("native_id"), pa.array(rows, pa.uint32())], schema=_RESOLVED))
                    keys.append(keys_of(batch.column("native_id").to_pylist()))
        table = mapped(path)
        names, rows = table.column("native_id"), table.column("row")
        natives = IdIndex.of(np.concatenate(keys), lambda position: "")
        for item, other in natives.repeated():
            if names[item] == names[other] and rows[item] != rows[other]:
                path.unlink()
                raise UserError(
                    f"the id {names[item].as_py()!r} belongs to two different passages",
                    code="ambiguous-passage-id",
                    where=f"{self._files[0]}, passages {item + 1:,} and {other + 1:,} with an id",
                    try_this="give one of them another id: gold passages are found by these ids",
                )
        natives.save(self._target / "natives")


def _waiting(entries: Sequence[Entry], keys: Keys) -> pa.Table:
    """Return native ids with the keys of their passages, whose rows are not known yet."""
    with_id = [position for position, entry in enumerate(entries) if entry.native_id is not None]
    return pa.table([pa.array([entries[position].native_id for position in with_id], pa.string()), keys[with_id]], schema=_WAITING)


def _columns(path: Path, name: str) -> Iterator[list[str]]:
    """Yield a column of a shard in batches."""
    for batch in mapped(path).select([name]).to_batches():
        yield batch.column(0).to_pylist()


class _Writer:
    """Atomic writer of tables into an Arrow file."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path = path
        self._partial = path.with_name(f"{path.name}.part")
        self._sink = pa.OSFile(str(self._partial), "wb")
        self._writer = pa.ipc.new_file(self._sink, schema)

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table, max_chunksize=BATCH_ROWS)

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._writer.close()
        self._sink.close()
        if kind is None:
            os.replace(self._partial, self._path)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    whole_text(path, json.dumps(value, ensure_ascii=False, indent=1) + "\n")


def _read_json(path: Path) -> dict[str, Any]:
    value = json.loads(path.read_text("utf-8"))
    return dict(value)
