"""Store compressed documents on disk: written once, memory-mapped, and searched exactly.

A store is a folder. `memory.bin` has one row of M·h half-precision numbers per document, in corpus order; `norms.bin` has the
norms, `ids.arrow` the ids, `store.json` the store's identity.

Search compares the query with every row, block by block in float64. Documents that may be among the best within rounding error
are then rescored one by one, so that a score depends only on its query and document.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from filelock import FileLock
from numpy.typing import NDArray

from benchmarks.core.errors import Broke, UserError
from benchmarks.core.fingerprint import fingerprint
from benchmarks.corpus import Corpus, IdIndex, keys_of, mapped
from methods.training.stages import write_json

if TYPE_CHECKING:
    from torch import Tensor

HalfType = Literal["float16", "bfloat16"]
Rows = NDArray[np.int64]
Scores = NDArray[np.float64]
Numbers = NDArray[np.floating]

CARD = "store.json"
FORMAT = 1
"""Layout version of a store's folder."""
BLOCK = 1 << 24
"""Numbers multiplied at a time: 128 MiB in float64."""
EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of a store; equal identities imply equal contents.

    Attributes:
        compressor: Hash of everything that determines a document's memory: base, adapter, memory tokens, lengths.
        corpus: Fingerprint of the corpus.
        documents: Number of documents.
        memory_tokens: M.
        hidden_size: h.
        dtype: Data type of the numbers.
    """

    compressor: str
    corpus: str
    documents: int
    memory_tokens: int
    hidden_size: int
    dtype: HalfType = "bfloat16"

    @property
    def width(self) -> int:
        """Return the numbers per document, M·h."""
        return self.memory_tokens * self.hidden_size

    @property
    def bytes_per_document(self) -> int:
        """Return the bytes per document, 2·M·h: 128 KiB for 16 memory tokens of width 4096."""
        return 2 * self.width

    @property
    def fingerprint(self) -> str:
        """Return a hash, which names the store's folder."""
        return fingerprint("clara store", FORMAT, asdict(self))


