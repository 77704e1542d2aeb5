"""A hub that cannot be reached: said at once, once, and without the noise of the libraries that would try on."""

from __future__ import annotations

import logging
import socket
from pathlib import Path

import pytest

from benchmarks.core.errors import Broke
from benchmarks.io import hub
from benchmarks.io.hub import fetch
from tests.support.hub_server import hub_at

pytest.importorskip("huggingface_hub")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "WAIT_S", 0.0)
    monkeypatch.setattr(hub, "_reached", {})
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "https://hub.invalid"])
def test_the_library_is_not_asked_and_the_connection_tried_once(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
            with pytest.raises(Broke, match=f"the hub cannot be reached for {repository}") as caught:
                fetch(repository, ["*"], None)
            assert "HF_ENDPOINT" in str(caught.value.try_this)
    assert 1 <= len(tried) <= 2


def test_while_the_hub_is_asked_the_libraries_are_quiet_and_then_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    logger = logging.getLogger("huggingface_hub")
    before, inside = logger.level, []
    hub.ask(lambda: inside.append(logger.getEffectiveLevel()), hub.Wanted("a/b", "main", "https://h"))
    assert inside == [logging.ERROR]
    assert logger.level == before


def test_a_listing_that_took_long_to_fail_is_not_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setattr(hub, "PATIENCE_S", -1.0)
    import httpx

    calls: list[str] = []

    def lost() -> None:
        calls.append("")
        raise httpx.ConnectError("gone")

    for file, tries in ((None, 1), ("data.jsonl", hub.TRIES)):
        calls.clear()
        with pytest.raises(Broke, match="cannot be reached"):
            hub.ask(lost, hub.Wanted("a/b", "main", "https://h", file))
        assert len(calls) == tries


def test_a_terminal_shows_once_for_each_repository_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setattr(hub, "_announced", set())
    monkeypatch.delenv("HF_HUB_DISABLE_PROGRESS_BARS", raising=False)
    for terminal, repository in ((False, "a/quiet"), (True, "a/b"), (True, "a/b"), (True, "a/c")):
        monkeypatch.setattr("sys.stderr.isatty", lambda terminal=terminal: terminal, raising=False)
        assert hub.ask(lambda: 7, hub.Wanted(repository, "main", "https://h")) == 7
    assert capsys.readouterr().err == "asking the hub for a/b …\nasking the hub for a/c …\n"
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    hub.ask(lambda: 7, hub.Wanted("a/d", "main", "https://h"))
    assert capsys.readouterr().err == ""
