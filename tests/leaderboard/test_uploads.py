"""Visitors' files are bounded together, not only one by one."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

from leaderboard import server
from leaderboard.server import UPLOAD_MIB, command
from results.offered import MIB

managers = pytest.importorskip("streamlit.runtime.memory_uploaded_file_manager")
records = pytest.importorskip("streamlit.runtime.uploaded_file_manager")
exceptions = pytest.importorskip("starlette.exceptions")


@pytest.fixture
def manager() -> Any:
    """Of a class of its own: what is bound here stays bound."""
    kind = type("Manager", (managers.MemoryUploadedFileManager,), {})
    server.bound(kind, per_session=30, in_all=50)
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
    assert [len(file.data) for file in manager.get_files("a", ["2", "4"])] == [10, 15]


def test_all_visitors_together_have_so_much_and_who_leaves_makes_room(manager: Any) -> None:
    assert not refused(manager, "a", "1", 30)
    assert not refused(manager, "b", "1", 20)
    assert refused(manager, "c", "1", 1)
    manager.remove_session_files("a")
    assert not refused(manager, "c", "1", 30)


def test_many_at_once_get_no_further(manager: Any) -> None:
    threads = [threading.Thread(target=refused, args=(manager, str(number % 4), str(number), 7)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sums = {key: sum(len(file.data) for file in files.values()) for key, files in manager.file_storage.items()}
    assert sum(sums.values()) == 49
    assert max(sums.values()) <= 30


def test_both_boxes_hold_their_files_within_the_bounds() -> None:
    assert server.PER_SESSION >= (UPLOAD_MIB + 1) * MIB + UPLOAD_MIB * MIB
    assert server.IN_ALL > server.PER_SESSION


@pytest.fixture
def queue_kind(monkeypatch: pytest.MonkeyPatch) -> type[Any]:
    """Streamlit's queue of messages to a page, as a class of its own: what is mended here stays mended."""
    queues = pytest.importorskip("streamlit.runtime.forward_msg_queue")
    kind = type("Queue", (queues.ForwardMsgQueue,), {})
    monkeypatch.setattr(queues, "ForwardMsgQueue", kind)
    return kind


def message(**fields: Any) -> Any:
    from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

    return ForwardMsg(**fields)


def asked(response: str) -> Any:
    """Where to send a file."""
    from streamlit.proto.Common_pb2 import FileURLsResponse

    return message(file_urls_response=FileURLsResponse(response_id=response))


@pytest.mark.parametrize("fragments", [None, ["a fragment"]])
def test_an_answer_where_to_send_a_file_outlives_the_start_of_a_script(queue_kind: type[Any], fragments: list[str] | None) -> None:
    server.answer(queue_kind)
    queue = queue_kind()
    for item in (asked("1"), message(delta={}), asked("2"), message(session_status_changed={})):
        queue.enqueue(item)
    queue.clear(retain_lifecycle_msgs=True, fragment_ids_this_run=fragments)
    # A whole run draws everything anew; a fragment's leaves what others drew.
    kinds = sorted(item.WhichOneof("type") for item in queue._queue)
    drawn = ["delta"] if fragments else []
    assert kinds == [*drawn, "file_urls_response", "file_urls_response", "session_status_changed"]
    # What is sent is sent once.
    assert [item.file_urls_response.response_id for item in queue.flush() if item.HasField("file_urls_response")] == ["1", "2"]
    assert queue.is_empty()
    queue.enqueue(asked("3"))
    queue.clear()
    assert queue.is_empty()


def test_without_that_streamlit_drops_the_answer(queue_kind: type[Any]) -> None:
    """Once this fails, `uploads.answer` is no longer needed."""
    queue = queue_kind()
    queue.enqueue(asked("1"))
    queue.clear(retain_lifecycle_msgs=True)
    assert queue.is_empty()


def test_the_server_that_takes_files_is_started_with_what_is_mended(
    monkeypatch: pytest.MonkeyPatch, queue_kind: type[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(1, "h", False, uploads=True)[1:5] == ["-P", "-m", "leaderboard.server", "run"]
    assert command(1, "h", False)[1:5] == ["-P", "-m", "streamlit", "run"]
    kind = type("Manager", (managers.MemoryUploadedFileManager,), {})
    monkeypatch.setattr(managers, "MemoryUploadedFileManager", kind)
    monkeypatch.setattr("streamlit.web.cli.main", lambda prog_name: None)
    server.main()
    assert capsys.readouterr().err == ""
    queue = queue_kind()
    queue.enqueue(asked("1"))
    queue.clear(retain_lifecycle_msgs=True)
    assert not queue.is_empty()
    monkeypatch.setattr(server, "len", lambda data: server.IN_ALL, raising=False)
    with pytest.raises(exceptions.HTTPException):
        put(kind("/upload"), "a", "1", 1)


def test_a_streamlit_that_keeps_files_or_messages_elsewhere_is_reported_and_still_starts(
    monkeypatch: pytest.MonkeyPatch, queue_kind: type[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[str] = []
    monkeypatch.setattr("streamlit.web.cli.main", lambda prog_name: started.append(prog_name))
    monkeypatch.setattr(managers, "MemoryUploadedFileManager", type("Other", (), {}))
    server.main()
    queues = pytest.importorskip("streamlit.runtime.forward_msg_queue")
    monkeypatch.setattr(queues, "ForwardMsgQueue", type("Other", (), {"clear": lambda self: None}))
    monkeypatch.setitem(sys.modules, "streamlit.runtime.memory_uploaded_file_manager", None)
    server.main()
    response = capsys.readouterr().err
    assert (response.count("cannot be bounded"), response.count("sent again")) == (2, 1)
    assert started == ["streamlit", "streamlit"]
