"""Call the hub with retries for transient failures and clear errors for permanent ones."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from benchmarks.core.errors import Broke, UserError

T = TypeVar("T")

TRIES = 5
WAIT_S = 1.0
"""Seconds before the first retry; doubled for each further one, unless the hub sends Retry-After."""
MOST_WAIT_S = 60.0
PATIENCE_S = 20.0
"""Seconds after which a metadata request is no longer retried; file transfers still resume."""
CONNECT_S = 5.0
"""Connection timeout in seconds, after which the hub counts as unreachable."""
KNOWN_S = 30.0
"""Seconds for which the result of a reachability check is cached."""

_PASSING = {408, 429, 500, 502, 503, 504}
_TRANSPORTS = {"httpx", "httpx2", "requests", "urllib3", "httpcore", "httpcore2"}
"""HTTP libraries of huggingface_hub's versions, whose errors mean connection failures."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Requested repository, revision and file, for error messages."""

    repository: str
    revision: str
    endpoint: str
    file: str | None = None


def ask(call: Callable[[], T], wanted: Wanted) -> T:
    """Call the hub, retrying transient failures, and return the result.

    Raises:
        UserError: The resource does not exist or is gated.
        Broke: The hub cannot be reached or fails, or the disk is full.
    """
    _require_connection(wanted)
    began = time.monotonic()
    for number in range(TRIES):
        try:
            return call()
        except Exception as error:
            late = wanted.file is None and time.monotonic() - began > PATIENCE_S
            if number == TRIES - 1 or late or not _passes(error):
                message = _message(error, wanted)
                if message is None:
                    raise
                raise message from error
            wait = min(_wait(error, number), MOST_WAIT_S)
        time.sleep(wait)
    raise AssertionError("the last try returns or raises")


def behind_proxy() -> bool:
    """Return whether requests go through a proxy, which resolves the hub's address itself."""
    from urllib.request import getproxies

    return bool({"http", "https", "all"} & set(getproxies()))


_reached: dict[str, tuple[float, OSError | None]] = {}
"""Time of the last connection attempt and its error, per endpoint."""


def _require_connection(wanted: Wanted) -> None:
    """Raise an error if the hub is unreachable; the hub's own library would retry for minutes."""
    if behind_proxy():
        return
    when, problem = _reached.get(wanted.endpoint, (float("-inf"), None))
    if time.monotonic() - when > KNOWN_S:
        problem = _problem(wanted.endpoint)
        _reached[wanted.endpoint] = (time.monotonic(), problem)
    if problem is not None:
        raise _unreachable(wanted, problem) from problem


def _problem(endpoint: str) -> OSError | None:
    try:
        at = urlsplit(endpoint)
        port = at.port or (80 if at.scheme == "http" else 443)
    except ValueError as error:
        return OSError(str(error))
    for number in range(2):
        try:
            socket.create_connection((at.hostname or "", port), CONNECT_S).close()
        except OSError as error:
            problem = error
            if isinstance(error, TimeoutError):
                break
            if number == 0:
                time.sleep(WAIT_S)
        else:
            return None
    return problem


def _passes(error: BaseException) -> bool:
    """Return whether an error is transient."""
    status = _status(error)
    return status in _PASSING if status is not None else _is_connection(error)


def _status(error: BaseException) -> int | None:
    code = getattr(getattr(error, "response", None), "status_code", None)
    return code if isinstance(code, int) else None


def _is_connection(error: BaseException) -> bool:
    if type(error).__module__.partition(".")[0] in _TRANSPORTS:
        return True
    # huggingface_hub hides a lost connection behind "not found in the cache", and a short answer in an OSError.
    cause = error.__cause__
    if cause is not None and type(error).__name__ == "LocalEntryNotFoundError":
        return _passes(cause)
    return "Consistency check failed" in str(error)


def _wait(error: BaseException, number: int) -> float:
    headers: Any = getattr(getattr(error, "response", None), "headers", {})
    try:
        return float(headers.get("Retry-After", ""))
    except ValueError:
        return WAIT_S * 2.0**number


def _unreachable(wanted: Wanted, reason: object) -> Broke:
    return Broke(
        f"the hub cannot be reached for {wanted.file or wanted.repository}: {reason}",
        code="hub-unreachable",
        where=f"{wanted.endpoint}/datasets/{wanted.repository}",
        try_this="check the connection and HF_ENDPOINT; downloaded files need no connection (set path to them)",
    )


def _message(error: Exception, wanted: Wanted) -> UserError | None:
    """Convert an exception to the error to show; None if it is not the hub's."""
    repository, revision, file = wanted.repository, wanted.revision, wanted.file
    kinds = {kind.__name__ for kind in type(error).__mro__}
    page = f"{wanted.endpoint}/datasets/{repository}"
    status = _status(error)
    if "GatedRepoError" in kinds or status == 403:
        return UserError(
            f"{repository} is gated: its owner must grant access",
            code="access-asked-gated",
            where=page,
            try_this="accept its terms on that page, then log in with `hf auth login`, or set HF_TOKEN",
        )
    if "RevisionNotFoundError" in kinds:
        return UserError(
            f"{repository} has no revision {revision!r}", code="no-revision", where=page, try_this="set revision to a commit, tag or branch"
        )
    if "RepositoryNotFoundError" in kinds or status == 401:
        return UserError(
            f"the hub has no data repository {repository!r}, or it is private",
            code="unknown-hub-repository",
            where=page,
            try_this="correct the id; for a private one log in with `hf auth login`, or set HF_TOKEN",
        )
    if "EntryNotFoundError" in kinds and "LocalEntryNotFoundError" not in kinds:
        return UserError(f"{repository} has no file {file!r} at revision {revision}", code="file-not-in-revision", where=page)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Broke(
            f"the disk is full: {file or repository} could not be written",
            code="disk-full",
            where=error.filename or page,
            try_this="make room there, or set HF_HOME to a folder on another disk",
        )
    if status == 429:
        return Broke(
            "the hub temporarily refuses further requests (429)",
            code="hub-rate-limit",
            where=page,
            try_this="wait, or log in with `hf auth login`: known users are allowed more",
        )
    if status is not None:
        return Broke(f"the hub fails with status {status}, after {TRIES} tries", code="hub-failed", where=page, try_this="try again later")
    if _is_connection(error) or "OfflineModeIsEnabled" in kinds or "LocalEntryNotFoundError" in kinds:
        reason = (str(error.__cause__ or error).strip() or type(error).__name__).splitlines()[0]
        return _unreachable(wanted, reason)
    if isinstance(error, OSError):
        return Broke(
            f"{file or repository} could not be kept: {error.strerror or error}", code="file-not-kept", where=error.filename or page
        )
    if "HFValidationError" in kinds:
        return UserError(
            f"{repository!r} is not the id of a repository: {str(error).splitlines()[0]}", code="bad-repository-id", where=page
        )
    return None
