"""Exact search against a full sort in float64, for every data type of the product."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from methods.models import embeddings
from methods.models.embeddings import ExactSearch, exact_scores


def best(vectors: Any, query: Any, rows: Any, k: int) -> tuple[Any, Any]:
    """Return the top k of some rows and their float64 scores; ties keep row order."""
    scores = exact_scores(vectors, query, rows)
    order = np.lexsort((rows, -scores))[:k]
    return rows[order], scores[order]


def clouds(rng: np.random.Generator, count: int, kind: str) -> np.ndarray:
    """Draw vectors with very different norms, many of them equal or nearly equal, so that rounding matters."""
    vectors = rng.standard_normal((count, 24)).astype(np.float32)
    if kind == "repeated":
        vectors = vectors[rng.integers(0, max(1, count // 4), count)]
    if kind == "close":
        vectors = (vectors[:1] + 1e-3 * vectors).astype(np.float32)
    if kind == "lengths":
        vectors = (vectors * 10 ** rng.uniform(-3, 3, (count, 1))).astype(np.float32)
    return vectors


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 60),
    st.integers(1, 70),
    st.sampled_from(["apart", "repeated", "close", "lengths"]),
    st.sampled_from(["float32", "bfloat16"]),
)
@pytest.mark.slow
def test_near_rows_include_the_exact_top_k(seed: int, count: int, k: int, kind: str, precision: str) -> None:
    rng = np.random.default_rng(seed)
    vectors, queries = clouds(rng, count, kind), rng.standard_normal((5, 24)).astype(np.float32)
    block, embeddings.BLOCK = embeddings.BLOCK, 7
    batch, embeddings.QUERIES = embeddings.QUERIES, 2
    try:
        results = ExactSearch(vectors, precision=precision).near(queries, k)  # type: ignore[arg-type]
    finally:
        embeddings.BLOCK, embeddings.QUERIES = block, batch
    exact = queries.astype(np.float64) @ vectors.astype(np.float64).T
    assert len(results) == len(queries)
    for rows, scores, query in zip(results, exact, queries, strict=True):
        cut = np.sort(scores)[::-1][min(k, count) - 1]
        assert set(np.flatnonzero(scores >= cut)) <= set(rows.tolist())
        assert np.array_equal(rows, np.unique(rows))
        assert exact_scores(vectors, query, rows) == pytest.approx(scores[rows], rel=1e-12)


def test_bfloat16_and_float32_search_return_equal_results_from_few_rows() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((5000, 64)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    queries = vectors[:20] + 0.05 * rng.standard_normal((20, 64)).astype(np.float32)
    rough = ExactSearch(vectors, precision="bfloat16").near(queries, 10)
    fine = ExactSearch(vectors, precision="float32").near(queries, 10)
    for query, many, few in zip(queries, rough, fine, strict=True):
        (rows, scores), (same_rows, same_scores) = best(vectors, query, many, 10), best(vectors, query, few, 10)
        assert np.array_equal(rows, same_rows)
        assert np.array_equal(scores, same_scores)
        assert len(few) <= len(many) < 500


def test_searching_a_mapped_file_does_not_change_it(tmp_path: Path) -> None:
    vectors = np.random.default_rng(1).standard_normal((300, 16)).astype(np.float32)
    np.save(tmp_path / "v.npy", vectors)
    before = (tmp_path / "v.npy").read_bytes()
    mapped = np.load(tmp_path / "v.npy", mmap_mode="c")
    for precision in ("float32", "bfloat16"):
        rows, _ = best(mapped, vectors[7], ExactSearch(mapped, precision=precision).near(vectors[7:8], 3)[0], 3)  # type: ignore[arg-type]
        assert rows.tolist() == np.argsort(-(vectors @ vectors[7]))[:3].tolist()
    assert (tmp_path / "v.npy").read_bytes() == before


def test_search_without_vectors_or_queries_is_empty() -> None:
    none = ExactSearch(np.empty((0, 4), dtype=np.float32))
    assert [rows.size for rows in none.near(np.ones((2, 4), dtype=np.float32), 3)] == [0, 0]
    some = ExactSearch(np.ones((3, 4), dtype=np.float32))
    assert some.near(np.empty((0, 4), dtype=np.float32), 3) == []
    assert some.near(np.ones((1, 4), dtype=np.float32), 0)[0].size == 0
