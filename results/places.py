"""A board's places: who is where by one metric, and which places tests of all pairs leave open."""

from __future__ import annotations

import numpy as np

from results.board import Board
from results.column_figures import Wanted, figures
from results.statistics.closed_form import Band, bands
from results.store import Store

_KEY = "board"


def places(store: Store, board: Board, metric: str, *, higher_is_better: bool = True) -> dict[str, Band]:
    """The place of every run that may be compared with others, by its fingerprint; as the matrix has them.

    Args:
        store: Where the board was read.
        board: One row a run, not one for several seeds.
        metric: By which; one of the board's.
        higher_is_better: False for a metric of which less is better.
    """
    able = tuple(
        row.run.run
        for row in board.rows
        if not row.control and metric in row.cells and not row.cells[metric].apart and row.cells[metric].estimate.n
    )
    if not able:
        return {}
    found = figures(store, [Wanted(_KEY, board.dataset_fingerprint, able, metric)])[_KEY]
    at = np.array([found.runs[run] for run in able], dtype=np.int64)
    return dict(zip(able, bands(found.pairs, places=at, higher_is_better=higher_is_better), strict=True))
