from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.registry import load
from benchmarks.worlds import dataset, kept


@pytest.mark.parametrize("subset", ["multihop", "style", "long"])
def test_cached_split_equals_the_generated_split(subset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGMETER_CACHE", str(tmp_path))
    monkeypatch.setattr(kept, "LEAST_S", 0.0)
    monkeypatch.setattr(kept, "MOST", 1)
    options = {"worlds": 1, "questions": 4}
    made = load(f"worlds/{subset}:test", options)
    with monkeypatch.context() as patch:
        patch.setattr(dataset, "_generated", lambda *_: pytest.fail("generated again"))
        again = load(f"worlds/{subset}:test", options)
    assert (again.fingerprint, again.extra, list(again.questions)) == (made.fingerprint, made.extra, list(made.questions))
    (file,) = (tmp_path / "worlds").iterdir()
    file.write_bytes(b"damaged")
    assert load(f"worlds/{subset}:test", options).fingerprint == made.fingerprint
    load(f"worlds/{subset}:test", {**options, "questions": 3})
    assert len(list((tmp_path / "worlds").iterdir())) == 1
