"""Loading a model without access to the hub: the cache is used immediately, without a minute of retries."""

from __future__ import annotations

import os
import sys

import pytest

from benchmarks.io.hub import offline, use_cache_if_unreachable

pytest.importorskip("huggingface_hub")


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a process that has not imported the hub's library, without proxy and with network allowed."""
    monkeypatch.delitem(sys.modules, "huggingface_hub")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.delenv("RAGMETER_OFFLINE", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.invalid")
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def test_hub_without_network_address_is_not_contacted() -> None:
    use_cache_if_unreachable()
    assert offline()


@pytest.mark.parametrize(("name", "value"), [("HF_ENDPOINT", "http://127.0.0.1:9"), ("https_proxy", "http://127.0.0.1:9")])
def test_hub_with_an_address_or_proxy_is_contacted(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    use_cache_if_unreachable()
    assert not offline()


def test_imported_library_is_not_switched_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", os)
    use_cache_if_unreachable()
    assert not offline()
