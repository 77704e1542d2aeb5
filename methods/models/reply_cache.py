"""Cache model replies on disk by request content, so that no call is paid for twice.

The cache is one SQLite file in WAL mode that any number of processes can use. A reply is committed before its caller receives
it, so that `kill -9` loses at most the calls in flight. Failed calls are never cached. A reply that a fault of the server ended
counts as missing: older versions cached such replies, and exports may contain them.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.core.errors import UserError
from benchmarks.core.files import whole
from methods.models.reply import BROKEN, Completion

_PAUSE_S = 0.01


def use_wal(connection: sqlite3.Connection, patience_s: float) -> None:
    """Switch a connection's file to WAL mode, in which readers and a writer do not block each other.

    SQLite ignores the connection's timeout for the lock that setting the mode takes, so processes that open a new file
    together would fail; therefore this function waits.

    Args:
        connection: An open connection, outside a transaction.
        patience_s: Longest wait for other processes, in seconds.

    Raises:
        sqlite3.OperationalError: The file was locked during the whole wait, or cannot be written.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            # Setting the mode takes the lock even if the mode is already set.
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_S)


VERSION = 2
"""Version of the file's layout; older files are upgraded in place."""
BUSY_S = 60.0
"""Maximum seconds to wait for another writing process."""
_LOOKUP = 500
_WHOLE = f"coalesce(lower(json_extract(reply, '$.finish_reason')), '') NOT IN ({', '.join(map(repr, sorted(BROKEN)))})"
"""SQL condition for replies that no fault of the server ended."""
_COLUMNS = "key, model, request, reply, created, call"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS replies (
    key TEXT PRIMARY KEY,
    model TEXT NOT NULL,
    request TEXT NOT NULL,
    reply TEXT NOT NULL,
    created REAL NOT NULL,
    call TEXT NOT NULL -- the key without the scope
) WITHOUT ROWID
"""
_MIGRATION = ("ALTER TABLE replies ADD COLUMN call TEXT NOT NULL DEFAULT ''", "UPDATE replies SET call = key")
_FURTHER = (
    "CREATE INDEX IF NOT EXISTS replies_scoped ON replies (call) WHERE call <> key",
    """CREATE TABLE IF NOT EXISTS deployments (
        url TEXT NOT NULL, model TEXT NOT NULL,
        revision TEXT NOT NULL, -- '' where nothing was found that identifies it
        source TEXT NOT NULL,
        first_seen REAL NOT NULL, last_seen REAL NOT NULL,
        PRIMARY KEY (url, model, revision)
    ) WITHOUT ROWID""",
)


@dataclass(frozen=True)
class Call:
    """Content of a request, which determines the key of its cached reply.

    Attributes:
        endpoint: Base URL.
        model: The model's name at the endpoint.
        messages: The conversation.
        parameters: All other parameters that a reply depends on.
        repetition: 0, 1 … for further replies to the same conversation.
        revision: Revision of the deployment; "" if it is unknown.
        scope: Token of a `--fresh` execution, which only reads its own replies; "": the newest reply of all scopes.
        repeat: Number of earlier repeats of the questions (`Services.repeat`).
    """

    endpoint: str
    model: str
    messages: Sequence[Mapping[str, str]]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    repetition: int = 0
    revision: str = ""
    scope: str = ""
    repeat: int = 0

    @cached_property
    def request(self) -> str:
        """Return the call as canonical JSON."""
        # Left out if empty, so that calls of older caches keep their keys.
        further = {name: value for name in ("revision", "scope", "repeat") if (value := getattr(self, name))}
        value = {
            "endpoint": self.endpoint,
            "model": self.model,
            "messages": [dict(message) for message in self.messages],
            "parameters": dict(self.parameters),
            "repetition": self.repetition,
            **further,
        }
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)

    @cached_property
    def key(self) -> str:
        """Return 32 hex digits (128 bits), which are equal for equal calls on every machine."""
        return key_of(self.request)

    @cached_property
    def unscoped(self) -> str:
        """Return the key of the same call without a scope."""
        return replace(self, scope="").key if self.scope else self.key


def key_of(request: str) -> str:
    """Return the key of a request in canonical JSON."""
    return hashlib.blake2b(request.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Kept:
    """A cached reply.

    Attributes:
        key: Key of the entry: that of the call, or of the same call in a `--fresh` execution.
        reply: The reply as it was stored.
        created: Time at which it was received, in seconds since 1970.
    """

    key: str
    reply: dict[str, Any]
    created: float


@dataclass(frozen=True, slots=True)
class Entry:
    """A cached reply with its request."""

    key: str
    request: str
    reply: str
    created: float


class ResponseCache:
    """Disk cache of replies, safe for many threads and processes. `shared` returns one object per file and process.

    Args:
        path: The SQLite file; created with its folder when first used.

    Attributes:
        flights: The calls in flight on the chat loop by key; identical calls wait for them.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.flights: dict[str, asyncio.Future[Any]] = {}
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._pid = 0

    def get(self, keys: Iterable[str]) -> dict[str, Kept]:
        """Return cached replies by key; keys that are not cached are left out."""
        return {kept.key: kept for _, kept in self._selected("key", keys)}

    def find(self, calls: Iterable[Call]) -> dict[str, Kept]:
        """Return replies by the keys of calls: for a call with a scope its own reply, for others the newest of all scopes."""
        calls = list(calls)
        results = self.get(call.key for call in calls)
        unscoped = [call.key for call in calls if not call.scope]
        for key, kept in self._selected("call <> key AND call", unscoped):
            if key not in results or kept.created > results[key].created:
                results[key] = kept
        return results

    def _selected(self, condition: str, keys: Iterable[str]) -> Iterator[tuple[str, Kept]]:
        """Yield entries whose column (the end of a condition) is one of some keys, each with the call's key."""
        wanted = list(dict.fromkeys(keys))
        with self.opened() as connection:
            for start in range(0, len(wanted), _LOOKUP):
                chunk = wanted[start : start + _LOOKUP]
                query = f"SELECT call, key, reply, created FROM replies WHERE {_WHOLE} AND {condition} IN ({','.join('?' * len(chunk))})"
                rows = connection.execute(query, chunk).fetchall()
                yield from ((call, Kept(key, json.loads(reply), created)) for call, key, reply, created in rows)

    def put(self, call: Call, reply: Mapping[str, Any]) -> Kept:
        """Store a reply, and return the stored one, which is another process's if that was first."""
        kept = Kept(call.key, dict(reply), time.time())
        with self.opened() as connection:
            done = connection.execute(
                f"INSERT INTO replies ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?) "
                f"ON CONFLICT (key) DO UPDATE SET reply = excluded.reply, created = excluded.created WHERE NOT {_WHOLE}",
                (call.key, call.model, storable(call.request), storable(_text(reply)), kept.created, call.unscoped),
            )
            if done.rowcount == 0:
                return self.get([call.key]).get(call.key, kept)
        return kept

    def __len__(self) -> int:
        with self.opened() as connection:
            return int(connection.execute("SELECT count(*) FROM replies").fetchone()[0])

    def holds(self, model: str) -> bool:
        """Return whether any reply of a model is cached."""
        with self.opened() as connection:
            return connection.execute("SELECT 1 FROM replies WHERE model = ? LIMIT 1", [model]).fetchone() is not None

    def entries(self, keys: Iterable[str] | None = None) -> Iterator[Entry]:
        """Yield entries by ascending key; only those of `keys` if given."""
        with self.opened() as connection:
            if keys is None:
                last = ""
                while rows := connection.execute(
                    "SELECT key, request, reply, created FROM replies WHERE key > ? ORDER BY key LIMIT ?", (last, _LOOKUP)
                ).fetchall():
                    yield from (Entry(*row) for row in rows)
                    last = rows[-1][0]
                return
            wanted = sorted(set(keys))
            for start in range(0, len(wanted), _LOOKUP):
                chunk = wanted[start : start + _LOOKUP]
                marks = ",".join("?" * len(chunk))
                rows = connection.execute(
                    f"SELECT key, request, reply, created FROM replies WHERE key IN ({marks}) ORDER BY key", chunk
                ).fetchall()
                yield from (Entry(*row) for row in rows)

    def add(self, entries: Iterable[Entry]) -> int:
        """Add entries in one transaction without changing existing ones, and return the number of new ones."""
        rows = [(e.key, json.loads(e.request)["model"], e.request, e.reply, e.created, _unscoped(e)) for e in entries]
        with self.opened() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                before = connection.total_changes
                connection.executemany(f"INSERT OR IGNORE INTO replies ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", rows)
                added = connection.total_changes - before
                connection.execute("COMMIT")
            except BaseException:
                connection.execute("ROLLBACK")
                raise
        return added

    def prune(self, *, older_than_s: float | None = None, model: str | None = None, keep_bytes: int | None = None) -> int:
        """Delete entries and release their space; without a condition, delete all.

        Args:
            older_than_s: Delete entries older than this.
            model: Delete only entries of this model.
            keep_bytes: Delete the oldest entries until requests and replies together have at most this size.

        Returns:
            Number of deleted entries.
        """
        among, which = ("AND model = ?", [model]) if model is not None else ("", [])
        with self.opened() as connection:
            deleted = 0
            if older_than_s is not None or keep_bytes is None:
                before = time.time() - (older_than_s or 0.0)
                deleted = connection.execute(f"DELETE FROM replies WHERE created <= ? {among}", [before, *which]).rowcount
            if keep_bytes is not None:
                # Deletes entries beyond the running total, newest first.
                deleted += connection.execute(
                    "DELETE FROM replies WHERE key IN (SELECT key FROM (SELECT key, sum(length(CAST(request AS BLOB)) "
                    "+ length(CAST(reply AS BLOB))) OVER (ORDER BY created DESC, key) AS total "
                    f"FROM replies WHERE true {among}) WHERE total > ?)",
                    [*which, keep_bytes],
                ).rowcount
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return deleted

    def close(self) -> None:
        """Close the file; the next use reopens it."""
        with self._lock:
            if self._connection is not None and self._pid == os.getpid():
                self._connection.close()
            self._connection = None

    @contextmanager
    def opened(self) -> Iterator[sqlite3.Connection]:
        """Open the file's connection for one thread at a time, outside a transaction."""
        with self._lock:
            try:
                # A connection must not be used, or closed, in a forked child.
                if self._pid != os.getpid():
                    self._connection = None
                    self.flights.clear()
                if self._connection is None:
                    self._connection = self._connect()
                    self._pid = os.getpid()
                yield self._connection
            except sqlite3.Error as error:
                raise self._explained(error) from error

    def _connect(self) -> sqlite3.Connection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"the cache's folder cannot be made: {error}", code="unwritable-cache-folder", where=str(self.path)) from None
        connection = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        use_wal(connection, BUSY_S)
        # In WAL mode a commit then survives the end of the process, but not always a power failure; the file stays valid in both.
        connection.execute("PRAGMA synchronous = NORMAL")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise UserError(
                f"this cache was written by a newer ragmeter (layout {version}, known up to {VERSION})",
                code="cache-too-new",
                where=str(self.path),
                try_this="upgrade ragmeter, or name another store",
            )
        if version < VERSION:
            self._bring_up(connection)

    def _bring_up(self, connection: sqlite3.Connection) -> None:
        """Create the file's tables, or upgrade an older layout, in one transaction."""
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have been first.
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version < VERSION:
                for statement in (*((_SCHEMA,) if version == 0 else _MIGRATION), *_FURTHER):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {VERSION}")
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise

    def _explained(self, error: sqlite3.Error) -> Exception:
        text = str(error)
        if "not a database" in text or "malformed" in text:
            what, hint = "this file is not a cache of replies, or damaged", "move it away; replies are then requested again"
        elif "full" in text:
            what, hint = "the disk of the cache is full", "free some space; every reply kept so far is safe"
        elif "unable to open" in text or "readonly" in text or "read-only" in text:
            what, hint = "the cache of replies cannot be written", "check the permissions of file and folder"
        elif "locked" in text or "busy" in text:
            what, hint = f"another process kept the cache locked for {BUSY_S:.0f} s", "try again when it has ended"
        else:
            what, hint = f"the cache of replies broke: {text}", "move the file away; replies are then requested again"
        return UserError(what, code="unreadable-cache", where=str(self.path), try_this=hint)