class MemoryStore:
    """Compressed documents of a corpus, for scoring and search.

    Args:
        identity: Identity of the store.
        raw: Raw 16-bit values, shape (documents, M·h), in memory or memory-mapped.
        norms: Norm of each row, shape (documents,).
        ids: Document ids, in order.
        index: Function from an id to its row.
    """

    def __init__(self, identity: Identity, raw: NDArray[np.int16], norms: Scores, ids: Sequence[str], index: IdIndex) -> None:
        self.identity = identity
        self.ids = ids
        self._raw = raw
        self._norms = norms
        self._index = index

    @classmethod
    def open(cls, folder: Path) -> MemoryStore:
        """Memory-map a finished store.

        Raises:
            UserError: The folder has no store, or a damaged one.
        """
        identity = read_card(folder)
        shape = (identity.documents, identity.width)
        memory = folder / "memory.bin"
        if not memory.is_file() or memory.stat().st_size != math.prod(shape) * 2:
            raise UserError(
                "the memory of this store does not match its card",
                code="memory-store-mismatch",
                where=str(memory),
                try_this="delete the folder and compress again",
            )
        # Mode "c": torch wraps only writable arrays. An array without rows cannot be mapped.
        raw = np.memmap(memory, np.int16, "c", shape=shape) if identity.documents else np.empty(shape, np.int16)
        ids = Ids(mapped(folder / "ids.arrow"))
        return cls(identity, np.asarray(raw), np.fromfile(folder / "norms.bin"), ids, IdIndex.open(folder / "ids", ids.at))

    def __len__(self) -> int:
        return self.identity.documents

    def __contains__(self, identifier: object) -> bool:
        return isinstance(identifier, str) and self._index.find(identifier) is not None

    @property
    def bytes(self) -> int:
        """Return the size of the memory in bytes."""
        return len(self) * self.identity.bytes_per_document

    def find_rows(self, identifiers: Sequence[str]) -> Rows:
        """Return the row numbers of documents.

        Raises:
            KeyError: A document is not in the store.
        """
        results = [self._index.find(identifier) for identifier in identifiers]
        for identifier, row in zip(identifiers, results, strict=True):
            if row is None:
                raise KeyError(identifier)
        return np.array(results, dtype=np.int64)

    def memory(self, rows: Rows | Sequence[int]) -> Tensor:
        """Return the memory of documents by row: float32 tensor (rows, M, h) on the CPU."""
        chosen = np.asarray(rows, dtype=np.int64)
        return self._numbers(self._raw[chosen]).float().view(-1, self.identity.memory_tokens, self.identity.hidden_size)

    def scores(self, query: Tensor | Numbers, rows: Rows) -> Scores:
        """Compute the cosine similarity of a query with some documents, in float64 (eq 3.1).

        Args:
            query: Memory of a question, M·h numbers in any shape.
            rows: Row numbers of the documents.

        Returns:
            Shape (rows,), within [-1, 1].
        """
        wanted = _flat(query, self.identity.width)
        length = float(np.sqrt((wanted * wanted).sum()))
        result = np.empty(len(rows))
        for start in range(0, len(rows), self._block):
            some = rows[start : start + self._block]
            products = (self._doubles(self._raw[some]) * wanted).sum(axis=1)
            result[start : start + self._block] = products / _separate_rows(self._norms[some] * length)
        return np.clip(result, -1.0, 1.0)

    def nearest(self, queries: Sequence[Tensor] | Tensor | Numbers, k: int, device: str = "cpu") -> list[tuple[Rows, Scores]]:
        """Return the k documents with the highest cosine similarity per query, best first; ties in store order.

        Args:
            queries: Memory of questions, shape (B, M, h) or (B, M·h).
            k: Maximum number of documents.
            device: Device for the matrix products.
        """
        import torch

        options = np.stack([_flat(query, self.identity.width) for query in queries]) if len(queries) else np.empty((0, 1))
        k = min(k, len(self))
        if not len(options) or k <= 0:
            return [(np.empty(0, np.int64), np.empty(0)) for _ in options]
        unit = torch.from_numpy(options / _separate_rows(np.sqrt((options * options).sum(axis=1, keepdims=True)))).to(device)
        # Twice the bound on the rounding of a sum of M·h products: what may change places stays in.
        slack = 4 * (self.identity.width + 2) * EPSILON
        top = torch.full((len(options), k), -torch.inf, dtype=torch.float64, device=device)
        close: list[tuple[NDArray, NDArray, NDArray]] = []
        for start in range(0, len(self), self._block):
            block = self._numbers(self._raw[start : start + self._block]).to(device).double()
            norms = torch.from_numpy(_separate_rows(self._norms[start : start + self._block])).to(device)
            products = (unit @ block.T) / norms
            best = products.topk(min(k, products.shape[1]), dim=1).values
            top = torch.cat([top, best], dim=1).topk(k, dim=1).values
            which, row = (products >= top[:, -1:] - slack).nonzero(as_tuple=True)
            close.append((which.cpu().numpy(), row.cpu().numpy() + start, products[which, row].cpu().numpy()))
        which, rows, products = (np.concatenate(parts) for parts in zip(*close, strict=True))
        kept = products >= (top[:, -1].cpu().numpy() - slack)[which]
        return [self._best(query, rows[kept & (which == position)], k) for position, query in enumerate(options)]

    def _best(self, query: NDArray, rows: Rows, k: int) -> tuple[Rows, Scores]:
        scores = self.scores(query, rows)
        order = np.lexsort((rows, -scores))[:k]
        return rows[order], scores[order]

    @property
    def _block(self) -> int:
        """Return the number of rows per block."""
        return max(1, BLOCK // max(1, self.identity.width))

    def _numbers(self, raw: NDArray[np.int16]) -> Tensor:
        """View stored numbers as a tensor."""
        import torch

        return torch.from_numpy(np.ascontiguousarray(raw)).view(getattr(torch, self.identity.dtype))

    def _doubles(self, raw: NDArray[np.int16]) -> Scores:
        return self._numbers(raw).double().numpy()


class Ids(Sequence[str]):
    """Lazy sequence of ids in an Arrow column."""

    def __init__(self, table: pa.Table) -> None:
        self._column = table.column("id")

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, row: Any) -> Any:
        return self._column[row].as_py() if isinstance(row, int) else tuple(self._column[row].to_pylist())

    def at(self, row: int) -> str:
        """Return the id of a row."""
        return str(self._column[row].as_py())


