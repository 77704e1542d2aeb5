"""Ranks on a board: hand-computed sign tests, and no ranks for incomparable results."""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from results.boards.board import Board, board, positions
from results.statistics.difference import all_pairs
from results.statistics.holm import holm
from results.statistics.places import Standing
from results.store import queries, score_queries
from results.store.store import Store

EM = "em#v2"


@pytest.fixture(scope="module")
def made(filled: Path, synthetic: ModuleType) -> tuple[Store, Board]:
    store = Store(filled)
    return store, board(store, queries.runs(store, synthetic.EXPERIMENT), metrics=[EM])


@pytest.mark.slow
def test_rank_counts_better_methods_and_its_range_significantly_better_or_worse_ones(made: tuple[Store, Board]) -> None:
    store, result = made
    able = [row for row in result.rows if not row.control and EM in row.cells and not row.cells[EM].apart]
    assert len(able) > 2
    placed = positions(store, result, EM)
    assert set(placed) == {row.run.run for row in able}
    read = score_queries.score_columns(store, result.dataset_fingerprint, [row.run.run for row in able], [EM])
    scores = np.stack([read.values[row.run.run, EM] for row in able])
    clusters = read.sampled.labels
    tests = all_pairs(scores, clusters=clusters)
    pairs = list(combinations(range(len(able)), 2))
    sure = dict(zip(pairs, holm([float(tests.p[pair]) for pair in pairs]), strict=True))
    for position, row in enumerate(able):
        band = placed[row.run.run]
        ahead = significantly_ahead = significantly_behind = 0
        for other in range(len(able)):
            both = ~np.isnan(scores[position]) & ~np.isnan(scores[other])
            gap = float(scores[other][both].mean() - scores[position][both].mean()) if other != position else 0.0
            certain = other != position and sure[min(position, other), max(position, other)] <= 0.05
            ahead += gap > 1e-12
            significantly_ahead += certain and gap > 0
            significantly_behind += certain and gap < 0
        assert (band.rank, band.low, band.high) == (1 + ahead, 1 + significantly_ahead, len(able) - significantly_behind)
        assert (band.standing is Standing.BEST) == (ahead == 0)
        assert band.standing is not Standing.BEHIND or significantly_ahead > 0
        assert band.low <= band.rank <= band.high


def test_ranks_are_reversed_for_lower_is_better_metrics(made: tuple[Store, Board]) -> None:
    store, result = made
    up, down = positions(store, result, EM), positions(store, result, EM, higher_is_better=False)
    values = {row.run.run: row.cells[EM].estimate.value for row in result.rows if row.run.run in up}
    assert not any(math.isnan(value) for value in values.values())
    best = max(values, key=lambda run: values[run])
    assert up[best].rank == 1
    assert down[best].rank == max(band.rank for band in down.values())


def test_metric_without_values_has_no_ranks(made: tuple[Store, Board]) -> None:
    store, result = made
    assert positions(store, result, "absent#v1") == {}
