"""Faults of endpoints, simulated by a loopback server."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

from ragmeter.scripted import draw
from tests.support.server import ChatRequest, Handler, Refused

PASSING = ("429", "429_after", "500", "slow_bytes", "cut_connection", "invalid_json", "empty_choices", "wrong_content_type")
"""Faults that may not recur on a second attempt."""
LASTING = ("content_filter", "context_overflow")
"""Faults of a prompt: every attempt meets them."""
RETRY_AFTER_S = 0.05
DRIP_S = 0.2


class Faults:
    """Simulated faults; an `intercept` of `OpenAIServer`.

    Which fault, if any, is drawn for each try of each prompt from a hash, so that two servers agree whatever the
    order of calls.

    Args:
        passing: Share of attempts with a transient fault.
        lasting: Share of prompts that the endpoint always refuses.
        kinds: Transient faults to sample from.
        most_in_a_row: Number of faulty attempts after which a prompt is answered, so that tests are deterministic.
        seed: Random seed.

    Attributes:
        played: Count of each fault.
    """

    def __init__(
        self, passing: float = 0.0, lasting: float = 0.0, *, kinds: Sequence[str] = PASSING, most_in_a_row: int = 3, seed: int = 0
    ) -> None:
        self.passing = passing
        self.lasting = lasting
        self.kinds = tuple(kinds)
        self.most_in_a_row = most_in_a_row
        self.seed = seed
        self.played: Counter[str] = Counter()
        self._tries: Counter[str] = Counter()
        self._lock = threading.Lock()

    def lasts(self, prompt: str) -> str | None:
        """Return the fault of a prompt, or None if it is answered."""
        if draw(self.seed, "lasting", prompt) >= self.lasting:
            return None
        return LASTING[int(draw(self.seed, "which", prompt) * len(LASTING))]

    def __call__(self, handler: Handler, request: ChatRequest) -> bool:
        """Reply with a fault; return False if none is due."""
        with self._lock:
            number = self._tries[request.prompt]
            self._tries[request.prompt] += 1
        fault = self.lasts(request.prompt)
        due = number < self.most_in_a_row and draw(self.seed, number, request.prompt) < self.passing
        if fault is None and due:
            fault = self.kinds[int(draw(self.seed, "kind", number, request.prompt) * len(self.kinds))]
        if fault is None:
            return False
        with self._lock:
            self.played[fault] += 1
        play(fault, handler, request)
        return True


def play(fault: str, handler: Handler, request: ChatRequest) -> None:
    """Reply with one fault.

    Raises:
        KeyError: There is no such fault.
    """
    _PLAYS[fault](handler, request)


def _slow_bytes(handler: Handler, request: ChatRequest) -> None:
    """Send an endless reply: one byte at a time, each within the read timeout."""
    handler.close_connection = True
    handler.send_response(200)
    handler.send_header("content-type", "application/json")
    handler.send_header("content-length", "100000")
    handler.end_headers()
    try:
        for _ in range(100):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(DRIP_S)
    except OSError:
        pass  # the client gave up, as it should


def _cut_connection(handler: Handler, request: ChatRequest) -> None:
    handler.close_connection = True
    handler.send_response(200)
    handler.send_header("content-type", "application/json")
    handler.send_header("content-length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.wfile.flush()
    # With a timeout of 0, closing resets the connection.
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.shutdown(socket.SHUT_RDWR)


def _choices(handler: Handler, request: ChatRequest, choices: list[object]) -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 0, "total_tokens": 1}
    handler.send(200, {"id": "f", "object": "chat.completion", "created": 0, "model": "f", "choices": choices, "usage": usage})


def _filtered(handler: Handler, request: ChatRequest) -> None:
    message = {"role": "assistant", "content": None}
    _choices(handler, request, [{"index": 0, "finish_reason": "content_filter", "message": message}])


def _busy(headers: dict[str, str]) -> Callable[[Handler, ChatRequest], None]:
    error = {"error": {"message": "rate limit reached", "type": "requests", "code": "rate_limit_exceeded"}}
    return lambda handler, request: handler.send(429, error, headers)


_PLAYS: dict[str, Callable[[Handler, ChatRequest], None]] = {
    "429": _busy({}),
    "429_after": _busy({"retry-after": str(RETRY_AFTER_S)}),
    "500": lambda handler, request: handler.refuse(Refused(500, "internal error")),
    "slow_bytes": _slow_bytes,
    "cut_connection": _cut_connection,
    "invalid_json": lambda handler, request: handler.send(200, b'{"choices": [{"message": {"content": "hal'),
    "empty_choices": lambda handler, request: _choices(handler, request, []),
    "wrong_content_type": lambda handler, request: handler.send(200, b"<html></html>", {"content-type": "text/html"}),
    "content_filter": _filtered,
    "context_overflow": lambda handler, request: handler.refuse(
        Refused(400, "This model's maximum context length is 10 tokens", "context_length_exceeded")
    ),
}
