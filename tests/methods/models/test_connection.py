"""What a connection needs is checked before the first request: address, headers, fields, proxy and certificates."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from pydantic import ValidationError

from methods.apps.client import Client
from methods.flow import run
from methods.models.chat import ChatModel
from methods.models.chat_config import ChatConfig
from methods.models.connection import require_headers
from tests.support.errors import raises

ASK = [{"role": "user", "content": "Where?"}]


def config(url: str = "http://127.0.0.1:9/v1", **more: Any) -> ChatConfig:
    return ChatConfig(**{"model": "m", "base_url": url, "key_variable": None, "attempts": 1, **more})


@pytest.mark.parametrize(
    "url",
    [
        "http://host:port/v1",
        "http://host:99999/v1",
        "http://host/v1/chat/completions",
        "http://host/v1/completions/",
        "http://${HOST}/v1",
        "http://host/v1#models",
        "host:8000/v1",
    ],
)
def test_address_that_cannot_work_is_refused(url: str) -> None:
    with pytest.raises(ValidationError):
        config(url)


def test_white_space_around_an_address_is_removed() -> None:
    assert config(" http://host:8000/v1 ").url == "http://host:8000/v1"


def test_address_in_the_environment_is_checked_and_a_blank_one_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "localhost:8000/v1")
    with raises("bad-base-url"):
        _ = config().model_copy(update={"base_url": None}).url
    monkeypatch.setenv("OPENAI_BASE_URL", "  ")
    assert config().model_copy(update={"base_url": None}).url == "https://api.openai.com/v1"


@pytest.mark.parametrize("fields", [{"top_p": float("nan")}, {"since": date(2024, 1, 1)}, {"stop": {"a", "b"}}])
def test_field_that_json_cannot_hold_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        config(parameters=fields)


@pytest.mark.parametrize("key", ["“sk-0123456789”", "sk-0123\n456789", "sk-0123\u200b456789", "sk-\x01"])
def test_key_that_no_header_can_hold_is_refused_without_showing_it(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", key)
    with raises("bad-header", where="MY_KEY") as caught:
        ChatModel(config(key_variable="MY_KEY"))
    assert "0123" not in str(caught.value)


@pytest.mark.parametrize("headers", [{"X-Team": "Zürich"}, {"X Team": "a"}, {"X-Tëam": "a"}, {"X-Team": "a\0b"}])
def test_header_that_cannot_be_sent_is_refused(headers: dict[str, str]) -> None:
    with raises("bad-header"):
        require_headers(headers, "headers")
    with raises("bad-header"):
        ChatModel(config(headers=headers))


ENVIRONMENTS = {
    "socks4": {"ALL_PROXY": "socks4://user:secret@127.0.0.1:9"},
    "port": {"HTTP_PROXY": "http://proxy:port"},
    "garbage": {"HTTP_PROXY": "::::"},
    "certificate": {"SSL_CERT_FILE": "/nowhere.pem"},
}


@pytest.mark.parametrize("kind", ENVIRONMENTS)
def test_proxy_or_certificate_that_cannot_be_used_is_named(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENTS[kind].items():
        monkeypatch.setenv(name, value)
    with raises("bad-connection-variables") as caught:
        run(ChatModel(config()).ask(ASK))
    assert "secret" not in str(caught.value)
    with raises("bad-connection-variables"):
        run(Client(1, 1.0, 1000, 1.0).send("GET", "http://127.0.0.1:9", {}, None, None))


@pytest.mark.parametrize("content_type", ["text/plain", "", "application/octet-stream"])
def test_completion_is_read_whatever_its_content_type(content_type: str) -> None:
    body = b': OPENROUTER PROCESSING\n\n{"choices": [{"message": {"content": "Lyon"}, "finish_reason": "stop"}]}'
    assert ChatModel(config())._backend._read(content_type, body).text == "Lyon"  # type: ignore[attr-defined]
