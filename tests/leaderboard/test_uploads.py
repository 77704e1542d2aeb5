"""Visitors' files are bounded together, not only one by one."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

from leaderboard import uploads
from leaderboard.server import command
from leaderboard.submitting import UPLOAD_MIB
from results.submission.limits import MIB

managers = pytest.importorskip("streamlit.runtime.memory_uploaded_file_manager")
records = pytest.importorskip("streamlit.runtime.uploaded_file_manager")
exceptions = pytest.importorskip("starlette.exceptions")


@pytest.fixture
def manager() -> Any:
    """Of a class of its own: what is bound here stays bound."""
    kind = type("Manager", (managers.MemoryUploadedFileManager,), {})
    uploads.bound(kind, per_session=30, in_all=50)
    return kind("/upload")


def put(manager: Any, session: str, name: str, size: int) -> None:
    manager.add_file(session_id=session, file=records.UploadedFileRec(name, "f.jsonl", "text/plain", b"x" * size))


def refused(manager: Any, session: str, name: str, size: int) -> bool:
    before = {key: dict(files) for key, files in manager.file_storage.items()}
    try:
        put(manager, session, name, size)
    except exceptions.HTTPException:
        return before.get(session, {}).get(name) is manager.file_storage.get(session, {}).get(name)
    return False


def test_one_visitor_has_so_much_and_may_replace_or_remove_it(manager: Any) -> None:
    assert not refused(manager, "a", "1", 20)
    assert not refused(manager, "a", "2", 10)
    assert refused(manager, "a", "3", 1)
    with pytest.raises(exceptions.HTTPException) as caught:
        put(manager, "a", "1", 21)
    assert caught.value.status_code == 413
    assert len(manager.get_files("a", ["1"])[0].data) == 20
    assert not refused(manager, "a", "1", 15)
    assert not refused(manager, "a", "3", 5)
    manager.remove_file("a", "1")
    assert not refused(manager, "a", "4", 15)
    assert [len(one.data) for one in manager.get_files("a", ["2", "4"])] == [10, 15]


def test_all_visitors_together_have_so_much_and_who_leaves_makes_room(manager: Any) -> None:
    assert not refused(manager, "a", "1", 30)
    assert not refused(manager, "b", "1", 20)
    assert refused(manager, "c", "1", 1)
    manager.remove_session_files("a")
    assert not refused(manager, "c", "1", 30)


def test_many_at_once_get_no_further(manager: Any) -> None:
    threads = [
        threading.Thread(target=refused, args=(manager, str(number % 4), str(number), 7)) for number in range(40)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sums = {key: sum(len(one.data) for one in files.values()) for key, files in manager.file_storage.items()}
    assert sum(sums.values()) == 49
    assert max(sums.values()) <= 30


def test_both_boxes_hold_their_files_within_the_bounds() -> None:
    assert uploads.PER_SESSION >= (UPLOAD_MIB + 1) * MIB + UPLOAD_MIB * MIB
    assert uploads.IN_ALL > uploads.PER_SESSION


def test_the_server_that_takes_files_is_started_with_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert command(1, "h", False, uploads=True)[1:4] == ["-m", "leaderboard.uploads", "run"]
    assert command(1, "h", False)[1:4] == ["-m", "streamlit", "run"]
    kind = type("Manager", (managers.MemoryUploadedFileManager,), {})
    monkeypatch.setattr(managers, "MemoryUploadedFileManager", kind)
    monkeypatch.setattr("streamlit.web.cli.main", lambda prog_name: None)
    uploads.main()
    monkeypatch.setattr(uploads, "len", lambda data: uploads.IN_ALL, raising=False)
    with pytest.raises(exceptions.HTTPException):
        put(kind("/upload"), "a", "1", 1)


def test_a_streamlit_that_keeps_files_elsewhere_is_told_of_and_still_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[str] = []
    monkeypatch.setattr("streamlit.web.cli.main", lambda prog_name: started.append(prog_name))
    monkeypatch.setattr(managers, "MemoryUploadedFileManager", type("Other", (), {}))
    uploads.main()
    monkeypatch.setitem(sys.modules, "streamlit.runtime.memory_uploaded_file_manager", None)
    uploads.main()
    assert capsys.readouterr().err.count("cannot be bounded") == 2
    assert started == ["streamlit", "streamlit"]
