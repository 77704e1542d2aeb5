"""Starts Streamlit with two things mended that concern visitors' files.

`python -m leaderboard.uploads run …` is `python -m streamlit run …` but for these:

- Streamlit bounds a file, but not their number: they stay until they are removed or the session ends, and nothing makes
  a session hold two boxes' worth alone. `bound` bounds what lies in memory.
- A file begins with the page asking where to send it. Where a script starts before the answer is out, as it does when
  another file has just arrived, Streamlit drops the answer, and the page waits for it for ever. `answer` keeps it.
"""

from __future__ import annotations

import sys
import threading
from inspect import signature
from typing import Any

from leaderboard.submitting import UPLOAD_MIB
from results.submission.limits import MIB

PER_SESSION = 3 * UPLOAD_MIB * MIB
"""Predictions, a card, and predictions that are just being replaced."""
IN_ALL = 8 * UPLOAD_MIB * MIB
_ANSWER = "file_urls_response"


def bound(manager: type[Any], per_session: int = PER_SESSION, in_all: int = IN_ALL) -> None:
    """Have a class of upload managers refuse, with HTTP status 413, what goes beyond the bounds.

    Args:
        manager: Streamlit's `MemoryUploadedFileManager`, or one like it.
        per_session: Bytes of one visitor.
        in_all: Bytes of all of them.
    """
    add, turn = manager.add_file, threading.Lock()

    def add_file(self: Any, session_id: str, file: Any) -> None:
        with turn:
            held = {
                session: _bytes(files, file.file_id if session == session_id else None)
                for session, files in list(self.file_storage.items())
            }
            size = len(file.data)
            if held.get(session_id, 0) + size > per_session or sum(held.values()) + size > in_all:
                raise _refusal()
            add(self, session_id, file)

    manager.add_file = add_file


def _bytes(files: dict[str, Any], replaced: str | None) -> int:
    return sum(len(one.data) for name, one in list(files.items()) if name != replaced)


def _refusal() -> Exception:
    from starlette.exceptions import HTTPException

    return HTTPException(status_code=413, detail="Too many files: remove some, or try again later")


def answer(queue: type[Any]) -> None:
    """Have a class of queues of messages to a page keep the answers to its questions where to send a file.

    Args:
        queue: Streamlit's `ForwardMsgQueue`, or one like it.
    """
    clear = queue.clear

    def keep(self: Any, retain_lifecycle_msgs: bool = False, **options: Any) -> None:
        # Without retaining it is what follows on sending: everything is out.
        waiting = [one for one in self._queue if retain_lifecycle_msgs and one.WhichOneof("type") == _ANSWER]
        clear(self, retain_lifecycle_msgs=retain_lifecycle_msgs, **options)
        kept = {id(one) for one in self._queue}
        self._queue.extend(one for one in waiting if id(one) not in kept)

    queue.clear = keep


def main() -> None:
    """Mend what concerns visitors' files, and go on as Streamlit's command line."""
    # Streamlit promises none of what is mended here; where it is not there, whoever keeps the server is told.
    if not _mended_manager():
        sys.stderr.write("uploads cannot be bounded with this release of Streamlit: bound them in a proxy\n")
    if not _mended_queue():
        sys.stderr.write("with this release of Streamlit, a file sent right after another may have to be sent again\n")
    from streamlit.web.cli import main as streamlit

    streamlit(prog_name="streamlit")


def _mended_manager() -> bool:
    try:
        from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager as Manager

        known = hasattr(Manager(""), "file_storage") and hasattr(Manager, "add_file")
    except (ImportError, TypeError):
        return False
    if known:
        bound(Manager)
    return known


def _mended_queue() -> bool:
    try:
        from streamlit.runtime.forward_msg_queue import ForwardMsgQueue as Queue

        retains = "retain_lifecycle_msgs" in signature(Queue.clear).parameters
        known = retains and isinstance(vars(Queue()).get("_queue"), list)
    except (ImportError, TypeError, AttributeError):
        return False
    if known:
        answer(Queue)
    return known


if __name__ == "__main__":
    main()
