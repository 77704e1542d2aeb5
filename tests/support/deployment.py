"""A deployment behind one address on loopback: its answers, its reported identity, and documents about its build."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.support.server import Handler, OpenAIServer, Refused, Written


class Deployment(OpenAIServer):
    """Model `m` at an endpoint that can be replaced behind the same name.

    Attributes:
        answer_text: Its answer.
        created: Returns `created` of its entry in `/v1/models`; None if the server has no such list.
        system: Its `system_fingerprint`.
        documents: Status, JSON value (or bytes) and headers by path.
        delay: Seconds before a document is sent.
        asked: Requested paths in order.
    """

    def __init__(self) -> None:
        super().__init__("m", lambda request: Written(self.answer_text, 3, 1))
        self.answer_text = "Ann"
        self.created: Callable[[], Any] | None = lambda: 0
        self.system = ""
        self.documents: dict[str, tuple[int, Any, dict[str, str]]] = {}
        self.delay = 0.0
        self.asked: list[str] = []
        self.RequestHandlerClass = _Handler


class _Handler(Handler):
    server: Deployment

    def do_GET(self) -> None:
        server = self.server
        server.asked.append(self.path)
        time.sleep(server.delay)
        if self.path in server.documents:
            status, value, headers = server.documents[self.path]
            self.send(status, value, headers)
        elif self.path == "/v1/models" and server.created is not None:
            entries = [{"id": "other", "created": 5}, {"id": server.model, "object": "model", "created": server.created()}]
            self.send(200, {"object": "list", "data": entries})
        else:
            self.refuse(Refused(404, f"there is nothing at {self.path}"))

    def completion(self, written: Written) -> dict[str, Any]:
        system = self.server.system
        return super().completion(written) | ({"system_fingerprint": system} if system else {})
