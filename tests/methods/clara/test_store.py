"""A store of compressed documents: stored memory is read back, and search equals comparing one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.corpus import Corpus
from benchmarks.schema import Passage
from methods.clara import store
from methods.clara.store import Compressed, Identity, MemoryStore, Written, in_memory, write
from tests.support.errors import raises

M, H = 3, 5


def corpus(count: int) -> Corpus:
    return Corpus.of(Passage(f"doc {number}", "", f"text {number}") for number in range(count))


def identity(count: int, dtype: Any = "float16", width: int = H) -> Identity:
    return Identity("compressor", "corpus", count, M, width, dtype)


class Drawn:
    """Compressor that draws memory from a text's number, so that equal texts have equal memory; records its calls."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale
        self.requested: list[str] = []

    def __call__(self, texts: Sequence[str]) -> Compressed:
        self.requested += texts
        rows = [torch.randn(M, H, generator=torch.Generator().manual_seed(int(t.split()[-1]))) for t in texts]
        return Compressed(self.scale * torch.stack(rows), 2 * len(texts))


def expected(count: int, dtype: torch.dtype) -> torch.Tensor:
    return Drawn()([f"text {number}" for number in range(count)]).memory.to(dtype).float()


@pytest.mark.parametrize(("dtype", "kept"), [("float16", torch.float16), ("bfloat16", torch.bfloat16)])
def test_store_returns_compressed_memory_rounded_to_its_dtype(dtype: str, kept: torch.dtype, tmp_path: Path) -> None:
    write(tmp_path / "s", corpus(20), identity(20, dtype), Drawn())
    opened = MemoryStore.open(tmp_path / "s")
    assert torch.equal(opened.memory(range(20)), expected(20, kept))
    assert torch.equal(opened.memory(opened.find_rows(["doc 7", "doc 2"])), expected(20, kept)[[7, 2]])
    assert opened.identity.bytes_per_document == 2 * M * H
    assert (tmp_path / "s" / "memory.bin").stat().st_size == opened.bytes == 20 * 2 * M * H
    assert list(opened.ids) == [f"doc {number}" for number in range(20)]
    assert "doc 3" in opened
    assert "doc 99" not in opened
    with pytest.raises(KeyError, match="doc 99"):
        opened.find_rows(["doc 99"])


