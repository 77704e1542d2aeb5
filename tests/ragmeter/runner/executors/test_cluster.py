from __future__ import annotations

import ctypes
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import pytest

from methods.api import Services
from methods.registry import Component
from ragmeter import experiment
from ragmeter.runner.executors import cluster
from ragmeter.runner.executors.cluster import RayCluster, Shares, _refused, connected, gpu_share, refuse_batches, sigterm_kept, variables
from ragmeter.runner.executors.ray_method import RayMethod, value_of
from tests.support.errors import raises


def test_missing_ray_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with raises("missing-package") as caught, connected(Shares()):
        pass
    assert "[ray]" in str(caught.value.try_this)


@pytest.mark.parametrize(
    ("address", "code"),
    [("127.0.0.1:1", "cluster-unreachable"), ("nowhere", "cluster-unreachable"), ("ray://127.0.0.1:10001", "ray-client-address")],
)
def test_unreachable_cluster_address_is_refused_immediately(address: str, code: str) -> None:
    pytest.importorskip("ray")
    with raises(code, where="--address"), connected(Shares(address)):
        pass


@pytest.mark.parametrize("thread", [False, True])
def test_sigterm_interrupts_after_a_library_replaced_its_handlers(thread: bool) -> None:
    before, native = signal.getsignal(signal.SIGTERM), ctypes.pythonapi

    def replace_handlers() -> None:
        with sigterm_kept():
            if not thread:  # Python changes its handlers only in the main thread, and so does Ray
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            native.PyOS_setsig.argtypes = ctypes.c_int, ctypes.c_void_p
            native.PyOS_setsig(signal.SIGTERM, 1)  # SIG_IGN, below Python

    received: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    try:
        if thread:
            other = threading.Thread(target=replace_handlers)
            other.start()
            other.join()
        else:
            replace_handlers()
        signal.raise_signal(signal.SIGTERM)
        assert received == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_running_cluster_that_is_not_there_is_no_question_of_tokens() -> None:
    assert _refused("auto", "Could not find any running Ray instance.").code == "cluster-unreachable"
    assert _refused("10.0.0.1:6379", "Failed to connect").code == "cluster-refused"
    assert _refused("10.0.0.1:6379", "Version mismatch: ray 2.50").code == "node-versions-differ"


def test_batch_mode_is_refused_before_connecting_to_a_cluster() -> None:
    text = """\
name: x
benchmarks: [{id: worlds/multihop, setting: distractor, limit: 1}]
methods: [{id: bm25, reader: {id: chat, config: {llm: {model: m, key_variable: null, batch: true}}}}]
metrics: [em]
"""
    with raises("batch-with-ray"):
        refuse_batches(experiment.parse(text, "x.yaml"))
    refuse_batches(experiment.parse(text.replace("batch: true", "batch: false"), "x.yaml"))


def test_run_ends_if_the_cluster_head_stops_responding(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setattr(cluster, "HEAD_S", 0.05)
    monkeypatch.setattr(cluster, "LOOK_S", 0.02)
    head = socket.create_server(("127.0.0.1", 0))
    executor = RayCluster(Shares(), local=True)
    waiting = RayMethod(None, None, None, None, 1, 1)  # type: ignore[arg-type]
    executor._open.append(waiting)
    ended = threading.Event()
    watch = threading.Thread(target=executor.watch, args=(head.getsockname(), ended))
    watch.start()
    time.sleep(0.15)
    waiting._look()  # it answers
    head.close()
    watch.join(10)
    with raises("cluster-lost"):
        waiting._look()
    with raises("cluster-lost"):
        executor.build(None, Services(artifacts=Path()))  # type: ignore[arg-type]


@pytest.mark.parametrize("fault", ["OutOfDiskError", "ObjectStoreFullError"])
def test_node_without_object_store_memory_is_reported(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")

    def full(reference: object) -> None:
        raise getattr(ray.exceptions, fault)("no space left")

    monkeypatch.setattr(ray, "get", full)
    with raises("object-store-full"):
        value_of(None)


def test_gpu_share_follows_from_the_model_sizes() -> None:
    bm25, dense = Component.of("bm25"), Component.of("dense", {"model": "acme/embedder-7b"})
    assert gpu_share([bm25], 24 * 10**9) == 0
    assert gpu_share([bm25, dense], 80 * 10**9) == 0.5  # 7e9 · 4 bytes · 1.3
    assert gpu_share([dense], 10 * 10**9) == 4
    assert gpu_share([dense], 0) == 1  # without nvidia-smi
    assert gpu_share([Component.of("dense", {"model": "acme/embedder"})], 80 * 10**9) == 1


def test_workers_get_only_keys_and_data_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAGMETER_DATA", "MY_SECRET", "UNRELATED", "OTHER_API_KEY", "RAY_ADDRESS"):
        monkeypatch.setenv(name, name)
    chat = Component.of("chat", {"llm": {"model": "m", "key_variable": "MY_SECRET"}})
    sent = variables([chat.config])
    assert {"RAGMETER_DATA", "MY_SECRET", "OTHER_API_KEY"} <= sent.keys()
    assert not {"UNRELATED", "RAY_ADDRESS"} & sent.keys()
