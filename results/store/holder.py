"""Which process keeps the store's file, so that waiting for it is explained."""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from results.store.redaction import without_secrets

FILE = "store.owner.json"
TELL_S = 3.0
"""How long a process waits for the store in silence."""
_COMMAND_CHARACTERS = 120
_HELD = re.compile(r"Conflicting lock is held in (.+?) \(PID (\d+)\)")


def note(folder: Path) -> None:
    """Write who holds the lock from now on; the lock itself cannot say it."""
    record = {"pid": os.getpid(), "command": _own(), "since": datetime.now(UTC).isoformat(timespec="seconds")}
    partial = folder / f".{FILE}.{os.getpid()}"
    try:
        partial.write_text(json.dumps(record), encoding="utf-8")
        os.replace(partial, folder / FILE)
    except OSError:
        with suppress(OSError):
            partial.unlink()


def forget(folder: Path) -> None:
    """Remove the note, before the lock is released."""
    with suppress(OSError):
        (folder / FILE).unlink()


def named(folder: Path, error: Exception | None = None) -> str:
    """Return the holder of a lock: process id, command, and since when.

    Args:
        folder: The store folder.
        error: What opening the file raised. DuckDB names a process that has it open, also another program.
    """
    if error is not None and (match := _HELD.search(str(error))):
        pid = int(match[2])
        if (record := _record(folder)) and record[0] == pid:
            return f"process {pid} ({record[1]}) has held it since {record[2]}"
        return f"process {pid} ({_command(pid) or match[1]}){_running_since(pid)} has it open"
    if record := _record(folder):
        return f"process {record[0]} ({record[1]}) has held it since {record[2]}"
    return "another process has it open"


def _record(folder: Path) -> tuple[int, str, str] | None:
    """Return process id, command and time of the process that holds the lock; None if nothing is noted."""
    try:
        value = json.loads((folder / FILE).read_text(encoding="utf-8"))
        pid, command, since = int(value["pid"]), str(value["command"]), datetime.fromisoformat(value["since"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if Path("/proc/self").exists() and not Path(f"/proc/{pid}").exists():
        return None  # it was killed, and could not remove its note
    return pid, command[:_COMMAND_CHARACTERS], f"{since:%Y-%m-%d %H:%M:%S} UTC"


@cache
def _own() -> str:
    return _short(sys.orig_argv)


def _command(pid: int) -> str:
    with suppress(OSError):
        return _short(Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0"))
    return ""


def _running_since(pid: int) -> str:
    """Return when a process began, where the system tells (Linux)."""
    with suppress(OSError, ValueError, IndexError):
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        booted = next(int(line.split()[1]) for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime"))
        began = datetime.fromtimestamp(booted + ticks / os.sysconf("SC_CLK_TCK"), UTC)
        return f", running since {began:%Y-%m-%d %H:%M:%S} UTC,"
    return ""


def _short(words: list[str]) -> str:
    """Return a command line without folders of its program and script, keys and control characters."""
    shown = [Path(word).name if number < 2 else word for number, word in enumerate(filter(None, words))]
    text = "".join(character for character in without_secrets(" ".join(shown)) if character.isprintable())
    return text if len(text) <= _COMMAND_CHARACTERS else f"{text[: _COMMAND_CHARACTERS - 1]}…"
