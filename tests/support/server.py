"""The server of the OpenAI protocol: `/v1/models` and `/v1/chat/completions` on loopback, one thread per connection."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from benchmarks.core.errors import UserError

LONGEST_REQUEST = 64 * 2**20
"""Maximum bytes of a request; larger ones are refused unread."""
POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """Request of a client.

    Attributes:
        model: Requested model name.
        messages: The conversation.
        max_tokens: Maximum tokens of the reply; None if not given.
        body: Complete request body.
    """

    model: str
    messages: tuple[dict[str, str], ...]
    max_tokens: int | None
    body: Mapping[str, Any] = field(default_factory=dict)

    @property
    def prompt(self) -> str:
        """Return the last message."""
        return self.messages[-1]["content"] if self.messages else ""


@dataclass(frozen=True, slots=True)
class Written:
    """Answer of a server."""

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish_reason: str = "stop"


class Refused(Exception):
    """Request that is answered by an error.

    Args:
        status: HTTP status.
        message: Error message for the client.
        code: The protocol's error code.
    """

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code


class OpenAIServer(ThreadingHTTPServer):
    """An OpenAI-compatible endpoint.

    Args:
        model: Its model name; requests for another are refused unless `any_model` is set.
        answer: Maps a request to a reply; called concurrently from many threads. Raises `Refused`.
        host: Address to listen on.
        port: 0 selects a free port.
        any_model: Whether every model name is accepted.
        intercept: Called with the handler and the request before `answer`; it returns True if it has replied.

    Raises:
        UserError: The address cannot be listened on.
    """

    daemon_threads = True
    request_queue_size = 512

    def __init__(
        self,
        model: str,
        answer: Callable[[ChatRequest], Written],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        any_model: bool = False,
        intercept: Callable[[Handler, ChatRequest], bool] | None = None,
    ) -> None:
        self.model = model
        self.answer = answer
        self.any_model = any_model
        self.intercept = intercept
        self.calls = 0
        self.lock = threading.Lock()
        try:
            super().__init__((host, port), Handler)
        except OSError as error:
            raise UserError(
                f"cannot listen on {host}:{port}: {error.strerror or error}",
                where="--host, --port",
                try_this="another port, or end the program that listens there",
            ) from None

    @property
    def url(self) -> str:
        """Return the base URL for clients."""
        host, port = self.server_address[:2]
        name = host.decode() if isinstance(host, bytes | bytearray) else str(host)
        return f"http://{'127.0.0.1' if name == '0.0.0.0' else name}:{port}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect during a reply."""

    @contextmanager
    def running(self) -> Iterator[str]:
        """Serve from a thread for the length of a block; yield the base URL."""
        thread = threading.Thread(target=self.serve_forever, args=(POLL_S,), name="openai-server", daemon=True)
        thread.start()
        try:
            yield self.url
        finally:
            self.shutdown()
            thread.join()
            self.server_close()


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body leave in one packet; apart they would wait for each other's acknowledgement
    disable_nagle_algorithm = True
    server: OpenAIServer
    only: tuple[tuple[str, tuple[Any, ...]], ...] = (
        ("stream", (None, False)),
        ("n", (None, 1)),
        ("logprobs", (None, False)),
        ("tools", (None,)),
    )
    """Permitted values of fields; others are refused."""

    def do_GET(self) -> None:
        """List the model."""
        if self.path.rstrip("/") != "/v1/models":
            self.refuse(Refused(404, f"there is nothing at {self.path}"))
            return
        model = {"id": self.server.model, "object": "model", "created": 0, "owned_by": "ragmeter"}
        self.send(200, {"object": "list", "data": [model]})

    def do_POST(self) -> None:
        """Answer a conversation."""
        try:
            request = self._request()
            with self.server.lock:
                self.server.calls += 1
            if self.server.intercept is not None and self.server.intercept(self, request):
                return
            written = self.server.answer(request)
        except Refused as refused:
            self.refuse(refused)
            return
        except Exception as error:  # a client must not wait for a reply that never comes
            self.refuse(Refused(500, f"{type(error).__name__}: {error}"))
            return
        self.send(200, self.completion(written))

    def _request(self) -> ChatRequest:
        try:
            length = int(self.headers["content-length"])
        except (TypeError, ValueError):
            self.close_connection = True
            raise Refused(411, "the request says no length") from None
        if not 0 <= length <= LONGEST_REQUEST:
            self.close_connection = True
            raise Refused(413, f"a request may have {LONGEST_REQUEST:,} bytes")
        raw = self.rfile.read(length)
        if self.path.split("?")[0].rstrip("/") != "/v1/chat/completions":
            raise Refused(404, f"there is nothing at {self.path}")
        try:
            body = json.loads(raw)
        except ValueError:
            raise Refused(400, "the request is not JSON") from None
        if not isinstance(body, dict):
            raise Refused(400, "the request is not an object")
        if body.get("model") != self.server.model and not self.server.any_model:
            raise Refused(404, f"the model {body.get('model')!r} does not exist", "model_not_found")
        for name, only in self.only:
            if body.get(name) not in only:
                raise Refused(400, f"this server does not know {name}={body[name]!r}")
        messages = _messages(body.get("messages"))
        limit = body.get("max_completion_tokens") or body.get("max_tokens")
        if limit is not None and (not isinstance(limit, int) or limit < 1):
            raise Refused(400, f"max_tokens must be a positive whole number, not {limit!r}")
        return ChatRequest(str(body.get("model")), messages, limit, body)

    def completion(self, written: Written) -> dict[str, Any]:
        """Return the reply in the protocol's format."""
        message = {"role": "assistant", "content": written.text}
        choice = {"index": 0, "finish_reason": written.finish_reason, "logprobs": None, "message": message}
        prompt, wrote = written.prompt_tokens, written.completion_tokens
        return {
            "id": "ragmeter",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": self.server.model,
            "choices": [choice],
            "usage": {"prompt_tokens": prompt, "completion_tokens": wrote, "total_tokens": prompt + wrote},
        }

    def refuse(self, refused: Refused) -> None:
        """Send an error."""
        kind = "server_error" if refused.status >= 500 else "invalid_request_error"
        error = {"message": refused.message, "type": kind, "param": None, "code": refused.code}
        self.send(refused.status, {"error": error})

    def send(self, status: int, value: Any, headers: Mapping[str, str] | None = None) -> None:
        """Send a value as JSON; bytes unchanged."""
        raw = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"content-type": "application/json", **(headers or {})}.items():
            self.send_header(name, text)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)
        self.wfile.flush()

    def log_message(self, *_: Any) -> None:
        """Print nothing, because conversations are private."""


def _messages(options: Any) -> tuple[dict[str, str], ...]:
    if not isinstance(options, Sequence) or isinstance(options, str) or not options:
        raise Refused(400, "messages must be a list of at least one message")
    messages = []
    for message in options:
        if not isinstance(message, dict) or message.get("role") not in ("system", "developer", "user", "assistant"):
            raise Refused(400, "a message is an object with a role (system, user, assistant) and a content")
        content = message.get("content")
        if isinstance(content, list):
            content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
        if not isinstance(content, str):
            raise Refused(400, "a message's content must be text")
        role = "system" if message["role"] == "developer" else message["role"]
        messages.append({"role": role, "content": content})
    return tuple(messages)
