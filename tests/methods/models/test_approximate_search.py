from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from methods.models import approximate_search
from methods.models.approximate_search import ApproximateSearch
from tests.support.errors import raises


def test_missing_faiss_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with raises("missing-package"):
        ApproximateSearch.build(np.ones((3, 4), dtype=np.float32), tmp_path / "i", "hnsw")


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "recall"), [("hnsw", 0.95), ("ivfpq", 0.8)])
def test_sharded_index_has_high_recall_and_resumes_after_an_interruption(
    kind: str, recall: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"GRAPH": 700, "LISTED": 700, "BLOCK": 300, "TRAINING_BYTES": 4 * 32 * 1500}.items():
        monkeypatch.setattr(approximate_search, name, value)
    rng = np.random.default_rng(2)
    centers = rng.standard_normal((50, 32)).astype(np.float32)
    vectors = centers[rng.integers(0, 50, 2000)] + 0.3 * rng.standard_normal((2000, 32)).astype(np.float32)
    written: list[str] = []
    write = approximate_search._written

    def cut_off(index: Any, path: Path) -> None:
        if len(written) == 2:
            written.append("cut")
            raise KeyboardInterrupt
        written.append(path.name)
        write(index, path)

    monkeypatch.setattr(approximate_search, "_written", cut_off)
    with pytest.raises(KeyboardInterrupt):
        ApproximateSearch.build(vectors, tmp_path / "faiss.index", kind)  # type: ignore[arg-type]
    ApproximateSearch.build(vectors, tmp_path / "faiss.index", kind)  # type: ignore[arg-type]
    assert len(written) == len(set(written))
    (tmp_path / "moved").mkdir()
    for path in tmp_path.glob("faiss.*"):
        path.rename(tmp_path / "moved" / path.name)
    assert [path.name for path in tmp_path.iterdir()] == ["moved"]
    queries = vectors[:50]
    results = ApproximateSearch(tmp_path / "moved" / "faiss.index").near(queries, 10)
    exact = np.argsort(-(queries @ vectors.T), axis=1)[:, :10]
    hits = [len(set(rows.tolist()) & set(wanted.tolist())) / 10 for rows, wanted in zip(results, exact, strict=True)]
    assert np.mean(hits) >= recall
    assert capfd.readouterr().out == ""