def naive(query: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """Compute cosine similarities in another way."""
    q, d = query.astype(np.float64).ravel(), documents.astype(np.float64).reshape(len(documents), -1)
    return np.array([np.dot(item / np.linalg.norm(item), q / np.linalg.norm(q)) for item in d])


@pytest.mark.slow
@given(
    count=st.integers(1, 60),
    k=st.integers(1, 70),
    block=st.integers(1, 100),
    seed=st.integers(0, 1000),
    dtype=st.sampled_from(["float16", "bfloat16"]),
)
def test_top_k_over_blocks_equals_comparing_one_by_one(count: int, k: int, block: int, seed: int, dtype: str) -> None:
    kept = in_memory(corpus(count), identity(count, dtype), Drawn())
    queries = torch.randn(3, M, H, generator=torch.Generator().manual_seed(seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "BLOCK", block)
        results = kept.nearest(queries, k)
    for query, (rows, scores) in zip(queries, results, strict=True):
        every = naive(query.numpy(), kept.memory(range(count)).numpy())
        assert rows.tolist() == np.argsort(-every, kind="stable")[:k].tolist()
        np.testing.assert_allclose(scores, every[rows], atol=1e-12)
        assert np.abs(scores).max() <= 1


def test_equal_documents_keep_the_order_of_the_store_and_zero_memory_scores_zero() -> None:
    same = torch.ones(1, M, H).expand(9, M, H).clone()
    same[4] = 0
    kept = in_memory(corpus(9), identity(9), lambda texts: Compressed(same, 0))
    ((rows, scores),) = kept.nearest(torch.ones(1, M, H), 9)
    assert rows.tolist() == [0, 1, 2, 3, 5, 6, 7, 8, 4]
    assert scores[0] == pytest.approx(1)
    assert scores[-1] == 0


def test_scores_do_not_depend_on_other_documents_or_queries() -> None:
    kept = in_memory(corpus(50), identity(50), Drawn())
    queries = torch.randn(8, M, H, generator=torch.Generator().manual_seed(0))
    together = kept.nearest(queries, 50)
    for query, (rows, scores) in zip(queries, together, strict=True):
        assert kept.scores(query, rows).tolist() == scores.tolist()
        assert [kept.scores(query, rows[position : position + 1])[0] for position in range(50)] == scores.tolist()


def test_norm_of_a_query_does_not_change_scores() -> None:
    kept = in_memory(corpus(30), identity(30), Drawn())
    query = torch.randn(1, M, H, generator=torch.Generator().manual_seed(0))
    (short,), (long,) = kept.nearest(query, 30), kept.nearest(1000 * query, 30)
    assert short[0].tolist() == long[0].tolist()
    np.testing.assert_allclose(short[1], long[1], atol=1e-6)


class Cut(Exception):
    pass


@pytest.mark.parametrize("after", [0, 1, 2])
def test_interrupted_compression_resumes_with_an_identical_result(after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "CHUNK", 4)
    write(tmp_path / "whole", corpus(11), identity(11), Drawn())
    reported: list[Written] = []

    def cut(written: Written) -> None:
        reported.append(written)
        if len(reported) > after:
            raise Cut

    with pytest.raises(Cut):
        write(tmp_path / "cut", corpus(11), identity(11), Drawn(), cut)
    with raises("folder-unfinished"):
        MemoryStore.open(tmp_path / "cut")
    # What a machine that went down left of a row is not taken for one.
    with open(tmp_path / "cut" / "memory.bin", "ab") as file:
        file.write(b"\1\2\3")
    resumed = Drawn()
    write(tmp_path / "cut", corpus(11), identity(11), resumed)
    done = 11 if after == 2 else 4 * (after + 1)
    assert resumed.requested == [f"text {number}" for number in range(done, 11)]
    for name in ("memory.bin", "norms.bin", "ids.arrow", "store.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert sorted(path.name for path in (tmp_path / "cut").iterdir()) == sorted(path.name for path in (tmp_path / "whole").iterdir())


def test_finished_store_is_opened_without_compressing_again(tmp_path: Path) -> None:
    write(tmp_path / "s", corpus(5), identity(5), Drawn())
    again = Drawn()
    assert len(write(tmp_path / "s", corpus(5), identity(5), again)) == 5
    assert again.requested == []


def test_documents_of_another_corpus_or_compressor_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "s", corpus(5), identity(5), Drawn())
    for other in (replace(identity(5), compressor="other"), replace(identity(5), corpus="other")):
        with raises("folder-of-other-documents"):
            write(tmp_path / "s", corpus(5), other, Drawn())
    monkeypatch.setattr(store, "CHUNK", 2)

    def cut(written: Written) -> None:
        raise Cut

    with pytest.raises(Cut):
        write(tmp_path / "t", corpus(5), identity(5), Drawn(), cut)
    with raises("folder-of-other-documents"):
        write(tmp_path / "t", corpus(5), replace(identity(5), compressor="other"), Drawn())


def test_overflow_of_half_precision_is_an_error_that_suggests_another_dtype(tmp_path: Path) -> None:
    with raises("memory-does-not-fit"):
        write(tmp_path / "s", corpus(5), identity(5), Drawn(1e6))
    assert len(write(tmp_path / "t", corpus(5), identity(5, "bfloat16"), Drawn(1e6))) == 5


def test_damaged_store_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "s", corpus(5), identity(5), Drawn())
    with open(tmp_path / "s" / "memory.bin", "ab") as file:
        file.write(b"\0")
    with raises("memory-store-mismatch"):
        MemoryStore.open(tmp_path / "s")
    (tmp_path / "s" / "store.json").write_text("{}")
    with raises("unreadable-store-card"):
        MemoryStore.open(tmp_path / "s")


def test_store_of_an_empty_corpus_returns_no_documents(tmp_path: Path) -> None:
    kept = write(tmp_path / "s", corpus(0), identity(0), Drawn())
    ((rows, _),) = kept.nearest(torch.ones(1, M, H), 5)
    assert len(rows) == len(kept) == 0


def test_progress_reports_documents_read_and_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "CHUNK", 4)
    reported: list[Written] = []
    write(tmp_path / "s", corpus(10), identity(10), Drawn(), reported.append)
    assert [(item.documents, item.of, item.fresh, item.tokens) for item in reported] == [(4, 10, 4, 8), (8, 10, 8, 16), (10, 10, 10, 20)]
    assert reported[-1].tokens_per_second == pytest.approx(20 / reported[-1].seconds)
