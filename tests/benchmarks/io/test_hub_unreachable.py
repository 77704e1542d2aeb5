"""An unreachable hub: one immediate error instead of minutes of retries."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from benchmarks.io import hub_faults
from benchmarks.io.hub import fetch
from tests.support.errors import raises
from tests.support.hub_server import hub_at

pytest.importorskip("huggingface_hub")


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_faults, "WAIT_S", 0.0)
    monkeypatch.setattr(hub_faults, "_reached", {})
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "https://hub.invalid"])
def test_unreachable_hub_is_tried_once_without_the_library(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    tried: list[object] = []
    connect = socket.create_connection

    def counted(address: tuple[str, int], timeout: float) -> socket.socket:
        tried.append(address)
        return connect(address, timeout)

    def asked(*_: object, **__: object) -> None:
        raise AssertionError("the library was asked")

    monkeypatch.setattr(socket, "create_connection", counted)
    monkeypatch.setattr(huggingface_hub.HfApi, "list_repo_tree", asked)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", asked)
    with hub_at(url, tmp_path):
        for repository in ("owner/one", "owner/two"):
            with raises("hub-unreachable") as caught:
                fetch(repository, ["*"], None)
            assert "HF_ENDPOINT" in str(caught.value.try_this)
    assert 1 <= len(tried) <= 2


def test_slow_failing_listing_is_not_requested_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setattr(hub_faults, "PATIENCE_S", -1.0)
    import httpx

    calls: list[str] = []

    def lost() -> None:
        calls.append("")
        raise httpx.ConnectError("gone")

    for file, tries in ((None, 1), ("data.jsonl", hub_faults.TRIES)):
        calls.clear()
        with raises("hub-unreachable"):
            hub_faults.ask(lost, hub_faults.Wanted("a/b", "main", "https://h", file))
        assert len(calls) == tries
