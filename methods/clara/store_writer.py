"""A store of compressed documents is written: chunk by chunk, so that what was cut off goes on where it was."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from filelock import FileLock
from numpy.typing import NDArray

from benchmarks.corpus import Corpus, mapped
from benchmarks.errors import Broke, UserError
from benchmarks.id_index import IdIndex, keys_of
from methods.clara.store import CARD, FORMAT, Identity, Ids, MemoryStore, Scores, read_card
from methods.kept import write_json

CHUNK = 256
"""Documents between two writes; fixed, so that a store continued after a cut equals one made in one go."""


@dataclass(frozen=True, slots=True)
class Compressed:
    """What a compressor makes of a few documents: memory of shape (n, M, h) and the tokens that it read."""

    memory: Any
    tokens: int


@dataclass(frozen=True, slots=True)
class Written:
    """How far a compression is: documents in the store, and what this call did in how many seconds."""

    documents: int
    of: int
    fresh: int
    tokens: int
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        """Document tokens read per second, 0 where nothing was left to do."""
        return self.tokens / self.seconds if self.fresh else 0.0


Compress = Callable[[Sequence[str]], Compressed]
Told = Callable[[Written], None]


def in_memory(corpus: Corpus, identity: Identity, compress: Compress, told: Told | None = None) -> MemoryStore:
    """A store that is kept nowhere."""
    raws, norms = [np.empty((0, identity.width), np.int16)], [np.empty(0)]
    for raw, lengths in _chunks(corpus, identity, compress, 0, told):
        raws.append(raw)
        norms.append(lengths)
    index = IdIndex.of(keys_of(corpus.ids), corpus.ids.__getitem__)
    return MemoryStore(identity, np.concatenate(raws), np.concatenate(norms), corpus.ids, index)


def write(folder: Path, corpus: Corpus, identity: Identity, compress: Compress, told: Told | None = None) -> MemoryStore:
    """Compress a corpus into a folder, or go on with what lies there; a finished store is opened.

    Of several processes that ask at once one compresses, the others wait.

    Args:
        folder: Where it goes.
        corpus: Whose documents.
        identity: What is to be in it.
        compress: From texts to their memory.
        told: Hears how far it is after every chunk.

    Raises:
        UserError: The folder holds another store.
        Broke: A number is too large for the type that it is to be kept in.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(str(folder) + ".lock"):
        if not (folder / CARD).exists():
            _require_same(folder / "begun.json", identity)
            _append(folder, corpus, identity, compress, told)
            _finish(folder, corpus, identity)
    if read_card(folder) != identity:
        raise _other(folder)
    return MemoryStore.open(folder)


def _append(folder: Path, corpus: Corpus, identity: Identity, compress: Compress, told: Told | None) -> None:
    """Append what is missing; how far an earlier call came is told by the lengths of both files."""
    with open(folder / "memory.bin", "ab") as memory, open(folder / "norms.bin", "ab") as norms:
        there = min(memory.tell() // identity.bytes_per_document, norms.tell() // 8)
        start = len(corpus) if there == len(corpus) else there // CHUNK * CHUNK
        memory.truncate(start * identity.bytes_per_document)
        norms.truncate(start * 8)
        for raw, lengths in _chunks(corpus, identity, compress, start, told):
            for file, values in ((memory, raw), (norms, lengths)):
                file.write(values.tobytes())
                file.flush()


def _chunks(
    corpus: Corpus, identity: Identity, compress: Compress, start: int, told: Told | None
) -> Iterator[tuple[NDArray[np.int16], Scores]]:
    """Chunk after chunk: its numbers as they are kept, and the lengths of its rows."""
    import torch

    began, tokens = time.perf_counter(), 0
    for first in range(start, len(corpus), CHUNK):
        made = compress([passage.full_text for passage in corpus[first : first + CHUNK]])
        kept = made.memory.detach().reshape(-1, identity.width).to("cpu", getattr(torch, identity.dtype)).contiguous()
        if not bool(torch.isfinite(kept).all()):
            raise Broke(f"a document's memory does not fit into {identity.dtype}", try_this="dtype: bfloat16")
        tokens += made.tokens
        doubles = kept.double().numpy()
        yield kept.view(torch.int16).numpy(), np.sqrt((doubles * doubles).sum(axis=1))
        if told is not None:
            done = min(first + CHUNK, len(corpus))
            told(Written(done, len(corpus), done - start, tokens, time.perf_counter() - began))


def _finish(folder: Path, corpus: Corpus, identity: Identity) -> None:
    """Ids, and the card last: a folder without it is unfinished."""
    with pa.OSFile(str(folder / "ids.part"), "wb") as sink:
        schema = pa.schema([("id", pa.string())])
        with pa.ipc.new_file(sink, schema) as writer:
            for first in range(0, len(corpus), 1 << 16):
                writer.write_table(pa.table({"id": pa.array(corpus.ids[first : first + (1 << 16)], pa.string())}))
    os.replace(folder / "ids.part", folder / "ids.arrow")
    ids = Ids(mapped(folder / "ids.arrow"))
    IdIndex.of(keys_of(ids), ids.at).save(folder / "ids")
    write_json(folder / CARD, {"format": FORMAT, **asdict(identity)})
    (folder / "begun.json").unlink()


def _require_same(path: Path, identity: Identity) -> None:
    """Leave a note of what is being written, or compare with the one that is there."""
    if not path.exists():
        write_json(path, {"format": FORMAT, **asdict(identity)})
    elif json.loads(path.read_text("utf-8")) != {"format": FORMAT, **asdict(identity)}:
        raise _other(path.parent)


def _other(folder: Path) -> UserError:
    return UserError(
        "this folder holds documents of another corpus or compressor", where=str(folder), try_this="another folder, or delete this one"
    )
