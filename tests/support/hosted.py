"""A loopback server with the embedding and reranking dialects, which refuses requests with a wrong field."""

from __future__ import annotations

import base64
import json
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "key-0123456789-abcdef"
WIDTH = 16

Fault = Callable[["Hosted", str, dict[str, Any]], tuple[int, Any, dict[str, str]] | None]


def vector(text: str, width: int = WIDTH) -> list[float]:
    """Return hashed word counts, so that texts with common words are similar."""
    values = [0.0] * width
    for word in text.lower().replace(".", " ").replace("?", " ").split():
        values[zlib.crc32(word.encode()) % width] += 1.0
    return values if any(values) else [1.0] * width


def relevance(query: str, text: str) -> float:
    """Return the number of common words."""
    return float(len(set(query.lower().rstrip("?").split()) & set(text.lower().rstrip(".").split())))


class Hosted(ThreadingHTTPServer):
    """The server.

    Attributes:
        requests: Path and body of all requests with the right key.
        fault: Reply to send instead of the right one; None for the right one.
        most: Maximum texts per request; beyond it, the server answers 413.
        info: Reply to a GET, such as TEI's /info.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.fault: Fault = lambda server, path, body: None
        self.most = 10_000
        self.info: tuple[int, Any, dict[str, str]] = (200, {"model_id": "BAAI/bge-small", "model_sha": "abc123"}, {})
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Hosted

    def log_message(self, *arguments: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._send(*self.server.info)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.headers.get("authorization") != f"Bearer {KEY}" and not self.path.startswith("/tei"):
            self._send(401, {"error": {"message": f"wrong key {self.headers.get('authorization')}"}}, {})
            return
        self.server.requests.append((self.path, body))
        known = self.server.fault(self.server, self.path, body)
        try:
            self._send(*(known or (200, reply(self.path, body, self.server.most), {})))
        except TooLarge:
            self._send(413, {"error": "too large"}, {})
        except (KeyError, AssertionError) as error:
            self._send(400, {"error": f"{error!r} in {sorted(body)}"}, {})

    def _send(self, status: int, value: Any, headers: dict[str, str]) -> None:
        content = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"content-type": "application/json", "content-length": str(len(content)), **headers}.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(content)


class TooLarge(Exception):
    pass


def reply(path: str, body: dict[str, Any], most: int) -> Any:
    """Return the response of a dialect's provider."""
    texts = body.get("input") or body.get("texts") or body.get("inputs") or body["documents"]
    if len(texts) > most:
        raise TooLarge
    assert all(isinstance(text, str) and text for text in texts)
    match path:
        case "/openai/embeddings":
            assert not set(body) - {"model", "input", "encoding_format", "dimensions"}
            rows = [vector(text, body.get("dimensions", WIDTH)) for text in texts]
            sent = [base64.b64encode(struct.pack(f"<{len(row)}f", *row)).decode() for row in rows]
            rows = sent if body.get("encoding_format") == "base64" else rows  # type: ignore[assignment]
            data = [{"object": "embedding", "index": at, "embedding": row} for at, row in enumerate(rows)]
            return {"data": data[::-1], "usage": {"prompt_tokens": 7 * len(texts), "total_tokens": 7 * len(texts)}}
        case "/cohere/embed":
            assert body["input_type"] in ("search_query", "search_document")
            assert body["truncate"] in ("NONE", "END")
            assert body["embedding_types"] == ["float"]
            rows = [vector(text, body.get("output_dimension", WIDTH)) for text in texts]
            return {"embeddings": {"float": rows}, "meta": {"billed_units": {"input_tokens": 7 * len(texts)}}}
        case "/jina/embeddings" | "/voyage/embeddings":
            assert (body.get("task") or body["input_type"]) in ("retrieval.query", "retrieval.passage", "query", "document")
            rows = [vector(text, body.get("dimensions") or body.get("output_dimension") or WIDTH) for text in texts]
            return {"data": [{"index": at, "embedding": row} for at, row in enumerate(rows)], "usage": {"total_tokens": 7 * len(texts)}}
        case "/tei/embed":
            assert set(body) == {"inputs", "truncate", "normalize"}
            return [vector(text) for text in texts]
        case "/tei/rerank":
            assert set(body) == {"query", "texts", "truncate", "raw_scores"}
            scores = [{"index": at, "score": relevance(body["query"], text)} for at, text in enumerate(texts)]
            return sorted(scores, key=lambda item: -item["score"])
        case "/cohere/rerank" | "/jina/rerank" | "/voyage/rerank":
            assert body["model"]
            results = [{"index": at, "relevance_score": relevance(body["query"], text)} for at, text in enumerate(texts)]
            results.sort(key=lambda item: -item["relevance_score"])
            return {"data" if path.startswith("/voyage") else "results": results, "usage": {"total_tokens": 9}}
    raise KeyError(path)


@contextmanager
def hosted() -> Iterator[Hosted]:
    """Run the server on a free port."""
    with Hosted() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server
        server.shutdown()
