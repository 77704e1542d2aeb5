"""`serve` starts a server, and reports clearly why it cannot."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import ModuleType

import pytest

from leaderboard import server
from leaderboard.server import command, require_free, serve
from tests.support.errors import raises


def children(parent: int) -> list[int]:
    """Return the child processes of a process."""
    results = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            if int(stat.rpartition(")")[2].split()[1]) == parent:
                results.append(int(entry.name))
    return results


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to find the server's process")
def test_server_answers_on_loopback_and_ends_with_its_parent(tmp_path: Path, screenshots: ModuleType) -> None:
    pytest.importorskip("streamlit")
    port = screenshots.free_port()
    parent = subprocess.Popen(
        [sys.executable, "-c", screenshots.SERVE, str(tmp_path), str(port)],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        address = f"http://127.0.0.1:{port}"
        screenshots.wait_until_healthy(address, parent)
        with urllib.request.urlopen(address, timeout=5) as reply:
            assert reply.status == 200
            assert b"<html" in reply.read(2000).lower()
        (child,) = children(parent.pid)
    finally:
        parent.send_signal(signal.SIGTERM)
        code = parent.wait(60)
    assert code == 0
    assert not Path(f"/proc/{child}").exists()
    with pytest.raises(OSError, match="refused"), socket.create_connection(("127.0.0.1", port), timeout=2):
        pass


def test_occupied_port_is_reported(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with raises("port-taken") as caught:
            serve(tmp_path, port)
    assert str(port) in str(caught.value.where)
    assert caught.value.try_this


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_invalid_port_is_refused(port: int) -> None:
    with raises("not-port"):
        require_free("127.0.0.1", port)


def test_unknown_host_is_refused() -> None:
    with raises("foreign-address"):
        require_free("no-such-host.invalid", 8501)


def test_missing_streamlit_error_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(server.importlib.util, "find_spec", lambda name: None if name == "streamlit" else real(name))
    with raises("missing-package") as caught:
        serve(tmp_path)
    assert "[leaderboard]" in str(caught.value.try_this)


def test_telemetry_and_uploads_are_disabled() -> None:
    line = command(8501, "127.0.0.1", False)
    assert "--browser.gatherUsageStats=false" in line
    assert "--server.address=127.0.0.1" in line
    assert "--server.headless=true" in line
    assert "--client.showErrorDetails=none" in line


def test_every_server_option_exists_in_streamlit(monkeypatch: pytest.MonkeyPatch) -> None:
    config = pytest.importorskip("streamlit.config")
    known = set(config.get_config_options())
    options = {part[2:].partition("=")[0] for part in command(1, "h", True) if part.startswith("--")}
    assert options <= known


def test_store_is_passed_to_the_server_as_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    environment = server._environment(Path("here"))
    assert environment["RAGMETER_STORE"] == str(tmp_path.resolve() / "here")
    assert str(Path(server.__file__).parents[1]) in environment["PYTHONPATH"].split(os.pathsep)


def test_server_and_its_children_have_no_api_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HUGGING_FACE_HUB_TOKEN", "GITHUB_TOKEN", "OPENAI_KEY", "CI_JOB_TOKEN", "MYSQL_PWD", "DB_PASS"):
        monkeypatch.setenv(name, "hunter2")
    monkeypatch.setenv("DATABASE_URL", "postgres://me:hunter2@host.example/db")
    monkeypatch.setenv("RAGMETER_DATA", "data")
    environment = server._environment(tmp_path, ["ragmeter", "submit"])
    assert "hunter2" not in repr(environment)
    assert environment["RAGMETER_DATA"] == "data"
    assert environment["PATH"] == os.environ["PATH"]
