"""Endpoint that can be set to busy, for tests of pace and limits."""

from __future__ import annotations

import threading
import time
from typing import Any

from methods.models.chat import ChatModel
from methods.models.chat_config import ChatConfig
from tests.support.server import ChatRequest, OpenAIServer, Written


class Endpoint:
    """Server that can be set to busy; counts calls in flight.

    Attributes:
        together: Calls are held until so many were in flight at once, however slow this machine is.
    """

    def __init__(self) -> None:
        self.refuse: Any = lambda request: None
        self.delay = 0.0
        self.now = self.most = self.together = 0
        self._met = threading.Event()
        self.starts: list[float] = []
        self.lock = threading.Lock()
        self.server = OpenAIServer("m", self.answer)

    def answer(self, request: ChatRequest) -> Written:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
            self.starts.append(time.monotonic())
            if self.most >= self.together:
                self._met.set()
        self._met.wait(30)
        try:
            time.sleep(self.delay)
            refused = self.refuse(request)
            if refused is not None:
                raise refused
            return Written("ok", 10, 2)
        finally:
            with self.lock:
                self.now -= 1

    def chat(self, **options: Any) -> ChatModel:
        """Return a chat model of this endpoint."""
        extra = {name: options.pop(name) for name in ("cache", "role", "usage_by_role") if name in options}
        config = {"model": "m", "base_url": self.server.url, "key_variable": None, "backoff_s": 0.001, **options}
        return ChatModel(ChatConfig(**config), **extra)


def prompts(count: int, text: str = "say") -> list[list[dict[str, str]]]:
    return [[{"role": "user", "content": f"{text} {number}"}] for number in range(count)]
