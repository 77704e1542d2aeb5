"""Redirects of a chat endpoint: they are named with the address that they point to, and never followed without the request or the key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from methods.models.chat import ChatModel
from methods.models.chat_config import ChatConfig
from tests.support.errors import raises
from tests.support.server import ChatRequest, Handler, OpenAIServer, Written

ASK = [{"role": "user", "content": "Who?"}]


def _chat(url: str, **options: Any) -> ChatModel:
    return ChatModel(
        ChatConfig.model_validate({"model": "m", "base_url": url, "key_variable": None, "attempts": 3, "backoff_s": 0, **options})
    )


class _Redirect:
    """Handler of requests that answers with a redirect, as an `intercept` of `OpenAIServer`."""

    def __init__(self, status: int, location: str) -> None:
        self.status, self.location = status, location

    def __call__(self, handler: Handler, request: ChatRequest) -> bool:
        if "moved" in handler.path:
            return False
        handler.send(self.status, b"", {"location": self.location, "content-type": "text/html"})
        return True


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    server = OpenAIServer("m", lambda request: Written("Ann"))
    with server.running():
        yield server


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("check", ["preflight", "ask"])
def test_redirect_to_another_server_names_its_address(server: OpenAIServer, status: int, check: str) -> None:
    server.intercept = _Redirect(status, "https://models.example/api/v1/chat/completions")
    model = _chat(server.url)
    with raises("endpoint-redirects") as caught:
        model.preflight() if check == "preflight" else model.complete([ASK])
    assert f"HTTP {status}" in caught.value.what
    assert "https://models.example/api/v1/chat/completions" in caught.value.what
    assert str(caught.value.try_this).endswith("base_url: https://models.example/api/v1")
    assert caught.value.exit_code == 2
    assert server.calls == 1, "it was not tried again"


def test_redirect_on_one_server_that_would_drop_the_request_is_named(server: OpenAIServer) -> None:
    server.intercept = _Redirect(302, "/v1/moved/chat/completions")
    with raises("endpoint-redirects") as caught:
        _chat(server.url).preflight()
    assert str(caught.value.try_this).endswith(f"base_url: {server.url}/moved")


def test_redirect_to_a_page_without_a_chat_endpoint_is_no_advice(server: OpenAIServer) -> None:
    server.intercept = _Redirect(302, "https://login.example/?next=/v1")
    with raises("endpoint-redirects") as caught:
        _chat(server.url).preflight()
    assert "login.example" in caught.value.what
    assert "login.example" not in str(caught.value.try_this)


def test_redirect_that_keeps_the_request_is_followed(server: OpenAIServer) -> None:
    """A server that adds a slash by 307 works as before."""

    def slash(handler: Handler, request: ChatRequest) -> bool:
        if handler.path.endswith("/"):
            return False
        handler.send(307, b"", {"location": f"{handler.path}/"})
        return True

    server.intercept = slash
    assert [reply.text for reply in _chat(server.url).complete([ASK])] == ["Ann"]


def test_stream_that_was_not_requested_is_named_without_blaming_the_address(server: OpenAIServer) -> None:
    def stream(handler: Handler, request: ChatRequest) -> bool:
        handler.send(200, b'data: {"choices": [{"delta": {"content": "Ann"}}]}\n\ndata: [DONE]\n\n', {"content-type": "text/event-stream"})
        return True

    server.intercept = stream
    with raises("endpoint-error") as caught:
        _chat(server.url).preflight()
    assert "stream" in str(caught.value.try_this)
    assert "base_url" not in f"{caught.value.what} {caught.value.try_this}"


def test_redirect_does_not_show_a_key(server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret-123456")
    server.intercept = _Redirect(301, "https://models.example/v1/chat/completions?key=sk-secret-123456")
    with raises("endpoint-redirects") as caught:
        _chat(server.url, key_variable="MY_KEY").preflight()
    assert "sk-secret-123456" not in str(caught.value)


def test_later_redirect_fails_only_its_own_call(server: OpenAIServer) -> None:
    model = _chat(server.url)
    assert model.complete([ASK])[0].text == "Ann"
    server.intercept = _Redirect(302, "https://models.example/v1/chat/completions")
    assert "redirects to https://models.example" in str(model.complete([ASK])[0].failed)
