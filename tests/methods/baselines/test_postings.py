from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, passage_id
from methods.api import Services
from methods.baselines import postings
from methods.baselines.bm25 import BM25, BM25Config, library, tokenize
from tests.support.errors import raises

DRAW = np.random.default_rng(5)
NAMES = ["moss", "lamp", "C++", "東京都", "naïve", 'quo"te', *(f"w{number}x" for number in range(60))]
CORPUS = Corpus.of(
    Passage(passage_id("", str(row)), "", " ".join(DRAW.choice(NAMES, size=size)) + f" rare{row % 37} {'the' * (row % 2)}")
    for row, size in enumerate(DRAW.integers(0, 12, 90))
)
WORDS = [*NAMES, "rare3", "rare36", "東京", "absent", "\U0010ffff", "", "moss"]


@pytest.fixture
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use runs of about ten passages, and blocks smaller than the postings of a frequent term."""
    for name, value in {"WORDS": 60, "BLOCK": 7, "AT_ONCE": 4, "LINES": 5}.items():
        monkeypatch.setattr(postings, name, value)


@pytest.mark.parametrize(("k1", "b"), [(1.5, 0.75), (0.9, 0.4), (0.0, 1.0)])
def test_merged_postings_equal_those_of_bm25s_in_every_bit(small_runs: None, tmp_path: Path, k1: float, b: float) -> None:
    retriever = BM25(BM25Config(k1=k1, b=b), Services())
    merged, whole = retriever.index(CORPUS, tmp_path / "index")._postings, retriever.index(CORPUS)._postings
    pairs = list(zip(merged.of(WORDS), whole.of(WORDS), strict=True))
    assert len(pairs) >= 60
    for ours, theirs in pairs:
        assert [part.tobytes() for part in ours] == [part.tobytes() for part in theirs]
    assert [path.name for path in (tmp_path / "index").glob("run*")] == []


def test_bm25s_reads_the_folder(small_runs: None, tmp_path: Path) -> None:
    retriever = BM25(BM25Config(stemmer=None), Services())
    index = retriever.index(CORPUS, tmp_path)
    theirs = library().BM25.load(tmp_path, mmap=True, show_progress=False)
    for query in (["moss", "rare3"], ["lamp", "lamp", "w5x"]):
        assert np.allclose(theirs.get_scores(query), index.scores(query, None), rtol=1e-6)


def test_interrupted_build_reuses_complete_runs(small_runs: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    retriever = BM25(BM25Config(), Services())
    split: list[str] = []

    def cut_off(texts: list[str], *rest: Any, **options: Any) -> Any:
        if len(split) > 40:
            raise KeyboardInterrupt
        split.extend(texts)
        return tokenize(texts, *rest, **options)

    with monkeypatch.context() as patch:
        patch.setattr("methods.baselines.bm25.tokenize", cut_off)
        with pytest.raises(KeyboardInterrupt):
            retriever.index(CORPUS, tmp_path / "cut")
    # Other frequencies in the complete runs show in the result if these are not counted again.
    for complete in (tmp_path / "cut").glob("run-*/frequencies"):
        complete.write_bytes(complete.read_bytes().replace(b"\1\0\0\0", b"\2\0\0\0"))
    retriever.index(CORPUS, tmp_path / "cut")
    retriever.index(CORPUS, tmp_path / "whole")
    data = [np.load(tmp_path / name / "data.csc.index.npy") for name in ("cut", "whole")]
    assert 0.1 < np.mean(data[0] != data[1]) < 0.6
    for name in ("indices.csc.index.npy", "vocab.index.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_full_disk_error_keeps_complete_runs(small_runs: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    retriever = BM25(BM25Config(), Services())
    with monkeypatch.context() as patch:
        patch.setattr(postings, "_merge_terms", full)
        with raises("system-no-space-left-on-device", where=str(tmp_path)):
            retriever.index(CORPUS, tmp_path)
    assert len(list(tmp_path.glob("run-*"))) > 3
    monkeypatch.setattr(postings, "_count", lambda *_: pytest.fail("counted again"))
    index = retriever.index(CORPUS, tmp_path)
    assert index.scores(WORDS, None).tolist() == retriever.index(CORPUS).scores(WORDS, None).tolist()
