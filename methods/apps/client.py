"""Send requests to an application, and receive its reply as one document or as a stream of events.

Timeouts apply to the whole reply. Redirects are not followed, because the target is often a login page, which must not receive
the headers. Cookies are not kept, because an app may keep the conversation of a session.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Mapping
from typing import Any, Literal

from benchmarks.core.errors import MissingPackage
from methods.apps.stated import stated_error, unfinished
from methods.models import secrets
from methods.models.connection import no_cookies, opened, require_headers, retry_after
from methods.models.endpoint import PASSING, WHOLE, Fault, incomplete
from methods.models.limits import Signal

Stream = Literal["sse", "lines"]
_EXCERPT = 160
_FAILED = re.compile(r"^event: ?error\b", re.MULTILINE)
_STREAM_BEGINS = re.compile(rb"\s*(?:(?::|event:|id:|retry:)[^\n]*\n[ \t\r\n]*)*data: ?[\[{\"]")
_HTML = (b"<!doctype html", b"<html", b"<head", b"<body")
_ADVICE = {
    401: "the app refuses the credentials: check headers and their environment variables",
    403: "the app refuses access: check headers and their environment variables",
    404: "there is nothing at this URL: check url",
    405: "the app does not take this HTTP method: check method",
    415: "the app does not take this content type: check headers and body",
    422: "the app refuses the request: check body",
    400: "the app refuses the request: check body",
}
HOPELESS = frozenset((401, 403, 404, 405, 415))
"""HTTP status codes that stop the run if no request has succeeded yet, because every further request would fail, too."""


def excerpt(body: bytes | str) -> str:
    """Return the beginning of a reply as one line, with secrets masked."""
    text = body if isinstance(body, str) else body[: 8 * _EXCERPT].decode("utf-8", "replace")
    flat = " ".join(secrets.hidden(text).split())
    return flat if len(flat) <= _EXCERPT else f"{flat[:_EXCERPT]}…"


class Client:
    """HTTP client of one application. Use it on the event loop only.

    Args:
        connections: Maximum connections.
        timeout_s: Timeout for a whole reply, in seconds.
        longest_bytes: Maximum reply size.
        longest_wait_s: Maximum pause that the app may request (Retry-After).
        advice: Hints for errors, by status code.

    Attributes:
        reached: Whether any response was received.
    """

    def __init__(
        self, connections: int, timeout_s: float, longest_bytes: int, longest_wait_s: float, advice: Mapping[int, str] = _ADVICE
    ) -> None:
        try:
            import httpx
        except ImportError as error:
            raise MissingPackage(error.name or "httpx", "llm", "the method http") from error
        self._httpx = httpx
        self._connections, self._timeout_s = connections, timeout_s
        self._longest_bytes, self._longest_wait_s = longest_bytes, longest_wait_s
        self._advice = advice
        self._client: Any = None
        self._pid = 0
        self.reached = False

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None, stream: Stream | None
    ) -> tuple[Any, list[Any]]:
        """Send a request and return the reply.

        Returns:
            The parsed document (text if it is not JSON), and the events of a stream.

        Raises:
            Fault: There was no reply, or its status is an error.
            UserError: A header, or a proxy or certificate of the environment cannot be used.
        """
        if self._client is None or self._pid != os.getpid():  # a forked child must not use its parent's connections
            limits = self._httpx.Limits(max_connections=self._connections, max_keepalive_connections=self._connections)
            options = {"timeout": None, "limits": limits, "follow_redirects": False, "cookies": no_cookies()}
            self._client = opened(lambda: self._httpx.AsyncClient(**options))
            self._pid = os.getpid()
            require_headers(headers, "headers")
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._client.stream(method, url, headers=dict(headers), content=content) as response,
            ):
                self.reached = True
                body = await self._body(response)
        except TimeoutError:
            raise Fault(f"timed out after {self._timeout_s:g} s (timeout_s)", "retry", signal="broken") from None
        except (self._httpx.InvalidURL, self._httpx.UnsupportedProtocol) as error:
            raise Fault(f"the URL cannot be used: {excerpt(str(error))}", "fail") from None
        except self._httpx.HTTPError as error:
            reason = excerpt(str(error)) or type(error).__name__
            raise Fault(f"no reply: {reason}", "retry", signal="broken", reached=self.reached) from None
        self._require(response.status_code, response.headers, body)
        kind = response.headers.get("content-type", "")
        return (None, _events(body, stream)) if stream else (_document(body, kind), [])

    @property
    def connected(self) -> bool:
        """Return whether there are connections to close."""
        return self._client is not None and self._pid == os.getpid()

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        await client.aclose()

    async def _body(self, response: Any) -> bytes:
        parts, size = [], 0
        async for part in response.aiter_bytes():
            size += len(part)
            if size > self._longest_bytes:
                raise Fault(f"the reply is longer than {self._longest_bytes / 2**20:.3g} MiB (largest_mib)", "fail")
            parts.append(part)
        return b"".join(parts)

    def _require(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Raise a fault unless the status means a complete reply.

        Raises:
            Fault: The status is an error.
        """
        if status in WHOLE:
            return
        if status < 300:
            raise incomplete(status)
        if 300 <= status < 400:
            place = excerpt(headers.get("location", "nowhere"))
            raise Fault(f"HTTP {status}: redirects to {place}, which may be a login page: check url and headers", "fail", status=status)
        advice = self._advice.get(status, "")
        reason = f"HTTP {status}" + (f": {text}" if (text := excerpt(body)) else "") + (f" ({advice})" if advice else "")
        if status in PASSING or status >= 500:
            signal: Signal = "busy" if status in (429, 503) else "ok"
            after = retry_after(headers)
            if after is not None and after > self._longest_wait_s:
                raise Fault(f"{reason} (it asks to wait {after:.0f} s; longest_wait_s is {self._longest_wait_s:g})", "fail", status=status)
            raise Fault(reason, "retry", signal=signal, status=status, after=after)
        raise Fault(reason, "fail", status=status)