_shared: dict[Path, ResponseCache] = {}
_shared_lock = threading.Lock()


def shared(path: Path) -> ResponseCache:
    """Return the cache object of a file, one per file and process, so that identical concurrent calls share one request."""
    path = Path(path).absolute()
    with _shared_lock:
        return _shared.setdefault(path, ResponseCache(path))


def share(path: Path, cache: ResponseCache) -> None:
    """Let `shared` return this cache for a file from now on; in a worker, it is a proxy of another process's cache."""
    with _shared_lock:
        _shared[Path(path).absolute()] = cache


def _unscoped(entry: Entry) -> str:
    """Return the key of an entry's call without its scope."""
    return Call(**json.loads(entry.request)).unscoped if '"scope"' in entry.request else entry.key


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def storable(text: str) -> str:
    """Replace lone surrogates, which UTF-8 and SQLite cannot store, by their JSON escapes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
    return text


# A line is `{"key", "request": {endpoint, model, messages, parameters, repetition}, "reply": {…}, "created"}`; a request may
# have a `revision` and a `scope`, too.


_BATCH = 1000


def export_replies(cache: ResponseCache, path: Path, keys: Iterable[str] | None = None) -> int:
    """Write entries, sorted by key, so that equal caches give equal files except for the times.

    Args:
        cache: The cache to export.
        path: The output file, which is written completely or not at all.
        keys: Only these calls (those of a run); None for all.

    Returns:
        Number of entries written.
    """

    def write(partial: Path) -> int:
        count = 0
        with partial.open("w", encoding="utf-8") as file:
            for entry in cache.entries(keys):
                # Stored JSON texts are written unchanged, so that lone surrogates stay escaped.
                file.write(f'{{"key":"{entry.key}","request":{entry.request},"reply":{entry.reply},"created":{entry.created!r}}}\n')
                count += 1
        return count

    return whole(path, write)


def import_replies(cache: ResponseCache, path: Path) -> int:
    """Add the entries of an export to a cache without changing existing entries, and return the number of new ones.

    Raises:
        UserError: A line is not an entry, or its key does not belong to its request.
    """
    added = 0
    with path.open(encoding="utf-8", errors="strict") as file:
        entries = _entries(file, path)
        while batch := list(islice(entries, _BATCH)):
            added += cache.add(batch)
    return added


def _entries(lines: Iterable[str], path: Path) -> Iterator[Entry]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            call = Call(**row["request"])
            reply = row["reply"]
            if not isinstance(reply, dict):
                raise ValueError("its reply is not an object")
            Completion.from_json(reply)
            if not isinstance(call.revision, str) or not isinstance(call.scope, str):
                raise ValueError("revision and scope must be texts")
            if call.key != row["key"]:
                raise ValueError("its key does not belong to its request")
            created = float(row["created"])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            problem = f"field {error} is missing" if isinstance(error, KeyError) else str(error)
            raise UserError(
                f"this is not an entry of a cache export: {problem}",
                code="not-cache-entry",
                where=f"{path}, line {number}",
                try_this="export the cache again; a changed request has another key",
            ) from None
        text = json.dumps(reply, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        yield Entry(call.key, storable(call.request), storable(text), created)
