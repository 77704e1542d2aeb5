"""An application on loopback: a function from a request to a status, a body and headers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from benchmarks.schema import Passage


@dataclass(frozen=True)
class Asked:
    """Request as received by the application."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Reply = tuple[int, Any, Mapping[str, str]]
"""Status, body (bytes, or a JSON value) and headers."""


@contextmanager
def app(reply: Callable[[Asked], Reply | Any]) -> Iterator[tuple[str, list[Asked]]]:
    """Serve an application; return the URL, and the requests as they arrive.

    A result other than `Reply` is sent as JSON with status 200.
    """
    requests: list[Asked] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = Asked(self.path, dict(self.headers), self.rfile.read(int(self.headers.get("content-length", 0))))
            requests.append(request)
            answer = reply(request)
            status, body, headers = answer if isinstance(answer, tuple) else (200, answer, {})
            raw = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in {"content-type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_POST

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Ignore errors of clients that disconnected."""

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/ask", requests
    finally:
        server.shutdown()
        server.server_close()


def shout(question: str) -> str:
    """Answer a question by its first word in capitals."""
    return question.split()[0].upper()


def find(question: str, k: int, passages: Sequence[Passage]) -> list[tuple[str, int]]:
    """Rank passages by the words that they share with the question."""
    words = set(question.lower().split())
    shared = [(passage.id, len(words & set(passage.full_text.lower().split()))) for passage in passages]
    return sorted(shared, key=lambda pair: (-pair[1], pair[0]))[:k]
