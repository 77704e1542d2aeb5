"""Vectors on disk: interrupted builds, empty arrays and damaged files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from methods.models.embeddings import read_array, write_vectors
from tests.support.errors import raises


def rows(start: int, length: int = 4) -> np.ndarray:
    return np.arange(3 * start, 3 * (start + length), dtype=np.float32).reshape(length, 3)


def test_chunks_of_any_length_are_joined_into_one_array(tmp_path: Path) -> None:
    lengths = {0: 4, 4: 0, 5: 2}
    write_vectors(tmp_path / "v.npy", lengths, lambda start: rows(start, lengths[start]), 3)
    assert np.array_equal(read_array(tmp_path / "v.npy", mapped=True), np.concatenate([rows(0, 4), rows(5, 2)]))
    assert [path.name for path in tmp_path.iterdir()] == ["v.npy"]


def test_repeatedly_interrupted_build_encodes_no_chunk_twice(tmp_path: Path) -> None:
    encoded: list[int] = []

    def encode(start: int) -> np.ndarray:
        if start not in cut:
            cut.add(start)
            raise KeyboardInterrupt
        encoded.append(start)
        return rows(start)

    cut: set[int] = set()
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            write_vectors(tmp_path / "v.npy", (0, 4, 8), encode, 3)
        assert not (tmp_path / "v.npy").exists()
    for _ in range(2):
        write_vectors(tmp_path / "v.npy", (0, 4, 8), encode, 3)
    assert encoded == [0, 4, 8]
    assert np.array_equal(read_array(tmp_path / "v.npy", mapped=False), rows(0, 12))


def test_empty_array_keeps_its_dimension(tmp_path: Path) -> None:
    write_vectors(tmp_path / "v.npy", (), rows, 3)
    assert read_array(tmp_path / "v.npy", mapped=False).shape == (0, 3)


def test_writes_to_a_mapped_array_do_not_reach_the_file(tmp_path: Path) -> None:
    write_vectors(tmp_path / "v.npy", (0,), rows, 3)
    read_array(tmp_path / "v.npy", mapped=True)[:] = -1
    assert np.array_equal(read_array(tmp_path / "v.npy", mapped=True), rows(0))


def test_damaged_file_is_an_error_naming_the_folder(tmp_path: Path) -> None:
    (tmp_path / "v.npy").write_bytes(b"no array")
    with raises("unreadable-vectors") as caught:
        read_array(tmp_path / "v.npy", mapped=True)
    assert caught.value.where == str(tmp_path)
