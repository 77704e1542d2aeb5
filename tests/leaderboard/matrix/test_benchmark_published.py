"""Published figures on the board: the closest one, its status and the differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, DataReference, DatasetCard
from benchmarks.schema import Question
from leaderboard.elements.nodes import Node
from leaderboard.matrix.benchmark import of_metrics
from leaderboard.matrix.rows import Order, ordered
from leaderboard.matrix.table import draw_matrix
from methods.api import Prediction
from methods.pipeline import Composition
from methods.registry import Component
from results.boards.board import Board, boards
from results.store.store import FINISHED, Run, Store

CARD = DatasetCard(
    title="HotpotQA",
    task="QA",
    description="d",
    hub_id=None,
    revision=None,
    license="none",
    citation="c",
    languages=("en",),
    splits={"dev": 40},
    metrics=("em",),
    settings=("distractor",),
)


@pytest.fixture(scope="module")
def hotpotqa(tmp_path_factory: pytest.TempPathFactory) -> Board:
    """Return a store with BM25 and a random order, on a metric that a paper prints for BM25."""
    store = Store(tmp_path_factory.mktemp("published") / "store")
    queries = [Question(f"q{n}", f"what {n}?", ("a",)) for n in range(40)]
    benchmark = Benchmark(DataReference("hotpotqa", None, "dev"), 1, CARD, queries, Corpus.of([]))
    store.put_benchmark(benchmark, benchmark.fingerprint)
    for name in ("bm25", "random"):
        described = Composition(Component.of(name)).describe()
        setting = "oracle(base=distractor,n=20)"
        run = Run(name, name, name, "retriever", described, "hotpotqa:dev", benchmark.fingerprint, setting, 0, 40, {})
        store.start(run)
        responses = [Prediction(q.id, "x") for q in queries]
        store.append(name, responses, {"recall@5#v2": np.array([1.0, 0.25] * 20)})
        store.end(name, FINISHED)
    store.put_experiment("e", "name: e", None, None, None, ["bm25", "random"])
    (board,) = boards(store, "e")
    return board


def drawn(board: Board, *, papers: bool) -> Node:
    order, shown = Order("method", False), of_metrics(board, "recall@5#v2", {}, ({}, {}), {})
    return draw_matrix(shown, ordered(shown.board, order), order, papers=papers)


@pytest.mark.slow
def test_published_figure_is_shown_in_its_cell_with_the_differences(hotpotqa: Board) -> None:
    tree = drawn(hotpotqa, papers=True)
    (printed,) = [cell for cell in tree.find(tag="td") if list(cell.find(cls="printed"))]
    # CLaRa's table of retrievers prints 62.09 for BM25 in the oracle setting.
    assert "CLARA 62.09, gap +0.4, other setting" in " ".join(printed.texts())
    assert "questions: 7384 there, 40 here" in printed.tip
    assert not list(drawn(hotpotqa, papers=False).find(cls="printed"))


def test_board_without_a_matching_paper_has_no_published_figure(hotpotqa: Board) -> None:
    rows = tuple(replace(row, run=replace(row.run, dataset="worlds/multihop:test")) for row in hotpotqa.rows)
    other = replace(hotpotqa, dataset="worlds/multihop:test", rows=rows)
    assert not list(drawn(other, papers=True).find(cls="printed"))
