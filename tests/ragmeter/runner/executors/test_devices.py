from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from methods.api import Prediction, Services
from methods.registry import MethodConfig
from methods.work import Checkpoint, Needs
from ragmeter.runner.executors import Local, devices
from ragmeter.runner.executors.devices import PerDevice, count, every_device


class WhichDevice:
    """Method that answers with the GPU of its process, once a process on another GPU answers too.

    Args:
        folder: Folder in which processes record their GPUs.
    """

    in_flight = 1

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def index(self, corpus: Corpus) -> None:
        """Do nothing."""

    def answer(self, queries: Iterator[Query]) -> Iterator[Prediction]:
        for query in queries:
            device = os.environ.get("CUDA_VISIBLE_DEVICES", "none")
            (self.folder / f"gpu-{device}").touch()
            for _ in range(600):
                if len(list(self.folder.glob("gpu-*"))) > 1:
                    break
                time.sleep(0.1)
            yield Prediction(query.id, device)


class Made:
    """Parts of a task as the executor sees them."""

    def build(self, services: Services) -> WhichDevice:
        assert services.artifacts is not None
        return WhichDevice(services.artifacts)


def task(needs: Needs | None) -> Any:
    method = SimpleNamespace(components=[SimpleNamespace(needs=needs, config=MethodConfig())], composition=Made())
    run = SimpleNamespace(questions=12)
    return SimpleNamespace(method=method, run=run, services=lambda services: services, build=lambda services: "in this process")


@pytest.mark.parametrize(("visible", "number"), [(None, 2), ("0,1", 2), ("0,1,2,3", 2), ("1", 1), ("", 0), ("-1", 0), ("GPU-a, GPU-b", 2)])
def test_visible_gpus_are_used(visible: str | None, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "gpus_here", lambda: [10, 10])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert count() == number


@pytest.mark.parametrize(("number", "ray", "workers", "noted"), [(1, True, False, False), (2, False, False, True), (2, True, True, False)])
def test_workers_require_several_gpus_and_ray(
    number: int, ray: bool, workers: bool, noted: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(devices, "count", lambda: number)
    monkeypatch.setattr(devices, "find_spec", lambda name: object() if ray else None)
    with every_device() as executor:
        assert type(executor) is (PerDevice if workers else Local)
    assert ("[ray]" in capsys.readouterr().err) == noted


def test_methods_without_models_run_in_the_main_process() -> None:
    with ExitStack() as stack:
        executor = PerDevice(2, stack)
        for needs in (Needs(), None):
            assert executor.build(task(needs), Services()) == "in this process"


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_each_gpu_has_a_worker(tmp_path: Path) -> None:
    corpus = Corpus.of([])
    queries: Sequence[Query] = [Query(f"q{number}", "?") for number in range(12)]
    with ExitStack() as stack:
        executor = PerDevice(2, stack)
        method = executor.build(task(Needs(checkpoints=(Checkpoint("a"),))), Services(artifacts=tmp_path))
        method.index(corpus)
        replies = {prediction.question_id: prediction.answer for prediction in method.answer(queries)}
        executor.release(method)
    assert replies.keys() == {query.id for query in queries}
    assert set(replies.values()) == {"0", "1"}