def _document(body: bytes, kind: str) -> Any:
    """Parse a reply as JSON, else as text.

    Raises:
        Fault: The reply is an HTML page, or invalid JSON despite its content type.
    """
    begins = body[:200].lstrip().lower()
    text = _text(body, kind)
    try:
        document = json.loads(body if text is None else text.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        if "html" in kind.lower() or begins.startswith(_HTML):
            raise Fault(
                f"the reply is an HTML page, not an answer: {excerpt(body)!r} (is url the app's API? it may be a login page)",
                "fail",
                misdirected=True,
            ) from None
        if "event-stream" in kind.lower() or _STREAM_BEGINS.match(body):
            raise Fault(f"the reply is a stream of events: {excerpt(body)!r} (stream: sse reads it)", "fail", misdirected=True) from None
        if "ndjson" in kind.lower() or _holds_lines(body):
            raise Fault(f"the reply is JSON Lines: {excerpt(body)!r} (stream: lines reads it)", "fail", misdirected=True) from None
        if "json" in kind.lower() or begins[:1] in (b"{", b"["):
            raise Fault(f"the reply is broken JSON: {excerpt(body)!r}" if begins else "the reply is empty", "retry") from None
        document = None if text is None else text.removeprefix("\ufeff")
    else:
        # A text such as 1.50 or true is no JSON value, so it stays as the app wrote it.
        if text is not None and kind.lower().startswith("text/plain") and not isinstance(document, str | list | dict):
            document = text.strip()
    if text is None and document is None:
        raise Fault(f"the reply is neither JSON nor a text (content type {kind or 'not stated'})", "fail")
    return document


def _holds_lines(body: bytes) -> bool:
    """Return whether a body consists of several JSON documents, one per line."""
    lines = [line for line in body.splitlines() if line.strip()]
    return len(lines) > 1 and all(line.lstrip().startswith(b"{") for line in lines) and not any(_broken(line) for line in lines[:2])


def _text(body: bytes, kind: str) -> str | None:
    """Decode a reply by the charset that its content type states, else as UTF-8; None if it is not text.

    Many servers state a charset that they do not use, so a text with other letters than ASCII that is valid UTF-8 is UTF-8.
    """
    stated = re.search(r"charset\s*=\s*[\"']?([\w.:-]+)", kind, re.IGNORECASE)
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        text = None
    if stated is None or (text is not None and not text.isascii()):
        return text
    try:
        return body.decode(stated[1])
    except (UnicodeDecodeError, LookupError):
        return text


def require_no_error(document: Any, *, event: bool = False) -> None:
    """Check that a document or an event of a stream states no error, because its answer may then be partial or an excuse.

    Raises:
        Fault: It has an error, or a chat's finish reason is one; or a document says that it failed.
    """
    if isinstance(document, Mapping) and (stated := stated_error(document, event=event)):
        reason = f"the {'stream' if event else 'reply'} reports an error: {excerpt(json.dumps(stated, ensure_ascii=False))}"
        raise Fault(reason, "retry" if event else "fail")


def _events(body: bytes, stream: Stream) -> list[Any]:
    """Parse a stream of Server-Sent Events or JSON lines.

    Raises:
        Fault: There are no events, or one is malformed or reports an error.
    """
    if body[:200].lstrip().lower().startswith(_HTML):
        _document(body, "html")
    try:
        text = body.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise Fault(f"the stream is not a text in UTF-8: {excerpt(body)!r}", "fail") from None
    if stream == "lines":
        chunks = [line for line in text.split("\n") if line.strip()]
    else:
        blocks = text.split("\n\n")
        if failed := next((block for block in blocks if _FAILED.search(block)), None):
            raise Fault(f"the stream reports an error: {excerpt(failed)}", "retry")
        joined = ("\n".join(line[5:].removeprefix(" ") for line in block.split("\n") if line.startswith("data:")) for block in blocks)
        chunks = [chunk for chunk in joined if chunk]
    ended = any(chunk.strip() == "[DONE]" for chunk in chunks)
    chunks = [chunk for chunk in chunks if chunk.strip() != "[DONE]"]
    events: list[Any] = list(chunks)  # pieces of a plain text, unless they are JSON
    if stream == "lines" or any(chunk.lstrip().startswith(("{", "[{", '"')) for chunk in chunks):
        chunks = [chunk for chunk in chunks if chunk.strip()]
        if broken := next(filter(_broken, chunks), ""):
            raise Fault(f"an event of the stream is not JSON: {excerpt(broken)!r}", "retry")
        events = [json.loads(chunk) for chunk in chunks]
    for event in events:
        require_no_error(event, event=True)
    if unfinished(events, ended):
        raise Fault("the stream ends before the answer is complete", "retry")
    if not events:
        raise Fault(f"the stream has no events: {excerpt(body)!r} (stream: {stream})", "retry")
    return events


def _broken(chunk: str | bytes) -> bool:
    try:
        json.loads(chunk)
    except (ValueError, RecursionError):
        return True
    return False
