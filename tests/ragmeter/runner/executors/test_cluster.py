from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from methods.registry import Component
from ragmeter.runner.executors import cluster
from ragmeter.runner.executors.cluster import Node, RayCluster, Shares, connected, gpu_share, probe, refuse_nodes, variables
from tests.support.errors import raises

HERE = Node("here", {"python": "3.12.1", "torch": "2.9.0", "ray": "none"}, (), 0)


def test_a_cluster_without_ray_installed_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with raises("missing-package") as caught, connected(Shares()):
        pass
    assert "[ray]" in str(caught.value.try_this)


@pytest.mark.parametrize(
    ("address", "code"),
    [("127.0.0.1:1", "cluster-unreachable"), ("nowhere", "cluster-unreachable"), ("ray://127.0.0.1:10001", "ray-client-address")],
)
def test_an_address_where_no_head_listens_is_refused_at_once(address: str, code: str) -> None:
    pytest.importorskip("ray")
    with raises(code, where="--address"), connected(Shares(address)):
        pass


def test_nodes_with_other_packages_or_without_a_folder_are_refused() -> None:
    refuse_nodes([HERE], HERE)
    with raises("node-versions-differ") as caught:
        refuse_nodes([HERE, replace(HERE, name="b", versions={**HERE.versions, "torch": "2.8.0"})], HERE)
    assert "torch 2.8.0 instead of 2.9.0" in caught.value.what
    with raises("node-without-folder"):
        refuse_nodes([replace(HERE, missing=("/data",))], HERE)


def test_a_folder_of_the_same_path_that_is_not_shared_is_missing(tmp_path: Path) -> None:
    (tmp_path / "mark").touch()
    seen = probe("n", {str(tmp_path): "mark", str(tmp_path / "."): None})
    assert seen.missing == ()
    assert seen.versions["ragmeter"] != "none"
    assert probe("n", {str(tmp_path): "other"}).missing == (str(tmp_path),)


def test_a_small_object_store_is_refused() -> None:
    node: dict[str, Any] = {"NodeManagerHostname": "a", "Resources": {"object_store_memory": cluster.OBJECTS}}
    RayCluster._require_objects([node])
    with raises("object-store-too-small"):
        RayCluster._require_objects([node, {**node, "Resources": {"object_store_memory": 2**20}}])


def test_the_share_of_a_gpu_follows_from_the_sizes_of_models() -> None:
    bm25, dense = Component.of("bm25"), Component.of("dense", {"model": "acme/embedder-7b"})
    assert gpu_share([bm25], 24 * 10**9) == 0
    assert gpu_share([bm25, dense], 80 * 10**9) == 0.5  # 7e9 · 4 bytes · 1.3
    assert gpu_share([dense], 10 * 10**9) == 4
    assert gpu_share([Component.of("dense", {"model": "acme/embedder"})], 80 * 10**9) == 1


def test_workers_get_keys_and_places_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAGMETER_DATA", "MY_SECRET", "UNRELATED", "OTHER_API_KEY", "RAY_ADDRESS"):
        monkeypatch.setenv(name, name)
    chat = Component.of("chat", {"llm": {"model": "m", "key_variable": "MY_SECRET"}})
    sent = variables([chat.config])
    assert {"RAGMETER_DATA", "MY_SECRET", "OTHER_API_KEY"} <= sent.keys()
    assert not {"UNRELATED", "RAY_ADDRESS"} & sent.keys()
