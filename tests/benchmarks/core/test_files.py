"""Atomic writes: a file appears complete or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.core.files import whole, whole_text


@pytest.mark.slow
def test_file_is_replaced_and_the_writers_result_is_returned(tmp_path: Path) -> None:
    path = tmp_path / "one.txt"
    whole_text(path, "é\n")
    assert path.read_bytes() == "é\n".encode()
    assert whole(path, lambda partial: partial.write_text("later", "utf-8")) == 5
    assert path.read_text("utf-8") == "later"
    assert list(tmp_path.iterdir()) == [path]


def test_failing_writer_keeps_the_old_file_and_leaves_no_partial_file(tmp_path: Path) -> None:
    path = tmp_path / "one.txt"
    path.write_text("before", "utf-8")

    def write(partial: Path) -> None:
        partial.write_text("half", "utf-8")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        whole(path, write)
    assert path.read_text("utf-8") == "before"
    assert list(tmp_path.iterdir()) == [path]
