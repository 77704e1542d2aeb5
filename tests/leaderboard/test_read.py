"""When pages read the store again."""

from __future__ import annotations

from pathlib import Path

import pytest

from leaderboard import read
from results.store.store import Store


def test_changing_store_is_read_once_per_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setenv(read.STORE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(read.time, "monotonic", lambda: clock[0])
    path = Store(tmp_path).database.path
    assert read.source().stamp == ()
    path.write_bytes(b"1")
    first = read.source()
    assert first.stamp, "a store that comes to be is shown at once"
    path.write_bytes(b"12")
    assert read.source() == first
    clock[0] += read.REST_S
    second = read.source()
    assert second != first
    path.write_bytes(b"123")
    assert read.source() == second
    read.look_again(second)
    assert read.source() != second, "what the server wrote itself is shown at once"
    path.unlink()
    assert read.source().stamp == ()
