"""RAG-DDR's pairs against hand-made ones."""

from __future__ import annotations

from benchmarks.core.random import Draws
from methods.baselines.end_to_end.ddr_training import NO, YES, Reply, reader_pair, refiner_pairs


def test_reader_pair_prefers_the_best_without_passages_and_rejects_the_worst_with_them() -> None:
    replies = [Reply("a", True, 1.0), Reply("b", False, 1.0), Reply("c", False, 0.0), Reply("d", True, 0.0), Reply("e", True, 0.5)]
    for seed in range(5):
        assert reader_pair(replies, Draws(seed)) == (replies[1], replies[3])
    with_passages = [replies[0], replies[2], replies[3]]
    rejected = {reader_pair(with_passages, Draws(seed)) for seed in range(20)}
    assert rejected == {(replies[0], replies[2]), (replies[0], replies[3])}
    assert reader_pair([replies[1], replies[2]], Draws(0)) == (replies[1], replies[2])
    assert reader_pair([replies[0], replies[1]], Draws(0)) is None


def test_refiner_pair_keeps_a_best_passage_and_drops_a_worst_one() -> None:
    assert refiner_pairs([0.5, 1.0, 0.0], Draws(0)) == [(1, YES, NO), (2, NO, YES)]
    drawn = {tuple(pair[0] for pair in refiner_pairs([1.0, 1.0, 0.0, 0.0], Draws(seed))) for seed in range(40)}
    assert drawn == {(0, 2), (0, 3), (1, 2), (1, 3)}
    assert refiner_pairs([1.0, 1.0], Draws(0)) == []
    assert refiner_pairs([None, 1.0, 0.0], Draws(0)) == [(1, YES, NO), (2, NO, YES)]
