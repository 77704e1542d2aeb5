"""The cache of embeddings: equal vectors, concurrent writers, and killed writers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from methods.models.embeddings import EmbeddingCache, text_hash
from methods.models.encoder import Encoder
from methods.models.encoder_config import EncoderConfig
from tests.support.errors import raises

WRITER = """
import sys
from pathlib import Path
import numpy as np
from methods.models.embeddings import EmbeddingCache, text_hash

def vector(text):
    return np.frombuffer(text_hash(text) * 16, dtype=np.uint8).astype(np.float32)

cache = EmbeddingCache(Path(sys.argv[1]), "model", 256)
first, step, batches = map(int, sys.argv[2:5])
for batch in range(batches):
    texts = [f"text {n}" for n in range(first + batch * step, first + batch * step + 200)]
    cache.put(texts, np.stack([vector(text) for text in texts]))
    print(batch, flush=True)
"""


def vector(text: str) -> np.ndarray:
    """Return a vector that is unique to this text."""
    return np.frombuffer(text_hash(text) * 16, dtype=np.uint8).astype(np.float32)


def writer(folder: Path, first: int, step: int, batches: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(folder), str(first), str(step), str(batches)]
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root, env=environment)


def check(folder: Path, texts: list[str]) -> int:
    """Assert that all stored vectors are correct; return their number."""
    results, vectors = EmbeddingCache(folder, "model", 256).get(texts)
    kept = [text for text, there in zip(texts, results, strict=True) if there]
    assert np.array_equal(vectors, np.stack([vector(text) for text in kept]) if kept else np.empty((0, 256)))
    return len(kept)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.sampled_from([*"abcdefgh", "", "é", "\ud800", "line\nbreak"]), max_size=12), max_size=6))
def test_every_text_gets_its_vector_and_is_encoded_once(requests: list[list[str]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        encoded: list[str] = []
        for texts in requests:

            def encode(positions: list[int], texts: list[str] = texts) -> np.ndarray:
                encoded.extend(texts[position] for position in positions)
                return np.stack([vector(texts[position]) for position in positions])

            got = EmbeddingCache(Path(folder), "model", 256).vectors(texts, encode)  # type: ignore[arg-type]
            assert got.shape == (len(texts), 256)
            assert all(np.array_equal(row, vector(text)) for row, text in zip(got, texts, strict=True))
        assert sorted(encoded) == sorted({text for texts in requests for text in texts})
        assert len(EmbeddingCache(Path(folder), "model", 256)) == len(encoded)


@pytest.mark.slow
def test_three_concurrent_writers_of_the_same_texts_store_each_once(tmp_path: Path) -> None:
    # Overlapping ranges: each process also meets texts that another one is writing.
    processes = [writer(tmp_path, 100 * number, 100, 15) for number in range(3)]
    for process in processes:
        process.communicate(timeout=120)
        assert process.returncode == 0
    texts = [f"text {n}" for n in range(1800)]
    assert check(tmp_path, texts) == 1800
    assert len(EmbeddingCache(tmp_path, "model", 256)) == 1800
    assert (tmp_path / "model" / "vectors.f32").stat().st_size == 1800 * 1024


@pytest.mark.slow
def test_new_cache_can_be_opened_by_many_processes_at_once(tmp_path: Path) -> None:
    # Each round opens a new file, where setting the write-ahead log is what collides.
    with ThreadPoolExecutor(8) as pool:
        for number in range(60):
            together = threading.Barrier(8)

            def opened(position: int, number: int = number, together: threading.Barrier = together) -> int:
                together.wait(timeout=60)
                cache = EmbeddingCache(tmp_path, f"model {number}", 256)
                cache.put(["both", f"own {position}"], np.stack([vector("both"), vector(f"own {position}")]))
                return len(cache)

            assert max(pool.map(opened, range(8))) == 9


@pytest.mark.slow
def test_killed_writers_lose_at_most_the_batch_in_flight(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    texts = [f"text {n}" for n in range(40_000)]
    acknowledged = 0
    for life in range(6):
        process = writer(tmp_path, 5000 * life, 200, 20)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(float(rng.uniform(0, 0.05)))
        process.send_signal(signal.SIGKILL)
        done = 1 + len(process.stdout.read().splitlines())
        process.wait(timeout=30)
        process.stdout.close()
        acknowledged += 200 * done
        assert acknowledged <= check(tmp_path, texts) <= acknowledged + 200 * (life + 1)


def test_remains_of_a_killed_writer_are_overwritten(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path, "model", 256)
    cache.put(["a"], vector("a")[None])
    with open(cache.folder / "vectors.f32", "ab") as file:
        file.write(b"half a row")
    cache.put(["b"], vector("b")[None])
    assert check(tmp_path, ["a", "b"]) == 2


def test_missing_rows_and_foreign_files_are_reported(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path, "model", 256)
    cache.put(["a", "b"], np.stack([vector("a"), vector("b")]))
    os.truncate(cache.folder / "vectors.f32", 1030)
    with raises("damaged-embedding-cache"):
        cache.get(["a", "b"])
    with raises("cache-dimension-mismatch"):
        EmbeddingCache(tmp_path, "model", 8)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "rows.sqlite").write_text("not a database, and long enough to be read as a header of one" * 9)
    with raises("unusable-embedding-cache"):
        EmbeddingCache(tmp_path, "other", 8)


@pytest.mark.slow
def test_encoder_reads_known_passages_from_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["moss grows", "on the north side", "moss grows"]
    plain = Encoder(EncoderConfig(), "cpu").passages(texts)
    encoder = Encoder(EncoderConfig(), "cpu", tmp_path)
    assert encoder.passages(texts) == pytest.approx(plain, abs=1e-6)
    first = encoder.passages(texts)
    again = Encoder(EncoderConfig(batch_size=1), "cpu", tmp_path)
    monkeypatch.setattr(again._passages, "encode", lambda *_: pytest.fail("encoded a second time"))
    assert np.array_equal(again.passages(texts), first)


@pytest.mark.slow
def test_passage_fingerprint_depends_only_on_options_that_change_passage_vectors() -> None:
    same = [EncoderConfig(), EncoderConfig(batch_size=4), EncoderConfig(query_prompt="query: ")]
    other = [EncoderConfig(passage_prompt="passage: "), EncoderConfig(max_length=16), EncoderConfig(normalize=False)]
    fingerprints = [Encoder(config, "cpu").passage_fingerprint for config in (*same, *other)]
    assert len(set(fingerprints[:3])) == 1
    assert len(set(fingerprints)) == 4