def read_card(folder: Path) -> Identity:
    """Read the identity of the store in a folder.

    Raises:
        UserError: The folder has no finished store, or one with another format.
    """
    path = folder / CARD
    try:
        card = json.loads(path.read_text("utf-8"))
        if card.pop("format") != FORMAT:
            raise UserError("this store has another format", code="store-format-mismatch", where=str(path), try_this="compress again")
        return Identity(**card)
    except FileNotFoundError:
        raise UserError(
            "this folder contains no finished store of compressed documents",
            code="folder-unfinished",
            where=str(folder),
            try_this="make or finish it: ragmeter method index",
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"the card of this store cannot be read: {error}", code="unreadable-store-card", where=str(path)) from None


def cosines(query: Tensor | Numbers, memory: Tensor) -> Scores:
    """Compute the cosine similarity of documents with a question (eq 3.1), like `MemoryStore.scores`.

    Args:
        query: Memory of the question, [M, h].
        memory: Memory of the documents, [n, M, h].

    Returns:
        Shape (n,), within [-1, 1].
    """
    documents = np.asarray(memory.detach().cpu().float(), dtype=np.float64).reshape(len(memory), -1)
    wanted = _flat(query, documents.shape[1])
    lengths = np.sqrt((documents * documents).sum(axis=1)) * np.sqrt((wanted * wanted).sum())
    return np.clip((documents * wanted).sum(axis=1) / _separate_rows(lengths), -1.0, 1.0)


def _flat(memory: Tensor | Numbers, width: int) -> Scores:
    """Return the memory of one query or document as a flat float64 array."""
    flat = np.asarray(memory.detach().cpu().float() if hasattr(memory, "detach") else memory, dtype=np.float64).ravel()
    if len(flat) != width:
        raise ValueError(f"a query of {len(flat)} numbers, but documents have {width}")
    return flat


def _separate_rows(lengths: NDArray) -> NDArray:
    """Replace zero norms, so that zero rows get the cosine 0 instead of NaN."""
    return np.where(lengths > 0, lengths, np.inf)


CHUNK = 256
"""Documents per write; fixed, so that an interrupted and resumed build produces the same store."""


@dataclass(frozen=True, slots=True)
class Compressed:
    """Compressed documents: memory of shape (n, M, h), and the number of tokens read."""

    memory: Tensor
    tokens: int


@dataclass(frozen=True, slots=True)
class Written:
    """Progress of a compression: documents in the store, and documents and seconds of this call."""

    documents: int
    of: int
    fresh: int
    tokens: int
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        """Return the document tokens read per second; 0 if nothing was compressed."""
        return self.tokens / self.seconds if self.fresh else 0.0


Compress = Callable[[Sequence[str]], Compressed]
Progress = Callable[[Written], None]


def in_memory(corpus: Corpus, identity: Identity, compress: Compress, progress: Progress | None = None) -> MemoryStore:
    """Compress a corpus into a store in memory."""
    raws, norms = [np.empty((0, identity.width), np.int16)], [np.empty(0)]
    for raw, lengths in _chunks(corpus, identity, compress, 0, progress):
        raws.append(raw)
        norms.append(lengths)
    index = IdIndex.of(keys_of(corpus.ids), corpus.ids.__getitem__)
    return MemoryStore(identity, np.concatenate(raws), np.concatenate(norms), corpus.ids, index)


