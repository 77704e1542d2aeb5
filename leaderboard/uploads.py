"""Starts Streamlit with a bound on what visitors may have lying in its memory: it bounds a file, but not their number.

`python -m leaderboard.uploads run …` is `python -m streamlit run …` but for that. A visitor's files stay until they are
removed or the session ends, and nothing makes a session hold two boxes' worth alone.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from leaderboard.submitting import UPLOAD_MIB
from results.submission.limits import MIB

PER_SESSION = 3 * UPLOAD_MIB * MIB
"""Predictions, a card, and predictions that are just being replaced."""
IN_ALL = 8 * UPLOAD_MIB * MIB


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
            held = {session: _bytes(files, file.file_id if session == session_id else None)
                    for session, files in list(self.file_storage.items())}  # fmt: skip
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


def main() -> None:
    """Bound the uploads, and go on as Streamlit's command line."""
    try:
        from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager as Manager

        # Streamlit promises none of these; without them nothing is bounded, and whoever keeps the server is told.
        unknown = not hasattr(Manager(""), "file_storage") or not hasattr(Manager, "add_file")
    except (ImportError, TypeError):
        unknown = True
    if unknown:
        sys.stderr.write("uploads cannot be bounded with this release of Streamlit: bound them in a proxy\n")
    else:
        bound(Manager)
    from streamlit.web.cli import main as streamlit

    streamlit(prog_name="streamlit")


if __name__ == "__main__":
    main()
