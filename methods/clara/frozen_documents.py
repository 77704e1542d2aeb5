"""Documents as a frozen compressor sees them, each encoded once and kept on disk while a stage trains.

Documents are encoded in blocks that follow from their order alone. So a training that goes on reads the very numbers
that it began with, and of several processes each may encode some of the blocks.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.errors import UserError
from methods.training import Progress

MEMORY = "memory.bin"
Encode = Callable[[Sequence[str]], Any]
"""From documents to their memory, [N, M, h], without gradient."""


class FrozenDocuments:
    """Memory of documents by their text.

    Args:
        texts: The documents; equal ones count once.
        encode: Called without gradient, for each block at most once.
        shape: M and h.
        dtype: Of the numbers: that of the base.
        folder: Where they are kept.
        block: Documents encoded at once.
        progress: Told of blocks.
        process: Of `accelerate`; None: one process.

    Raises:
        UserError: The folder's disk has no room for them.
    """

    def __init__(
        self,
        texts: Iterable[str],
        encode: Encode,
        shape: tuple[int, int],
        dtype: Any,
        folder: Path,
        block: int,
        progress: Progress,
        process: Any = None,
    ) -> None:
        import torch

        self._places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        self._shape = shape
        folder.mkdir(parents=True, exist_ok=True)
        count, blocks = len(self._places), -(-len(self._places) // block)
        _require_room(folder, count * shape[0] * shape[1] * dtype.itemsize)
        # A file that is mapped and not there yet begins as zeros: no block is done.
        self._memory = torch.from_file(str(folder / MEMORY), shared=True, size=count * shape[0] * shape[1], dtype=dtype).view(count, *shape)
        done = torch.from_file(str(folder / "done.bin"), shared=True, size=blocks, dtype=torch.uint8)
        first, ranks = (process.process_index, process.num_processes) if process is not None else (0, 1)
        documents = list(self._places)
        progress.begin("compressing documents", blocks, int(done.sum()))
        for number in range(first, blocks, ranks):
            if not done[number]:
                some = slice(number * block, (number + 1) * block)
                with torch.no_grad():
                    self._memory[some] = encode(documents[some]).to("cpu", dtype)
                done[number] = 1
                progress.advance()
        if process is not None:
            process.wait_for_everyone()

    def __len__(self) -> int:
        return len(self._places)

    def of(self, texts: Sequence[str]) -> Any:
        """Memory of documents: [N, M, h] on the CPU, no part of any graph.

        Raises:
            KeyError: One is none of those encoded.
        """
        return self._memory[[self._places[text] for text in texts]]


def _require_room(folder: Path, wanted: int) -> None:
    """Refuse before the first block: a mapped file takes its room as it is filled, and a full disk kills its writer."""
    memory = folder / MEMORY
    # In blocks of 512 bytes: what is taken already, not how long the file is.
    there = getattr(memory.stat(), "st_blocks", 0) * 512 if memory.is_file() else 0
    free = shutil.disk_usage(folder).free
    if wanted - there > free:
        raise UserError(
            f"the memory of the candidates takes {wanted / 2**30:,.1f} GiB and {free / 2**30:,.1f} are free",
            where=str(folder),
            try_this="documents=anew of the stage, which keeps none, or a store on another disk",
        )
