"""Record which process holds the store's file, so that a waiting process can name it."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from results.store.redaction import without_secrets

FILE = "store.owner.json"
TELL_S = 2.0
"""Seconds after which a process reports that it waits for the store."""
_COMMAND_CHARACTERS = 120
_HELD = re.compile(r"Conflicting lock is held in (.+?) \(PID (\d+)\)")


def note(folder: Path) -> None:
    """Write a note with this process's id and command next to the lock that it now holds."""
    since = datetime.now(UTC).isoformat(timespec="seconds")
    record = {"pid": os.getpid(), "command": _own(), "since": since, "host": socket.gethostname()}
    partial = folder / f".{FILE}.{os.getpid()}"
    try:
        partial.write_text(json.dumps(record), encoding="utf-8")
        os.replace(partial, folder / FILE)
    except OSError:
        with suppress(OSError):
            partial.unlink()


def forget(folder: Path) -> None:
    """Remove the note, before this process releases the lock."""
    with suppress(OSError):
        (folder / FILE).unlink()


def named(folder: Path, error: Exception | None = None) -> str:
    """Describe the process that holds a store's lock: process id, command, and since when.

    Args:
        folder: The store folder.
        error: The error that opening the file raised; DuckDB's message names the process that has it open.
    """
    opened = _HELD.search(str(error)) if error is not None else None
    pid = int(opened[2]) if opened else None
    record = _record(folder)
    if record is not None and pid in (None, record[0]):
        return f"process {record[0]}{record[3]} ({record[1]}) has held it since {record[2]}"
    pid = pid or _locking(folder)
    if pid is not None:
        command = _command(pid) or (opened[1] if opened else "")
        return f"process {pid}{f' ({command})' if command else ''}{_running_since(pid)} has it open"
    return "another process has it open"


def _record(folder: Path) -> tuple[int, str, str, str] | None:
    """Return process id, command, time and ` on HOST` (if it is another one) of the recorded holder, or None."""
    try:
        value = json.loads((folder / FILE).read_text(encoding="utf-8"))
        pid, command, host = int(value["pid"]), str(value["command"]), str(value.get("host", ""))
        since = datetime.fromisoformat(value["since"]).astimezone(UTC)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    elsewhere = host not in ("", socket.gethostname())
    if not elsewhere and Path("/proc/self").exists():
        began = _began(pid)
        if began is None or began > since + timedelta(seconds=2):
            return None  # it was killed, and could not remove its note; another process may have its number
    place = f" on {_printable(host)}" if elsewhere else ""
    return pid, _printable(command), f"{since:%Y-%m-%d %H:%M:%S} UTC", place


def _locking(folder: Path) -> int | None:
    """Return the process that has locked the store or waits first for it, if the system provides it (Linux)."""
    with suppress(OSError, ValueError, IndexError):
        files = {os.stat(folder / name).st_ino for name in ("store.lock", "store.queue") if (folder / name).exists()}
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()
            if words[1] != "->" and int(words[5].rpartition(":")[2]) in files and int(words[4]) not in (os.getpid(), -1):
                return int(words[4])
    return None


@cache
def _own() -> str:
    return _short(sys.orig_argv)


def _command(pid: int) -> str:
    with suppress(OSError):
        return _short(Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0"))
    return ""


def _running_since(pid: int) -> str:
    began = _began(pid)
    return f", running since {began:%Y-%m-%d %H:%M:%S} UTC," if began else ""


def _began(pid: int) -> datetime | None:
    """Return the start time of a process, if the system provides it (Linux)."""
    with suppress(OSError, ValueError, IndexError):
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        booted = next(int(line.split()[1]) for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime"))
        return datetime.fromtimestamp(booted + ticks / os.sysconf("SC_CLK_TCK"), UTC)
    return None


def _short(words: list[str]) -> str:
    """Shorten a command line: no folders of program and script, no keys, no control characters."""
    shown = [Path(word).name if number < 2 else word for number, word in enumerate(filter(None, words))]
    return _printable(without_secrets(" ".join(shown)))


def _printable(text: str) -> str:
    text = "".join(character for character in text if character.isprintable())
    return text if len(text) <= _COMMAND_CHARACTERS else f"{text[: _COMMAND_CHARACTERS - 1]}…"
