"""RAPTOR: leaves, nested clusters, and UMAP clusters compared with those of the released code."""

from __future__ import annotations

import numpy as np
import pytest

from methods.baselines.graph_rag import raptor
from methods.baselines.graph_rag.raptor import clusters, in_two_steps, leaves_of
from methods.work import tokens


def test_leaves_are_whole_sentences_up_to_the_token_limit() -> None:
    text = "Ada kept the Tower. She wrote a Diary, which lies in the Museum; the Museum is in Bay. Rex kept the Mill."
    for most in (8, 15, 22):
        leaves = leaves_of(text, most)
        assert " ".join(leaves) == text
        assert len(leaves) > 1
        assert all(tokens(leaf) <= most for leaf in leaves)
    assert leaves_of(text, 100) == [text]
    assert leaves_of("", 10) == [""]


def halves(vectors: np.ndarray, *_: object) -> list[list[int]]:
    """Return two clusters that share a row."""
    middle = len(vectors) // 2
    return [list(range(middle + 1)), list(range(middle, len(vectors)))]


def test_clusters_that_are_too_long_are_clustered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raptor, "_mixture", halves)
    vectors = np.zeros((40, 2), np.float32)
    quarters = [list(range(11)), list(range(10, 21)), list(range(20, 31)), list(range(30, 40))]
    assert in_two_steps(vectors, "umap") == quarters == clusters(vectors, [100] * 40, 1100)
    result = clusters(vectors, [100] * 40, 500)
    assert {row for part in result for row in part} == set(range(40))
    assert max(map(len, result)) == 5
    thirds = clusters(np.zeros((60, 2), np.float32), [100] * 60, 1100)
    assert (len(thirds), max(map(len, thirds))) == (8, 9)


def test_cluster_that_cannot_be_divided_by_clustering_is_split_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raptor, "_mixture", lambda vectors, *_: [list(range(len(vectors)))])
    assert clusters(np.zeros((20, 2), np.float32), [100] * 20, 800) == [list(range(8)), list(range(8, 16)), list(range(16, 20))]


@pytest.mark.slow
def test_umap_keeps_distant_groups_apart() -> None:
    pytest.importorskip("umap", reason="extra umap")
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    corner = np.repeat(np.eye(3, 32, dtype=np.float32), 14, axis=0)
    vectors = corner + 0.05 * np.random.default_rng(0).normal(size=corner.shape).astype(np.float32)
    result = in_two_steps(vectors, "umap")
    assert torch.get_num_threads() == threads, "PyTorch would take the cores of other processes"
    assert {row for part in result for row in part} == set(range(42))
    assert all(len({row // 14 for row in part}) == 1 for part in result)
