"""Loading a model where the hub has no address: the cache at once, instead of a minute of trying."""

from __future__ import annotations

import socket
import threading

import pytest

from benchmarks.core.errors import UserError
from benchmarks.io.hub import offline_where_unreachable
from methods.models.weights import load_pretrained

pytest.importorskip("huggingface_hub")
from huggingface_hub import constants


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.invalid")
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def test_a_hub_without_an_address_is_not_asked() -> None:
    with pytest.raises(RuntimeError, match="inside"), offline_where_unreachable():  # noqa: PT012
        assert constants.HF_HUB_OFFLINE
        raise RuntimeError("inside")
    assert not constants.HF_HUB_OFFLINE


@pytest.mark.parametrize(("name", "value"), [("HF_ENDPOINT", "http://127.0.0.1:9"), ("https_proxy", "http://127.0.0.1:9")])
def test_a_hub_with_an_address_or_behind_a_proxy_is_asked(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with offline_where_unreachable():
        assert not constants.HF_HUB_OFFLINE


def test_threads_that_leave_in_any_order_leave_the_setting_as_it_was() -> None:
    inside, leave = threading.Barrier(2, timeout=30), threading.Event()

    def first() -> None:
        with offline_where_unreachable():
            inside.wait()
        leave.set()

    thread = threading.Thread(target=first)
    thread.start()
    with offline_where_unreachable():
        inside.wait()
        assert leave.wait(30)
        assert constants.HF_HUB_OFFLINE
    thread.join(30)
    assert not constants.HF_HUB_OFFLINE


def test_who_is_offline_stays_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with offline_where_unreachable():
        assert constants.HF_HUB_OFFLINE
    assert constants.HF_HUB_OFFLINE


def test_a_model_that_is_nowhere_is_said_without_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "https://hub.invalid")

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket, "create_connection", refused)
    with pytest.raises(UserError, match="cannot be loaded"):
        load_pretrained("language model", "AutoModelForCausalLM", "nosuch/model", None, None, "cpu")