def write(folder: Path, corpus: Corpus, identity: Identity, compress: Compress, progress: Progress | None = None) -> MemoryStore:
    """Compress a corpus into a store folder, resuming an unfinished one; a finished store is opened.

    If several processes call this at once, one compresses and the others wait.

    Args:
        folder: Folder of the store.
        corpus: Corpus to compress.
        identity: Identity of the store.
        compress: Function from texts to their memory.
        progress: Progress callback, called after every chunk.

    Raises:
        UserError: The folder has another store.
        Broke: A number overflows the store's data type.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(str(folder) + ".lock"):
        if not (folder / CARD).exists():
            _require_same(folder / "started.json", identity)
            _append(folder, corpus, identity, compress, progress)
            _finish(folder, corpus, identity)
    if read_card(folder) != identity:
        raise _other(folder)
    return MemoryStore.open(folder)


def _append(folder: Path, corpus: Corpus, identity: Identity, compress: Compress, progress: Progress | None) -> None:
    """Append missing documents; file sizes show how far an earlier call got."""
    with open(folder / "memory.bin", "ab") as memory, open(folder / "norms.bin", "ab") as norms:
        there = min(memory.tell() // identity.bytes_per_document, norms.tell() // 8)
        start = len(corpus) if there == len(corpus) else there // CHUNK * CHUNK
        memory.truncate(start * identity.bytes_per_document)
        norms.truncate(start * 8)
        for raw, lengths in _chunks(corpus, identity, compress, start, progress):
            for file, values in ((memory, raw), (norms, lengths)):
                file.write(values.tobytes())
                file.flush()


def _chunks(
    corpus: Corpus, identity: Identity, compress: Compress, start: int, progress: Progress | None
) -> Iterator[tuple[NDArray[np.int16], Scores]]:
    """Yield chunks of stored numbers with row norms."""
    import torch

    began, tokens = time.perf_counter(), 0
    for first in range(start, len(corpus), CHUNK):
        made = compress([passage.full_text for passage in corpus[first : first + CHUNK]])
        kept = made.memory.detach().reshape(-1, identity.width).to("cpu", getattr(torch, identity.dtype)).contiguous()
        if not bool(torch.isfinite(kept).all()):
            raise Broke(f"a document's memory does not fit into {identity.dtype}", code="memory-does-not-fit", try_this="dtype: bfloat16")
        tokens += made.tokens
        doubles = kept.double().numpy()
        yield kept.view(torch.int16).numpy(), np.sqrt((doubles * doubles).sum(axis=1))
        if progress is not None:
            done = min(first + CHUNK, len(corpus))
            progress(Written(done, len(corpus), done - start, tokens, time.perf_counter() - began))


def _finish(folder: Path, corpus: Corpus, identity: Identity) -> None:
    """Write the ids, and the card last."""
    with pa.OSFile(str(folder / "ids.part"), "wb") as sink:
        schema = pa.schema([("id", pa.string())])
        with pa.ipc.new_file(sink, schema) as writer:
            for first in range(0, len(corpus), 1 << 16):
                writer.write_table(pa.table({"id": pa.array(corpus.ids[first : first + (1 << 16)], pa.string())}))
    os.replace(folder / "ids.part", folder / "ids.arrow")
    ids = Ids(mapped(folder / "ids.arrow"))
    IdIndex.of(keys_of(ids), ids.at).save(folder / "ids")
    write_json(folder / CARD, {"format": FORMAT, **asdict(identity)})
    (folder / "started.json").unlink()


def _require_same(path: Path, identity: Identity) -> None:
    """Record the store's identity, or check it against the recorded one."""
    if not path.exists():
        write_json(path, {"format": FORMAT, **asdict(identity)})
    elif json.loads(path.read_text("utf-8")) != {"format": FORMAT, **asdict(identity)}:
        raise _other(path.parent)


def _other(folder: Path) -> UserError:
    return UserError(
        "this folder contains documents of another corpus or compressor",
        code="folder-of-other-documents",
        where=str(folder),
        try_this="another folder, or delete this one",
    )
