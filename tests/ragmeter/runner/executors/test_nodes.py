from __future__ import annotations

import pickle
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from methods.registry import METHODS, Component
from ragmeter.runner.executors import nodes
from ragmeter.runner.executors.nodes import Node, Wanted, place_of, probe, refuse_nodes
from tests.support.errors import raises
from tests.support.plugin import Plugin

HERE = Node("here", {"python": "3.12.1", "torch": "2.9.0", "ray": "none"})


def wanted(parts: bytes = pickle.dumps([]), **more: object) -> Wanted:
    """Return the requirements that a node is checked for."""
    return replace(Wanted({}, {}, parts), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fault", "code", "named"),
    [
        ({"versions": {**HERE.versions, "torch": "2.8.0"}}, "node-versions-differ", "torch 2.8.0 instead of 2.9.0"),
        ({"versions": {"python": "3.11.2", "torch": "2.9.0"}}, "node-versions-differ", "python 3.11.2 instead of 3.12.1"),
        ({"missing": ("/data",)}, "node-without-folder", "/data"),
        ({"unreached": ("http://localhost:8000/v1",)}, "node-without-connection", "http://localhost:8000/v1"),
        ({"weights": ("acme/model",)}, "node-without-weights", "acme/model"),
        ({"broken": "ModuleNotFoundError: No module named 'acme'"}, "node-without-plugin", "acme"),
    ],
)
def test_different_node_is_refused_with_its_missing_requirements(fault: dict[str, object], code: str, named: str) -> None:
    node = replace(HERE, name="b", **fault)  # type: ignore[arg-type]
    refuse_nodes([HERE], HERE)
    with raises(code) as caught:
        refuse_nodes([HERE, node], HERE)
    assert named in caught.value.what
    if code in ("node-without-connection", "node-without-weights"):
        refuse_nodes([node], replace(HERE, unreached=node.unreached, weights=node.weights))  # the same is missing here


def test_unshared_folder_with_an_equal_path_is_missing(tmp_path: Path) -> None:
    (tmp_path / "mark").touch()
    seen = probe("n", wanted(folders={str(tmp_path): "mark", str(tmp_path / "."): None}))
    assert seen.missing == ()
    assert seen.versions["ragmeter"] != "none"
    assert probe("n", wanted(folders={str(tmp_path): "other"})).missing == (str(tmp_path),)


def test_closed_port_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = server.getsockname()
        assert probe("n", wanted(addresses={"here": place})).unreached == ()
    assert probe("n", wanted(addresses={"here": place})).unreached == ("here",)


def test_changed_source_line_changes_the_code_hash_of_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "HOME", tmp_path)
    file = tmp_path / "methods" / "part.py"
    file.parent.mkdir()
    file.write_text("x = 1\n")
    first = nodes._code()
    file.write_text("x = 2\n")
    assert nodes._code() != first


def test_plugin_code_is_hashed_on_the_node(plugin: Plugin) -> None:
    cloudpickle = pytest.importorskip("ray").cloudpickle
    plugin.load()
    parts = cloudpickle.dumps([Component.of("acme")])
    before = probe("n", wanted(parts)).versions["plug-in acme"]
    plugin.write({"acme/helper.py": (plugin.folder / "acme/helper.py").read_text().replace("strip", "rstrip")})
    assert probe("n", wanted(parts)).versions["plug-in acme"] != before
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme"]:
        del sys.modules[name]
    (plugin.folder / "acme/app.py").unlink()
    assert "acme" in probe("n", wanted(parts)).broken
    assert "acme" in METHODS


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("http://10.0.0.1:8000/v1", ("10.0.0.1", 8000)),
        ("https://api.example.org/v1", ("api.example.org", 443)),
        ("http://host/x", ("host", 80)),
        ("${URL}/ask", None),
        ("http://host:port/x", None),
        ("", None),
    ],
)
def test_url_is_resolved_to_host_and_port(url: str, place: tuple[str, int] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert place_of(url) == place


def test_host_behind_a_proxy_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "inner.example.org")
    assert place_of("https://api.example.org/v1") is None
    assert place_of("https://inner.example.org/v1") == ("inner.example.org", 443)
